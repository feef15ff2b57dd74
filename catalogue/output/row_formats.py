"""Parquet files of records: until one is finished, its rows are gzipped JSON lines, which can grow."""

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.atomic_files import create
from catalogue.errors import QueryError
from catalogue.output.formats import SUFFIXES, Lines, whole
from catalogue.records.record import Record

_GROUP_BYTES, _GROUP_ROWS = 16 << 20, 1 << 16
"""After so many bytes of JSON or rows another row group is begun."""
_LEVEL = 3
"""Of gzip: what it makes is read once."""
_ROWS_AT_ONCE = 256


class Rows(Lines):
    """Parquet files of whatever row is made of a record."""

    suffix = SUFFIXES["parquet"]

    def __init__(self, make: Callable[[Record], Mapping[str, Any]], schema: pa.Schema) -> None:
        """Take what makes a row of a record, with times as numbers, and the schema of those."""
        super().__init__(make)
        self._schema = schema

    def add(self, record: Record) -> bytes:
        """See ``Form``."""
        return gzip.compress(super().add(record), _LEVEL, mtime=0)

    def seal(self, grown: Path) -> Path:
        """See ``Form``."""
        kept = whole(grown)
        with create(kept) as file:
            with pq.ParquetWriter(file, self._schema, compression="zstd") as writer:
                for rows in _groups(grown):
                    writer.write_table(pa.Table.from_pylist(rows, schema=self._schema))
            file.flush()
            os.fsync(file.fileno())
        return kept

    def regrow(self, kept: Path, grown: Path) -> None:
        """See ``Form``; what was kept stays until what comes of it takes its place."""
        beside = whole(grown)
        try:
            with pq.ParquetFile(kept) as rows, create(beside) as file:
                for batch in rows.iter_batches(batch_size=_ROWS_AT_ONCE):
                    for row in batch.cast(self._numbers()).to_pylist():
                        file.write(gzip.compress(json.dumps(row).encode() + b"\n", _LEVEL, mtime=0))
                file.flush()
                os.fsync(file.fileno())
        except (pa.ArrowException, KeyError) as error:
            message = f"{kept} is not what was written there; move it away, and it is fetched anew"
            raise QueryError(message) from error
        beside.replace(grown)

    def _numbers(self) -> pa.Schema:
        times = {field.name for field in self._schema if pa.types.is_timestamp(field.type)}
        return pa.schema([field.with_type(pa.int64()) if field.name in times else field for field in self._schema])


def _groups(grown: Path) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    with gzip.open(grown) as lines:
        for line in lines:
            rows.append(json.loads(line))
            size += len(line)
            if size >= _GROUP_BYTES or len(rows) >= _GROUP_ROWS:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows
