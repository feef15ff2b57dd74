"""Searches of the web pages, and their results."""

import csv
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from datetime import datetime
from io import StringIO
from time import perf_counter
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from catalogue.captures import find_captures
from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.commoncrawl.columns import PATH_COLUMNS
from catalogue.commoncrawl.crawls import newest_first
from catalogue.key_map.key_map import KeySpace
from catalogue.plan.plan import ReadPlan
from catalogue.query.query import Query
from catalogue.stored import crawl_rows, select_stored

MAX_SECONDS = 300.0
"""Estimate of the plan at the rate limit of the source."""
LOCATION = ("warc_filename", "warc_record_offset")
"""Columns of CSV that the page does not show."""
_COLUMNS = (
    *("url_surtkey", "fetch_time", "url", "fetch_status", "content_mime_detected", "content_mime_type"),
    *("content_languages", "warc_record_length"),
)
_ROW_COLUMNS = {
    **{name: name for name in ("crawl", "subset", "url", "mime")},
    "time": "fetch_time",
    "status": "fetch_status",
    "languages": "content_languages",
    "length": "warc_record_length",
    "filename": "warc_filename",
    "offset": "warc_record_offset",
}
_UNQUOTED = "%/:?[]@!$&'()*+,;=~"
"""Characters of a URL that are not quoted in the path of its record; browsers would cut it off at a #."""
_HAS_HOST = re.compile(r"https?://([^/\\@#\s]*@)?[^/\\@#:\s]", re.IGNORECASE)
_DOT_SEGMENT = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Search:
    """A page of captures."""

    query: Query
    order: str = ""
    """``key``, ``newest`` or, for the order of the index, empty."""
    page: int = 1

    @property
    def limit(self) -> int:
        return self.query.limit or 0

    @property
    def start(self) -> int:
        return (self.page - 1) * self.limit

    @property
    def url(self) -> str:
        return self.query.patterns[0]


@dataclass(frozen=True, slots=True)
class Row:
    """A capture on a page."""

    crawl: str
    subset: str
    time: datetime | None
    url: str
    status: int | None
    mime: str | None
    languages: str | None
    length: int | None
    filename: str | None
    offset: int | None

    @property
    def has_address(self) -> bool:
        """Whether a path leads to its record; browsers would change one with ``..``."""
        path = self.url.partition("?")[0]
        return self.time is not None and bool(_HAS_HOST.match(path)) and not _DOT_SEGMENT.search(path)

    def address(self, form: str) -> str:
        """Return the path of its record as ``id_``, ``text_``, ``meta_`` or ``warc_``."""
        return f"/{self.crawl}/{format_timestamp(self.time)}{form}/{quote(self.url, safe=_UNQUOTED)}"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Captures of a page, and their cost."""

    crawls: tuple[str, ...]
    """Newest first."""
    rows: tuple[Row, ...] | None
    """None if reading them would take too long."""
    more: bool
    first_plan: ReadPlan
    """Before page indexes were fetched."""
    plan: ReadPlan
    seconds: float
    files: int
    bytes: int
    """Bytes of these files."""
    space: KeySpace
    """Key map of the newest crawl that is read, or of the newest."""
    others: tuple[str, ...]
    """Other crawls that are read."""


def run_search(catalogue: Catalogue, search: Search, more: Iterable[str] = ()) -> SearchResult:
    """Run a search, with ``more`` columns."""
    started = perf_counter()
    stored = {row["crawl"]: row for row in crawl_rows(catalogue.session) if row["files_harvested"]}
    crawls = select_stored(catalogue.session, list(stored), search.query.crawls)
    query = replace(search.query, columns=(*_COLUMNS, *more), limit=search.start + search.limit + 1)
    captures = find_captures(catalogue.session, query)
    first = captures.plan
    table = None
    if first.seconds <= MAX_SECONDS and captures.fetch_indexes().seconds <= MAX_SECONDS:
        table = pa.Table.from_batches(captures.batches(warn=False), captures.schema)
    plan = captures.plan
    read = newest_first(file.crawl for path in plan.paths if (file := catalogue.session.dataset.file(path)))
    return SearchResult(
        tuple(crawls),
        None if table is None else _rows(table, search),
        table is not None and table.num_rows > search.start + search.limit,
        first,
        plan,
        perf_counter() - started,
        sum(stored[crawl]["files_harvested"] for crawl in crawls),
        sum(stored[crawl]["file_size"] for crawl in crawls),
        captures.space(),
        tuple(read[1:]),
    )


def to_csv(rows: Iterable[Row]) -> str:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(field.name for field in fields(Row))
    for row in rows:
        writer.writerow(f"{each:%Y-%m-%dT%H:%M:%SZ}" if isinstance(each, datetime) else each for each in astuple(row))
    return text.getvalue()


def _rows(table: pa.Table, search: Search) -> tuple[Row, ...]:
    found: list[dict[str, Any]] = table.slice(search.start, search.limit).to_pylist()
    found.sort(key=lambda row: (row["url_surtkey"], format_timestamp(row["fetch_time"]), row["crawl"]))
    if search.order == "newest":
        found.sort(key=lambda row: (format_timestamp(row["fetch_time"]), row["crawl"]), reverse=True)
    elif not search.order:
        parts = list(dict.fromkeys(zip(*(table.column(name).to_pylist() for name in PATH_COLUMNS), strict=True)))
        found.sort(key=lambda row: parts.index((row["crawl"], row["subset"])))
    return tuple(map(_row, found))


def _row(row: dict[str, Any]) -> Row:
    row["url"] = row["url"] or ""
    row["mime"] = row["content_mime_detected"] or row["content_mime_type"]
    values: dict[str, Any] = {name: row.get(column) for name, column in _ROW_COLUMNS.items()}
    return Row(**values)
