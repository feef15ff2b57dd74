"""A capture: the place of a record, and what the index says of it."""

import re
import sys
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from catalogue.commoncrawl.datasets import is_path
from catalogue.errors import BadRecord, QueryError
from catalogue.formatting import in_utc
from catalogue.source.byte_ranges import ByteRange

MAX_RECORD = 64 << 20
"""Bytes of the largest accepted record; the largest known have 7 MB."""

_OLD_FOLDER = "common-crawl/"
"""Folder of some old archives, which Common Crawl's bucket no longer has."""
_BUCKET_URL = re.compile(
    r"s3[an]?://(?:commoncrawl|aws-publicdatasets)/"
    r"|https?://(?:data\.commoncrawl\.org|ds5q9oxwqwsfj\.cloudfront\.net)/"
    r"|https?://(?:commoncrawl|aws-publicdatasets)\.s3(?:[.-]us-east-1)?\.amazonaws\.com/"
    r"|https?://s3(?:[.-]us-east-1)?\.amazonaws\.com/(?:commoncrawl|aws-publicdatasets)/",
    re.IGNORECASE,
)
"""Addresses of Common Crawl's bucket; every source has the same paths."""
_NAMES = {
    "url": ("url",),
    "time": ("fetch_time", "timestamp"),
    "filename": ("warc_filename", "filename"),
    "offset": ("warc_record_offset", "offset"),
    "length": ("warc_record_length", "length"),
    "digest": ("content_digest", "digest"),
    "status": ("fetch_status", "status"),
    "mime": ("content_mime_detected", "mime-detected"),
    "truncated": ("content_truncated", "truncated"),
}

_NOTHING = {"", "-", "None", "null", "NULL", "\\N", "nan", "NaN", "NaT", "<NA>", "NA", "N/A"}
"""Texts for unknown values: of CDX, CSV, Python, JSON, SQL, Hive, pandas, R and spreadsheets."""
_NUMBER = re.compile(r"\s*(-?[0-9]{1,19})(?:\.0*)?\s*")
_DIGITS = re.compile(r"\s*([0-9]+)(?:\.0*)?\s*")
_STAMP = re.compile(
    r"([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2})(?:([0-9]{2})([0-9]{2})(?:([0-9]{2})(?:[0-9]{3})?)?)?)?)?"
)
_ZONE = re.compile(r"\s*(?:UTC|GMT|Z)\Z", re.IGNORECASE)
_PRECISIONS = {4: timedelta(days=366), 6: timedelta(days=31), 8: timedelta(days=1), 12: timedelta(minutes=1)}
_MILLISECONDS = 13
"""Digits of a time that pandas writes to JSON, from 2001 to 2286."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The place of a record, and what is known of it."""

    filename: str
    offset: int
    length: int
    url: str | None = None
    time: datetime | None = None
    digest: str | None = None
    """The payload's SHA-1 in base 32, or name and value of another algorithm."""
    status: int | None = None
    mime: str | None = None
    """The detected media type."""
    truncated: str | None = None
    old_folder: str = field(default="", repr=False, compare=False)
    """Folder before ``filename``, which only old sources have."""
    precision: timedelta = field(default=timedelta(seconds=1), repr=False, compare=False)

    @property
    def range(self) -> ByteRange:
        return ByteRange(self.offset, self.offset + self.length)


