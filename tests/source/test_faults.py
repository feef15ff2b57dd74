"""The loopback server does what it is told to."""

import email.utils
import http.client
import itertools
import random
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from catalogue.errors import WrongRange
from catalogue.source.byte_ranges import ByteRange, SuffixRange, parse_content_range, range_header, resolve
from tests.support.fault_answers import right_answer, wrong_answer
from tests.support.fault_files import Memory
from tests.support.faults import (
    ALL_KINDS,
    BLOCKING,
    DETECTABLE,
    HARMLESS,
    MALFORMED_CONTENT_RANGES,
    PERMANENT,
    SLOW,
    THROTTLING,
    UNDETECTABLE,
    Fault,
    FaultServer,
    Kind,
    Request,
    always,
    first,
)

MIB = 1 << 20
PATH = "cc-index/crawl=CC-MAIN-2022-05/part 0.parquet"
DATA = random.Random(1).randbytes(5000)
OTHER = random.Random(2).randbytes(6000)
FILES = {PATH: DATA, "notes.txt": b"note" * 2000, "cc-index/other.parquet": OTHER}
FIRST, LAST = 1000, 1999
RIGHT = DATA[FIRST : LAST + 1]
RANGE = f"bytes={FIRST}-{LAST}"


def quick(kind: Kind, variant: int = 0) -> Fault:
    return Fault(kind, variant, hold=0.1, interval=0.005, excess=3 * MIB)


@dataclass
class Reply:
    """All that came, up to the end of the connection."""

    head: bytes
    body: bytes
    reset: bool

    @property
    def status(self) -> int:
        return int(self.head[9:12]) if self.head else 0

    def __getitem__(self, name: str) -> str | None:
        lines = (line.partition(b": ") for line in self.head.split(b"\r\n"))
        return next((text.decode() for found, _, text in lines if found.decode() == name), None)

    def unchunked(self) -> tuple[bytes, bool]:
        """The body, and whether it has its end."""
        data, rest = b"", self.body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            if not int(size, 16):
                return data, rest == b"\r\n"
            data, rest = data + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        return data, False


def quoted(path: str) -> str:
    return path.replace(" ", "%20").replace("=", "%3D")


def connected(server: FaultServer) -> socket.socket:
    return socket.create_connection((urlsplit(server.url).hostname, urlsplit(server.url).port), timeout=5)


def ask(server: FaultServer, path: str = PATH, span: str | None = RANGE, method: str = "GET", **headers: str) -> Reply:
    """One request over a socket, so that nothing is mended on the way."""
    lines = [f"{method} /{quoted(path)} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"Range: {span}"] * (span is not None) + [
        f"{name.replace('_', '-')}: {headers[name]}" for name in headers
    ]
    received, reset = bytearray(), False
    with connected(server) as connection:
        connection.sendall("\r\n".join([*lines, "\r\n"]).encode())
        try:
            while data := connection.recv(MIB):
                received += data
        except ConnectionResetError:
            reset = True
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    return Reply(head, body, reset)


def error(reply: Reply, status: int, text: str, kind: str = "application/xml") -> bool:
    assert reply["Content-Length"] == str(len(reply.body))
    return (reply.status, reply["Content-Type"], text.encode() in reply.body) == (status, kind, True)


def partial(reply: Reply, body: bytes = RIGHT) -> bool:
    """Whether the reply is 206 with this body, the right length and the range that was asked for."""
    labels = (reply.status, reply["Content-Range"], reply["Content-Length"])
    return labels == (206, f"bytes {FIRST}-{LAST}/5000", str(len(body))) and reply.body == body


def halved(reply: Reply) -> bool:
    return reply.status == 206 and reply["Content-Length"] == "1000" and reply.body == RIGHT[:500]


def dripped(reply: Reply) -> bool:
    return reply["Content-Length"] == "1000" and RIGHT.startswith(reply.body) and 0 < len(reply.body) < 30


def retry_date(reply: Reply) -> bool:
    when = email.utils.parsedate_to_datetime(reply["Retry-After"] or "").timestamp()
    return reply.status == 429 and -1 < when - time.time() < 3


