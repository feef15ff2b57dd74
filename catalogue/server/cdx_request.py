"""Parameters of the CDX API, parsed; see https://github.com/webrecorder/pywb/wiki/CDX-Server-API."""

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.lines import FIELDS, RAW, Output
from catalogue.errors import QueryError
from catalogue.query.times import time_bounds
from catalogue.surt import Match, Pattern, parse_pattern

PAGE_SIZE = 5
"""Blocks of a page by default, as on Common Crawl's server."""

_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
_TIMESTAMP = re.compile("[0-9]{1,14}", re.ASCII)
_EARLIEST, _LATEST = "10000101000000", "29991231235959"
_FALSE = {"", "0", "false", "f", "off"}
_OUTPUTS = {"cdxj": Output.CDXJ, "json": Output.JSON, "text": Output.TEXT}
_AFTER_HOST = re.compile(r"(?<![:/])[/?]")
_MAX_FILTERS, _MAX_FILTER_LENGTH = 50, 2000
_MAX_FIELDS = 100
_MAX_PARAMETERS = 200
_INVALID_BYTES = re.compile("[\udc80-\udcff]")
_UNSUPPORTED = ("showPagedIndex", "resolveRevisits", "collapseTime")
"""Parameters of pywb that no known client of Common Crawl's server sends."""
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


class Operator(enum.Enum):
    """How a filter compares; the value is its prefix."""

    CONTAINS = ""
    EQUALS = "="
    MATCHES = "~"
    """An RE2 expression, anchored at the start; its time is proportional to the text."""


@dataclass(frozen=True, slots=True)
class Filter:
    """``[!][=|~]field:value``."""

    operator: Operator
    field: str
    """Empty for the complete line."""
    value: str
    inverted: bool = False

    def mask(self, table: pa.RecordBatch) -> pa.Array:
        """Select captures of a table of CDX fields; a missing field is an empty text."""
        if self.field and self.field not in FIELDS:
            values = pa.array([""] * table.num_rows, pa.string())
        else:
            values = table.column(self.field or RAW).fill_null("")
        match self.operator:
            case Operator.CONTAINS:
                selected = pc.match_substring(values, self.value)
            case Operator.EQUALS:
                selected = pc.equal(values, self.value)
            case Operator.MATCHES:
                selected = pc.match_substring_regex(values, _anchored(self.value))
        return pc.invert(selected) if self.inverted else selected

    @property
    def sql(self) -> str | None:
        """Return a condition on index columns for pruning by statistics; all selected rows meet it."""
        if self.inverted or self.operator is not Operator.EQUALS:
            return None
        if self.field == "status" and re.fullmatch("[1-9][0-9]{2}", self.value, re.ASCII):
            return f"fetch_status = {self.value}"
        if self.field in _TEXT_COLUMNS and re.fullmatch(r"[\w.+/-]+", self.value, re.ASCII):
            return f"{_TEXT_COLUMNS[self.field]} = '{self.value}'"
        return None


@dataclass(frozen=True, slots=True)
class CdxRequest:
    """A request to the CDX API."""

    url: str
    """As sent, without a wildcard; for messages."""
    pattern: Pattern
    first: str = ""
    """First timestamp, 14 digits or empty."""
    last: str = ""
    """Last timestamp, inclusive."""
    limit: int | None = None
    """Captures, after filters."""
    filters: tuple[Filter, ...] = ()
    fields: tuple[str, ...] | None = None
    """In the requested order; None for all."""
    output: Output = Output.CDXJ
    page: int = 0
    """From 0; it may not exist."""
    page_size: int = PAGE_SIZE
    """In blocks."""
    counts_pages: bool = False
    reverse: bool = False
    closest: str = ""
    """Order by distance from this timestamp of 1 to 14 digits; if empty, by key and time."""

    @property
    def times(self) -> tuple[int | None, int | None]:
        """First and last time in milliseconds since 1970, the second exclusive."""
        return time_bounds(self.first or None, None)[0], time_bounds(None, self.last or None)[1]

    @property
    def where(self) -> str | None:
        """A condition on index columns that all captures selected by the filters meet."""
        return " AND ".join(filter(None, (each.sql for each in self.filters))) or None


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """Parse a query string; blank values are left out, and bytes that are not UTF-8 stay ``%XX``.

    Raises:
        QueryError: if there are too many parameters.
    """
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
    fields = single.get("fields") or single.get("fl")
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
        fields=_fields(fields) if fields else None,
        output=_OUTPUTS[output],
        page=_number(single, "page", 0),
        page_size=page_size,
        counts_pages=_is_true(single.get("showNumPages")),
        reverse=_is_true(single.get("reverse")) or single.get("sort") == "reverse",
        closest=_timestamp(single, "closest"),
    )


def parse_filter(text: str) -> Filter:
    if len(text) > _MAX_FILTER_LENGTH:
        raise QueryError(f"Invalid value for filter= param: it has more than {_MAX_FILTER_LENGTH:,} characters")
    rest = text.removeprefix("!")
    operator = Operator(rest[0]) if rest[:1] in {"=", "~"} else Operator.CONTAINS
    field, colon, value = rest.removeprefix(operator.value).partition(":")
    if not colon:
        field, value = "", field
    found = Filter(operator, _ALIASES.get(field, field), value, inverted=rest != text)
    if operator is Operator.MATCHES:
        for pattern in (value, _anchored(value)):  # the value alone too: its parentheses could close the group
            try:
                pc.match_substring_regex(pa.array([""]), pattern)
            except pa.ArrowInvalid as error:
                reason = str(error).rpartition(": ")[2]
                message = f"Invalid value for filter= param: {text[:200]} ({reason}; expressions are RE2's)"
                raise QueryError(message) from error
    return found


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})"


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


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(text.split(","))
    if len(fields) > _MAX_FIELDS:
        raise QueryError(f"Invalid value for fl= param: there are more than {_MAX_FIELDS}")
    return fields


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
