"""Update the tables: only files that have changed are decoded."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from catalogue.atomic_files import errors_of, make_folder
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset, manifest_path
from catalogue.store.database import Store
from catalogue.store.locks import exclusive_lock
from catalogue.store.stored_lists import VALUES, listed_files, manifests, requested_subsets
from catalogue.tables.make_table import FooterRows, make_table
from catalogue.tables.table_file import (
    STATE_NAME,
    CrawlState,
    TableDamaged,
    TableFile,
    TablesState,
    fresh_state,
    read_state,
    table_path,
    values_path,
    write_state,
    write_table,
)

if TYPE_CHECKING:
    from catalogue.tables.crawl_table import StoredFooters

_LONGEST_WAIT = 600.0
"""Seconds for which another process may update the tables."""
_MANY = 1000
"""Files from which on it takes some seconds to decode all."""


def update_tables(
    folder: Path,
    store: Store,
    dataset: Dataset,
    *,
    indexes: bool = False,
    decoded: Mapping[str, FooterRows] = MappingProxyType({}),
    values: Collection[str] = (),
    notify: Callable[[str], None] = lambda _: None,
) -> TablesState:
    """Make tables that are missing, old or damaged; return their state.

    ``indexes`` demands all page indexes, and ``values`` the values of all stored dictionary pages of these crawls.
    Footers with ``decoded`` rows need not be decoded again. ``notify`` is called with a sentence if this takes long.

    Raises:
        DiskFailed: if they cannot be written; the old ones stay.
        StoreLocked: if another process updates them for too long.
    """
    with _writing(folder, notify):
        if not (folder / STATE_NAME).exists() and (files := store.count("files")) >= _MANY:
            notify(f"making the tables of {files:,} stored files; later commands use them")
        state = fresh_state(folder, store, dataset.key, indexes=indexes)  # another process may have updated them
        return state if state and not values else _Update(folder, store, dataset, decoded, values).run()


def remake_tables(folder: Path, store: Store, dataset: Dataset, crawls: Collection[str] | None = None) -> None:
    """Make the tables of some crawls or of all again, without reading the old ones, and update the others."""
    with _writing(folder):
        _Update(folder, store, dataset, {}, (), unread=crawls).run()


def damaged_tables(folder: Path) -> Iterator[str]:
    """Yield the names of damaged tables; each is read completely.

    A killed process may leave a table that is missing or newer than the state: that is no damage.
    """
    state = read_state(folder)
    for path in (table_path(folder, crawl) for crawl in (state.crawls if state else ())):
        try:
            TableFile(path)
        except TableDamaged:
            if path.exists():
                yield path.name


@contextmanager
def _writing(folder: Path, notify: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    waited = f"another process has been updating {folder} for {_LONGEST_WAIT:.0f} s; try again when it is done"
    with errors_of(folder, folder.parent, "the old tables stay"):
        make_folder(folder)
        lock = folder.with_name(f"{folder.name}.lock")
        with exclusive_lock(lock, waited, seconds=_LONGEST_WAIT, notify=notify):
            yield


class _Update:
    def __init__(
        self,
        folder: Path,
        store: Store,
        dataset: Dataset,
        decoded: Mapping[str, FooterRows],
        values: Collection[str],
        *,
        unread: Collection[str] | None = (),
    ) -> None:
        self._folder, self._store, self._dataset, self._decoded = folder, store, dataset, decoded
        self._values = values
        self._unread = unread
        """Crawls whose tables may be damaged; None if all may."""
        self._old: TablesState | None = None
        # Read first: what other processes write from now on is added by the next update.
        self._state = TablesState(dataset.key, *store.states(), {}, {})
        self._documents = store.row_numbers("documents")
        self._crawls: dict[str, str | None] = {}
        """Crawl of the files in each folder of the source."""

    def run(self) -> TablesState:
        old = read_state(self._folder) if self._unread is not None else None
        self._old = old if old and old.dataset == self._dataset.key else None
        state, listed = self._state, self._listed()
        numbers = (self._by_crawl(self._store.row_numbers(table)) for table in ("files", "indexes", "failures"))
        files, indexes, failures = numbers
        requested = requested_subsets(self._documents)
        for crawl in sorted({*files, *listed, *failures, *(crawl for crawl, _ in requested)}):
            found = self._table(crawl, files[crawl], indexes.get(crawl, {})) if crawl in files else CrawlState()
            found.manifest, found.listed = listed.get(crawl, (0, {}))
            found.requested = sorted(subset for each, subset in requested if each == crawl)
            if found.listed and not found.requested:  # interrupted pulls and older stores do not say what was requested
                found.requested = ["warc"]
            found.failures = self._subsets({*failures.get(crawl, ()), *found.undecodable})
            state.crawls[crawl] = found
        write_state(self._folder, state)
        used_paths = {table_path(self._folder, crawl) for crawl, each in state.crawls.items() if each.checksum}
        used_paths |= {values_path(self._folder, crawl) for crawl, each in state.crawls.items() if each.values}
        for path in {*self._folder.glob("*.parquet"), *self._folder.glob(".*.part")} - used_paths:
            path.unlink(missing_ok=True)
        return state

    def _table(self, crawl: str, files: Mapping[str, int], indexes: Mapping[str, int]) -> CrawlState:
        path, state = table_path(self._folder, crawl), self._state
        before = self._old.crawls.get(crawl) if self._old else None
        # In a backup of the store the same row may have another value.
        newest = max(files, key=files.__getitem__)
        last = self._store.versions([newest]).get(newest, b"")
        stored_files, stored_indexes = _digest(state.store_id, files, last), _digest(state.store_id, indexes)
        old, has_values = None, f"{VALUES}{crawl}" in self._documents
        is_read = self._unread is not None and crawl not in self._unread
        if (
            is_read
            and self._old
            and before
            and before.stored_files == stored_files
            and (before.stored_indexes == stored_indexes or not before.gaps)
            # A pull that stored values may have been stopped.
            and not (has_values and (crawl in self._values or not before.values))
        ):
            # The table is not opened, since each use checks it and makes a damaged one again.
            state.schemas |= {name: self._old.schemas[name] for name in before.schemas}
            return replace(before, stored_indexes=stored_indexes)
        if is_read:
            with suppress(TableDamaged):
                old = TableFile(path)
        made = make_table(
            self._store, self._dataset, self._store.versions(files), old, self._decoded, lambda: self._footers
        )
        checksum = write_table(path, made.rows, made.schemas) if made.rows else 0
        values = self._write_values(crawl, TableFile(path)) if checksum and has_values else 0
        state.schemas |= made.schemas
        return CrawlState(
            checksum,
            stored_files,
            stored_indexes,
            made.gaps,
            schemas=[*made.schemas],
            files=self._subsets(dict.fromkeys(row["path"] for row in made.rows)),
            row_groups=dict(Counter(row["subset"] for row in made.rows if row.get("row_group") is not None)),
            undecodable=made.undecodable,
            values=values,
        )

    @cached_property
    def _footers(self) -> "StoredFooters":
        from catalogue.tables.crawl_table import StoredFooters

        return StoredFooters(self._store)

    def _write_values(self, crawl: str, table: TableFile) -> int:
        from catalogue.query.key_intervals import ALL_KEYS
        from catalogue.tables.column_values import collect_values, dictionary_pages, write_values
        from catalogue.tables.crawl_table import CrawlTable

        files = CrawlTable(table, self._footers).files({part.subset for part in table.parts}, ALL_KEYS)
        indexed = (
            replace(file, indexes=self._store.indexes(file.path, file.ordinals, file.stored).get) for file in files
        )
        pages = (page for file in indexed for page in dictionary_pages(file))
        return write_values(values_path(self._folder, crawl), collect_values(pages, self._dataset))

    def _by_crawl(self, rows: Mapping[str, int]) -> dict[str, dict[str, int]]:
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

    def _listed(self) -> dict[str, tuple[int, dict[str, int]]]:
        if self._dataset != COMMON_CRAWL:
            found = listed_files(self._store, self._dataset)
            return {crawl: (0, dict(Counter(file.subset for file in files))) for crawl, files in found.items()}
        old = self._old.crawls if self._old and self._old.store_id == self._state.store_id else {}
        documents, changed = self._documents, []
        listed: dict[str, tuple[int, dict[str, int]]] = {}
        for crawl, path in manifests(documents).items():
            before = old.get(crawl)
            if before and before.manifest == documents[path]:
                listed[crawl] = before.manifest, before.listed
            else:
                changed.append(crawl)
        new = listed_files(self._store, self._dataset, [manifest_path(crawl) for crawl in changed])
        for crawl, files in new.items():
            listed[crawl] = documents[manifest_path(crawl)], dict(Counter(file.subset for file in files))
        return listed


def _digest(store_id: str, rows: Mapping[str, int], last: bytes = b"") -> str:
    listed = "\n".join(f"{key} {row}" for key, row in rows.items())
    return blake2b(f"{store_id}\n{listed}\n".encode() + last, digest_size=16).hexdigest()
