"""What is open for a data folder and a source. It has no features."""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory, mkdtemp
from threading import RLock
from typing import TYPE_CHECKING, NoReturn

from catalogue.commoncrawl.crawls import newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset, check_name
from catalogue.errors import QueryError
from catalogue.plan.requests import Cost
from catalogue.progress import Bars, Report
from catalogue.progress import bars as bars_of
from catalogue.settings import STORE_NAME, Settings
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.observe import Observer, RequestLimit
from catalogue.source.open import open_source
from catalogue.source.parallel import RequestThreads
from catalogue.source.rate_limit import Clock
from catalogue.source.retry import ATTEMPTS, PoliteSource
from catalogue.store.database import Store
from catalogue.store.layout import unwritable
from catalogue.store.locks import remote_kind
from catalogue.store.stored_lists import load_dataset, undefined_dataset
from catalogue.tables.table_file import TABLES_FOLDER, copied_folder, fresh_state

if TYPE_CHECKING:
    import duckdb

    from catalogue.plan.block_lists import BlockLists
    from catalogue.plan.columnar_index import PageIndexes
    from catalogue.read.workers import Workers
    from catalogue.tables.stored_crawls import StoredCrawls

DATABASE_NAME = "catalogue.duckdb"
_TEMPORARY_CACHE = 8 << 30
"""Bytes of a cache that is deleted with the session."""


