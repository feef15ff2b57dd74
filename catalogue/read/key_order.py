"""The order of a result: newest crawl first, then by subset, by key, and by the other columns.

It follows from the returned rows alone, so both indexes return the rows of a crawl in the same order. Where row groups
overlap, rows wait until no row with a lower key can follow.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.atomic_files import named
from catalogue.parquet.arrow_arrays import ascends, integers, joined, limited, positions, text, true_positions
from catalogue.plan.plan import ReadPlan, sections
from catalogue.query.key_intervals import as_bytes
from catalogue.query.resolved_query import schema_of
from catalogue.read.streams import BATCH_BYTES, BATCH_ROWS
from catalogue.surt.interval import END


class Piece(NamedTuple):
    """Rows of a section, and what follows."""

    rows: pa.Table | None
    least: bytes
    """A lower bound of the keys of the section's later rows; ``END`` if it has none."""


def result_of(plan: ReadPlan, columnar: Iterable[Piece], blocks: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a plan in the order of its query, up to its limit; pieces come section by section.

    Raises:
        OSError: if rows that wait cannot be written to disk.
    """
    if plan.query.is_inorder:
        tables = _in_key_order(plan, iter(columnar), iter(blocks))
    else:
        tables = (piece.rows for piece in chain(columnar, blocks) if piece.rows is not None)
        tables = in_time_order(plan, plan.row_schema, tables) if plan.query.ordered else tables
    for rows in limited(tables, plan.query.limit):
        yield from batches_of(rows.select(plan.schema.names))


def batches_of(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    size = rows.get_total_buffer_size()  # at least that of the rows, which takes longer to compute
    if size > BATCH_BYTES:
        size = rows.nbytes
    step = max(1, min(BATCH_ROWS, BATCH_BYTES * rows.num_rows // max(1, size)))
    for start in range(0, rows.num_rows, step):
        yield from rows.slice(start, step).combine_chunks().to_batches()


def _in_key_order(plan: ReadPlan, columnar: Iterator[Piece], blocks: Iterator[Piece]) -> Iterator[pa.Table]:
    """Yield rows in the order of the result, with the columns of the result and the key.

    Raises:
        OSError: if rows that wait cannot be written to disk.
        AssertionError: if pieces are left after the last section.
    """
    query = plan.query
    key, time = query.table.key, query.table.time
    first = [time] if time in query.columns else []  # rows with equal keys are sorted by time first
    columns = dict.fromkeys([*first, *query.columns])
    others = [name for name in columns if name not in {key, *query.table.path_columns}]
    names = list(dict.fromkeys([key, *plan.schema.names]))
    schema = pa.schema([*map(plan.row_schema.field, names)])
    for section in sections(plan):
        with ExitStack() as stack:
            waiting = [WaitingRows(schema, key, others, stack) for _ in section.subsets]
            for rows, least in blocks if section.of_blocks else columnar:
                for subset, of_subset in zip(section.subsets, waiting, strict=True):
                    some = rows and rows.select(names)
                    if some and len(waiting) > 1:
                        some = some.filter(pc.equal(some.column("subset"), text(subset)))
                    yield from of_subset.below(least if of_subset is waiting[0] else b"", some)
                if least == END:
                    break
            for later in waiting[1:]:
                yield from later.below(END)
    if next(columnar, None) or next(blocks, None):
        raise AssertionError("rows were read that are in no section of the plan")


def in_time_order(plan: ReadPlan, schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Sort rows by key, time, crawl and the other columns; all of them are in memory."""
    table = plan.query.table
    # Columns of more than 2 GiB of text need a type with 64-bit offsets.
    roomy = pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in schema])
    everything = pa.concat_tables([pa.Table.from_batches([], roomy), *(each.cast(roomy) for each in tables)])
    columns = schema_of(plan.query, plan.query.columns).names
    order = [name for name in dict.fromkeys([table.key, table.time, "crawl", *columns]) if name in roomy.names]
    inorder = everything.sort_by([(name, "ascending") for name in order])
    for start in range(0, inorder.num_rows, BATCH_ROWS):
        yield inorder.slice(start, BATCH_ROWS).cast(schema)


def leasts_after(parts: Sequence[tuple[object, bytes]]) -> list[bytes]:
    """Return for each part of a plan a lower bound of the keys after it in its section; ``END`` for the last one.

    Parts are given by their section and a lower bound of their keys.
    """
    found, section, least = list[bytes](), None, END
    for its_section, its_least in reversed(parts):
        found.append(least if its_section == section else END)
        section, least = its_section, min(found[-1], its_least)
    return found[::-1]


class KeysLeft:
    """Lower bounds of the keys from each of consecutive rows on."""

    def __init__(self, pieces: Iterable[pa.BinaryArray]) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._starts: list[int] = np.cumsum([0, *map(len, self._pieces)]).tolist()
        self._ascend = [*map(ascends, self._pieces)]
        ends = zip(self._pieces, self._ascend, strict=True)
        leasts = [(keys[0] if ascend else pc.min_max(keys)["min"]).as_py() for keys, ascend in ends]
        known = (END if least is None else least for least in reversed(leasts))
        self._after = [*accumulate(known, min, initial=END)][::-1]
        """Least key from each piece on."""

    def at(self, row: int) -> bytes:
        """Return the bound; ``END`` if there is no such row."""
        number = bisect_right(self._starts, row) - 1
        if number == len(self._pieces) or not self._ascend[number]:
            return self._after[number]
        key: bytes = self._pieces[number][row - self._starts[number]].as_py()
        return min(key, self._after[number + 1])


@dataclass(frozen=True, slots=True)
class Ascending:
    """Rows whose keys ascend, without nulls."""

    rows: pa.Table
    keys: pa.BinaryArray
    are_distinct: bool
    """All keys differ."""

    @property
    def first(self) -> bytes:
        key: bytes = self.keys[0].as_py()
        return key

    @property
    def last(self) -> bytes:
        key: bytes = self.keys[-1].as_py()
        return key

    def slice(self, start: int, stop: int) -> "Ascending":
        return Ascending(self.rows.slice(start, stop - start), self.keys.slice(start, stop - start), self.are_distinct)


_MOST = 64 << 20
_BATCH_BYTES, _LEAST_BATCH_BYTES = 1 << 20, 1 << 16
"""Bytes of a batch in the file, and the least: a batch of each run is in memory."""


class _Spilled(NamedTuple):
    offset: int
    length: int
    first: bytes
    """Its least key."""
    last: bytes
    are_distinct: bool


