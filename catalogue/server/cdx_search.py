"""Answers to CDX requests: find pages, read them in parts, filter and sort."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from warcio.timeutils import timestamp_to_datetime

from catalogue.captures import Captures
from catalogue.catalogue import Catalogue
from catalogue.cdx.block_file import StoredList
from catalogue.cdx.lines import KEY, RAW, TIME, cdx_table, places_of
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.errors import TooExpensive
from catalogue.find_captures import run_cheaper
from catalogue.parquet.arrow_arrays import positions
from catalogue.query.resolved_query import CDX_COLUMNS, ResolvedQuery
from catalogue.query.where import parse_where
from catalogue.selection import select_stored
from catalogue.server.cdx_paging import BLOCK_ROWS, Block, Mark, cut, marks, pages_of
from catalogue.server.cdx_request import CdxRequest, Operator
from catalogue.surt import KeyInterval, Match, merge

_MAX_INDEXED = 300
"""Above this number of row groups, pages are cut between row groups, without page indexes."""
_PART_BLOCKS = 5
"""Blocks that are read and sorted together; the default size of a page."""
_MAX_ROWS, _MAX_BYTES = 500_000, 1 << 29
"""Of a part, which is sorted in memory."""
_MAX_LISTED = 50_000
"""Blocks of a result that is cut by the list of blocks."""
_BATCH_ROWS = 8192
"""Rows converted to lines together; each takes some kilobytes."""
_EXPRESSION_SECONDS = 10.0
"""For the regular expressions of a request. RE2 needs 20 ms a row for some of 2,000 characters: hours for a part."""
_MAX_SLICE, _QUICK = 256, 0.05
"""Rows filtered between two readings of the clock; if these take fewer seconds, the next slice is twice as large."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a result, not read yet."""

    pages: int = 0
    """Number of pages; 0 without captures."""
    blocks: int = 0
    """Blocks of all pages."""
    parts: tuple[tuple[KeyInterval, ...], ...] = ()
    """Read one after the other; empty if the page does not exist."""
    missing: tuple[str, ...] = ()
    """Messages about files that are not stored."""


def find_page(catalogue: Catalogue, crawl: str, request: CdxRequest) -> Page:
    """Find the requested page; it may fetch page indexes, and read a capture to count pages."""
    intervals = request.pattern.intervals
    found = _captures(catalogue, crawl, replace(request, filters=(), first="", last=""), intervals)
    columnar = found.question.columnar_only()
    blocks: Sequence[Block] = ()
    if columnar is None:
        blocks = _cut_by_list(catalogue, crawl, request)
    elif columnar.scope.candidates and (request.counts_pages or _has_candidates(catalogue, crawl, request)):
        blocks = [Block(intervals, 1)]
        if request.pattern.match is not Match.EXACT:
            few = columnar.candidate_row_groups <= _MAX_INDEXED
            blocks = cut(intervals, marks(columnar.key_bounds(pages=few)))
    if request.counts_pages and len(blocks) == 1 and not _has_captures(catalogue, crawl, request):
        blocks = ()
    pages = pages_of(blocks, request.page_size)
    page = pages[request.page] if 0 <= request.page < len(pages) else ()
    # To sort by distance from a time, all of a page is needed.
    parts = [page] if request.closest and page else pages_of(page, _PART_BLOCKS)
    read = [merge(interval for block in part for interval in block.intervals) for part in parts]
    return Page(
        len(pages),
        sum(block.size for block in blocks),
        tuple(reversed(read) if request.reverse else read),
        columnar.scope.missing if columnar else (),
    )


def _cut_by_list(catalogue: Catalogue, crawl: str, request: CdxRequest) -> Sequence[Block]:
    """Cut a result by the stored list of blocks, where no footers are stored; empty if there are no blocks."""
    intervals = request.pattern.intervals
    if request.pattern.match is Match.EXACT:
        return [Block(intervals, 1)]
    listed = catalogue.session.block_lists.get(crawl)
    if not isinstance(listed, StoredList) or sum(map(listed.count, intervals)) > _MAX_LISTED:
        raise TooExpensive(f"{request.url} has too many captures; use a narrower url=, or: catalogue query")
    found = []
    for interval in intervals:
        part = listed.find(interval)
        found += [Mark(part.key(place), BLOCK_ROWS) for place in part.blocks_for(interval)]
    return cut(intervals, found) if found else ()


def read_part(
    catalogue: Catalogue, crawl: str, request: CdxRequest, intervals: tuple[KeyInterval, ...]
) -> pa.RecordBatch:
    """Read a part of a page: CDX fields in the requested order.

    Raises:
        TooExpensive: if it has too many captures.
    """
    captures = _captures(catalogue, crawl, request, intervals)
    found: list[pa.RecordBatch] = []
    last: pa.RecordBatch | None = None
    rows = size = 0

    def candidates() -> Iterator[pa.RecordBatch]:
        for batch in captures.batches(warn=False):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                piece = batch.slice(start, _BATCH_ROWS)
                yield cdx_table(rows_before(piece, last, request) if last else piece)

    for batch in filter_tables(candidates(), request, time.thread_time):
        found.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if request.limit and rows > request.limit + _BATCH_ROWS:
            found = [sort_captures(found, request)]
            last = found[0].slice(request.limit - 1)
            rows, size = found[0].num_rows, found[0].nbytes
        if rows > _MAX_ROWS or size > _MAX_BYTES:
            message = (
                f"{request.url} has more than {_MAX_ROWS:,} captures that cannot be divided into pages; "
                "use a smaller limit=, a narrower url=, or: catalogue query"
            )
            raise TooExpensive(message)
    return sort_captures(found, request)


