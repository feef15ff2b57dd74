"""Parameters of the CDX API → what is asked."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from catalogue.cdx.cdx_filters import Filter, parse_filter
from catalogue.cdx.lines import Output
from catalogue.errors import QueryError
from catalogue.query.query import time_bounds
from catalogue.surt import Match, Pattern, parse_pattern

PAGE_SIZE = 5
"""Blocks of a page, unless it is said; as many as Common Crawl's server has."""

_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
_TIMESTAMP = re.compile("[0-9]{1,14}", re.ASCII)
_EARLIEST, _LATEST = "10000101000000", "29991231235959"
_FALSE = {"", "0", "false", "f", "off"}
_OUTPUTS = {"cdxj": Output.CDXJ, "json": Output.JSON, "text": Output.TEXT}
_BEYOND_HOST = re.compile(r"(?<![:/])[/?]")
_MOST_FILTERS = 50
_MOST_FIELDS = 100
"""That lines may have; of text each takes its place in every one, whether there is such a field or not."""
_UNDONE = ("showPagedIndex", "resolveRevisits", "collapseTime")
"""What pywb does, and no client of Common Crawl's is known to ask for."""


@dataclass(frozen=True, slots=True)
class CdxRequest:
    """A question to the CDX API."""

    url: str
    """As it was typed, without a wildcard; for messages."""
    pattern: Pattern
    first: str = ""
    """The first timestamp, of 14 digits; none if empty."""
    last: str = ""
    """The last one, likewise."""
    limit: int | None = None
    """Of captures, behind the filters."""
    filters: tuple[Filter, ...] = ()
    fields: tuple[str, ...] | None = None
    """In the order in which they are wanted; all if None."""
    output: Output = Output.CDXJ
    page: int = 0
    """The first is 0; others may not exist."""
    page_size: int = PAGE_SIZE
    """Blocks."""
    counts_pages: bool = False
    """Whether the number of pages is all that is wanted."""
    reverse: bool = False
    closest: str = ""
    """A timestamp of 1 to 14 digits; captures are ordered by their distance from it. Empty: by key and time."""

    @property
    def times(self) -> tuple[int | None, int | None]:
        """In milliseconds since 1970, the second exclusive: captures at other times are not wanted."""
        return time_bounds(self.first or None, None)[0], time_bounds(None, self.last or None)[1]

    @property
    def where(self) -> str | None:
        """A condition on the columns of the index that all fulfil that the filters keep."""
        return " AND ".join(filter(None, (each.sql for each in self.filters))) or None

    @property
    def none_found(self) -> str:
        """The message of an answer without captures."""
        return f"No Captures found for: {self.url}"


def parse_request(parameters: Iterable[tuple[str, str]]) -> CdxRequest:
    """Read the parameters of a request; the last of a name counts, but for ``filter``, and blank ones do not.

    Raises:
        QueryError: if it cannot be answered; the message is the server's.
    """
    given = [(name, value) for name, value in parameters if value]
    single = dict(given)
    if (output := single.get("output", "cdxj")) not in _OUTPUTS:
        message = f"output={output[:100]} not supported"
        raise QueryError(message)
    if "url" not in single:
        message = 'The "url" param is required'
        raise QueryError(message)
    filters = [value for name, value in given if name == "filter"]
    if len(filters) > _MOST_FILTERS:
        message = f"Invalid value for filter= param: there are more than {_MOST_FILTERS}"
        raise QueryError(message)
    for name in _UNDONE:
        if _is_true(single.get(name)):
            message = f"{name}= is not supported"
            raise QueryError(message)
    url, pattern = _pattern(single["url"], single.get("matchType"))
    fields = single.get("fields") or single.get("fl")
    return CdxRequest(
        url=url,
        pattern=pattern,
        first=_timestamp(single, "from" if "from" in single else "from_ts", _EARLIEST),
        last=_timestamp(single, "to", _LATEST),
        limit=_limit(single),
        filters=tuple(parse_filter(text) for text in filters),
        fields=_fields(fields) if fields else None,
        output=_OUTPUTS[output],
        page=_number(single, "page", 0),
        page_size=_page_size(single),
        counts_pages=_is_true(single.get("showNumPages")),
        reverse=_is_true(single.get("reverse")) or single.get("sort") == "reverse",
        closest=_timestamp(single, "closest"),
    )


def _pattern(typed: str, match_type: str | None) -> tuple[str, Pattern]:
    """The URL without its wildcard, and the keys that are meant."""
    url = typed
    if match_type is not None:
        if match_type not in {match.value for match in Match}:
            message = f"Invalid match_type: {match_type[:100]}"
            raise QueryError(message)
        match = Match(match_type)
    elif typed.startswith("*.") and typed != "*.":
        match, url = Match.DOMAIN, typed.removeprefix("*.")
    elif typed.endswith("*"):
        match, url = Match.PREFIX, typed.removesuffix("*")
    else:
        match = Match.EXACT
    wanted = re.sub(r"\s", "%20", url.strip()) or typed  # which is everything, if it is an asterisk alone
    if match is Match.PREFIX and url == typed:
        wanted = re.sub(r"\*$", "%2A", wanted)  # which is a wildcard only where it says what to match
    elif match is Match.PREFIX and wanted != typed and not _BEYOND_HOST.search(wanted):
        wanted = f"{wanted}/"  # a host's captures all begin so
    return url, parse_pattern(wanted, match)


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(text.split(","))
    if len(fields) > _MOST_FIELDS:
        message = f"Invalid value for fl= param: there are more than {_MOST_FIELDS}"
        raise QueryError(message)
    return fields


def _timestamp(single: dict[str, str], name: str, padding: str = "") -> str:
    value = single.get(name, "")
    if value and not _TIMESTAMP.fullmatch(value):
        raise _invalid(name, value)
    return value + padding[len(value) :] if value else ""


def _limit(single: dict[str, str]) -> int | None:
    """Of captures; 0 is none, and of less than nothing there is nothing."""
    limit = _number(single, "limit", 0)
    return max(0, limit) if limit else None


def _page_size(single: dict[str, str]) -> int:
    size = _number(single, "pageSize", PAGE_SIZE)
    if size < 1:
        raise _invalid("pageSize", single["pageSize"])
    return size


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
