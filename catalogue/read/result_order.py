"""The order of a result: subsets, in each the newest crawl first, in each by key."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.commoncrawl.crawls import SUBSETS, newest_first
from catalogue.parquet.arrow_arrays import numbers
from catalogue.plan.plan import ReadPlan


class Place(NamedTuple):
    """The place of a crawl's subset in the result."""

    subset: int
    crawl: int


class ResultOrder:
    """The places of the crawls of a plan."""

    def __init__(self, plan: ReadPlan) -> None:
        crawls = {each.crawl for each in plan.blocks} | {each.file.crawl for each in plan.files}
        self._crawls = {crawl: place for place, crawl in enumerate(newest_first(crawls))}

    def place(self, crawl: str, subset: str) -> Place:
        return Place(SUBSETS.index(subset) if subset in SUBSETS else len(SUBSETS), self._crawls[crawl])

    def merged(self, columnar: Iterable[pa.Table], blocks: Iterable[tuple[Place, pa.Table]]) -> Iterator[pa.Table]:
        """Merge the rows of both indexes, each of which is in this order; no place has rows of both."""
        found = (each for table in columnar for each in self._parts(table))
        return (table for _, table in merge(found, blocks, key=lambda each: each[0]))

    def _parts(self, table: pa.Table) -> Iterator[tuple[Place, pa.Table]]:
        """Split a table with the columns crawl and subset into one for each place."""
        names = [table.column(name).combine_chunks() for name in ("crawl", "subset")]
        changes = pc.or_(*(pc.not_equal(name[1:], name[:-1]) for name in names))
        cuts = (numbers(pa.chunked_array([pc.indices_nonzero(changes)])) + 1).tolist()
        for start, end in pairwise([0, *cuts, table.num_rows]):
            if start < end:
                yield self.place(*(name[start].as_py() for name in names)), table.slice(start, end - start)
