"""Compare rows of the columnar index and of the CDX index of stored crawls, in random intervals of keys.

Intervals are compared one after the other. Only the rows of one are in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalogue.captures import Captures
from catalogue.cdx.columns import COLUMNS
from catalogue.check.findings import Checked, Finding, Share
from catalogue.check.list_pieces import MARGIN, PIECE, ListPieces
from catalogue.check.row_differences import Difference, differences
from catalogue.errors import FileChanged, Forbidden, FormatError, NotFound, SourceError
from catalogue.find_captures import run_query
from catalogue.formatting import Priced, format_cost, plural
from catalogue.plan.cdx_context import CdxContext
from catalogue.progress import Progress
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.reports import coverage_rows
from catalogue.session import Session
from catalogue.surt import KeyInterval

_MOST = 100
"""Differences of a crawl after which its comparison ends."""
_PLANNED = 4
"""Intervals of a crawl whose plans are the base of the estimated cost."""
_UNREADABLE = (FormatError, FileChanged, Forbidden, NotFound)
"""Errors that end the comparison of one crawl; other errors of the source end that of all."""


def compare_indexes(
    session: Session,
    checked: Checked,
    crawls: Iterable[str],
    share: Share,
    seed: int,
    *,
    report: Callable[[Progress], None],
    approve: Callable[[Priced], None],
) -> None:
    """Compare a share of the rows of each crawl, of the subsets that are stored completely.

    Args:
        session: of Common Crawl's index.
        checked: gets findings, notes and counts.
        crawls: names of stored crawls.
        share: which intervals of keys are compared; a number of bytes is that of both indexes of one crawl.
        seed: of a random share.
        report: called after each interval.
        approve: called with the estimated cost before rows are read.
    """
    checked.seed = None if share.part else seed
    coverage = coverage_rows(session)
    comparisons: list[_Comparison] = []
    count = 0
    try:
        comparisons = [
            comparison
            for crawl in crawls
            if (complete := _complete(session, checked, crawl, coverage))
            and (comparison := _prepare(session, checked, crawl, complete, share, seed))
        ]
        cost = _Estimate.of(session, [comparison.estimate for comparison in comparisons])
        count = sum(len(comparison.chosen) for comparison in comparisons)
        if comparisons:
            session.notify(f"{plural(count, 'interval')} of keys in {plural(len(comparisons), 'crawl')}: {cost}")
            approve(cost)
        for comparison in comparisons:
            comparison.run(report)
    except SourceError as error:
        checked.failure = error
    if not checked.intervals:
        checked.empty = True
        why = "" if count or not comparisons else "; this part has no interval of keys, so use a share such as 1%"
        checked.notes.append(f"no rows of the indexes were compared{why}")


def _complete(
    session: Session, checked: Checked, crawl: str, coverage: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of the subsets that are stored completely, and note others."""
    rows = [row for row in coverage if row["crawl"] == crawl]
    complete = [row for row in rows if row["files_harvested"] == row["files_listed"]]
    if others := [row["subset"] for row in rows if row not in complete]:
        run = session.dataset.harvest_command(crawl, others)
        what = f"{', '.join(others)} of {crawl} cannot be compared until all files are harvested"
        checked.notes.append(f"{what}; run: {run}")
    return complete


def _prepare(
    session: Session, checked: Checked, crawl: str, coverage: Sequence[dict[str, Any]], share: Share, seed: int
) -> "_Comparison | None":
    """Choose the intervals of a crawl and estimate their cost; None if there are none, with a note or finding."""
    try:
        pieces = ListPieces(session.source, crawl, session.block_lists)
    except NotFound:
        checked.notes.append(f"the source has no CDX index of {crawl}")
        return None
    except _UNREADABLE as error:
        _add_unreadable(session, checked, crawl, error)
        return None
    names = {f"{crawl}#{number:09}": number for number in range(len(pieces))}
    # Both indexes of the same rows have about as many bytes.
    size = 2 * sum(row["file_size"] for row in coverage) // len(names)
    chosen = [names[name] for name in share.choose([*names], lambda _: size, seed)]
    if not chosen:
        return None
    comparison = _Comparison(session, checked, crawl, [row["subset"] for row in coverage], pieces, chosen)
    try:
        comparison.plan()
    except _UNREADABLE as error:
        _add_unreadable(session, checked, crawl, error)
        return None
    return comparison


