"""Build the metadata database from the tables and the store."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from catalogue.atomic_files import create
from catalogue.commoncrawl.crawls import COLLINFO, has_columnar_index, parse_collinfo
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import BadPageIndex, FormatError, StoreDamaged
from catalogue.metadata_db.connection import queries_folder, statement
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import Bounds, ColumnChunk, kind_of
from catalogue.parquet.page_index import Indexes, decode_column_index, decode_offset_index
from catalogue.query.literals import file_literal, literal
from catalogue.store.database import Store
from catalogue.store.layout import row_group_of
from catalogue.store.stored_lists import LISTS, crawls_with_blocks, list_file
from catalogue.surt.interval import text_from
from catalogue.surt.macros import MACROS
from catalogue.surt.pattern import Keys
from catalogue.tables.make_table import greatest_text
from catalogue.tables.table_file import TABLES_FOLDER, decode_columns

if TYPE_CHECKING:
    from catalogue.tables.crawl_table import FileMetadata
    from catalogue.tables.stored_crawls import StoredCrawls

_OF_CRAWL = ("column_chunks", "row_groups", "pages", "files")
"""Tables whose rows belong to the table of a crawl."""
_BUFFER = 1 << 20
_PART = 4 << 20
"""Bytes of JSON that are loaded at a time."""
_PLAIN = "hive_partitioning = false"
"""An option against columns of values in the path of the data folder, such as ``crawl=...``."""


@dataclass(frozen=True, slots=True)
class Build:
    """Adds to a database in use what is new in the tables and the store."""

    db: duckdb.DuckDBPyConnection
    folder: Path
    """A folder for temporary files."""
    store: Store
    crawls: "StoredCrawls"
    dataset: Dataset
    new: bool
    """Whether the database is empty."""

    def run(self, made_from: Mapping[str, str], column_chunks: set[str]) -> None:
        """Add everything new; ``made_from`` is stored in ``derived.meta``."""
        if self.new:
            self._run("views/_tables.sql")
        state = self.crawls.tables
        sql = "SELECT crawl, checksum, indexes, last_index, column_chunks FROM derived.tables"
        shown = {row[0]: row[1:] for row in self.db.execute(sql).fetchall()}
        crawls = {crawl: each for crawl, each in state.crawls.items() if each.checksum}
        self._replace("schemas", [_schema_row(digest, text) for digest, text in state.schemas.items()])
        for crawl in shown.keys() - crawls.keys():
            self._delete(crawl)
        tables = []
        for crawl, each in crawls.items():
            checksum, indexes, last_index, chunks = shown.get(crawl, (0, "", 0, False))
            if checksum != each.checksum or crawl in column_chunks - ({crawl} if chunks else set()):
                chunks |= crawl in column_chunks
                self._load(crawl, column_chunks=chunks)
                indexes, last_index = "", 0
            if indexes != each.stored_indexes:
                last_index = self._show_pages(crawl, last_index)
            row = (crawl, each.checksum, each.stored_indexes, last_index, chunks)
            tables.append(dict(zip(("crawl", "checksum", "indexes", "last_index", "column_chunks"), row, strict=True)))
        self._replace("tables", tables)
        self._replace("crawls", self._crawl_list())
        listed = (
            {"crawl": crawl, "subset": subset, "files": files, "requested": subset in each.requested}
            for crawl, each in state.crawls.items()
            for subset, files in each.listed.items()
        )
        self._replace("listed", [*listed])
        self._replace("failures", self._failures())
        lists = self._block_lists()
        self._replace("block_lists", lists)
        self._make_views([row["crawl"] for row in lists], [crawl for crawl in crawls if self.crawls.has_values(crawl)])
        self._replace("meta", [{"key": key, "value": value} for key, value in made_from.items()])

    def _run(self, name: str, **values: str) -> None:
        sql = statement(name, self.dataset)
        self.db.execute(re.sub(r"\$([a-z]+)", lambda found: values.get(found[1], found[0]), sql))

    def _delete(self, crawl: str) -> None:
        for table in () if self.new else _OF_CRAWL:
            self.db.execute(f"DELETE FROM derived.{table} WHERE crawl = {literal(crawl)}")  # noqa: S608

    def _load(self, crawl: str, *, column_chunks: bool) -> None:
        self._delete(crawl)
        self._run("views/_load_table.sql", table=file_literal(self.crawls.checked_path(crawl)))
        if column_chunks:
            rows = (row for file in self.crawls.files(crawl) for row in _column_chunk_rows(file))
            self._load_rows("views/_load_column_chunks.sql", rows)

    def _make_views(self, lists: list[str], values: list[str]) -> None:
        folder = f"coalesce(getvariable('catalogue_folder'), {literal(str(self.store.path.parent.resolve()))})"
        folder = rf"regexp_replace({folder}, '([*?\[])', '[\1]', 'g')"  # see file_literal
        files = ", ".join(f"{folder} || {literal(f'/blocks/{crawl}.parquet')}" for crawl in lists)
        of_values = ", ".join(f"{folder} || {literal(f'/{TABLES_FOLDER}/{crawl}.values.parquet')}" for crawl in values)
        options = f"filename = true, {_PLAIN}"
        blocks = f"read_parquet([{files}], {options})" if files else "derived.no_blocks"
        found = f"read_parquet([{of_values}], {options})" if of_values else "derived.no_values"
        for view in sorted((queries_folder() / "views").glob("[a-z]*.sql")):
            if self.new or view.stem in {"blocks", "column_values"}:
                self._run(f"views/{view.name}", lists=blocks, values=found)
        for macro in MACROS if self.new and self.dataset.keys is Keys.URL else ():
            self.db.execute(macro.statement)

    def _crawl_list(self) -> list[dict[str, Any]]:
        value = self.store.get("documents", COLLINFO)
        return [
            {
                "crawl": crawl.id,
                "name": crawl.name,
                "first_fetch": _naive(crawl.first_fetch),
                "last_fetch": _naive(crawl.last_fetch),
                "has_table": has_columnar_index(crawl.id),
            }
            for crawl in (parse_collinfo(value.data).values() if value else ())
        ]

    def _failures(self) -> list[dict[str, Any]]:
        noted = {path: value for path in self.store.keys("failures") if (value := self.store.get("failures", path))}
        failed = {path: (value.note, value.fetched_at) for path, value in noted.items()}
        for state in self.crawls.tables.crawls.values():
            failed |= {path: (reason, datetime.now(UTC)) for path, reason in state.undecodable.items()}
        return [
            {"path": path, "crawl": at.crawl, "subset": at.subset, "reason": reason, "failed_at": _naive(time)}
            for path, (reason, time) in failed.items()
            if (at := self.dataset.file(path))
        ]

    def _block_lists(self) -> list[dict[str, Any]]:
        crawls = crawls_with_blocks(self.store) if self.dataset == COMMON_CRAWL else []
        if crawls:
            from catalogue.cdx.block_file import block_count  # noqa: PLC0415 - imports pyarrow.compute, slowly
        rows = []
        for crawl in crawls:
            with suppress(StoreDamaged):
                document = self.store.get("documents", LISTS + crawl)
                if document and list_file(self.store, crawl).exists():
                    rows.append({"crawl": crawl, "blocks": block_count(document.data)})
        return rows

    def _replace(self, table: str, rows: list[dict[str, Any]]) -> None:
        kinds = dict(self.db.execute(f"SELECT name, type FROM pragma_table_info('derived.{table}')").fetchall())  # noqa: S608
        if not self.new:
            self.db.execute(f"DELETE FROM derived.{table}")  # noqa: S608 - a constant
        # A literal, because DuckDB imports pandas for a parameter.
        given = f"from_json({literal(json.dumps(rows))}, {literal(json.dumps([kinds]))})"
        self.db.execute(f"INSERT INTO derived.{table} BY NAME SELECT unnest({given}, recursive := true)")

    def _show_pages(self, crawl: str, last_index: int) -> int:
        """Replace the pages of row groups whose index was written after a row of the store; return the last row."""
        changed: dict[str, list[int]] = {}
        rows = self.store.row_numbers("indexes", "" if crawl == self.dataset.name else f"crawl={crawl}/")
        for key, row in rows.items():
            if row > last_index and (place := row_group_of(key)):
                changed.setdefault(place[0], []).append(place[1])
        if changed and last_index:
            places = ", ".join(f"({literal(path)}, {ordinal})" for path, some in changed.items() for ordinal in some)
            self.db.execute(f"DELETE FROM derived.pages WHERE (path, row_group) IN (VALUES {places})")  # noqa: S608
        if changed:
            pages = (row for path, ordinals in changed.items() for row in self._page_rows(path, ordinals))
            self._load_rows("views/_load_pages.sql", pages)
        return max(rows.values(), default=0)

    def _page_rows(self, path: str, ordinals: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield lists by column: DuckDB takes several times as long for a dictionary for each page.

        This decodes the stored footer, because tables of crawls are read with pyarrow, whose import takes 80 MB.
        """
        file, stored = self.dataset.file(path), self.store.undamaged("files", path)
        if file is None or stored is None:
            return
        with suppress(FormatError):
            indexes = self.store.indexes(path, ordinals, stored)
            for group in decode_footer(stored.data, stored.size).row_groups:
                found = indexes.get(group.ordinal, Indexes())
                if located := found.offset_indexes.get(self.dataset.key):
                    with suppress(BadPageIndex):
                        lists = _lists(group.chunks[self.dataset.key], group.num_rows, located, found.column_index)
                        at = {"crawl": file.crawl, "subset": file.subset, "row_group": group.ordinal}
                        yield {"path": path, **at, **lists}

    def _load_rows(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Run a statement of ``queries/`` with ``read_json`` options for the rows in place of ``$rows``.

        DuckDB reads them from temporary files without pandas. Each has about ``_PART`` bytes, as the lists of thousands
        of rows are expanded at once.
        """
        path, sql = self.folder / "rows.json", statement(name, self.dataset)
        lines = (json.dumps(row).encode() + b"\n" for row in rows)
        while line := next(lines, b""):
            longest = written = 0
            with create(path, buffering=_BUFFER) as file:
                while line:
                    file.write(line)
                    longest, written = max(longest, len(line)), written + len(line)
                    line = next(lines, b"") if written < _PART else b""
            # DuckDB's buffers have twice this size; by default 32 MB.
            options = f"format = 'newline_delimited', maximum_object_size = {max(longest, _BUFFER)}, {_PLAIN}"
            self.db.execute(sql.replace("$rows", f"{file_literal(path)}, {options}"))
            path.unlink()


def _schema_row(digest: str, schema: str) -> dict[str, Any]:
    columns = decode_columns(schema)
    return {"schema": digest, "column_names": [*columns], "column_kinds": [*map(kind_of, columns.values())]}


def _naive(time: datetime | None) -> str | None:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() if time else None


def _lists(key: ColumnChunk, num_rows: int, located: bytes, column_index: bytes | None) -> dict[str, Any]:
    offsets = decode_offset_index(located, key, num_rows)
    index = decode_column_index(column_index, key, offsets) if column_index else None
    bounds = index.bounds if index else [None] * len(offsets)
    return {
        "first_rows": offsets.first_rows,
        "offsets": offsets.offsets,
        "null_counts": index and index.null_counts,
        "min_keys": [each and text_from(each.min) for each in bounds],
        "max_keys": [each and greatest_text(each.max) for each in bounds],
    }


def _column_chunk_rows(file: "FileMetadata") -> Iterator[dict[str, Any]]:
    for group in file.footer.row_groups:
        for name, chunk in group.chunks.items():
            is_text = chunk.column.physical_type == "BYTE_ARRAY"
            bounds: Bounds | None = chunk.bounds if is_text else None
            yield {
                "path": file.path,
                "crawl": file.file.crawl,
                "subset": file.file.subset,
                "row_group": group.ordinal,
                "column_name": name,
                "physical_type": chunk.column.physical_type,
                "codec": chunk.codec_name,
                "num_values": chunk.num_values,
                "null_count": chunk.null_count,
                "file_offset": chunk.range.start,
                "total_compressed_size": len(chunk.range),
                "total_uncompressed_size": chunk.total_uncompressed_size,
                "min": bounds and bounds.min.decode(),
                "max": bounds and bounds.max.decode(),
                "has_page_index": bool(chunk.column_index and chunk.offset_index),
            }
