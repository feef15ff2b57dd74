"""Answers to CDX requests."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.captures import Captures
from catalogue.cdx.block_file import StoredList
from catalogue.cdx.blocks import Block
from catalogue.cdx.lines import lines_of, time_of
from catalogue.cdx.rows import written_lines
from catalogue.commoncrawl.capture import parse_timestamp
from catalogue.commoncrawl.crawls import CDX, SUBSETS
from catalogue.errors import UNUSABLE, NotFound, NotHarvested, StoreDamaged, TooExpensive
from catalogue.find_captures import run_query
from catalogue.parquet.arrow_arrays import moment, text
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.plan.question import Question
from catalogue.query.filters import time_span
from catalogue.query.key_intervals import Intervals, KeyIntervals
from catalogue.query.resolved_query import CDX_COLUMNS, ResolvedQuery
from catalogue.read.block_reader import blocks_of, fetch_blocks
from catalogue.read.streams import ReadEvents
from catalogue.selection import Selection, select_stored
from catalogue.server.cdx_paging import BLOCK_ROWS, Mark, ResultBlock, ResultPage, cut, marks, pages_of
from catalogue.server.cdx_request import CdxRequest, apply_filters
from catalogue.server.memory import Memory, size_of
from catalogue.session import Session
from catalogue.surt.interval import KeyInterval, merge
from catalogue.surt.pattern import Match

_MAX_BLOCKS = 8
"""Results of more blocks are read as rows, without keeping their blocks."""
_MAX_INDEXED = 300
"""Row groups; more are cut between row groups, without page indexes."""
_PART_BLOCKS = 5
"""Blocks that are read and sorted together; the default size of a page."""
_MAX_ROWS, _MAX_BYTES = 500_000, 1 << 29
"""Size of a part, which is sorted in memory."""
_BATCH_ROWS = 8192
"""Rows converted to lines together; each takes some kilobytes."""
_MAX_KEPT = 50_000
"""Lines of a part that are kept in memory."""


class CdxSearch:
    """Searches of a crawl; what they find is kept in memory. For one thread."""

    def __init__(self, session: Session, crawl: str, memory: Memory, *, only_stored: bool = False) -> None:
        """Open; ``only_stored`` refuses crawls of which nothing is stored, instead of searching their lists."""
        self.crawl = crawl
        self._session = session
        self._memory = memory
        self._only_stored = only_stored
        self.state = session.store.state()

    def find_page(self, request: CdxRequest) -> ResultPage:
        """Find the requested page; it may fetch page indexes, search the list of blocks, and read a capture."""
        page = self._memory.page(self.state, self.crawl, request)
        if page is None:
            page = self._find_page(request)
            if not page.missing:  # the CDX index may be readable next time
                self._memory.keep_page(self.state, self.crawl, request, page)
        return page.ordered(reverse=request.reverse)

    def read_part(self, request: CdxRequest, intervals: tuple[KeyInterval, ...]) -> list[str]:
        """Read a part of a page: the selected lines in the requested order.

        Raises:
            TooExpensive: if it has too many captures.
        """
        lines = self._memory.lines(self.state, self.crawl, intervals)
        if lines is None:
            lines = self._lines_in_memory(intervals)
            if lines is None:
                captures = self._captures(replace(request, filters=(), first="", last=""), intervals)
                lines = self._read_lines(captures)
                if lines is None:
                    captures = self._captures(request, intervals) if request.where else captures
                    plan = captures.plan
                    try:
                        return self._read_rows(request, intervals, captures)
                    except UNUSABLE:  # after rows of an index that is in another order than the other one
                        if not captures.question.failed(plan):
                            raise
                        return self._read_rows(request, intervals, captures)
            self._memory.keep_lines(self.state, self.crawl, intervals, lines)
        return select_lines(lines, request)

    def _read_rows(self, request: CdxRequest, intervals: tuple[KeyInterval, ...], captures: Captures) -> list[str]:
        """Read a part by the cheaper index, without captures that statistics rule out by a filter."""
        where = request.where
        every: list[str] = []

        def batches() -> Iterator[list[str]]:
            for batch in captures.batches(warn=False):
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    piece = batch.slice(start, _BATCH_ROWS)
                    lines = lines_of(rows_before(piece, last, request) if last else piece)
                    if not where and not last and len(every) <= _MAX_KEPT:
                        every.extend(lines)
                    yield lines

        found: list[str] = []
        last, size = "", 0
        for lines in filter_lines(batches(), request):
            found += lines
            size += size_of(lines)
            if request.limit and len(found) > request.limit + _BATCH_ROWS:
                found = order_lines(found, request)
                last, size = found[-1], size_of(found)
            if len(found) > _MAX_ROWS or size > _MAX_BYTES:
                raise TooExpensive(
                    f"{request.url} has more than {_MAX_ROWS:,} captures that cannot be divided into pages; "
                    "use a smaller limit=, a narrower url=, or: catalogue query"
                )
        if not where and not last and len(every) <= _MAX_KEPT:
            self._memory.keep_lines(self.state, self.crawl, intervals, sorted(every))
        return order_lines(found, request)

    def _lines_in_memory(self, intervals: Sequence[KeyInterval]) -> list[str] | None:
        listed = self._session.block_lists.get(self.crawl)
        if not isinstance(listed, StoredList):
            return None
        blocks: dict[int, Block] = {}
        for interval in intervals:
            try:
                part = listed.find(interval)
            except StoreDamaged:  # the plan searches the list at the source
                return None
            for place in part.blocks_for(interval):
                block = self._memory.block(self.state, part.path(place), part.extent(place).start)
                if block is None:
                    return None
                blocks[part.number(place)] = block
        return self._lines(blocks.values(), Intervals(intervals))

    def _read_lines(self, captures: Captures) -> list[str] | None:
        """Return all lines of captures, in order, and keep their blocks in memory, if a plan reads few blocks alone."""
        plan, question = captures.plan, captures.question
        if not plan.is_ready or not plan.blocks or plan.block_count > _MAX_BLOCKS:
            return None
        events = ReadEvents(note_version=question.note_version, note_failure=question.note_failure)
        source, blocks = question.source(), list[Block]()
        try:
            with closing(fetch_blocks(plan, source, self._session.request_threads, events)) as fetched:
                for planned, read, response in fetched:
                    blocks += blocks_of(source, planned, read, response, events)
        except UNUSABLE:
            if question.failed(plan):  # the other index answers
                return None
            raise
        question.lists().save_versions()
        for block in blocks:
            self._memory.keep_block(self.state, block)
        return self._lines(blocks, question.query.intervals)

    def _lines(self, blocks: Iterable[Block], intervals: KeyIntervals) -> list[str]:
        found = (lines for block in blocks for lines in block.find(intervals))
        return sorted(line for lines in found for line in written_lines(self.crawl, lines))

    def _find_page(self, request: CdxRequest) -> ResultPage:
        intervals = request.pattern.intervals
        found = self._captures(replace(request, filters=(), first="", last=""), intervals)
        columnar = found.question.indexes(self.crawl).columnar
        blocks: Sequence[ResultBlock] = ()
        missing: tuple[str, ...] = ()
        if not columnar or columnar.missing or self._has_candidates(request, columnar):
            places: Iterable[Mark] | None = ()
            is_one_page = request.pattern.match is Match.EXACT
            if not is_one_page or (columnar and columnar.missing):
                places = self._block_keys(request, found.question)
            if places is None and columnar:
                missing, places = columnar.missing, () if is_one_page else self._row_group_keys(columnar)
            blocks = cut(intervals, () if is_one_page else places or ())
        if request.counts_pages and len(blocks) == 1 and not self._has_captures(request):
            blocks = ()
        pages = pages_of(blocks, request.page_size)
        page = pages[request.page] if 0 <= request.page < len(pages) else ()
        # To sort by distance from a time, all of a page is needed.
        parts = [page] if request.closest and page else pages_of(page, _PART_BLOCKS)
        read = tuple(merge(interval for block in part for interval in block.intervals) for part in parts)
        return ResultPage(len(pages), sum(block.size for block in blocks), read, missing)

    def _block_keys(self, request: CdxRequest, question: Question) -> Sequence[Mark] | None:
        """Return the first keys of the blocks of the CDX index; None if there is none, and the footers answer."""
        key = self.state, self.crawl, "has no CDX index"
        if self._memory.get(key):
            return None
        try:
            blocks = question.blocks_of(self.crawl)
        except NotHarvested as error:
            if isinstance(error.__cause__, NotFound):  # no index answers
                raise
            name = request.url or "*"
            message = f"{name} has too many captures; use a narrower url=, or: catalogue query"
            raise TooExpensive(message) from error
        if blocks is None:
            indexes = question.indexes(self.crawl)
            is_answered = indexes.columnar and not indexes.columnar.missing
            if is_answered and isinstance(indexes.refusals.get(CDX), NotFound):
                self._memory.put(key, value=True)
            return None
        places = ((each.blocks, place) for each in blocks for read in each.reads for place in read.blocks)
        return [(listed.key(place), BLOCK_ROWS) for listed, place in places]

    def _row_group_keys(self, columnar: ColumnarIndex) -> Iterable[Mark]:
        if sum(len(file.ordinals) for file in columnar.candidates) > _MAX_INDEXED:
            return self._session.metadata().first_keys(self.crawl)
        return marks(columnar.key_bounds())

    def _captures(self, request: CdxRequest, intervals: tuple[KeyInterval, ...]) -> Captures:
        first, last = request.times
        where = None
        if request.where:
            from catalogue.query.where import parse_where

            where = parse_where(request.where, pa.schema([]), self._session.dataset)
        query = ResolvedQuery(
            Intervals(intervals), (request.url,), CDX_COLUMNS, where=where, from_ms=first, to_ms=last, any_order=True
        )
        return self._run(query)

    def _run(self, query: ResolvedQuery) -> Captures:
        session = self._session
        if self._only_stored:
            select_stored(session, self.crawl, {*session.metadata().crawls, *session.block_lists.stored}, SUBSETS)
        return run_query(session, query, Selection((self.crawl,), SUBSETS))

    def _has_candidates(self, request: CdxRequest, columnar: ColumnarIndex) -> bool:
        """Return whether stored footers allow captures; pages are counted without times."""
        if request.counts_pages or not (request.first or request.last):
            return bool(columnar.candidates)
        found = self._captures(replace(request, filters=()), request.pattern.intervals)
        return found.question.reaches(0)

    def _has_captures(self, request: CdxRequest) -> bool:
        query = ResolvedQuery(Intervals(request.pattern.intervals), (request.url,), ("url_surtkey",), limit=1)
        return any(batch.num_rows for batch in self._run(query).batches(warn=False))


def rows_before(rows: pa.RecordBatch, last: str, request: CdxRequest) -> pa.RecordBatch:
    """Leave out rows whose lines would be after a line in the requested order, by key and time.

    All stay if the order is by distance, the line has no time, or lines may escape characters of keys.
    """
    key, stamp, _ = last.split(" ", 2)
    keys, times = rows.column("url_surtkey"), rows.column("fetch_time").cast(pa.timestamp("ms", "UTC"))
    if request.closest or stamp == "-" or pc.any(pc.match_substring_regex(keys, "[^!-~]")).as_py():
        return rows
    second, following = map(moment, time_span(stamp))
    if request.reverse:
        is_outside = pc.or_(pc.less(keys, text(key)), _both(keys, key, pc.less(times, second)))
    else:
        is_outside = pc.or_(pc.greater(keys, text(key)), _both(keys, key, pc.greater_equal(times, following)))
    return rows.filter(pc.invert(pc.fill_null(is_outside, fill_value=False)))


def _both(keys: pa.Array, key: str, condition: pa.BooleanArray) -> pa.BooleanArray:
    return pc.and_(pc.equal(keys, text(key)), condition)


def select_lines(lines: list[str], request: CdxRequest) -> list[str]:
    if request.filters or request.first or request.last:
        lines = [line for some in filter_lines([lines], request) for line in some]
    if request.closest:
        return order_lines(lines, request)
    return (lines[::-1] if request.reverse else lines)[: request.limit]


def filter_lines(batches: Iterable[Sequence[str]], request: CdxRequest) -> Iterator[Sequence[str]]:
    if request.first or request.last:
        first, last = request.first, request.last or "~"
        batches = ([line for line in batch if first <= time_of(line) <= last] for batch in batches)
    return apply_filters(batches, request.filters) if request.filters else iter(batches)


def order_lines(lines: Iterable[str], request: CdxRequest) -> list[str]:
    """Sort lines by key and time, or by distance from a time, and apply the limit."""
    found = sorted(lines, reverse=request.reverse and not request.closest)
    if request.closest:
        from warcio.timeutils import timestamp_to_datetime

        closest = timestamp_to_datetime(request.closest, tz_aware=True)  # pads and clamps as pywb does
        found.sort(key=lambda line: _distance(time_of(line), closest))
    return found[: request.limit]


def _distance(stamp: str, moment: datetime) -> float:
    try:
        return abs((parse_timestamp(stamp) - moment).total_seconds())
    except ValueError:
        return math.inf
