"""The lists of blocks of a session, stored or searched, and what is expected of a list that is not known."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeAlias

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.cluster import MAX_READ, list_path
from catalogue.cdx.list_search import (
    COMPLETE_GAP,
    NEXT_SEARCH,
    PREDICTED_SEARCH,
    PROBE,
    SEARCH_BY_ROW_GROUPS,
    START,
    USUAL,
    ClusterSearch,
    Predictor,
    predict_from,
)
from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import CatalogueError, FileChanged, NotFound, StoreDamaged, StoreError
from catalogue.plan.crawl_plan import ListSearch
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import (
    crawls_with_blocks,
    crawls_with_lines,
    forget_lines,
    forget_list,
    list_version,
    open_list,
    save_lines,
    save_versions,
    stored_lines,
    stored_versions,
)
from catalogue.surt.interval import KeyInterval

_BLOCK = 250_000
"""Bytes of the blocks that have one key."""
_USUAL_SIZE = 100_000_000
"""Bytes of most lists of Common Crawl."""
_LINE = 84
"""Bytes of a usual line."""
_WIDE, _NARROW = 0.005, 0.002
"""Shares of a list: one that may cost more than a search, and one that predictions cannot tell from 0."""


def predict_like(other: StoredList) -> Predictor:
    """Predict by the list of another crawl; where it is damaged, by usual shares."""

    def share(key: bytes) -> float:
        with suppress(StoreError):
            return other.share(key)
        return USUAL.share(key)

    return Predictor(share)


def estimate_search(
    intervals: Iterable[KeyInterval],
    unknown: Sequence[KeyInterval],
    predictor: Predictor,
    list_size: int | None,
    *,
    is_begun: bool,
) -> ListSearch:
    """Estimate the search for ascending intervals, and the reads of their blocks.

    The lines of ``unknown`` intervals are not known. ``list_size`` is that of the list, or of one like it, if known;
    ``is_begun`` says that an earlier search has read parts of the list.
    """
    by_row_groups = predictor.size is not None
    later = SEARCH_BY_ROW_GROUPS if by_row_groups else NEXT_SEARCH if predictor.rough else PREDICTED_SEARCH
    begin = (0, 0) if is_begun or by_row_groups else START
    size = predictor.size if list_size is None else list_size
    shares = _shares(unknown, predictor)
    searches = _distant(shares, PROBE / (size or _USUAL_SIZE))
    requests, received = (first + searches * each for first, each in zip(begin, later, strict=True))
    if list_size is not None:
        pieces = -(-max(0, list_size - PROBE) // COMPLETE_GAP)  # one request reads all of a piece
        requests = min(requests, 1 + pieces, searches * (1 + pieces.bit_length()))
        received = min(received, list_size)
    listed = sum(int(max(0.0, end - start - _NARROW) * (size or 0)) for start, end in shares)
    reads = _distant(_shares(intervals, predictor), 2 * _LINE / (size or _USUAL_SIZE))
    blocks = listed // _LINE * _BLOCK
    return ListSearch(
        requests + reads + blocks // MAX_READ,
        received + reads * _BLOCK + listed + blocks,
        requests,
        received + listed,
        size is None and any(end - start > _WIDE for start, end in shares),
    )


def _shares(intervals: Iterable[KeyInterval], predictor: Predictor) -> list[tuple[float, float]]:
    return [(predictor.share(each.start), predictor.share(each.end)) for each in intervals]


def _distant(shares: Iterable[tuple[float, float]], gap: float) -> int:
    """Count intervals that are not next to the one before them, as those of a host and of its subdomains are."""
    return 1 + sum(start - before > gap for (_, before), (start, _) in pairwise(shares))


AnyList: TypeAlias = StoredList | ClusterSearch
Extents: TypeAlias = Callable[[str], dict[str, list[tuple[bytes, bytes, int]]]]
"""Row groups of a crawl by subset; see ``list_search.predict_from``."""


@dataclass(eq=False, slots=True)
class BlockLists:
    """Lists of blocks by crawl. ``save`` stores what searches read."""

    _source: Callable[[], PoliteSource]
    _store: Callable[[], Store | None]
    _create_store: Callable[[], Store]
    """It makes a store if there is none, or raises StoreError."""
    _extents: Extents
    """Predictions use them."""
    _notify: Callable[[str], None]
    """Called with a sentence if a stored list is damaged; it is then searched at the source."""
    _lists: dict[str, AnyList] = field(default_factory=dict, init=False)
    _stored: dict[str, None] = field(default_factory=dict, init=False)
    """Crawls whose lists are stored, newest first."""
    _predictors: dict[str, Predictor] = field(default_factory=dict, init=False)
    _sizes: dict[str, int | None] = field(default_factory=dict, init=False)
    """Bytes of lists like that of a crawl."""
    _versions: dict[str, dict[str, FileVersion]] = field(default_factory=dict, init=False)
    """Versions of the files with blocks, by crawl and path."""
    _unsaved: set[str] = field(default_factory=set, init=False)
    """Crawls with new versions."""
    _state: str = field(default="", init=False)

    @property
    def stored(self) -> list[str]:
        """Crawls with complete stored lists, newest first."""
        self._update()
        return [*self._stored]

    def _update(self) -> Store | None:
        store = self._store()
        state = store.state() if store else ""
        if state != self._state:
            self._state = state
            there = crawls_with_blocks(store) if store else []
            self._stored = dict.fromkeys(newest_first(there))
            self._predictors.clear()
            self._sizes.clear()
            self._lists = {crawl: each for crawl, each in self._lists.items() if isinstance(each, ClusterSearch)}
        return store

    def get(self, crawl: str) -> AnyList:
        """Return the stored list of a crawl, or else its search, with the lines that are known."""
        store = self._update()
        known = self._lists.get(crawl)
        if store and crawl in self._stored and not isinstance(known, StoredList):
            try:
                known = open_list(store, crawl) or known
            except StoreDamaged as error:
                self.lose(crawl, error)
                return self.get(crawl)
        if known is None:
            known = ClusterSearch(self._source(), crawl)
        if store and isinstance(known, ClusterSearch) and not (known.lines or crawl in self._stored):
            known.lines = stored_lines(store, self._source().url, crawl)
        self._lists[crawl] = known
        return known

    def lose(self, crawl: str, error: StoreDamaged) -> None:
        """Search a list at the source, because the stored one is damaged."""
        self._notify(f"{error}; until then, queries search the list at the source")
        self._stored.pop(crawl, None)
        if isinstance(self._lists.get(crawl), StoredList):
            del self._lists[crawl]

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
            if isinstance(like := self._nearest(crawl, self._stored), StoredList):
                return predict_like(like)
        return USUAL

    def _nearest(self, crawl: str, others: Iterable[str]) -> AnyList | None:
        found = newest_first(other for other in others if other != crawl)
        around = newest_first([*found, crawl])
        return self.get(found[max(0, around.index(crawl) - 1)]) if found else None

    def expected_size(self, crawl: str) -> int | None:
        """Return the bytes of a list, or of that of another crawl; None if neither is known."""
        store, known = self._update(), self._lists.get(crawl)
        if isinstance(known, ClusterSearch) and known.lines:
            return known.lines.version.size
        if crawl not in self._sizes:
            self._sizes[crawl] = self._size_of_another(crawl, store) if store else None
        return self._sizes[crawl]

    def _size_of_another(self, crawl: str, store: Store) -> int | None:
        version: FileVersion | None = None
        with suppress(StoreError):
            like = self._nearest(crawl, [*self._stored, *crawls_with_lines(store)])
            if isinstance(like, StoredList):
                version = list_version(store, like.crawl)
            elif isinstance(like, ClusterSearch) and like.lines:
                version = like.lines.version
        return version.size if version else None

    def save(self, crawls: Iterable[str]) -> None:
        """Store what the searches of crawls have read."""
        found = [self._lists.get(crawl) for crawl in crawls]
        known = [each.lines for each in found if isinstance(each, ClusterSearch) and each.lines]
        with suppress(StoreError):
            if known:
                save_lines(self._create_store(), self._source().url, known)

    def version(self, crawl: str, path: str) -> FileVersion | None:
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
        """Forget what is known of an index that may have been replaced; its stored list only if it was."""
        self._lists.pop(crawl, None)
        self._versions.pop(crawl, None)
        if store := self._update():
            forget_lines(store, crawl)
            if crawl in self._stored and self._is_outdated(store, crawl):
                again = f"run the query again, or first: catalogue harvest --crawl {crawl} --index cdx"
                self._notify(f"the source has another list of blocks of {crawl} than the stored one; {again}")
                del self._stored[crawl]
                with suppress(StoreError, OSError):
                    forget_list(store, crawl)

    def _is_outdated(self, store: Store, crawl: str) -> bool:
        """Return whether the source of a stored list has another version now, or no list any more."""
        version, source = list_version(store, crawl), self._source()
        if version is None or version.origin not in {host.url for host in source.hosts_of()}:
            return False
        try:
            source.get(list_path(crawl), ByteRange(version.size - 1, version.size), pin=version)
        except CatalogueError as error:
            return isinstance(error, FileChanged | NotFound)  # the error of the query is raised
        return False