CHECKS: dict[Kind, Callable[[Reply], object]] = {
    Kind.CUT_FIN: lambda reply: halved(reply) and not reply.reset,
    Kind.CUT_RST: lambda reply: halved(reply) and reply.reset,
    Kind.DISCONNECT: lambda reply: reply == Reply(b"", b"", reset=False),
    Kind.SILENT: lambda reply: reply == Reply(b"", b"", reset=False),
    Kind.DRIP_BODY: dripped,
    Kind.DRIP_HEADERS: lambda reply: b"HTTP/1.1 206 Partial Content".startswith(reply.head) and reply.head,
    Kind.CLOSE_DELIMITED: lambda reply: reply["Content-Length"] is None and reply.body == RIGHT[:500],
    Kind.CHUNKED_CUT: lambda reply: reply.unchunked() == (RIGHT[:500], False),
    Kind.LONG_BODY: lambda reply: reply.unchunked() == (RIGHT + b"x" * 3 * MIB, True),
    Kind.ENDLESS: lambda reply: reply.unchunked() == (RIGHT + b"x" * 3 * MIB, False),
    Kind.GZIP_BOMB: lambda reply: (
        reply["Content-Encoding"] == "gzip"
        and reply["Content-Length"] == str(len(reply.body))
        and len(reply.body) < 4000
        and zlib.decompress(reply.body, wbits=31) == bytes(3 * MIB)
    ),
    Kind.HUGE_HEADER: lambda reply: len(reply.head) > MIB and partial(reply),
    Kind.MANY_HEADERS: lambda reply: reply.head.count(b"\r\n") > 200_000 and partial(reply),
    Kind.WHOLE_FILE: lambda reply: (reply.status, reply["Content-Range"], reply.body) == (200, None, DATA),
    Kind.WRONG_CONTENT_RANGE: lambda reply: reply["Content-Range"] == "bytes 999-1998/5000" and reply.body == RIGHT,
    Kind.OTHER_RANGE: lambda reply: reply["Content-Range"] == "bytes 0-999/5000" and reply.body == DATA[:1000],
    Kind.SHORT_RANGE: lambda reply: reply["Content-Range"] == "bytes 1000-1499/5000" and reply.body == RIGHT[:500],
    Kind.NO_CONTENT_RANGE: lambda reply: (reply.status, reply["Content-Range"], reply.body) == (206, None, RIGHT),
    Kind.MALFORMED_CONTENT_RANGE: lambda reply: reply["Content-Range"] == "" and reply.body == RIGHT,
    Kind.MULTIPART: lambda reply: (
        (reply["Content-Type"] or "").startswith("multipart/byteranges; boundary=")
        and reply["Content-Length"] == str(len(reply.body))
        and b"\r\nContent-Range: bytes 1000-1999/5000\r\n\r\n" + RIGHT + b"\r\n--" in reply.body
    ),
    Kind.HTML_200: lambda reply: error(reply, 200, "<html>", "text/html"),
    Kind.HTML_206: lambda reply: (
        reply["Content-Type"] == "text/html"
        and b"<html>" in reply.body
        and partial(reply, reply.body)
        and len(reply.body) == 1000
    ),
    Kind.XML_IN_200: lambda reply: error(reply, 200, "<Code>SlowDown</Code>"),
    Kind.FLIPPED_BIT: lambda reply: partial(reply, RIGHT[:500] + bytes([RIGHT[500] ^ 1]) + RIGHT[501:]),
    Kind.OTHER_OBJECT: lambda reply: (
        reply["Content-Range"] == "bytes 1000-1999/6000" and reply.body == OTHER[1000:2000]
    ),
    Kind.EMPTY: lambda reply: (reply.status, reply["Content-Range"]) == (416, "bytes */0"),
    Kind.CHANGED_ETAG: lambda reply: reply["ETag"] == '"changed-0"' and partial(reply),
    Kind.WEAK_ETAG: lambda reply: (reply["ETag"] or "").startswith('W/"') and partial(reply),
    Kind.NO_ETAG: lambda reply: reply["ETag"] is None and reply["Last-Modified"] and partial(reply),
    Kind.SLOW_DOWN: lambda reply: error(reply, 503, "<Code>SlowDown</Code>") and reply["Retry-After"] is None,
    Kind.RETRY_AFTER: lambda reply: error(reply, 503, "<Code>SlowDown</Code>") and reply["Retry-After"] == "1",
    Kind.TOO_MANY: retry_date,
    Kind.BLOCKED: lambda reply: error(reply, 403, "Request blocked", "text/html") and b"cloudfront" in reply.body,
    Kind.DENIED: lambda reply: error(reply, 403, "<Code>AccessDenied</Code>"),
    Kind.NOT_FOUND: lambda reply: error(reply, 404, "<Code>NoSuchKey</Code>"),
    Kind.UNSATISFIABLE: lambda reply: (reply.status, reply["Content-Range"]) == (416, "bytes */5000"),
    Kind.SERVER_ERROR: lambda reply: error(reply, 500, "<Code>InternalError</Code>"),
    Kind.BAD_GATEWAY: lambda reply: error(reply, 502, "Bad Gateway", "text/html"),
    Kind.GATEWAY_TIMEOUT: lambda reply: error(reply, 504, "Gateway Time-out", "text/html"),
    Kind.REDIRECT_HERE: lambda reply: (reply.status, reply["Location"]) == (301, f"/{quoted(PATH)}?redirected"),
    Kind.REDIRECT_AWAY: lambda reply: (reply.status, reply["Location"]) == (301, f"http://127.0.0.2/{quoted(PATH)}"),
}


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
def test_each_kind_does_what_it_says(kind: Kind) -> None:
    with FaultServer(FILES, script=always(quick(kind))) as server:
        started = time.monotonic()
        reply = ask(server)
        (exchange,) = server.settle()
        assert CHECKS[kind](reply), (reply.head[:500], reply.body[:100], len(reply.body), reply.reset)
        assert exchange.fault == quick(kind)
        assert (exchange.method, exchange.path, exchange.range_header) == ("GET", PATH, RANGE)
        assert exchange.headers["host"] == "x"
        if kind is not Kind.DRIP_HEADERS:  # of which not all may have come
            assert exchange.status == reply.status
        assert started <= exchange.started <= exchange.finished <= time.monotonic()
        body = reply.unchunked()[0] if reply["Transfer-Encoding"] else reply.body
        assert exchange.body_bytes_sent == server.body_bytes_sent == len(body)
        assert kind not in SLOW or exchange.finished - exchange.started > 0.09


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
def test_a_head_request_gets_no_body(kind: Kind) -> None:
    with FaultServer(FILES, script=always(quick(kind))) as server:
        assert ask(server, method="HEAD").body == b""


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
def test_no_request_and_no_file_upsets_a_kind(kind: Kind) -> None:
    files = {**FILES, "empty": b"", "byte": b"x", "dir/\udcff\r\n": b"xy"}
    spans = (None, "bytes=-1", "bytes=0-", "bytes=-9999", "bytes=4999-4999", "bytes=5000-", "nonsense")
    server = FaultServer(files, script=lambda request: Fault(kind, request.number, hold=0.01, interval=0.0, excess=MIB))
    with server, closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)) as client:
        for path, span in itertools.product((PATH, "empty", "byte", "dir/%FF%0D%0A", "none"), spans):
            try:
                client.request("GET", f"/{path.replace(' ', '%20')}", headers={"Range": span} if span else {})
                client.getresponse().read()
            except (http.client.HTTPException, OSError):
                client.close()
        assert len(server.settle()) == server.requests == 35


