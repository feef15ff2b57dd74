"""The layout of a key map: files, row groups and pages among a crawl's keys, and which a plan reads.

Positions are shares of an axis, from 0 to 1, scaled by rank: each interval between two bounds is one step, and gaps
have no width.
"""

import enum
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from catalogue.errors import QueryError
from catalogue.formatting import join_first, plural
from catalogue.parquet.page_index import ColumnIndex
from catalogue.query.literals import with_literals
from catalogue.surt.interval import KeyInterval, shared_prefix, text_after, text_from

if TYPE_CHECKING:
    from catalogue.plan.crawl_plan import PlannedRowGroup
    from catalogue.plan.plan import ReadPlan
    from catalogue.plan.question import Question
    from catalogue.session import Session

MAX_FILES, MAX_ROW_GROUPS = 4, 4
"""Files and row groups that are shown in detail."""
MAX_ROWS = 40
"""Rows of a lane; the last one has all further bars."""
_COMPARED_BYTES = 8
"""Bytes after the shared prefix of two bounds that place a key between them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The keys of a file, a row group or a page."""

    name: str
    keys: tuple[str, str] | None
    """Bounds of the keys, if known."""

    @classmethod
    def of(cls, name: str, least: str | None, greatest: str | None) -> "Extent":
        """Return an extent; the lesser bound may come last, in the signed order of old writers."""
        return cls(name, None if least is None or greatest is None else (min(least, greatest), max(least, greatest)))


@dataclass(frozen=True, slots=True)
class FileExtent:
    """The keys of an index file and of its row groups."""

    path: str
    subset: str
    extent: Extent
    row_groups: int
    without_bounds: int
    groups: tuple[tuple[int, Extent], ...] = ()
    """Sorted by ordinal; only in files that are shown in detail."""


def file_extents(session: "Session", crawl: str, detailed: Iterable[str] | None = ()) -> list[FileExtent]:
    """Return the key ranges of the files of a crawl, with row groups of the ``detailed`` paths, or of all for None."""
    least, greatest = (f'"{bound}_{session.dataset.key}"' for bound in ("min", "max"))
    sql = f"""
        SELECT
          path, subset, min({least}) AS least, max({greatest}) AS greatest,
          count(*) AS row_groups, count(*) FILTER ({least} IS NULL) AS without_bounds,
          list((row_group, {least}, {greatest}) ORDER BY row_group)
            FILTER ($2 IS NULL OR list_contains($2, path)) AS groups
        FROM row_groups WHERE crawl = $1 GROUP BY path, subset ORDER BY subset, path
        """  # noqa: S608 - the name of a column
    with session.database(indexes=False) as connection:
        rows = connection.execute(with_literals(sql, crawl, None if detailed is None else list(detailed))).fetchall()
    return [
        FileExtent(
            path,
            subset,
            Extent.of(path.rpartition("/")[2], low, high),
            row_groups,
            without_bounds,
            tuple((ordinal, Extent.of(f"row group {ordinal}", *keys)) for ordinal, *keys in groups or ()),
        )
        for path, subset, low, high, row_groups, without_bounds, groups in rows
    ]


class State(enum.Enum):
    """Whether a plan reads a file, row group or page."""

    SKIPPED = "not read"
    READ = "read"
    UNKNOWN = "read, because its bounds are not known"