def filter_tables(
    tables: Iterable[pa.RecordBatch], request: CdxRequest, clock: Callable[[], float]
) -> Iterator[pa.RecordBatch]:
    """Filter tables of CDX fields; ``clock`` returns CPU seconds.

    Raises:
        TooExpensive: if regular expressions take more than ``_EXPRESSION_SECONDS``.
    """
    timed = any(each.operator is Operator.MATCHES for each in request.filters)
    left, size = _EXPRESSION_SECONDS, 1
    for table in tables:
        if not timed:
            yield filter_table(table, request)
            continue
        at = 0
        while at < table.num_rows:
            began = clock()
            selected = filter_table(table.slice(at, size), request)
            took = clock() - began
            left -= took
            if left < 0:
                message = f"the expressions in filter= take more than {_EXPRESSION_SECONDS:.0f} s; use simpler ones"
                raise TooExpensive(message)
            at += size
            size = min(2 * size, _MAX_SLICE) if took < _QUICK else max(1, size // 2)
            yield selected


def filter_table(table: pa.RecordBatch, request: CdxRequest) -> pa.RecordBatch:
    masks = [each.mask(table) for each in request.filters]
    masks += [pc.greater_equal(table.column(TIME), request.first)] if request.first else []
    masks += [pc.less_equal(table.column(TIME), request.last)] if request.last else []
    return table.filter(reduce(pc.and_, masks)) if masks else table


def rows_before(rows: pa.RecordBatch, last: pa.RecordBatch, request: CdxRequest) -> pa.RecordBatch:
    """Select index rows that are not after a capture, given as a row of CDX fields."""
    fields = places_of(rows)
    if request.closest:
        near, far = (_distances(times, request.closest) for times in (fields[TIME], last.column(TIME)))
        return rows.filter(pa.array(near <= far))
    places, bound = (pc.binary_join_element_wise(each[KEY], each[TIME], " ") for each in (fields, last))
    is_before = pc.greater_equal if request.reverse else pc.less_equal
    return rows.filter(is_before(places, bound[0]))


def sort_captures(tables: Iterable[pa.RecordBatch], request: CdxRequest) -> pa.RecordBatch:
    """Sort captures by their lines (so by key, then time), or by distance from a time, and apply the limit."""
    table = pa.Table.from_batches(tables, cdx_table(pa.RecordBatch.from_pydict({})).schema)
    order = pc.sort_indices(table.column(RAW)).to_numpy()
    if request.closest:
        order = order[np.argsort(_distances(table.column(TIME), request.closest)[order], kind="stable")]
    elif request.reverse:
        order = order[::-1]
    found = table.take(positions(order[: request.limit])).combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in found.columns], names=found.schema.names)


def _captures(catalogue: Catalogue, crawl: str, request: CdxRequest, intervals: tuple[KeyInterval, ...]) -> Captures:
    first, last = request.times
    where = parse_where(request.where, pa.schema([]), catalogue.session.dataset) if request.where else None
    query = ResolvedQuery(intervals, (request.url,), CDX_COLUMNS, where=where, from_ms=first, to_ms=last)
    return _run(catalogue, query, crawl)


def _run(catalogue: Catalogue, query: ResolvedQuery, crawl: str) -> Captures:
    """Run a query of a crawl of which footers or the list of blocks are stored.

    Raises:
        NotHarvested: if neither is.
    """
    session = catalogue.session
    stored = {*session.metadata().requested_crawls, *session.block_lists.stored}
    return run_cheaper(session, query, select_stored(session, stored, crawl, SUBSETS), SUBSETS)


def _has_candidates(catalogue: Catalogue, crawl: str, request: CdxRequest) -> bool:
    if not (request.first or request.last):
        return True
    found = _captures(catalogue, crawl, replace(request, filters=()), request.pattern.intervals)
    return found.question.candidate_row_groups > 0


def _has_captures(catalogue: Catalogue, crawl: str, request: CdxRequest) -> bool:
    query = ResolvedQuery(request.pattern.intervals, (request.url,), ("url_surtkey",), limit=1)
    return any(batch.num_rows for batch in _run(catalogue, query, crawl).batches(warn=False))


def _distances(stamps: pa.Array | pa.ChunkedArray, closest: str) -> np.ndarray:
    """Return seconds from a time; infinite for invalid timestamps."""
    moment = timestamp_to_datetime(closest, tz_aware=True).timestamp()  # pads and clamps as pywb does
    times = np.asarray(pc.strptime(stamps, format="%Y%m%d%H%M%S", unit="s", error_is_null=True).cast(pa.int64()))
    distances: np.ndarray = np.nan_to_num(np.abs(times.astype(float) - moment), nan=np.inf)
    return distances
