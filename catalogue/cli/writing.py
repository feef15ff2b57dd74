"""Rows in the formats that people and programs read."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from catalogue.capture import cdxj_line
from catalogue.cli.showing import table
from catalogue.errors import QueryError

FORMATS = ["table", "jsonl", "csv", "tsv", "cdxj", "parquet", "arrow"]
_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv", ".cdxj": "cdxj"}
_BY_SUFFIX |= {".parquet": "parquet", ".arrow": "arrow", ".txt": "table"}
_AT_A_GLANCE = ["fetch_time", "fetch_status", "content_mime_detected", "url", "crawl"]
_PAGE = 1000


def format_for(asked: str | None, output: Path | None) -> str:
    """The format to write.

    Raises:
        QueryError: if neither it nor the file's name says which, or it cannot be shown on a terminal.
    """
    if asked is None and output is not None:
        if output.suffix not in _BY_SUFFIX:
            message = f"the name {output.name} does not say which format is meant; add --format, such as --format jsonl"
            raise QueryError(message)
        return _BY_SUFFIX[output.suffix]
    terminal = output is None and sys.stdout.isatty()
    if asked in {"parquet", "arrow"} and terminal:
        message = f"--format {asked} is no text for a terminal; add -o FILE"
        raise QueryError(message)
    return asked or ("table" if terminal else "jsonl")


def write(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, format_: str, output: Path | None, *, chosen_columns: bool
) -> int:
    """Write rows to a file, under its name only when all are there, or to stdout; returns how many."""
    if format_ == "table":
        shown = schema.names if chosen_columns else [name for name in _AT_A_GLANCE if name in schema.names]
        if output is None:
            return _write_table(batches, shown)
    with _target(output) as file:
        match format_:
            case "jsonl" | "cdxj":
                return _write_lines(batches, file, format_)
            case "csv" | "tsv":
                return _write_csv(batches, schema, file, "," if format_ == "csv" else "\t")
            case "parquet":
                return _write_whole(batches, pq.ParquetWriter(file, schema, compression="zstd"))
            case "arrow":
                return _write_whole(batches, pa.ipc.new_stream(file, schema))
    message = f"a table is for terminals; write {', '.join(FORMATS[1:])} to a file"
    raise QueryError(message)


@contextmanager
def _target(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    beside = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)


def _write_table(batches: Iterable[pa.RecordBatch], names: list[str]) -> int:
    count = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _PAGE):
            rows = batch.slice(start, _PAGE).select(names).to_pylist()
            table(names, [[row[name] for name in names] for row in rows])
        count += batch.num_rows
    return count


def _write_lines(batches: Iterable[pa.RecordBatch], file: BinaryIO, format_: str) -> int:
    count = 0
    for batch in batches:
        names = batch.schema.names
        if format_ == "cdxj":
            if not {"url_surtkey", "fetch_time"} <= set(names):
                message = "--format cdxj needs the columns url_surtkey and fetch_time"
                raise QueryError(message)
            lines = [cdxj_line(row) for row in batch.to_pylist()]
        else:
            lines = [json.dumps(row, ensure_ascii=False) for row in _texts(batch).to_pylist()]
        file.write("".join(f"{_one_line(line)}\n" for line in lines).encode())
        count += batch.num_rows
    return count


def _one_line(line: str) -> str:
    """Escape what JSON allows in a string but line readers take for an end of line."""
    return line.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO, delimiter: str) -> int:
    texts = _texts(pa.RecordBatch.from_pylist([], schema=schema)).schema
    count = 0
    with pa_csv.CSVWriter(file, texts, write_options=pa_csv.WriteOptions(delimiter=delimiter)) as writer:
        for batch in batches:
            writer.write_batch(_texts(batch))
            count += batch.num_rows
    return count


def _write_whole(batches: Iterable[pa.RecordBatch], writer: Any) -> int:  # noqa: ANN401 - two classes with one shape
    count = 0
    with writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times in ISO 8601 and bytes in hexadecimal digits, for formats that have neither."""
    arrays = []
    for array in batch.columns:
        if pa.types.is_timestamp(array.type):
            seconds = array.cast(pa.timestamp("s", "UTC"), safe=False)  # the index has no finer times
            arrays.append(pc.strftime(seconds, format="%Y-%m-%dT%H:%M:%SZ"))
        elif pa.types.is_binary(array.type):
            arrays.append(pa.array([None if v is None else v.hex() for v in array.to_pylist()], pa.string()))
        else:
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
