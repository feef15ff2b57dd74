"""The search form: its fields, their errors, and the query."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from catalogue.commoncrawl.capture import format_timestamp
from catalogue.errors import QueryError
from catalogue.query.filters import Filters, languages, media_types, statuses
from catalogue.query.query import Query
from catalogue.query.times import time_bounds
from catalogue.server.search import Search
from catalogue.surt import Match, parse_pattern

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
"""Captures on a page."""
MAX_PAGE = 100

_FIELDS = ("url", "matchType", "from", "to", "status", "mime", "language", "order", "limit", "page")
"""Parameters that are given once."""
_SEPARATOR = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class Form:
    """Fields as sent; ``form["url"]`` is empty if the field is missing."""

    crawls: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    """Messages by parameter."""

    @classmethod
    def of(cls, given: QueryParams) -> "Form":
        """Read parameters; ``crawls`` replaces ``crawl``, the selected one."""
        crawls = [given["crawls"]] if given.get("crawls", "").strip() else given.getlist("crawl")
        words = (word for text in crawls for word in _SEPARATOR.split(text))
        fields = {name: given.get(name, "").strip() for name in _FIELDS}
        return cls(tuple(dict.fromkeys(filter(None, words))), fields)

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    def error(self, name: str) -> str:
        return self.errors.get(name, "")

    def with_error(self, name: str, message: str) -> "Form":
        return replace(self, errors={**self.errors, name: message})

    @property
    def has_filters(self) -> bool:
        """Whether one of the folded fields is used or has an error."""
        return any(self[name] for name in _FIELDS[1:-2]) or bool(self.error("limit"))

    def address(self, path: str = "/search", *, crawls: tuple[str, ...] | None = None, **other: str) -> str:
        """Return path and query string of the search with other values, by default of its first page."""
        fields = {**self.fields, "page": "", **other}
        pairs = [("url", fields.pop("url", ""))]
        pairs += [("crawl", crawl) for crawl in (self.crawls if crawls is None else crawls)]
        return f"{path}?{urlencode([(name, value) for name, value in [*pairs, *fields.items()] if value])}"

    def cdx_address(self, crawl: str) -> str:
        """Return path and query string of the same query to the CDX API, as JSON lines."""
        url, match = self["url"], self["matchType"]
        if match == Match.PREFIX.value and url.endswith("*"):  # in the CDX API it would be a character
            url, match = (url, "") if url == "*" else (url[:-1], match)
        pairs = [("url", url), ("output", "json"), ("matchType", match)]
        first, end = time_bounds(self["from"] or None, self["to"] or None)
        pairs += [("from", _digits(first))] if first is not None else []
        pairs += [("to", _digits(end - 1))] if end is not None else []
        filters = Filters.of(self["status"] or None, self["mime"] or None, self["language"] or None)
        pairs += [("filter", _cdx_filter("status", filters.status, "x", "."))] if filters.status else []
        pairs += [("filter", _cdx_filter("mime-detected", filters.mime, r"\*", ".*"))] if filters.mime else []
        if filters.lang:
            pairs.append(("filter", rf"~languages:(.*,)?({'|'.join(filters.lang)})(,.*)?$"))
        pairs.append(("limit", self["limit"] or str(DEFAULT_LIMIT)))
        return f"/{crawl}-index?{urlencode([(name, value) for name, value in pairs if value])}"


def parse_form(form: Form) -> Search | Form:
    """Return the query, or the form with errors."""
    checks: dict[str, Callable[[str], Any]] = {
        "matchType": _match,
        "url": lambda text: _check_url(text, form["matchType"]),
        "from": lambda text: time_bounds(text or None, None),
        "to": lambda text: time_bounds(None, text or None),
        "status": lambda text: statuses(text or None),
        "mime": lambda text: media_types(text or None),
        "language": lambda text: languages(text or None),
        "order": _order,
        "limit": lambda text: _limit(text, form["page"]),
    }
    found: dict[str, Any] = {}
    checked = form
    for name, check in checks.items():
        try:
            found[name] = check(form[name])
        except QueryError as error:
            checked = checked.with_error(name, str(error))
    if not (checked.error("from") or checked.error("to")):
        try:
            time_bounds(form["from"] or None, form["to"] or None)
        except QueryError:
            checked = checked.with_error("to", f"{form['to']} is before {form['from']}")
    if checked.errors:
        return checked
    query = Query(
        patterns=(form["url"],),
        crawls=form.crawls or ("all",),
        match=found["matchType"],
        from_=form["from"] or None,
        to=form["to"] or None,
        filters=Filters(found["status"], found["mime"], found["language"]),
        limit=found["limit"],
    )
    return Search(query, form["order"], int(form["page"] or 1))


def _match(text: str) -> Match | None:
    try:
        return Match(text) if text else None
    except ValueError:
        raise QueryError(f"invalid match {text[:100]!r}; use exact, prefix, host or domain") from None


def _check_url(text: str, match: str) -> None:
    if not text:
        raise QueryError("enter a URL or a host, such as example.com/page, example.com/* or *.example.com")
    parse_pattern(text, Match(match) if match in {each.value for each in Match} else None)


def _order(text: str) -> None:
    if text not in {"", "key", "newest"}:
        raise QueryError(f"invalid order {text[:100]!r}; use key or newest")


def _limit(text: str, page: str) -> int:
    if page and page not in map(str, range(1, MAX_PAGE + 1)):
        raise QueryError(f"invalid page {page[:20]!r}; use 1 to {MAX_PAGE}, or the CDX API for more captures")
    if text and not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_LIMIT):
        raise QueryError(f"invalid limit {text[:20]!r}; use 1 to {MAX_LIMIT:,}, or the CDX API for more")
    return int(text or DEFAULT_LIMIT)


def _cdx_filter(field: str, values: tuple[str, ...], wildcard: str, expression: str) -> str:
    """Return a filter of the CDX API; a regular expression for several values or wildcards."""
    found = [re.escape(value).replace(wildcard, expression) for value in values]
    if found == [re.escape(values[0])]:
        return f"={field}:{values[0]}"
    return f"~{field}:{found[0]}" if len(found) == 1 else f"~{field}:({'|'.join(found)})$"


def _digits(milliseconds: int) -> str:
    return format_timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
