"""Filters by status, media type, language and time.

====================  =========================================================
status                ``200``, ``40x``, ``2xx``
media type            ``text/html``; ``text/*``, ``text/`` or ``application/vnd*`` for all types that start so
language              ``isl``: three letters of ISO 639-3
====================  =========================================================

Several values, in a list or separated by commas, are alternatives. Letter case does not matter.
"""

import calendar
import mimetypes
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime

from catalogue.errors import QueryError
from catalogue.query.arguments import comma_separated
from catalogue.query.literals import literal

Values = str | int | Iterable[str | int] | None

STATUS = "[1-9](?:[0-9]{2}|[0-9][xX]|[xX]{2})"
MIME = "[uU][nN][kK]|[A-Za-z0-9!#$&^_.+-]{1,127}/(?:\\*|[A-Za-z0-9!#$&^_.+-]{1,127}\\*?)?"
"""``unk`` selects captures without a media type."""
LANGUAGE = "[A-Za-z]{3}"

UNKNOWN_TYPE = "unk"
"""Media type of captures without one; each line of the CDX index has one."""
DETECTED_TYPE, DECLARED_TYPE = "content_mime_detected", "content_mime_type"
"""The media type as detected, absent from the first crawls, and as declared."""

_TWO_LETTERS = (
    "af:afr am:amh ar:ara as:asm az:aze be:bel bg:bul bn:ben bs:bos ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng "
    "eo:epo es:spa et:est eu:eus fa:fas fi:fin fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gu:guj ha:hau he:heb hi:hin "
    "hr:hrv ht:hat hu:hun hy:hye id:ind ig:ibo is:isl it:ita iw:heb ja:jpn jv:jav ka:kat kk:kaz km:khm kn:kan ko:kor "
    "ku:kur ky:kir la:lat lb:ltz lo:lao lt:lit lv:lav mg:mlg mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya "
    "ne:nep nl:nld nn:nno no:nor or:ori pa:pan pl:pol ps:pus pt:por ro:ron ru:rus sa:san sd:snd si:sin sk:slk sl:slv "
    "so:som sq:sqi sr:srp su:sun sv:swe sw:swa ta:tam te:tel tg:tgk th:tha tk:tuk tl:tgl tr:tur tt:tat ug:uig uk:ukr "
    "ur:urd uz:uzb vi:vie xh:xho yi:yid yo:yor zh:zho zu:zul"
)
"""ISO 639-1 codes, and ISO 639-3 codes, which the index has."""


def conditions(
    status: Sequence[str], mime: Sequence[str], lang: Sequence[str], media_type: str = DETECTED_TYPE
) -> list[str]:
    """Return parsed filters as boolean expressions in SQL; ``media_type`` is the column that is compared."""
    parts = []
    if status:
        ranges = [(each.replace("x", "0"), each.replace("x", "9")) for each in status if "x" in each]
        between = [f"fetch_status BETWEEN {first} AND {last}" for first, last in ranges]
        parts.append(_any_of("fetch_status", [each for each in status if "x" not in each], between))
    if mime:
        exact = [literal(each) for each in mime if not each.endswith("*") and each != UNKNOWN_TYPE]
        others = [f"starts_with({media_type}, {literal(each[:-1])})" for each in mime if each.endswith("*")]
        others += [f"{media_type} IS NULL"] if UNKNOWN_TYPE in mime else []
        revisits = [each.removesuffix("*") for each in mime if each.startswith("warc/")]  # nothing to detect
        others += [f"starts_with({DECLARED_TYPE}, {literal(each)})" for each in revisits]
        parts.append(_any_of(media_type, exact, others))
    if lang:
        parts.append(f"list_has_any(string_split(content_languages, ','), [{', '.join(map(literal, lang))}])")
    return parts


def statuses(values: Values) -> tuple[str, ...]:
    return _parsed(values, STATUS, "status", lambda _: "use 200, 40x, 2xx or 200,404")


def media_types(values: Values) -> tuple[str, ...]:
    found = _parsed(values, MIME, "media type", _media_type_hint)
    return tuple(f"{each}*" if each.endswith("/") else each for each in found)


def languages(values: Values) -> tuple[str, ...]:
    return _parsed(values, LANGUAGE, "language", _language_hint)


