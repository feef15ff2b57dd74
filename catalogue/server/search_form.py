"""The search form: its fields as sent, errors in them, and the query they describe."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from catalogue.commoncrawl.capture import format_timestamp
from catalogue.errors import QueryError
from catalogue.query.filters import Filters, languages, media_types, statuses
from catalogue.query.query import time_bounds
from catalogue.server.search import Search
from catalogue.surt import Match, parse_pattern

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
"""Captures on a page."""
MAX_PAGE = 100

_FIELDS = {
    "url": "url",
    "matchType": "match",
    "from": "from_",
    "to": "to",
    "status": "status",
    "mime": "mime",
    "language": "language",
    "order": "order",
    "limit": "limit",
    "page": "page",
}
"""Attributes of ``Form`` by parameters that are given once."""
_SEPARATOR = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class Form:
    """Fields of the form, as sent."""

    url: str = ""
    crawls: tuple[str, ...] = ()
    match: str = ""
    from_: str = ""
    to: str = ""
    status: str = ""
    mime: str = ""
    language: str = ""
    order: str = ""
    limit: str = ""
    page: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    """Messages by parameter."""

    @classmethod
    def of(cls, given: QueryParams) -> "Form":
        """Read parameters; ``crawls``, a text, replaces ``crawl``, the selected one."""
        crawls = [given["crawls"]] if given.get("crawls", "").strip() else given.getlist("crawl")
        words = (word for text in crawls for word in _SEPARATOR.split(text))
        typed: dict[str, Any] = {field: given.get(name, "").strip() for name, field in _FIELDS.items()}
        return replace(cls(**typed), crawls=tuple(dict.fromkeys(filter(None, words))))

    def error(self, name: str) -> str:
        """Return the message for a parameter, or an empty text."""
        return dict(self.errors).get(name, "")

    def with_error(self, name: str, message: str) -> "Form":
        """Add a message."""
        return replace(self, errors=(*self.errors, (name, message)))

    @property
    def has_filters(self) -> bool:
        """Whether one of the folded fields is used or has an error."""
        return any(
            [self.match, self.from_, self.to, self.status, self.mime, self.language, self.order, self.error("limit")]
        )

    def address(self, path: str = "/search", **other: Any) -> str:  # noqa: ANN401 - of any field
        """Return path and query string of the search, with other values; its first page unless given."""
        form = replace(self, **{"page": "", **other})
        pairs = [("url", form.url), *(("crawl", crawl) for crawl in form.crawls)]
        pairs += [(name, getattr(form, field)) for name, field in _FIELDS.items() if name != "url"]
        return f"{path}?{urlencode([(name, value) for name, value in pairs if value])}"

    def cdx_address(self, crawl: str) -> str:
        """Return path and query string of the same query to the CDX API, as JSON lines."""
        url, match = self.url, self.match
        if match == Match.PREFIX.value and url.endswith("*"):  # in the CDX API it would be a character
            url, match = (url, "") if url == "*" else (url[:-1], match)
        pairs = [("url", url), ("output", "json"), ("matchType", match)]
        first, end = time_bounds(self.from_ or None, self.to or None)
        pairs += [("from", _digits(first))] if first is not None else []
        pairs += [("to", _digits(end - 1))] if end is not None else []
        filters = Filters.of(self.status or None, self.mime or None, self.language or None)
        pairs += [("filter", _cdx_filter("status", filters.status, "x", "."))] if filters.status else []
        pairs += [("filter", _cdx_filter("mime-detected", filters.mime, r"\*", ".*"))] if filters.mime else []
        if filters.lang:
            pairs.append(("filter", rf"~languages:(.*,)?({'|'.join(filters.lang)})(,.*)?$"))
        pairs.append(("limit", self.limit or str(DEFAULT_LIMIT)))
        return f"/{crawl}-index?{urlencode([(name, value) for name, value in pairs if value])}"


def parse_form(form: Form) -> Search | Form:
    """Return the query, or the form with messages for its invalid fields."""
    checks: dict[str, Callable[[Form], object]] = {
        "matchType": _match,
        "url": _check_url,
        "from": lambda form: time_bounds(form.from_ or None, None),
        "to": lambda form: time_bounds(None, form.to or None),
        "status": lambda form: statuses(form.status or None),
        "mime": lambda form: media_types(form.mime or None),
        "language": lambda form: languages(form.language or None),
        "order": _order,
        "limit": _limit,
    }
    found: dict[str, Any] = {}
    checked = form
    for name, check in checks.items():
        try:
            found[name] = check(form)
        except QueryError as error:
            checked = checked.with_error(name, str(error))
    if not (checked.error("from") or checked.error("to")):
        try:
            time_bounds(form.from_ or None, form.to or None)
        except QueryError:
            checked = checked.with_error("to", f"{form.to} is before {form.from_}")
    if checked.errors:
        return checked
    return Search(
        url=form.url,
        crawls=form.crawls or ("all",),
        match=found["matchType"],
        from_=form.from_ or None,
        to=form.to or None,
        filters=Filters(found["status"], found["mime"], found["language"]),
        limit=found["limit"],
        order=found["order"],
        page=int(form.page or 1),
    )


def _match(form: Form) -> Match | None:
    try:
        return Match(form.match) if form.match else None
    except ValueError:
        raise QueryError(f"invalid match {form.match[:100]!r}; use exact, prefix, host or domain") from None


def _check_url(form: Form) -> None:
    if not form.url:
        raise QueryError("enter a URL or a host, such as example.com/page, example.com/* or *.example.com")
    known = form.match in {each.value for each in Match}
    parse_pattern(form.url, Match(form.match) if known else None)


def _order(form: Form) -> str:
    if form.order not in {"", "key", "newest"}:
        raise QueryError(f"invalid order {form.order[:100]!r}; use key or newest")
    return form.order


def _limit(form: Form) -> int:
    if form.page and form.page not in map(str, range(1, MAX_PAGE + 1)):
        message = f"invalid page {form.page[:20]!r}; use 1 to {MAX_PAGE}, or the CDX API for more captures"
        raise QueryError(message)
    if not form.limit:
        return DEFAULT_LIMIT
    if not (form.limit.isascii() and form.limit.isdecimal() and 1 <= int(form.limit[:9]) <= MAX_LIMIT):
        raise QueryError(f"invalid limit {form.limit[:20]!r}; use 1 to {MAX_LIMIT:,}, or the CDX API for more")
    return int(form.limit)


def _cdx_filter(field: str, values: tuple[str, ...], wildcard: str, expression: str) -> str:
    """Return a filter of the CDX API; a regular expression for several values or wildcards."""
    found = [re.escape(value).replace(wildcard, expression) for value in values]
    if found == [re.escape(values[0])]:
        return f"={field}:{values[0]}"
    return f"~{field}:{found[0]}" if len(found) == 1 else f"~{field}:({'|'.join(found)})$"


def _digits(milliseconds: int) -> str:
    return format_timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
