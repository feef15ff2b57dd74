"""Remove chunks and content codings from archived bodies, in bounded memory.

Archives contain bodies as they were sent, without chunks, or decoded while the headers still name the codings. Gzip,
zlib and zstd have signatures: a body without that of its coding is not coded. Brotli and raw deflate have none: a body
that they cannot decode stays as it is if it is text.
"""

import re
import sys
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import brotli

from catalogue.errors import BadRecord
from catalogue.records.charsets import charset_of
from catalogue.records.media_type import binary_type, is_binary

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_DECODED = 64 << 20
"""Bytes of a body after each step."""

_MAX_CODINGS = 10
_MAX_MEMBERS = 100
"""The rest of a body is copied after each member or frame."""
_NOT_CODINGS = {"", "-", "7bit", "8bit", "aws-chunked", "binary", "identity", "none", "null", "off", "plain", "text"}
"""Values that servers send for bodies without a coding."""
_NO_NAME = re.compile(r"[/=]")
"""Characters of media types and parameters, which some servers send instead."""
_GZIP_SIGNATURE = b"\x1f\x8b"
_EMPTY_BROTLI = b";"  # most servers send it for an empty page; other bytes for one are digits, which may be a page
_ACCEPTED_AT_ONCE = 1 << 12
_ZSTD_SIGNATURE = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""Start of a frame or a skippable frame."""
_ZSTD_WINDOW = 26
"""Largest window as a power of two; the specification of the coding (RFC 9659) allows 23."""
_GZIP, _ZLIB, _RAW_DEFLATE = 31, 15, -15
"""Window bits of zlib."""
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]{0,4000})?\r?\n")
_CHUNK_END = re.compile(rb"\r?\n")
_LAST_CHUNK = re.compile(rb"(?:[^\r\n]{1,8000}\r?\n){0,100}\r?\n")
_START_OF_PAGE = re.compile(rb"\s*<|\x1f\x8b|\x28\xb5\x2f\xfd")


Decoded: TypeAlias = tuple[bytes, bool]
"""Decoded bytes, and whether the data ends early."""


def decode_body(body: bytes, headers: Iterable[tuple[str, str]], *, cut: bool = False) -> Decoded:
    """Remove the codings that the headers of a response name, from the last one to the first one.

    Lines of ``Content-Encoding`` are one list, as those of ``Transfer-Encoding``. With ``cut``, the record says that
    the body is truncated, and its first part is decoded.

    Raises:
        BadRecord: if a coding is unknown, or the body is damaged, ends early, or is too large.
    """
    fields = list(headers)
    codings = [*_names(fields, "content-encoding"), *_names(fields, "transfer-encoding")]
    if len(codings) > _MAX_CODINGS:
        raise BadRecord(f"its payload has {len(codings):,} content codings; at most {_MAX_CODINGS} are decoded")
    data, ends_early = body, False
    for coding in reversed(codings):
        if not data:
            break
        decoder = _DECODERS.get(coding)
        if decoder is None:
            raise BadRecord(f"its payload has the content coding {coding[:40]!r}, which cannot be decoded")
        try:
            data, early = decoder(data, cut or ends_early)
        except (zlib.error, brotli.error, zstd.ZstdError) as error:
            raise BadRecord(f"the {coding} coding of its payload is damaged: {error}") from error
        if early and coding != "chunked" and not (cut or ends_early):
            raise BadRecord(f"the {coding} coding of its payload ends early")
        ends_early = ends_early or early
    return data, ends_early


def remove_chunks(body: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the body without chunks; unchanged if it has none or they are damaged."""
    if "chunked" not in _names(headers, "transfer-encoding"):
        return body
    try:
        return _without_chunks(body, cut=True)[0]
    except BadRecord:
        return body


def _names(headers: Iterable[tuple[str, str]], header: str) -> list[str]:
    values = ",".join(value for name, value in headers if name.lower() == header)
    names = (name.partition(";")[0].strip(" \t\"'").lower() for name in values.split(","))
    return [name for name in names if not (name in _NOT_CODINGS or _NO_NAME.search(name) or charset_of(name))]


def _without_chunks(data: bytes, cut: bool) -> Decoded:  # noqa: FBT001 - as all decoders
    """Join the chunks, unless the body does not begin with a complete one or begins like a page."""
    parts: list[bytes] = []
    position = 0
    while size := _CHUNK_SIZE.match(data, position):
        length = int(size[1], 16)
        end = size.end() + length
        if length == 0 and (parts or _LAST_CHUNK.fullmatch(data, size.end())):
            return b"".join(parts), False
        terminator = _CHUNK_END.match(data, end)
        if data[end : end + 2] in {b"", b"\r"} and (parts or _START_OF_PAGE.match(data, size.end())):
            return b"".join([*parts, data[size.end() : end]]), True
        if not terminator or length == 0:
            break
        parts.append(data[size.end() : end])
        position = terminator.end()
    if not parts:
        return data, False
    if cut or not data[position:].strip(b"0123456789abcdefABCDEF\r\n"):  # the end, maybe within a size
        return b"".join(parts), True
    raise BadRecord(f"the chunks of its payload are damaged at byte {position:,}")


