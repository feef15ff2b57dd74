"""HTTP responses, read for urllib3.

``http.client`` takes longer for headers, with the parser of e-mail, than for everything else, and returns informational
responses other than 100 as if they were final. urllib3 copies headers and bodies, for features that are not used here.
"""

import re
from http.client import BadStatusLine, HTTPException, HTTPResponse, LineTooLong, RemoteDisconnected
from typing import IO

from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

_MAX_INTERIM = 5
"""Interim responses (1xx) to one request."""
_MAX_LINES, _MAX_LINE = 100, 1 << 16
"""Header lines of a response, and bytes of a line."""
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) +([1-9][0-9]{2})(?: .*)?\r?\n")
_FOLD = re.compile(r"\r?\n[ \t]+")
_LENGTH = re.compile("[0-9]{1,18}")


class HeadResponse(HTTPResponse):
    """A response whose head is parsed here; a pool of urllib3 returns it as it is, without headers of its own."""

    _pool: HTTPConnectionPool
    _connection: HTTPConnection
    version_string = "HTTP/1.1"
    fields: dict[str, str]
    """The headers by lower-case name; different values of repeated ones are joined (RFC 9110, section 5.3)."""

    def begin(self) -> None:
        """Read the head.

        Raises:
            HTTPException: if it is not that of an HTTP/1 response, or too long.
            ConnectionError: if it is incomplete.
        """
        for _ in range(_MAX_INTERIM + 1):
            minor, self.status = _status(_line(self.fp))
            fields = _fields(self.fp)
            if self.status >= 200:  # noqa: PLR2004
                break
        self.code = self.status
        self.reason = ""
        self.version = 11 if minor else 10
        self.headers = self.fields = fields  # type: ignore[assignment] # of which only get() is called
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = fields.get("content-length", "").partition(",")[0]
        self.length = int(length) if _LENGTH.fullmatch(length) and not self.chunked else None
        if self.status in {204, 304} or self.status < 200:  # noqa: PLR2004
            self.length = 0
        connection = fields.get("connection", "").lower()
        keeps = "close" not in connection if self.version > 10 else "keep-alive" in connection  # noqa: PLR2004
        self.will_close = not keeps or (self.length is None and not self.chunked)

    def _read_next_chunk_size(self) -> int:
        size: int = super()._read_next_chunk_size()  # type: ignore[misc] # which takes -1 for a body without an end
        if size < 0:
            raise HTTPException("a chunk has a negative size")
        return size

    @property
    def length_remaining(self) -> int | None:
        """Return what a pool logs."""
        return self.length

    def release_conn(self) -> None:
        """Return the connection to its pool; it is closed unless the body was read completely."""
        if not self.isclosed():
            self.close()
            self._connection.close()
        self._pool._put_conn(self._connection)  # noqa: SLF001 - as the responses of urllib3 do


def _status(line: bytes) -> tuple[int, int]:
    matched = _STATUS_LINE.fullmatch(line)
    if not matched:
        raise BadStatusLine(repr(line[:100]))
    return int(matched[1]), int(matched[2])


def _fields(lines: IO[bytes]) -> dict[str, str]:
    head = []
    while (line := _line(lines)) not in {b"\r\n", b"\n"}:
        head.append(line)
        if len(head) > _MAX_LINES:
            raise HTTPException(f"got more than {_MAX_LINES} headers")
    fields: dict[str, str] = {}
    for field in _FOLD.sub(" ", b"".join(head).decode("latin-1")).split("\n")[:-1]:
        name, _, value = field.partition(":")
        key, value = name.lower(), value.strip(" \t\r")
        fields[key] = value if fields.get(key, value) == value else f"{fields[key]}, {value}"
    return fields


def _line(lines: IO[bytes]) -> bytes:
    line = lines.readline(_MAX_LINE + 1)
    if not line.endswith(b"\n"):
        if len(line) > _MAX_LINE:
            what = "head"
            raise LineTooLong(what)
        raise RemoteDisconnected("the connection was closed before the end of a head")
    return line
