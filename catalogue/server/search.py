"""Searches of the web pages."""

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from time import perf_counter
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from starlette.datastructures import QueryParams

from catalogue.captures import Captures
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.commoncrawl.crawls import AUTO, STORED, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError, TooExpensive
from catalogue.find_captures import find_captures
from catalogue.formatting import to_json
from catalogue.parquet.arrow_arrays import rows_of
from catalogue.plan.plan import ReadPlan
from catalogue.query.arguments import one_of
from catalogue.query.filters import time_bounds
from catalogue.query.parameters import Interface, parameters_of, with_fields
from catalogue.query.query import Query
from catalogue.reports import crawl_rows
from catalogue.server.responses import check_memory
from catalogue.session import Session
from catalogue.surt.pattern import Match, parse_key_patterns

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
MAX_PAGE = 100
MAX_SECONDS = 300.0
"""Estimate of the plan at the rate limit of the source."""
PARAMETERS = parameters_of(Interface.FORM, "patterns", "crawls", "limit")
"""Parameters with a field that is made of their declaration."""
_FIELDS = ("url", *(each.field for each in PARAMETERS), "order", "limit", "page")
"""Parameters that are given once."""
KNOWN = (_FIELDS[0], "crawl", "crawls", *_FIELDS[1:])
_SEPARATOR = re.compile(r"[\s,]+")
_ON, _OFF = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}
_COLUMNS = (
    *("url_surtkey", "fetch_time", "url", "fetch_status", "content_mime_detected", "content_mime_type"),
    *("content_languages", "warc_record_length"),
)
_ORDERS = {
    "key": [("url_surtkey", "ascending"), ("fetch_time", "ascending"), ("crawl", "ascending")],
    "newest": [("fetch_time", "descending"), ("crawl", "descending"), ("url_surtkey", "ascending")],
}
_UNQUOTED = "%/:?[]@!$&'()*+,;=~"
"""Characters of a URL that are not quoted in the path of its record; browsers would cut it off at a #."""
_HAS_HOST = re.compile(r"https?://([^/\\@#\s]*@)?[^/\\@#:\s]", re.IGNORECASE)
_DOT_SEGMENT = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Form:
    """Fields as sent; ``form["url"]`` is empty if the field is missing."""

    crawls: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: QueryParams) -> "Form":
        """Read parameters; ``crawls`` replaces ``crawl``, the selected one."""
        crawls = [given["crawls"]] if given.get("crawls", "").strip() else given.getlist("crawl")
        words = (word for text in crawls for word in _SEPARATOR.split(text))
        fields = {name: given.get(name, "").strip() for name in _FIELDS}
        fields["index"] = "" if fields["index"] == AUTO else fields["index"]
        fields |= {each.field: "" for each in PARAMETERS if each.kind is bool and fields[each.field].lower() in _OFF}
        return cls(tuple(dict.fromkeys(filter(None, words))), fields)

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def page(self) -> int:
        return int(self["page"] or 1)

    @property
    def limit(self) -> int:
        return int(self["limit"] or DEFAULT_LIMIT)

    @property
    def has_filters(self) -> bool:
        """Whether one of the folded fields is used or has an error."""
        return any(self[name] for name in _FIELDS[1:-2]) or "limit" in self.errors

    def address(self, path: str = "/search", *, crawls: tuple[str, ...] | None = None, **other: str) -> str:
        """Return path and query string of the search with other values, by default of its first page."""
        fields = {**self.fields, "page": "", **other}
        pairs = [("url", fields.pop("url", ""))]
        pairs += [("crawl", crawl) for crawl in (self.crawls if crawls is None else crawls)]
        return f"{path}?{urlencode([(name, value) for name, value in [*pairs, *fields.items()] if value])}"


