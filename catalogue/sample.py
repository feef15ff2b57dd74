"""A random sample of captures: rows are drawn from all there are, read, and kept if they match."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from catalogue.captures import Captures
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.formatting import ReprMixin, plural
from catalogue.parquet.arrow_arrays import positions
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.progress import Bars, Progress, no_bar
from catalogue.query.random_order import Drawn, Draws, Place, time_of
from catalogue.query.resolved_query import DRAWN, check_columns
from catalogue.read.dataframes import frame_of
from catalogue.read.decode import BATCH_ROWS
from catalogue.session import Session

if TYPE_CHECKING:
    import pandas as pd

_GROWTH = 8
"""How many times as many rows as before are drawn at most, where few of those matched."""
_MOST = 1 << 20
"""Rows that are drawn at once at most."""
_MANY, _A_PAGE = 50_000, 5_000
"""Rows from which on it matters how often a page is read; one drawn of so many rows leaves out hardly a page."""


class _Strata:
    """Of each value of a column so many rows at most; of no column, all."""

    def __init__(self, column: str | None, most: int) -> None:
        self._column = column
        self._most = most
        self._taken: Counter[object] = Counter()

    def first(self, rows: pa.Table, most: int) -> pa.Table:
        """The first rows for which there is room, and ``most`` at most; none is taken yet."""
        if self._column:
            taken = self._taken.copy()
            places = []
            for place, value in enumerate(self._values(rows)):
                if taken[value] < self._most:
                    taken[value] += 1
                    places.append(place)
            rows = rows.take(positions(np.array(places, np.int64)))
        return rows.slice(0, most)

    def take(self, rows: pa.Table) -> None:
        """Count rows that are in the sample now."""
        if self._column:
            self._taken.update(self._values(rows))

    def _values(self, rows: pa.Table) -> Iterator[object]:
        # All that are no numbers are one value, though none of them equals another.
        return ("NaN" if value != value else value for value in rows.column(self._column).to_pylist())  # noqa: PLR0124


class Sample(ReprMixin):
    """Captures of which each was as likely to be here as any other; drawn when they are looked at.

    The same seed gives the same sample, of which a smaller one is the beginning, whatever else is held by then of other
    crawls, and however much of what is asked about could be ruled out unread.
    """

    def __init__(  # noqa: PLR0913 - each is named
        self,
        size: int,
        groups: Mapping[Place, int],
        ask: Callable[[Mapping[Place, Drawn]], Captures],
        *,
        columns: tuple[str, ...],
        seed: int = 0,
        per: str | None = None,
        most: int = 1,
        missing: tuple[str, ...] = (),
        bars: Bars = no_bar,
    ) -> None:
        """Say what is to be drawn.

        Args:
            size: how many captures are wanted.
            groups: how many rows there are in each row group that might hold some that match.
            ask: a question about drawn rows, its answer to have the column ``DRAWN``.
            columns: of the sample; the answers may have more.
            seed: of what is random.
            per: a column of the answers, of each of whose values there are at most ``most`` captures; having none is
                one such value.
            most: see ``per``.
            missing: what of all that is not held, a sentence each.
            bars: show how far it is.

        Raises:
            QueryError: if that is no sample.
        """
        if size < 1 or most < 1:
            message = f"a sample of {size:,} captures, {most:,} of each, is none; ask for one at least"
            raise QueryError(message)
        self.size = size
        self.missing = missing
        self._groups = groups
        self._ask = ask
        self._columns = columns
        self._seed = seed
        self._per = per
        self._most = most
        self._bars = bars
        self.found = 0
        """How many captures the last look at it found."""
        self.drawn = 0
        """How many rows it looked at for them, or ruled out."""
        self.rows = sum(groups.values())
        """How many there are to be drawn from."""

    def _line(self) -> str:
        return f"of {plural(self.size, 'capture')}, drawn from {plural(self.rows, 'row')}"

    def _notes(self) -> Iterator[str]:
        if self.drawn:
            yield f"The last look found {plural(self.found, 'capture')}, and looked at {plural(self.drawn, 'row')}."
        yield "plan says what is read at first; to_pandas(), to_arrow() and batches() read."
        yield from (f"It is no sample of all that was asked for: {lack}" for lack in self.missing)

    @property
    def plan(self) -> ReadPlan:
        """What is read at first; of rows that are refused others take the place, in later rounds."""
        return self._ask(Draws(self._groups, self._seed).next(self.size)).plan

    @property
    def schema(self) -> pa.Schema:
        """Of the sample."""
        schema = self._ask({}).plan.schema
        return pa.schema([schema.field(name) for name in self._columns])

    @property
    def complete(self) -> bool:
        """Whether the last look found as many as are wanted, and nothing is missing that they could be drawn from."""
        return self.found == self.size and not self.missing

    def batches(self, agree: Callable[[ReadPlan], None] = lambda _: None) -> Iterator[pa.RecordBatch]:
        """The captures, in the order in which they were drawn, round by round; each look draws them anew.

        Args:
            agree: called with the plan of each round before it is read, and again when its indexes have been fetched;
                what it raises ends the sampling.

        Raises:
            SourceError: if something planned could not be read.
        """
        for lack in self.missing:
            warnings.warn(lack, IncompleteAnswer, stacklevel=2)
        draws, strata = Draws(self._groups, self._seed), _Strata(self._per, self._most)
        found = drawn = 0
        after = 0.0
        scanning = False
        while found < self.size and after < math.inf:
            wanted = self._round(found, drawn)
            scanning = scanning or self._is_scan(wanted, drawn)
            if scanning:
                share = -math.expm1(-after) + (wanted + 4 * math.sqrt(wanted)) / max(1, self.rows)
                until = time_of(share) if found else math.inf  # behind ``after``, or rows would be drawn again
                rows = self._scanned(after, until, strata, self.size - found, agree)
                after, drawn = until, round(self.rows * -math.expm1(-until))
            else:
                rows = self._asked(draws.next(wanted), agree)
                after, drawn = (draws.time if draws.done < self.rows else math.inf), draws.done
            kept = strata.first(rows, self.size - found)
            strata.take(kept)
            found += kept.num_rows
            self.found, self.drawn = found, drawn
            yield from kept.select(self._columns).combine_chunks().to_batches(BATCH_ROWS)
        self.found, self.drawn = found, drawn if found == self.size else self.rows
        if found < self.size:
            message = f"only {found:,} of {self.size:,} captures were found, among all {self.rows:,} rows"
            warnings.warn(message, IncompleteAnswer, stacklevel=2)

    def _round(self, found: int, drawn: int) -> int:
        """How many rows are to be drawn next, about."""
        lacking = self.size - found
        if not drawn:
            return lacking
        expected = math.ceil(1.1 * lacking * drawn / found) if found else _GROWTH * drawn
        return max(1, min(expected, _GROWTH * drawn))

    def _is_scan(self, wanted: int, drawn: int) -> bool:
        """Whether so many rows are drawn that nearly every page is read, so that it is better done in one go."""
        return wanted > _MOST or (drawn > 0 and wanted > _MANY and wanted * _A_PAGE > self.rows)

    def _asked(self, drawn: Mapping[Place, Drawn], agree: Callable[[ReadPlan], None]) -> pa.Table:
        """Those of drawn rows that match, by their times."""
        asked = self._ask(drawn)
        if drawn:
            agree(asked.plan)
            if asked.plan.indexes:
                agree(asked.fetch_indexes())
        return asked.to_arrow().sort_by(DRAWN)

    def _scanned(
        self, after: float, until: float, strata: "_Strata", most: int, agree: Callable[[ReadPlan], None]
    ) -> pa.Table:
        """The first rows that match of all drawn between two times, some row groups at a time."""
        best = self._asked({}, agree)
        for groups in self._some(until):
            rows = self._asked(Draws(groups, self._seed).between(after, until), agree)
            best = strata.first(pa.concat_tables([best, rows]).sort_by(DRAWN), most).combine_chunks()
        return best

    def _some(self, until: float) -> Iterator[dict[Place, int]]:
        """Row groups of which together so many rows are drawn as fit into memory."""
        share = -math.expm1(-until)
        some: dict[Place, int] = {}
        rows = 0.0
        for place, size in self._groups.items():
            some[place] = size
            rows += size * share
            if rows > _MOST:
                yield some
                some, rows = {}, 0.0
        if some:
            yield some

    def to_arrow(self) -> pa.Table:
        """The sample as an Arrow table."""
        with self._bars("captures") as bar:

            def told(_: ReadPlan) -> None:
                bar(Progress("sample", self.size, self.found))

            return pa.Table.from_batches(self.batches(told), schema=self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """The sample as a DataFrame; see ``Captures.to_pandas``."""
        return frame_of(self.to_arrow())


_STRATA = {"host": "url_host_name", "domain": "url_host_registered_domain"}
"""Short names of columns of Common Crawl's index."""