def _add_unreadable(session: Session, checked: Checked, crawl: str, error: Exception) -> None:
    session.block_lists.drop(crawl)  # the next search reads the new version of a changed list
    run = f"{session.dataset.harvest_command(crawl)} --refresh" if isinstance(error, SourceError) else ""
    checked.findings.append(Finding("source", "", f"{error}", run, crawl=crawl))


@dataclass(frozen=True, slots=True)
class _Estimate:
    """See ``Priced``."""

    requests: int = 0
    bytes: int = 0
    waves: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, session: Session, parts: "Sequence[_Estimate]") -> "_Estimate":
        """Return the sum."""
        requests, received, waves = (sum(getattr(each, name) for each in parts) for name in cls.__slots__[:3])
        return cls(requests, received, waves, session.cost().seconds(requests, received, waves))

    def __str__(self) -> str:
        return format_cost(self)


@dataclass(slots=True)
class _Comparison:
    """The comparison of one crawl."""

    session: Session
    checked: Checked
    crawl: str
    subsets: list[str]
    pieces: ListPieces
    chosen: list[int]
    """Numbers of pieces."""
    estimate: _Estimate = _Estimate()

    def plan(self) -> None:
        """Estimate the cost by the plans of the first intervals, whose keys are read from the list of blocks."""
        intervals = filter(None, map(self.pieces.interval, self.chosen[:_PLANNED]))
        plans = [captures.plan for interval in intervals for captures in self._captures(interval)]
        left = max(0, len(self.chosen) - _PLANNED)
        times = 1 + left / _PLANNED
        self.estimate = _Estimate(
            round(times * sum(plan.requests for plan in plans)) + left,
            round(times * sum(plan.bytes for plan in plans)) + left * (PIECE + 2 * MARGIN),
            round(times * sum(plan.round_trips for plan in plans)) + left,
        )

    def run(self, report: Callable[[Progress], None]) -> None:
        try:
            self._run(report)
        except _UNREADABLE as error:
            _add_unreadable(self.session, self.checked, self.crawl, error)

    def _run(self, report: Callable[[Progress], None]) -> None:
        checked, source = self.checked, self.session.source
        progress = Progress(self.crawl, len(self.chosen), 0)
        before, found = source.bytes, 0
        for interval in map(self.pieces.interval, self.chosen):
            if interval:
                for each in self._differences(interval)[: _MOST - found]:
                    place = {"crawl": self.crawl, "subset": each.subset}
                    checked.findings.append(Finding("difference", each.key, each.what, "", **place))
                    found += 1
            checked.intervals += 1  # an empty one, too
            progress.done, progress.bytes = progress.done + 1, source.bytes - before
            report(progress)
            if found == _MOST:
                checked.notes.append(f"the comparison of {self.crawl} ended after {found} differences")
                return

    def _captures(self, interval: KeyInterval) -> Iterator[Captures]:
        """Yield the captures of the columnar index, then those of the CDX index."""
        session = self.session
        query = ResolvedQuery((interval,), (f"an interval of keys of {self.crawl}",), COLUMNS)
        columnar = run_query(session, query, self.crawl, self.subsets)
        yield columnar
        cdx = CdxContext(query, {self.crawl: self.subsets}, session.block_lists, lambda: session.source, session.cost())
        yield Captures(session, cdx, space=columnar.space_of)

    def _differences(self, interval: KeyInterval) -> list[Difference]:
        columnar, cdx = self._captures(interval)
        rows = _read(columnar)
        self.checked.rows += rows.num_rows
        # Older files lack some columns; their values are unknown and not null.
        there = [
            {column.chunk.column.name for column in group.columns}
            for file in columnar.plan.files
            for group in file.row_groups
        ]
        of_paths = self.session.dataset.path_columns
        names = [name for name in COLUMNS if name in of_paths or all(name in each for each in there)]
        return differences(rows.select(names), _read(cdx).select(names))


def _read(captures: Captures) -> pa.Table:
    with closing(captures.batches(warn=False, report=lambda _: None)) as batches:
        return pa.Table.from_batches(batches, captures.schema)
