"""Fetch missing footers.

Usually one request per file: a suffix range whose length is learned from earlier footers.
"""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from catalogue.commoncrawl.crawls import CDX, COLUMNAR, check_columnar, suggest_crawl
from catalogue.commoncrawl.datasets import (
    COMMON_CRAWL,
    Dataset,
    IndexFile,
    is_manifest_path,
    manifest_path,
    parse_manifest,
    parse_path_list,
)
from catalogue.errors import OF_ONE_FILE, BadManifest, NotFound, SourceUnavailable, UnknownCrawl
from catalogue.formatting import ReprMixin, plural, size
from catalogue.harvest.tails import FetchedFile, FooterFetcher, index_span
from catalogue.parquet.footer import decode_footer
from catalogue.progress import Progress, Report
from catalogue.source.parallel import run_ahead
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile, marker, row_group_of
from catalogue.store.stored_lists import listed_crawls, listed_files, note_requested, stored_paths, stored_response
from catalogue.tables.make_table import FooterRows

if TYPE_CHECKING:
    from catalogue.session import Session

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
        if self.index == VALUES and not at.listed:
            return f"{at.name}: no row group has all values of these columns in dictionary pages, so none are stored"
        value = f"{at.done:,} of {plural(at.listed, what)} stored, {len(self.fetched):,} fetched now"
        return f"{at.name}: {value}; {cost}"

    def _line(self) -> str:
        return self.summary

    def _notes(self) -> Iterator[str]:
        for path, reason in self.failures.items():
            yield f"failed: {reason}" if path in reason else f"failed: {path}: {reason}"
        if self.failures:
            yield "Harvest the crawl again to retry these files."


def harvest(
    session: "Session",
    crawl: str,
    subsets: Iterable[str],
    *,
    refresh: bool = False,
    pages: bool = False,
    decoded: dict[str, FooterRows] | None = None,
    report: Report = lambda _: None,
) -> Harvested:
    """Fetch the footers of a crawl's index files that are not stored yet.

    The store receives results in batches, with the reasons of failures. With ``refresh`` all footers and the manifest
    are fetched again, and files that are no longer listed are removed; with ``pages`` page indexes are fetched too.
    ``decoded`` receives rows of the first files, see ``update_tables``.

    Raises:
        SourceError: if the source failed; what was fetched before is stored.
        StoreLocked: if another process harvests this crawl.
    """
    chosen, store, table = set(subsets), session.create_store(), session.dataset
    with store.harvesting(crawl):
        if table == COMMON_CRAWL:
            files = fetch_manifest(session, crawl, refresh=refresh)
        else:
            files = listed_files(store, table).get(crawl, [])
        requested = [file for file in files if table != COMMON_CRAWL or file.subset in chosen]
        requested.sort(key=lambda file: file.subset != "warc")  # manifests list the pages last
        note_requested(store, requested)
        paths = {file.path for file in files}
        store.delete("files", {*stored_paths(store, table, crawl)} - paths)
        stored = stored_paths(store, table, crawl)
        store.delete("failures", {*stored_paths(store, table, crawl, kind="failures")} - paths.difference(stored))
        without_pages = _without_pages(store, table, crawl, stored) if pages and not refresh else {}
        up_to_date = set() if refresh else {*stored} - without_pages.keys()
        missing = [file for file in requested if file.path not in up_to_date]
        fetcher = FooterFetcher(session, sorted(stored), without_pages, pages=pages)
        if pages and missing:
            received = sum(fetcher.length(file.subset) for file in missing)
            needed = f"{plural(len(missing), 'request')} and {size(received)}"
            session.notify(f"{crawl}: about {needed}, mainly for page indexes")
        outcome = Harvested(Progress(crawl, len(requested), len(requested) - len(missing)))
        _Run(session, outcome, fetcher, {*stored}, {} if decoded is None else decoded, report).fetch(missing)
    return outcome


