"""Parse the heads of records and of archived HTTP responses, in bounded memory."""

import re
from typing import TypeAlias

from catalogue.errors import BadRecord
from catalogue.formatting import printable

Headers: TypeAlias = tuple[tuple[str, str], ...]
Head: TypeAlias = tuple[str, Headers, int]
"""The first line without its protocol, the headers, and the start of the content."""

_MAX_BYTES, _MAX_LINES = 1 << 20, 10_000
_LINE_END = re.compile(rb"\n")
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
WARC = re.compile(r"WARC/(?:1\.[01]|0\.1[78])", re.IGNORECASE)
HTTP = re.compile(r"HTTP/[0-9]+(?:\.[0-9])?|(?:HTTP|ICY)(?=\s+[0-9]{3})", re.IGNORECASE)
"""Protocols of responses; archives have more than two versions."""
_LONGEST_PROTOCOL = 20
_BLANKS = " \t\r\f\v"
_ARC_FIELDS = ("uri", "ip-address", "archive-date", "content-type", "length")
_ARC_MIDDLE = re.compile(
    r"(?<![ \t])[ \t]+([0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*|-)[ \t]+"
    r"([0-9]{17}|[0-9]{14}|[0-9]{12}|[0-9]{8})(?=[ \t]|\Z)"
)
"""IP address and date, which are between URL and media type; both may contain blanks."""
_UNKNOWN = {"", "-"}


def parse_arc_head(data: bytes) -> Head:
    """Parse the line before the content of an ARC record; fields that are empty or ``-`` are left out.

    Raises:
        BadRecord: if it is not one, or too long.
    """
    end = _head_end(data, 0, len(data), _LINE_END)
    line = _decode(data[:end]).rstrip()
    start, length = ["", "", *line.rsplit(maxsplit=1)][-2:]
    if between := [*_ARC_MIDDLE.finditer(start)]:
        last = between[-1]  # of several, since URLs are more likely to contain such a part
        values = [start[: last.start()], last[1], last[2], start[last.end() :].strip(), length]
    else:
        values = [*start.rsplit(" ", len(_ARC_FIELDS) - 2), length]
    if len(values) != len(_ARC_FIELDS):
        raise BadRecord(f"invalid record: its first line is {_shown(line)!r}")
    known = ((name, value) for name, value in zip(_ARC_FIELDS, values, strict=True) if value not in _UNKNOWN)
    return "", tuple(known), end


def parse_head(protocol: re.Pattern[str], data: bytes, start: int, end: int) -> Head:
    """Parse a status line and headers. A line of blanks ends them; lines without a colon are left out.

    A line of blanks at the start is a head without them, unless a status line follows, as browsers accept.

    Raises:
        BadRecord: if ``data`` has no such head from ``start``, to ``end`` at most, or one that is too long.
    """
    first = data.find(b"\n", start, end) + 1 or end
    if not data[start : min(first, start + _MAX_BYTES)].strip():
        follows = protocol.match(data[first : min(first + _LONGEST_PROTOCOL, end)].decode("latin-1"))
        return parse_head(protocol, data, first, end) if follows else ("", (), first)
    content = _head_end(data, start, end, _BLANK_LINE)
    status_line, *lines = _lines(data[start:content])
    matched = protocol.match(status_line)
    if not matched:
        raise BadRecord(f"invalid record: {_shown(status_line)!r} is not a status line")
    headers: list[tuple[str, str]] = []
    continues = False
    for line in lines:
        if line.startswith((" ", "\t")):
            if continues:
                name, value = headers[-1]
                headers[-1] = name, (value + line.rstrip(_BLANKS)).lstrip(_BLANKS)
            continue
        name, colon, value = line.partition(":")
        continues = bool(colon)
        if continues:
            headers.append((name.rstrip(" \t"), value.strip(_BLANKS)))
    return status_line[matched.end() :].strip(), tuple(headers), content


def joined(headers: Headers) -> dict[str, str]:
    """Return headers by name, as first spelled; values of repeated ones are joined by commas."""
    names: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(names.setdefault(name.lower(), name), []).append(value)
    return {name: ", ".join(each) for name, each in values.items()}


def _head_end(data: bytes, start: int, end: int, terminator: re.Pattern[bytes]) -> int:
    limit = min(end, start + _MAX_BYTES)
    found = terminator.search(data, start, limit)
    content = found.end() if found else limit
    if data.count(b"\n", start, content) > _MAX_LINES:
        raise BadRecord(f"a head of it has more than {_MAX_LINES:,} lines")
    if content == start + _MAX_BYTES:
        raise BadRecord(f"a head of it has more than {_MAX_BYTES:,} bytes")
    return content


def _lines(head: bytes) -> list[str]:
    try:
        return head.decode().split("\n")
    except UnicodeDecodeError:
        return [_decode(line) for line in head.split(b"\n")]


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _shown(line: str) -> str:
    return printable(line[:200].rstrip())
