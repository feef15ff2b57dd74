"""Times of a query."""

import calendar
import re
from datetime import UTC, date, datetime, timedelta

from catalogue.errors import QueryError

_DIGITS = len("YYYYMMDDhhmmss")
Moment = str | int | date

_ISO = re.compile(
    r"(\d{4})-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:\.\d+)?)?)?)?)?(?P<zone>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def time_bounds(first: Moment | None, last: Moment | None) -> tuple[int | None, int | None]:
    """Convert ``--from`` and ``--to`` to milliseconds since 1970, the end exclusive.

    Both are inclusive as typed: the first 1 to 14 digits of a time as in the CDX API (``2022``, ``20220131``), or an
    ISO date or time, in UTC unless it has a zone; a date means the day.
    """
    from_ms = None if first is None else _milliseconds(_span(str(first))[0])
    to_ms = None if last is None else _milliseconds(_span(str(last))[1])
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise QueryError(f"the first time {first} lies behind the last time {last}; exchange them")
    return from_ms, to_ms


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp()) * 1000


def _span(text: str) -> tuple[datetime, datetime]:
    """Return the first time that a text means, and the end, exclusive."""
    try:
        shift = timedelta()
        digits = text
        if not (text.isascii() and text.isdecimal()):
            matched = _ISO.fullmatch(text)
            digits = "".join(part for part in matched.groups()[:6] if part) if matched else ""
            if matched and matched["zone"] not in {None, "Z"}:
                shift = datetime.fromisoformat(f"2000-01-01T00:00:00{matched['zone']}").utcoffset() or shift
            datetime.strptime(digits, "%Y%m%d%H%M%S"[: len(digits) - 2]).replace(tzinfo=UTC)  # is there such a time?
        if not 1 <= len(digits) <= _DIGITS:
            raise ValueError(text)  # noqa: TRY301 - like those of the lines around it
        first, last = _from_digits(digits.ljust(_DIGITS, "0")), _from_digits(digits.ljust(_DIGITS, "9"))
        return first - shift, last - shift + timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise QueryError(
            f"invalid time {text[:100]!r}; use 2022, 20220131, 2022-01-31 or 2022-01-31T12:00:00"
        ) from error


def _from_digits(digits: str) -> datetime:
    """Return 14 digits as a time, each part within its limits."""
    year = min(max(int(digits[:4]), 1000), 9998)
    month = min(max(int(digits[4:6]), 1), 12)
    day = min(max(int(digits[6:8]), 1), calendar.monthrange(year, month)[1])
    hour, minute, second = (
        min(int(part), most) for part, most in ((digits[8:10], 23), (digits[10:12], 59), (digits[12:], 59))
    )
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
