"""What a ``Catalogue`` has open: store, source, DuckDB file."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Self

from catalogue import metadata_db
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset, check_name
from catalogue.display import Displayed
from catalogue.errors import NotHarvested
from catalogue.formatting import closest_name
from catalogue.plan.context import FooterCache
from catalogue.plan.cost import Cost
from catalogue.progress import Bars, Report, nowhere
from catalogue.read.dask_cluster import places
from catalogue.read.workers import Workers
from catalogue.settings import STORE_NAME, Settings
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.open import open_source
from catalogue.source.rate_limit import Clock, SystemClock
from catalogue.source.retry import ATTEMPTS, PoliteSource
from catalogue.source.shared_requests import SharedSource
from catalogue.store.database import Store
from catalogue.store.mounts import remote_kind
from catalogue.store.read_only import unwritable
from catalogue.store.stored_lists import load_dataset

CATALOGUE_NAME = "catalogue.duckdb"
_TEMPORARY = 8 << 30
"""Bytes of a cache that lasts as long as a ``Catalogue`` is open."""
_SMALL = 16 << 20
"""Bytes of a DuckDB file, of some ten thousand index files."""


@dataclass(frozen=True, slots=True)
class _Lent:
    """What another ``Catalogue`` reads by, named as there."""

    source: PoliteSource
    reading: PoliteSource | CachedSource
    rereading: PoliteSource | CachedSource


class Opened(Displayed):
    """A folder and a source; what is needed of them is opened when it is needed."""

    def __init__(
        self,
        data: Path,
        settings: Settings,
        *,
        table: str | None = None,
        executor: Executor | None = None,
        notify: Callable[[str], None] | None = None,
        patience: float = math.inf,
        clock: Callable[[], Clock] = SystemClock,
        bars: Bars | None = None,
    ) -> None:
        """See ``open``.

        Args:
            data: the folder.
            settings: how to talk to the source.
            table: name of another table than the index.
            executor: whose workers read.
            notify: told in a sentence what a person would want to know meanwhile.
            patience: seconds that a request may have to wait for; what would take longer is a ``Throttled`` at once.
                For questions: whoever fetches many records or footers has to have patience.
            clock: makes what a source waits by; each has its own, since closing a source stops it.
            bars: show how far it is what takes long, if nobody else is told.
        """
        self.settings = settings
        self._folder = data
        self._name = None if table == COMMON_CRAWL.name else table
        self.data = data / check_name(self._name) if self._name else data
        self._executor = executor
        self._notify = notify or (lambda _: None)
        self._patience = patience
        self._clock = clock
        self._bars = bars or nowhere
        self._shares = False
        """Whether several threads read by our sources, each with a catalogue of its own."""
        self._lent: _Lent | None = None
        self._opened: list[Store | PoliteSource] = []
        self._planning: metadata_db.MetadataSnapshot | None = None
        self._spent = (0, 0)
        """Requests made of sources that were opened for one thing and closed again, and bytes received."""
        self._temporary: TemporaryDirectory[str] | None = None
        self._elsewhere: Path | None = None
        """A temporary DuckDB file, where our own cannot be written to."""
        self._broken_off = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> str:
        return f"in {self.data}, of {self.settings.source}"

    def close(self) -> None:
        """Close what is open, breaking off requests that are under way; it opens again when it is used again."""
        if self._planning:
            self._planning.close()
            self._planning = None
        while self._opened:
            self._opened.pop().close()
        for name in ("_store", "table", "_source", "_reading", "_rereading", "_footers", "_workers"):
            self.__dict__.pop(name, None)
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None
        self._elsewhere = None

    def break_off(self) -> None:
        """End requests that are under way and refuse others, so that whoever works with this is done soon.

        From any thread; to close it is for the one that works with it, since DuckDB does not survive otherwise.
        """
        self._broken_off = True
        for each in list(self._opened):
            if isinstance(each, PoliteSource):
                each.close()

    def sharing(self) -> Self:
        """Another of the same folder, for another thread, that asks by our source, limiter and cache.

        Nothing that the cache can keep is fetched twice, whichever of them asks, nor at the same time. Each of them
        is for one thread at a time. To close one closes no other, but when this one is closed the others can fetch
        nothing more. ``requests`` and ``bytes`` are those of all together.
        """
        if not (self._shares or self._lent):
            self._shares = True
            for name in ("_reading", "_rereading"):  # which were for one thread
                self.__dict__.pop(name, None)
        other = type(self)(
            self._folder,
            self.settings,
            table=self._name,
            executor=self._executor,
            notify=self._notify,
            patience=self._patience,
            clock=self._clock,
            bars=self._bars,
        )
        if "_store" in self.__dict__:
            self._database()
        other._elsewhere = self._elsewhere  # noqa: SLF001 - of this class
        other._lent = self._lent or _Lent(self._source, self._reading, self._rereading)  # noqa: SLF001 - of this class
        return other

    @contextmanager
    def _reporting(self, report: Report | None, what: str) -> Iterator[Report]:
        """Who is told how far it is: ``report``, or a bar that counts something."""
        if report:
            yield report
        else:
            with self._bars(what) as bar:
                yield bar

    @property
    def path(self) -> Path:
        """The DuckDB file; a temporary one, if that in our folder is out of date and cannot be written to."""
        return self._elsewhere or self.data / CATALOGUE_NAME

    def _database(self, *, indexes: bool = True, changes: bool = False) -> Path:
        """Where the DuckDB file can be brought up to date, if that is needed.

        Args:
            indexes: whether it must show all page indexes, too.
            changes: whether it is to be changed in any case.
        """
        if self._store.read_only and not self._elsewhere:
            if not changes and metadata_db.is_fresh(self.path, self._store, indexes=indexes):
                return self.path
            self._notify(f"{self.data} cannot be written to, so what {CATALOGUE_NAME} lacks goes into a temporary copy")
            copy = self._temporary_folder() / CATALOGUE_NAME
            with suppress(OSError):  # which is then rebuilt
                copyfile(self.path, copy)
            self._elsewhere = copy
        return self.path

    @property
    def _read_only(self) -> bool:
        """Whether there is a store that cannot be written to."""
        return (self.data / STORE_NAME).exists() and self._store.read_only

    def _temporary_folder(self) -> Path:
        self._temporary = self._temporary or TemporaryDirectory(prefix="catalogue-")
        return Path(self._temporary.name)

    @cached_property
    def _store(self) -> Store:
        if self._name and not (self.data / STORE_NAME).exists():
            raise self._undefined()
        return self._open_store(create=False)

    @cached_property
    def table(self) -> Dataset:
        """The table that it is of.

        Raises:
            NotHarvested: if there is none of its name yet.
        """
        if self._name is None:
            return COMMON_CRAWL
        table = load_dataset(self._store)
        if table is None:
            raise self._undefined()
        return table

    def _undefined(self) -> NotHarvested:
        like = closest_name(self._name or "", (path.parent.name for path in self.data.parent.glob(f"*/{STORE_NAME}")))
        hint = f"did you mean {like}? if not, " if like else ""
        message = (
            f"there is no table {self._name} in {self.data.parent} yet; {hint}"
            f"run: catalogue harvest --table {self._name} --key COLUMN --manifest PATH"
        )
        return NotHarvested(message, call="define('COLUMN', manifest='PATH'), then cat.harvest()")

    @cached_property
    def _source(self) -> PoliteSource:
        if self._lent:
            return self._lent.source
        source = self._open_source(self.settings.source)
        self._opened.append(source)
        if self._broken_off:
            source.close()
        return source

    def _open_source(self, url: str, *, attempts: int = ATTEMPTS) -> PoliteSource:
        """A source that is asked as the user's own."""
        return open_source(
            url,
            self.settings,
            clock=self._clock(),
            notify=self._notify,
            attempts=attempts,
            patience=self._patience,
        )

    @cached_property
    def _reading(self) -> PoliteSource | CachedSource:
        """The source as captures are read from it: what was fetched before need not be fetched again."""
        if self._lent:
            return self._lent.reading
        folder = "://" not in self.settings.source  # whose files are here already
        if folder or self._executor or not (self.settings.cache_size or self._shares):
            return self._source
        return self._cached(self.settings.cache / "pages", self.settings.cache_size)

    @cached_property
    def _rereading(self) -> PoliteSource | CachedSource:
        """The source for who reads the same pages again: these are kept for as long as this is open at least."""
        if self._lent:
            return self._lent.rereading
        kept = isinstance(self._reading, CachedSource) and self.settings.cache_size
        if "://" not in self.settings.source or kept:
            return self._reading
        return self._cached(self._temporary_folder(), _TEMPORARY)

    def _cached(self, folder: Path, limit: int) -> CachedSource:
        kind = SharedSource if self._shares else CachedSource
        return kind(self._source, RangeCache(folder, limit))

    @cached_property
    def _workers(self) -> Workers | None:
        if self._executor is None:
            return None
        machines, at_once = places(self._executor)
        return Workers(self._executor, self._share(machines, -(-at_once // machines)), at_once=2 * at_once)

    def _share(self, machines: int, at_once: int = 1) -> Settings:
        """Settings of one of so many machines, each of which reads so many slices at once."""
        source, rate = self.settings.source, self._source.limiter.policy.rate
        return replace(
            self.settings,
            source=source if "://" in source else str(Path(source).absolute()),
            rate=rate and rate / machines,
            connections=max(1, self._source.connections // at_once),
            cache=self.settings.cache.absolute(),
        )

    @cached_property
    def _footers(self) -> FooterCache:
        return FooterCache(self._store, self.table)

    def _open_store(self, *, create: bool) -> Store:
        store = Store(self.data / STORE_NAME, create=create)
        self._opened.append(store)
        return store

    def create(self, *, to_write: bool = True) -> Store:
        """The store, an empty one if there was none.

        Args:
            to_write: whether something is to be written to one that is there.

        Raises:
            StoreError: if it cannot be made, or written to.
        """
        if self._read_only:
            if to_write:
                raise unwritable(self._store.path)
            return self._store
        if "_store" not in self.__dict__:
            made = not (self.data / STORE_NAME).exists()
            store = self._open_store(create=True)
            if made:
                self._notify(f"making {self.data.resolve()}")
            if kind := remote_kind(self.data):
                self._notify(
                    f"{self.data} is on a network file system ({kind}), where locks may not hold and a cut connection "
                    "may damage the store; see that one machine at a time uses it, or choose a folder on a local disk"
                )
            self.__dict__["_store"] = store
        return self._store

    def _count(self, requests: int, received: int) -> None:
        """Count what a source was asked that is not kept open."""
        self._spent = self._spent[0] + requests, self._spent[1] + received

    @property
    def requests(self) -> int:
        """Requests made of the source so far."""
        return self._made[0]

    @property
    def bytes(self) -> int:
        """Bytes received from the source so far."""
        return self._made[1]

    @property
    def _made(self) -> tuple[int, int]:
        """Requests made so far and bytes received, by us and by workers."""
        source = self._lent.source if self._lent else self.__dict__.get("_source")
        asked = [source, self.__dict__.get("_workers")]
        requests, size = (sum(getattr(each, name) for each in asked if each) for name in ("requests", "bytes"))
        return self._spent[0] + requests, self._spent[1] + size

    def _shown(self) -> metadata_db.MetadataSnapshot:
        """The catalogue as it is now, kept open for planning."""
        state = self._store.state()
        if self._planning and self._planning.state != state:
            self._planning.close()
            self._planning = None
        if not self._planning:
            path = self._database(indexes=False)
            connection = metadata_db.connect_fresh(path, self._store, self.table, indexes=False)
            small = path.stat().st_size < _SMALL
            self._planning = metadata_db.MetadataSnapshot(connection, state, self.table, small=small)
        return self._planning

    def _cost(self) -> Cost:
        limiter, settings = self._source.limiter, self.settings
        return Cost(
            rate=limiter.rate,
            burst=limiter.policy.burst,
            bandwidth=settings.bandwidth,
            latency=settings.latency,
            connections=self._source.connections,
        )