@dataclass(eq=False, repr=False)
class Session:
    """A data folder and a source; what is needed is opened at its first use. For one thread at a time."""

    folder: Path
    settings: Settings
    _: KW_ONLY
    dataset_name: str | None = None
    """None for Common Crawl's index."""
    executor: Executor | None = None
    """Its workers read."""
    notify: Callable[[str], None] = lambda _: None
    """Called with sentences for the user."""
    max_wait: float = math.inf
    """A request that must wait longer than these seconds raises ``Throttled`` at once."""
    clock: Callable[[], Clock] = Clock
    bars: Bars = field(default_factory=lambda: bars_of(enabled=False))
    observer: Observer | None = None
    """Called after each request; neither it nor ``limit`` counts those of workers."""
    limit: RequestLimit | None = None
    data: Path = field(init=False)
    store_path: Path = field(init=False)
    turns: RLock = field(default_factory=RLock, init=False)
    _shared: dict[str, PoliteSource | CachedSource] = field(default_factory=dict)
    """The sources of the session that shares them, by the names of the properties."""
    _copied_database: Path | None = None
    """A temporary metadata database, where the data folder is read-only."""
    _opened: ExitStack = field(default_factory=ExitStack, init=False)
    _threads: RequestThreads | None = field(default=None, init=False)
    _sources: list[PoliteSource] = field(default_factory=list, init=False)
    """All that were opened."""
    _snapshot: "StoredCrawls | None" = field(default=None, init=False)
    _aborted: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.folder.is_file():
            raise QueryError(f"{self.folder} is a file; name a folder for the data")
        if self.dataset_name == COMMON_CRAWL.name:
            self.dataset_name = None
        self.data = self.folder if self.dataset_name is None else self.folder / check_name(self.dataset_name)
        self.store_path = self.data / STORE_NAME
        self.__dict__.update(self._shared)

    def __getstate__(self) -> NoReturn:
        raise TypeError("an open catalogue cannot be sent to another process; open it again in each process")

    def close(self) -> None:
        """Close everything, aborting requests; it is opened again at its next use."""
        self._snapshot = self._threads = self._copied_database = None
        self._opened.close()
        self._sources.clear()
        for name, kind in vars(Session).items():
            if isinstance(kind, cached_property):
                self.__dict__.pop(name, None)
        self.__dict__.update(self._shared)

    def abort(self) -> None:
        """End running requests and refuse others; for any thread."""
        self._aborted = True
        for each in list(self._sources):
            each.close()

    def share(self) -> "Session":
        """Return a session for another thread, with the same source, rate limit and cache.

        Closing it closes no other; after this one is closed the others cannot fetch. ``requests`` and ``bytes`` are the
        sums of all.
        """
        if "store" in self.__dict__:
            self.writable_database()
        return replace(self, _shared={name: getattr(self, name) for name in ("source", "reading", "rereading")})

    # Store and dataset

    @cached_property
    def store(self) -> Store:
        """The store; raises NotHarvested if there is none."""
        if self.dataset_name and not self.store_path.exists():
            raise undefined_dataset(self.folder, self.dataset_name)
        return self.open_store(create=False)

    def open_store(self, *, create: bool) -> Store:
        """Open the store once more, until the session is closed."""
        store = Store(self.store_path, create=create)
        self._opened.callback(store.close)
        return store

    def create_store(self, *, to_write: bool = True) -> Store:
        """Return the store, an empty one if there was none; ``to_write`` raises StoreError if it is read-only."""
        if to_write:
            self.check_writable()
        if self.is_read_only:
            return self.store
        if "store" not in self.__dict__:
            is_new = not self.store_path.exists()
            store = self.open_store(create=True)
            if is_new:
                self.notify(f"new data folder: {self.data}")
            if kind := remote_kind(self.data):
                self.notify(
                    f"{self.data} is on a network file system ({kind}), where locks may not work and a broken "
                    "connection may damage the store; use it from one machine at a time, or choose a local folder"
                )
            self.__dict__["store"] = store
        return self.store

    def check_writable(self) -> None:
        """Raise DiskFailed if there is a store that cannot be written to."""
        if self.is_read_only:
            raise unwritable(self.store.path)

    @property
    def is_read_only(self) -> bool:
        return self.store_path.exists() and self.store.read_only

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset; raises NotHarvested if it is not defined yet."""
        if self.dataset_name is None:
            return COMMON_CRAWL
        dataset = load_dataset(self.store)
        if dataset is None:
            raise undefined_dataset(self.folder, self.dataset_name)
        return dataset

    def reload_dataset(self) -> None:
        self.__dict__.pop("dataset", None)

    @property
    def database_path(self) -> Path:
        """The DuckDB file; a temporary one if the data folder is read-only and its file is out of date."""
        return self._copied_database or self.data / DATABASE_NAME

    def writable_database(self, *, indexes: bool = True, changes: bool = False) -> Path:
        """Return the path where the metadata database can be updated."""
        if self.store.read_only and not self._copied_database:
            from catalogue.metadata_db.refresh import is_fresh

            if not changes and is_fresh(self.database_path, self.store, indexes=indexes):
                return self.database_path
            self.notify(f"{self.data} is read-only; {DATABASE_NAME} is updated in a temporary copy")
            copy = copied_folder(self.data, self.temporary_folder).with_name(DATABASE_NAME)
            with suppress(OSError):  # it is rebuilt then
                copyfile(self.database_path, copy)
            self._copied_database = copy
        return self.database_path

    def metadata(self, *, indexes: bool = False) -> "StoredCrawls":
        """Return what the tables show now, kept open for planning; ``indexes``: by all page indexes, too."""
        from catalogue.tables.stored_crawls import StoredCrawls

        known, store = self._snapshot, self.store
        if not (known and known.tables.shows(store, indexes=indexes)):
            writable = partial(self.writable_tables, changes=True)
            known = self._snapshot = StoredCrawls(
                self.writable_tables(), store, self.dataset, indexes=indexes, notify=self.notify, writable=writable
            )
        return known

    def stored_crawls(self) -> list[str]:
        """Return the crawls of which something is stored, or was requested, newest first."""
        if not self.store_path.exists():
            return []
        return newest_first([*self.metadata().requested_crawls, *self.block_lists.stored])

    def forget_tables(self) -> None:
        """Open the tables again when they are used next, because they show more of the same stored files."""
        self._snapshot = None

    def writable_tables(self, *, changes: bool = False) -> Path:
        """Return the folder of the tables; a copy if it is read-only, and they are out of date or need ``changes``."""
        folder = self.data / TABLES_FOLDER
        if not self.store.read_only or (not changes and fresh_state(folder, self.store, self.dataset.key)):
            return folder
        if not (self.temporary_folder / TABLES_FOLDER).exists():
            self.notify(f"{self.data} is read-only; its tables are updated in a temporary copy")
        return copied_folder(self.data, self.temporary_folder)

    @contextmanager
    def database(self, *, indexes: bool = True) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Open the updated metadata database; ``indexes``: with all stored page indexes, too."""
        from catalogue.metadata_db.connection import readable, reading

        with readable(), reading(self.updated_database(indexes=indexes)) as connection:
            yield connection

    def updated_database(self, *, indexes: bool = True) -> Path:
        from catalogue.metadata_db.refresh import refresh

        path = self.writable_database(indexes=indexes)
        refresh(path, self.store, self.dataset, indexes=indexes, notify=self.notify)
        return path

    # Sources

    @cached_property
    def source(self) -> PoliteSource:
        source = self.open_source(self.settings.source)
        self._opened.callback(source.close)
        return source

    def open_source(self, url: str, *, attempts: int = ATTEMPTS, max_wait: float = math.inf) -> PoliteSource:
        """Open another source, which the caller closes."""
        source = open_source(
            url,
            self.settings,
            clock=self.clock(),
            notify=self.notify,
            attempts=attempts,
            max_wait=min(self.max_wait, max_wait),
            observer=self.observer,
            limit=self.limit,
        )
        self._sources.append(source)
        if self._aborted:
            source.close()
        return source

    @property
    def request_threads(self) -> RequestThreads:
        """Threads for requests; starting others for each query takes longer than planning it."""
        if self._threads is None or self._threads.process != os.getpid():
            self._threads = RequestThreads(self.source.connections)
            self._opened.callback(self._threads.close)
        return self._threads

    @cached_property
    def reading(self) -> PoliteSource | CachedSource:
        """The source for reading captures, with the cache on disk."""
        if "://" not in self.settings.source or self.executor:
            return self.source
        return self._cached(self.settings.cache / "pages", self.settings.cache_size)

    @cached_property
    def rereading(self) -> PoliteSource | CachedSource:
        """The source for reading the same pages repeatedly, with a temporary cache if there is no other."""
        has_cache = isinstance(self.reading, CachedSource) and self.settings.cache_size
        if "://" not in self.settings.source or has_cache:
            return self.reading
        return self._cached(self.temporary_folder, _TEMPORARY_CACHE)

    def _cached(self, folder: Path, limit: int) -> CachedSource:
        return CachedSource(self.source, RangeCache(folder, limit), self.observer)

    def cost(self) -> Cost:
        limiter, settings = self.source.limiter, self.settings
        return Cost(
            rate=limiter.rate,
            burst=limiter.policy.burst,
            bandwidth=settings.bandwidth,
            latency=settings.latency,
            connections=self.source.inner.connections,
        )

    @property
    def requests(self) -> int:
        return self.spent[0]

    @property
    def bytes(self) -> int:
        return self.spent[1]

    @property
    def spent(self) -> tuple[int, int]:
        """Requests and bytes so far, with those of workers."""
        used = {*self._sources, self.__dict__.get("source"), self.__dict__.get("workers")}
        return sum(each.requests for each in used if each), sum(each.bytes for each in used if each)

    def spending(self) -> Callable[[], tuple[int, int]]:
        """Return a function that returns the requests and bytes since this call."""
        requests, received = self.spent
        return lambda: (self.requests - requests, self.bytes - received)

    # Reading

    @cached_property
    def page_indexes(self) -> "PageIndexes":
        from catalogue.plan.columnar_index import PageIndexes

        return PageIndexes(self.store, self.dataset)

    @cached_property
    def block_lists(self) -> "BlockLists":
        """The lists of blocks; the store is created when searches are saved."""
        from catalogue.plan.block_lists import BlockLists

        return BlockLists(
            lambda: self.source,
            lambda: self.store if self.store_path.exists() else None,
            self.create_store,
            lambda crawl: self.metadata().extents(crawl) if self.store_path.exists() else {},
            self.notify,
        )

    def forget_blocks(self, crawl: str) -> None:
        if "block_lists" in self.__dict__:
            self.block_lists.drop(crawl)

    @cached_property
    def workers(self) -> "Workers | None":
        if self.executor is None:
            return None
        from catalogue.read.dask_cluster import machines_and_tasks
        from catalogue.read.workers import Workers

        machines, at_once = machines_and_tasks(self.executor)
        settings = self.machine_settings(machines, -(-at_once // machines))
        return Workers(self.executor, settings, at_once=2 * at_once)

    def machine_settings(self, machines: int, at_once: int = 1) -> Settings:
        """Return the settings of one of several machines, which read ``at_once`` slices at the same time each."""
        rate = self.source.limiter.policy.rate
        limits = (each.limiter.policy.rate for each in self.source.hosts_of())
        hosts = tuple(host.divided(own, machines) for host, own in zip(self.settings.hosts, limits, strict=False))
        return replace(
            self.settings.absolute(),
            rate=rate and rate / machines if not hosts else None,
            hosts=hosts,
            connections=max(1, self.source.inner.connections // at_once),
        )

    def new_temporary_folder(self) -> Path:
        return Path(mkdtemp(prefix="result-", dir=self.temporary_folder))

    @cached_property
    def temporary_folder(self) -> Path:
        return Path(self._opened.enter_context(TemporaryDirectory(prefix="catalogue-")))

    def reporting(self, report: Report | None, unit: str) -> AbstractContextManager[Report]:
        """Yield ``report``, or else a progress bar that counts ``unit``."""
        return nullcontext(report) if report else self.bars(unit)
