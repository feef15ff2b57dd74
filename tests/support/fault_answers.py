"""Answers of the server in ``tests.support.faults``: the correct one, and one for each fault."""

import math
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import cache
from itertools import chain
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from tests.support.fault_kinds import MALFORMED_CONTENT_RANGES, MIB, Fault, Kind, Request

PIECE = 64 << 10
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


@dataclass(frozen=True)
class Content:
    """One version of a file."""

    size: int
    etag: str
    modified: float
    read: Callable[[int, int], bytes]

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        return (self.read(at, min(at + PIECE, end)) for at in range(start, end, PIECE))


Files = Callable[[str], Content | None]


@dataclass(frozen=True)
class Answer:
    """An answer. Status 0 sends nothing."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: Iterable[bytes] = ()
    filler: Iterable[bytes] = ()
    """More header lines."""
    chunked: bool = False
    ending: str = "keep"
    """What follows: ``keep``, ``fin`` or ``rst``."""
    drip: str = ""
    """Which part is sent slowly: ``body`` or ``all``."""
    wait: float = 0.0
    """Seconds before the end of an answer without a status."""

    def plus(self, **headers: str) -> "Answer":
        return replace(self, headers=self.headers | {name.replace("_", "-"): text for name, text in headers.items()})

    def less(self, name: str) -> "Answer":
        return replace(self, headers={each: text for each, text in self.headers.items() if each != name})


def _span(request: Request, size: int) -> tuple[int, int] | None:
    """Return the requested range, empty if it cannot be satisfied; None if the complete file is requested."""
    matched = _RANGE.fullmatch(request.headers.get("range", ""))
    if request.method != "GET" or not matched or not any(matched.groups()):
        return None
    low, high = matched.groups()
    if not low:
        return max(0, size - int(high)), size
    if high and int(high) < int(low):
        return None
    return int(low), min(size, int(high) + 1) if high else size


def right_answer(request: Request, content: Content | None) -> Answer:
    if request.method not in {"GET", "HEAD"}:
        return _error(405, "MethodNotAllowed").plus(Allow="GET, HEAD")
    if content is None:
        return _error(404, "NoSuchKey")
    tags = [tag.strip() for tag in request.headers.get("if-match", "*").split(",")]
    if "*" not in tags and content.etag not in tags:
        return _error(412, "PreconditionFailed")
    span = _span(request, content.size)
    if span is None:
        return _sent(200, content, 0, content.size)
    if span[0] >= span[1]:
        return _error(416, "InvalidRange").plus(Content_Range=f"bytes */{content.size}")
    return _partial(content, *span)


def _sent(status: int, content: Content, start: int, end: int) -> Answer:
    headers = {"Content-Type": "application/octet-stream", "ETag": content.etag, "Accept-Ranges": "bytes"}
    headers |= {"Last-Modified": formatdate(content.modified, usegmt=True), "Content-Length": str(end - start)}
    return Answer(status, headers, content.pieces(start, end))


def _partial(content: Content, start: int, end: int) -> Answer:
    return _sent(206, content, start, end).plus(Content_Range=f"bytes {start}-{end - 1}/{content.size}")


def _text(status: int, kind: str, text: str) -> Answer:
    return Answer(status, {"Content-Type": kind, "Content-Length": str(len(text))}, (text.encode(),))


def _error(status: int, code: str) -> Answer:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return _text(status, "application/xml", text)


def _page(status: int, title: str) -> Answer:
    return _text(status, "text/html", f"<!DOCTYPE html>\n<html><title>{title}</title><h1>{title}</h1></html>\n")


def _redirect(fault: Fault, request: Request) -> Answer:
    place = quote(request.path, errors="surrogateescape")
    where = f"{fault.target.rstrip('/')}/{place}" if fault.kind is Kind.REDIRECT_AWAY else f"/{place}?redirected"
    return Answer((301, 302, 307, 308)[fault.variant % 4], {"Location": where, "Content-Length": "0"})


def wrong_answer(  # noqa: C901, PLR0912 - one case for each kind
    fault: Fault, request: Request, files: Files, others: Callable[[], list[str]]
) -> Answer | None:
    """Return the answer with a fault, or None if the fault does not apply."""
    late = fault.retry_after
    match fault.kind:
        case Kind.DISCONNECT | Kind.SILENT:
            return Answer(0, ending="fin", wait=fault.hold if fault.kind is Kind.SILENT else 0.0)
        case Kind.HTML_200:
            return _page(200, "Welcome")
        case Kind.XML_IN_200:
            return replace(_error(500, "InternalError" if fault.variant % 2 else "SlowDown"), status=200)
        case Kind.EMPTY:
            return right_answer(_unpinned(request), Content(0, '"empty"', 0.0, lambda _, __: b""))
        case Kind.SLOW_DOWN:
            return _error(503, "SlowDown")
        case Kind.RETRY_AFTER:
            return _error(503, "SlowDown").plus(Retry_After=str(late))
        case Kind.TOO_MANY:
            return _page(429, "Too many").plus(Retry_After=formatdate(math.ceil(time.time()) + late, usegmt=True))
        case Kind.BLOCKED:
            answer = _page(403, "Request blocked. Generated by cloudfront (CloudFront)")
            return answer.plus(Server="CloudFront", X_Cache="Error from cloudfront")
        case Kind.REDIRECT_HERE | Kind.REDIRECT_AWAY:
            return _redirect(fault, request)
        case Kind.DENIED:
            return _error(403, "AccessDenied")
        case Kind.NOT_FOUND:
            return _error(404, "NoSuchKey")
        case Kind.SERVER_ERROR:
            return _error(500, "InternalError")
        case Kind.BAD_GATEWAY | Kind.GATEWAY_TIMEOUT:
            return _page(502 if fault.kind is Kind.BAD_GATEWAY else 504, "Bad gateway")
    content = files(request.path)
    request = _unpinned(request) if fault.kind is Kind.CHANGED_ETAG else request
    right = right_answer(request, content)
    if content is None or not content.size or right.status not in {200, 206}:
        return None
    if fault.kind is Kind.OTHER_OBJECT:
        return _other_object(fault, request, right, files, others)
    start, end = _span(request, content.size) or (0, content.size)
    return _damaged(fault, right, content, start, end)


def _unpinned(request: Request) -> Request:
    return replace(request, headers={**request.headers, "if-match": "*"})


def _damaged(fault: Fault, right: Answer, content: Content, start: int, end: int) -> Answer | None:  # noqa: C901, PLR0912
    """Return the answer to a request for some bytes of a file with a fault."""
    size, total = end - start, content.size
    partial = _partial(content, start, end)
    cut = replace(right, body=content.pieces(start, start + (size // 2 + fault.variant) % size), ending="fin")
    match fault.kind:
        case Kind.CUT_FIN:
            return cut
        case Kind.CUT_RST:
            return replace(cut, ending="rst")
        case Kind.DRIP_BODY | Kind.DRIP_HEADERS:
            # No request should follow on this connection, even if the body arrives in full.
            drip = "body" if fault.kind is Kind.DRIP_BODY else "all"
            return replace(right.plus(Connection="close"), drip=drip, ending="fin")
        case Kind.CLOSE_DELIMITED:
            return cut.less("Content-Length")
        case Kind.CHUNKED_CUT:
            return _chunked(cut)
        case Kind.LONG_BODY | Kind.ENDLESS:
            return _long(fault, replace(partial, body=chain(content.pieces(start, end), _filler(fault.excess))), size)
        case Kind.GZIP_BOMB:
            return _gzip_bomb(fault, partial)
        case Kind.HUGE_HEADER:
            return replace(right, filler=[b"X-Filler: " + b"x" * MIB + b"\r\n"])
        case Kind.MANY_HEADERS:
            return replace(right, filler=[b"X-Filler: x\r\n" * 1000] * 200)
        case Kind.WHOLE_FILE:
            return _sent(200, content, 0, total)
        case Kind.WRONG_CONTENT_RANGE:
            shift = -1 if start else 1
            return partial.plus(Content_Range=f"bytes {start + shift}-{end - 1 + shift}/{max(total, end + shift)}")
        case Kind.OTHER_RANGE:
            shift = -min(start, size) or min(total - end, size)
            return _partial(content, start + shift, end + shift) if shift else None
        case Kind.SHORT_RANGE:
            half = size // 2
            place = (end - half, end) if fault.variant % 2 else (start, start + half)
            return _partial(content, *place) if half else None
        case Kind.NO_CONTENT_RANGE:
            return partial.less("Content-Range")
        case Kind.MALFORMED_CONTENT_RANGE:
            form = MALFORMED_CONTENT_RANGES[fault.variant % len(MALFORMED_CONTENT_RANGES)]
            return partial.plus(Content_Range=form.format(first=start, last=end - 1, total=total))
        case Kind.MULTIPART:
            return _multipart(partial, size)
        case Kind.HTML_206:
            page = b"<!DOCTYPE html>\n<html><h1>Welcome</h1></html>\n"[:size]
            return replace(partial.plus(Content_Type="text/html"), body=[page, b" " * (size - len(page))])
        case Kind.FLIPPED_BIT:
            return replace(right, body=[_flipped(b"".join(right.body), fault.variant)])
        case Kind.CHANGED_ETAG:
            return right.plus(ETag=f'"changed-{fault.variant}"')
        case Kind.WEAK_ETAG:
            return right.plus(ETag=f"W/{content.etag}")
        case Kind.NO_ETAG:
            return right.less("ETag")
        case Kind.UNSATISFIABLE:
            return _error(416, "InvalidRange").plus(Content_Range=f"bytes */{total}")
    raise AssertionError(fault)


def _chunked(answer: Answer) -> Answer:
    return replace(answer.less("Content-Length").plus(Transfer_Encoding="chunked"), chunked=True)


def _filler(size: int) -> Iterator[bytes]:
    return (b"x" * min(PIECE, size - at) for at in range(0, size, PIECE))


def _long(fault: Fault, answer: Answer, size: int) -> Answer:
    if fault.kind is Kind.ENDLESS:
        return replace(_chunked(answer), ending="fin")
    match fault.variant % 3:
        case 0:
            return _chunked(answer)
        case 1:
            return replace(answer.less("Content-Length"), ending="fin")
        case _:
            return answer.plus(Content_Length=str(size + fault.excess))


@cache
def _zeros(size: int) -> bytes:
    """Return gzip data that inflates to ``size`` zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)  # after which it can be repeated
    count, check = max(1, size // MIB), 0
    for _ in range(count):
        check = zlib.crc32(bytes(MIB), check)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * count + b"\x03\0" + struct.pack("<LL", check, count * MIB)


def _gzip_bomb(fault: Fault, answer: Answer) -> Answer:
    body = _zeros(fault.excess)
    return replace(answer.plus(Content_Encoding="gzip", Content_Length=str(len(body))), body=[body])


def _multipart(answer: Answer, size: int) -> Answer:
    kind, place = answer.headers["Content-Type"], answer.headers["Content-Range"]
    before = f"\r\n--BOUNDARY\r\nContent-Type: {kind}\r\nContent-Range: {place}\r\n\r\n".encode()
    after = b"\r\n--BOUNDARY--\r\n"
    length = str(len(before) + size + len(after))
    answer = answer.plus(Content_Type="multipart/byteranges; boundary=BOUNDARY", Content_Length=length)
    return replace(answer.less("Content-Range"), body=chain([before], answer.body, [after]))


def _flipped(data: bytes, variant: int) -> bytes:
    place = (len(data) // 2 + variant) % len(data)
    return data[:place] + bytes([data[place] ^ 1 << variant % 8]) + data[place + 1 :]


def _other_object(
    fault: Fault, request: Request, right: Answer, files: Files, others: Callable[[], list[str]]
) -> Answer | None:
    suffix = PurePosixPath(request.path).suffix
    names = [name for name in others() if name != request.path and name.endswith(suffix)]
    turn = fault.variant % max(1, len(names))
    for name in (names[turn:] + names[:turn])[:20]:
        answer: Any = right_answer(_unpinned(request), files(name))
        fits = right.status == 200 or answer.headers["Content-Length"] == right.headers["Content-Length"]
        if answer.status == right.status and fits and answer.headers["ETag"] != right.headers["ETag"]:
            return answer  # type: ignore[no-any-return]
    return None
