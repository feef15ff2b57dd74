"""Build the metadata database from the store."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from catalogue.commoncrawl.crawls import has_columnar_index
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path, parse_collinfo
from catalogue.errors import FormatError
from catalogue.metadata_db.blocks_view import list_rows, show_rows
from catalogue.metadata_db.file_rows import NewFile, add_files, are_of, packed
from catalogue.metadata_db.incoming import incoming
from catalogue.metadata_db.page_rows import add_pages, row_groups_at
from catalogue.metadata_db.queries import queries_folder, statement
from catalogue.parquet.summary import FileSummary, examine_footer
from catalogue.query.literals import literals
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile
from catalogue.store.stored_lists import REQUESTED, listed_files, manifests, requested_subsets
from catalogue.surt import MACROS, Keys

_SUMMARIES = 3000
"""Files whose summaries are in memory at once."""
_CHUNKED = 1000
"""Files whose column chunks are in memory at once."""
_FEW = 50
"""Files whose pages are in memory at once."""


class Build:
    """Adds to a database what is new in the store."""

    def __init__(
        self,
        db: duckdb.DuckDBPyConnection,
        store: Store,
        table: Dataset,
        since: Mapping[str, list[str]] | None,
        folder: Path,
    ) -> None:
        self._db = db
        self._folder = folder
        self._store = store
        self._since = since
        """Keys written since the last update, by table of the store; None if nothing is shown yet."""
        self._table = table
        self._undecodable: dict[str, str] = {}
        """Reasons why stored footers cannot be decoded, by path."""
        if since is None:
            db.execute(statement("views/_tables.sql", table))

    def run(self, made_from: Mapping[str, str], column_chunks: set[str]) -> None:
        """Add everything new; ``made_from`` is stored in ``derived.meta``, for the other see ``refresh``."""
        stored = self._store.keys("files")
        written = stored if self._since is None else self._since["files"]
        shown = self._rows("SELECT path FROM derived.files UNION SELECT path FROM derived.failures WHERE undecodable")
        touched = [*{*written, *({path for (path,) in shown} ^ {*stored})}]
        self._drop(touched)
        chunks_of = column_chunks | {c for (c,) in self._rows("SELECT crawl FROM derived.files WHERE column_chunks")}
        versions = self._store.versions("files", touched)
        new = sorted(versions)
        if new or column_chunks:
            for start in range(0, len(new), _SUMMARIES):
                self._add(new[start : start + _SUMMARIES], versions)
            self._show_chunks(chunks_of)
        if self._since is None:
            self._show_indexes({*self._store.keys("indexes")})
        else:
            of_new = (key for path in new for key in self._store.index_keys(path))
            self._show_indexes({*self._since["indexes"], *of_new})
        self._small_tables(touched)
        if self._table == COMMON_CRAWL:
            self._replace("block_lists", list_rows(self._store))
            show_rows(self._db)
        if self._since is None:
            self._make_views()
        self._db.execute("DELETE FROM derived.meta")
        self._insert("meta", [{"key": key, "value": value} for key, value in made_from.items()])

    def _make_views(self) -> None:
        for view in sorted((queries_folder() / "views").glob("[a-z]*.sql")):
            self._db.execute(statement(f"views/{view.name}", self._table))
        for macro in MACROS if self._table.keys is Keys.URL else ():
            self._db.execute(macro.statement)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()

    def _drop(self, paths: list[str]) -> None:
        numbers = self._numbers(paths)
        if not numbers:
            return
        for table in ("column_chunks", "row_groups", "pages", "key_intervals", "files"):
            self._db.execute(f"DELETE FROM derived.{table} WHERE file IN {literals(numbers.values())}")  # noqa: S608

    def _numbers(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the numbers of the files that are shown, by path."""
        shown = self._rows("SELECT path, file FROM derived.files")
        requested = {*paths}
        return {path: number for path, number in shown if path in requested}

    def _add(self, paths: list[str], versions: Mapping[str, bytes]) -> None:
        """Add files by their stored summaries; decode the footers of others."""
        known = {path: value for path, value in self._store.facts(paths).items() if are_of(value.note, versions[path])}
        learned = self._examined([path for path in paths if path not in known], versions)
        self._store.add_facts(learned.items())
        known |= learned
        first = self._rows("SELECT coalesce(max(file), -1) + 1 FROM derived.files")[0][0]
        files = [(file, known[path]) for path in paths if path in known and (file := self._table.file(path))]
        new = (NewFile(n, file, versions[file.path], value) for n, (file, value) in enumerate(files, first))
        add_files(self._db, new, self._folder)

    def _examined(self, paths: Iterable[str], versions: Mapping[str, bytes]) -> dict[str, StoredFile]:
        def decode(path: str) -> tuple[str, StoredFile] | None:
            stored = self._store.get("files", path)
            if stored is None:
                return None
            try:
                found = examine_footer(stored.data, stored.size, self._table.key)
            except FormatError as error:
                self._undecodable[path] = f"{path}: {error}"
                return None
            return path, packed(found, stored, versions[path])

        return dict(filter(None, map(decode, paths)))

    def _show_chunks(self, crawls: set[str]) -> None:
        """Add missing column chunks of these crawls."""
        missing = [
            (number, path)
            for number, path, crawl in self._rows("SELECT file, path, crawl FROM derived.files WHERE NOT column_chunks")
            if crawl in crawls
        ]

        if not missing:
            return

        def decode(path: str) -> FileSummary | None:
            stored = self._store.get("files", path)
            try:
                return examine_footer(stored.data, stored.size, self._table.key, column_chunks=True) if stored else None
            except FormatError as error:
                self._undecodable[path] = f"{path}: its column chunks are not shown: {error}"
                return None

        for start in range(0, len(missing), _CHUNKED):
            found = ((number, decode(path)) for number, path in missing[start : start + _CHUNKED])
            chunks = [{"file": n, **asdict(chunk)} for n, facts in found if facts for chunk in facts.column_chunks]
            self._insert("column_chunks", chunks)
        numbers = [number for number, _ in missing]
        self._db.execute(
            f"UPDATE derived.files SET column_chunks = true WHERE file IN {literals(numbers)}"  # noqa: S608 - numbers
        )

    def _show_indexes(self, keys: set[str]) -> None:
        """Add the pages of row groups whose index is new or has changed."""
        changed: dict[str, list[int]] = {}
        for path, ordinal in sorted(filter(None, map(row_group_of, keys))):
            changed.setdefault(path, []).append(ordinal)
        numbers = self._numbers(changed)
        stale = ", ".join(str((numbers[path], ordinal)) for path in numbers for ordinal in changed[path])
        if not stale:
            return
        for table in ("pages", "key_intervals"):
            self._db.execute(f"DELETE FROM derived.{table} WHERE (file, row_group) IN (VALUES {stale})")  # noqa: S608
        groups = row_groups_at(self._db, stale)
        for start in range(0, len(groups), _FEW):
            add_pages(self._db, self._store, self._table.key, groups[start : start + _FEW], self._folder)

    def _small_tables(self, files: list[str]) -> None:
        """Update the list of crawls, the counts of manifests, and the failures."""
        value = self._store.get("documents", COLLINFO)
        crawls = parse_collinfo(value.data) if value else []
        self._replace(
            "crawls",
            [
                {
                    "crawl": crawl.id,
                    "name": crawl.name,
                    "first_fetch": _naive(crawl.first_fetch),
                    "last_fetch": _naive(crawl.last_fetch),
                    "has_table": has_columnar_index(crawl.id),
                }
                for crawl in crawls
            ],
        )
        self._show_listed()
        noted = {path: value for path in self._store.keys("failures") if (value := self._store.get("failures", path))}
        failed = {path: (value.note, value.fetched_at, False) for path, value in noted.items()}
        shown = {path for (path,) in self._rows("SELECT path FROM derived.failures WHERE undecodable")} - {*files}
        self._db.execute(
            f"DELETE FROM derived.failures WHERE NOT list_contains({literals(shown)}, path)"  # noqa: S608 - literals
        )
        failed |= {path: (reason, datetime.now(UTC), True) for path, reason in self._undecodable.items()}
        self._insert(
            "failures",
            [
                {
                    "path": path,
                    "crawl": at.crawl,
                    "subset": at.subset,
                    "reason": reason,
                    "failed_at": _naive(time),
                    "undecodable": undecodable,
                }
                for path, (reason, time, undecodable) in failed.items()
                if path not in shown and (at := self._table.file(path))
            ],
        )

    def _show_listed(self) -> None:
        """Count the files of new manifests, with the requested subsets."""
        stored = self._store.keys("documents")
        written = {*stored} if self._since is None else {*self._since["documents"]}
        crawls = {*manifests(stored)}
        if self._table == COMMON_CRAWL:
            shown: dict[str, set[tuple[str, bool]]] = {}
            for crawl, subset, requested in self._rows("SELECT crawl, subset, requested FROM derived.listed"):
                shown.setdefault(crawl, set()).add((subset, requested))
            needed = requested_subsets(stored)
            requests = {crawl: {subset for each, subset in needed if each == crawl} or {"warc"} for crawl in shown}
            outdated = {
                crawl
                for crawl, subsets in shown.items()
                if any((subset in requests[crawl]) != requested for subset, requested in subsets)
            }
            changed = {*manifests(written), *outdated, *(shown.keys() - crawls)}
            self._db.execute(
                f"DELETE FROM derived.listed WHERE list_contains({literals(sorted(changed))}, crawl)"  # noqa: S608
            )
            documents = {manifest_path(crawl) for crawl in changed & crawls}
        elif written:
            self._db.execute("DELETE FROM derived.listed")
            documents = written
        else:
            return
        counts: dict[tuple[str, str], int] = {}
        for file in chain.from_iterable(listed_files(self._store, self._table, documents).values()):
            counts[file.crawl, file.subset] = counts.get((file.crawl, file.subset), 0) + 1
        requested = requested_subsets(self._store.keys("documents", REQUESTED))
        # Interrupted pulls and older stores do not say what was requested: at least the pages.
        unknown = {crawl for crawl, _ in counts} - {crawl for crawl, _ in requested}
        requested |= {(crawl, "warc") for crawl in unknown}
        rows = [
            {"crawl": crawl, "subset": subset, "files": files, "requested": (crawl, subset) in requested}
            for (crawl, subset), files in counts.items()
        ]
        self._insert("listed", rows)

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
