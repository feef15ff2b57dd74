"""Build the metadata database from the tables and the store."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from catalogue.commoncrawl.crawls import has_columnar_index
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import COLLINFO, parse_collinfo
from catalogue.errors import StoreDamaged
from catalogue.metadata_db.column_chunk_rows import show_column_chunks
from catalogue.metadata_db.page_rows import show_pages
from catalogue.metadata_db.queries import queries_folder, statement
from catalogue.parquet.column_types import kind_of
from catalogue.query.literals import literal
from catalogue.store.database import Store
from catalogue.store.stored_blocks import LISTS, crawls_with_blocks, list_file
from catalogue.surt import MACROS, Keys
from catalogue.tables.stored_crawls import StoredCrawls
from catalogue.tables.table_schema import decode_columns
from catalogue.tables.tables_state import CrawlState

_OF_CRAWL = ("column_chunks", "row_groups", "pages", "files")
"""Tables whose rows belong to the table of a crawl."""


class Build:
    """Adds to a database what is new in the tables and the store."""

    def __init__(
        self,
        db: duckdb.DuckDBPyConnection,
        folder: Path,
        store: Store,
        crawls: StoredCrawls,
        dataset: Dataset,
        *,
        new: bool,
    ) -> None:
        """Prepare an update of the database in use; ``new``: it is empty; ``folder`` is for temporary files."""
        self._db = db
        self._folder = folder
        self._store = store
        self._crawls = crawls
        self._dataset = dataset
        self._new = new
        if new:
            self._run("views/_tables.sql")

    def run(self, made_from: Mapping[str, str], column_chunks: set[str]) -> None:
        """Add everything new; ``made_from`` is stored in ``derived.meta``, for the other see ``refresh``."""
        state = self._crawls.tables
        rows = self._rows("SELECT crawl, checksum, indexes, last_index, column_chunks FROM derived.tables")
        shown = {row[0]: row[1:] for row in rows}
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
                last_index = show_pages(
                    self._db, self._folder, self._store, self._crawls, self._dataset, crawl, last_index
                )
            row = (crawl, each.checksum, each.stored_indexes, last_index, chunks)
            tables.append(dict(zip(("crawl", "checksum", "indexes", "last_index", "column_chunks"), row, strict=True)))
        self._replace("tables", tables)
        self._replace("crawls", self._crawl_list())
        self._replace("listed", _listed(state.crawls))
        self._replace("failures", self._failures())
        lists = self._block_lists()
        self._replace("block_lists", lists)
        self._make_views([row["crawl"] for row in lists])
        self._replace("meta", [{"key": key, "value": value} for key, value in made_from.items()])

    def _run(self, name: str, **values: str) -> None:
        """Run statements of ``queries/`` with values in place of ``$name``."""
        sql = statement(name, self._dataset)
        for key, value in values.items():
            sql = sql.replace(f"${key}", value)
        self._db.execute(sql)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()

    def _delete(self, crawl: str) -> None:
        for table in _OF_CRAWL:
            self._db.execute(f"DELETE FROM derived.{table} WHERE crawl = {literal(crawl)}")  # noqa: S608

    def _load(self, crawl: str, *, column_chunks: bool) -> None:
        """Replace the files and row groups of a crawl."""
        self._delete(crawl)
        path = literal(str(self._crawls.checked_path(crawl)))
        self._run("views/_load_table.sql", table=path)
        if column_chunks:
            show_column_chunks(self._db, self._folder, self._crawls, self._dataset, crawl)

    def _make_views(self, lists: list[str]) -> None:
        """Define the views; ``blocks`` reads the files of the stored lists of blocks."""
        folder = f"coalesce(getvariable('catalogue_folder'), {literal(str(self._store.path.parent.resolve()))})"
        files = ", ".join(f"{folder} || {literal(f'/blocks/{crawl}.parquet')}" for crawl in lists)
        blocks = f"read_parquet([{files}])" if files else "derived.no_blocks"
        for view in sorted((queries_folder() / "views").glob("[a-z]*.sql")):
            if self._new or view.stem == "blocks":
                self._run(f"views/{view.name}", lists=blocks)
        for macro in MACROS if self._new and self._dataset.keys is Keys.URL else ():
            self._db.execute(macro.statement)

    def _crawl_list(self) -> list[dict[str, Any]]:
        value = self._store.get("documents", COLLINFO)
        return [
            {
                "crawl": crawl.id,
                "name": crawl.name,
                "first_fetch": _naive(crawl.first_fetch),
                "last_fetch": _naive(crawl.last_fetch),
                "has_table": has_columnar_index(crawl.id),
            }
            for crawl in (parse_collinfo(value.data) if value else [])
        ]

    def _failures(self) -> list[dict[str, Any]]:
        """Return the files that could not be fetched or decoded."""
        noted = {path: value for path in self._store.keys("failures") if (value := self._store.get("failures", path))}
        failed = {path: (value.note, value.fetched_at) for path, value in noted.items()}
        for state in self._crawls.tables.crawls.values():
            failed |= {path: (reason, datetime.now(UTC)) for path, reason in state.undecodable.items()}
        return [
            {"path": path, "crawl": at.crawl, "subset": at.subset, "reason": reason, "failed_at": _naive(time)}
            for path, (reason, time) in failed.items()
            if (at := self._dataset.file(path))
        ]

    def _block_lists(self) -> list[dict[str, Any]]:
        """Return the stored lists of blocks of the CDX index whose files exist."""
        crawls = crawls_with_blocks(self._store) if self._dataset == COMMON_CRAWL else []
        if crawls:
            from catalogue.cdx.block_file import block_count  # noqa: PLC0415 - imports pyarrow.compute, slowly
        rows = []
        for crawl in crawls:
            with suppress(StoreDamaged):
                document = self._store.get("documents", LISTS + crawl)
                if document and list_file(self._store, crawl).exists():
                    rows.append({"crawl": crawl, "blocks": block_count(document.data)})
        return rows

    def _replace(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Replace the rows of a small table."""
        kinds = dict(self._db.execute(f"SELECT name, type FROM pragma_table_info('derived.{table}')").fetchall())  # noqa: S608
        self._db.execute(f"DELETE FROM derived.{table}")  # noqa: S608 - a constant
        # A literal, because DuckDB imports pandas for a parameter.
        given = f"from_json({literal(json.dumps(rows))}, {literal(json.dumps([kinds]))})"
        self._db.execute(f"INSERT INTO derived.{table} BY NAME SELECT unnest({given}, recursive := true)")


def _schema_row(digest: str, schema: str) -> dict[str, Any]:
    columns = decode_columns(schema)
    return {"schema": digest, "column_names": [*columns], "column_kinds": [*map(kind_of, columns.values())]}


def _listed(crawls: Mapping[str, CrawlState]) -> list[dict[str, Any]]:
    return [
        {"crawl": crawl, "subset": subset, "files": files, "requested": subset in state.requested}
        for crawl, state in crawls.items()
        for subset, files in state.listed.items()
    ]


def _naive(time: datetime | None) -> str | None:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() if time else None