def capture_of(row: Mapping[str, Any], roots: Iterable[str] = ()) -> Capture:
    """Convert and check a row of the index or of a CDX server; values may be text.

    Args:
        row: values by name. An empty value or ``-`` is unknown, and so is a status that is not positive: writers of the
            index use -1.
        roots: addresses and folders of the source, with which the file name may start.

    Raises:
        BadRecord: if it is not the place of a record, or the record is longer than ``MAX_RECORD``.
    """
    try:
        found = {
            name: next((text for n in names if (text := _text(row.get(n)))), None) for name, names in _NAMES.items()
        }
        offset, length = _whole(found["offset"]), _whole(found["length"])
        status = _whole(found["status"]) if found["status"] else 0
        time = parse_timestamp(found["time"]) if found["time"] else None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRecord(f"invalid offset, length, status or time of a capture: {str(error)[:300]}") from error
    path = _path(found["filename"] or "", roots)
    archive = sys.intern(path.removeprefix(_OLD_FOLDER))  # millions of captures are in a few thousand archives
    if not is_path(archive):
        raise BadRecord(f"{(found['filename'] or '')[:200]!r} is not the path of an archive")
    if not (0 <= offset < 1 << 50 and 0 < length <= MAX_RECORD):
        raise BadRecord(f"invalid record of {length:,} bytes at {offset:,}; at most {MAX_RECORD:,} bytes are accepted")
    return Capture(
        archive,
        offset,
        length,
        found["url"],
        time,
        found["digest"],
        status if status > 0 else None,
        found["mime"],
        found["truncated"],
        old_folder=path.removesuffix(archive),
        precision=precision_of(found["time"] or ""),
    )


def _path(filename: str, roots: Iterable[str]) -> str:
    for root in roots:
        folder = f"{root.removesuffix('/')}/"
        if filename.startswith(folder):
            return filename.removeprefix(folder)
    bucket = _BUCKET_URL.match(filename)
    return filename[bucket.end() :] if bucket else filename


PAYLOAD_COLUMNS = tuple(_NAMES[field][0] for field in ("mime", "truncated"))
"""Columns of the index that describe the payload."""
RECORD_COLUMNS = tuple(names[0] for names in _NAMES.values() if names[0] not in PAYLOAD_COLUMNS)
"""Columns of the index that locate and identify the record."""
CAPTURE_COLUMNS = tuple(name for names in _NAMES.values() for name in names)


def record_columns(names: Iterable[str]) -> dict[str, str]:
    there = set(names)
    found = {what: name for what, known in _NAMES.items() if (name := next((n for n in known if n in there), None))}
    if missing := [_NAMES[what][0] for what in ("filename", "offset", "length") if what not in found]:
        what, are = ("columns", "are") if missing[1:] else ("column", "is")
        advice = "join with how='inner' or how='latest', or query without columns="
        raise QueryError(f"{what} {', '.join(missing)} {are} missing; {advice}")
    return found


def _text(value: object) -> str | None:
    if not isinstance(value, str) and isinstance(value, Sized):
        raise TypeError(f"{str(value)[:100]!r} is not one value")
    text = str(value)
    return None if text.strip() in _NOTHING else text


def _whole(text: str | None) -> int:
    if not (found := _NUMBER.fullmatch(text or "")):
        raise ValueError(f"invalid number {text[:100]!r}" if text else "offset or length is unknown")
    return int(found[1])


def parse_timestamp(text: str) -> datetime:
    """Parse a time, UTC by default: ISO 8601, digits of year to second or less, or milliseconds since 1970."""
    digits = _DIGITS.fullmatch(text)
    if digits and len(digits[1]) == _MILLISECONDS:
        return datetime.fromtimestamp(int(digits[1]) / 1000, UTC)
    if stamp := _STAMP.fullmatch(digits[1] if digits else text):
        year, month, day, hour, minute, second = stamp.groups()
        return datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )
    if digits:
        raise ValueError(f"invalid time {text[:100]!r}; use 14 digits")
    return in_utc(datetime.fromisoformat(_ZONE.sub("+00:00", text)))


def precision_of(text: str) -> timedelta:
    """Return the precision of a written time; some writers leave out seconds, or the time of day."""
    return _PRECISIONS.get(sum(map(str.isdigit, text)), timedelta(seconds=1))


def format_timestamp(time: datetime | None) -> str:
    """Return 14 digits, UTC; ``-`` for None."""
    if time is None:
        return "-"
    time = in_utc(time)
    return f"{time.year:04}{time:%m%d%H%M%S}"  # %Y has not everywhere four digits
