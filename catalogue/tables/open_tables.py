"""The tables in one state of the store, opened when they are needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any, TypeAlias

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import StoreLocked
from catalogue.parquet.column_types import kind_of
from catalogue.parquet.summary import SIGNED
from catalogue.store.database import Store
from catalogue.tables.table_file import TableDamaged, TableFile
from catalogue.tables.tables_state import TABLES_FOLDER, TablesState, fresh_state, read_state, table_path

if TYPE_CHECKING:
    from catalogue.tables.stored_rows import StoredRows

_BOUNDS = ("row_group", "num_rows", "min_key", "max_key", "bounds_from")
Pair: TypeAlias = tuple[str, str]
"""A crawl and a subset."""


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
        self._rows: dict[str, StoredRows | None] = {}

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

    def counts(self, name: str) -> dict[Pair, int]:
        """Return numbers of files, row groups, listed files or failures by crawl and subset; see ``CrawlState``."""
        found: dict[Pair, int] = {}
        for crawl, state in self.state.crawls.items():
            of: Mapping[str, int] = getattr(state, name)
            found |= {(crawl, subset): count for subset, count in of.items()}
        return found

    @property
    def requested(self) -> set[Pair]:
        """The listed subsets that a harvest requested."""
        crawls = self.state.crawls.items()
        return {(crawl, subset) for crawl, state in crawls for subset in state.requested if subset in state.listed}

    @cached_property
    def columns(self) -> list[Mapping[str, str]]:
        """Types of columns by name, for each schema of the stored files, oldest crawl first."""
        from catalogue.tables.table_schema import decode_columns

        texts = (text for _, state in sorted(self.state.crawls.items()) for text in state.schemas)
        return [
            {name: kind_of(column) for name, column in decode_columns(text).items()} for text in dict.fromkeys(texts)
        ]

    def crawl_times(self, crawl: str) -> tuple[int, int] | None:
        """Return when a crawl was fetched by the list of crawls, in milliseconds."""
        times = self.state.times.get(crawl)
        return (times[0], times[1]) if times else None

    def rows(self, crawl: str) -> "StoredRows | None":
        """Return the rows of a crawl; None if it has none.

        Raises:
            DiskFailed: if a damaged table cannot be made again.
            StoreLocked: if another process has changed the table.
        """
        if crawl not in self._rows:
            from catalogue.tables.stored_rows import StoredRows

            state = self.state.crawls.get(crawl)
            found = None
            if state and state.checksum:
                try:
                    table = TableFile(table_path(self._folder, crawl))
                except TableDamaged:
                    table = self._repaired(crawl)
                if table.checksum != state.checksum and not self._is_valid(crawl, table):
                    table = self._repaired(crawl)
                found = StoredRows(table, lambda: self._repaired(crawl))
            self._rows[crawl] = found
        return self._rows[crawl]

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

    def bounds(self, pair: Pair) -> Iterator[tuple[tuple[bytes, bytes] | None, int, bool]]:
        """Yield what is known of the keys of each row group of a crawl and subset, in the order of keys.

        Yields:
            Least and greatest key, None if they are not known, the number of rows, and whether the bounds are in the
            order of signed bytes.
        """
        for ordinal, rows, least, greatest, origin in zip(*self.values(pair, _BOUNDS), strict=True):
            if ordinal is not None:
                keys = None if least is None else (least.encode(), greatest.encode())
                yield keys, rows, origin == SIGNED

    def values(self, pair: Pair, names: Sequence[str]) -> list[list[Any]]:
        """Return columns of the rows of a crawl and subset, in the order of keys."""
        rows = self.rows(pair[0])
        return rows.values(pair[1], names) if rows else [[] for _ in names]