@dataclass(frozen=True, slots=True)
class Bar:
    """The place of a file, a row group or a page on an axis."""

    start: float
    end: float
    state: State
    label: str
    row: int = 0
    """Bars of one row do not overlap, except in the last of ``MAX_ROWS``."""
    bounded: bool = True
    """If its bounds are unknown, it takes the whole axis."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars that belong together."""

    name: str
    bars: tuple[Bar, ...]

    def count(self, *states: State) -> int:
        return sum(bar.state in states for bar in self.bars)

    @property
    def size(self) -> int:
        return len(self.bars)

    @property
    def unbounded(self) -> int:
        return sum(not bar.bounded for bar in self.bars)

    @property
    def depth(self) -> int:
        """Number of rows that the bars need so that none overlap."""
        return max((bar.row + 1 for bar in self.bars if bar.bounded), default=0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Lanes above each other along the same keys."""

    name: str
    low: str
    """Empty if no bounds are known."""
    high: str
    lanes: tuple[Lane, ...]
    marks: tuple[tuple[float, float], ...]
    """The requested keys; disjoint and ascending."""


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The keys of a crawl, and what a plan reads of them."""

    crawl: str
    files: Axis
    """One lane for each subset."""
    groups: tuple[Axis, ...]
    """Row groups of the first ``MAX_FILES`` files that are read."""
    pages: tuple[Axis, ...]
    """Pages of the first ``MAX_ROW_GROUPS`` row groups that are read and have a stored page index."""
    read_files: int
    read_groups: int
    read_pages: int | None
    """Pages of the key column, if known for all row groups."""
    all_groups: int
    without_bounds: int

    def sentences(self, *, limited: bool = False) -> list[str]:
        """Describe the map; ``limited`` says that a limit ended the read early."""
        lanes = ", ".join(f"{lane.size:,} in {lane.name}" for lane in self.files.lanes)
        files = sum(lane.size for lane in self.files.lanes)
        reads = f"this query reads {self.read_files:,} of them" if self.read_files else "this query reads none of them"
        found = [f"{self.crawl} has {plural(files, 'file')} here ({lanes}); {reads}."]
        if self.read_files:
            pages = "" if self.read_pages is None else f", with {plural(self.read_pages, 'page')} of keys"
            found.append(f"It reads {self.read_groups:,} of {plural(self.all_groups, 'row group')}{pages}.")
        if limited:
            found.append("More of them may match; the limit was reached before they were read.")
        if any(lane.depth > 1 for axis in self.groups for lane in axis.lanes):
            found.append(
                "Row groups overlap, because each file of this crawl is two sorted streams zipped together: "
                "one key may be in many row groups."
            )
        if self.without_bounds:
            have = "has" if self.without_bounds == 1 else "have"
            found.append(f"{plural(self.without_bounds, 'row group')} {have} no bounds, and may hold any key.")
        return found


def query_space(session: "Session", question: "Question", plan: "ReadPlan", crawl: str | None) -> KeySpace:
    if crawl and crawl not in question.crawls:
        raise QueryError(f"{crawl} is not among the crawls of the query: {join_first(question.crawls)}")
    read = [each.crawl for each in plan.crawls if each.files or each.awaited]
    stored = [each for each in ([crawl] if crawl else [*read, *question.crawls]) if question.indexes(each).columnar]
    if not stored:
        raise QueryError("plans of the CDX index cannot be drawn; use index='columnar'")
    return key_space(stored[0], file_extents(session, stored[0], plan.index_files), plan)


def key_space(crawl: str, files: Sequence[FileExtent], plan: "ReadPlan") -> KeySpace:
    """Lay out the stored files of a crawl, and the row groups and pages that a plan reads of them."""
    intervals = plan.query.intervals
    by_path = {file.path: file for file in files}
    read = [by_path[path] for path in plan.paths if path in by_path]
    planned = {each.file.path: each.row_groups for each in plan.files}
    states = {
        file.path: {
            group.ordinal: State.READ if group.bounded else State.UNKNOWN for group in planned.get(file.path, ())
        }
        for file in read
    }
    groups = [(file, group) for file in read for group in planned.get(file.path, ())]
    awaited = [each for each in plan.awaited if each.file.path in states]
    for each in awaited:
        states[each.file.path][each.row_group] = State.READ
    pages = None if awaited or any(group.key_index is None for _, group in groups) else 0
    lanes: dict[str, list[tuple[Extent, State]]] = {}
    for file in files:
        of_file = states.get(file.path)
        unknown = of_file and set(of_file.values()) == {State.UNKNOWN}
        state = State.SKIPPED if of_file is None else State.UNKNOWN if unknown else State.READ
        lanes.setdefault(file.subset, []).append((file.extent, state))
    axes = []
    for file in read[:MAX_FILES]:
        extents = [(extent, states[file.path].get(ordinal, State.SKIPPED)) for ordinal, extent in file.groups]
        axes.append(_axis(file.path, {file.subset: extents}, intervals))
    indexed = [(file, group, group.key_index) for file, group in groups if group.key_index]
    return KeySpace(
        crawl,
        _axis("", lanes, intervals, outside=True),
        tuple(axes),
        tuple(_pages_axis(*each, intervals) for each in indexed[:MAX_ROW_GROUPS]),
        read_files=len(read),
        read_groups=sum(map(len, states.values())),
        read_pages=pages if pages is None else sum(len(_read_pages(group, index)) for _, group, index in indexed),
        all_groups=sum(file.row_groups for file in files),
        without_bounds=sum(file.without_bounds for file in files),
    )


def crawl_axis(files: Sequence[FileExtent]) -> Axis:
    """Lay out the files of a crawl and their row groups: two lanes for each subset."""
    lanes: dict[str, list[tuple[Extent, State]]] = {}
    for file in files:
        lanes.setdefault(f"files of {file.subset}", []).append((file.extent, State.SKIPPED))
        groups = lanes.setdefault(f"row groups of {file.subset}", [])
        groups += ((extent, State.SKIPPED) for _, extent in file.groups)
    return _axis("", lanes, ())


def merge_close(marks: Iterable[tuple[float, float]], gap: float = 0.0) -> list[tuple[float, float]]:
    """Merge ascending intervals that are at most ``gap`` apart."""
    merged: list[tuple[float, float]] = []
    for start, end in marks:
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _read_pages(group: "PlannedRowGroup", index: ColumnIndex) -> set[int]:
    key = group.columns[0]
    return set(range(len(index.bounds))) if key.index is None else {page for run in key.pages for page in run}


def _pages_axis(
    file: FileExtent, group: "PlannedRowGroup", index: ColumnIndex, intervals: Iterable[KeyInterval]
) -> Axis:
    read = _read_pages(group, index)
    extents = []
    for page, bounds in enumerate(index.bounds):
        if bounds:  # a page of nulls has none
            ends = text_from(bounds.min), text_after(bounds.max) or chr(0x10FFFF)
            extents.append((Extent(f"page {page}", ends), State.READ if page in read else State.SKIPPED))
    return _axis(f"{file.path}#{group.ordinal}", {f"row group {group.ordinal}": extents}, intervals)


class _Scale:
    def __init__(self, intervals: Collection[tuple[str, str]]) -> None:
        starts, ends = {low for low, _ in intervals}, {high for _, high in intervals}
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
            rank += (self._ranks[at + 1] - rank) * _interpolate(self.keys[at], key, self.keys[at + 1])
        return min(1.0, rank / self._length)


def _interpolate(low: str, key: str, high: str) -> float:
    alike, size = shared_prefix(low, high), _COMPARED_BYTES
    texts = (text[alike:].encode(errors="surrogatepass")[:size].ljust(size, b"\0") for text in (low, key, high))
    start, at, end = map(int.from_bytes, texts)
    return 0.5 if start >= end else min(1.0, max(0.0, (at - start) / (end - start)))


def _axis(
    name: str,
    lanes: Mapping[str, Sequence[tuple[Extent, State]]],
    intervals: Iterable[KeyInterval],
    *,
    outside: bool = False,
) -> Axis:
    known = [extent.keys for extents in lanes.values() for extent, _ in extents if extent.keys]
    scale = _Scale(known)
    low, high = (scale.keys[0], scale.keys[-1]) if known else ("", "")
    marks = []
    for interval in intervals if known else ():
        start, end = text_from(interval.start), text_after(interval.end)
        if outside or (start <= high and (end is None or end > low)):
            marks.append((scale(start), 1.0 if end is None else scale(end)))
    drawn = tuple(_lane(each, extents, scale) for each, extents in lanes.items())
    return Axis(name, low, high, drawn, tuple(merge_close(marks)))


def _lane(name: str, extents: Sequence[tuple[Extent, State]], scale: _Scale) -> Lane:
    bars: list[Bar] = []
    ends: list[str] = []
    known = [(extent.keys, extent.name, state) for extent, state in extents if extent.keys]
    for (low, high), label, state in sorted(known, key=lambda each: each[0]):
        row = next((row for row, end in enumerate(ends) if end <= low), len(ends))
        if row < MAX_ROWS:
            ends[row : row + 1] = [high]
        bars.append(Bar(scale(low), scale(high), state, label, min(row, MAX_ROWS - 1)))
    unknown = ((extent.name, state) for extent, state in extents if not extent.keys)
    bars += [Bar(0.0, 1.0, state, label, len(ends), bounded=False) for label, state in unknown]
    return Lane(name, tuple(bars))
