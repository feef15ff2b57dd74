"""The columns of a table, and the schemas of index files as text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b

import pyarrow as pa

from catalogue.parquet.model import Bounds, Column, ColumnChunk

CUT = " cut"


def _bounds_text(bounds: Bounds | None) -> str | None:
    """Return how bounds were compared, and whether they were cut."""
    return None if bounds is None else bounds.order.value + (CUT if bounds.cut else "")


_CHUNK: dict[str, tuple[pa.DataType, Callable[[ColumnChunk], object]]] = {
    "column_name": (pa.string(), lambda chunk: chunk.column.name),
    "physical_type": (pa.string(), lambda chunk: chunk.column.physical_type),
    "codec": (pa.string(), lambda chunk: chunk.codec_name),
    "encodings": (pa.string(), lambda chunk: ",".join(map(str, chunk.encodings))),  # numbers of the format
    "num_values": (pa.int64(), lambda chunk: chunk.num_values),
    "null_count": (pa.int64(), lambda chunk: chunk.null_count),
    "file_offset": (pa.int64(), lambda chunk: chunk.range.start),
    "data_page_offset": (pa.int64(), lambda chunk: chunk.data_page_offset),
    "total_compressed_size": (pa.int64(), lambda chunk: len(chunk.range)),
    "total_uncompressed_size": (pa.int64(), lambda chunk: chunk.total_uncompressed_size),
    "dictionary_coded": (pa.int64(), lambda chunk: chunk.dictionary_coded),
    "min": (pa.binary(), lambda chunk: chunk.bounds and chunk.bounds.min),
    "max": (pa.binary(), lambda chunk: chunk.bounds and chunk.bounds.max),
    "bounds": (pa.string(), lambda chunk: _bounds_text(chunk.bounds)),
    "column_index_offset": (pa.int64(), lambda chunk: chunk.column_index and chunk.column_index.start),
    "column_index_length": (pa.int64(), lambda chunk: chunk.column_index and len(chunk.column_index)),
    "offset_index_offset": (pa.int64(), lambda chunk: chunk.offset_index and chunk.offset_index.start),
    "offset_index_length": (pa.int64(), lambda chunk: chunk.offset_index and len(chunk.offset_index)),
}
CHUNK = pa.struct([(name, kind) for name, (kind, _) in _CHUNK.items()])
"""A column chunk."""
CHUNK_VALUES = {name: value for name, (_, value) in _CHUNK.items()}
"""How the values of a column chunk are taken from a footer."""
TABLE = pa.schema(
    [
        # Equal in all row groups of a file
        ("path", pa.string()),
        ("crawl", pa.string()),
        ("subset", pa.string()),
        ("version", pa.binary()),  # digest of the value of the store
        ("file_size", pa.int64()),
        ("footer_size", pa.int64()),
        ("etag", pa.string()),
        ("last_modified", pa.string()),
        ("source", pa.string()),
        ("taken", pa.string()),
        ("file_num_rows", pa.int64()),
        ("created_by", pa.string()),
        ("file_codec", pa.string()),
        ("schema", pa.string()),  # digest of encode_columns
        ("utc_times", pa.bool_()),
        ("has_page_index", pa.bool_()),
        ("file_min_key", pa.string()),
        # Of a row group; null in the row of a file without row groups
        ("row_group", pa.int32()),
        ("num_rows", pa.int64()),
        ("total_byte_size", pa.int64()),
        ("total_compressed_size", pa.int64()),
        ("file_offset", pa.int64()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("bounds_from", pa.string()),
        ("first_fetch", pa.int64()),
        ("last_fetch", pa.int64()),
        ("chunks", pa.list_(CHUNK)),
    ]
)
"""Columns of a table."""
FLAT = [name for name in TABLE.names if name != "chunks"]
CHUNK_PATH = "chunks.list.element."
"""Path of a field of column chunks in the Parquet schema, without the name of the field."""
CHUNK_TEXTS = [CHUNK_PATH + name for name in ("column_name", "physical_type", "codec", "encodings", "bounds")]
"""Texts that many column chunks share."""
REPEATED = [
    *("path", "crawl", "subset", "version", "etag", "last_modified", "source", "taken", "created_by", "file_codec"),
    *("schema", "file_min_key", "bounds_from", *CHUNK_TEXTS),
]
"""Values that many rows share; they have dictionaries."""


def encode_columns(columns: Mapping[str, Column]) -> str:
    """Return the leaves of a schema as text."""
    values = [{field.name: getattr(each, field.name) for field in fields(Column)} for each in columns.values()]
    for each in values:
        each["element"] = each["element"].hex()
    return json.dumps(values, separators=(",", ":"))


@lru_cache(64)  # the files of a crawl have few schemas, and crawls have the same ones
def decode_columns(text: str) -> Mapping[str, Column]:
    """Return the leaves of a schema, by name, from the text of ``encode_columns``."""
    values = json.loads(text)
    return {each["name"]: Column(**{**each, "element": bytes.fromhex(each["element"])}) for each in values}


def digest_of(schema: str) -> str:
    """Return a short name of a schema, the text of ``encode_columns``."""
    return blake2b(schema.encode(), digest_size=8).hexdigest()
