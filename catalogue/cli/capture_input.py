"""Read captures from a file: Parquet, Arrow, JSON, JSON lines, CDXJ or CSV."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.commoncrawl.capture import CAPTURE_COLUMNS
from catalogue.errors import QueryError

_PARQUET, _ARROW, _GZIP = b"PAR1", b"ARROW1", b"\x1f\x8b"
_BATCH_ROWS = 1 << 14
"""Rows as Python objects at a time. Arrow needs a tenth of their memory."""
_CDXJ = re.compile(r"\S+ (\d{14}) (\{.*)", re.DOTALL)


def captures_in(file: BinaryIO) -> pa.Table:
    """Return the columns of a file that locate records.

    Raises:
        QueryError: if the file has none of the formats.
    """
    buffered = io.BufferedReader(file) if not hasattr(file, "peek") else file  # type: ignore[type-var]
    try:
        if buffered.peek(len(_GZIP)).startswith(_GZIP):
            buffered = cast("BinaryIO", gzip.GzipFile(fileobj=buffered))
        start = buffered.peek(len(_ARROW))
        if start.startswith(_PARQUET):
            found = pq.ParquetFile(io.BytesIO(buffered.read()))
            names = [name for name in found.schema_arrow.names if name in CAPTURE_COLUMNS]
            return found.read(columns=names)
        if start.startswith(_ARROW):
            table = pa.ipc.open_file(buffered.read()).read_all()
            return table.select([name for name in table.column_names if name in CAPTURE_COLUMNS])
        with io.TextIOWrapper(buffered, "utf-8-sig", newline="") as text:
            return _table(_rows(text))
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error, csv.Error, pa.ArrowException) as error:
        message = f"{file.name} contains no captures as JSON, JSON lines, CDXJ, CSV, Parquet or Arrow: {error}"
        raise QueryError(message) from error


def _rows(text: io.TextIOWrapper) -> Iterator[Mapping[str, Any]]:
    first = next((line for line in text if line.strip()), "")
    lines = _chained(first, text)
    if first.startswith("["):
        yield from (row if isinstance(row, dict) else {} for row in json.loads("".join(lines)))
        return
    if not (first.startswith("{") or _CDXJ.match(first)):
        rows = csv.DictReader(lines)
        # Without this check, a one-line file of another format would be read as a header without captures.
        if first and set(CAPTURE_COLUMNS).isdisjoint(rows.fieldnames or ()):
            raise ValueError("the first line is neither a JSON object nor a header with columns of captures")
        yield from rows
        return
    for line in lines:
        cdxj = _CDXJ.fullmatch(line)
        if line.strip():
            row = json.loads(cdxj[2] if cdxj else line)
            yield (row | ({"timestamp": cdxj[1]} if cdxj else {})) if isinstance(row, dict) else {}


def _chained(first: str, others: Iterable[str]) -> Iterator[str]:
    yield first
    yield from others


def _table(rows: Iterator[Mapping[str, Any]]) -> pa.Table:
    """Return the columns that locate records, as text, without empty columns."""
    schema = pa.schema([(name, pa.string()) for name in CAPTURE_COLUMNS])
    tables = [schema.empty_table()]
    while batch := list(islice(rows, _BATCH_ROWS)):
        columns = [[_text(row.get(name)) for row in batch] for name in schema.names]
        tables.append(pa.table([pa.array(values, pa.string()) for values in columns], schema=schema))
    table = pa.concat_tables(tables)
    present = [name for name in schema.names if table.column(name).null_count < table.num_rows]
    return table.select(present) if table.num_rows else table


def _text(value: object) -> str | None:
    if isinstance(value, float) and value.is_integer():  # pandas writes integers so if one is missing
        value = int(value)
    # URLs of records contain no unpaired surrogates.
    return None if value is None else str(value).encode(errors="replace").decode()
