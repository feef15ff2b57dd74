"""Parameters of the CDX API, parsed, and its filters, applied to lines; see https://github.com/webrecorder/pywb/wiki/CDX-Server-API."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.lines import Output, fields_of
from catalogue.errors import QueryError, TooExpensive
from catalogue.parquet.arrow_arrays import texts
from catalogue.query.filters import UNKNOWN_TYPE, time_span
from catalogue.surt.pattern import Match, Pattern, parse_pattern

_ALIASES = {
    "u": "url",
    "original": "url",
    "statuscode": "status",
    "mimetype": "mime",
    "m": "mime",
    "s": "length",
    "l": "length",
    "o": "offset",
    "d": "digest",
    "t": "timestamp",
    "k": "urlkey",
    "f": "filename",
    "charset": "encoding",
}
"""Other names of fields in filters, as in pywb; ``s`` is not the status."""
_TEXT_COLUMNS = {"mime": "content_mime_type", "mime-detected": "content_mime_detected", "digest": "content_digest"}
_MAX_LENGTH = 2000
_EXPRESSION_SECONDS = 10.0
"""Limit for a request's regular expressions. RE2 needs 20 ms a row for some of 2,000 characters: hours for a part."""
_SLICE = 64
"""Lines filtered by regular expressions between two readings of the clock."""


@dataclass(frozen=True, slots=True)
class Filter:
    """``[!][=|~]field:value``."""

    operator: str
    """Empty to contain the value, ``=`` to equal it, ``~`` to match it at the start as an expression of RE2."""
    field: str
    """Empty for the complete line."""
    value: str
    inverted: bool = False

    def mask(self, values: Sequence[str]) -> list[bool]:
        """Return which values of the field, or lines, are selected; a missing field is an empty text."""
        match self.operator:
            case "=":
                selected = [self.value == value for value in values]
            case "~":
                selected = pc.match_substring_regex(texts(values), _anchored(self.value)).to_pylist()
            case _:
                selected = [self.value in value for value in values]
        return [not each for each in selected] if self.inverted else selected

    @property
    def sql(self) -> str | None:
        """Return a condition on index columns for pruning by statistics; all selected rows meet it."""
        if self.inverted or self.operator != "=":
            return None
        if self.field == "status" and re.fullmatch("[1-9][0-9]{2}", self.value, re.ASCII):
            return f"fetch_status = {self.value}"
        if (self.field, self.value) == ("mime", UNKNOWN_TYPE):
            return f"{_TEXT_COLUMNS[self.field]} IS NULL"
        if self.field in _TEXT_COLUMNS and re.fullmatch(r"[\w.+/-]+", self.value, re.ASCII):
            return f"{_TEXT_COLUMNS[self.field]} = '{self.value}'"
        return None


def parse_filter(text: str) -> Filter:
    if len(text) > _MAX_LENGTH:
        raise QueryError(f"Invalid value for filter= param: it has more than {_MAX_LENGTH:,} characters")
    rest = text.removeprefix("!")
    operator = rest[0] if rest[:1] in {"=", "~"} else ""
    field, colon, value = rest.removeprefix(operator).partition(":")
    if not colon:
        field, value = "", field
    found = Filter(operator, _ALIASES.get(field, field), value, inverted=rest != text)
    if operator == "~":
        for pattern in (value, _anchored(value)):  # the value alone too: its parentheses could close the group
            try:
                pc.match_substring_regex(texts([""]), pattern)
            except pa.ArrowInvalid as error:
                reason = str(error).removeprefix("Invalid regular expression: ")
                message = f"Invalid value for filter= param: {text[:200]} ({reason}; expressions are RE2's)"
                raise QueryError(message) from error
    return found


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})"


def _select(lines: Sequence[str], filters: Sequence[Filter]) -> Sequence[str]:
    fields = [fields_of(line) for line in lines] if any(each.field for each in filters) else []
    for each in filters:
        mask = each.mask([values.get(each.field, "") for values in fields] if each.field else lines)
        lines, fields = list(compress(lines, mask)), list(compress(fields, mask))
    return lines


def apply_filters(
    batches: Iterable[Sequence[str]], filters: Sequence[Filter], *, clock: Callable[[], float] = time.thread_time
) -> Iterator[Sequence[str]]:
    """Yield the lines that all filters select; ``clock`` returns CPU seconds.

    Raises:
        TooExpensive: if regular expressions take more than ``_EXPRESSION_SECONDS`` in all.
    """
    timed = any(each.operator == "~" for each in filters)
    left = _EXPRESSION_SECONDS
    for lines in batches:
        size = _SLICE if timed else len(lines) or 1
        for at in range(0, len(lines), size):
            began = clock()
            selected = _select(lines[at : at + size], filters)
            left -= clock() - began
            if timed and left < 0:
                message = f"the expressions in filter= take more than {_EXPRESSION_SECONDS:.0f} s; use simpler ones"
                raise TooExpensive(message)
            yield selected


PAGE_SIZE = 5
"""Blocks of a page by default, as on Common Crawl's server."""

_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
_TIMESTAMP = re.compile("[0-9]{1,14}", re.ASCII)
_EARLIEST, _LATEST = "10000101000000", "29991231235959"
_FALSE = {"", "0", "false", "f", "off"}
_OUTPUTS = {"cdxj": Output.CDXJ, "json": Output.JSON, "text": Output.TEXT}
_AFTER_HOST = re.compile(r"(?<![:/])[/?]")
_MAX_FILTERS, _MAX_FIELDS, _MAX_PARAMETERS = 50, 100, 200
_INVALID_BYTES = re.compile("[\udc80-\udcff]")
_UNSUPPORTED = ("showPagedIndex", "resolveRevisits", "collapseTime")
"""Parameters of pywb that no known client of Common Crawl's server sends."""