def draw_sample(
    session: Session, captures: Captures, size: int, *, seed: int = 0, per: str | None = None, most: int = 1
) -> Sample:
    """Draw a random sample of captures; see ``Catalogue.sample``."""
    query, scope = captures.question.query, captures.question.scope
    if query.limit is not None or query.ordered or captures.distinct:
        message = "a sample is of all captures, in no order; leave out limit, ordered, unique and latest"
        raise QueryError(message)
    short = _STRATA if session.dataset == COMMON_CRAWL else {}
    there = session.metadata().columns
    stratum = check_columns([short.get(per, per)], there, session.dataset) if per is not None else ()
    drawing = replace(query, columns=(*query.columns, *stratum), draws=True)
    files = {file.path: file for file in scope.candidates}

    def ask(drawn: Mapping[Place, Drawn]) -> Captures:
        by_path: dict[str, dict[int, Drawn]] = {}
        for (path, ordinal), rows in drawn.items():
            by_path.setdefault(path, {})[ordinal] = rows
        chosen = tuple(
            replace(files[path], row_groups=tuple(each for each in files[path].row_groups if each[0] in rows))
            for path, rows in sorted(by_path.items())
        )
        some = Scope(chosen, scope.considered, (), by_path)
        question = PlanContext(drawing, some, session.footers, lambda: session.rereading, session.cost())
        return Captures(
            question, session.machine_settings, space=captures.space_of, notify=session.notify, bars=session.bars
        )

    return Sample(
        size,
        session.metadata().sizes(scope.candidates),
        ask,
        columns=tuple(dict.fromkeys([*query.columns, *session.dataset.path_columns])),
        seed=seed,
        bars=session.bars,
        per=next(iter(stratum), None),
        most=most,
        missing=scope.missing
        + tuple(
            f"{path} has no column {session.dataset.key} to find rows by"
            for path in session.metadata().without(session.dataset.key, scope.candidates)
        ),
    )
