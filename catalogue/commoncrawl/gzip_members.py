"""Decompress gzip members from outside: manifests, blocks of the CDX index, records.

ISA-L takes half the time of zlib. zlib decompresses a member that ISA-L rejects, or that has optional fields, so that
errors are the same with and without it.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from gzip import GzipFile
from io import BytesIO
from typing import Any

from catalogue.errors import BadManifest

try:
    from isal import isal_zlib
except ImportError:  # some platforms have no wheels
    isal_zlib = None  # type: ignore[assignment]

fast_zlib: Any = isal_zlib or zlib
crc32: Callable[[bytes | memoryview], int] = fast_zlib.crc32

MAX_DOCUMENT = 16 << 20
"""Bytes of a decompressed manifest or list of crawls; the largest known have 0.2 MB."""
_WBITS = 31
_WITHOUT_OPTIONS = b"\x1f\x8b\x08\0"
_SIZE = 4
"""Bytes at the end of a member that state its decompressed size."""
_PIECE = 16 << 10


def inflate(data: bytes, *, limit: int = MAX_DOCUMENT) -> bytes:
    """Decompress one gzip member.

    Raises:
        BadManifest: if it is not exactly one, or inflates to over ``limit`` bytes.
    """
    text = inflate_by_isal(data, limit)
    return inflate_by_zlib(data, limit) if text is None else text


def inflate_list(data: bytes) -> bytes:
    """Decompress a gzip file of any number of members, such as several lists in one file.

    Raises:
        BadManifest: if it is not one, or inflates to over ``MAX_DOCUMENT`` bytes.
    """
    try:
        with GzipFile(fileobj=BytesIO(data)) as file:
            text = file.read(MAX_DOCUMENT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadManifest(f"not gzip: {error}") from error
    if len(text) > MAX_DOCUMENT:
        raise BadManifest(f"inflates to more than {MAX_DOCUMENT:,} bytes")
    return text


def inflate_by_isal(data: bytes, limit: int) -> bytes | None:
    """Return None if ISA-L is not installed, or for members that zlib must examine."""
    if isal_zlib and data.startswith(_WITHOUT_OPTIONS):
        inflater = isal_zlib.decompressobj(_WBITS)
        stated = int.from_bytes(data[-_SIZE:], "little")
        with suppress(isal_zlib.error):  # type: ignore[arg-type]  # declared as an instance
            text = inflater.decompress(data, min(stated, limit) + 1)  # in half the time of a higher limit
            if len(text) <= limit and inflater.eof and not inflater.unused_data:
                return text
    return None


def pieces_by_isal(data: memoryview, size: int) -> Iterator[bytes]:
    """Decompress one gzip member of a known size in small pieces, whose memory is used again and again.

    Raises:
        BadManifest: if ISA-L is not installed, or does not find exactly one member of this size.
    """
    left = size
    if isal_zlib and data[: len(_WITHOUT_OPTIONS)] == _WITHOUT_OPTIONS:
        inflater = isal_zlib.decompressobj(_WBITS)
        with suppress(isal_zlib.error):  # type: ignore[arg-type]  # declared as an instance
            for start in range(0, len(data), _PIECE):
                piece = inflater.decompress(data[start : start + _PIECE], left + 1)
                left -= len(piece)
                if left < 0 or (inflater.eof and start + _PIECE < len(data)):
                    break
                yield piece
            else:
                if inflater.eof and not inflater.unused_data and not left:
                    return
    raise BadManifest("not one gzip member of its size")


def inflate_by_zlib(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(_WBITS)
    try:
        text = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadManifest(f"not gzip: {error}") from error
    if len(text) > limit:
        raise BadManifest(f"inflates to more than {limit:,} bytes")
    if not inflater.eof:
        raise BadManifest("truncated")
    if inflater.unused_data:
        raise BadManifest("data after the end of the gzip stream")
    return text