@dataclass(frozen=True, slots=True)
class CdxRequest:
    """A request to the CDX API."""

    url: str
    """The parameter's text except a wildcard; for messages."""
    pattern: Pattern
    first: str = ""
    """First timestamp, 14 digits or empty."""
    last: str = ""
    """Last timestamp, inclusive."""
    limit: int | None = None
    filters: tuple[Filter, ...] = ()
    fields: tuple[str, ...] | None = None
    """Fields in the requested order; None for all."""
    output: Output = Output.CDXJ
    page: int = 0
    """Number from 0; the page may not exist."""
    page_size: int = PAGE_SIZE
    counts_pages: bool = False
    reverse: bool = False
    closest: str = ""
    """Order by distance from this timestamp of 1 to 14 digits; if empty, by key and time."""

    @property
    def times(self) -> tuple[int | None, int | None]:
        """First and last time in milliseconds since 1970, the second exclusive."""
        first = time_span(self.first, clamp=True)[0] if self.first else None
        return first, time_span(self.last, clamp=True)[1] if self.last else None

    @property
    def where(self) -> str | None:
        """A condition on index columns that all captures selected by the filters meet."""
        return " AND ".join(filter(None, (each.sql for each in self.filters))) or None


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """Parse a query string; blank values are left out, and bytes that are not UTF-8 stay ``%XX``."""
    try:
        found = parse_qsl(query.decode("latin-1"), errors="surrogateescape", max_num_fields=_MAX_PARAMETERS)
    except ValueError as error:
        raise QueryError(f"more than {_MAX_PARAMETERS} parameters") from error
    return [(_escape(name), _escape(value)) for name, value in found]


def _escape(text: str) -> str:
    return _INVALID_BYTES.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def parse_request(parameters: Iterable[tuple[str, str]]) -> CdxRequest:
    """Parse parameters; the last of a name counts, except for ``filter``. Blank values are ignored.

    Raises:
        QueryError: with the message of Common Crawl's server.
    """
    given = [(name, value) for name, value in parameters if value]
    single = dict(given)
    if (output := single.get("output", "cdxj")) not in _OUTPUTS:
        raise QueryError(f"output={output[:100]} not supported")
    if "url" not in single:
        raise QueryError('The "url" param is required')
    filters = [value for name, value in given if name == "filter"]
    if len(filters) > _MAX_FILTERS:
        raise QueryError(f"Invalid value for filter= param: there are more than {_MAX_FILTERS}")
    for name in _UNSUPPORTED:
        if _is_true(single.get(name)):
            raise QueryError(f"{name}= is not supported")
    url, pattern = _pattern(single["url"], single.get("matchType"))
    fields = tuple((single.get("fields") or single.get("fl") or "").split(","))
    if len(fields) > _MAX_FIELDS:
        raise QueryError(f"Invalid value for fl= param: there are more than {_MAX_FIELDS}")
    limit = _number(single, "limit", 0)
    page_size = _number(single, "pageSize", PAGE_SIZE)
    if page_size < 1:
        raise _invalid("pageSize", single["pageSize"])
    return CdxRequest(
        url=url,
        pattern=pattern,
        first=_timestamp(single, "from" if "from" in single else "from_ts", _EARLIEST),
        last=_timestamp(single, "to", _LATEST),
        limit=max(0, limit) if limit else None,  # 0 is no limit, and a negative one is an empty answer
        filters=tuple(parse_filter(text) for text in filters),
        fields=None if fields == ("",) else fields,
        output=_OUTPUTS[output],
        page=_number(single, "page", 0),
        page_size=page_size,
        counts_pages=_is_true(single.get("showNumPages")),
        reverse=_is_true(single.get("reverse")) or single.get("sort") == "reverse",
        closest=_timestamp(single, "closest"),
    )


def _pattern(typed: str, match_type: str | None) -> tuple[str, Pattern]:
    url = typed
    if match_type is not None:
        if match_type not in {match.value for match in Match}:
            raise QueryError(f"Invalid match_type: {match_type[:100]}")
        match = Match(match_type)
    elif typed.startswith("*.") and typed != "*.":
        match, url = Match.DOMAIN, typed.removeprefix("*.")
    elif typed.endswith("*"):
        match, url = Match.PREFIX, typed.removesuffix("*")
    else:
        match = Match.EXACT
    pattern = re.sub(r"\s", "%20", url.strip()) or typed  # an asterisk alone is everything
    if match is Match.PREFIX and url == typed:
        pattern = re.sub(r"\*$", "%2A", pattern)  # with matchType it is a character
    elif match is Match.PREFIX and pattern != typed and not _AFTER_HOST.search(pattern):
        pattern = f"{pattern}/"
    return url, parse_pattern(pattern, match)


def _timestamp(single: dict[str, str], name: str, padding: str = "") -> str:
    value = single.get(name, "")
    if value and not _TIMESTAMP.fullmatch(value):
        raise _invalid(name, value)
    return value + padding[len(value) :] if value else ""


def _number(single: dict[str, str], name: str, default: int) -> int:
    value = single.get(name)
    if value is None:
        return default
    if not _NUMBER.fullmatch(value):
        raise _invalid(name, value)
    return int(value)


def _invalid(name: str, value: str) -> QueryError:
    return QueryError(f"Invalid value for {name}= param: {value[:100]}")


def _is_true(value: str | None) -> bool:
    return value is not None and value.lower() not in _FALSE
