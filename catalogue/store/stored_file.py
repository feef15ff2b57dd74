"""One stored value: bytes of a source file and their metadata, written in one transaction.

It starts with a byte that no pickle starts with, since users exchange stores, and with a digest of the rest, since
SQLite's integrity check does not detect a flipped bit in a value.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import get_type_hints

from catalogue.errors import StoreDamaged
from catalogue.formatting import in_utc
from catalogue.parquet.page_index import Indexes

try:
    from isal import isal_zlib as fast_zlib
except ImportError:  # some platforms have no wheels
    import zlib as fast_zlib  # type: ignore[no-redef]

_INVALID: tuple[type[Exception], ...] = (ValueError, TypeError, RecursionError, fast_zlib.error)  # type: ignore[assignment]
"""Errors of values that are no JSON or no compressed bytes."""

DIGEST_SIZE = 16
"""Bytes of the digest, after the first byte of a value."""

_TAG = b"\x01"
_LEVEL = 1
"""Footers take 9 % more bytes than at level 6 of zlib, and 8 % of its time with ISA-L, 40 % without."""
_SMALL = 8 << 10
_MAX_VALUE = 64 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Bytes of one file of the source."""

    data: bytes
    """A footer without length and magic, a complete document, or nothing for a failure."""
    size: int
    """Bytes of the file in the source."""
    etag: str | None
    """The source's header, with quotes; None if it sent none."""
    last_modified: str | None
    source: str
    """Address of the source; ETags of different sources cannot be compared."""
    taken: str
    """Time of the request: ISO 8601, UTC."""
    note: str = ""
    """The reason of a failure."""

    @property
    def version(self) -> tuple[str, int, str | None]:
        """Return source, size and ETag, which identify the version of the file."""
        return self.source, self.size, self.etag

    @property
    def fetched_at(self) -> datetime:
        """Return the time of the request, in UTC.

        Raises:
            StoreDamaged: if ``taken`` is not a time.
        """
        try:
            return in_utc(datetime.fromisoformat(self.taken))
        except ValueError as error:
            message = f"a value of the store is damaged: invalid time {self.taken[:50]!r}"
            raise StoreDamaged(message) from error


def marker(note: str = "", *, data: bytes = b"", source: str = "") -> StoredFile:
    """Return a value that is not a file of the source: a failure, a definition or a mark."""
    return StoredFile(data, len(data), None, None, source, datetime.now(UTC).isoformat(timespec="seconds"), note)


_FIELD_TYPES = get_type_hints(StoredFile)


def encode(stored: StoredFile, *, compress_small: bool = True) -> bytes:
    """Encode a value for the store.

    Args:
        stored: the value.
        compress_small: compress data of less than 8 KiB, too. Summaries take about one page of SQLite either way, and
            are all decoded to build the metadata database, which is faster if they are not compressed.
    """
    large = compress_small or len(stored.data) >= _SMALL
    header = {name: getattr(stored, name) for name in stored.__slots__ if name != "data"}
    return _joined(
        len(stored.data), header, fast_zlib.compress(stored.data, _LEVEL) if large else zlib.compress(stored.data, 0)
    )


def encode_indexes(indexes: Mapping[int, Indexes], file: StoredFile) -> dict[int, bytes]:
    """Encode page indexes of a file for the store, by row group."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {ordinal: encode(replace(file, data=each.pack(), taken=now)) for ordinal, each in indexes.items()}


def _joined(length: int, header: dict[str, object], compressed: bytes) -> bytes:
    body = json.dumps([length, header]).encode() + b"\n" + compressed
    return _TAG + hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() + body


def version_of(value: bytes) -> bytes:
    """Return the digest of a value, which identifies it, without verifying it."""
    return value[1 : 1 + DIGEST_SIZE]


def has_valid_digest(value: object) -> bool:
    """Verify the digest of a value."""
    if not isinstance(value, bytes) or value[:1] != _TAG:
        return False
    body = memoryview(value)[1 + DIGEST_SIZE :]
    return hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() == version_of(value)


@dataclass(frozen=True, slots=True)
class Label:
    """The metadata of a value."""

    length: int
    """Bytes of the data."""
    version: tuple[str, int, str | None]
    """See ``StoredFile.version``."""
    note: str


def label_of(value: object) -> Label | None:
    """Return the metadata of a value without decompressing it; None if it is damaged."""
    if not isinstance(value, bytes) or not has_valid_digest(value):
        return None
    try:
        length, fields = json.loads(value[1 + DIGEST_SIZE : value.index(b"\n", 1 + DIGEST_SIZE)])
        return Label(length, (fields["source"], fields["size"], fields["etag"]), fields["note"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def decode(value: object) -> StoredFile:
    """Decode a value of the store.

    Raises:
        StoreDamaged: if it is damaged.
    """
    if not isinstance(value, bytes):
        message = f"a value of the store is damaged: {type(value).__name__} instead of bytes"
        raise StoreDamaged(message)
    if not has_valid_digest(value):
        message = "a value of the store is damaged: its digest is wrong"
        raise StoreDamaged(message)
    # A valid digest is not a signature: the value may be crafted.
    try:
        end = value.index(b"\n", 1 + DIGEST_SIZE)
        length, fields = json.loads(value[1 + DIGEST_SIZE : end])
        data = memoryview(value)[end + 1 :]
        if not 0 <= length <= _MAX_VALUE:
            message = f"a value of the store claims {length} bytes"
            raise StoreDamaged(message)
        stored = StoredFile(data=fast_zlib.decompressobj().decompress(data, max(1, length)), **fields)
    except _INVALID as error:
        message = f"a value of the store is damaged: {str(error)[:200]!r}"
        raise StoreDamaged(message) from error
    if invalid := [name for name, kind in _FIELD_TYPES.items() if not isinstance(getattr(stored, name), kind)]:
        message = f"a value of the store is damaged: {invalid[0]} is {repr(getattr(stored, invalid[0]))[:200]}"
        raise StoreDamaged(message)
    if len(stored.data) != length:
        message = f"a value of the store has {len(stored.data)} bytes instead of {length}"
        raise StoreDamaged(message)
    return stored
