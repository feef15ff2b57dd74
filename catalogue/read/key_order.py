"""The order of a result: newest crawl first, then by subset, by key, and by the other columns.

It follows from the returned rows alone, so both indexes return the rows of a crawl in the same order. Where row groups
overlap, rows wait until no row with a lower key can follow.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import accumulate, chain, islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import text
from catalogue.plan.plan import ReadPlan, Section, sections
from catalogue.query.resolved_query import schema_of
from catalogue.read.decode import BATCH_ROWS
from catalogue.read.row_order import RowOrder, is_all
from catalogue.read.waiting_rows import WaitingRows
from catalogue.surt import END


class Piece(NamedTuple):
    """Rows of a section, and what follows."""

    rows: pa.Table | None
    least: bytes
    """A lower bound of the keys of the section's later rows; ``END`` if it has none."""


def result_of(plan: ReadPlan, columnar: Iterable[Piece], blocks: Iterable[Piece]) -> Iterator[pa.Table]:
    """Yield the rows of a plan in the order of its query; pieces come section by section.

    Raises:
        OSError: if rows that wait cannot be written to disk.
    """
    if plan.files and plan.blocks and not plan.stops_early:
        # The requests for the first rows of both start here.
        columnar, blocks = map(_started, (columnar, blocks))
    if plan.query.is_inorder:
        of_files, of_blocks = iter(columnar), iter(blocks)
        return in_key_order(plan, (of_blocks if section.blocks else of_files for section in sections(plan)))
    tables = (piece.rows for piece in chain(columnar, blocks) if piece.rows is not None)
    return in_time_order(plan, plan.row_schema, tables) if plan.query.ordered else tables


def in_key_order(plan: ReadPlan, pieces: Iterable[Iterator[Piece]]) -> Iterator[pa.Table]:
    """Yield rows in the order of the result, with the columns of the result and the key.

    ``pieces`` has an iterator for each section, which yields the pieces of the section first.

    Raises:
        OSError: if rows that wait cannot be written to disk.
    """
    query = plan.query
    order = RowOrder(query.table.key, query.ranking)
    names = list(dict.fromkeys([query.table.key, *plan.schema.names]))
    schema = pa.schema([plan.row_schema.field(name) for name in names])
    for section, of_section in zip(sections(plan), pieces, strict=True):
        with ExitStack() as stack:
            waiting = [stack.enter_context(closing(WaitingRows(schema, order))) for _ in section.subsets]
            for rows, least in _until_end(of_section):
                if rows is not None:
                    _add(rows.select(names), section, waiting)
                yield from waiting[0].below(least)
                for later in waiting[1:]:
                    yield from later.below(b"")
            for later in waiting[1:]:
                yield from later.below(END)


def _add(rows: pa.Table, section: Section, waiting: Sequence[WaitingRows]) -> None:
    for subset, of_subset in zip(section.subsets, waiting, strict=True):
        some = rows.filter(pc.equal(rows.column("subset"), text(subset))) if len(waiting) > 1 else rows
        if some.num_rows:
            of_subset.add(some)


def in_time_order(plan: ReadPlan, schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows sorted by key, time, crawl and the other columns; all of them are in memory."""
    table = plan.query.table
    # Columns of more than 2 GiB of text need a type with 64-bit offsets.
    roomy = pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in schema])
    everything = pa.concat_tables([pa.Table.from_batches([], roomy), *(each.cast(roomy) for each in tables)])
    columns = schema_of(plan.query, plan.query.columns).names
    order = [name for name in dict.fromkeys([table.key, table.time, "crawl", *columns]) if name in roomy.names]
    inorder = everything.sort_by([(name, "ascending") for name in order])
    for start in range(0, inorder.num_rows, BATCH_ROWS):
        yield inorder.slice(start, BATCH_ROWS).cast(schema)


def _started(pieces: Iterable[Piece]) -> Iterator[Piece]:
    rest = iter(pieces)
    return chain([*islice(rest, 1)], rest)


def _until_end(pieces: Iterator[Piece]) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        if piece.least == END:
            return


class GroupsLeft:
    """Lower bounds of the keys from each row group of a plan on."""

    def __init__(self, plan: ReadPlan) -> None:
        self._sections: list[Section] = []
        self._leasts: list[bytes] = []
        """Least key from each row group on in its section."""
        for section in sections(plan):
            leasts = [group.least for file in section.files for group in file.row_groups]
            self._leasts += reversed([*accumulate(reversed(leasts), min)])
            self._sections += [section] * len(leasts)

    def after(self, number: int) -> bytes:
        """Return the bound after a row group; ``END`` for the last one of its section."""
        following = self._sections[number + 1 : number + 2]
        return self._leasts[number + 1] if following and following[0] is self._sections[number] else END


class KeysLeft:
    """Lower bounds of the keys from each of consecutive rows on."""

    def __init__(self, pieces: Iterable[pa.BinaryArray]) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._starts: list[int] = np.cumsum([0, *map(len, self._pieces)]).tolist()
        self._ascend = [_ascends(piece) for piece in self._pieces]
        leasts = [_least(piece, ascends) for piece, ascends in zip(self._pieces, self._ascend, strict=True)]
        self._after = [*accumulate(reversed(leasts), min, initial=END)][::-1]
        """Least key from each piece on."""

    def at(self, row: int) -> bytes:
        """Return the bound from a row on; ``END`` if there is no such row."""
        number = bisect_right(self._starts, row) - 1
        if number == len(self._pieces) or not self._ascend[number]:
            return self._after[number]
        key: bytes = self._pieces[number][row - self._starts[number]].as_py()
        return min(key, self._after[number + 1])


def _ascends(keys: pa.BinaryArray) -> bool:
    return not keys.null_count and is_all(pc.less_equal(keys[:-1], keys[1:]))


def _least(keys: pa.BinaryArray, ascends: bool) -> bytes:  # noqa: FBT001
    scalar = keys[0] if ascends else pc.min_max(keys).values()[0]
    least: bytes = scalar.as_py() if scalar.is_valid else END
    return least
