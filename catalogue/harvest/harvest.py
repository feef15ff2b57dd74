"""Fetch missing footers.

Usually one request per file: a suffix range whose length is learned from earlier footers.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from catalogue.commoncrawl.crawls import CDX, COLUMNAR, has_columnar_index, no_columnar_index, suggest_crawl
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset, parse_path_list
from catalogue.commoncrawl.manifests import IndexFile, is_manifest_path, manifest_path, parse_manifest
from catalogue.errors import (
    Blocked,
    CatalogueError,
    FormatError,
    NotFound,
    SourceError,
    SourceUnavailable,
    UnknownCrawl,
)
from catalogue.formatting import ReprMixin, plural, size
from catalogue.harvest.tails import FetchedFile, FooterFetcher, Tails, index_ranges
from catalogue.parquet.footer import decode_footer
from catalogue.progress import Progress
from catalogue.source.parallel import map_as_completed
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile, marker
from catalogue.store.stored_lists import (
    listed_crawls,
    listed_files,
    note_requested,
    stored_paths,
    stored_response,
)
from catalogue.tables.make_table import FooterRows

VALUES = "values"
_BATCH_FILES, _BATCH_BYTES, _BATCH_SECONDS = 200, 3 << 20, 5.0
_DECODED = 1000
"""Files whose decoded rows are in memory, of some 30 kB each, until the table is made; others are decoded again."""
_NOUNS = {COLUMNAR: "file", CDX: "list of blocks", VALUES: "dictionary page"}
_HOPELESS = 25
"""Failures in a row, before any success, after which the rest is not tried."""


@dataclass(slots=True, repr=False)
class Harvested(ReprMixin):
    """The result of the harvest of a crawl."""

    progress: Progress
    fetched: set[str] = field(default_factory=set)
    """Paths of the files whose footers were fetched, or names of fetched dictionary pages."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by path."""
    index: str = COLUMNAR
    """What was harvested: footers of the columnar index, the list of blocks of the CDX index, or values."""

    @property
    def summary(self) -> str:
        """Return the result as a sentence."""
        at = self.progress
        cost = f"{plural(at.requests, 'request')}, {size(at.bytes)}, {at.seconds:.1f} s"
        what = _NOUNS[self.index]
        value = f"{at.done:,} of {plural(at.listed, what)} stored, {len(self.fetched):,} fetched now"
        return f"{at.name}: {value}; {cost}"

    def _line(self) -> str:
        return self.summary

    def _notes(self) -> Iterator[str]:
        for path, reason in self.failures.items():
            yield f"failed: {reason}" if path in reason else f"failed: {path}: {reason}"
        if self.failures:
            yield "Harvest the crawl again to retry these files."


def harvest(  # noqa: PLR0913 - each is named
    crawl: str,
    subsets: Iterable[str],
    *,
    table: Dataset = COMMON_CRAWL,
    store: Store,
    source: PoliteSource,
    refresh: bool = False,
    pages: bool = False,
    decoded: dict[str, FooterRows] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
) -> Harvested:
    """Fetch the footers of a crawl's index files that are not stored yet.

    The store receives results in batches, with the reasons of failures. With ``refresh`` all footers and the manifest
    are fetched again, and files that are no longer listed are removed; with ``pages`` page indexes are fetched too,
    whose cost is given to ``notify`` first. ``decoded`` receives rows of the first files, see ``update_tables``.

    Raises:
        SourceError: if the source failed; what was fetched before is stored.
        StoreLocked: if another process harvests this crawl.
    """
    chosen = set(subsets)
    with store.harvesting(crawl):
        if table == COMMON_CRAWL:
            files = fetch_manifest(crawl, store, source, refresh=refresh)
        else:
            files = listed_files(store, table).get(crawl, [])
        requested = [file for file in files if table != COMMON_CRAWL or file.subset in chosen]
        requested.sort(key=lambda file: file.subset != "warc")  # manifests list the pages last
        note_requested(store, requested)
        paths = {file.path for file in files}
        for kind in ("files", "failures"):
            store.delete(kind, set(stored_paths(store, table, crawl, kind=kind)) - paths)
        stored = stored_paths(store, table, crawl)
        without_pages = _without_pages(store, table, crawl, stored) if pages else {}
        up_to_date = set() if refresh else {*stored} - without_pages.keys()
        missing = [file for file in requested if file.path not in up_to_date]
        tails = Tails(store, table, sorted(stored), pages=pages)
        if pages and missing:
            needed = f"{plural(len(missing), 'request')} and {size(sum(tails.length(file.subset) for file in missing))}"
            notify(f"{crawl}: about {needed}, for the page indexes above all")
        fetcher = FooterFetcher(source, tails, {} if refresh else without_pages, table, pages)
        run = _Run(crawl, fetcher, store, len(requested), len(missing), {} if decoded is None else decoded, report)
        try:
            run.fetch(missing)
        finally:
            run.batch.commit()
    return run.outcome


