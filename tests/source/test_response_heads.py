"""Heads of HTTP responses: those of unusual servers are read, invalid ones are errors."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Thread

import pytest

from catalogue.errors import SourceError, Unreachable
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.http import HttpSource
from tests.support.sources import open_http

BODY = b"0123456789"
RANGE = ByteRange(0, 10)
FIELDS = ("Content-Range: bytes 0-9/100", "Content-Length: 10", 'ETag: "e"')


@contextmanager
def answering(*responses: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Serve one response for each connection, then close it; yield the address and the heads of the requests."""
    heads: list[bytes] = []

    def serve() -> None:
        for response in responses:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as lines:
                heads.append(b"".join(iter(lines.readline, b"\r\n")))
                connection.sendall(response)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", heads
        thread.join()


def response(*fields: str, status: str = "HTTP/1.1 206 Partial Content", end: str = "\r\n") -> bytes:
    return end.join([status, *fields, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    "head",
    [
        response(*FIELDS),
        response(*FIELDS, end="\n"),
        response(*FIELDS, status="HTTP/1.0 206"),
        response(*FIELDS, status="HTTP/1.1 206 Parti\xe9l"),
        response("CONTENT-RANGE:bytes 0-9/100 ", "Content-Length:\t10", 'etag:  "e"'),
        response("Content-Range: bytes\r\n  0-9/100", *FIELDS[1:]),
        response("no colon", "Content-Range : bytes 5-6/7", "X: \xe9", *FIELDS),
        response(*FIELDS, *(f"X-{number}: {number}" for number in range(97))),
        response("X: 1", status="HTTP/1.1 103 Early Hints") + response(*FIELDS),
        response(*FIELDS, *FIELDS),
    ],
)
def test_reads_heads_of_unusual_servers(head: bytes) -> None:
    with answering(head + BODY) as (url, heads), closing(open_http(url)) as source:
        found = source.get("a b", RANGE)
        assert (found.body, found.total_size, found.etag) == (BODY, 100, '"e"')
    (sent,) = heads
    assert sent.startswith(b"GET /a%20b HTTP/1.1\r\nHost: " + url.removeprefix("http://")[:-1].encode() + b"\r\n")
    assert b"\r\nRange: bytes=0-9\r\n" in sent


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "RemoteDisconnected"),
        (b"HTTP/1.1 206 Partial", "RemoteDisconnected"),
        (response(*FIELDS)[:-2], "RemoteDisconnected"),
        (response(*FIELDS) + BODY[:9], "ConnectionError"),
        (response(*FIELDS, status="HTTP/2 206") + BODY, "BadStatusLine"),
        (response(*FIELDS, status="HTTP/1.1 20") + BODY, "BadStatusLine"),
        (b"<html>" + response(*FIELDS) + BODY, "BadStatusLine"),
        (response(*FIELDS, "X: " + "x" * 70_000) + BODY, "LineTooLong"),
        (response(*FIELDS, *["X: 1"] * 98) + BODY, "HTTPException"),
    ],
)
def test_rejects_invalid_heads(answer: bytes, reason: str) -> None:
    with (
        answering(answer) as (url, _),
        closing(open_http(url)) as source,
        pytest.raises(Unreachable, match=rf"no usable response \({reason}\)"),
    ):
        source.get("x", RANGE)


@pytest.mark.parametrize("etag", ['"e"\r\nHost: elsewhere', '"e"\nX: y', '"e"\rX: y', '"\u20ac"'])
def test_sends_no_invalid_headers(etag: str) -> None:
    with answering(response(*FIELDS) + BODY) as (url, heads), closing(open_http(url)) as source:
        with pytest.raises(Unreachable, match="no usable response"):
            source.get("x", RANGE, pin=FileVersion(100, etag))
        assert source.get("x", RANGE, pin=FileVersion(100, '"e"')).body == BODY
    (head,) = heads
    assert head.splitlines()[0] == b"GET /x HTTP/1.1"
    assert f"Host: {url.split('/')[2]}".encode() in head.splitlines()
    assert b'If-Match: "e"' in head.splitlines()


def test_rejects_repeated_headers_that_disagree() -> None:
    for repeated in ("Content-Range: bytes 1-10/100", "Content-Length: 11"):
        with (
            answering(response(*FIELDS, repeated) + BODY) as (url, _),
            closing(open_http(url)) as source,
            pytest.raises(SourceError, match=r"Content-Range|Content-Length"),
        ):
            source.get("x", RANGE)


def test_rejects_control_characters_in_request_headers() -> None:
    with (
        answering() as (url, heads),
        closing(HttpSource(url, user_agent="a\r\nX: b", connections=1)) as source,
        pytest.raises(Unreachable, match="no usable response"),
    ):
        source.get("x", RANGE)
    assert not heads
