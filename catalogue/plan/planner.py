"""Plan a query: which rows are enough, which columns wait for others, and whether pages or chunks are cheaper."""

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate, chain, groupby
from operator import attrgetter, itemgetter

from catalogue.commoncrawl.crawls import COLUMNAR, subset_place
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.plan.crawl_plan import (
    Awaited,
    ColumnRead,
    CrawlPlan,
    PlannedFile,
    PlannedRowGroup,
    expected_of,
    requests_of,
)
from catalogue.plan.prune import Choice, choose_pages, expected_pages, expected_units
from catalogue.plan.requests import Cost, Part, PlannedRequest, Purpose, most_requests, plan_requests
from catalogue.query.resolved_query import ResolvedQuery, might_match
from catalogue.source.byte_ranges import ByteRange
from catalogue.surt.interval import END
from catalogue.tables.crawl_table import FileMetadata

HOLDERS = 2.0
"""Expected units that contain keys of an interval: its first and its last; in zipped files, one of each stream."""
SELECTIVITY = 0.5
"""Assumed share of pages with a matching key that also match other conditions."""

_USES_OF_INDEX = 2
"""Queries that share the price of a page index, which the first one stores."""
_APART = 64
"""Separate pages that an estimate simulates."""
_FIRST_FILES, _MORE_FILES = 4, 8
"""Files that a query with a limit plans first, and the factor by which they grow."""
_least = attrgetter("least")


def plan_files(
    query: ResolvedQuery, crawl: str, metadata: Iterable[FileMetadata], cost: Cost, considered: int, matching: float
) -> CrawlPlan:
    """Plan a query of the columnar index of a crawl, in the order of the result: by subset, then by least key.

    ``considered`` counts row groups of the requested subsets, and ``matching`` is that of ``RuledOut``.
    """
    rare, certain = matching < SELECTIVITY, 0
    if query.limit is None or not query.keys_decide or query.ordered or query.counts:
        choices, counted, defects = _choices(query, metadata, rare=rare)
    else:
        choices, certain, defects = _limited_choices(query, metadata, query.limit, rare=rare)
        counted = 0
    odds = _Odds(choices, query, considered, matching)
    by_file: dict[str, tuple[FileMetadata, list[PlannedRowGroup], list[Part]]] = {}
    awaited = []
    for choice in choices:
        group = _plan_row_group(choice, query, odds, cost)
        _, groups, index_parts = by_file.setdefault(choice.metadata.path, (choice.metadata, [], []))
        if isinstance(group, PlannedRowGroup):
            groups.append(group)
        else:
            awaited.append(group)
            index_parts += choice.missing
    reads: list[PlannedFile] = []
    indexes: list[PlannedRequest] = []
    for path, (file, groups, parts) in by_file.items():
        indexes += plan_requests(path, parts, cost)
        if groups:
            version, created_by = file.stored.version, file.footer.created_by
            reads.append(PlannedFile(file.file, version, created_by, tuple(groups), file.cached))
    return CrawlPlan(
        crawl,
        COLUMNAR,
        cost,
        files=tuple(reads),
        waves=waves_of(reads, cost),
        considered=considered,
        counted=counted,
        certain=certain,
        indexes=tuple(indexes),
        awaited=tuple(awaited),
        defects=tuple(defects),
    )


def _choices(query: ResolvedQuery, files: Iterable[FileMetadata], *, rare: bool) -> tuple[list[Choice], int, list[str]]:
    by_file: list[tuple[tuple[object, ...], list[Choice]]] = []
    counted = 0
    defects = []
    for file in files:
        planned = query.of(file.file.crawl)
        found: list[Choice] = []
        for group in file.footer.row_groups:
            if planned.where and not might_match(planned, group):
                continue
            choice = choose_pages(planned, file, group, rare=rare)
            if choice.defect:
                where = f"{file.file.path}, row group {group.ordinal}"
                defects.append(f"{where}: {choice.defect}; it is read without its page index")
            if query.counts and query.keys_decide:
                sure = sum(unit.sure_rows for unit in choice.units)
                doubtful = tuple(u for u in choice.units if not (u.certain and u.nulls is not None))
                choice = replace(choice, units=doubtful, counted=sure)
                counted += sure
            if choice.units:
                found.append(choice)
        if found:
            place = subset_place(file.file.subset), min(map(_least, found)), file.least, file.file
            by_file.append((place, found))
    choices: list[Choice] = []
    for _, found in sorted(by_file, key=itemgetter(0)):
        choices += found
    return choices, counted, defects