@pytest.mark.parametrize("variant", range(3))
def test_long_bodies_come_in_three_framings(variant: int) -> None:
    with FaultServer(FILES, script=always(quick(Kind.LONG_BODY, variant))) as server:
        reply = ask(server)
    body, ended = reply.unchunked() if variant == 0 else (reply.body, True)
    assert (len(body), body[:1000], ended, reply.status) == (1000 + 3 * MIB, RIGHT, True, 206)
    framing = (reply["Transfer-Encoding"], reply["Content-Length"])
    assert framing == (("chunked", None), (None, None), (None, str(1000 + 3 * MIB)))[variant]


@pytest.mark.parametrize("variant", range(len(MALFORMED_CONTENT_RANGES)))
@pytest.mark.parametrize("span", ["bytes=0-0", "bytes=7-9", "bytes=-5", "bytes=0-"])
def test_malformed_content_ranges_are_malformed(variant: int, span: str) -> None:
    label = decide(Fault(Kind.MALFORMED_CONTENT_RANGE, variant), DATA, span)[1]
    with pytest.raises(WrongRange):
        parse_content_range(label)


def decide(fault: Fault | None, data: bytes, span: str) -> tuple[int, str | None, int, bytes]:
    """Status, Content-Range, Content-Length and body of an answer, without a server."""
    request, files = Request("GET", "file", {"range": span}, 0, 0), Memory({"file": data})
    with ExitStack() as stack:
        right = right_answer(request, files.open("file", stack))
        answer = (wrong_answer(fault, request, files, stack) if fault else None) or right
        headers = answer.headers
        return answer.status, headers.get("Content-Range"), int(headers["Content-Length"]), b"".join(answer.body)


