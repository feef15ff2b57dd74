"""Choices → a plan: which rows are enough, what waits for what, and whether pages or chunks are cheaper."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from catalogue.commoncrawl.crawls import SUBSETS, newest_first
from catalogue.commoncrawl.manifests import IndexFile
from catalogue.plan.cost import Cost
from catalogue.plan.plan import Awaited, ColumnRead, PlannedFile, PlannedRowGroup, ReadPlan
from catalogue.plan.prune import Choice, HeldFile, choose, expected_pages, expected_units, read_chunks
from catalogue.plan.requests import Part, PlannedRequest, most_requests, plan_requests
from catalogue.query.resolved_query import ResolvedQuery, Verdict, is_untyped, prune_row_group, schema_of
from catalogue.source.byte_ranges import ByteRange

HOLDERS = 2.0
"""Pages or row groups, of all that might, that really hold keys of an interval: the one it begins and the one it ends
in; before mid 2022 one of each of the two streams."""
SELECTIVITY = 0.5
"""Share of pages that hold a row with the right key and still one when other conditions are put to it."""

_APART = 64
"""Pages of a column, lying apart, that an estimate looks at; what more there are are taken to be like them."""


def plan_reads(
    query: ResolvedQuery,
    held: Iterable[HeldFile],
    *,
    cost: Cost,
    considered: int,
    missing: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> ReadPlan:
    """Plan a query.

    Args:
        query: what is asked.
        held: files that might hold matching rows; it does no harm if they do not.
        cost: of the source.
        considered: row groups there are in all that was asked about.
        missing: what of that is not held.
        warnings: to be handed on.

    Returns:
        Reads in the order of the answer: successful fetches (``warc``) first, newest crawl first, then files by their
        least key, within a file row groups as they lie.
    """
    files = list(held)
    keyless = tuple(
        f"{file.file.path} has no column {query.table.key} to find rows by"
        for file in files
        if query.table.key not in file.footer.columns
    )
    choices, counted, doubts = _choices(query, files)
    if query.limit is not None and query.keys_decide and not (query.ordered or query.counts):
        choices = list(_enough(choices, query.limit))
    odds = _Odds(choices, query, considered)
    drafts = [_draft(choice, query.of(untyped=is_untyped(choice.group)), odds, cost) for choice in choices]
    reads = tuple(_file_reads(drafts))
    plan = ReadPlan(
        query=query,
        schema=schema_of(query, query.columns),
        row_schema=schema_of(query, (*query.read_columns, *query.of(untyped=True).read_columns)),
        files=reads,
        waves=_waves(reads, cost),
        cost=cost,
        considered=considered,
        counted=tuple(counted.items()),
        indexes=tuple(_index_fetches(drafts, cost)),
        awaited=tuple(draft.awaited for draft in drafts if draft.awaited),
        missing=(*missing, *keyless),
    )
    return replace(plan, warnings=(*warnings, *doubts, *_warnings(plan)))


def narrowed(file: PlannedFile, row_group: int, reads: Iterable[ColumnRead], cost: Cost) -> tuple[PlannedRequest, ...]:
    """What is still to be fetched of a row group when the pages that hold rows that match are known."""
    parts = (part for read in reads for part in read.parts(row_group))
    return tuple(plan_requests(file.file.path, parts, max_gap=cost.max_gap, cached=file.cached))


def _choices(query: ResolvedQuery, files: Iterable[HeldFile]) -> tuple[list[Choice], dict[str, int], list[str]]:
    """What might match, in order; how many rows of a count are known, by crawl; and which indexes are wrong."""
    by_file: list[list[Choice]] = []
    counted: dict[str, int] = {}
    doubts = []
    for file in files:
        found: list[Choice] = []
        for group in file.footer.row_groups:
            asked = query.of(untyped=is_untyped(group))
            if prune_row_group(asked, group) is Verdict.CANNOT_MATCH:
                continue
            choice = choose(asked, file, group)
            if choice.doubt:
                doubts.append(f"{file.file.path}, row group {group.ordinal}: {choice.doubt}; it is read without")
            if query.counts and query.keys_decide:
                sure = sum(unit.sure_rows for unit in choice.units)
                doubtful = tuple(u for u in choice.units if not (u.certain and u.nulls is not None))
                choice = replace(choice, units=doubtful, counted=sure)
                counted[file.file.crawl] = counted.get(file.file.crawl, 0) + sure
            if choice.units:
                found.append(choice)
        if found:
            by_file.append(found)
    crawls = {crawl: at for at, crawl in enumerate(newest_first(each[0].held.file.crawl for each in by_file))}

    def place(choices: list[Choice]) -> tuple[int, str, int, str, IndexFile]:
        held = choices[0].held
        subset = SUBSETS.index(held.file.subset) if held.file.subset in SUBSETS else len(SUBSETS)
        return subset, held.file.subset, crawls[held.file.crawl], held.least, held.file

    by_file.sort(key=place)
    return list(chain.from_iterable(by_file)), counted, doubts


def _enough(choices: Iterable[Choice], limit: int) -> Iterator[Choice]:
    """The first choices, and the first units of the last of them, that hold as many rows as are wanted for certain."""
    left = limit
    for choice in choices:
        units = []
        for unit in choice.units:
            if left <= 0:
                break
            units.append(unit)
            left -= unit.sure_rows
        if units:
            yield replace(choice, units=tuple(units))
        if left <= 0:
            return


class _Odds:
    """How likely a unit that might match does.

    In a sorted crawl what might match nearly always does. Where two streams were zipped, or bounds are not known, far
    more units might match than there are to hold the keys.
    """

    def __init__(self, choices: Iterable[Choice], query: ResolvedQuery, considered: int) -> None:
        holders = HOLDERS * len(query.intervals)
        self._partial: dict[tuple[str, str], float] = {}
        for choice in choices:
            pool = (choice.held.file.crawl, choice.held.file.subset)
            if choice.bounded:
                doubtful = (
                    expected_units(choice, query) if choice.lacking else sum(not unit.certain for unit in choice.units)
                )
                self._partial[pool] = self._partial.get(pool, 0.0) + doubtful
            else:
                self._partial.setdefault(pool, 0.0)
        self._holders = holders
        self._unbounded = min(1.0, holders * len(self._partial) / max(1, considered))

    def of(self, choice: Choice) -> float:
        """The odds of a unit of a row group that is not certain."""
        if not choice.bounded:
            return self._unbounded
        partial = self._partial[choice.held.file.crawl, choice.held.file.subset]
        return min(1.0, self._holders / partial) if partial else 1.0


@dataclass(frozen=True, slots=True)
class _Draft:
    """A row group either as it is to be read, or as it waits for its index."""

    choice: Choice
    read: PlannedRowGroup | None
    awaited: Awaited | None = None


def _draft(choice: Choice, query: ResolvedQuery, odds: _Odds, cost: Cost) -> _Draft:
    chunks = read_chunks(query, choice.held, choice.group)
    reads = tuple(
        ColumnRead(chunk, index, index.covering(choice.rows)) if index else ColumnRead(chunk)
        for chunk in chunks
        for index in [choice.offset_indexes.get(chunk.column.name)]
    )
    by_pages = bool(choice.offset_indexes)
    likely = sum(1.0 if unit.certain else odds.of(choice) for unit in choice.units)
    columns, seconds = _cheapest(choice, reads, query, likely, cost)
    if choice.lacking:
        awaited, needed = _await(choice, query, odds.of(choice), cost)
        if needed < seconds:
            return _Draft(choice, None, awaited)
    group = PlannedRowGroup(
        ordinal=choice.group.ordinal,
        num_rows=choice.group.num_rows,
        intervals=choice.intervals,
        rows=choice.rows if by_pages or choice.drawn else (range(choice.group.num_rows),),
        columns=columns,
        key_index=choice.key_index if by_pages else None,
        bounded=choice.bounded,
        whole=choice.whole,
        counted=choice.counted,
        drawn=None if choice.held.drawn is None else choice.held.drawn[choice.group.ordinal],
        untyped=is_untyped(choice.group),
    )
    return _Draft(choice, group)


def _cheapest(
    choice: Choice, reads: tuple[ColumnRead, ...], query: ResolvedQuery, likely: float, cost: Cost
) -> tuple[tuple[ColumnRead, ...], float]:
    """What is read in the first wave and what later, and its price in seconds: all at once, or first what decides."""
    deciding = set(query.deciding_columns)
    best = (reads, _price(choice, reads, len(choice.units), cost))
    for first, kept in ({query.table.key}, 1.0), (deciding, 1.0 if query.keys_decide else SELECTIVITY):
        if likely * kept >= len(choice.units):
            continue  # to wait spares nothing
        split = tuple(replace(read, later=read.chunk.column.name not in first) for read in reads)
        if any(read.later for read in split):
            seconds = _price(choice, split, likely * kept, cost)
            if seconds < best[1]:
                best = (split, seconds)
    return best


def _price(choice: Choice, reads: Sequence[ColumnRead], likely: float, cost: Cost) -> float:
    """What reading a row group takes when about so many of its units turn out to be wanted in a second wave."""
    first, later = ([read for read in reads if read.later is when] for when in (False, True))
    seconds = _fetching(choice, (part for read in first for part in read.parts(0)), cost)
    if not later:
        return seconds
    wanted = _requests(choice, (part for read in later for part in read.parts(0)), cost)
    units = len(choice.units)
    runs = likely * (units - likely + 1) / units  # expected, when units are wanted at random
    size = sum(len(fetch.range) for fetch in wanted) * likely / units
    return seconds + cost.latency + cost.price(len(wanted) * runs, size)


def _requests(choice: Choice, parts: Iterable[Part], cost: Cost) -> list[PlannedRequest]:
    asked = plan_requests(choice.held.file.path, parts, max_gap=cost.max_gap, cached=choice.held.cached)
    return [fetch for fetch in asked if not fetch.cached]


def _fetching(choice: Choice, parts: Iterable[Part], cost: Cost) -> float:
    asked = _requests(choice, parts, cost)
    return cost.price(len(asked), sum(len(fetch.range) for fetch in asked))


def _await(choice: Choice, query: ResolvedQuery, odds: float, cost: Cost) -> tuple[Awaited, float]:
    """What a row group takes, about, once its index is there; and the price of that in seconds, index and all."""
    path, group = choice.held.file.path, choice.group
    units = len(choice.units) if choice.key_index else expected_units(choice, query)
    share = min(1.0, units / expected_pages(group.chunks[query.table.key]))
    if not choice.bounded:
        share *= odds
    ranges, pages = [], 0.0
    read = {part.column for part in choice.lacking} | choice.offset_indexes.keys()
    # Pages that follow each other are a range a column; those that were drawn lie apart.
    runs = math.ceil(units) if choice.drawn else 1
    apart = min(_APART, runs)
    for chunk in (chunk for name, chunk in group.chunks.items() if name in read):
        pages += share * expected_pages(chunk)
        size = max(1, int(len(chunk.range) * share) // runs)
        step = len(chunk.range) // apart
        first = chunk.range.start + (step - size) // 2
        ranges += [ByteRange(first + n * step, first + n * step + size) for n in range(apart)]
    asked = list(plan_requests(path, (replace(choice.lacking[0], range=r) for r in ranges), max_gap=cost.max_gap))
    sure = (1.0 if choice.bounded else odds) * runs / apart
    requests, size_of_all = len(asked) * sure, sum(len(fetch.range) for fetch in asked) * sure
    awaited = Awaited(path, group.ordinal, group.num_rows, requests, size_of_all, pages)
    seconds = _fetching(choice, choice.lacking, cost) + cost.latency + cost.price(requests, size_of_all)
    return awaited, seconds


def _file_reads(drafts: Iterable[_Draft]) -> Iterator[PlannedFile]:
    by_file: dict[str, list[_Draft]] = {}
    for draft in drafts:
        if draft.read:
            by_file.setdefault(draft.choice.held.file.path, []).append(draft)
    for of_file in by_file.values():
        held = of_file[0].choice.held
        groups = tuple(draft.read for draft in of_file if draft.read)
        yield PlannedFile(held.file, held.pin, held.footer.created_by, groups, held.cached)


def _waves(files: Sequence[PlannedFile], cost: Cost) -> tuple[tuple[PlannedRequest, ...], ...]:
    first = tuple(fetch for file in files for fetch in _first_wave(file, cost))
    second = tuple(fetch for file in files for fetch in _second_wave(file, cost))
    return tuple(wave for wave in (first, second) if wave)


def _first_wave(file: PlannedFile, cost: Cost) -> Iterator[PlannedRequest]:
    reads = ((group.ordinal, read) for group in file.row_groups for read in group.columns if not read.later)
    parts = (part for ordinal, read in reads for part in read.parts(ordinal))
    yield from plan_requests(file.file.path, parts, max_gap=cost.max_gap, cached=file.cached)


def _second_wave(file: PlannedFile, cost: Cost) -> Iterator[PlannedRequest]:
    """What may be asked for, row group by row group, as soon as that is decided; see ``narrowed``."""
    for group in file.row_groups:
        reads = [read for read in group.columns if read.later]
        pages = deque(sorted(chain.from_iterable(read.single_pages() for read in reads)))
        for fetch in narrowed(file, group.ordinal, reads, cost):
            inside = []
            while pages and pages[0].start < fetch.range.end:
                inside.append(pages.popleft())
            yield fetch if fetch.cached else replace(fetch, most=most_requests(inside, cost.max_gap))


def _index_fetches(drafts: Iterable[_Draft], cost: Cost) -> Iterator[PlannedRequest]:
    by_file: dict[str, list[Part]] = {}
    for draft in drafts:
        if draft.awaited:
            by_file.setdefault(draft.choice.held.file.path, []).extend(draft.choice.lacking)
    for path, parts in by_file.items():
        yield from plan_requests(path, parts, max_gap=cost.max_gap)


def _warnings(plan: ReadPlan) -> Iterator[str]:
    groups, size = plan.unbounded
    if groups:
        yield (
            f"of row groups whose files do not say which keys they hold, {groups:,} must be read ({size:,} bytes); "
            "catalogue backfill would save that"
        )
    reads = [group for file in plan.files for group in file.row_groups]
    if len(reads) == plan.considered > 1 and all(sum(map(len, group.rows)) == group.num_rows for group in reads):
        yield "nothing can be pruned by this question: every row group is read"
