"""What a search finds, and how: asked of a catalogue in a thread of its own."""

import csv
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from io import StringIO
from time import perf_counter
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.commoncrawl.columns import PATH_COLUMNS
from catalogue.commoncrawl.crawls import newest_first
from catalogue.key_map.key_map import KeySpace
from catalogue.plan.plan import ReadPlan
from catalogue.reports import crawl_rows
from catalogue.selection import select_stored
from catalogue.server.search_form import Asked

MOST_SECONDS = 300.0
"""That a search may take at the rate of the source, at worst."""

_COLUMNS = (
    "url_surtkey",
    "fetch_time",
    "url",
    "fetch_status",
    "content_mime_detected",
    "content_mime_type",
    "content_languages",
    "warc_record_length",
)
LOCATION = ("warc_filename", "warc_record_offset")
"""Further columns for ``csv_of``."""
_IN_PATHS = "%/:?[]@!$&'()*+,;=~"
"""What stands in the path of a record's address as it stands in the URL; a # would be cut off on the way."""

_LINKED = re.compile(r"https?://([^/\\@#\s]*@)?[^/\\@#:\s]", re.IGNORECASE)
"""How URLs begin that have a host; indexes hold others, too."""
_DOTS = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Row:
    """A capture on the page."""

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
        """Whether there is a path that leads to its record: browsers would change one with ``..`` in it."""
        path = self.url.partition("?")[0]
        return self.time is not None and bool(_LINKED.match(path)) and not _DOTS.search(path)

    def address(self, form: str) -> str:
        """The path where its record is had in some form: ``id_``, ``text_`` or ``meta_``."""
        return f"/{self.crawl}/{format_timestamp(self.time)}{form}/{quote(self.url, safe=_IN_PATHS)}"


@dataclass(frozen=True, slots=True)
class Found:
    """An answer, and what it took."""

    crawls: tuple[str, ...]
    """That were asked, newest first."""
    rows: tuple[Row, ...] | None
    """None if reading them would have taken too long."""
    more: bool
    """Whether there are more than these."""
    first_plan: ReadPlan
    """Before page indexes were fetched."""
    plan: ReadPlan
    seconds: float
    files: int
    """Of these crawls, and how many bytes they have:"""
    bytes: int
    space: KeySpace
    """Of the newest crawl of which something is read, or else of the newest."""
    others: tuple[str, ...]
    """The other crawls of which something is read."""


def search(catalogue: Catalogue, asked: Asked, more: Iterable[str] = ()) -> Found:
    """Answer a question, with ``more`` columns.

    Raises:
        QueryError: if a crawl is none, or is not harvested.
        SourceError: if something could not be read.
    """
    started = perf_counter()
    rows = [row for row in crawl_rows(catalogue.session) if row["files_harvested"]]
    held = {row["crawl"]: row for row in rows}
    crawls = select_stored(catalogue.session, list(held), asked.crawls)
    captures = catalogue.captures(
        asked.pattern,
        crawls=asked.crawls,
        columns=(*_COLUMNS, *more),
        status=asked.filters.status,
        mime=asked.filters.mime,
        lang=asked.filters.lang,
        from_=asked.from_,
        to=asked.to,
        limit=asked.start + asked.limit + 1,
        match=asked.match,
    )
    first = captures.plan
    table = None
    if first.seconds <= MOST_SECONDS and captures.fetch_indexes().seconds <= MOST_SECONDS:
        table = pa.Table.from_batches(captures.batches(warn=False), captures.schema)
    plan = captures.plan
    touched = newest_first(file.crawl for path in plan.paths if (file := catalogue.session.dataset.file(path)))
    return Found(
        tuple(crawls),
        None if table is None else _rows(table, asked),
        table is not None and table.num_rows > asked.start + asked.limit,
        first,
        plan,
        perf_counter() - started,
        sum(held[crawl]["files_harvested"] for crawl in crawls),
        sum(held[crawl]["file_size"] for crawl in crawls),
        captures.space(),
        tuple(touched[1:]),
    )


def _rows(table: pa.Table, asked: Asked) -> tuple[Row, ...]:
    """Rows of the page, in the requested order; without the row that shows whether there are more."""
    found: list[dict[str, Any]] = table.slice(asked.start, asked.limit).to_pylist()
    found.sort(key=lambda row: (row["url_surtkey"], format_timestamp(row["fetch_time"]), row["crawl"]))
    if asked.order == "newest":
        found.sort(key=lambda row: (format_timestamp(row["fetch_time"]), row["crawl"]), reverse=True)
    elif not asked.order:
        parts = list(dict.fromkeys(zip(*(table.column(name).to_pylist() for name in PATH_COLUMNS), strict=True)))
        found.sort(key=lambda row: parts.index((row["crawl"], row["subset"])))
    return tuple(
        Row(
            row["crawl"],
            row["subset"],
            row["fetch_time"],
            row["url"] or "",
            row["fetch_status"],
            row["content_mime_detected"] or row["content_mime_type"],
            row["content_languages"],
            row["warc_record_length"],
            row.get("warc_filename"),
            row.get("warc_record_offset"),
        )
        for row in found
    )


def csv_of(rows: Iterable[Row]) -> str:
    """Return captures as CSV."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(field.name for field in fields(Row))
    for row in rows:
        writer.writerow(f"{each:%Y-%m-%dT%H:%M:%SZ}" if isinstance(each, datetime) else each for each in astuple(row))
    return text.getvalue()