class _Run:
    def __init__(
        self,
        crawl: str,
        fetcher: FooterFetcher,
        store: Store,
        requested: int,
        missing: int,
        decoded: dict[str, FooterRows],
        report: Callable[[Progress], None],
    ) -> None:
        self.batch = _Batch(store)
        self._fetcher = fetcher
        self.outcome = Harvested(Progress(crawl, requested, requested - missing))
        self._before = fetcher.source.requests, fetcher.source.bytes
        self._started = time.monotonic()
        self._decoded = decoded
        self._report = report
        report(self.outcome.progress)

    def fetch(self, missing: Iterable[IndexFile]) -> None:
        with closing(_in_parallel(self._fetcher.fetch, missing, self._fetcher.source.connections)) as results:
            for file, result in results:
                self._note(file, result)

    def _note(self, file: IndexFile, result: FetchedFile | CatalogueError) -> None:
        outcome, at = self.outcome, self.outcome.progress
        if isinstance(result, FetchedFile):
            if result.is_new:
                outcome.fetched.add(file.path)
            if result.rows and len(self._decoded) < _DECODED:
                self._decoded[file.path] = result.rows
            self.batch.add_file(file.path, result)
            at.done += 1
        else:
            self._note_failure(file.path, result)
        source = self._fetcher.source
        at.requests, at.bytes = source.requests - self._before[0], source.bytes - self._before[1]
        at.seconds = time.monotonic() - self._started
        self._report(at)

    def _note_failure(self, path: str, error: CatalogueError) -> None:
        if isinstance(error, Blocked | SourceUnavailable):
            raise error
        self.outcome.failures[path] = str(error)
        self.outcome.progress.failed += 1
        self.batch.add_failure(path, marker(f"{type(error).__name__}: {error}"))
        if not self.outcome.fetched and len(self.outcome.failures) >= _HOPELESS:
            raise SourceUnavailable(f"the first {_HOPELESS} files all failed, the last with: {error}") from error


def _without_pages(store: Store, table: Dataset, crawl: str, paths: Iterable[str]) -> dict[str, StoredFile]:
    """Return the stored files whose page indexes are not stored."""
    keys = store.keys("indexes", "" if crawl == table.name else f"crawl={crawl}/")
    known = {of[0] for key in keys if (of := row_group_of(key))}
    found = {}
    for path in paths:
        if (value := store.undamaged("files", path)) is None:
            continue
        footer = decode_footer(value.data, value.size)
        requested = {group.ordinal for group in footer.row_groups if index_ranges([group], table.key)}
        there = store.indexes(path, requested, value) if path in known else {}
        if any(not there.get(n) or len(there[n].offset_indexes) < len(footer.columns) for n in requested):
            found[path] = value
    return found