def _parsed(values: Values, pattern: str, name: str, hint: Callable[[str], str]) -> tuple[str, ...]:
    found = comma_separated(() if values is None else values, name)
    for value in found:
        if not re.fullmatch(pattern, value):
            raise QueryError(f"invalid {name} {value[:100]!r}; {hint(value.lower())}")
    return tuple(dict.fromkeys(value.lower() for value in found))


def _media_type_hint(value: str) -> str:
    like, _ = mimetypes.MimeTypes().guess_type(f"file.{value.lstrip('.')}", strict=False)
    return f"did you mean {like}?" if "/" not in value and like else "use text/html, text/* or application/vnd*"


def _language_hint(value: str) -> str:
    known = dict(pair.split(":") for pair in _TWO_LETTERS.split())
    like = known.get(re.split("[-_]", value)[0])
    return f"did you mean {like}?" if like else "use three letters of ISO 639-3, such as eng"


def _any_of(column: str, values: Sequence[str], conditions: Sequence[str]) -> str:
    parts = [*conditions]
    if values:
        parts.append(f"{column} = {values[0]}" if len(values) == 1 else f"{column} IN ({', '.join(values)})")
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


_DIGITS = len("YYYYMMDDhhmmss")
Moment = str | int | date

_ISO = re.compile(
    r"(\d{4})-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:\.(?P<fraction>\d+))?)?)?)?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def time_bounds(first: Moment | None, last: Moment | None) -> tuple[int | None, int | None]:
    """Convert ``--from`` and ``--to``, both inclusive, to milliseconds since 1970, the end exclusive.

    Raises:
        QueryError: if a time is invalid, or the first is after the last.
    """
    from_ms = None if first is None else time_span(first)[0]
    to_ms = None if last is None else time_span(last)[1]
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise QueryError(f"the first time {first} is after the last time {last}; exchange them")
    return from_ms, to_ms


def valid_time(given: Moment) -> Moment:
    """Return a first or last time as it was given; raise QueryError if it is invalid."""
    time_span(given)
    return given


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp()) * 1000


def time_span(given: Moment, *, clamp: bool = False) -> tuple[int, int]:
    """Return the first millisecond of a time since 1970, and the end, exclusive.

    A time is the first 1 to 14 digits of one as in the CDX API (``2022``, ``20220131``), or an ISO date or time, in UTC
    unless it has a zone; a date means the day. ``clamp`` changes digits of impossible times to the nearest possible
    ones, as CDX servers do.
    """
    text = str(given).strip()
    try:
        digits, offset, fraction = text, 0, ""
        if not (text.isascii() and text.isdecimal()):
            matched = _ISO.fullmatch(text)
            digits = "".join(part for part in matched.groups()[:6] if part) if matched else ""
            fraction = (matched and matched["fraction"]) or ""
            fraction = fraction if fraction.strip("0") else ""  # numpy writes zeros
            if matched and matched["zone"]:
                offset = _milliseconds(datetime.fromisoformat(f"1970-01-01T00:00:00{matched['zone']}"))
            datetime.strptime(digits, "%Y%m%d%H%M%S"[: len(digits) - 2]).replace(tzinfo=UTC)  # is there such a time?
        if not 1 <= len(digits) <= _DIGITS:
            raise ValueError(text)  # noqa: TRY301 - like those of the lines around it
        first, last = _from_digits(digits.ljust(_DIGITS, "0")), _from_digits(digits.ljust(_DIGITS, "9"))
        if not (clamp or any(f"{each:%m%d%H%M%S}".startswith(digits[4:]) for each in (first, last))):
            raise ValueError(text)  # noqa: TRY301
        least, greatest = (int(fraction.ljust(3, digit)[:3]) for digit in "09")
        return _milliseconds(first) + offset + least, _milliseconds(last) + offset + greatest + 1
    except (ValueError, OverflowError) as error:
        raise QueryError(
            f"invalid time {text[:100]!r}; use 2022, 20220131, 2022-01-31 or 2022-01-31T12:00:00"
        ) from error


def _from_digits(digits: str) -> datetime:
    year = min(max(int(digits[:4]), 1000), 9999)
    month = min(max(int(digits[4:6]), 1), 12)
    day = min(max(int(digits[6:8]), 1), calendar.monthrange(year, month)[1])
    hour, minute, second = (
        min(int(part), most) for part, most in ((digits[8:10], 23), (digits[10:12], 59), (digits[12:], 59))
    )
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