class WaitingRows:
    """Rows of a crawl and subset, which are returned by key, byte by byte, then by other columns; nulls come last."""

    def __init__(
        self,
        schema: pa.Schema,
        key: str,
        others: Sequence[str],
        stack: ExitStack,
        most: int = _MOST,
        folder: Path | None = None,
    ) -> None:
        """Keep at most about ``most`` bytes in memory, and the others in a file that ``stack`` closes."""
        self._schema, self._key, self._others, self._stack, self._most = schema, key, others, stack, most
        self._folder = folder
        self._runs: list[deque[Ascending | _Spilled]] = []
        """Parts, each of which has no lower keys than the one before it."""
        self._bytes = 0
        self._end = 0
        """End of the file."""

    def below(self, least: bytes, more: pa.Table | None = None) -> Iterator[pa.Table]:
        """Add more rows, and yield those with lower keys than ``least``; later rows must not have such keys.

        Raises:
            OSError: if the disk is full.
        """
        if more:
            part = self._by_key(more)
            if not self._runs and part.last < least:
                yield self._in_order([part])
                return
            self._add(part)
        while runs := [run for run in self._runs if run[0].first < least]:
            # All rows of at least one part.
            end = min(least, *(run[0].last + b"\0" for run in runs))
            parts = [part for run in runs for part in self._take(run, end)]
            self._runs = [run for run in self._runs if run]
            yield self._in_order(parts)
        if self._bytes > self._most:
            self._spill()

    def _add(self, part: Ascending) -> None:
        self._bytes += part.rows.nbytes
        for run in self._runs:
            if run[-1].last <= part.first:
                run.append(part)
                return
        self._runs.append(deque([part]))

    def _take(self, run: deque[Ascending | _Spilled], end: bytes) -> Iterator[Ascending]:
        while run and run[0].first < end:
            first = run.popleft()
            if isinstance(first, _Spilled):
                self._file.seek(first.offset)
                batch = pa.ipc.read_record_batch(pa.py_buffer(self._file.read(first.length)), self._schema)
                rows = pa.Table.from_batches([batch])
                part = Ascending(rows, self._keys_of(rows), first.are_distinct)
            else:
                part = first
                self._bytes -= part.rows.nbytes
            length = len(part.keys)
            count = length if part.last < end else bisect_left(part.keys, end, key=as_bytes)
            yield part.slice(0, count)
            if count < length:
                rest = part.slice(count, length)
                if length - count <= count:  # copied, so that the others can be freed
                    order = positions(np.arange(length - count))
                    rest = Ascending(rest.rows.take(order), rest.keys.take(order), rest.are_distinct)
                run.appendleft(rest)
                self._bytes += rest.rows.nbytes

    def _by_key(self, *tables: pa.Table) -> Ascending:
        rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        keys = self._keys_of(rows)
        if len(keys) == 1 or pc.all(pc.less(keys[:-1], keys[1:]), min_count=0).as_py():
            return Ascending(rows, keys, are_distinct=True)
        if not ascends(keys):
            order = pc.sort_indices(keys)
            rows, keys = rows.combine_chunks().take(order), keys.take(order)
        return Ascending(rows, keys, are_distinct=False)

    def _keys_of(self, rows: pa.Table) -> pa.BinaryArray:
        return joined(rows.column(self._key)).cast(pa.binary())

    def _in_order(self, parts: Sequence[Ascending]) -> pa.Table:
        found = parts[0] if len(parts) == 1 else self._by_key(*(part.rows for part in parts))
        if found.are_distinct or not self._others:
            return found.rows
        first = true_positions(pc.equal(found.keys[:-1], found.keys[1:]))
        if not len(first):
            return found.rows
        time = joined(found.rows.column(self._others[0]))  # which nearly always decides
        ascend = pc.less(time.take(positions(first)), time.take(positions(first + 1)))
        if pc.all(ascend, skip_nulls=False).as_py():
            return found.rows
        # Sort only the runs of equal keys.
        runs = np.cumsum(np.diff(first, prepend=first[0] - 1) > 1)
        last = np.flatnonzero(np.append(np.diff(runs) > 0, True)) + 1
        rows = np.insert(first, last, first[last - 1] + 1)
        columns = [
            positions(np.insert(runs, last, runs[last - 1])),
            *found.rows.select(self._others).take(positions(rows)).columns,
        ]
        names = [*map(str, range(len(columns)))]
        sort_keys = [(name, "ascending") for name in names]
        at = integers(pc.sort_indices(pa.Table.from_arrays(columns, names=names), sort_keys=sort_keys)).astype(np.int64)
        if np.array_equal(at, np.arange(len(at))):
            return found.rows
        order = np.arange(len(found.keys))
        order[rows] = rows[at]
        return found.rows.combine_chunks().take(positions(order))

    def _spill(self) -> None:
        with named(self._folder or "the folder for temporary files (TMPDIR)"):
            if not self._end:
                self._file = self._stack.enter_context(TemporaryFile(dir=self._folder))  # noqa: SIM115 - the stack closes it
            for run in self._runs:
                parts = [*run]
                run.clear()
                for part in parts:
                    run.extend([part] if isinstance(part, _Spilled) else self._written(part))
        self._bytes = 0

    def _written(self, part: Ascending) -> Iterator[_Spilled]:
        most = max(_LEAST_BATCH_BYTES, min(_BATCH_BYTES, self._most // (4 * len(self._runs))))
        length = len(part.keys)
        step = max(1, length * most // max(1, part.rows.nbytes))
        for start in range(0, length, step):
            some = part.slice(start, min(start + step, length))
            (batch,) = some.rows.combine_chunks().to_batches()
            data = batch.serialize()
            self._file.seek(self._end)
            self._file.write(data)
            yield _Spilled(self._end, data.size, some.first, some.last, part.are_distinct)
            self._end += data.size
