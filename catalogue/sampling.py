"""A random sample of captures: rows are drawn from all there are, read, and kept if they match."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from catalogue.captures import Captures
from catalogue.draws import Drawn, Draws, Place
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.frames import frame_of
from catalogue.plan import ReadPlan
from catalogue.query import DRAWN
from catalogue.reader import BATCH_ROWS
from catalogue.values import positions

if TYPE_CHECKING:
    import pandas as pd

_GROWTH = 8
"""How many times as many rows as before are drawn at most, where few of those matched."""
_MOST = 1 << 20
"""Rows that are drawn at once at most."""


class Sample:
    """Captures of which each was as likely to be here as any other; drawn when they are looked at.

    The same seed gives the same sample, of which a smaller one is the beginning, whatever else is held by then of other
    crawls, and however much of what is asked about could be ruled out unread.
    """

    def __init__(
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
    ) -> None:
        """Say what is to be drawn.

        Args:
            size: how many captures are wanted.
            groups: how many rows there are in each row group that might hold some that match.
            ask: a question about drawn rows, its answer to have the column ``DRAWN``.
            columns: of the sample; the answers may have more.
            seed: of what is random.
            per: a column of the answers, of each of whose values there are at most ``most`` captures.
            most: see ``per``.
            missing: what of all that is not held, a sentence each.

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
        self.found = 0
        """How many captures the last look at it found."""
        self.drawn = 0
        """How many rows it looked at for them, or ruled out."""
        self.rows = sum(groups.values())
        """How many there are to be drawn from."""

    def __repr__(self) -> str:
        return f"<Sample of {self.size:,} captures, drawn from {self.rows:,} rows>"

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
        """The captures, in the order in which they were drawn, round by round.

        Args:
            agree: called with the plan of each round before it is read, and again when its indexes have been fetched;
                what it raises ends the sampling.

        Raises:
            SourceError: if something planned could not be read.
        """
        for lack in self.missing:
            warnings.warn(lack, IncompleteAnswer, stacklevel=2)
        draws = Draws(self._groups, self._seed)
        self.found, self.drawn = 0, 0
        strata: Counter[object] = Counter()
        while self.found < self.size and (drawn := draws.next(self._round())):
            self.drawn = draws.done
            asked = self._ask(drawn)
            agree(asked.plan)
            if asked.plan.indexes:
                agree(asked.fetch_indexes())
            kept = self._kept(asked.to_arrow().sort_by(DRAWN), strata)
            self.found += kept.num_rows
            yield from kept.combine_chunks().to_batches(BATCH_ROWS)
        if self.found < self.size:
            message = f"only {self.found:,} of {self.size:,} captures were found, among all {self.rows:,} rows"
            warnings.warn(message, IncompleteAnswer, stacklevel=2)

    def _round(self) -> int:
        """How many rows are to be drawn next."""
        lacking = self.size - self.found
        if not self.drawn:
            return lacking
        expected = ceil(1.1 * lacking * self.drawn / self.found) if self.found else _MOST
        return max(1, min(expected, _GROWTH * self.drawn, _MOST))

    def _kept(self, rows: pa.Table, strata: Counter[object]) -> pa.Table:
        """Those of rows, in the order in which they were drawn, that the sample has room for."""
        if self._per:
            places = []
            for place, value in enumerate(rows.column(self._per).to_pylist()):
                if strata[value] < self._most:
                    strata[value] += 1
                    places.append(place)
            rows = rows.take(positions(np.array(places, np.int64)))
        return rows.select(self._columns).slice(0, self.size - self.found)

    def to_arrow(self) -> pa.Table:
        """The sample as an Arrow table."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """The sample as a DataFrame; see ``Captures.to_pandas``."""
        return frame_of(self.to_arrow())
