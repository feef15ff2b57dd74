"""The lists of blocks that a session uses: stored ones, and searches of others."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import TypeAlias

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.list_search import USUAL, ClusterSearch, Predictor, predict_from
from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import StoreDamaged, StoreError
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import (
    LISTS,
    crawls_with_blocks,
    forget_lines,
    list_file,
    listed_crawls,
    save_lines,
    save_versions,
    stored_lines,
    stored_versions,
)

AnyList: TypeAlias = StoredList | ClusterSearch
Extents: TypeAlias = Callable[[str], dict[str, list[tuple[bytes, bytes, int]]]]
"""Row groups of a crawl by subset; see ``list_search.predict_from``."""


class BlockLists:
    """Lists of blocks by crawl. ``save`` stores what searches read."""

    def __init__(
        self,
        source: Callable[[], PoliteSource],
        store: Callable[[], Store | None],
        create_store: Callable[[], Store],
        extents: Extents,
        notify: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is opened.

        ``create_store`` makes a store if there is none, or raises StoreError; predictions use ``extents``. ``notify``
        is called with a sentence if a stored list is damaged; it is then searched at the source.
        """
        self._source = source
        self._store = store
        self._create_store = create_store
        self._extents = extents
        self._notify = notify
        self._lists: dict[str, AnyList] = {}
        self._stored: dict[str, None] = {}
        """Crawls whose lists are stored, newest first."""
        self._predictors: dict[str, Predictor] = {}
        self._versions: dict[str, dict[str, FileVersion]] = {}
        """Versions of the files with blocks, by crawl and path."""
        self._unsaved: set[str] = set()
        """Crawls with new versions."""
        self._state = ""

    @property
    def stored(self) -> list[str]:
        """Crawls with complete stored lists, newest first."""
        self._update()
        return [*self._stored]

    @property
    def listed(self) -> list[str]:
        store = self._store()
        return listed_crawls(store) if store else []

    def _update(self) -> Store | None:
        store = self._store()
        state = store.state() if store else ""
        if state != self._state:
            self._state = state
            there = crawls_with_blocks(store) if store else []
            self._stored = dict.fromkeys(newest_first(there))
            self._predictors.clear()
            self._lists = {crawl: each for crawl, each in self._lists.items() if isinstance(each, ClusterSearch)}
        return store

    def get(self, crawl: str) -> AnyList | None:
        """Return the stored list of a crawl, or else its search; None if nothing is known of it."""
        store = self._update()
        known = self._lists.get(crawl)
        if store and crawl in self._stored and not isinstance(known, StoredList):
            try:
                known = open_list(store, crawl)
            except StoreDamaged as error:
                self._notify(f"{error}; until then, queries search the list at the source")
                del self._stored[crawl]
        elif known is None and store and (lines := stored_lines(store, self._source().url, crawl)):
            known = ClusterSearch(self._source(), crawl, known=lines, check_end=True)
        if known:
            self._lists[crawl] = known
        return known

    def predictor(self, crawl: str) -> Predictor:
        """Predict by row groups of the crawl, the stored list of another one, or usual shares."""
        self._update()
        if crawl not in self._predictors:
            self._predictors[crawl] = self._new_predictor(crawl)
        return self._predictors[crawl]

    def _new_predictor(self, crawl: str) -> Predictor:
        with suppress(StoreError):  # answers do not depend on it
            if extents := self._extents(crawl):
                return predict_from(chain(*extents.values()), extents)
            if others := [other for other in self._stored if other != crawl]:
                around = newest_first([*others, crawl])
                nearest = others[max(0, around.index(crawl) - 1)]
                if isinstance(like := self.get(nearest), StoredList):
                    return Predictor(like.share)
        return USUAL

    def search(self, crawl: str) -> ClusterSearch:
        """Begin to search an unknown list; thread-safe."""
        search = self._lists[crawl] = ClusterSearch(self._source(), crawl, check_end=True)
        return search

    def save(self, crawls: Iterable[str]) -> None:
        """Store what the searches of crawls have read."""
        found = [self._lists.get(crawl) for crawl in crawls]
        known = [each.lines for each in found if isinstance(each, ClusterSearch) and each.lines]
        with suppress(StoreError):
            if known:
                save_lines(self._create_store(), self._source().url, known)

    def version(self, crawl: str, path: str) -> FileVersion | None:
        """Return the known version of a file."""
        known = self._versions.setdefault(crawl, {})
        if path not in known and (store := self._store()):  # other threads and processes store versions too
            self._versions[crawl] = known = stored_versions(store, self._source().url, crawl) | known
        return known.get(path)

    def note_version(self, crawl: str, path: str, version: FileVersion) -> None:
        known = self.version(crawl, path)
        if known is None or (known.origin == version.origin and known != version) or known.size != version.size:
            self._versions[crawl][path] = version
            self._unsaved.add(crawl)

    def save_versions(self) -> None:
        versions = {crawl: self._versions[crawl] for crawl in self._unsaved if crawl in self._versions}
        self._unsaved.clear()
        with suppress(StoreError):
            if versions:
                save_versions(self._create_store(), self._source().url, versions)

    def drop(self, crawl: str) -> None:
        """Forget a version of an index that was replaced."""
        self._lists.pop(crawl, None)
        self._versions.pop(crawl, None)
        if store := self._store():
            forget_lines(store, crawl)


def open_list(store: Store, crawl: str) -> StoredList | None:
    """Open the stored list of a crawl; None if it is not stored.

    Raises:
        StoreDamaged: if it is damaged.
    """
    document = store.get("documents", LISTS + crawl)
    return StoredList(list_file(store, crawl), document.data) if document else None
