"""The columns of a table, and the schemas of index files as text."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b

import pyarrow as pa

from catalogue.parquet.model import Column

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
        ("ordered", pa.bool_()),  # see Footer
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
        ("footer_offset", pa.int32()),  # of the struct of the row group in the footer
    ]
)
REPEATED = [
    *("path", "crawl", "subset", "version", "etag", "last_modified", "source", "taken", "created_by", "file_codec"),
    *("schema", "file_min_key", "bounds_from"),
]
"""Values that many rows share; they have dictionaries."""


def encode_columns(columns: Mapping[str, Column]) -> str:
    values = [{field.name: getattr(each, field.name) for field in fields(Column)} for each in columns.values()]
    for each in values:
        each["element"] = each["element"].hex()
    return json.dumps(values, separators=(",", ":"))


@lru_cache(64)  # the files of a crawl have few schemas, and crawls have the same ones
def decode_columns(text: str) -> Mapping[str, Column]:
    """Return the leaves of a schema by name, from the text of ``encode_columns``."""
    values = json.loads(text)
    return {each["name"]: Column(**{**each, "element": bytes.fromhex(each["element"])}) for each in values}


def digest_of(schema: str) -> str:
    return blake2b(schema.encode(), digest_size=8).hexdigest()