def parse_form(form: Form) -> Query | Form:
    given: dict[str, Any] = {
        each.name: (text.lower() in _ON or text) if each.kind is bool else text
        for each in PARAMETERS
        if (text := form[each.field])
    }
    checks: dict[str, Callable[[], object]] = {
        each.field: partial(each.parse, given[each.name]) for each in PARAMETERS if each.name in given
    }
    checks |= {
        "url": lambda: _check_url(form["url"], form["match"], exact_url=bool(form["exact_url"])),
        "subset": lambda: select_subsets([form["subset"]] if form["subset"] else ()),
        "order": lambda: one_of("order", _ORDERS)(form["order"] or "key"),
        "limit": lambda: _check_numbers(form["limit"], form["page"]),
    }
    errors: dict[str, str] = {}
    for name, check in checks.items():
        try:
            check()
        except QueryError as error:
            errors[name] = with_fields(str(error))
    if not errors.keys() & {"from", "to"}:
        try:
            time_bounds(form["from"] or None, form["to"] or None)
        except QueryError:
            errors["to"] = f"{form['to']} is before {form['from']}"
    if errors:
        return replace(form, errors=errors)
    return Query.of(form["url"], crawls=form.crawls or STORED, **given)


def _check_url(text: str, match: str, *, exact_url: bool) -> None:
    if not text:
        raise QueryError("enter a URL or a host, such as example.com/page, example.com/* or *.example.com")
    kind = Match(match) if match in {each.value for each in Match} else None
    parse_key_patterns([text], COMMON_CRAWL.keys, kind, exact_url=exact_url)


def _check_numbers(limit: str, page: str) -> None:
    if page and page not in map(str, range(1, MAX_PAGE + 1)):
        raise QueryError(f"invalid page {page[:20]!r}; use 1 to {MAX_PAGE}, or the CDX API for more captures")
    if limit and not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= MAX_LIMIT):
        raise QueryError(f"invalid limit {limit[:20]!r}; use 1 to {MAX_LIMIT:,}, or the CDX API for more")


def run_search(session: Session, form: Form, query: Query, *, as_csv: bool = False) -> dict[str, Any]:
    """Find the requested page of captures, with the default columns for CSV, and what the page shows of their cost."""
    started, start = perf_counter(), (form.page - 1) * form.limit
    end = start + form.limit
    rows = {row["crawl"]: row for row in crawl_rows(session)}
    captures = find_captures(session, replace(query, columns=None if as_csv else _COLUMNS, limit=end + 1))
    captures = captures.agreed(partial(_check_cost, captures))
    crawls = captures.question.crawls
    page_indexes = len(captures.plan.indexes)
    table = None
    with suppress(TooExpensive):
        table = pa.Table.from_batches(captures.batches(warn=False), captures.schema)
    shown = None if table is None else table.slice(start, form.limit)
    if shown and (order := _ORDERS.get(form["order"])):
        shown = shown.sort_by(order)
    plan = captures.plan
    read = [each.crawl for each in plan.crawls if each.files or each.awaited]
    of_files = [rows[crawl] for crawl in crawls if crawl in rows]
    return {
        "start": start,
        "crawls": crawls,
        "columns": captures.columns,
        "rows": None if shown is None else rows_of(shown),  # None: too expensive
        "more": table is not None and table.num_rows > end,
        "page_indexes": page_indexes,
        "plan": plan,
        "seconds": perf_counter() - started,
        "files": sum(row["files_harvested"] for row in of_files),
        "bytes": sum(row["file_size"] or 0 for row in of_files),
        # Of the newest crawl of which files are read.
        "space": captures.space() if read or (not plan.blocks and captures.question.columnar()) else None,
        "others": read[1:],
    }


def _check_cost(captures: Captures, plan: ReadPlan) -> None:
    check_memory(captures, plan)
    if plan.seconds > MAX_SECONDS:
        raise TooExpensive(plan.price)


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """Write rows as ``catalogue query --format csv`` does."""
    text = StringIO()
    writer = csv.DictWriter(text, [*columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(to_json, rows))
    return text.getvalue()


def record_path(row: Mapping[str, Any], form: str) -> str:
    """Return the path of a record as ``id_``, ``text_``, ``meta_`` or ``warc_``; empty if browsers would change it."""
    path = (row["url"] or "").partition("?")[0]
    if row["fetch_time"] is None or not _HAS_HOST.match(path) or _DOT_SEGMENT.search(path):
        return ""
    return f"/{row['crawl']}/{format_timestamp(row['fetch_time'])}{form}/{quote(row['url'], safe=_UNQUOTED)}"
