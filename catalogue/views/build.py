"""The catalogue: a DuckDB file derived from the store, which can be deleted and made again at any time.

It is built beside the old one and renamed over it: a shell that has the old one open keeps it and blocks nobody. It is
written in a format that DuckDB since 1.1 can read.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from filelock import FileLock

from catalogue.crawl import COLLINFO, has_table, index_file, manifest_path, parse_collinfo, parse_manifest
from catalogue.errors import CatalogueError, DiskFailed, FormatError
from catalogue.examine import Examiner, FileFacts
from catalogue.footer import decode_footer
from catalogue.store import Held, Store
from catalogue.views.key_pages import key_pages
from catalogue.views.opened import connect, queries_folder, quoted

STORAGE_VERSION = "v1.1.0"
LAYOUT = "2"
"""Changes with the tables; a catalogue of another layout is made again."""

_BATCH = 300
"""Files whose facts are in memory at once."""


def refresh(
    path: Path,
    store: Store,
    *,
    facts: Mapping[str, FileFacts] | None = None,
    column_chunks: Iterable[str] = (),
    examiner: Examiner | None = None,
) -> None:
    """Bring the catalogue at ``path`` up to date with the store; only footers that are new to it are decoded.

    Args:
        path: of the DuckDB file.
        store: what it is derived from.
        facts: of files that have just been examined, by path.
        column_chunks: crawls whose column chunks are to be shown too, from now on.
        examiner: looks into the other new footers; one is started if it is needed and not given.

    Raises:
        DiskFailed: if it cannot be written; the old one stays.
    """
    wanted = set(column_chunks)
    if not (wanted or facts) and is_fresh(path, store):
        return
    with _disk_errors(path), FileLock(f"{path}.lock"):
        shown = _meta(path)
        if not wanted and shown == _meta_of(store):  # somebody else has just done it
            return
        beside = path.with_name(path.name + ".new")
        _remove(beside)
        if shown.get("layout") == LAYOUT:
            shutil.copyfile(path, beside)
        build = _Build(beside, store)
        try:
            build.run(facts or {}, wanted, examiner)
        finally:
            build.close()
        _swap(beside, path)


def is_fresh(path: Path, store: Store) -> bool:
    """Whether the catalogue shows all that is in the store."""
    return _meta(path) == _meta_of(store)


def connect_fresh(path: Path, store: Store, *, indexes: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the catalogue, which is brought up to date first if need be.

    Args:
        path: of the DuckDB file.
        store: what it is derived from.
        indexes: whether it must show all page indexes, too, to which nearly every question adds.

    Raises:
        DiskFailed: if it cannot be written.
        StoreLocked: if somebody has it open for writing.
    """
    wanted = _meta_of(store)
    if path.exists():
        with suppress(duckdb.Error):
            connection = connect(path)
            try:
                found = _read_meta(connection)
                if found == wanted if indexes else {**found, "indexes": ""} == {**wanted, "indexes": ""}:
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()
    refresh(path, store)
    return connect(path)


