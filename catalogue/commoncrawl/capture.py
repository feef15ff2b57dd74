"""One capture: what the index says of a record, which is the ``length`` bytes at ``offset`` of ``filename``."""

import re
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from catalogue.errors import BadRecord, QueryError
from catalogue.formatting import in_utc
from catalogue.source.byte_ranges import ByteRange

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

_NOTHING = {"", "-", "None", "nan", "NaN", "NaT", "<NA>"}
"""What a value is as text that is not known: in CDX, in CSV, in Python, and three of pandas' ways."""
_NUMBER = re.compile(r"\s*(-?[0-9]{1,19})(?:\.0*)?\s*")
_DIGITS = re.compile(r"\s*([0-9]+)(?:\.0*)?\s*")
_STAMPS = {14: "%Y%m%d%H%M%S", 12: "%Y%m%d%H%M"}
"""Times by how many digits they have."""
_MILLISECONDS = 13
"""Digits of a time as pandas writes it to JSON, from 2001 to 2286."""


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
    try:
        found = {
            name: next((told for n in names if (told := _told(row.get(n)))), None) for name, names in _NAMES.items()
        }
        offset, length = _whole(found["offset"]), _whole(found["length"])
        status = _whole(found["status"]) if found["status"] else None
        time = parse_timestamp(found["time"]) if found["time"] else None
    except (TypeError, ValueError, OverflowError) as error:
        message = f"a capture needs numbers for offset and length, and a time that is one: {str(error)[:300]}"
        raise BadRecord(message) from error
    matched = _ARCHIVE.fullmatch(found["filename"] or "")
    if not matched:
        message = f"{(found['filename'] or '')[:200]!r} is no name of an archive of Common Crawl's"
        raise BadRecord(message)
    if not (0 <= offset < 1 << 50 and 0 < length <= most):
        message = f"there is no record of {length:,} bytes at {offset:,}; one has {most:,} at most"
        raise BadRecord(message)
    return Capture(matched[1], offset, length, found["url"], time, found["digest"], status)


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


def _told(value: object) -> str | None:
    """A value of a row as text; None if it says nothing.

    Raises:
        TypeError: if it is no single value.
    """
    if isinstance(value, Sized) and not isinstance(value, str):
        message = f"{str(value)[:100]!r} is not one value"
        raise TypeError(message)
    text = str(value)
    return None if text in _NOTHING else text


def _whole(text: str | None) -> int:
    """A number that pandas may have made a float of.

    Raises:
        ValueError: if it is none.
    """
    if not (found := _NUMBER.fullmatch(text or "")):
        message = f"{(text or '')[:100]!r} is no number"
        raise ValueError(message)
    return int(found[1])


def parse_timestamp(text: str) -> datetime:
    """A time, in UTC: from ISO 8601, 14 digits, or 12 without seconds, or milliseconds since 1970.

    One of ISO 8601 without a zone is taken for UTC.

    Raises:
        ValueError: if it is none of these.
    """
    digits = _DIGITS.fullmatch(text)
    if not digits:
        time = datetime.fromisoformat(text)
    elif len(digits[1]) == _MILLISECONDS:
        return datetime.fromtimestamp(int(digits[1]) / 1000, UTC)
    elif pattern := _STAMPS.get(len(digits[1])):
        time = datetime.strptime(digits[1], pattern)  # noqa: DTZ007 - the next line
    else:
        message = f"{text[:100]!r} is no time; one has 14 digits"
        raise ValueError(message)
    return in_utc(time)


def format_timestamp(time: datetime | None) -> str:
    """A time in 14 digits, UTC, for which one without a zone is taken; ``-`` for none."""
    if time is None:
        return "-"
    time = in_utc(time)
    return f"{time.year:04}{time:%m%d%H%M%S}"  # %Y has not everywhere four digits
