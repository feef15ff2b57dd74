"""Where the files of a crawl, their row groups and pages lie among its keys, and which of them a plan reads.

Positions are shares of an axis, from 0 to 1. An axis goes by rank among the bounds of what is shown on it, since the
bytes of keys say nothing of how many lie between: from each bound to the next is one step, and none across a gap, where
nothing lies. Within a step it goes by the characters in which the two bounds differ.
"""

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from catalogue.plan.plan import PlannedFile, PlannedRowGroup, ReadPlan
from catalogue.surt import KeyInterval, shared_prefix, text_after, text_from

SHOWN_FILES, SHOWN_GROUPS = 4, 4
"""Files of which the row groups are shown, and row groups of which the pages are, at most."""

MOST_ROWS = 40
"""In a lane; what would be below the last is put into it."""
_COMPARED = 8
"""Characters behind what two bounds have in common that tell where between them a key lies."""
_PLAIN = 128
"""Characters told apart there."""
_TICKS = 5
"""Places on an axis of which it is told what lies there."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Something that holds keys: a file, a row group or a page."""

    name: str
    filled: tuple[tuple[str, str], ...]
    """The intervals of keys, both ends inclusive, in which all its keys lie; none if that is not known."""

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """These, ascending: old writers compared in another order, in which the lesser of two ends may come last."""
        return tuple(sorted((min(ends), max(ends)) for ends in self.filled))


@dataclass(frozen=True, slots=True)
class FileExtent:
    """A file among the others of its crawl."""

    path: str
    subset: str
    extent: Extent
    row_groups: int
    without_bounds: int
    """Those of them the bounds of whose keys are not known."""
    groups: tuple[tuple[int, Extent], ...] = ()
    """By their ordinals, if they were asked for."""


class State(enum.Enum):
    """What becomes of something."""

    LEFT = "left alone"
    READ = "read"
    BLIND = "read on the off chance, since the bounds of its keys are not known"


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that holds keys, on an axis."""

    start: float
    end: float
    state: State
    label: str
    row: int = 0
    """Those in one row do not overlap, unless there would be too many rows."""
    bounded: bool = True
    """Whether it is known where it lies; if not, it takes the whole axis."""

    def wide(self, least: float) -> tuple[float, float]:
        """Where it begins and ends; be it of a single key, it is made as wide as can be seen."""
        if self.end - self.start >= least:
            return self.start, self.end
        start = min(self.start, 1 - least)
        return start, start + least


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars that belong together."""

    name: str
    bars: tuple[Bar, ...]
    rows: int
    """How many there are of these, those that are not bounded having one to themselves."""

    def count(self, *states: State) -> int:
        """How many things are in one of some states; several bars can be one thing."""
        return len({bar.label for bar in self.bars if bar.state in states})

    @property
    def size(self) -> int:
        """How many things there are."""
        return len({bar.label for bar in self.bars})

    @property
    def unbounded(self) -> int:
        """How many are not bounded."""
        return sum(not bar.bounded for bar in self.bars)

    @property
    def overlapping(self) -> bool:
        """Whether keys of one lie between those of another, as where two sorted streams were zipped."""
        return len({bar.row for bar in self.bars if bar.bounded}) > 1


@dataclass(frozen=True, slots=True)
class Axis:
    """Lanes above each other, along the same keys."""

    name: str
    low: str
    """No key is less; empty if no bounds are known at all."""
    high: str
    lanes: tuple[Lane, ...]
    marks: tuple[tuple[float, float], ...]
    """Where the keys asked for begin and end; disjoint and ascending."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Some bounds, from the least to the greatest, and where they lie; at about the same distance from each other."""


@dataclass(frozen=True, slots=True)
class KeySpace:
    """A crawl's keys, and what a plan reads of them."""

    crawl: str
    files: Axis
    """A lane for each subset."""
    groups: tuple[Axis, ...]
    """The row groups of each file that is read, or of the first of them."""
    pages: tuple[Axis, ...]
    """The pages of each row group that is read, or of the first of those whose index is held."""
    read_files: int
    read_groups: int
    read_pages: int | None
    """Of the column of keys; None if that is not known of all."""
    all_groups: int
    """Row groups of the crawl."""
    without_bounds: int
    """Those of them the bounds of whose keys are not known."""


