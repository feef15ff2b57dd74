"""Build the metadata database from the tables and the store."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from catalogue.commoncrawl.crawls import has_columnar_index
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import COLLINFO, parse_collinfo
from catalogue.metadata_db.blocks_view import list_rows, show_rows
from catalogue.metadata_db.incoming import incoming
from catalogue.metadata_db.page_rows import add_pages
from catalogue.metadata_db.queries import queries_folder, statement
from catalogue.parquet.column_types import kind_of
from catalogue.query.literals import literal, literals
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.surt import MACROS, Keys
from catalogue.tables.open_tables import Tables
from catalogue.tables.table_schema import decode_columns
from catalogue.tables.tables_state import CrawlState

_FEW = 50
"""Files whose pages are in memory at once."""


class Build:
    """Adds to a database what is new in the tables and the store."""

    def __init__(
        self, db: duckdb.DuckDBPyConnection, store: Store, tables: Tables, dataset: Dataset, folder: Path, *, new: bool
    ) -> None:
        """Prepare an update of the database in use.

        Args:
            db: the connection.
            store: the store.
            tables: the tables.
            dataset: the dataset.
            folder: for temporary files.
            new: whether the database is empty.
        """
        self._db = db
        self._folder = folder
        self._store = store
        self._tables = tables
        self._dataset = dataset
        self._new = new
        if new:
            db.execute(statement("views/_tables.sql", dataset))

    def run(self, made_from: Mapping[str, str], column_chunks: set[str]) -> None:
        """Add everything new; ``made_from`` is stored in ``derived.meta``, for the other see ``refresh``."""
        rows = self._rows("SELECT crawl, checksum, last_index, column_chunks FROM derived.tables")
        shown = {crawl: (checksum, last_index, chunks) for crawl, checksum, last_index, chunks in rows}
        (store,) = self._rows("SELECT value FROM derived.meta WHERE key = 'store'") or [("",)]
        same_numbers = str(store[0]).partition(":")[0] == self._tables.state.store_id
        crawls = self._tables.state.crawls
        for crawl in shown.keys() - {crawl for crawl, each in crawls.items() if each.checksum}:
            self._drop(crawl, "true")
        for crawl, state in crawls.items():
            checksum, last_index, chunks = shown.get(crawl, (0, 0, False))
            chosen = crawl in column_chunks
            new: list[str] = []
            if state.checksum and (checksum != state.checksum or chosen > chunks):
                new = self._load(crawl, state, column_chunks=chunks or chosen)
            if state.checksum and (last_index != state.last_rows["indexes"][1] or not same_numbers or new):
                self._show_pages(crawl, {*new}, last_index if same_numbers else 0)
            chunks |= chosen
            shown[crawl] = state.checksum, state.last_rows["indexes"][1], chunks
        names = ("checksum", "last_index", "column_chunks")
        self._replace(
            "tables",
            [
                {"crawl": crawl} | dict(zip(names, shown[crawl], strict=True))
                for crawl in crawls
                if crawls[crawl].checksum
            ],
        )
        self._small_tables()
        if self._dataset == COMMON_CRAWL:
            self._replace("block_lists", list_rows(self._store))
            show_rows(self._db)
        if self._new:
            self._make_views()
        self._replace("meta", [{"key": key, "value": value} for key, value in made_from.items()])

    def _make_views(self) -> None:
        for view in sorted((queries_folder() / "views").glob("[a-z]*.sql")):
            self._db.execute(statement(f"views/{view.name}", self._dataset))
        for macro in MACROS if self._dataset.keys is Keys.URL else ():
            self._db.execute(macro.statement)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()

    def _drop(self, crawl: str, condition: str) -> None:
        """Delete the files of a crawl that meet a condition, and what belongs to them."""
        gone = f"SELECT file FROM derived.files WHERE crawl = {literal(crawl)} AND {condition}"  # noqa: S608
        for table in ("column_chunks", "row_groups", "pages", "files"):
            self._db.execute(f"DELETE FROM derived.{table} WHERE file IN ({gone})")  # noqa: S608 - literals

    def _load(self, crawl: str, state: CrawlState, *, column_chunks: bool) -> list[str]:
        """Replace the files and row groups of a crawl; return the paths of files that were not shown before."""
        run, source = self._db.execute, f"read_parquet({literal(str(self._tables.checked_path(crawl)))})"
        run(f"CREATE OR REPLACE TEMP TABLE incoming AS SELECT * EXCLUDE (chunks) FROM {source}")  # noqa: S608
        self._drop(crawl, "(path, version) NOT IN (SELECT path, version FROM incoming)")
        of_crawl = f"SELECT file FROM derived.files WHERE crawl = {literal(crawl)}"  # noqa: S608
        for table in ("column_chunks", "row_groups"):
            run(f"DELETE FROM derived.{table} WHERE file IN ({of_crawl})")  # noqa: S608
        new = [
            path for (path,) in self._rows("SELECT DISTINCT path FROM incoming ANTI JOIN derived.files USING (path)")
        ]
        run(statement("views/_load_files.sql", self._dataset).replace("$numbers", literals(self._schemas(state))))
        run(statement("views/_load_row_groups.sql", self._dataset))
        if column_chunks:
            run(statement("views/_load_column_chunks.sql", self._dataset).replace("$source", source))
        run("DROP TABLE incoming")
        return new

    def _schemas(self, state: CrawlState) -> list[int]:
        """Return the number in ``derived.columns`` of each schema of a crawl."""
        rows = self._rows("SELECT columns, column_names, column_kinds FROM derived.columns")
        known = {(tuple(names), tuple(kinds)): number for number, names, kinds in rows}
        numbers = []
        for text in state.schemas:
            columns = decode_columns(text)
            schema = tuple(columns), tuple(map(kind_of, columns.values()))
            if schema not in known:
                known[schema] = len(known)
                row = {"columns": known[schema], "column_names": [*schema[0]], "column_kinds": [*schema[1]]}
                self._insert("columns", [row])
            numbers.append(known[schema])
        return numbers

    def _show_pages(self, crawl: str, new: set[str], last_index: int) -> None:
        """Add the pages of row groups whose index was written after a row of the store, or whose file is new."""
        rows = self._rows(f"SELECT path, file FROM derived.files WHERE crawl = {literal(crawl)}")  # noqa: S608
        numbers = dict(rows)
        changed: dict[str, list[int]] = {}
        of_crawl = "" if crawl == self._dataset.name else f"crawl={crawl}/"
        for key, row in self._store.row_numbers("indexes", of_crawl).items():
            path, ordinal = row_group_of(key) or ("", 0)
            if path in numbers and (row > last_index or path in new):
                changed.setdefault(path, []).append(ordinal)
        stale = ", ".join(str((numbers[path], ordinal)) for path in changed for ordinal in changed[path])
        if not stale:
            return
        self._db.execute(f"DELETE FROM derived.pages WHERE (file, row_group) IN (VALUES {stale})")  # noqa: S608
        files = [(number, path, changed[path]) for path, number in sorted(rows) if path in changed]
        for start in range(0, len(files), _FEW):
            add_pages(self._db, self._store, self._dataset.key, files[start : start + _FEW], self._folder)

    def _small_tables(self) -> None:
        """Update the list of crawls, the counts of manifests, and the failures."""
        value = self._store.get("documents", COLLINFO)
        crawls = [
            {
                "crawl": crawl.id,
                "name": crawl.name,
                "first_fetch": _naive(crawl.first_fetch),
                "last_fetch": _naive(crawl.last_fetch),
                "has_table": has_columnar_index(crawl.id),
            }
            for crawl in (parse_collinfo(value.data) if value else [])
        ]
        self._replace("crawls", crawls)
        states = self._tables.state.crawls
        listed = [
            {"crawl": crawl, "subset": subset, "files": files, "requested": subset in state.requested}
            for crawl, state in states.items()
            for subset, files in state.listed.items()
        ]
        self._replace("listed", listed)
        noted = {path: value for path in self._store.keys("failures") if (value := self._store.get("failures", path))}
        failed = {path: (value.note, value.fetched_at, False) for path, value in noted.items()}
        undecodable = {path: reason for state in states.values() for path, reason in state.undecodable.items()}
        failed |= {path: (reason, datetime.now(UTC), True) for path, reason in undecodable.items()}
        failures = [
            {
                "path": path,
                "crawl": at.crawl,
                "subset": at.subset,
                "reason": reason,
                "failed_at": _naive(time),
                "undecodable": undecodable,
            }
            for path, (reason, time, undecodable) in failed.items()
            if (at := self._dataset.file(path))
        ]
        self._replace("failures", failures)

    def _replace(self, table: str, rows: list[dict[str, Any]]) -> None:
        self._db.execute(f"DELETE FROM derived.{table}")  # noqa: S608 - a constant
        self._insert(table, rows)

    def _insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        kinds = {name: kind for name, kind, *_ in self._rows(f"DESCRIBE derived.{table}") if name in rows[0]}
        with incoming(self._folder, kinds, (json.dumps(row).encode() + b"\n" for row in rows)) as source:
            self._db.execute(f"INSERT INTO derived.{table} BY NAME SELECT * FROM {source}")  # noqa: S608 - constants


def _naive(time: datetime | None) -> str | None:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() if time else None
