"""Sorted rows in a file of Arrow batches, with the place of each batch among them."""

import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from catalogue.atomic_files import named
from catalogue.errors import QueryError


class BatchWriter:
    """Writes a file."""

    def __init__(self, path: Path, schema: pa.Schema, *, compress: bool) -> None:
        self._path = path
        options: Any = pa.ipc.IpcWriteOptions(compression="lz4" if compress else None, use_threads=False)
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema, options=options)
        self._places: list[tuple[int, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with named(self._path):
            self._writer.close()
            self._file.close()
        if error is None:
            _places(self._path).write_text(json.dumps(self._places))

    def write(self, batch: pa.RecordBatch, place: Any) -> None:  # noqa: ANN401 - whatever JSON can have
        """Write a batch; ``place`` says where it is among the others."""
        if len(batch):
            with named(self._path):
                self._writer.write_batch(batch)
            self._places.append((len(batch), place))


class BatchFile:
    """An open file."""

    def __init__(self, path: Path) -> None:
        self._file = pa.OSFile(str(path))
        self._reader = pa.ipc.open_file(self._file)
        entries = json.loads(_places(path).read_text())
        self.counts: list[int] = [count for count, _ in entries]
        """Rows of each batch."""
        self.places: list[Any] = [place for _, place in entries]
        """Places of the batches, as they were written."""
        self.starts: list[int] = [0, *accumulate(self.counts)]
        """Number of the first row of each batch, and the number of rows."""

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def read(self, batches: range) -> pa.RecordBatch:
        """Return the rows of consecutive batches."""
        if len(batches) == 1:
            return self._reader.get_batch(batches.start)
        return one_batch(pa.Table.from_batches(map(self._reader.get_batch, batches), self.schema))

    def all(self) -> Iterator[pa.RecordBatch]:
        return map(self._reader.get_batch, range(len(self.counts)))

    def close(self) -> None:
        self._file.close()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch.

    Raises:
        QueryError: if a column has more than 2 GiB of text, as of millions of rows with the same key.
    """
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    if len(batches) > 1:
        raise QueryError("too many rows of the list have the same key, or the rows are too large; remove some of both")
    return batches[0]


def _places(path: Path) -> Path:
    return path.with_suffix(".json")