def accept(wanted: ByteRange | SuffixRange, status: int, label: str | None, length: int, body: bytes) -> ByteRange:
    """What a good client makes of an answer."""
    got, total = parse_content_range(label)
    if status != 206 or got != resolve(wanted, total) or not len(got) == length == len(body):
        raise WrongRange
    return got


CONTENT = st.binary(min_size=1, max_size=40)
RANGES = st.builds(lambda start, length: ByteRange(start, start + length), st.integers(0, 40), st.integers(1, 40))
WANTED = RANGES | st.builds(SuffixRange, st.integers(1, 60))


@given(CONTENT, WANTED)
def test_right_answers_are_right(data: bytes, wanted: ByteRange | SuffixRange) -> None:
    size = len(data)
    start, end = (wanted.start, wanted.end) if isinstance(wanted, ByteRange) else (max(0, size - wanted.length), size)
    status, label, length, body = decide(None, data, range_header(wanted))
    if start < size:
        end = min(end, size)
        assert (status, label, length, body) == (206, f"bytes {start}-{end - 1}/{size}", end - start, data[start:end])
    else:
        assert (status, label) == (416, f"bytes */{size}")


@given(CONTENT, WANTED, st.integers(0, 99))
def test_wrong_ranges_never_pass_for_right_ones(data: bytes, wanted: ByteRange | SuffixRange, variant: int) -> None:
    span = range_header(wanted)
    right = decide(None, data, span)
    assume(right[0] == 206 and (isinstance(wanted, SuffixRange) or wanted.end <= len(data)))
    length = len(accept(wanted, *right))
    possible = {
        Kind.WRONG_CONTENT_RANGE: True,
        Kind.MALFORMED_CONTENT_RANGE: True,
        Kind.NO_CONTENT_RANGE: True,
        Kind.OTHER_RANGE: length < len(data),
        Kind.SHORT_RANGE: length > 1,
    }
    for kind, expected in possible.items():
        wrong = decide(Fault(kind, variant), data, span)
        assert (wrong != right) == expected
        if expected:
            with pytest.raises(WrongRange):
                accept(wanted, *wrong)


def careful_read(server: FaultServer, etag: str) -> bytes:
    """What a client has that checks all that HTTP lets it check."""
    with closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=1)) as client:
        client.request("GET", f"/{quoted(PATH)}", headers={"Range": RANGE})
        reply = client.getresponse()
        assert reply.getheader("Content-Type") == "application/octet-stream"
        assert not reply.getheader("Content-Encoding")
        assert (reply.getheader("ETag") or 'W/"').startswith('"')
        assert not etag or reply.getheader("ETag") == etag
        length = int(reply.getheader("Content-Length") or 0)
        body = reply.read(1001)
        accept(ByteRange(FIRST, LAST + 1), reply.status, reply.getheader("Content-Range"), length, body)
        return body


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
def test_kinds_are_as_detectable_as_their_sets_say(kind: Kind) -> None:
    with FaultServer(FILES) as server:
        etag = ask(server)["ETag"] or ""
    with FaultServer(FILES, script=first(1, quick(kind))) as server:
        if kind in UNDETECTABLE:
            assert careful_read(server, "" if kind is Kind.OTHER_OBJECT else etag) != RIGHT
        else:
            with pytest.raises((AssertionError, WrongRange, http.client.HTTPException, OSError)):
                careful_read(server, etag)
        assert careful_read(server, etag) == RIGHT
        assert [exchange.fault and exchange.fault.kind for exchange in server.settle()] == [kind, None]


def test_each_kind_is_in_one_set() -> None:
    sets = (DETECTABLE, UNDETECTABLE, THROTTLING, BLOCKING, PERMANENT)
    assert sorted(kind.value for kinds in sets for kind in kinds) == sorted(kind.value for kind in ALL_KINDS)
    assert SLOW | HARMLESS < DETECTABLE
    assert len(ALL_KINDS) == len(CHECKS) == 41
