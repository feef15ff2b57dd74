"""Records as rows of Parquet files."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.atomic_files import create, whole_file
from catalogue.errors import QueryError
from catalogue.formatting import json_line
from catalogue.output.formats import sealed_path

ROW = pa.schema(
    [
        ("url", pa.string()),
        ("time", pa.timestamp("ms", "UTC")),
        ("status", pa.int16()),
        ("mime", pa.string()),
        ("charset", pa.string()),
        ("charset_source", pa.string()),
        ("truncated", pa.string()),
        ("coding_error", pa.string()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
        ("title", pa.string()),
        ("text", pa.string()),
        ("links", pa.list_(pa.struct([("type", pa.string()), ("url", pa.string()), ("text", pa.string())]))),
        ("failure", pa.string()),
        ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int64()),
        ("warc_record_length", pa.int64()),
    ]
)
"""Columns of pages in tables. ``headers`` are those of the HTTP response, ``mime`` is the detected type.
``truncated`` is why the payload is not complete, ``coding_error`` why it cannot be decoded. ``text`` is null without
text or if the page cannot be parsed; ``failure`` says why, or how many links are left out. ``links`` of an HTML page
have the element's name (``a``, ``img``), its text and the absolute URL, http and https only, of the first 10,000 links;
relative links with a base of over 10,000 characters are left out.
"""

_TIME = ROW.get_field_index("time")
_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 16 << 20, 1 << 16
_GZIP_LEVEL = 3  # the rows are read once
_ROWS_PER_BATCH = 256


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return a row of an unfinished file: a gzipped JSON line with times as numbers."""
    return gzip.compress(json_line(row), _GZIP_LEVEL, mtime=0)


def seal(partial: Path) -> Path:
    finished = sealed_path(partial)
    with create(finished) as file, pq.ParquetWriter(file, ROW, compression="zstd") as writer:
        for rows in _row_groups(partial):
            writer.write_table(pa.Table.from_pylist(rows, schema=ROW))
    return finished


def unseal(finished: Path, partial: Path) -> None:
    numbers = ROW.set(_TIME, ROW.field(_TIME).with_type(pa.int64()))
    try:
        with pq.ParquetFile(finished) as rows, whole_file(partial) as file:
            for batch in rows.iter_batches(batch_size=_ROWS_PER_BATCH):
                file.writelines(map(encode_row, batch.cast(numbers).to_pylist()))
    except (pa.ArrowException, KeyError) as error:
        raise QueryError(
            f"{finished} was changed after it was written; move it away, and its records are fetched again"
        ) from error


def _row_groups(partial: Path) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    with gzip.open(partial) as lines:
        for line in lines:
            rows.append(json.loads(line))
            size += len(line)
            if size >= _ROW_GROUP_BYTES or len(rows) >= _ROW_GROUP_ROWS:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows
