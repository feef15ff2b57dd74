"""Turn decoded footers into the rows of a table."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.parquet.arrow_arrays import binaries, texts
from catalogue.parquet.model import Bounds, ColumnChunk, Footer, Order
from catalogue.parquet.summary import summarize_file
from catalogue.store.stored_file import StoredFile
from catalogue.tables.table_schema import CHUNK, FILE_COLUMNS, ROW_GROUP_COLUMNS, TABLE, encode_columns

_AT_ONCE = 100
"""Files whose values are in Python's memory at a time, each about 0.3 MB."""
_CUT = " cut"


def bounds_text(bounds: Bounds | None) -> str | None:
    """Return how bounds were compared, and whether they were cut."""
    return None if bounds is None else bounds.order.value + (_CUT if bounds.cut else "")


def bounds_of(least: bytes, greatest: bytes, text: str) -> Bounds:
    """Return bounds; ``text`` is of ``bounds_text``."""
    return Bounds(least, greatest, Order(text.removesuffix(_CUT)), cut=text.endswith(_CUT))


_CHUNK_VALUES: dict[str, Callable[[ColumnChunk], object]] = {
    "column_name": lambda chunk: chunk.column.name,
    "physical_type": lambda chunk: chunk.column.physical_type,
    "codec": lambda chunk: chunk.codec_name,
    "encodings": lambda chunk: ",".join(map(str, chunk.encodings)),
    "num_values": lambda chunk: chunk.num_values,
    "null_count": lambda chunk: chunk.null_count,
    "file_offset": lambda chunk: chunk.range.start,
    "data_page_offset": lambda chunk: chunk.data_page_offset,
    "total_compressed_size": lambda chunk: len(chunk.range),
    "total_uncompressed_size": lambda chunk: chunk.total_uncompressed_size,
    "dictionary_coded": lambda chunk: chunk.dictionary_coded,
    "min": lambda chunk: chunk.bounds and chunk.bounds.min,
    "max": lambda chunk: chunk.bounds and chunk.bounds.max,
    "bounds": lambda chunk: bounds_text(chunk.bounds),
    "column_index_offset": lambda chunk: chunk.column_index and chunk.column_index.start,
    "column_index_length": lambda chunk: chunk.column_index and len(chunk.column_index),
    "offset_index_offset": lambda chunk: chunk.offset_index and chunk.offset_index.start,
    "offset_index_length": lambda chunk: chunk.offset_index and len(chunk.offset_index),
}


class FooterRows:
    """Rows of files that are added one by one."""

    def __init__(self, key: str, schemas: Iterable[str] = ()) -> None:
        """Start without rows.

        Args:
            key: the key column.
            schemas: known schemas; see ``encode_columns``.
        """
        self.schemas = {text: number for number, text in enumerate(schemas)}
        """Number of each schema."""
        self._key = key
        self._parts: list[pa.RecordBatch] = []
        self._start()

    def _start(self) -> None:
        self._files = 0
        self._values: dict[str, list[Any]] = {name: [] for name in (*FILE_COLUMNS, *ROW_GROUP_COLUMNS)}
        self._chunks: list[ColumnChunk] = []
        self._ends = [0]

    def add(self, file: IndexFile, stored: StoredFile, version: bytes, footer: Footer) -> None:
        """Add a file; one without row groups has a row, too.

        Raises:
            BadFooter: if the key column is not text, or a number does not fit into a table.
        """
        summary = summarize_file(footer, self._key)
        columns = self.schemas.setdefault(encode_columns(footer.columns), len(self.schemas))
        keys = [group.min_key for group in summary.row_groups]
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
            "file_codec": summary.codec,
            "columns": columns,
            "utc_times": summary.utc_times,
            "has_page_index": summary.has_page_index,
            "file_min_key": "" if None in keys else min(filter(None, keys), default=""),
        }
        for group, about in zip(footer.row_groups, summary.row_groups, strict=True):
            row = {**of_file, **{name: getattr(about, name, None) for name in ROW_GROUP_COLUMNS}}
            self._add_row(row | {"row_group": group.ordinal}, [*group.chunks.values()])
        if not footer.row_groups:
            self._add_row(of_file | dict.fromkeys(ROW_GROUP_COLUMNS), [])
        self._files += 1
        if self._files >= _AT_ONCE:
            self._flush()

    def _add_row(self, row: dict[str, object], chunks: list[ColumnChunk]) -> None:
        for name, values in self._values.items():
            values.append(row[name])
        self._chunks += chunks
        self._ends.append(len(self._chunks))

    def _flush(self) -> None:
        leaves = {name: [*map(value, self._chunks)] for name, value in _CHUNK_VALUES.items()}
        chunks = pa.StructArray.from_arrays(
            [array_of(CHUNK.field(name).type, leaves[name]) for name in leaves],
            fields=[CHUNK.field(name) for name in leaves],
        )
        ends = pa.Array.from_buffers(pa.int32(), len(self._ends), [None, pa.py_buffer(np.array(self._ends, np.int32))])
        columns = [array_of(TABLE.field(name).type, values) for name, values in self._values.items()]
        columns.append(pa.ListArray.from_arrays(ends, chunks, type=TABLE.field("chunks").type))
        self._parts.append(pa.RecordBatch.from_arrays(columns, schema=TABLE))
        self._start()

    def table(self) -> pa.Table:
        """Return the rows in the order in which they were added."""
        if self._files:
            self._flush()
        return pa.Table.from_batches(self._parts, TABLE)


def array_of(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return values, of which some may be None, as an array; ``pyarrow.array`` would import pandas."""
    if kind == pa.string():
        return texts(values)
    valid = None
    if None in values:
        valid = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
    if kind == pa.binary():
        _, ends, data = binaries([value or b"" for value in values]).buffers()
        return pa.Array.from_buffers(kind, len(values), [valid, ends, data])
    known = [0 if value is None else value for value in values]
    if kind == pa.bool_():
        packed = np.packbits(np.array(known, bool), bitorder="little")
    else:
        packed = np.array(known, np.dtype(f"i{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(packed)])