def key_space(crawl: str, files: Sequence[FileExtent], plan: ReadPlan) -> KeySpace:
    """Where the files of a crawl lie, and what a plan reads of them.

    Args:
        crawl: whose files they are.
        files: all that are held, those that are read with their row groups.
        plan: of a question that may be about other crawls too.
    """
    reads = {read.file.path: read for read in plan.files}
    awaited: dict[str, set[int]] = {}
    for each in plan.awaited:
        awaited.setdefault(each.path, set()).add(each.row_group)
    by_path = {file.path: file for file in files}
    zoomed = [by_path[path] for path in plan.paths if path in by_path]
    here = {file.path for file in zoomed}
    chosen = [(file, group) for file in zoomed for group in _groups(reads.get(file.path))]
    known = [(file, group) for file, group in chosen if group.key_index]
    pages = [_pages(group) for _, group in chosen]
    intervals = plan.query.intervals
    return KeySpace(
        crawl,
        _overview(files, reads, here, intervals),
        tuple(
            _zoomed(file, reads.get(file.path), awaited.get(file.path, ()), intervals) for file in zoomed[:SHOWN_FILES]
        ),
        tuple(_paged(file, group, intervals) for file, group in known[:SHOWN_GROUPS]),
        read_files=len(here),
        read_groups=len(chosen) + sum(len(awaited.get(path, ())) for path in here),
        read_pages=None if None in pages or not here.isdisjoint(awaited) else sum(filter(None, pages)),
        all_groups=sum(file.row_groups for file in files),
        without_bounds=sum(file.without_bounds for file in files),
    )


def crawl_axis(files: Sequence[FileExtent]) -> Axis:
    """Where the files of a crawl and all their row groups lie: two lanes for each subset.

    Args:
        files: all that are held, with their row groups.
    """
    lanes: dict[str, list[tuple[Extent, State]]] = {}
    for file in files:
        lanes.setdefault(f"files of {file.subset}", []).append((file.extent, State.LEFT))
        groups = lanes.setdefault(f"row groups of {file.subset}", [])
        groups += ((replace(extent, name=f"{file.path}#{at}"), State.LEFT) for at, extent in file.groups)
    return _axis("", lanes, ())


def part(path: str) -> str:
    """The name of an index file, without what makes it unlike those of other crawls: ``part-00007``."""
    name = path.rpartition("/")[2]
    return "-".join(name.split("-")[:2]).removesuffix(".parquet")


def joined(marks: Iterable[tuple[float, float]], gap: float) -> Iterator[tuple[float, float]]:
    """Marks, those made one that are no further from each other than what nobody could see."""
    held: tuple[float, float] | None = None
    for start, end in marks:
        if held and start - held[1] <= gap:
            held = (held[0], max(held[1], end))
        else:
            if held:
                yield held
            held = (start, end)
    if held:
        yield held


