"""Requests to the CDX API, answered by a catalogue: part by part, each of them in its order and whole."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from catalogue.captures import Captures
from catalogue.catalogue import Catalogue
from catalogue.cdx.cdx_request import CdxRequest
from catalogue.cdx.paging import Block, cut, marks, pages_of
from catalogue.cdx.rows import arranged, candidates_of, chosen_of
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.errors import TooExpensive
from catalogue.query.query import CDX_COLUMNS, Query
from catalogue.query.where import parse_where
from catalogue.search import run_query
from catalogue.surt import KeyInterval, Match

_MOST_INDEXED = 300
"""Row groups whose pages are looked at to cut an answer; where more might match, whole ones must do."""
_PART = 5
"""Blocks of a part, at most, unless a single one has more: as many as a page usually has."""
_MOST_ROWS, _MOST_BYTES = 500_000, 1 << 29
"""Of a part, which is put in order in memory."""
_AT_ONCE = 8192
"""Rows that are converted to lines together; each takes some kilobytes until it is written."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of an answer, of which nothing was read yet."""

    number: int
    pages: int
    """How many there are; 0 if there is nothing at all."""
    blocks: int
    """Of all pages."""
    parts: tuple[tuple[KeyInterval, ...], ...]
    """What is read, and put in order, one after the other; empty if there is no such page."""
    sure: bool
    """Whether there are captures on every page, before filters."""
    missing: tuple[str, ...]
    """What of the crawl is not held, a sentence each."""


def page_of(catalogue: Catalogue, crawl: str, request: CdxRequest) -> Page:
    """The page that a request is about.

    Raises:
        NotHarvested: if nothing of the crawl is held.
        SourceError: if page indexes cannot be had.
    """
    return _page(catalogue, crawl, request, _everything(catalogue, crawl, request))


def begun(catalogue: Catalogue, crawl: str, request: CdxRequest) -> tuple[Page, pa.RecordBatch]:
    """The page that a request is about, and the captures of its first part, if it has any.

    Raises:
        NotHarvested: if nothing of the crawl is held.
        TooExpensive: if there are too many.
        SourceError: if something cannot be read.
    """
    everything = _everything(catalogue, crawl, request)
    page = _page(catalogue, crawl, request, everything)
    if not page.parts:
        return page, arranged([], request)
    if page.parts[0] == everything.question.query.intervals and not (request.where or request.first or request.last):
        return page, _arranged(everything, request)  # which is planned already
    return page, part_of(catalogue, crawl, request, page.parts[0])


def _everything(catalogue: Catalogue, crawl: str, request: CdxRequest) -> Captures:
    unfiltered = replace(request, filters=(), first="", last="")
    return _captures(catalogue, crawl, unfiltered, request.pattern.intervals)


def _page(catalogue: Catalogue, crawl: str, request: CdxRequest, everything: Captures) -> Page:
    scope = everything.question.scope
    blocks: Sequence[Block] = ()
    if scope.candidates and (request.counts_pages or _then(catalogue, crawl, request)):
        blocks = [Block(request.pattern.intervals, 1)]
        if request.pattern.match is not Match.EXACT:
            groups = sum(len(candidate.row_groups) for candidate in scope.candidates)
            bounds = everything.question.key_bounds(pages=groups <= _MOST_INDEXED)
            blocks = cut(request.pattern.intervals, marks(bounds))
    pages = pages_of(blocks, request.page_size)
    there = 0 <= request.page < len(pages)
    parts = [block.intervals for block in pages[request.page]] if there else []
    if there and not request.closest:  # by which all of a page is put in order
        parts = [_joined(part) for part in pages_of(pages[request.page], _PART)]
    elif there:
        parts = [_joined(pages[request.page])]
    return Page(
        request.page,
        len(pages),
        sum(block.size for block in blocks),
        tuple(reversed(parts) if request.reverse else parts),
        len(blocks) > 1,
        scope.missing,
    )


def _then(catalogue: Catalogue, crawl: str, request: CdxRequest) -> bool:
    """Whether anything was fetched at the times that are asked for, as far as footers tell."""
    if not (request.first or request.last):
        return True
    found = _captures(catalogue, crawl, replace(request, filters=()), request.pattern.intervals)
    return bool(found.question.scope.candidates)


def has_captures(catalogue: Catalogue, crawl: str, request: CdxRequest) -> bool:
    """Whether there is a single capture, whatever the filters say.

    Raises:
        SourceError: if something cannot be read.
    """
    query = Query(request.pattern.intervals, (request.url,), ("url_surtkey",), limit=1)
    return any(batch.num_rows for batch in run_query(catalogue.session, query, crawl, SUBSETS).batches(warn=False))


def part_of(
    catalogue: Catalogue, crawl: str, request: CdxRequest, intervals: tuple[KeyInterval, ...]
) -> pa.RecordBatch:
    """The captures of a part of a page: CDX fields, in the order that is asked for.

    Raises:
        TooExpensive: if there are too many.
        SourceError: if something cannot be read.
    """
    return _arranged(_captures(catalogue, crawl, request, intervals), request)


def _arranged(captures: Captures, request: CdxRequest) -> pa.RecordBatch:
    """Sort captures; with a limit, keep only those that may be among the first."""
    kept: list[pa.RecordBatch] = []
    last: pa.RecordBatch | None = None
    rows = size = 0

    def candidates() -> Iterator[pa.RecordBatch]:
        for batch in captures.batches(warn=False):
            for start in range(0, batch.num_rows, _AT_ONCE):
                piece = batch.slice(start, _AT_ONCE)
                yield candidates_of(piece, last, request) if last else piece

    for batch in chosen_of(candidates(), request, time.thread_time):
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if request.limit and rows > request.limit + _AT_ONCE:
            kept = [arranged(kept, request)]
            last = kept[0].slice(request.limit - 1)
            rows, size = kept[0].num_rows, kept[0].nbytes
        if rows > _MOST_ROWS or size > _MOST_BYTES:
            message = (
                f"{request.url} has more than {_MOST_ROWS:,} captures between places where its index can be cut into "
                "pages; set a smaller limit=, ask for less of it, or use: catalogue query"
            )
            raise TooExpensive(message)
    return arranged(kept, request)


def _captures(catalogue: Catalogue, crawl: str, request: CdxRequest, intervals: tuple[KeyInterval, ...]) -> Captures:
    first, last = request.times
    where = parse_where(request.where, pa.schema([]), catalogue.session.dataset) if request.where else None
    query = Query(intervals, (request.url,), CDX_COLUMNS, where=where, from_ms=first, to_ms=last)
    return run_query(catalogue.session, query, crawl, SUBSETS)


def _joined(blocks: Sequence[Block]) -> tuple[KeyInterval, ...]:
    found: list[KeyInterval] = []
    for interval in (interval for block in blocks for interval in block.intervals):
        if found and found[-1].end == interval.start:
            found[-1] = KeyInterval(found[-1].start, interval.end)
        else:
            found.append(interval)
    return tuple(found)
