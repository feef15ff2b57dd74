"""A random sample: rows are drawn from all row groups, read, and replaced if they do not match."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from catalogue.captures import Captures
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError, warn
from catalogue.find_captures import known_columns
from catalogue.formatting import ReprMixin, plural
from catalogue.parquet.arrow_arrays import positions
from catalogue.plan.plan import ReadPlan
from catalogue.plan.question import CrawlIndexes
from catalogue.progress import Progress
from catalogue.query.random_order import DrawnRows, RandomOrder, RowGroupId
from catalogue.query.resolved_query import DRAWN_ORDER, check_columns, schema_of
from catalogue.read.dataframes import frame_of
from catalogue.read.streams import BATCH_ROWS
from catalogue.session import Session

if TYPE_CHECKING:
    import pandas as pd

_GROWTH = 8
"""Maximum factor by which a round draws more rows than all before it."""
_SCAN_ROWS, _PAGE_ROWS = 50_000, 5_000
"""More rows, with one or more a page, are read by a scan of everything."""


_STRATA = {"host": "url_host_name", "domain": "url_host_registered_domain"}


class Sample(ReprMixin):
    """A random sample of captures, each as likely as any other; drawn when it is read.

    The same seed gives the same sample of the same files, and a smaller sample is the start of a larger one. A failed
    request raises SourceError.
    """

    def __init__(
        self, session: Session, captures: Captures, size: int, *, seed: int = 0, per: str | None = None, most: int = 1
    ) -> None:
        if not isinstance(captures, Captures):
            raise QueryError(f"invalid captures {captures!r:.100}; use those of captures()")
        query, indexes = captures.question.query, captures.question.columnar()
        if indexes is None:
            raise QueryError(
                "a sample reads the columnar index; use captures() with index='columnar', which names crawls to harvest"
            )
        if query.limit is not None or query.ordered or captures.distinct:
            raise QueryError(
                "a sample is drawn from all captures, without an order; leave out limit, ordered, unique and latest"
            )
        if min(size, most) < 1:
            raise QueryError(f"invalid sample of {size:,} captures, {most:,} of each; both must be at least 1")
        if most != 1 and per is None:
            raise QueryError(f"most={most} needs per, such as per='host'")
        columns, dataset = known_columns(session, captures.question.crawls), session.dataset
        short = _STRATA if dataset == COMMON_CRAWL else {}
        stratum = check_columns([short.get(per, per)], columns, dataset) if per is not None else ()
        self.size = size
        self.missing = (*captures.question.unlisted, *(sentence for each in indexes for sentence in each.missing))
        self.notes = tuple(query.absences(captures.question.crawls))
        self._session = session
        self._question = captures.question
        self._indexes = {each.crawl: each for each in indexes}
        files = (file for each in indexes for file in each.by_footers())  # a generator, as they are many
        self._sizes = {(each.path, group.ordinal): group.num_rows for each in files for group in each.footer.row_groups}
        self._query = replace(query, columns=(*query.columns, *stratum), draws=True)
        self._columns = tuple(dict.fromkeys([*query.columns, *dataset.path_columns]))
        self._seed = seed
        self._stratum = next(iter(stratum), None)
        self._most = most
        self.found = 0
        """The number of captures that the last reading found."""
        self.drawn = 0
        """The number of rows that the last reading drew."""
        self.rows = sum(self._sizes.values())

    def _ask(self, drawn: Mapping[RowGroupId, DrawnRows]) -> Captures:
        session = self._session

        @cache
        def indexes_of(crawl: str) -> CrawlIndexes:
            columnar = replace(
                self._indexes[crawl].among(drawn),
                page_indexes=session.page_indexes,
                source=lambda: session.rereading,
                cost=session.cost(),
            )
            return CrawlIndexes(columnar, None, is_named=True, notify=session.notify)

        crawls = {file.crawl for path, _ in drawn if (file := session.dataset.file(path))}
        question = self._question.part([crawl for crawl in self._question.crawls if crawl in crawls])
        question = replace(question, query=self._query, indexes=indexes_of, source=lambda: session.rereading)
        return Captures(session, replace(question, unlisted=()))

    def _order(self) -> RandomOrder:
        copies = (replace(each) for each in self._indexes.values())  # an index keeps its files, a copy is freed
        possible = set[RowGroupId]().union(*(each.possible(self._query) for each in copies))
        return RandomOrder(self._sizes, self._seed, possible)

    def _line(self) -> str:
        return f"of {plural(self.size, 'capture')}, drawn from {plural(self.rows, 'row')}"

    def _notes(self) -> Iterator[str]:
        if self.drawn:
            yield f"The last look found {plural(self.found, 'capture')}, and looked at {plural(self.drawn, 'row')}."
        yield "plan says what is read at first; to_pandas(), to_arrow() and batches() read."
        yield from (f"Note: {note}" for note in self.notes)
        yield from (f"The sample is incomplete: {problem}" for problem in self.missing)

    @property
    def plan(self) -> ReadPlan:
        """The plan of the first round; rows that do not match are replaced in later rounds."""
        order = self._order()
        if self.size <= order.single:
            return self._ask(order.next(self.size)).plan
        every: dict[RowGroupId, DrawnRows] = {}
        for some in order.rest():
            every |= some
        return self._ask(every).plan

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self._question.query, self._columns)

    @property
    def complete(self) -> bool:
        """Whether the last reading found all captures, among all files."""
        return self.found == self.size and not self.missing

    @property
    def shortfall(self) -> str:
        """A sentence about how many captures were found."""
        captures, were = plural(self.size, "capture"), "was" if self.size == 1 else "were"
        rows = f"all {self.rows:,} rows" if self.rows > 1 else plural(self.rows, "row")
        return f"only {self.found:,} of {captures} {were} found, among {rows}"

    def batches(self, agree: Callable[[ReadPlan], None] = lambda _: None) -> Iterator[pa.RecordBatch]:
        """Yield the captures in random order, round by round.

        Args:
            agree: is called with the plan of each round, and again after its page indexes were fetched; an exception
                ends the sampling.
        """
        for problem in self.missing:
            warn(problem)
        order, counts = self._order(), Counter[object]()
        found = 0
        while found < self.size and order.drawn < self.rows:
            count = self._round(found, order.drawn)
            if self._is_scan(count, order):
                rows = self._scan(order, counts, self.size - found, agree)
            else:
                rows = self._read(order.next(count), agree)
            chosen = self._first(rows, counts, self.size - found)
            counts.update(self._strata(chosen))
            found += chosen.num_rows
            self.found, self.drawn = found, order.drawn
            yield from chosen.select(self._columns).combine_chunks().to_batches(BATCH_ROWS)
        self.found, self.drawn = found, order.drawn
        if found < self.size:
            warn(self.shortfall)

    def _round(self, found: int, drawn: int) -> int:
        missing = self.size - found
        if not drawn:
            return missing
        expected = math.ceil(1.1 * missing * drawn / found) if found else _GROWTH * drawn
        return max(1, min(expected, _GROWTH * drawn))

    def _is_scan(self, count: int, order: RandomOrder) -> bool:
        if order.drawn + count > order.single:
            return True
        return order.drawn > 0 and count > _SCAN_ROWS and count * _PAGE_ROWS > self.rows

    def _read(self, drawn: Mapping[RowGroupId, DrawnRows], agree: Callable[[ReadPlan], None]) -> pa.Table:
        captures = self._ask(drawn)
        if drawn:
            agree(captures.plan)
            if not captures.plan.is_ready:
                agree(captures.fetch_indexes())
        return captures.to_arrow().sort_by(DRAWN_ORDER)

    def _scan(
        self, order: RandomOrder, counts: Counter[object], limit: int, agree: Callable[[ReadPlan], None]
    ) -> pa.Table:
        best = self._read({}, agree)
        for drawn in order.rest():
            rows = pa.concat_tables([best, self._read(drawn, agree)]).sort_by(DRAWN_ORDER)
            best = self._first(rows, counts, limit).combine_chunks()
        return best

    def _first(self, rows: pa.Table, counts: Counter[object], limit: int) -> pa.Table:
        if self._stratum:
            counts = counts.copy()
            places = []
            for place, stratum in enumerate(self._strata(rows)):
                if counts[stratum] < self._most:
                    counts[stratum] += 1
                    places.append(place)
            rows = rows.take(positions(np.array(places, np.int64)))
        return rows.slice(0, limit)

    def _strata(self, rows: pa.Table) -> list[object]:
        # NaN does not equal itself, but is one value here.
        values = rows.column(self._stratum).to_pylist() if self._stratum else []
        return ["NaN" if value != value else value for value in values]  # noqa: PLR0124

    def to_arrow(self) -> pa.Table:
        """Read the sample as an Arrow table."""
        with self._session.bars("captures") as bar:

            def progress(_: ReadPlan) -> None:
                bar(Progress("sample", self.size, self.found))

            return pa.Table.from_batches(self.batches(progress), schema=self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Read the sample as a DataFrame; see ``Captures.to_pandas``."""
        return frame_of(self.to_arrow())
