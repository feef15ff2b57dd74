"""The form of a search: what was typed into it, what is wrong with that, and the question that it means."""

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
from catalogue.surt import Match, parse_pattern

USUAL_LIMIT, LARGEST_LIMIT = 100, 1000
"""Captures on a page."""
LAST_PAGE = 100

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
"""Parameters that are given once, and what holds them here."""
_BETWEEN = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class Form:
    """What stands in the fields, as it was typed."""

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
    """By name of the parameter, what is wrong with it."""

    @classmethod
    def of(cls, given: QueryParams) -> "Form":
        """The form as it comes with a request; ``crawls`` that were typed replace the ``crawl`` of the list."""
        crawls = [given["crawls"]] if given.get("crawls", "").strip() else given.getlist("crawl")
        words = (word for text in crawls for word in _BETWEEN.split(text))
        typed: dict[str, Any] = {field: given.get(name, "").strip() for name, field in _FIELDS.items()}
        return replace(cls(**typed), crawls=tuple(dict.fromkeys(filter(None, words))))

    def error(self, name: str) -> str:
        """What is wrong with a parameter, if anything."""
        return dict(self.errors).get(name, "")

    def refused(self, name: str, message: str) -> "Form":
        """The same with something wrong with a parameter."""
        return replace(self, errors=(*self.errors, (name, message)))

    @property
    def narrowed(self) -> bool:
        """Whether one of the fields is used that most searches leave alone, or is wrong."""
        return any(
            [self.match, self.from_, self.to, self.status, self.mime, self.language, self.order, self.error("limit")]
        )

    def address(self, path: str = "/search", **other: Any) -> str:  # noqa: ANN401 - of any field
        """The path and query of the same search, or one with other values; its first page unless one is given."""
        form = replace(self, **{"page": "", **other})
        pairs = [("url", form.url), *(("crawl", crawl) for crawl in form.crawls)]
        pairs += [(name, getattr(form, field)) for name, field in _FIELDS.items() if name != "url"]
        return f"{path}?{urlencode([(name, value) for name, value in pairs if value])}"

    def cdx_address(self, crawl: str) -> str:
        """The path and query of the same question to the CDX API of a crawl, for JSON lines."""
        url, match = self.url, self.match
        if match == Match.PREFIX.value and url.endswith("*"):  # there it would be the character
            url, match = (url, "") if url == "*" else (url[:-1], match)
        pairs = [("url", url), ("output", "json"), ("matchType", match)]
        first, behind = time_bounds(self.from_ or None, self.to or None)
        pairs += [("from", _digits(first))] if first is not None else []
        pairs += [("to", _digits(behind - 1))] if behind is not None else []
        filters = Filters.of(self.status or None, self.mime or None, self.language or None)
        pairs += [("filter", _cdx_filter("status", filters.status, "x", "."))] if filters.status else []
        pairs += [("filter", _cdx_filter("mime-detected", filters.mime, r"\*", ".*"))] if filters.mime else []
        if filters.lang:
            pairs.append(("filter", rf"~languages:(.*,)?({'|'.join(filters.lang)})(,.*)?$"))
        pairs.append(("limit", self.limit or str(USUAL_LIMIT)))
        return f"/{crawl}-index?{urlencode([(name, value) for name, value in pairs if value])}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a form means."""

    pattern: str
    crawls: tuple[str, ...]
    match: Match | None
    from_: str | None
    to: str | None
    filters: Filters
    order: str
    """``key``, ``newest`` or, for the order of the answer, empty."""
    limit: int
    page: int = 1

    @property
    def start(self) -> int:
        """Captures on the pages before this one."""
        return (self.page - 1) * self.limit


def read(form: Form) -> Asked | Form:
    """The question that a form means; if there is none, the form with what is wrong at each field."""
    checks: dict[str, Callable[[Form], object]] = {
        "matchType": _match,
        "url": _pattern,
        "from": lambda form: time_bounds(form.from_ or None, None),
        "to": lambda form: time_bounds(None, form.to or None),
        "status": lambda form: statuses(form.status or None),
        "mime": lambda form: media_types(form.mime or None),
        "language": lambda form: languages(form.language or None),
        "order": _order,
        "limit": _limit,
    }
    found: dict[str, Any] = {}
    wrong = form
    for name, check in checks.items():
        try:
            found[name] = check(form)
        except QueryError as error:
            wrong = wrong.refused(name, str(error))
    if not (wrong.error("from") or wrong.error("to")) and _backwards(form):
        wrong = wrong.refused("to", f"{form.to} lies before {form.from_}, where the question begins")
    if wrong.errors:
        return wrong
    return Asked(
        form.url,
        form.crawls or ("all",),
        found["matchType"],
        form.from_ or None,
        form.to or None,
        Filters(found["status"], found["mime"], found["language"]),
        found["order"],
        found["limit"],
        int(form.page or 1),
    )


def _backwards(form: Form) -> bool:
    try:
        time_bounds(form.from_ or None, form.to or None)
    except QueryError:
        return True
    return False


def _match(form: Form) -> Match | None:
    try:
        return Match(form.match) if form.match else None
    except ValueError:
        message = f"{form.match[:100]!r} is none of exact, prefix, host and domain"
        raise QueryError(message) from None


def _pattern(form: Form) -> None:
    if not form.url:
        message = "type a URL or a host, such as example.com/page, example.com/* or *.example.com"
        raise QueryError(message)
    known = form.match in {each.value for each in Match}
    parse_pattern(form.url, Match(form.match) if known else None)


def _order(form: Form) -> str:
    if form.order not in {"", "key", "newest"}:
        message = f"{form.order[:100]!r} is no order; choose key or newest"
        raise QueryError(message)
    return form.order


def _limit(form: Form) -> int:
    if form.page and form.page not in map(str, range(1, LAST_PAGE + 1)):
        message = f"{form.page[:20]!r} is not a page from 1 to {LAST_PAGE}; for more captures, ask the CDX API"
        raise QueryError(message)
    if not form.limit:
        return USUAL_LIMIT
    if not (form.limit.isascii() and form.limit.isdecimal() and 1 <= int(form.limit[:9]) <= LARGEST_LIMIT):
        message = f"{form.limit[:20]!r} is no number from 1 to {LARGEST_LIMIT:,}; for more, ask the CDX API"
        raise QueryError(message)
    return int(form.limit)


def _cdx_filter(field: str, values: tuple[str, ...], wildcard: str, expression: str) -> str:
    """A filter of the CDX API for one value, or a regular expression for several or with wildcards."""
    found = [re.escape(value).replace(wildcard, expression) for value in values]
    if found == [re.escape(values[0])]:
        return f"={field}:{values[0]}"
    return f"~{field}:{found[0]}" if len(found) == 1 else f"~{field}:({'|'.join(found)})$"


def _digits(milliseconds: int) -> str:
    return format_timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