def _limited_choices(
    query: ResolvedQuery, files: Iterable[FileMetadata], limit: int, *, rare: bool
) -> tuple[list[Choice], int, list[str]]:
    """Return choices that certainly have enough rows, these rows' number, and sentences about invalid indexes.

    Column chunks are decoded of the first files only, unless more are needed.
    """
    in_order = sorted(files, key=lambda file: (subset_place(file.file.subset), file.least, file.file))
    count = _FIRST_FILES
    while True:
        some, rest = in_order[:count], in_order[count:]
        choices, _, defects = _choices(query, some, rare=rare)
        found, certain = _enough(choices, limit, _least_keys(rest), is_inorder=query.is_inorder)
        if certain >= limit or not rest:
            return found, certain, defects
        count *= _MORE_FILES


def _least_keys(files: Iterable[FileMetadata]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for file in files:
        # Keys may be less than a bound in signed order, which files without a stated order have.
        least = file.least.encode() if file.footer.ordered else b""
        found[file.file.subset] = min(least, found.get(file.file.subset, least))
    return found


def _enough(
    choices: Iterable[Choice], limit: int, following: Mapping[str, bytes], *, is_inorder: bool
) -> tuple[list[Choice], int]:
    """Return the first choices and units that certainly have enough rows, and these rows' number.

    In order, only rows count whose keys are less than all keys of the units after them, and than the ``following``
    ones of their subset.
    """
    left = limit
    found: list[Choice] = []
    for subset, of_subset in groupby(choices, lambda choice: choice.metadata.file.subset):
        some, end = list(of_subset), following.get(subset, END)
        leasts = accumulate((unit.least for each in reversed(some) for unit in reversed(each.units)), min, initial=end)
        after = list(leasts)[-2::-1]  # of each unit, a lower bound of the keys in the units that follow
        certain: list[tuple[bytes, int]] = []
        number = 0
        for choice in some:
            units = []
            for unit in choice.units:
                if left <= 0:
                    break
                units.append(unit)
                if not is_inorder:
                    left -= unit.sure_rows
                elif unit.sure_rows:
                    heappush(certain, (unit.greatest, unit.sure_rows))
                while certain and certain[0][0] < after[number]:
                    left -= heappop(certain)[1]
                number += 1
            if units:
                found.append(replace(choice, units=tuple(units)))
            if left <= 0:
                return found, limit
    return found, limit - left


class _Odds:
    """The probability that a unit that may match does: nearly 1 in sorted files, else far less."""

    def __init__(self, choices: Iterable[Choice], query: ResolvedQuery, considered: int, matching: float) -> None:
        self.selected = 1.0 if query.keys_decide else min(SELECTIVITY, matching)
        """The share of pages with matching keys that also match other conditions."""
        holders = HOLDERS * len(query.intervals)
        self._partial: defaultdict[str, float] = defaultdict(float)
        """Bounded units of each subset of which only some rows may match."""
        for choice in choices:
            doubtful = (
                expected_units(choice, query) if choice.missing else sum(not each.certain for each in choice.units)
            )
            self._partial[choice.metadata.file.subset] += doubtful if choice.bounded else 0
        self._holders = holders
        self._unbounded = min(1.0, holders * len(self._partial) / max(1, considered))

    def of(self, choice: Choice) -> float:
        if not choice.bounded:
            return self._unbounded
        partial = self._partial[choice.metadata.file.subset]
        return min(1.0, self._holders / partial) if partial else 1.0


def _plan_row_group(choice: Choice, query: ResolvedQuery, odds: _Odds, cost: Cost) -> PlannedRowGroup | Awaited:
    query = query.of(choice.metadata.file.crawl)
    with_ends = query.table != COMMON_CRAWL  # the row numbers of its writers are correct
    rows, reads = choice.rows, list[ColumnRead]()
    for chunk in choice.chunks:
        index = choice.offset_indexes.get(chunk.column.name)
        pages = index.covering(rows, ends=with_ends) if index else ()
        reads.append(ColumnRead(chunk, index, pages, with_ends=with_ends and bool(index)))
    by_pages, key = bool(choice.offset_indexes), choice.group.chunks[query.table.key]
    likely = sum(1.0 if unit.certain else odds.of(choice) for unit in choice.units)
    # A row group with a rare value has it in at least one of its pages.
    selected = odds.selected if odds.selected == SELECTIVITY else max(odds.selected, 1 / len(choice.units))
    columns, seconds = _cheapest(choice, tuple(reads), query, likely, selected, cost)
    is_rare = odds.selected < SELECTIVITY and any(read.later for read in columns)
    if choice.missing and seconds > cost.latency:
        awaited, needed = _await(choice, query, columns, odds, cost)
        if needed < seconds:
            return awaited
    return PlannedRowGroup(
        ordinal=choice.group.ordinal,
        num_rows=choice.group.num_rows,
        least=choice.least,
        rows=rows if by_pages or choice.drawn else (range(choice.group.num_rows),),
        columns=columns,
        key_bounds=key.bounds,
        key_index=choice.key_index if by_pages and columns[0].chunk is key else None,
        bounded=choice.bounded,
        counted=choice.counted,
        drawn=choice.metadata.drawn.get((choice.metadata.path, choice.group.ordinal)),
        needed=selected if is_rare else 1.0,
    )


def _cheapest(
    choice: Choice, reads: tuple[ColumnRead, ...], query: ResolvedQuery, likely: float, selected: float, cost: Cost
) -> tuple[tuple[ColumnRead, ...], float]:
    key, decide = query.table.key, {*query.deciding_columns}
    shares = [({key}, 1.0), (decide, selected)]
    others = () if query.keys_decide else tuple(read for read in reads if read.chunk.column.name in decide - {key})
    if others and _keys_match(choice, query):
        if query.counts and not choice.drawn and sum(map(len, choice.rows)) == choice.group.num_rows:
            reads = others
        else:
            shares.append((decide - {key}, selected))
    # Of the other columns so many units would then be needed.
    splits = [(first, likely * share) for first, share in shares if likely * share < len(choice.units)]
    if not (splits or choice.missing):  # no price is compared
        return reads, 0.0
    path, ordinal, cached = choice.metadata.path, choice.group.ordinal, choice.metadata.cached
    best = (reads, cost.price_of(requests_of(path, ordinal, reads, cost, cached)))
    if best[1] <= cost.latency:  # every other way takes another round trip
        return best
    for first, needed in splits:
        split = tuple(replace(read, later=read.chunk.column.name not in first) for read in reads)
        if any(read.later for read in split) and (seconds := _price_of_split(choice, split, needed, cost)) < best[1]:
            best = (split, seconds)
    return best


def _keys_match(choice: Choice, query: ResolvedQuery) -> bool:
    decides = query.keys_decide or query.table.key in query.tested_columns
    return not decides and all(unit.sure_rows == len(unit.rows) for unit in choice.units)


def _price_of_split(choice: Choice, reads: Sequence[ColumnRead], likely: float, cost: Cost) -> float:
    """Price a row group of which ``likely`` units are needed in a second wave."""
    path, ordinal, cached = choice.metadata.path, choice.group.ordinal, choice.metadata.cached
    first, later = ([read for read in reads if read.later is when] for when in (False, True))
    seconds = cost.price_of(requests_of(path, ordinal, first, cost, cached))
    requested = [fetch for fetch in requests_of(path, ordinal, later, cost, cached) if not fetch.cached]
    units = len(choice.units)
    runs = likely * (units - likely + 1) / units  # expected for randomly needed units
    size = sum(len(fetch.range) for fetch in requested) * likely / units
    return seconds + cost.latency + cost.price(len(requested) * runs, size)


def _await(
    choice: Choice, query: ResolvedQuery, columns: Sequence[ColumnRead], odds: _Odds, cost: Cost
) -> tuple[Awaited, float]:
    """Estimate a read by the page index, and its price in seconds, with a share of the index."""
    path, group, key = choice.metadata.file.path, choice.group, query.table.key
    units = len(choice.units) if choice.key_index else expected_units(choice, query)
    share = min(1.0, units / expected_pages(group.chunks[key]))
    likely = 1.0 if choice.bounded else odds.of(choice)
    decide = {*query.deciding_columns} - ({key} if _keys_match(choice, query) else set())
    read = {part.column for part in choice.missing} | choice.offset_indexes.keys()
    ranges, pages = [], 0.0
    for chunk in (each.chunk for each in columns if each.chunk.column.name in read):
        # Consecutive pages are one range a column; drawn pages and those of rare values are separate.
        is_rare = odds.selected < SELECTIVITY and chunk.column.name not in decide
        part = share * likely * (odds.selected if is_rare else 1.0)
        of_column = expected_of(expected_pages(chunk), part) if is_rare else part * expected_pages(chunk)
        runs = math.ceil(of_column if is_rare else units) if is_rare or choice.drawn else 1
        pages += of_column
        apart = min(_APART, runs)
        size = max(1, int(len(chunk.range) * of_column / expected_pages(chunk)) // runs)
        step = len(chunk.range) // apart
        first = chunk.range.start + (step - size) // 2
        ranges += [ByteRange(first + n * step, first + n * step + size) for n in range(apart)]
    planned = plan_requests(path, (choice.missing[0]._replace(range=r) for r in ranges), cost)
    factor = likely * (math.ceil(units) / min(_APART, math.ceil(units)) if choice.drawn else 1)
    requests, size_of_all = len(planned) * factor, sum(len(fetch.range) for fetch in planned) * factor
    awaited = Awaited(choice.metadata.file, group.ordinal, group.num_rows, requests, size_of_all, pages)
    index = cost.price_of(plan_requests(path, choice.missing, cost, choice.metadata.cached)) + cost.latency
    return awaited, index / _USES_OF_INDEX + cost.price(requests, size_of_all)


def waves_of(files: Sequence[PlannedFile], cost: Cost) -> tuple[tuple[PlannedRequest, ...], ...]:
    """Return the requests for files; see ``ReadPlan.waves``."""
    first: list[PlannedRequest] = []
    second: list[PlannedRequest] = []
    for file in files:
        parts: list[Part] = []
        for group in file.row_groups:
            later = []
            for read in group.columns:
                if read.later:
                    later.append(read)
                else:
                    parts += read.parts(group.ordinal)
            second += _second_wave(file, group, later, cost) if later else ()
        first += plan_requests(file.file.path, parts, cost, file.cached)
    return tuple(filter(None, (tuple(first), tuple(second))))


def _second_wave(
    file: PlannedFile, group: PlannedRowGroup, reads: Sequence[ColumnRead], cost: Cost
) -> Iterator[PlannedRequest]:
    pages = deque(sorted(chain.from_iterable(read.single_pages() for read in reads)))
    for fetch in requests_of(file.file.path, group.ordinal, reads, cost, file.cached):
        inside = []
        while pages and pages[0].start < fetch.range.end:
            inside.append(pages.popleft())
        yield fetch if fetch.cached else _expect(fetch, inside, group.needed, cost)


def _expect(fetch: PlannedRequest, pages: Sequence[ByteRange], needed: float, cost: Cost) -> PlannedRequest:
    most = most_requests(pages, cost.max_gap)
    if needed == 1:
        return fetch._replace(requests=most)
    always = [part.range for part in fetch.parts if part.purpose is not Purpose.PAGES]
    some = max(1, len(pages) - len(always))
    few = expected_of(some, needed)
    size = sum(map(len, always))
    expected = size + math.ceil((sum(map(len, pages)) - size) * few / some)
    return fetch._replace(requests=min(most, math.ceil(few) + len(always)), expected=expected)
