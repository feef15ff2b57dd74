"""What the loopback server of ``tests.support.faults`` says: the right answer to a request, and each kind of wrong one.

An answer is a value, made without touching a socket; its body is read as it is sent.
"""

import math
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from enum import Enum
from functools import cache
from itertools import chain, islice
from pathlib import PurePosixPath
from urllib.parse import quote

from tests.support.fault_files import CHUNK, Content, Files
from tests.support.fault_kinds import MALFORMED_CONTENT_RANGES, MIB, Fault, Kind, Request

_MANY = 200_000
"""Headers of ``MANY_HEADERS``."""

_TRIED = 20
"""Neighbours that ``OTHER_OBJECT`` opens, at most."""

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")

_HTML = "<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1>\n{text}</body></html>\n"


class Ending(Enum):
    """What becomes of the connection behind an answer."""

    KEEP = "keep"
    FIN = "fin"
    RST = "rst"


class Pace(Enum):
    """Which part of an answer is held back."""

    PROMPT = "prompt"
    DRIP_BODY = "drip-body"
    DRIP_ALL = "drip-all"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Answer:
    """All of an answer: what is sent, how fast, and what comes then."""

    status: int
    """0 if not even that is said."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Iterable[bytes] = ()
    """In pieces of a bounded size; read once."""
    filler: Iterable[bytes] = ()
    """More header lines."""
    chunked: bool = False
    """The body is sent in chunks; the last one is left out unless the connection is kept."""
    ending: Ending = Ending.KEEP
    pace: Pace = Pace.PROMPT
    hold: float = 0.0
    """Seconds after which what is not prompt is given up."""
    interval: float = 0.0
    """Seconds between two bytes of a drip."""

    def plus(self, **headers: str) -> "Answer":
        """With these headers too; ``_`` in their names stands for ``-``."""
        return replace(self, headers={**self.headers, **{name.replace("_", "-"): headers[name] for name in headers}})

    def less(self, *names: str) -> "Answer":
        """Without these headers."""
        return replace(self, headers={name: text for name, text in self.headers.items() if name not in names})


def right_answer(request: Request, content: Content | None) -> Answer:
    """What a faultless server says."""
    if request.method not in {"GET", "HEAD"}:
        return _error(405, "MethodNotAllowed").plus(Allow="GET, HEAD")
    if content is None:
        return _error(404, "NoSuchKey")
    tags = [tag.strip() for tag in request.headers.get("if-match", "*").split(",")]
    if "*" not in tags and content.etag not in tags:
        return _error(412, "PreconditionFailed")
    span = _span(request, content.size)
    if span is None:
        return _whole(content)
    if span[0] >= span[1]:
        return _error(416, "InvalidRange").plus(Content_Range=f"bytes */{content.size}")
    return _partial(content, *span)


def wrong_answer(fault: Fault, request: Request, files: Files, stack: ExitStack) -> Answer | None:
    """What this fault makes of the answer, or None if it has nothing to work on."""
    if fault.kind in _WITHOUT_FILE:
        return _WITHOUT_FILE[fault.kind](fault, request)
    content = files.open(request.path, stack)
    if fault.kind is Kind.CHANGED_ETAG:
        request = _unpinned(request)
    right = right_answer(request, content)
    if content is None or not content.size or right.status not in {200, 206}:
        return None
    case = _Case(fault, request, content, right, *(_span(request, content.size) or (0, content.size)))
    if fault.kind is Kind.OTHER_OBJECT:
        return _other_object(case, files, stack)
    return _WITH_FILE[fault.kind](case)


def _span(request: Request, size: int) -> tuple[int, int] | None:
    """The half-open range that a request is for, empty if it cannot be satisfied; None if it is for the whole file."""
    matched = _RANGE.fullmatch(request.headers.get("range", ""))
    if request.method != "GET" or not matched or not any(matched.groups()):
        return None  # several ranges and malformed ones are passed over, as RFC 9110 wants it
    low, high = matched.groups()
    if not low:
        return max(0, size - int(high)), size
    if high and int(high) < int(low):
        return None
    return int(low), min(size, int(high) + 1) if high else size


def _unpinned(request: Request) -> Request:
    """The same for any version of the file."""
    return replace(request, headers={**request.headers, "if-match": "*"})


def _validators(content: Content) -> dict[str, str]:
    return {
        "Content-Type": "application/octet-stream",
        "ETag": content.etag,
        "Last-Modified": formatdate(content.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }


def _whole(content: Content) -> Answer:
    headers = {**_validators(content), "Content-Length": str(content.size)}
    return Answer(200, headers, content.pieces(0, content.size))


def _partial(content: Content, start: int, end: int) -> Answer:
    headers = {
        **_validators(content),
        "Content-Range": f"bytes {start}-{end - 1}/{content.size}",
        "Content-Length": str(end - start),
    }
    return Answer(206, headers, content.pieces(start, end))


def _error(status: int, code: str, message: str = "") -> Answer:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return _text(status, "application/xml", text)


def _page(status: int, title: str, text: str = "") -> Answer:
    return _text(status, "text/html", _HTML.format(title=title, text=text))


def _text(status: int, kind: str, text: str) -> Answer:
    data = text.encode()
    return Answer(status, {"Content-Type": kind, "Content-Length": str(len(data))}, (data,))


def _redirect(fault: Fault, request: Request, root: str = "", query: str = "") -> Answer:
    where = f"{root}/{quote(request.path, errors='surrogateescape')}{query}"
    return Answer((301, 302, 307, 308)[fault.variant % 4], {"Location": where, "Content-Length": "0"})


def _slow_down() -> Answer:
    return _error(503, "SlowDown", "Please reduce your request rate.")


_CLOUDFRONT = """<h2>The request could not be satisfied.</h2>
Request blocked. We can't connect to the server for this app or website at this time.
<pre>Generated by cloudfront (CloudFront)\nRequest ID: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==</pre>
"""

_NO_FILE = Content(0, '"d41d8cd98f00b204e9800998ecf8427e"', 0.0, lambda _start, _end: b"")

_WITHOUT_FILE: dict[Kind, Callable[[Fault, Request], Answer]] = {
    Kind.DISCONNECT: lambda _f, _r: Answer(0, ending=Ending.FIN),
    Kind.SILENT: lambda fault, _: Answer(0, ending=Ending.FIN, pace=Pace.SILENT, hold=fault.hold),
    Kind.HTML_200: lambda _f, _r: _page(200, "Welcome"),
    Kind.XML_IN_200: lambda fault, _: replace(
        _error(500, "InternalError") if fault.variant % 2 else _slow_down(), status=200
    ),
    Kind.EMPTY: lambda _, request: right_answer(_unpinned(request), _NO_FILE),
    Kind.SLOW_DOWN: lambda _f, _r: _slow_down(),
    Kind.RETRY_AFTER: lambda fault, _: _slow_down().plus(Retry_After=str(fault.retry_after)),
    Kind.TOO_MANY: lambda fault, _: _page(429, "Too Many Requests").plus(
        Retry_After=formatdate(math.ceil(time.time()) + fault.retry_after, usegmt=True)
    ),
    Kind.BLOCKED: lambda _f, _r: _page(403, "403 ERROR", _CLOUDFRONT).plus(
        Server="CloudFront", X_Cache="Error from cloudfront"
    ),
    Kind.DENIED: lambda _f, _r: _error(403, "AccessDenied", "Access Denied"),
    Kind.NOT_FOUND: lambda _f, _r: _error(404, "NoSuchKey", "The specified key does not exist."),
    Kind.SERVER_ERROR: lambda _f, _r: _error(500, "InternalError", "We encountered an internal error."),
    Kind.BAD_GATEWAY: lambda _f, _r: _page(502, "502 Bad Gateway"),
    Kind.GATEWAY_TIMEOUT: lambda _f, _r: _page(504, "504 Gateway Time-out"),
    Kind.REDIRECT_HERE: lambda fault, request: _redirect(fault, request, query="?redirected"),
    Kind.REDIRECT_AWAY: lambda fault, request: _redirect(fault, request, fault.target.rstrip("/")),
}


@dataclass(frozen=True, slots=True)
class _Case:
    """A fault, a request and what it asks for: at least a byte of a file that is there."""

    fault: Fault
    request: Request
    content: Content
    right: Answer
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def pieces(self) -> Iterator[bytes]:
        """The right body."""
        return self.content.pieces(self.start, self.end)

    def cut(self, ending: Ending = Ending.FIN) -> Answer:
        """The right answer with a body that stops short."""
        end = self.start + (len(self) // 2 + self.fault.variant) % len(self)
        return replace(self.right, body=self.content.pieces(self.start, end), ending=ending)

    def drip(self, pace: Pace) -> Answer:
        """The right answer, slowly."""
        # The end is announced: the body may arrive whole, and then no request should follow on this connection.
        answer = self.right.plus(Connection="close")
        return replace(answer, pace=pace, hold=self.fault.hold, interval=self.fault.interval, ending=Ending.FIN)

    def partial(self) -> Answer:
        """206 with the right bytes, whether or not a range was asked for."""
        return _partial(self.content, self.start, self.end)

    def labelled(self, content_range: str) -> Answer:
        """The same with another Content-Range."""
        return self.partial().plus(Content_Range=content_range)


def _chunked(answer: Answer) -> Answer:
    return replace(answer.less("Content-Length").plus(Transfer_Encoding="chunked"), chunked=True)


def _filler(size: int) -> Iterator[bytes]:
    return (b"x" * min(CHUNK, size - at) for at in range(0, size, CHUNK))


def _long_body(case: _Case) -> Answer:
    answer = replace(case.partial(), body=chain(case.pieces(), _filler(case.fault.excess)))
    match case.fault.variant % 3:
        case 0:
            return _chunked(answer)
        case 1:
            return replace(answer.less("Content-Length"), ending=Ending.FIN)
        case _:
            return answer.plus(Content_Length=str(len(case) + case.fault.excess))


@cache
def _deflated_mib() -> tuple[bytes, bytes]:
    """A MiB of zeros, and what it deflates to; the full flush allows that to be said again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return bytes(MIB), packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)