class _Batch:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._start()

    def _start(self) -> None:
        self._files: list[tuple[str, FetchedFile]] = []
        self._failures: list[tuple[str, StoredFile]] = []
        self._size = 0
        self._since = time.monotonic()

    def add_file(self, path: str, fetched: FetchedFile) -> None:
        self._files.append((path, fetched))
        self._size += len(fetched.value) + sum(map(len, fetched.indexes.values()))
        self._commit_if_large()

    def add_failure(self, path: str, failure: StoredFile) -> None:
        self._failures.append((path, failure))
        self._commit_if_large()

    def _commit_if_large(self) -> None:
        late = time.monotonic() - self._since > _BATCH_SECONDS
        if late or len(self._files) + len(self._failures) >= _BATCH_FILES or self._size >= _BATCH_BYTES:
            self.commit()

    def commit(self) -> None:
        files, failures = self._files, self._failures
        self._start()
        if files:
            self._store.put_encoded("files", [(path, each.value) for path, each in files])
        if failures:
            self._store.put("failures", failures)
        if indexes := [(path, each.indexes, each.version) for path, each in files if each.indexes]:
            self._store.add_all_indexes(indexes)


def _in_parallel(
    work: Callable[[IndexFile], FetchedFile], items: Iterable[IndexFile], workers: int
) -> Generator[tuple[IndexFile, FetchedFile | CatalogueError], None, None]:
    executor = ThreadPoolExecutor(workers, thread_name_prefix="harvest")
    try:
        for item, future in map_as_completed(executor, work, items, limit=2 * workers):
            try:
                yield item, future.result()
            except (SourceError, FormatError) as error:
                yield item, error
    finally:
        # Not waited for: the caller that stops early closes the source next, which ends what is under way.
        executor.shutdown(wait=False, cancel_futures=True)


def fetch_manifest(crawl: str, store: Store, source: PoliteSource, *, refresh: bool = False) -> list[IndexFile]:
    """Return the files of a crawl of Common Crawl's index; the manifest is fetched once, or to ``refresh`` it."""
    path = manifest_path(crawl)
    stored = store.undamaged("documents", path)
    if stored and not refresh:
        return parse_manifest(crawl, stored.data)
    if not has_columnar_index(crawl):
        raise UnknownCrawl(no_columnar_index(crawl))
    try:
        response = source.get(path)
    except NotFound as error:
        if stored:  # from another path, see resolve_manifest_paths
            return parse_manifest(crawl, stored.data)
        message = f"{source.url} has no columnar index of {crawl}; {suggest_crawl(crawl, listed_crawls(store))}"
        raise UnknownCrawl(message) from error
    files = parse_manifest(crawl, response.body)
    store.put("documents", [(path, stored_response(response, source))])
    return files


def resolve_manifest_paths(words: Iterable[str], store: Store, source: Callable[[], PoliteSource]) -> list[str]:
    """Store manifests that are named by path among words for crawls, and return the words with their crawls instead."""
    resolved = []
    for word in words:
        if is_manifest_path(word):
            try:
                response = source().get(word)
            except NotFound as error:
                raise UnknownCrawl(f"{source().url} has no manifest {word}") from error
            crawl = parse_manifest(None, response.body)[0].crawl
            store.put("documents", [(manifest_path(crawl), stored_response(response, source()))])
            resolved.append(crawl)
        else:
            resolved.append(word)
    return resolved


def fetch_path_list(dataset: Dataset, store: Store, source: PoliteSource, *, refresh: bool = False) -> list[str]:
    """Store the list of the files of a dataset other than Common Crawl's index, if it has one that is not stored.

    Returns:
        The lines of a list that was fetched which are not paths.
    """
    if dataset.manifest is None or (store.undamaged("documents", dataset.manifest) and not refresh):
        return []
    response = source.get(dataset.manifest)
    skipped: list[str] = []
    parse_path_list(response.body, source=source.url, skipped=skipped)
    store.put("documents", [(dataset.manifest, stored_response(response, source))])
    return skipped
