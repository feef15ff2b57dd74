"""The tables in one state of the store, opened when they are needed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import StoreLocked
from catalogue.store.database import Store
from catalogue.tables.table_file import TableDamaged, TableFile
from catalogue.tables.tables_state import TABLES_FOLDER, TablesState, fresh_state, read_state, table_path

if TYPE_CHECKING:
    from catalogue.tables.crawl_table import CrawlTable


def usable_folder(
    data: Path,
    store: Store,
    dataset: Dataset,
    temporary_folder: Callable[[], Path],
    notify: Callable[[str], None],
) -> Path:
    """Return the folder of the tables of a data folder, or a copy if they are out of date and cannot be updated."""
    folder = data / TABLES_FOLDER
    if not store.read_only or fresh_state(folder, store, dataset.key):
        return folder
    if not (temporary_folder() / TABLES_FOLDER).exists():
        notify(f"{data} is read-only; its tables are updated in a temporary copy")
    return copied_folder(data, temporary_folder())


def copied_folder(data: Path, temporary_folder: Path) -> Path:
    """Return a temporary copy of the tables of a data folder."""
    copy = temporary_folder / TABLES_FOLDER
    if not copy.exists():
        with suppress(OSError):  # they are made again then
            copytree(data / TABLES_FOLDER, copy)
    return copy


class Tables:
    """Open tables."""

    def __init__(self, folder: Path, store: Store, dataset: Dataset, state: TablesState) -> None:
        self.state = state
        self._folder, self._store, self._dataset = folder, store, dataset
        self._tables: dict[str, CrawlTable | None] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        store: Store,
        dataset: Dataset,
        *,
        indexes: bool = False,
        notify: Callable[[str], None] = lambda _: None,
    ) -> "Tables":
        """Open the tables of a store, after an update if it has changed.

        Args:
            folder: of the tables.
            store: the store.
            dataset: the dataset.
            indexes: whether the tables must show all stored page indexes.
            notify: called with a sentence if the update takes long.

        Raises:
            DiskFailed: if they cannot be written.
            StoreLocked: if another process updates them for too long.
        """
        state = fresh_state(folder, store, dataset.key, indexes=indexes)
        if state is None:
            from catalogue.tables.update_tables import update_tables

            state = update_tables(folder, store, dataset, indexes=indexes, notify=notify)
        return cls(folder, store, dataset, state)

    def table(self, crawl: str) -> "CrawlTable | None":
        """Return the table of a crawl; None if it has none.

        Raises:
            DiskFailed: if a damaged table cannot be made again.
            StoreLocked: if another process has changed the table.
        """
        if crawl not in self._tables:
            from catalogue.tables.crawl_table import CrawlTable

            state = self.state.crawls.get(crawl)
            found = None
            if state and state.checksum:
                try:
                    table = TableFile(table_path(self._folder, crawl))
                except TableDamaged:
                    table = self._repaired(crawl)
                if table.checksum != state.checksum and not self._is_valid(crawl, table):
                    table = self._repaired(crawl)
                found = CrawlTable(table, lambda: self._repaired(crawl))
            self._tables[crawl] = found
        return self._tables[crawl]

    def checked_path(self, crawl: str) -> Path:
        """Return the path of a table, which was checked completely, for readers that check nothing.

        Raises:
            DiskFailed: if a damaged table cannot be made again.
            StoreLocked: if another process has changed the table.
        """
        path = table_path(self._folder, crawl)
        try:
            table = TableFile(path)
            table.check()
        except TableDamaged:
            self._repaired(crawl)
        return path

    def _is_valid(self, crawl: str, table: TableFile) -> bool:
        """Return whether another process has made a table since these were opened, from the same files."""
        now = read_state(self._folder)
        found = now.crawls.get(crawl) if now and now.store == self.state.store else None
        return found is not None and found.checksum == table.checksum

    def _repaired(self, crawl: str) -> TableFile:
        from catalogue.tables.update_tables import remake_table

        self._check_state(crawl)
        table = remake_table(self._folder, self._store, self._dataset, crawl)
        self._check_state(crawl)
        return table

    def _check_state(self, crawl: str) -> None:
        if self._store.state() != self.state.store:
            raise StoreLocked(f"another process has changed what is stored of {crawl}; run the query again")
