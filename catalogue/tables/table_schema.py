"""The columns of a table, and the schemas of index files as text."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b

from catalogue.parquet.model import Column

TABLE = {
    # Equal in all row groups of a file
    "path": "text",
    "crawl": "text",
    "subset": "text",
    "version": "bytes",  # digest of the value of the store
    "file_size": "int64",
    "footer_size": "int64",
    "etag": "text",
    "last_modified": "text",
    "source": "text",
    "taken": "text",
    "file_num_rows": "int64",
    "created_by": "text",
    "file_codec": "text",
    "schema": "text",  # digest of encode_columns
    "utc_times": "bool",
    "has_page_index": "bool",
    "ordered": "bool",  # see Footer
    "file_min_key": "text",
    # Of a row group; null in the row of a file without row groups
    "row_group": "int32",
    "num_rows": "int64",
    "total_byte_size": "int64",
    "total_compressed_size": "int64",
    "file_offset": "int64",
    "min_key": "text",
    "max_key": "text",
    "bounds_from": "text",
    "first_fetch": "int64",
    "last_fetch": "int64",
    "footer_offset": "int32",  # of the struct of the row group in the footer
}
"""Kinds of the columns by name; see ``parquet/write_rows.py``."""
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
