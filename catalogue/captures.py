"""Captures: the result of a query, read when it is needed."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import UNUSABLE, FileChanged, QueryError, warn
from catalogue.formatting import ReprMixin
from catalogue.plan.crawl_plan import CrawlPlan
from catalogue.plan.plan import ReadPlan
from catalogue.plan.question import Question
from catalogue.progress import Progress
from catalogue.query.arguments import row_limit
from catalogue.query.deduplicate import Distinct
from catalogue.query.resolved_query import schema_of
from catalogue.read.dataframes import dask_frame, frame_of, polars_frame
from catalogue.read.streams import ReadEvents, in_turns
from catalogue.session import Session

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import polars as pl

    from catalogue.key_map.key_map import KeySpace
    from catalogue.key_map.svg import Picture
    from catalogue.read.workers import Workers

_ROWS = 1 << 12
"""Rows converted to Python values at a time."""


@dataclass(eq=False, repr=False)
class Captures(ReprMixin):
    """The result of a query. Each use reads it again. A failed request raises SourceError."""

    _session: Session
    question: Question
    _workers: "Workers | None" = None
    """They read plans; None for threads of this process."""
    _distinct: Distinct | None = None
    _counts: bool = False
    """Whether only the number of captures is requested."""
    _agree: Callable[[ReadPlan], None] | None = None
    _meter: Callable[[], None] | None = None
    _uncounted: Counter[str] = field(default_factory=Counter, init=False)
    """Rows that the plan counted by an invalid index, and that were read instead."""
    _plan: ReadPlan | None = field(default=None, init=False)
    _length: int | None = field(default=None, init=False)

    def _line(self) -> str:
        return self.plan._line()  # noqa: SLF001 - the captures are shown by their plan

    def _rows(self) -> Iterable[tuple[str, str]]:
        return self.plan._rows()  # noqa: SLF001 - of this class

    def _notes(self) -> Iterator[str]:
        yield from self.plan._notes()  # noqa: SLF001 - of this class
        yield "This is the plan. head(), to_pandas(), to_arrow(), count() and loops read; plot() draws the plan."

    def explain(self) -> ReadPlan:
        """Return the plan, with the cost of the other index where both can answer."""
        return self.question.plan(counts=self._counts, explain=True)

    def spending(self) -> Callable[[], tuple[int, int]]:
        """Return a function that returns the requests and bytes of the session since this call."""
        return self._session.spending()

    @property
    def reads_in_turn(self) -> bool:
        """Whether crawls are planned and read one after the other, until a limit ends the read."""
        query = self.question.query
        return query.stops_early and not self._counts and len(self.question.crawls) > 1

    def agreed(self, agree: Callable[[ReadPlan], None], meter: Callable[[], None] | None = None) -> "Captures":
        """Return the same captures, whose cost is checked before they are read.

        Args:
            agree: is called with the plan, and again after page indexes were fetched and searches made; for captures
                that are read in turn, with the plan of each part. An exception ends the read.
            meter: is called after each row group or read of blocks, if a limit may end the read early; as ``agree``.
        """
        other = replace(self, _agree=agree, _meter=meter)
        other._plan = self._plan  # noqa: SLF001 - of this class
        return other

    @property
    def plan(self) -> ReadPlan:
        """What is read, and its cost; an estimate while page indexes are missing."""
        if self._plan is None or self.question.failed(self._plan):
            self._plan = self.question.plan(counts=self._counts)
        return self._plan

    def space(self, crawl: str | None = None) -> "KeySpace":
        """Return where the plan reads in the keys of a crawl, by default the newest one that is read.

        Raises:
            QueryError: if the query does not include the crawl, or its footers are not stored.
        """
        from catalogue.key_map.key_map import query_space

        return query_space(self._session, self.question, self.plan, crawl)

    def plot(self, crawl: str | None = None) -> "Picture":
        """Draw the plan as SVG: files of a crawl, their row groups and pages, and which of them are read.

        Nothing is read for it. Pages are drawn once their indexes are stored; see ``fetch_indexes``.

        Args:
            crawl: by default the newest one that is read.

        Raises:
            QueryError: if the query does not include the crawl.
        """
        from catalogue.key_map.svg import draw_query

        return draw_query(self.space(crawl), self.plan)

    @property
    def complete(self) -> bool:
        """Whether everything that may match can be read; otherwise rows may be missing."""
        return not self.plan.missing

    def fetch_indexes(self, *, report: Callable[[Progress], None] | None = None) -> ReadPlan:
        """Fetch and store missing page indexes, or search lists of blocks; return the new plan.

        Args:
            report: is called with progress, instead of a bar.
        """
        plan = self.plan  # another thread may note that an index has failed, which changes it
        at = Progress("page indexes" if plan.indexes else "lists of blocks", 0, 0)
        spent = self._session.spending()
        with self._session.bars("") as bar:

            def advance() -> None:
                at.done, at.bytes = at.done + 1, spent()[1]
                (report or bar)(at)

            # After some page indexes are known, fetching others can be worth its cost.
            while not plan.is_ready:
                if self._agree:
                    self._agree(plan)
                at.listed += len(plan.indexes) + len(plan.searched)
                self.question.prepare(plan, advance)
                self._plan = plan = self.question.plan(counts=self._counts)
        return plan

    @property
    def more(self) -> bool:
        """Whether more rows may match than a limit allows, after the rows were read: whether it was reached."""
        limit = self._distinct.limit if self._distinct else self.question.query.limit
        return limit is not None and self._length == limit

    @property
    def distinct(self) -> bool:
        return self._distinct is not None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result with their types."""
        query = self.question.query.counting if self._counts else self.question.query
        schema = schema_of(query, query.columns)
        return pa.schema([schema.field(name) for name in self._distinct.columns]) if self._distinct else schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict; see ``batches``."""
        with closing(self.batches()) as batches:
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS):
                    yield from batch.slice(start, _ROWS).to_pylist()

    def head(self, n: int = 5) -> "pd.DataFrame":
        """Return the first rows as a DataFrame; reading stops when they are found."""
        n = row_limit(n)
        if self._distinct:
            return replace(self, _distinct=self._distinct.limited(n)).to_pandas()
        return replace(self, question=self.question.limited(n)).to_pandas()

    def batches(
        self, *, warn: bool = True, report: Callable[[Progress], None] | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows in batches, in bounded memory (unless they are ordered, or the latest of something).

        Args:
            warn: whether to warn if rows may be missing.
            report: is called after each row group.
        """
        length, read = 0, self._in_turn if self.reads_in_turn else self._read
        with closing(read(report or (lambda _: None), warn=warn)) as found:
            for batch in self._distinct.of(found, self.plan.schema) if self._distinct else found:
                length += batch.num_rows
                yield batch
        self._length = None if self._counts else length

    def _in_turn(self, report: Callable[[Progress], None], *, warn: bool) -> Generator[pa.RecordBatch, None, None]:
        question, read, step = self.question, 0, 1
        left = question.query.limit or 0
        plans: list[CrawlPlan] = []
        while left and read < len(question.crawls):
            part = replace(self, question=question.part(question.crawls[read : read + step]).limited(left))
            with closing(part._read(report, warn=warn)) as batches:  # noqa: SLF001 - of this class
                for batch in batches:
                    left -= batch.num_rows
                    yield batch
            plans += part.plan.crawls
            read, step = read + step, 2 * step
        self._plan = ReadPlan(question.query, question.cost, tuple(plans), question.unlisted)

    def _read(self, report: Callable[[Progress], None], *, warn: bool) -> Generator[pa.RecordBatch, None, None]:
        plan, returned = self.plan, Counter[str]()
        if not plan.is_ready:
            plan = self.fetch_indexes(report=report)
        if self._agree:
            self._agree(plan)
        if warn:
            self._warn()
        self._uncounted.clear()
        if not (plan.files or plan.blocks):
            return
        try:
            for batch in self._run(plan, report):
                yield batch
                returned.update(_rows_by_crawl(batch))
        except UNUSABLE as error:
            failed = self.question.failed(plan)
            # The other index may have another version of a file that changed, and other rows in another order.
            is_mixed = not plan.query.is_inorder or (isinstance(error, FileChanged) and returned.keys() & failed)
            if not failed or (returned and is_mixed and not self._counts):
                raise
        else:
            return
        if returned and not self._counts:
            yield from self._rest(returned, report)
        else:
            yield from self._read(report, warn=False)
            self._uncounted.update(returned)  # they were counted again

    def _rest(self, returned: Mapping[str, int], report: Callable[[Progress], None]) -> Iterator[pa.RecordBatch]:
        """Read what follows rows that were returned of each crawl; the other index has the same rows in this order."""
        question = self.question
        at = max(map(question.crawls.index, returned))
        skipped = returned[question.crawls[at]]
        part = question.part(question.crawls[at:])
        if question.query.limit is not None:
            part = part.limited(question.query.limit - sum(returned.values()) + skipped)
        for batch in replace(self, question=part)._read(report, warn=False):  # noqa: SLF001 - of this class
            yield from [batch.slice(skipped)] if skipped < batch.num_rows else ()
            skipped = max(0, skipped - batch.num_rows)

    def _run(self, plan: ReadPlan, report: Callable[[Progress], None]) -> Generator[pa.RecordBatch, None, None]:
        at = Progress("reading", plan.row_groups, 0)
        for planned in plan.blocks:
            at.listed += len(planned.reads)

        def done() -> None:
            at.done += 1
            report(at)
            if self._meter and plan.query.stops_early:
                self._meter()

        question = self.question

        def uncount(crawl: str, rows: int) -> None:
            self._uncounted[crawl] += rows

        events = ReadEvents(self._session.notify, uncount, done, question.note_version, question.note_failure)
        workers = self._workers
        lists = question.lists() if plan.blocks else None  # not at the end, when Python may be shutting down
        try:
            if workers:
                batches = workers.read(plan, events)
            else:
                from catalogue.read.reader import read

                batches = read(plan, question.source(), self._session.request_threads, events)
            with closing(batches):
                yield from batches
        finally:
            if lists:
                lists.save_versions()

    def _warn(self) -> None:
        for problem in (*self.plan.missing, *self.question.query.absences(self.question.crawls)):
            warn(problem)

    def counting(self) -> "Captures":
        """Return a query of the number of captures, which ``count`` reads."""
        if self._counts or self._distinct:
            return self
        return replace(self, _counts=True)

    def __len__(self) -> int:
        """Return the number of captures, if it is known without a read; otherwise raise TypeError."""
        if self._length is None and not (self.plan.is_ready and not self.plan.waves):
            raise TypeError(
                "the number of captures is not known before they are read; count() reads, and plan says how much"
            )
        return self.count() if self._length is None else self._length

    def __bool__(self) -> bool:
        """Return True: an empty result is a result."""
        return True

    def count(self) -> int:
        """Count the captures; pages that match completely are counted by their metadata."""
        counting = self.counting()
        rows = counting._counted().total()  # noqa: SLF001 - of this class
        limit = counting.plan.query.limit  # None for distinct captures, which are limited already
        self._length = rows if limit is None else min(rows, limit)
        return self._length

    def count_by_crawl(self) -> dict[str, int]:
        """Count the captures of each crawl that has any, newest first.

        Raises:
            QueryError: if there is a limit, or the dataset has no crawls.
        """
        counting = self.counting()
        limit = counting._distinct.limit if counting._distinct else counting.plan.query.limit  # noqa: SLF001 - of this class
        if "crawl" not in counting.schema.names or limit is not None:
            raise QueryError("counting by crawl needs a query without a limit, and a dataset whose paths name crawls")
        found = counting._counted()  # noqa: SLF001 - of this class
        return {crawl: found[crawl] for crawl in newest_first(found) if found[crawl]}

    def _counted(self) -> Counter[str]:
        found = Counter[str]()
        with self._session.bars("row groups") as bar:
            for batch in self.batches(report=bar):
                found.update(_rows_by_crawl(batch))
        found.update(self.plan.counted)
        found.subtract(self._uncounted)
        return found

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        with self._session.bars("row groups") as bar:
            return pa.Table.from_batches(self.batches(report=bar), schema=self.schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an Arrow PyCapsule, without a stream."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow PyCapsule for polars, DuckDB, pandas and others, in bounded memory.

        Each stream reads again, in any thread, one batch at a time for each catalogue.
        """
        other = replace(self)  # streams that are read at the same time do not share counters
        batches = in_turns(other.batches(), self._session.turns)
        return pa.RecordBatchReader.from_batches(self.schema, batches).__arrow_c_stream__(requested_schema)

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a polars DataFrame; see ``Catalogue.scan`` for a LazyFrame.

        Raises:
            QueryError: if polars is not installed.
        """
        return polars_frame(self.to_arrow())

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a DataFrame; integers stay integers where values are missing, and times are in UTC."""
        return frame_of(self.to_arrow())

    def to_dask(self) -> "dd.DataFrame":
        """Return a Dask DataFrame with a partition for each part of the plan.

        The rate is divided among the machines of the current client. Nothing that is read is stored.

        Raises:
            QueryError: if Dask is not installed, or rows are limited or ordered.
        """
        from catalogue.read.dask_cluster import client_machines
        from catalogue.read.workers import tasks

        query = self.question.query
        if query.limit is not None or query.ordered or self._distinct:
            raise QueryError(
                "to_dask() returns all rows, in the order of the files; leave out limit, ordered, unique and latest"
            )
        settings = self._session.machine_settings(client_machines())
        plan = self.fetch_indexes()
        self._warn()
        parts = tasks(replace(plan, query=replace(plan.query, any_order=True)), settings)
        return dask_frame(list(parts), plan.schema.empty_table())


def _rows_by_crawl(batch: pa.RecordBatch) -> dict[str, int]:
    if "crawl" not in batch.schema.names:
        return {"": batch.num_rows}
    crawls, counts = batch.column("crawl").value_counts().flatten()
    return dict(zip(crawls.to_pylist(), counts.to_pylist(), strict=True))
