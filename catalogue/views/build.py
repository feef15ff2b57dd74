"""The catalogue: a DuckDB file derived from the store, which can be deleted and made again at any time.

It is built beside the old one and renamed over it: a shell that has the old one open keeps it and blocks nobody. It is
written in a format that DuckDB since 1.1 can read.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from catalogue.crawl import COLLINFO, has_table, parse_collinfo
from catalogue.durable import put_in_place, room
from catalogue.errors import CatalogueError, DiskFailed, FormatError
from catalogue.examine import Examiner, FileFacts, digest_of
from catalogue.listing import listed, manifests
from catalogue.store import Held, Store, alone, row_group_of
from catalogue.surt import MACROS, Keys
from catalogue.table import INDEX, Table
from catalogue.views.facts import NewFile, add_files, are_of, packed
from catalogue.views.key_pages import pages_of, row_groups_at
from catalogue.views.opened import connect, log_of, queries_folder, quoted, statement

STORAGE_VERSION = "v1.1.0"
LAYOUT = "9"
"""Changes with what is in the tables; a catalogue of another layout, or with other statements, is made again."""

_BATCH = 1000
"""Files whose facts are in memory at once."""
_FEW = 100  # files whose pages are


def refresh(
    path: Path,
    store: Store,
    table: Table = INDEX,
    *,
    facts: Mapping[str, FileFacts] | None = None,
    column_chunks: Iterable[str] = (),
    examiner: Examiner | None = None,
    busy_seconds: float = 600.0,
    stale: bool = False,
) -> None:
    """Bring the catalogue at ``path`` up to date with the store; only footers that are new to it are decoded.

    Args:
        path: of the DuckDB file.
        store: what it is derived from.
        table: of which that holds the footers.
        facts: of files that have just been examined, by path.
        column_chunks: crawls whose column chunks are to be shown too, from now on.
        examiner: looks into the other new footers; one is started if it is needed and not given.
        busy_seconds: how long to wait for another process that does the same.
        stale: whether it was found to be so.

    Raises:
        DiskFailed: if it cannot be written; the old one stays.
        StoreLocked: if somebody has it open for writing, or another process has been at it for too long.
    """
    wanted = set(column_chunks)
    if not (wanted or facts or stale) and is_fresh(path, store):
        return
    waited = f"another process has been bringing {path} up to date for {busy_seconds:,.0f} s; try again when it is done"
    with _disk_errors(path), alone(path.with_name(f"{path.name}.lock"), waited, seconds=busy_seconds):
        beside = path.with_name(path.name + ".new")
        with _unwritten(path) as shown:
            if not wanted and shown == _meta_of(store):  # somebody else has just done it
                return
            _remove(beside)
            since = store.changes_at(shown["store"], shown["indexes"]) if shown.get("layout") == _layout() else None
            if since:
                shutil.copyfile(path, beside)
        with _unwritten(path):  # again, since whoever closes a file loses all locks that it has on it
            build = _Build(beside, store, table, since)
            try:
                build.run(facts or {}, wanted, examiner)
            finally:
                build.close()
            _swap(beside, path)


@contextmanager
def _unwritten(path: Path) -> Iterator[dict[str, str]]:
    """Keep out those who would write to the catalogue that is there, and tell what that was made from; see ``_meta``.

    They would go on writing when another has taken its place; their log has its name and would be taken for its own.
    """
    with ExitStack() as held:
        shown: dict[str, str] = {}
        if path.exists():
            with suppress(duckdb.Error):  # nobody can open it
                shown = _read_meta(path, held.enter_context(connect(path)))
        yield shown


def is_fresh(path: Path, store: Store, *, indexes: bool = True) -> bool:
    """Whether the catalogue shows all that is in the store; page indexes, too, unless these do not matter."""
    return _is_of(_meta(path), _meta_of(store), indexes=indexes)


def connect_fresh(path: Path, store: Store, table: Table, *, indexes: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the catalogue, which is brought up to date first if need be.

    Args:
        path: of the DuckDB file.
        store: what it is derived from.
        table: of which that holds the footers.
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
                if _is_of(_read_meta(path, connection), wanted, indexes=indexes):
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()
    refresh(path, store, table, stale=True)
    return connect(path)


class _Build:
    """A catalogue in the making."""

    def __init__(self, path: Path, store: Store, table: Table, since: tuple[int, int] | None) -> None:
        self._store = store
        self._since = since
        """Numbers of changes of the store that are shown already, see ``Store.changes_at``; None where none are."""
        self._table = table
        self._undecodable: dict[str, str] = {}
        """Reasons why footers that are held cannot be shown, by path."""
        self._db = duckdb.connect(config={"python_enable_replacements": "false"})
        version = "" if since else f", STORAGE_VERSION '{STORAGE_VERSION}'"
        # No log is kept of what nobody sees before it is whole: it would be synced at each statement, and where
        # that fails for good DuckDB takes the process down.
        self._db.execute(f"ATTACH {quoted(path)} AS building (RECOVERY_MODE NO_WAL_WRITES{version})")
        self._db.execute("USE building")
        if not since:
            self._db.execute(statement("views/_tables.sql", table))

    def close(self) -> None:
        self._db.close()

    def run(self, facts: Mapping[str, FileFacts], column_chunks: set[str], examiner: Examiner | None) -> None:
        meta = _meta_of(self._store)  # before anything is read: what is written meanwhile is seen next time
        since, since_index = self._since or (-1, -1)
        touched = self._store.touched("files", since)
        self._drop(touched)
        chunks_of = column_chunks | {c for (c,) in self._rows("SELECT crawl FROM derived.files WHERE column_chunks")}
        versions = self._store.versions("files", touched)
        new = sorted(versions)
        if new or column_chunks:
            with nullcontext(examiner) if examiner else Examiner(self._table.key) as looking:
                for start in range(0, len(new), _BATCH):
                    self._add(new[start : start + _BATCH], versions, facts, looking)
                self._show_chunks(chunks_of, looking)
        of_new = (key for path in new for key in self._store.index_keys(path)) if since >= 0 else ()
        self._show_indexes({*self._store.touched("indexes", since_index), *of_new})
        self._small_tables(touched, {*self._store.touched("documents", since)})
        if not self._since:
            self._make_views()
        self._db.execute("DELETE FROM derived.meta")
        self._db.executemany("INSERT INTO derived.meta VALUES (?, ?)", list(meta.items()))
        self._db.execute("CHECKPOINT building")

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
            self._db.execute(
                f"DELETE FROM derived.{table} WHERE list_contains($1, file)",  # noqa: S608 - one of these constants
                [list(numbers.values())],
            )

    def _numbers(self, paths: Iterable[str]) -> dict[str, int]:
        """The numbers of those files that are shown."""
        self._db.register("asked", pa.table({"path": pa.array(list(paths), pa.string())}))
        try:
            return dict(self._rows("SELECT path, file FROM derived.files SEMI JOIN asked USING (path)"))
        finally:
            self._db.unregister("asked")

    def _add(
        self, paths: list[str], versions: Mapping[str, bytes], facts: Mapping[str, FileFacts], examiner: Examiner
    ) -> None:
        """Show files by what is known of their footers; those of which nothing is known are examined."""
        known = {path: held for path, held in self._store.facts(paths).items() if are_of(held.note, versions[path])}
        learned = self._examined([path for path in paths if path not in known], versions, facts, examiner)
        self._store.add_facts(learned.items())
        known |= learned
        first = self._rows("SELECT coalesce(max(file), -1) + 1 FROM derived.files")[0][0]
        files = [(file, known[path]) for path in paths if path in known and (file := self._table.file(path))]
        new = (NewFile(n, file, versions[file.path], held) for n, (file, held) in enumerate(files, first))
        add_files(self._db, new)

    def _examined(
        self,
        paths: Iterable[str],
        versions: Mapping[str, bytes],
        facts: Mapping[str, FileFacts],
        examiner: Examiner,
    ) -> dict[str, Held]:
        def look(path: str) -> tuple[str, Held] | None:
            held = self._store.get("files", path)
            if held is None:
                return None
            try:
                found = facts.get(path)  # which may be of the file as it was before another process took it anew
                if found is None or found.digest != digest_of(held.data):
                    found = examiner.examine(held.data, held.size)
            except FormatError as error:
                self._undecodable[path] = f"{path}: {error}"
                return None
            return path, packed(found, held, versions[path])

        with examiner.executor() as executor:
            return dict(filter(None, executor.map(look, paths)))

    def _show_chunks(self, crawls: set[str], examiner: Examiner) -> None:
        """Show the column chunks of files of these crawls that are not shown yet."""
        lacking = [
            (number, path)
            for number, path, crawl in self._rows("SELECT file, path, crawl FROM derived.files WHERE NOT column_chunks")
            if crawl in crawls
        ]

        def look(path: str) -> FileFacts | None:
            held = self._store.get("files", path)
            try:
                return examiner.examine(held.data, held.size, column_chunks=True) if held else None
            except FormatError as error:
                self._undecodable[path] = f"{path}: its column chunks are not shown: {error}"
                return None

        with examiner.executor() as executor:
            for start in range(0, len(lacking), _BATCH):
                batch = lacking[start : start + _BATCH]
                found = zip(batch, executor.map(look, [path for _, path in batch]), strict=True)
                chunks = [
                    {"file": n, **asdict(chunk)} for (n, _), facts in found if facts for chunk in facts.column_chunks
                ]
                self._insert("column_chunks", chunks)
        numbers = [number for number, _ in lacking]
        self._db.execute("UPDATE derived.files SET column_chunks = true WHERE list_contains($1, file)", [numbers])

    def _show_indexes(self, keys: set[str]) -> None:
        """Show the pages of row groups whose index is new, or another than before."""
        changed: dict[str, list[int]] = {}
        for path, ordinal in sorted(filter(None, map(row_group_of, keys))):
            changed.setdefault(path, []).append(ordinal)
        numbers = self._numbers(changed)
        stale = [[numbers[path], ordinal] for path in numbers for ordinal in changed[path]]
        if not stale:
            return
        for table in ("pages", "key_intervals"):
            self._db.execute(
                f"DELETE FROM derived.{table} WHERE list_contains($1, [file, row_group])",  # noqa: S608 - see above
                [stale],
            )
        groups = row_groups_at(self._db, stale)
        for start in range(0, len(groups), _FEW):
            found = [pages_of(self._store, self._table.key, each) for each in groups[start : start + _FEW]]
            self._insert("pages", [row for rows, _ in found for row in rows])
            self._insert("key_intervals", [row for _, rows in found for row in rows])

    def _small_tables(self, files: list[str], documents: set[str]) -> None:
        """Show the lists of crawls and files, and failures; of these what was touched."""
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
        self._show_listed(documents)
        noted = {path: held for path in self._store.keys("failures") if (held := self._store.get("failures", path))}
        failed = {path: (held.note, held.taken_at, False) for path, held in noted.items()}
        self._db.execute("DELETE FROM derived.failures WHERE NOT undecodable OR list_contains($1, path)", [files])
        failed |= {path: (reason, datetime.now(UTC), True) for path, reason in self._undecodable.items()}
        kept = {path for (path,) in self._rows("SELECT path FROM derived.failures")}
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
                if path not in kept and (at := self._table.file(path))
            ],
        )

    def _show_listed(self, documents: set[str]) -> None:
        """Count the files of lists that are new, or gone."""
        if self._table == INDEX:
            self._db.execute("DELETE FROM derived.listed WHERE list_contains($1, crawl)", [list(manifests(documents))])
        elif documents:
            self._db.execute("DELETE FROM derived.listed")
        else:
            return
        counts: dict[tuple[str, str], int] = {}
        for file in chain.from_iterable(listed(self._store, self._table, documents).values()):
            counts[file.crawl, file.subset] = counts.get((file.crawl, file.subset), 0) + 1
        self._insert("listed", [{"crawl": c, "subset": s, "files": n} for (c, s), n in counts.items()])

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


def _naive(time: datetime | None) -> datetime | None:
    return time.astimezone(UTC).replace(tzinfo=None) if time else None


def _meta(path: Path) -> dict[str, str]:
    """What the catalogue at a path was made from; nothing, if there is none that can be read, or it was written to."""
    if path.exists():
        with suppress(duckdb.Error), connect(path) as connection:
            return _read_meta(path, connection)
    return {}


def _read_meta(path: Path, connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The same by way of a connection to it. Whoever writes to a catalogue leaves a log beside it."""
    if log_of(path).exists():
        return {}
    return dict(connection.execute("SELECT key, value FROM derived.meta").fetchall())


@cache
def _layout() -> str:
    """See ``LAYOUT``: that, and a digest of the statements that make tables, views and macros."""
    sql = [path.read_text(encoding="utf-8") for path in sorted((queries_folder() / "views").glob("*.sql"))]
    sql += [macro.statement for macro in MACROS]
    return f"{LAYOUT} {blake2b(''.join(sql).encode(), digest_size=8).hexdigest()}"


def _is_of(found: dict[str, str], wanted: dict[str, str], *, indexes: bool) -> bool:
    """Whether a catalogue was made from this, be it without the last page indexes, unless these matter."""
    ignored = {} if indexes else {"indexes": ""}
    return found | ignored == wanted | ignored


def _meta_of(store: Store) -> dict[str, str]:
    return {"layout": _layout(), "store": store.state(), "indexes": store.index_state()}


def _swap(new: Path, path: Path) -> None:
    """Put a finished catalogue in the old one's place, whole or not at all."""
    # A log left by a crashed shell belongs to the old file, and DuckDB would take it for the new one's.
    log_of(path).unlink(missing_ok=True)
    put_in_place(new, path)


def _remove(path: Path) -> None:
    for file in (path, log_of(path)):
        file.unlink(missing_ok=True)


class _disk_errors:  # noqa: N801 - used as a context, like contextlib's own
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # What the disk says to a commit comes as an error of transactions.
        failed = isinstance(error, duckdb.IOException | duckdb.FatalException | duckdb.TransactionException)
        if failed or (isinstance(error, OSError) and not isinstance(error, CatalogueError)):
            said = (str(error).splitlines() or [""])[0]
            message = f"{self._path} cannot be written: {said}{room(self._path, error)}; the one that was there is kept"
            raise DiskFailed(message) from error
