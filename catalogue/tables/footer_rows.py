"""Turn decoded footers into the rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.parquet.arrow_arrays import array_of
from catalogue.parquet.footer import has_page_index, key_bounds
from catalogue.parquet.model import Column, Footer, RowGroup
from catalogue.store.stored_file import StoredFile
from catalogue.tables.table_schema import TABLE

_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class FooterRows:
    """The rows of a file, without the digest of its schema."""

    version: bytes
    """The digest of its value in the store."""
    columns: Mapping[str, Column]
    rows: list[dict[str, Any]]


def rows_of_footer(key: str, file: IndexFile, stored: StoredFile, version: bytes, footer: Footer) -> FooterRows:
    """Return the rows of a file; one without row groups has a row, too.

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
        "utc_times": "fetch_time" in footer.columns and footer.columns["fetch_time"].utc,
        "has_page_index": has_page_index(footer, key),
        "ordered": footer.ordered,
        "file_min_key": "" if None in keys else min(keys, default=""),
    }
    rows = [of_file | group for group in groups] or [of_file]
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
                message = f"{name} is {value}, which does not fit into 64 bits"
                raise OverflowError(message)
    return FooterRows(version, footer.columns, rows)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table."""
    arrays = [array_of(field.type, [row.get(field.name) for row in rows]) for field in TABLE]
    return pa.Table.from_arrays(arrays, schema=TABLE)


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
        "footer_offset": group.offset,
    }
