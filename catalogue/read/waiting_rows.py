"""Rows that wait for others with lower keys, in memory and in a temporary file."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import NamedTuple

import pyarrow as pa

from catalogue.atomic_files import named
from catalogue.query.key_intervals import KeyTexts
from catalogue.read.row_order import Ascending, RowOrder

_MOST = 64 << 20
_BATCH_BYTES, _LEAST_BATCH_BYTES = 1 << 20, 1 << 16
"""Bytes of a batch in the file, and the least: a batch of each run is in memory."""


class _Spilled(NamedTuple):
    """A batch in the file."""

    offset: int
    length: int
    first: bytes
    """Its least key."""
    last: bytes
    are_distinct: bool


class WaitingRows:
    """Rows of a crawl and subset, which are returned by key."""

    def __init__(self, schema: pa.Schema, order: RowOrder, most: int = _MOST) -> None:
        """Keep at most about ``most`` bytes in memory."""
        self._schema, self._order, self._most = schema, order, most
        self._runs: list[deque[Ascending | _Spilled]] = []
        """Parts, each of which has no lower keys than the one before it."""
        self._bytes = 0
        self._stack = ExitStack()
        self._end = 0
        """End of the file."""

    def close(self) -> None:
        self._stack.close()

    def add(self, rows: pa.Table) -> None:
        part = self._order.by_key(rows)
        self._bytes += part.size
        for run in self._runs:
            if run[-1].last <= part.first:
                run.append(part)
                return
        self._runs.append(deque([part]))

    def below(self, least: bytes) -> Iterator[pa.Table]:
        """Yield the rows with lower keys than ``least``; later rows must not have such keys.

        Raises:
            OSError: if the disk is full.
        """
        while runs := [run for run in self._runs if run[0].first < least]:
            # All rows of at least one part.
            end = min(least, *(run[0].last + b"\0" for run in runs))
            parts = [part for run in runs for part in self._take(run, end)]
            self._runs = [run for run in self._runs if run]
            yield self._order.complete(parts)
        if self._bytes > self._most:
            self._spill()

    def _take(self, run: deque[Ascending | _Spilled], end: bytes) -> Iterator[Ascending]:
        """Remove the rows with lower keys than ``end`` from a run; yield them."""
        while run and run[0].first < end:
            first = run.popleft()
            if isinstance(first, _Spilled):
                part = self._read(first)
            else:
                part = first
                self._bytes -= part.size
            count = len(part) if part.last < end else bisect_left(KeyTexts(part.keys), end)
            yield part.slice(0, count)
            if count < len(part):
                rest = part.slice(count, len(part))
                rest = rest.copy() if len(rest) <= count else rest  # so that the others can be freed
                run.appendleft(rest)
                self._bytes += rest.size

    def _spill(self) -> None:
        with named("the folder for temporary files (TMPDIR)"):
            if not self._end:
                self._file = self._stack.enter_context(TemporaryFile())  # noqa: SIM115 - the stack closes it
            for run in self._runs:
                parts = [*run]
                run.clear()
                for part in parts:
                    run.extend([part] if isinstance(part, _Spilled) else self._written(part))
        self._bytes = 0

    def _written(self, part: Ascending) -> Iterator[_Spilled]:
        most = max(_LEAST_BATCH_BYTES, min(_BATCH_BYTES, self._most // (4 * len(self._runs))))
        step = max(1, len(part) * most // max(1, part.size))
        for start in range(0, len(part), step):
            some = part.slice(start, min(start + step, len(part)))
            (batch,) = some.rows.combine_chunks().to_batches()
            data = batch.serialize()
            self._file.seek(self._end)
            self._file.write(data)
            yield _Spilled(self._end, data.size, some.first, some.last, part.are_distinct)
            self._end += data.size

    def _read(self, part: _Spilled) -> Ascending:
        self._file.seek(part.offset)
        batch = pa.ipc.read_record_batch(pa.py_buffer(self._file.read(part.length)), self._schema)
        rows = pa.Table.from_batches([batch])
        return Ascending(rows, self._order.keys_of(rows), are_distinct=part.are_distinct)