def _gunzip(data: bytes, _cut: bool) -> Decoded:  # noqa: FBT001
    if not data.startswith(_GZIP_SIGNATURE):
        return data, False
    return _members(data, lambda: zlib.decompressobj(_GZIP), re.compile(_GZIP_SIGNATURE))


def _inflate(data: bytes, cut: bool) -> Decoded:  # noqa: FBT001
    """Decode zlib's format or, as some servers send, raw deflate or gzip."""
    if data.startswith(_GZIP_SIGNATURE):
        return _gunzip(data, cut)
    return _unless_plain(data, zlib.error, lambda: _zlib_or_raw(data))


def _zlib_or_raw(data: bytes) -> Decoded:
    if data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0:
        with suppress(zlib.error):
            return _members(data, lambda: zlib.decompressobj(_ZLIB))
    return _members(data, lambda: zlib.decompressobj(_RAW_DEFLATE))


def _unbrotli(data: bytes, _cut: bool) -> Decoded:  # noqa: FBT001
    if data == _EMPTY_BROTLI:
        return b"", False
    return _unless_plain(data, brotli.error, lambda: _brotli_and_rest(data))


def _unzstd(data: bytes, _cut: bool) -> Decoded:  # noqa: FBT001
    if not _ZSTD_SIGNATURE.match(data):
        return data, False
    options = {int(zstd.DecompressionParameter.window_log_max): _ZSTD_WINDOW}
    return _members(data, lambda: zstd.ZstdDecompressor(options=options), _ZSTD_SIGNATURE)


def _unless_plain(data: bytes, damage: type[Exception], decode: Callable[[], Decoded]) -> Decoded:
    """Decode data without a signature, unless it is text or data of a known type.

    JSON can begin like raw deflate, and short texts like brotli; these are decoded if the result is longer text.
    """
    plain = not is_binary(data) or binary_type(data) is not None
    try:
        decoded, early = decode()
    except damage:
        if plain:
            return data, False
        raise
    if plain and (early or len(decoded) < len(data) or is_binary(decoded)):
        return data, False
    return decoded, early


def _members(data: bytes, decoder: Callable[[], Any], following: re.Pattern[bytes] | None = None) -> Decoded:
    """Decode members up to data that does not begin like one, which browsers ignore too."""
    parts: list[bytes] = []
    room = MAX_DECODED
    for _ in range(_MAX_MEMBERS):
        member = decoder()
        part = member.decompress(data, room + 1)
        room -= len(part)
        if room < 0:
            raise _too_large()
        parts.append(part)
        data = member.unused_data
        if not member.eof or not following or not following.match(data):
            return b"".join(parts), not member.eof
    raise BadRecord(f"its payload's coding has more than {_MAX_MEMBERS} members")


def _brotli_and_rest(data: bytes) -> Decoded:
    """Decode data up to the end of its stream; browsers ignore what follows, and the decoder rejects it."""
    try:
        return _brotli([data])
    except brotli.error:
        accepted = _accepted(data)
        rest = data[accepted : accepted + _ACCEPTED_AT_ONCE]
        return _brotli([data[:accepted], *(bytes([byte]) for byte in rest)])


def _accepted(data: bytes) -> int:
    decoder, place = brotli.Decompressor(), 0
    with suppress(brotli.error):
        for place in range(0, len(data), _ACCEPTED_AT_ONCE):
            piece = data[place : place + _ACCEPTED_AT_ONCE]
            while decoder.process(piece, output_buffer_limit=MAX_DECODED):
                piece = b""
    return place


def _brotli(pieces: Iterable[bytes]) -> Decoded:
    decoder = brotli.Decompressor()
    parts: list[bytes] = []
    room = MAX_DECODED
    for piece in pieces:
        data = piece
        while part := decoder.process(data, output_buffer_limit=room + 1):
            data = b""
            room -= len(part)
            if room < 0:
                raise _too_large()
            parts.append(part)
        if decoder.is_finished():
            return b"".join(parts), False
    return b"".join(parts), True


def _too_large() -> BadRecord:
    return BadRecord(f"its payload expands to more than {MAX_DECODED:,} bytes")


_DECODERS: dict[str, Callable[[bytes, bool], Decoded]] = {
    "br": _unbrotli,
    "brotli": _unbrotli,
    "chunked": _without_chunks,
    "deflate": _inflate,
    "gzip": _gunzip,
    "x-deflate": _inflate,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
}