class _Build:
    """A catalogue in the making."""

    def __init__(self, path: Path, store: Store) -> None:
        self._store = store
        self._undecodable: dict[str, str] = {}
        """Reasons why footers that are held cannot be shown, by path."""
        self._db = duckdb.connect(config={"python_enable_replacements": "false"})
        version = "" if path.exists() else f" (STORAGE_VERSION '{STORAGE_VERSION}')"
        self._db.execute(f"ATTACH {quoted(path)} AS building{version}")
        self._db.execute("USE building")
        self._db.execute((queries_folder() / "views" / "_tables.sql").read_text(encoding="utf-8"))

    def close(self) -> None:
        self._db.close()

    def run(self, facts: Mapping[str, FileFacts], column_chunks: set[str], examiner: Examiner | None) -> None:
        meta = _meta_of(self._store)  # before anything is read: what is written meanwhile is seen next time
        shown = {path: bytes(version) for path, version in self._rows("SELECT path, version FROM derived.files")}
        chunks_of = column_chunks | {c for (c,) in self._rows("SELECT crawl FROM derived.files WHERE column_chunks")}
        versions = self._store.versions()
        stale = [path for path, version in shown.items() if versions.get(path) != version]
        without = {
            path
            for (path, crawl) in self._rows("SELECT path, crawl FROM derived.files WHERE NOT column_chunks")
            if crawl in column_chunks
        }
        self._drop({*stale, *without})
        kept = shown.keys() - without - set(stale)
        new = sorted(path for path in versions if path not in kept)
        if new:
            with nullcontext(examiner) if examiner else Examiner() as looking:
                for start in range(0, len(new), _BATCH):
                    self._add(new[start : start + _BATCH], versions, facts, chunks_of, looking)
        self._show_indexes()
        self._small_tables()
        for view in sorted((queries_folder() / "views").glob("[a-z]*.sql")):
            self._db.execute(view.read_text(encoding="utf-8"))
        self._db.execute("DELETE FROM derived.meta")
        self._db.executemany("INSERT INTO derived.meta VALUES (?, ?)", list(meta.items()))
        self._db.execute("CHECKPOINT building")

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()

    def _drop(self, paths: set[str]) -> None:
        if not paths:
            return
        numbers = self._db.execute(
            "SELECT file FROM derived.files WHERE list_contains($1, path)", [list(paths)]
        ).fetchall()
        for table in ("column_chunks", "row_groups", "pages", "found_bounds", "indexes", "files"):
            self._db.execute(
                f"DELETE FROM derived.{table} WHERE list_contains($1, file)",  # noqa: S608 - one of these constants
                [[number for (number,) in numbers]],
            )

    def _add(
        self,
        paths: list[str],
        versions: Mapping[str, bytes],
        facts: Mapping[str, FileFacts],
        chunks_of: set[str],
        examiner: Examiner,
    ) -> None:
        def look(path: str) -> tuple[str, Held, FileFacts] | None:
            held = self._store.get("files", path)
            file = index_file(path)
            if held is None or file is None:
                return None
            known = None if file.crawl in chunks_of else facts.get(path)
            try:
                found = known or examiner.examine(held.data, held.size, column_chunks=file.crawl in chunks_of)
            except FormatError as error:
                self._undecodable[path] = f"{path}: {error}"
                return None
            return path, held, found

        with examiner.executor() as executor:
            looked = [found for found in executor.map(look, paths) if found]
        first = self._rows("SELECT coalesce(max(file), -1) + 1 FROM derived.files")[0][0]
        numbered = list(enumerate(looked, first))
        self._insert("files", [_file_row(number, *found, versions, chunks_of) for number, found in numbered])
        self._insert(
            "row_groups",
            [
                {
                    "file": number,
                    "row_group": group.ordinal,
                    **{k: v for k, v in asdict(group).items() if k != "ordinal"},
                }
                for number, (_, _, found) in numbered
                for group in found.row_groups
            ],
        )
        self._insert(
            "column_chunks",
            [{"file": n, **asdict(chunk)} for n, (_, _, found) in numbered for chunk in found.column_chunks],
        )

    def _show_indexes(self) -> None:
        """Show the pages of row groups whose index is new, or another than before."""
        shown = {key: bytes(version) for key, version in self._rows("SELECT key, version FROM derived.indexes")}
        held = self._store.versions("indexes")
        numbers = dict(self._rows("SELECT path, file FROM derived.files"))
        changed: dict[str, list[str]] = {}
        for key in sorted(key for key in shown.keys() | held.keys() if shown.get(key) != held.get(key)):
            changed.setdefault(key.rpartition("#")[0], []).append(key)
        stale = [
            [numbers[path], int(key.rpartition("#")[2])] for path in changed if path in numbers for key in changed[path]
        ]
        if shown and stale:
            for table in ("pages", "found_bounds", "indexes"):
                self._db.execute(
                    f"DELETE FROM derived.{table} WHERE list_contains($1, [file, row_group])",  # noqa: S608 - see above
                    [stale],
                )
        for path, keys in changed.items():
            self._add_indexes(path, numbers[path], keys, held)

    def _add_indexes(self, path: str, number: int, keys: list[str], versions: Mapping[str, bytes]) -> None:
        file = self._store.get("files", path)
        if file is None:
            return
        footer = decode_footer(file.data, file.size)
        ordinals = {int(key.rpartition("#")[2]): key for key in keys if key in versions}
        pages, bounds = [], []
        for ordinal, indexes in self._store.indexes(path, ordinals, file).items():
            place = {"file": number, "row_group": ordinal}
            rows, found = key_pages(footer, ordinal, indexes)
            pages += [place | row for row in rows]
            bounds += [place | found] if found else []
        self._insert("pages", pages)
        self._insert("found_bounds", bounds)
        self._insert(
            "indexes",
            [{"key": k, "version": versions[k], "file": number, "row_group": n} for n, k in ordinals.items()],
        )

    def _small_tables(self) -> None:
        held = self._store.get("documents", COLLINFO)
        crawls = parse_collinfo(held.data) if held else []
        self._replace(
            "crawls",
            [
                {
                    "crawl": crawl.id,
                    "name": crawl.name,
                    "first_fetch": _naive(crawl.first_fetch),
                    "last_fetch": _naive(crawl.last_fetch),
                    "has_table": has_table(crawl.id),
                }
                for crawl in crawls
            ],
        )
        counts: dict[tuple[str, str], int] = {}
        for path in self._store.keys("documents", "cc-index-table.paths.gz"):
            crawl = path.split("/")[1]
            document = self._store.get("documents", manifest_path(crawl))
            for file in parse_manifest(crawl, document.data) if document else []:
                counts[file.crawl, file.subset] = counts.get((file.crawl, file.subset), 0) + 1
        self._replace("listed", [{"crawl": c, "subset": s, "files": n} for (c, s), n in counts.items()])
        noted = {path: held for path in self._store.keys("failures") if (held := self._store.get("failures", path))}
        failed = {path: (held.note, datetime.fromisoformat(held.taken)) for path, held in noted.items()}
        failed |= {path: (reason, datetime.now(UTC)) for path, reason in self._undecodable.items()}
        self._replace(
            "failures",
            [
                {"path": path, "crawl": at.crawl, "subset": at.subset, "reason": reason, "failed_at": _naive(time)}
                for path, (reason, time) in failed.items()
                if (at := index_file(path))
            ],
        )

    def _replace(self, table: str, rows: list[dict[str, Any]]) -> None:
        self._db.execute(f"DELETE FROM derived.{table}")  # noqa: S608 - a constant
        self._insert(table, rows)

    def _insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        self._db.register("incoming", pa.Table.from_pylist(rows))
        try:
            self._db.execute(f"INSERT INTO derived.{table} BY NAME SELECT * FROM incoming")  # noqa: S608 - a constant
        finally:
            self._db.unregister("incoming")


