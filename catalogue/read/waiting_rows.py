"""Rows that come before their turn: some in memory, the others in a temporary file."""

from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter
from tempfile import TemporaryFile

import pyarrow as pa

from catalogue.atomic_files import named
from catalogue.read.result_order import Place

_MOST = 64 << 20


class WaitingRows:
    """Tables of one schema, which are returned by their places."""

    def __init__(self, schema: pa.Schema, most: int = _MOST) -> None:
        """Keep at most about ``most`` bytes in memory."""
        self._schema, self._most = schema, most
        self._kept: list[tuple[Place, pa.Table]] = []
        self._bytes = 0
        self._written: list[Place] = []
        """Of the batches in the file."""
        self._stack = ExitStack()
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def close(self) -> None:
        self._stack.close()

    def add(self, place: Place, table: pa.Table) -> None:
        """Add the next rows of a place.

        Raises:
            OSError: if the disk is full.
        """
        self._kept.append((place, table))
        self._bytes += table.nbytes
        if self._bytes > self._most:
            self._write()

    def _write(self) -> None:
        with named("the folder for temporary files (TMPDIR)"):
            if self._writer is None:
                self._file = self._stack.enter_context(TemporaryFile())  # noqa: SIM115 - the stack closes it
                self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), self._schema)
            for place, table in self._kept:
                for batch in table.to_batches():
                    self._writer.write_batch(batch)
                    self._written.append(place)
        self._kept.clear()
        self._bytes = 0

    def inorder(self) -> Iterator[tuple[Place, pa.Table]]:
        """Yield the rows, those of each place as they were added; nothing can be added any more."""
        if self._writer is None:
            yield from sorted(self._kept, key=itemgetter(0))
            return
        self._write()
        self._writer.close()
        self._file.seek(0)
        reader = pa.ipc.open_file(pa.PythonFile(self._file, "r"))
        for number in sorted(range(len(self._written)), key=self._written.__getitem__):
            yield self._written[number], pa.Table.from_batches([reader.get_batch(number)])
