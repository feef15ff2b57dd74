"""Make the table of a crawl from the store; rows of unchanged files are taken from the old one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import maxunicode
from typing import TYPE_CHECKING, Any

from catalogue.commoncrawl.datasets import Dataset, IndexFile
from catalogue.errors import FormatError, StoreDamaged
from catalogue.parquet.column_chunk import number
from catalogue.parquet.footer import examine_footer, has_page_index, key_bounds
from catalogue.parquet.model import SIGNED, Bounds, Column, ColumnChunk, Footer, RowGroup
from catalogue.parquet.page_index import page_bounds
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from catalogue.surt.interval import text_after, text_from
from catalogue.tables.table_file import STORED_VALUES, TableFile, decode_columns, digest_of, encode_columns

if TYPE_CHECKING:
    from catalogue.tables.crawl_table import StoredFooters

_LIMIT = 1 << 63
_EARLIEST, _LATEST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in milliseconds since 1970."""


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


def times_of(chunk: ColumnChunk) -> tuple[int, int] | None:
    """Return inclusive bounds in milliseconds since 1970; None if unknown or outside the years 1 to 9999."""
    # Writers use either TIMESTAMP_MILLIS or a logical type with unit MILLIS.
    declared = chunk.column.converted_type == 9 or chunk.column.timestamp_unit == 1  # noqa: PLR2004
    if not (declared and chunk.bounds):
        return None
    first, last = number("INT64", chunk.bounds.min), number("INT64", chunk.bounds.max)
    if first is None or last is None or not _EARLIEST <= first <= last <= _LATEST:
        return None
    return first, last


def _row_group(group: RowGroup, key: str) -> dict[str, Any]:
    least, greatest, bounds_from = key_bounds(group, key)
    first, last = (times_of(group.chunks["fetch_time"]) if "fetch_time" in group.chunks else None) or (None, None)
    return {
        "row_group": group.ordinal,
        "num_rows": group.num_rows,
        "total_byte_size": group.total_byte_size,
        "total_compressed_size": group.total_compressed_size,
        "file_offset": group.start,
        "min_key": least,
        "max_key": greatest,
        "bounds_from": bounds_from,
        "first_fetch": first,
        "last_fetch": last,
        "footer_offset": group.offset,
    }


@dataclass(slots=True)
class MadeTable:
    """The rows of a table, and what is missing in them."""

    rows: list[dict[str, Any]]
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
    footers: "Callable[[], StoredFooters]",
) -> MadeTable:
    """Make the rows of a crawl; ``decoded`` ones and those of the ``old`` table need not be decoded again.

    ``versions`` are the digests of the stored files, by path; ``footers`` is called if row groups have no bounds.
    """
    known = old.read_all().to_pylist() if old else []
    rows = [row for row in known if versions.get(row["path"]) == row["version"]]
    digests: dict[int, tuple[Mapping[str, Column], str]] = {}  # by identity: files of a crawl share few schemas
    schemas = {**old.schemas} if old else {}
    undecodable: dict[str, str] = {}
    for path in sorted(versions.keys() - {row["path"] for row in rows}):
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
    used = {row["schema"] for row in rows}
    # Columns are shown in the order of the texts, which a rebuilt table has too.
    schemas = {digest: schemas[digest] for digest in sorted(used, key=schemas.__getitem__)}
    gaps = [row for row in rows if row.get("bounds_from") not in {None, "footer", SIGNED}]
    if gaps:
        _find_bounds(gaps, store, dataset.key, schemas, footers())
    return MadeTable(rows, schemas, undecodable, len(gaps))


def _decoded(store: Store, dataset: Dataset, path: str, version: bytes) -> FooterRows | None:
    stored, file = store.get("files", path), dataset.file(path)
    if stored is None or file is None:
        return None
    footer = examine_footer(stored.data, stored.size, dataset.key)
    return rows_of_footer(dataset.key, file, stored, version, footer)


def _find_bounds(
    rows: Sequence[dict[str, Any]], store: Store, key: str, schemas: Mapping[str, str], footers: "StoredFooters"
) -> None:
    """Set the bounds that footers do not have, from stored page indexes."""
    for row in rows:
        found, origin = list[Bounds](), ""
        version = StoredFile(b"", *STORED_VALUES(row))
        indexes = store.indexes(row["path"], [row["row_group"]], version).get(row["row_group"])
        if indexes and indexes.bounds:
            found, origin = [indexes.bounds], "scan"
        elif indexes:
            chunks = footers.chunks(row, decode_columns(schemas[row["schema"]]))
            pages = page_bounds(indexes, chunks[key], row["num_rows"])
            found, origin = [bounds for bounds, _ in pages], "page index"
        row["min_key"] = text_from(min(each.min for each in found)) if found else None
        row["max_key"] = greatest_text(max(each.max for each in found)) if found else None
        row["bounds_from"] = origin if found else "missing"


def greatest_text(key: bytes) -> str:
    """Return a text that is not less than a bound, which may have been cut within a character."""
    return text_after(key) or chr(maxunicode)
