"""Captures that were asked for and not read yet."""

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pandas as pd
import pyarrow as pa

from catalogue.errors import IncompleteAnswer
from catalogue.plan import ReadPlan
from catalogue.reader import read
from catalogue.source import PoliteSource

_NULLABLE = {
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
"""What pandas must be told, or a column of integers with a null in it becomes one of floats."""


class Captures:
    """The answer to a question, read when it is looked at; each look reads it anew."""

    def __init__(self, plan: ReadPlan, source: Callable[[], PoliteSource]) -> None:
        """Hold a plan and where to run it; ``source`` is called at the first look."""
        self.plan = plan
        """What will be read, and what that costs."""
        self._source = source

    def __repr__(self) -> str:
        about = "" if self.plan.exact else "at most "
        return (
            f"<Captures of {', '.join(self.plan.query.patterns[:3])}: {self.plan.row_groups} row groups, "
            f"{about}{self.plan.requests} requests, {about}{self.plan.bytes:,} bytes>"
        )

    @property
    def complete(self) -> bool:
        """Whether all files that might match are held; if not, the answer may lack rows."""
        return not self.plan.missing

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some thousands at a time, in bounded memory (unless they are to be ordered).

        Raises:
            SourceError: if something planned could not be read.
        """
        for lack in self.plan.missing:
            warnings.warn(lack, IncompleteAnswer, stacklevel=2)
        if not self.plan.requests:
            return
        source = self._source()
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="read")
        try:
            with closing(read(self.plan, source, executor)) as batches:
                yield from batches
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.Table.from_batches(self.batches(), schema=self.plan.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame; integers stay integers where values are missing, and times are in UTC."""
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=_NULLABLE.get)
        return frame