@dataclass(slots=True)
class _Run:
    session: "Session"
    outcome: Harvested
    fetcher: FooterFetcher
    stored: set[str]
    """Paths of files that have footers already, which answer although a request fails now."""
    decoded: dict[str, FooterRows]
    report: Report
    files: list[tuple[str, FetchedFile]] = field(default_factory=list)
    failures: list[tuple[str, StoredFile]] = field(default_factory=list)
    size: int = 0
    since: float = field(default_factory=time.monotonic)

    def fetch(self, missing: Iterable[IndexFile]) -> None:
        at, spent, started = self.outcome.progress, self.session.spending(), time.monotonic()
        self.report(at)
        fetched = run_ahead(self.session.source.connections, self.fetcher.fetch, missing, in_order=False)
        try:
            with closing(fetched):
                for tried, (file, call) in enumerate(fetched, 1):
                    self._add(file.path, call)
                    if tried == len(self.outcome.failures) == _HOPELESS:
                        message = f"the first {_HOPELESS} files all failed, the last with: {call.exception()}"
                        raise SourceUnavailable(message) from call.exception()
                    at.requests, at.bytes = spent()
                    at.seconds = time.monotonic() - started
                    self.report(at)
        finally:
            self._commit()

    def _add(self, path: str, future: "Future[FetchedFile]") -> None:
        try:
            result = future.result()
        except OF_ONE_FILE as error:
            self.outcome.failures[path] = str(error)
            self.outcome.progress.failed += 1
            if path not in self.stored:
                self.failures.append((path, marker(f"{type(error).__name__}: {error}")))
        else:
            if result.value:
                self.outcome.fetched.add(path)
            if result.rows and len(self.decoded) < _DECODED:
                self.decoded[path] = result.rows
            self.outcome.progress.done += 1
            self.files.append((path, result))
            self.size += len(result.value) + sum(map(len, result.indexes.values()))
        late = time.monotonic() - self.since > _BATCH_SECONDS
        if late or len(self.files) + len(self.failures) >= _BATCH_FILES or self.size >= _BATCH_BYTES:
            self._commit()

    def _commit(self) -> None:
        files, failures = self.files, self.failures
        self.files, self.failures, self.size, self.since = [], [], 0, time.monotonic()
        store = self.session.store
        if values := [(path, each.value) for path, each in files if each.value]:
            store.put_encoded("files", values)
        if failures:
            store.put("failures", failures)
        if indexes := [(path, each.indexes, each.version) for path, each in files if each.indexes]:
            store.add_all_indexes(indexes)


def _without_pages(store: Store, table: Dataset, crawl: str, paths: Iterable[str]) -> dict[str, StoredFile]:
    keys = store.keys("indexes", "" if crawl == table.name else f"crawl={crawl}/")
    known = {of[0] for key in keys if (of := row_group_of(key))}
    found = {}
    for path in paths:
        if (value := store.undamaged("files", path)) is None:
            continue
        footer = decode_footer(value.data, value.size)
        requested = {group.ordinal for group in footer.row_groups if index_span([group], table.key)}
        there = store.indexes(path, requested, value) if path in known else {}
        if any(not there.get(n) or len(there[n].offset_indexes) < len(footer.columns) for n in requested):
            found[path] = value
    return found


def fetch_manifest(session: "Session", crawl: str, *, refresh: bool) -> list[IndexFile]:
    """Return the files of a crawl of Common Crawl's index; the manifest is fetched once, or to ``refresh`` it."""
    path, store, source = manifest_path(crawl), session.store, session.source
    stored = store.undamaged("documents", path)
    if stored and not refresh:
        with suppress(BadManifest):  # older versions stored some that are refused now
            return parse_manifest(crawl, stored.data)
    check_columnar(crawl)
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


def resolve_manifest_paths(session: "Session", words: Iterable[str]) -> list[str]:
    """Store manifests that are named by path among words for crawls, and return the words with their crawls instead."""
    resolved = []
    for word in words:
        if is_manifest_path(word):
            source = session.source
            try:
                response = source.get(word)
            except NotFound as error:
                raise UnknownCrawl(f"{source.url} has no manifest {word}") from error
            crawl = parse_manifest(None, response.body)[0].crawl
            session.create_store().put("documents", [(manifest_path(crawl), stored_response(response, source))])
            resolved.append(crawl)
        else:
            resolved.append(word)
    return resolved


def fetch_path_list(session: "Session", *, refresh: bool) -> None:
    """Store the list of the files of a dataset other than Common Crawl's index, if it has one that is not stored."""
    store, manifest = session.create_store(), session.dataset.manifest
    if manifest and (refresh or not (store.undamaged("documents", manifest) and listed_files(store, session.dataset))):
        response = session.source.get(manifest)
        parse_path_list(response.body, source=session.source.url)
        store.put("documents", [(manifest, stored_response(response, session.source))])
