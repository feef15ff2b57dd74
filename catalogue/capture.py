"""One capture: a row of the index as the CDX index writes it.

Field names, their order and what is left out are those of Common Crawl's index server; a capture's WARC record is the
``length`` bytes at ``offset`` of ``filename``.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from catalogue.errors import BadRecord, QueryError
from catalogue.ranges import ByteRange

_CDX_FIELDS = (
    ("url", "url"),
    ("mime", "content_mime_type"),
    ("mime-detected", "content_mime_detected"),
    ("status", "fetch_status"),
    ("digest", "content_digest"),
    ("length", "warc_record_length"),
    ("offset", "warc_record_offset"),
    ("filename", "warc_filename"),
    ("languages", "content_languages"),
    ("encoding", "content_charset"),
    ("redirect", "fetch_redirect"),
    ("truncated", "content_truncated"),
)

MAX_RECORD = 64 << 20
"""Bytes that a record may have as it is archived, unless more is asked for; the largest known have 7 MB."""

_ARCHIVE = re.compile(
    r"(?:common-crawl/)?((?:crawl-data|cc-index|projects|contrib|crawl-00[12]|parse-output)"
    r"(?:/[A-Za-z0-9][A-Za-z0-9._=+-]*){1,12})"
)
"""Names of archives as they have been; some old ones stand below a folder that is gone."""
_NAMES = {
    "url": ("url",),
    "time": ("fetch_time", "timestamp"),
    "filename": ("warc_filename", "filename"),
    "offset": ("warc_record_offset", "offset"),
    "length": ("warc_record_length", "length"),
    "digest": ("content_digest", "digest"),
    "status": ("fetch_status", "status"),
}
"""What a capture is made of, under its names in the index and in CDX."""

_BREAK = re.compile(r"[\s\x00-\x1f\x7f]")
"""What would end a key, or its line, too early; keys as they are made have none of it."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Where the record of a capture lies, and what is known of it."""

    filename: str
    """Of its archive, a path below the source."""
    offset: int
    """Of its first byte there."""
    length: int
    """Bytes; the last one is at ``offset + length - 1``."""
    url: str | None = None
    time: datetime | None = None
    digest: str | None = None
    """Of the payload: SHA-1 in base 32, as Common Crawl has it, or with another algorithm's name before it."""
    status: int | None = None

    @property
    def range(self) -> ByteRange:
        """Its bytes."""
        return ByteRange(self.offset, self.offset + self.length)


def capture_of(row: Mapping[str, Any], *, most: int = MAX_RECORD) -> Capture:
    """The capture of a row of the index, or of an answer of a CDX server; what it says is checked.

    Args:
        row: values by name of column, of their own types or as text.
        most: bytes that its record may have.

    Raises:
        BadRecord: if it names no record that could be fetched.
    """
    found = {
        name: next((row[n] for n in names if row.get(n) not in {None, "", "-"}), None) for name, names in _NAMES.items()
    }
    matched = _ARCHIVE.fullmatch(str(found["filename"] or ""))
    try:
        offset, length = int(found["offset"]), int(found["length"])  # type: ignore[arg-type]  # None is told below
        status = None if found["status"] is None else int(found["status"])
        time = _moment(found["time"])
    except (TypeError, ValueError) as error:
        message = f"a capture needs numbers for offset and length, and a time that is one: {error}"
        raise BadRecord(message) from error
    if not matched:
        message = f"{str(found['filename'])[:200]!r} is no name of an archive of Common Crawl's"
        raise BadRecord(message)
    if not (0 <= offset < 1 << 50 and 0 < length <= most):
        message = f"there is no record of {length:,} bytes at {offset:,}; one has {most:,} at most"
        raise BadRecord(message)
    url, digest = (None if found[name] is None else str(found[name]) for name in ("url", "digest"))
    return Capture(matched[1], offset, length, url, time, digest, status)


RECORD_COLUMNS = tuple(names[0] for names in _NAMES.values())
"""The columns of the index that a capture is made of."""
CAPTURE_COLUMNS = tuple(name for names in _NAMES.values() for name in names)
"""These and those of CDX."""


def record_columns(names: Iterable[str]) -> dict[str, str]:
    """Those of some columns that a capture is made of, by what they tell of it.

    Raises:
        QueryError: if they do not tell where its record lies.
    """
    there = set(names)
    found = {what: name for what, known in _NAMES.items() if (name := next((n for n in known if n in there), None))}
    if lacking := [_NAMES[what][0] for what in ("filename", "offset", "length") if what not in found]:
        message = f"these captures do not say where their records lie; let them have {', '.join(lacking)} too"
        raise QueryError(message)
    return found


def _moment(value: object) -> datetime | None:
    """A time from a row: one, 14 digits, or ISO 8601; UTC unless it says otherwise."""
    if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 - pandas' way to have none
        return None
    if not isinstance(value, datetime):
        text = str(value)
        value = datetime.strptime(text, "%Y%m%d%H%M%S") if text.isdecimal() else datetime.fromisoformat(text)  # noqa: DTZ007
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def timestamp(time: datetime | None) -> str:
    """A time in 14 digits, UTC; ``-`` for none."""
    if time is None:
        return "-"
    time = time if time.tzinfo is None else time.astimezone(UTC)
    return f"{time.year:04}{time:%m%d%H%M%S}"  # %Y has not everywhere four digits


def cdx_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """A row's CDX fields behind the key and the time, all of them text; what is null is left out."""
    return {name: str(value) for name, column in _CDX_FIELDS if (value := row.get(column)) is not None}


def cdxj_line(row: Mapping[str, Any]) -> str:
    """A row as a line of CDXJ, without its end."""
    return f"{_BREAK.sub(_escaped, row['url_surtkey'])} {timestamp(row['fetch_time'])} {json.dumps(cdx_fields(row))}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())