def shortened(key: str, other: str = "", *, width: int = 24) -> str:
    """A key in as many characters, of which one is an ellipsis where something was left out.

    Args:
        key: of any length.
        other: from which it is to be told, if their beginnings allow it.
        width: at least 8.
    """
    if len(key) <= width:
        return key
    alike = shared_prefix(key, other)
    if not other or key == other or alike < width - 4:
        return key[: width - 1] + "…"
    head, tail = key[: width // 3], key[max(alike - 2, 0) :]
    room = width - len(head) - 1
    return f"{head}…{tail}" if len(tail) <= room else f"{head}…{tail[: room - 1]}…"


def _groups(read: PlannedFile | None) -> tuple[PlannedRowGroup, ...]:
    return read.row_groups if read else ()


def _pages(group: PlannedRowGroup) -> int | None:
    """How many pages of keys are read."""
    if group.key_index is None:
        return None
    return len(_read_pages(group, len(group.key_index.bounds)))


def _read_pages(group: PlannedRowGroup, count: int) -> set[int]:
    key = group.columns[0]
    return set(range(count)) if key.index is None else {page for run in key.pages for page in run}


def _overview(
    files: Sequence[FileExtent], reads: dict[str, PlannedFile], here: Collection[str], intervals: Sequence[KeyInterval]
) -> Axis:
    def state(file: FileExtent) -> State:
        if file.path not in here:
            return State.LEFT
        groups = _groups(reads.get(file.path))
        return State.READ if any(group.bounded for group in groups) or not groups else State.BLIND

    by_subset: dict[str, list[tuple[Extent, State]]] = {}
    for file in files:
        by_subset.setdefault(file.subset, []).append((file.extent, state(file)))
    return _axis("", by_subset, intervals, outside=True)


def _zoomed(
    file: FileExtent, read: PlannedFile | None, awaited: Collection[int], intervals: Sequence[KeyInterval]
) -> Axis:
    states = {group.ordinal: State.READ if group.bounded else State.BLIND for group in _groups(read)}
    states |= dict.fromkeys(awaited, State.READ)
    extents = [(extent, states.get(ordinal, State.LEFT)) for ordinal, extent in file.groups]
    return _axis(file.path, {file.subset: extents}, intervals)


def _paged(file: FileExtent, group: PlannedRowGroup, intervals: Sequence[KeyInterval]) -> Axis:
    index = group.key_index
    count = len(index.bounds) if index else 0
    reads = _read_pages(group, count)
    extents = []
    for page in range(count):
        filled = index.filled(page) if index else ()
        if filled:  # else it holds nulls alone
            ends = tuple((text_from(each.min), text_after(each.max) or chr(0x10FFFF)) for each in filled)
            extents.append((Extent(f"page {page}", ends), State.READ if page in reads else State.LEFT))
    return _axis(f"{file.path}#{group.ordinal}", {f"row group {group.ordinal}": extents}, intervals)


class _Scale:
    """Keys → places on an axis."""

    def __init__(self, filled: Collection[tuple[str, str]]) -> None:
        starts, ends = {low for low, _ in filled}, {high for _, high in filled}
        self.keys = sorted(starts | ends)
        steps = (not (a not in starts and b not in ends) for a, b in pairwise(self.keys))
        self._ranks = list(accumulate(steps, initial=0))
        self._length = self._ranks[-1] or 1

    def __call__(self, key: str) -> float:
        at = bisect_right(self.keys, key) - 1
        if at < 0:
            return 0.0
        rank = float(self._ranks[at])
        if at + 1 < len(self.keys) and self.keys[at] != key:
            rank += (self._ranks[at + 1] - rank) * _between(self.keys[at], key, self.keys[at + 1])
        return min(1.0, rank / self._length)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Some of the keys and their places."""
        wanted = (share * self._length // (_TICKS - 1) for share in range(_TICKS))
        for at in sorted({min(bisect_left(self._ranks, rank), len(self.keys) - 1) for rank in wanted}):
            yield self(self.keys[at]), self.keys[at]


def _between(low: str, key: str, high: str) -> float:
    """How far a key lies on the way from one that is less to one that is greater: from 0 to 1, never falling."""
    alike = shared_prefix(low, high)
    ends = (_number(low[alike:]), _number(key[alike:]), _number(high[alike:]))
    if ends[0] >= ends[2]:
        return 0.5
    return min(1.0, max(0.0, (ends[1] - ends[0]) / (ends[2] - ends[0])))


def _number(text: str) -> int:
    number = 0
    for character in text[:_COMPARED].ljust(_COMPARED, "\0"):
        number = number * _PLAIN + min(ord(character), _PLAIN - 1)
    return number


def _axis(
    name: str,
    lanes: dict[str, list[tuple[Extent, State]]],
    intervals: Sequence[KeyInterval],
    *,
    outside: bool = False,
) -> Axis:
    """Lanes on an axis of their own; ``outside`` marks what is asked for even where it lies outside of that."""
    filled = [part for extents in lanes.values() for extent, _ in extents for part in extent.parts]
    if not filled:
        drawn = tuple(_lane(each, extents, None) for each, extents in lanes.items())
        return Axis(name, "", "", drawn, ())
    scale = _Scale(filled)
    low, high = scale.keys[0], scale.keys[-1]
    return Axis(
        name,
        low,
        high,
        tuple(_lane(each, extents, scale) for each, extents in lanes.items()),
        tuple(joined(_marks(intervals, scale, low, None if outside else high), 0.0)),
        tuple(scale.ticks()),
    )


def _marks(
    intervals: Iterable[KeyInterval], scale: _Scale, low: str, last: str | None
) -> Iterator[tuple[float, float]]:
    """Where intervals lie; none that lies outside, if ``last`` is given."""
    for interval in intervals:
        start, end = text_from(interval.start), text_after(interval.end)
        if last is None or (start <= last and (end is None or end > low)):
            yield scale(start), 1.0 if end is None else scale(end)


def _lane(name: str, extents: Sequence[tuple[Extent, State]], scale: _Scale | None) -> Lane:
    """Things in rows: each in the first one where nothing is in its way."""
    bars: list[Bar] = []
    ends: list[str] = []
    for extent, state in sorted(extents, key=lambda each: each[0].parts[:1]):
        if not extent.filled or scale is None:
            continue
        low, high = extent.parts[0][0], max(high for _, high in extent.parts)
        row = next((row for row, end in enumerate(ends) if end <= low), len(ends))
        if row < MOST_ROWS:  # of those below nobody asks, and of pages there may be thousands
            ends[row : row + 1] = [high]
        at = min(row, MOST_ROWS - 1)
        # Where nothing else lies between two parts they touch: one bar, as what is counted is one thing.
        parts = joined(((scale(a), scale(b)) for a, b in extent.parts), 0.0)
        bars += [Bar(start, end, state, extent.name, at) for start, end in parts]
    unknown = [(extent, state) for extent, state in extents if not extent.filled]
    rows = len(ends)
    bars += [Bar(0.0, 1.0, state, extent.name, rows, bounded=False) for extent, state in unknown]
    return Lane(name, tuple(bars), rows + bool(unknown))
