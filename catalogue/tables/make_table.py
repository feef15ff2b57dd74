"""Make the table of a crawl from the store; rows of unchanged files are taken from the old one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import maxunicode
from typing import Any

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.datasets import Dataset
from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import FormatError, StoreDamaged
from catalogue.parquet.arrow_arrays import array_of, positions
from catalogue.parquet.footer import examine_footer, has_page_index, key_bounds
from catalogue.parquet.model import SIGNED, Column, Footer, RowGroup
from catalogue.parquet.page_index import page_bounds
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile
from catalogue.surt import text_after, text_from
from catalogue.tables.crawl_table import StoredFooters
from catalogue.tables.table_file import TableDamaged, TableFile
from catalogue.tables.table_schema import TABLE, decode_columns, digest_of, encode_columns

_LIMIT = 1 << 63
_FOUND = ("min_key", "max_key", "bounds_from")


@dataclass(frozen=True, slots=True)
class FooterRows:
    """The rows of a file, without the digest of its schema."""

    version: bytes
    columns: Mapping[str, Column]
    rows: list[dict[str, Any]]


def rows_of_footer(key: str, file: IndexFile, stored: StoredFile, version: bytes, footer: Footer) -> FooterRows:
    """Return the rows of a file, at least one.

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
                raise OverflowError(f"{name} is {value}, which does not fit into 64 bits")
    return FooterRows(version, footer.columns, rows)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
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


@dataclass(slots=True)
class MadeTable:
    """The rows of a table, and what is missing in them."""

    rows: pa.Table
    schemas: dict[str, str]
    """The texts of ``encode_columns`` by digest."""
    undecodable: dict[str, str]
    """Reasons why footers are not in the table, by path."""
    gaps: int
    """The number of row groups whose footers have no bounds."""


def make_table(
    store: Store,
    dataset: Dataset,
    versions: Mapping[str, bytes],
    old: TableFile | None,
    decoded: Mapping[str, FooterRows],
) -> MadeTable:
    """Make the rows of a crawl; ``decoded`` ones and those of the ``old`` table need not be decoded again.

    ``versions`` are the digests of the stored files, by path.
    """
    reused = _reused(old, versions)
    rows: list[dict[str, Any]] = []
    digests: dict[int, tuple[Mapping[str, Column], str]] = {}  # by identity: files of a crawl share few schemas
    schemas = {**old.schemas} if old else {}
    undecodable: dict[str, str] = {}
    for path in sorted(versions.keys() - {*reused.column("path").to_pylist()}):
        try:
            found = decoded.get(path)
            if found is None or found.version != versions[path]:
                found = _decoded(store, dataset, path, versions[path])
            if found is None:
                continue
            if id(found.columns) not in digests:
                schema = encode_columns(found.columns)
                digests[id(found.columns)] = found.columns, digest_of(schema)
                schemas[digest_of(schema)] = schema
            _, digest = digests[id(found.columns)]
            rows += [row | {"schema": digest} for row in found.rows]
        except (FormatError, StoreDamaged, OverflowError) as error:
            undecodable[path] = f"{path}: {error}"
    table = pa.concat_tables([reused, table_of(rows)]).combine_chunks()
    used = {*table.column("schema").to_pylist()}
    # Columns are shown in the order of the texts, which a rebuilt table has too.
    schemas = {digest: schemas[digest] for digest in sorted(used, key=schemas.__getitem__)}
    table, gaps = _with_found_bounds(table, store, dataset.key, schemas)
    return MadeTable(table, schemas, undecodable, gaps)


def _decoded(store: Store, dataset: Dataset, path: str, version: bytes) -> FooterRows | None:
    stored, file = store.get("files", path), dataset.file(path)
    if stored is None or file is None:
        return None
    footer = examine_footer(stored.data, stored.size, dataset.key)
    return rows_of_footer(dataset.key, file, stored, version, footer)


def _reused(old: TableFile | None, versions: Mapping[str, bytes]) -> pa.Table:
    try:
        rows = old.read_all() if old else table_of([])
    except TableDamaged:
        return table_of([])
    paths, stored = (rows.column(name).to_pylist() for name in ("path", "version"))
    same = [versions.get(path) == version for path, version in zip(paths, stored, strict=True)]
    return rows.take(positions(np.flatnonzero(same)))


def _with_found_bounds(table: pa.Table, store: Store, key: str, schemas: Mapping[str, str]) -> tuple[pa.Table, int]:
    """Return rows with bounds that footers do not have, from stored page indexes, and their number."""
    origins = table.column("bounds_from").to_pylist()
    gaps = [row for row, origin in enumerate(origins) if origin not in {None, "footer", SIGNED}]
    if not gaps:
        return table, 0
    columns: dict[str, list[Any]] = {name: table.column(name).to_pylist() for name in _FOUND}
    footers = StoredFooters(store)
    for row in gaps:
        found = _found_bounds(table, row, store, footers, key, schemas)
        for name, value in zip(_FOUND, found, strict=True):
            columns[name][row] = value
    for name, values in columns.items():
        field = TABLE.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, array_of(field.type, values))
    return table, len(gaps)


def _found_bounds(
    table: pa.Table, row: int, store: Store, footers: StoredFooters, key: str, schemas: Mapping[str, str]
) -> tuple[str | None, str | None, str]:
    names = ("path", "row_group", "num_rows", "schema", "file_size", "etag", "last_modified", "source", "taken")
    path, ordinal, num_rows, schema, *version = (table.column(name)[row].as_py() for name in names)
    columns = decode_columns(schemas[schema])
    indexes = store.indexes(path, [ordinal], StoredFile(b"", *version)).get(ordinal)
    if indexes is None or key not in columns:
        return None, None, "missing"
    origin, found = "scan", [indexes.bounds] if indexes.bounds else []
    if not found:
        (row_of_table,) = table.slice(row, 1).to_pylist()
        chunk = footers.chunks(row_of_table, columns)[key]
        origin, found = "page index", [bounds for bounds, _ in page_bounds(indexes, chunk, num_rows)]
    if not found:
        return None, None, "missing"
    least, greatest = min(part.min for part in found), max(part.max for part in found)
    return text_from(least), greatest_text(greatest), origin


def greatest_text(key: bytes) -> str:
    """Return a text that is not less than a bound, which may have been cut within a character."""
    return text_after(key) or chr(maxunicode)