def _file_row(
    number: int, path: str, held: Held, facts: FileFacts, versions: Mapping[str, bytes], chunks_of: set[str]
) -> dict[str, Any]:
    file = index_file(path)
    assert file  # noqa: S101 - checked when it was looked into
    return {
        "file": number,
        "path": path,
        "crawl": file.crawl,
        "subset": file.subset,
        "version": versions[path],
        "file_size": held.size,
        "footer_size": len(held.data),
        "etag": held.etag,
        "last_modified": held.last_modified,
        "source": held.source,
        "harvested_at": _naive(datetime.fromisoformat(held.taken)),
        "num_rows": facts.num_rows,
        "created_by": facts.created_by,
        "codec": facts.codec,
        "column_names": list(facts.column_names),
        "utc_times": facts.utc_times,
        "has_page_index": facts.has_page_index,
        "column_chunks": file.crawl in chunks_of,
    }


def _naive(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC).replace(tzinfo=None) if time else None


def _meta(path: Path) -> dict[str, str]:
    """What the catalogue at a path was made from; nothing, if there is none that can be read."""
    if not path.exists():
        return {}
    try:
        with connect(path) as connection:
            return _read_meta(connection)
    except duckdb.Error:
        return {}


def _read_meta(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return dict(connection.execute("SELECT key, value FROM derived.meta").fetchall())


def _meta_of(store: Store) -> dict[str, str]:
    return {"layout": LAYOUT, "store": store.state(), "indexes": store.index_state()}


def _swap(new: Path, path: Path) -> None:
    """Put a finished catalogue in the old one's place, whole or not at all."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    # A log left by a crashed shell belongs to the old file; DuckDB would refuse the new one for its sake.
    path.with_name(path.name + ".wal").unlink(missing_ok=True)
    new.replace(path)
    with suppress(OSError):  # a folder cannot be opened everywhere
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove(path: Path) -> None:
    for name in (path.name, path.name + ".wal"):
        path.with_name(name).unlink(missing_ok=True)


class _disk_errors:  # noqa: N801 - used as a context, like contextlib's own
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        full = isinstance(error, duckdb.IOException | duckdb.FatalException)
        if full or (isinstance(error, OSError) and not isinstance(error, CatalogueError)):
            message = f"{self._path} cannot be written: {error}; the one that was there is kept"
            raise DiskFailed(message) from error
