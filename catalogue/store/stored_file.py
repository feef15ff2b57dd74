"""One stored value: bytes of a source file and their metadata, written in one transaction.

It starts with a byte that no pickle starts with, since users exchange stores, and a digest of the rest, since SQLite's
check does not detect a flipped bit in a value.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_type_hints

from catalogue.commoncrawl.gzip_members import fast_zlib
from catalogue.errors import StoreDamaged
from catalogue.formatting import in_utc
from catalogue.settings import limits
from catalogue.source.byte_ranges import FileVersion

_INVALID: tuple[type[Exception], ...] = (ValueError, TypeError, RecursionError, fast_zlib.error)
"""Errors of values that are no JSON or no compressed bytes."""

DIGEST_SIZE = 16
"""Bytes of the digest, after the first byte."""

_TAG = b"\x01"
_LEVEL = 1
"""Footers take 9 % more bytes than at level 6 of zlib, and 8 % of its time with ISA-L, 40 % without."""
_MAX_VALUE = 64 << 20
"""Bytes of a value, unless the setting of footers accepts longer ones."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Bytes of one file of the source."""

    data: bytes
    """A footer without length and magic, a document, or nothing for a failure."""
    size: int
    etag: str | None
    """The source's header, with quotes."""
    last_modified: str | None
    source: str
    """Its address; ETags of different sources cannot be compared."""
    taken: str
    """Time of the request: ISO 8601, UTC."""
    note: str = ""

    @property
    def version(self) -> FileVersion:
        return FileVersion(self.size, self.etag, self.source)

    @property
    def fetched_at(self) -> datetime:
        """Return the time of the request, in UTC.

        Raises:
            StoreDamaged: if ``taken`` is not a time.
        """
        try:
            return in_utc(datetime.fromisoformat(self.taken))
        except (ValueError, OverflowError) as error:
            raise StoreDamaged(f"a value of the store is damaged: invalid time {self.taken[:50]!r}") from error


def marker(note: str = "", *, data: bytes = b"", source: str = "") -> StoredFile:
    """Return a value that is not a file of the source: a failure, a definition or a mark."""
    return StoredFile(data, len(data), None, None, source, datetime.now(UTC).isoformat(timespec="seconds"), note)


_FIELD_TYPES = get_type_hints(StoredFile)


def encode(stored: StoredFile) -> bytes:
    header = {name: getattr(stored, name) for name in stored.__slots__ if name != "data"}
    compressed: bytes = fast_zlib.compress(stored.data, _LEVEL)
    body = json.dumps([len(stored.data), header]).encode() + b"\n" + compressed
    return _TAG + hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() + body


def version_of(value: bytes) -> bytes:
    """Return the digest of a value, which identifies it, without verifying it."""
    return value[1 : 1 + DIGEST_SIZE]


def has_valid_digest(value: object) -> bool:
    if not isinstance(value, bytes) or value[:1] != _TAG:
        return False
    body = memoryview(value)[1 + DIGEST_SIZE :]
    return hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() == version_of(value)


def file_version_of(value: object) -> FileVersion | None:
    """Return ``StoredFile.version`` of a value without decompressing it; None if it is damaged."""
    if not isinstance(value, bytes) or not has_valid_digest(value):
        return None
    try:
        _, fields = json.loads(value[1 + DIGEST_SIZE : value.index(b"\n", 1 + DIGEST_SIZE)])
        return FileVersion(fields["size"], fields["etag"], fields["source"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def decode(value: object) -> StoredFile:
    """Decode a value.

    Raises:
        StoreDamaged: if it is damaged.
    """
    if not isinstance(value, bytes):
        raise StoreDamaged(f"a value of the store is damaged: {type(value).__name__} instead of bytes")
    if not has_valid_digest(value):
        raise StoreDamaged("a value of the store is damaged: its digest is wrong")
    # A valid digest is not a signature: the value may be crafted.
    try:
        end = value.index(b"\n", 1 + DIGEST_SIZE)
        length, fields = json.loads(value[1 + DIGEST_SIZE : end])
        data = memoryview(value)[end + 1 :]
        if not 0 <= length <= max(_MAX_VALUE, limits().max_footer):
            raise StoreDamaged(f"a value of the store claims {length} bytes")
        stored = StoredFile(data=fast_zlib.decompressobj().decompress(data, max(1, length)), **fields)
    except _INVALID as error:
        raise StoreDamaged(f"a value of the store is damaged: {str(error)[:200]!r}") from error
    if invalid := [name for name, kind in _FIELD_TYPES.items() if not isinstance(getattr(stored, name), kind)]:
        raise StoreDamaged(
            f"a value of the store is damaged: {invalid[0]} is {repr(getattr(stored, invalid[0]))[:200]}"
        )
    if len(stored.data) != length:
        raise StoreDamaged(f"a value of the store has {len(stored.data)} bytes instead of {length}")
    return stored