def _gzip_bomb(case: _Case) -> Answer:
    count = max(1, case.fault.excess // MIB)
    zeros, block = _deflated_mib()

    def body() -> Iterator[bytes]:
        yield b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
        check = 0
        for _ in range(count):
            check = zlib.crc32(zeros, check)
            yield block
        yield b"\x03\0" + struct.pack("<LL", check, count * MIB & 0xFFFFFFFF)

    size = 10 + count * len(block) + 10
    return replace(case.partial().plus(Content_Encoding="gzip", Content_Length=str(size)), body=body())


def _wrong_content_range(case: _Case) -> Answer:
    first, last, total = case.start, case.end - 1, case.content.size
    if first:
        return case.labelled(f"bytes {first - 1}-{last - 1}/{total}")
    if case.end < total:
        return case.labelled(f"bytes 1-{last + 1}/{total}")
    return case.labelled(f"bytes 0-{last + 1}/{total + 2}")  # neither as long as the body, nor up to the file's end


def _other_range(case: _Case) -> Answer | None:
    shift = -min(case.start, len(case)) or min(case.content.size - case.end, len(case))
    return _partial(case.content, case.start + shift, case.end + shift) if shift else None


def _short_range(case: _Case) -> Answer | None:
    half = len(case) // 2
    if not half:
        return None
    if case.fault.variant % 2:
        return _partial(case.content, case.end - half, case.end)
    return _partial(case.content, case.start, case.start + half)


def _malformed_content_range(case: _Case) -> Answer:
    form = MALFORMED_CONTENT_RANGES[case.fault.variant % len(MALFORMED_CONTENT_RANGES)]
    return case.labelled(form.format(first=case.start, last=case.end - 1, total=case.content.size))


def _multipart(case: _Case) -> Answer:
    right = case.partial()
    kind, place = right.headers["Content-Type"], right.headers["Content-Range"]
    before = f"\r\n--BOUNDARY\r\nContent-Type: {kind}\r\nContent-Range: {place}\r\n\r\n".encode()
    after = b"\r\n--BOUNDARY--\r\n"
    answer = right.less("Content-Range").plus(
        Content_Type="multipart/byteranges; boundary=BOUNDARY",
        Content_Length=str(len(before) + len(case) + len(after)),
    )
    return replace(answer, body=chain([before], case.pieces(), [after]))


def _html_206(case: _Case) -> Answer:
    page = _HTML.format(title="Welcome", text="").encode()[: len(case)]
    blanks = (b" " * len(piece) for piece in _filler(len(case) - len(page)))
    return replace(case.partial().plus(Content_Type="text/html"), body=chain([page], blanks))


def _flipped_bit(case: _Case) -> Answer:
    place = (len(case) // 2 + case.fault.variant) % len(case)

    def body() -> Iterator[bytes]:
        at = 0
        for piece in case.pieces():
            if at <= place < at + len(piece):
                flipped = bytearray(piece)
                flipped[place - at] ^= 1 << case.fault.variant % 8
                yield bytes(flipped)
            else:
                yield piece
            at += len(piece)

    return replace(case.right, body=body())


def _other_object(case: _Case, files: Files, stack: ExitStack) -> Answer | None:
    path = case.request.path
    names = files.neighbours(path)
    turn = case.fault.variant % max(1, len(names))
    suffix = PurePosixPath(path).suffix
    others = (name for name in names[turn:] + names[:turn] if name != path and name.endswith(suffix))
    for name in islice(others, _TRIED):
        content = files.open(name, stack)
        answer = right_answer(_unpinned(case.request), content)
        fits = case.right.status == 200 or answer.headers["Content-Length"] == case.right.headers["Content-Length"]
        if content and content.etag != case.content.etag and answer.status == case.right.status and fits:
            return answer
    return None


_WITH_FILE: dict[Kind, Callable[[_Case], Answer | None]] = {
    Kind.CUT_FIN: _Case.cut,
    Kind.CUT_RST: lambda case: case.cut(Ending.RST),
    Kind.DRIP_BODY: lambda case: case.drip(Pace.DRIP_BODY),
    Kind.DRIP_HEADERS: lambda case: case.drip(Pace.DRIP_ALL),
    Kind.CLOSE_DELIMITED: lambda case: case.cut().less("Content-Length"),
    Kind.CHUNKED_CUT: lambda case: _chunked(case.cut()),
    Kind.LONG_BODY: _long_body,
    Kind.ENDLESS: lambda case: replace(
        _chunked(case.partial()), body=chain(case.pieces(), _filler(case.fault.excess)), ending=Ending.FIN
    ),
    Kind.GZIP_BOMB: _gzip_bomb,
    Kind.HUGE_HEADER: lambda case: replace(case.right, filler=[b"X-Filler: " + b"x" * MIB + b"\r\n"]),
    Kind.MANY_HEADERS: lambda case: replace(case.right, filler=[b"X-Filler: x\r\n" * 1000] * (_MANY // 1000)),
    Kind.WHOLE_FILE: lambda case: _whole(case.content),
    Kind.WRONG_CONTENT_RANGE: _wrong_content_range,
    Kind.OTHER_RANGE: _other_range,
    Kind.SHORT_RANGE: _short_range,
    Kind.NO_CONTENT_RANGE: lambda case: case.partial().less("Content-Range"),
    Kind.MALFORMED_CONTENT_RANGE: _malformed_content_range,
    Kind.MULTIPART: _multipart,
    Kind.HTML_206: _html_206,
    Kind.FLIPPED_BIT: _flipped_bit,
    Kind.CHANGED_ETAG: lambda case: case.right.plus(ETag=f'"changed-{case.fault.variant}"'),
    Kind.WEAK_ETAG: lambda case: case.right.plus(ETag=f"W/{case.content.etag}"),
    Kind.NO_ETAG: lambda case: case.right.less("ETag"),
    Kind.UNSATISFIABLE: lambda case: _error(416, "InvalidRange").plus(Content_Range=f"bytes */{case.content.size}"),
}
