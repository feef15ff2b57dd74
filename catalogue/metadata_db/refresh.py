"""Update the metadata database from the store.

The new file is built next to the old one and renamed over it, so that open shells keep what they see. DuckDB 1.1 and
later can read it.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

import duckdb

from catalogue.atomic_files import put_in_place, room, temporary_folder
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import CatalogueError, DiskFailed, StoreChanged
from catalogue.metadata_db.connection import attach, lent, log_of, queries_folder, quoted, reading, writable
from catalogue.store.database import Store
from catalogue.store.locks import exclusive_lock
from catalogue.store.stored_lists import crawls_with_blocks
from catalogue.surt.macros import MACROS
from catalogue.tables.table_file import TABLES_FOLDER

STORAGE_VERSION = "v1.1.0"
_LAYOUT = "16"
"""A database of another version is rebuilt."""


@cache
def _layout() -> str:
    sql = [path.read_text(encoding="utf-8") for path in sorted((queries_folder() / "views").glob("*.sql"))]
    sql += [macro.statement for macro in MACROS]
    return f"{_LAYOUT} {blake2b(''.join(sql).encode(), digest_size=8).hexdigest()}"


def _meta_of(store: Store) -> dict[str, str]:
    folder = str(store.path.parent.resolve()) if crawls_with_blocks(store) else ""
    state, indexes = store.states()
    return {"layout": _layout(), "store": state, "indexes": indexes, "folder": folder}


def _shows(found: Mapping[str, str], requested: Mapping[str, str], *, indexes: bool) -> bool:
    return all(found.get(key) == value for key, value in requested.items() if indexes or key != "indexes")


def refresh(
    path: Path,
    store: Store,
    table: Dataset = COMMON_CRAWL,
    *,
    column_chunks: Iterable[str] = (),
    busy_seconds: float = 600.0,
    indexes: bool = True,
    rebuild: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> None:
    """Update the tables, and from them the database; add the column chunks of some crawls.

    ``busy_seconds`` is the maximum wait for another process that updates it. Without ``indexes``, it may lack page
    indexes. ``rebuild`` reads nothing of the old database and replaces it even if a program has it open for writing,
    which keeps the old one. ``notify`` is called with a sentence if the wait is long.

    Raises:
        DiskFailed: if it cannot be written; the old one stays.
        StoreLocked: if another program has it open for writing, or updates it for too long.
    """
    requested = set(column_chunks)
    if not (requested or rebuild) and is_fresh(path, store, indexes=indexes):
        return
    waited = f"another process has been updating {path} for {busy_seconds:,.0f} s; try again when it is done"
    with exclusive_lock(path.with_name(f"{path.name}.lock"), waited, seconds=busy_seconds, notify=notify):
        try:
            _update(path, store, table, requested, rebuild=rebuild, notify=notify)
        except StoreChanged:  # while it was read; the command may need nothing of that
            _update(path, store, table, requested, rebuild=rebuild, notify=notify)


def _update(
    path: Path, store: Store, table: Dataset, requested: set[str], *, rebuild: bool, notify: Callable[[str], None]
) -> None:
    from catalogue.metadata_db.build import Build
    from catalogue.tables.stored_crawls import StoredCrawls

    making = temporary_folder(path.with_name(f"{path.name}.new"))
    with _disk_errors(path), making as folder, lent() as db:
        building = folder / path.name
        with _unwritten(db, path, ignored=rebuild) as shown:
            if not requested and _shows(shown, _meta_of(store), indexes=True):  # another process has just done it
                return
            is_new = shown.get("layout") != _layout()
            if not is_new:
                shutil.copyfile(path, building)
        db.execute("SET threads = 1")  # which is faster here than several
        # What other processes write after this is shown by the next update.
        crawls = StoredCrawls(path.with_name(TABLES_FOLDER), store, table, indexes=True, notify=notify)
        made_from = _meta_of(store) | {"store": crawls.tables.store, "indexes": crawls.tables.indexes}
        with _unwritten(db, path, ignored=rebuild):  # again: closing a file releases its locks
            with _building(db, building, is_new=is_new):
                Build(db, folder, store, crawls, table, new=is_new).run(made_from, requested)
            # A log left by a crashed shell belongs to the old file, and DuckDB would apply it to the new one.
            log_of(path).unlink(missing_ok=True)
            put_in_place(building, path)
        db.execute("RESET threads")


# Neither of these cleans up after a failure: closing the database detaches everything.


@contextmanager
def _unwritten(db: duckdb.DuckDBPyConnection, path: Path, *, ignored: bool) -> Iterator[dict[str, str]]:
    """Lock the present database against writers, unless it is ``ignored``, and yield its ``_meta``.

    The log of a writer would be applied to the new file.
    """
    shown: dict[str, str] = {}
    attached = False
    if path.exists() and not ignored:
        with suppress(duckdb.Error):  # it cannot be opened
            attach(db, path, "shown")
            attached = True
            shown = _read_meta(path, db, "shown")
    yield shown
    if attached:
        db.execute("DETACH shown")


@contextmanager
def _building(db: duckdb.DuckDBPyConnection, path: Path, *, is_new: bool) -> Iterator[None]:
    version = f", STORAGE_VERSION '{STORAGE_VERSION}'" if is_new else ""
    # Without a log, which would be synced with each statement; DuckDB aborts the process if that fails.
    with writable(path) as place:
        db.execute(f"ATTACH {quoted(place)} AS building (RECOVERY_MODE NO_WAL_WRITES{version})")
        db.execute("USE building")
        yield
        db.execute("CHECKPOINT building")
        db.execute("USE memory")
        db.execute("DETACH building")


def is_fresh(path: Path, store: Store, *, indexes: bool = True) -> bool:
    """Return whether the database shows everything that is stored; ``indexes``: page indexes, too."""
    shown: dict[str, str] = {}
    if path.exists():
        with suppress(duckdb.Error), reading(path) as connection:
            shown = _read_meta(path, connection)
    return _shows(shown, _meta_of(store), indexes=indexes)


def _read_meta(path: Path, connection: duckdb.DuckDBPyConnection, name: str = "catalogue") -> dict[str, str]:
    if log_of(path).exists():
        return {}
    return dict(connection.execute(f"SELECT key, value FROM {name}.derived.meta").fetchall())  # noqa: S608 - our name


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    # DuckDB reports disk errors of a commit as errors of the transaction.
    except (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException, OSError) as error:
        if isinstance(error, CatalogueError):
            raise
        reason = (str(error).splitlines() or [""])[0]
        if "No files found" in reason:  # a table was deleted after it was chosen
            raise StoreChanged(f"a crawl in {path.parent}") from error
        message = f"{path} cannot be written: {reason}{room(path, error)}; the old one stays"
        if "Corrupt database file" in str(error):  # a newer one would begin as its copy
            message = f"{path} is damaged ({reason}); run: catalogue check --repair"
        raise DiskFailed(message) from error
