"""Turn decoded footers into the rows of a table, and column chunks of a table into those of a footer."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.parquet.arrow_arrays import array_of
from catalogue.parquet.column_chunk import LazyChunks
from catalogue.parquet.key_column import has_page_index, key_bounds
from catalogue.parquet.model import CODECS, Bounds, Column, ColumnChunk, Footer, Order, RowGroup
from catalogue.source.byte_ranges import ByteRange
from catalogue.store.stored_file import StoredFile
from catalogue.tables.table_schema import CHUNK, CHUNK_VALUES, CUT, FLAT, TABLE

_CODECS = {name: number for number, name in enumerate(CODECS)}


def rows_of_footer(
    key: str, file: IndexFile, stored: StoredFile, version: bytes, schema: str, footer: Footer
) -> pa.RecordBatch:
    """Return the rows of a file; one without row groups has a row, too.

    Args:
        key: the key column.
        file: the index file.
        stored: its value in the store.
        version: the digest of this value.
        schema: the digest of its columns.
        footer: the decoded footer.

    Raises:
        OverflowError: if a number does not fit into a table.
    """
    groups = [_row_group(group, key) for group in footer.row_groups]
    keys = [group["min_key"] for group in groups]
    of_file = {
        "path": file.path,
        "crawl": file.crawl,
        "subset": file.subset,
        "version": version,
        "file_size": stored.size,
        "footer_size": len(stored.data),
        "etag": stored.etag,
        "last_modified": stored.last_modified,
        "source": stored.source,
        "taken": stored.taken,
        "file_num_rows": footer.num_rows,
        "created_by": footer.created_by,
        "file_codec": "+".join(footer.codecs),
        "schema": schema,
        "utc_times": "fetch_time" in footer.columns and footer.columns["fetch_time"].utc,
        "has_page_index": has_page_index(footer, key),
        "file_min_key": "" if None in keys else min(keys, default=""),
    }
    rows = [of_file | group for group in groups] or [of_file]
    columns = [array_of(TABLE.field(name).type, [row.get(name) for row in rows]) for name in FLAT]
    chunks = [chunk for group in footer.row_groups for chunk in group.chunks.values()]
    ends = np.cumsum([0, *(len(group.chunks) for group in footer.row_groups)], dtype=np.int32)
    if not groups:
        ends = np.zeros(2, np.int32)
    leaves = [array_of(field.type, [*map(CHUNK_VALUES[field.name], chunks)]) for field in CHUNK]
    structs = pa.StructArray.from_arrays(leaves, fields=[*CHUNK])
    offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
    columns.append(pa.ListArray.from_arrays(offsets, structs, type=TABLE.field("chunks").type))
    return pa.RecordBatch.from_arrays(columns, schema=TABLE)


def _row_group(group: RowGroup, key: str) -> dict[str, Any]:
    least, greatest, bounds_from = key_bounds(group, key)
    times = (group.chunks["fetch_time"].milliseconds if "fetch_time" in group.chunks else None) or (None, None)
    return {
        "row_group": group.ordinal,
        "num_rows": group.num_rows,
        "total_byte_size": group.total_byte_size,
        "total_compressed_size": group.total_compressed_size,
        "file_offset": group.start,
        "min_key": least,
        "max_key": greatest,
        "bounds_from": bounds_from,
        "first_fetch": times[0],
        "last_fetch": times[1],
    }


# ---- and back ----

USED = [field.name for field in CHUNK if field.name not in {"column_name", "physical_type"}]
"""Values of column chunks that planning uses; the schema has the others."""


def stored_chunks(columns: Mapping[str, Column], read: Callable[[], pa.StructArray]) -> LazyChunks:
    """Return the column chunks of a row group, which are read from the table at the first use.

    Args:
        columns: the schema of the file.
        read: returns the values ``USED`` of the chunks, in the order of the schema.
    """
    values: dict[str, list[Any]] = {}

    def make(name: str, place: int) -> ColumnChunk:
        if not values:
            chunks = read()
            # Lists, because arrays would keep the values of all rows in memory.
            values.update((field, chunks.field(field).to_pylist()) for field in USED)
        return _chunk(columns[name], {field: each[place] for field, each in values.items()})

    return LazyChunks({name: place for place, name in enumerate(columns)}, make)


def _chunk(column: Column, of: Mapping[str, Any]) -> ColumnChunk:
    start, data_page, codec, bounds = of["file_offset"], of["data_page_offset"], of["codec"], of["bounds"]
    return ColumnChunk(
        column=column,
        range=ByteRange(start, start + of["total_compressed_size"]),
        codec=_CODECS[codec] if codec in _CODECS else int(codec[len("UNKNOWN(") : -1]),
        encodings=tuple(map(int, of["encodings"].split(","))) if of["encodings"] else (),
        num_values=of["num_values"],
        total_uncompressed_size=of["total_uncompressed_size"],
        data_page_offset=data_page,
        dictionary_page_offset=start if start != data_page else None,
        dictionary_coded=of["dictionary_coded"],
        null_count=of["null_count"],
        bounds=Bounds(of["min"], of["max"], Order(bounds.removesuffix(CUT)), cut=bounds.endswith(CUT))
        if bounds
        else None,
        column_index=_range(of["column_index_offset"], of["column_index_length"]),
        offset_index=_range(of["offset_index_offset"], of["offset_index_length"]),
    )


def _range(start: int | None, length: int | None) -> ByteRange | None:
    return None if start is None or length is None else ByteRange(start, start + length)
