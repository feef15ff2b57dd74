"""Update the tables from the store: only files that have changed are decoded."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from catalogue.atomic_files import make_folder, room
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path, parse_collinfo
from catalogue.errors import CatalogueError, DiskFailed, FormatError, StoreDamaged
from catalogue.store.database import Store
from catalogue.store.locks import exclusive_lock
from catalogue.store.schema import row_group_of
from catalogue.store.stored_lists import listed_files, manifests, requested_subsets
from catalogue.tables.found_bounds import found_bounds
from catalogue.tables.make_table import make_table
from catalogue.tables.table_file import TableDamaged, TableFile, write_table
from catalogue.tables.tables_state import (
    CrawlState,
    TablesState,
    fresh_state,
    read_state,
    state_path,
    table_path,
    write_state,
)

_MANY = 1000
"""Files from which on it takes some seconds to decode all."""


def update_tables(
    folder: Path,
    store: Store,
    dataset: Dataset,
    *,
    indexes: bool = False,
    busy_seconds: float = 600.0,
    notify: Callable[[str], None] = lambda _: None,
) -> TablesState:
    """Make tables that are missing, old or damaged; return their state.

    Args:
        folder: of the tables.
        store: the store.
        dataset: the dataset.
        indexes: whether they must show all page indexes.
        busy_seconds: longest wait for another process that updates them.
        notify: called with a sentence if this takes long.

    Raises:
        DiskFailed: if they cannot be written; the old ones stay.
        StoreLocked: if another process updates them for too long.
    """
    with _writing(folder, busy_seconds):
        if not state_path(folder).exists() and (files := store.count("files")) >= _MANY:
            notify(f"making the tables of {files:,} stored files; later commands use them")
        state = fresh_state(folder, store, dataset.key, indexes=indexes)  # another process may have updated them
        return state or _Update(folder, store, dataset).run()


def remake_table(folder: Path, store: Store, dataset: Dataset, crawl: str, *, busy_seconds: float = 600.0) -> TableFile:
    """Make a damaged table again from the store, with all others that are not up to date, and open it.

    Raises:
        DiskFailed: if it cannot be written.
        StoreLocked: if another process updates the tables for too long.
    """
    with _writing(folder, busy_seconds):
        table_path(folder, crawl).unlink(missing_ok=True)
        _Update(folder, store, dataset).run()
        return TableFile(table_path(folder, crawl))


def damaged_tables(folder: Path) -> Iterator[str]:
    """Yield the names of tables that are missing or damaged; all of each table is read."""
    state = read_state(folder)
    for crawl, each in state.crawls.items() if state else ():
        if each.checksum:
            path = table_path(folder, crawl)
            try:
                table = TableFile(path)
                table.check()
            except TableDamaged:
                yield path.name
            else:
                if table.checksum != each.checksum:
                    yield path.name


@contextmanager
def _writing(folder: Path, busy_seconds: float) -> Iterator[None]:
    waited = f"another process has been updating {folder} for {busy_seconds:,.0f} s; try again when it is done"
    enabled = gc.isenabled()
    try:
        make_folder(folder)
        with exclusive_lock(folder.with_name(f"{folder.name}.lock"), waited, seconds=busy_seconds):
            gc.disable()  # there are many objects, and no cycles among them
            yield
    except OSError as error:
        if isinstance(error, CatalogueError):
            raise
        message = f"{folder} cannot be written: {error.strerror or error}{room(folder, error)}; the old tables stay"
        raise DiskFailed(message) from error
    finally:
        if enabled:
            gc.enable()


class _Update:
    def __init__(self, folder: Path, store: Store, dataset: Dataset) -> None:
        self._folder, self._store, self._dataset = folder, store, dataset
        self._crawls: dict[str, str | None] = {}
        """Crawl of the files in each folder of the source."""

    def run(self) -> TablesState:
        store = self._store
        old = read_state(self._folder)
        if old and old.dataset != self._dataset.key:
            old = None
        # Read first: what other processes write from now on is added by the next update.
        state = TablesState(self._dataset.key, store.state(), store.index_state(), {}, self._times())
        files = self._by_crawl(store.row_numbers("files"))
        indexes = self._by_crawl(store.row_numbers("indexes"))
        documents = store.row_numbers("documents")
        same = old if old and old.store_id == state.store_id else None
        listed = self._listed(documents, same)
        failures = self._by_crawl(store.row_numbers("failures"))
        requested = requested_subsets(documents)
        for crawl in sorted({*files, *listed, *failures, *(crawl for crawl, _ in requested)}):
            before = old.crawls.get(crawl) if old else None
            reusable = before if same else None
            found = self._table(crawl, files.get(crawl, {}), indexes.get(crawl, {}), before, reusable, state.store)
            found.manifest, found.listed = listed.get(crawl, (0, {}))
            found.requested = sorted(subset for each, subset in requested if each == crawl)
            if found.listed and not found.requested:  # interrupted pulls and older stores do not say what was requested
                found.requested = ["warc"]
            found.failures = self._subsets({*failures.get(crawl, ()), *found.undecodable})
            state.crawls[crawl] = found
        write_state(self._folder, state)
        for path in {*self._folder.glob("*.parquet")} - {table_path(self._folder, crawl) for crawl in files}:
            path.unlink(missing_ok=True)
        return state

    def _table(
        self,
        crawl: str,
        files: Mapping[str, int],
        indexes: Mapping[str, int],
        before: CrawlState | None,
        reusable: CrawlState | None,
        state: str,
    ) -> CrawlState:
        """Make the table of a crawl if its files or page indexes have changed.

        Args:
            crawl: its name.
            files: paths of its stored files, with the numbers of their rows.
            indexes: the same of the page indexes.
            before: its state in the last update.
            reusable: the same, if numbers of rows were not used again since then.
            state: the state of the store.
        """
        last_rows = {"files": _last_row(files), "indexes": _last_row(indexes)}
        if not files:
            return CrawlState(0, last_rows)
        # In a backup the same row may have another value.
        last_path = max(files, key=files.__getitem__)
        last_rows["files"].append(crc32(self._store.version(last_path) or b""))
        old = self._open(crawl)
        if old is None or before is None or old.checksum != before.checksum:
            before = reusable = None  # another table: its rows are used, but not its state
        if reusable and reusable.last_rows == last_rows:
            return _same(reusable, last_rows)
        versions = self._store.versions("files", files)
        if old and before and before.last_rows["indexes"] == last_rows["indexes"] and _has(old, before, versions):
            return _same(before, last_rows)
        last_index, last_file = (reusable.last_rows[name][1] if reusable else 0 for name in ("indexes", "files"))
        new_indexes = [
            key
            for key, row in indexes.items()
            if row > last_index or files.get((row_group_of(key) or ("",))[0], 0) > last_file
        ]
        found = found_bounds(self._store, self._dataset.key, new_indexes)
        same_files = reusable is not None and reusable.last_rows["files"] == last_rows["files"]
        if reusable and same_files and not any(found.values()):
            return _same(reusable, last_rows)
        made = make_table(self._store, self._dataset, versions, found, old)
        if not made.rows.num_rows:
            table_path(self._folder, crawl).unlink(missing_ok=True)
            return CrawlState(0, last_rows, undecodable=made.undecodable)
        checksum = write_table(table_path(self._folder, crawl), made.rows, made.schemas, state)
        paths = dict.fromkeys(made.rows.column("path").to_pylist())
        groups = zip(*(made.rows.column(name).to_pylist() for name in ("subset", "row_group")), strict=True)
        return CrawlState(
            checksum,
            last_rows,
            made.schemas,
            self._subsets(paths),
            dict(Counter(subset for subset, ordinal in groups if ordinal is not None)),
            undecodable=made.undecodable,
        )

    def _open(self, crawl: str) -> TableFile | None:
        with suppress(TableDamaged):
            return TableFile(table_path(self._folder, crawl))
        return None

    def _by_crawl(self, rows: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Return keys, which are paths or begin with them, with the numbers of their rows by crawl."""
        found: dict[str, dict[str, int]] = {}
        for key, row in rows.items():
            folder = key.rpartition("/")[0]
            crawl = self._crawls.get(folder)
            if crawl is None:
                file = self._dataset.file(key.rpartition("#")[0] or key)
                crawl = self._crawls[folder] = file.crawl if file else None
            if crawl is not None:
                found.setdefault(crawl, {})[key] = row
        return found

    def _subsets(self, paths: Iterable[str]) -> dict[str, int]:
        return dict(Counter(file.subset for path in paths if (file := self._dataset.file(path))))

    def _listed(self, documents: Mapping[str, int], old: TablesState | None) -> dict[str, tuple[int, dict[str, int]]]:
        """Return the row of the manifest, and numbers of listed files by subset, by crawl."""
        if self._dataset != COMMON_CRAWL:
            found = listed_files(self._store, self._dataset)
            return {crawl: (0, dict(Counter(file.subset for file in files))) for crawl, files in found.items()}
        listed: dict[str, tuple[int, dict[str, int]]] = {}
        changed = []
        for crawl, path in manifests(documents).items():
            before = old.crawls.get(crawl) if old else None
            if before and before.manifest == documents[path]:
                listed[crawl] = before.manifest, before.listed
            else:
                changed.append(crawl)
        new = listed_files(self._store, self._dataset, [manifest_path(crawl) for crawl in changed])
        for crawl, files in new.items():
            listed[crawl] = documents[manifest_path(crawl)], dict(Counter(file.subset for file in files))
        return listed

    def _times(self) -> dict[str, tuple[int, int]]:
        with suppress(FormatError, StoreDamaged):
            if document := self._store.get("documents", COLLINFO):
                return {
                    crawl.id: (int(crawl.first_fetch.timestamp() * 1000), int(crawl.last_fetch.timestamp() * 1000))
                    for crawl in parse_collinfo(document.data)
                    if crawl.first_fetch and crawl.last_fetch
                }
        return {}


def _same(state: CrawlState, last_rows: dict[str, list[int]]) -> CrawlState:
    """Return the state of a table that is up to date."""
    return replace(state, last_rows=last_rows)


def _has(table: TableFile, state: CrawlState, versions: Mapping[str, bytes]) -> bool:
    """Return whether a table has exactly these files."""
    with suppress(TableDamaged):
        return not state.undecodable and table.versions() == versions
    return False


def _last_row(rows: Mapping[str, int]) -> list[int]:
    """Return the number of keys, the greatest number of their rows, and a checksum of both."""
    listed = "\n".join(f"{key} {row}" for key, row in rows.items())
    return [len(rows), max(rows.values(), default=0), crc32(listed.encode())]
