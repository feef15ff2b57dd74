"""Fetch missing footers of a crawl into the store.

Usually one request per file: a suffix range whose length is learned from earlier footers.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import BadFooter, Blocked, CatalogueError, FormatError, SourceError, SourceUnavailable
from catalogue.formatting import ReprMixin, format_cost, plural, size
from catalogue.harvest.crawl_list import fetch_manifest
from catalogue.harvest.duplicates import Duplicates
from catalogue.harvest.tails import Tails, Taken, Taker, index_ranges, whole
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.stored_indexes import Indexes
from catalogue.parquet.summary import FileSummary
from catalogue.plan.cost import Cost
from catalogue.progress import Progress
from catalogue.source.checks import Exchange
from catalogue.source.parallel import map_as_completed
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile
from catalogue.store.stored_lists import listed, note_requested, stored_paths

FILES_OF_A_SUBSET = 300
"""Index files of a subset in most crawls."""
FOOTER, FOOTER_WITH_PAGES = 85_000, 1_000_000
"""Usual bytes of a footer, without and with page indexes."""

_BATCH_FILES, _BATCH_BYTES, _BATCH_SECONDS = 200, 8 << 20, 5.0
_HOPELESS = 25
"""Failures in a row, before any success, after which the rest is not tried."""


@dataclass(slots=True, repr=False)
class Harvested(ReprMixin):
    """The result of the harvest of a crawl."""

    progress: Progress
    facts: dict[str, FileSummary] = field(default_factory=dict)
    """Of the fetched files, by path."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by path."""

    @property
    def summary(self) -> str:
        """Return the result as a sentence."""
        at = self.progress
        cost = f"{plural(at.requests, 'request')}, {size(at.bytes)}, {at.seconds:.1f} s"
        value = f"{at.done:,} of {plural(at.listed, 'file')} stored, {len(self.facts):,} fetched now"
        return f"{at.name}: {value}; {cost}"

    def _line(self) -> str:
        return self.summary

    def _notes(self) -> Iterator[str]:
        for path, reason in self.failures.items():
            yield f"failed: {reason}" if path in reason else f"failed: {path}: {reason}"
        if self.failures:
            yield "Harvest it again to try these again."


@dataclass(frozen=True, slots=True, repr=False)
class HarvestEstimate(ReprMixin):
    """The cost of a harvest."""

    crawls: int
    files: int
    """Files to harvest; where the manifest of a crawl is not stored, the usual number."""
    requests: int
    bytes: int
    seconds: float

    @property
    def summary(self) -> str:
        """The estimate on one line."""
        return f"{plural(self.crawls, 'crawl')}, {plural(self.files, 'file')}: {format_cost(self)}"

    def _line(self) -> str:
        return self.summary


def estimate_harvest(
    crawls: Sequence[str],
    subsets: Collection[str],
    *,
    table: Dataset,
    store: Store,
    cost: Cost,
    refresh: bool = False,
    pages: bool = False,
) -> HarvestEstimate:
    """Estimate the cost of a harvest without requests; see ``harvest`` for the arguments."""
    files = requests = 0
    known = listed(store, table)
    for crawl in crawls:
        stored = set() if refresh or pages else set(stored_paths(store, table, crawl))
        if crawl in known:
            requested = (file for file in known[crawl] if table != COMMON_CRAWL or file.subset in subsets)
            count = sum(file.path not in stored for file in requested)
        else:
            count = FILES_OF_A_SUBSET * len(subsets)
        files += count
        requests += count + (refresh or crawl not in known)
    received = files * (FOOTER_WITH_PAGES if pages else FOOTER)
    return HarvestEstimate(len(crawls), files, requests, received, cost.seconds(requests, received, 1))


def harvest(  # noqa: PLR0913 - each is named
    crawl: str,
    subsets: Iterable[str],
    *,
    table: Dataset = COMMON_CRAWL,
    store: Store,
    source: PoliteSource,
    refresh: bool = False,
    pages: bool = False,
    only: Collection[str] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
) -> Harvested:
    """Fetch the footers of a crawl's index files that are not stored yet.

    Args:
        crawl: its name.
        subsets: of the files, for Common Crawl's index.
        table: the dataset; the store has the list of files of other datasets.
        store: receives the results in batches, and the reasons of failures.
        source: where the files are.
        refresh: fetch all footers and the manifest again; files that are no longer listed are removed.
        pages: fetch page indexes too.
        only: paths to fetch, stored or not; with ``pages``, only what stored ones lack.
        report: called often with the progress.
        notify: called before with the cost of page indexes.

    Raises:
        SourceError: if the source failed; what was fetched before is stored.
        StoreLocked: if another process harvests this crawl.
    """
    chosen = set(subsets)
    with store.harvesting(crawl):
        if table == COMMON_CRAWL:
            files = fetch_manifest(crawl, store, source, refresh=refresh)
        else:
            files = listed(store, table).get(crawl, [])
        requested = [file for file in files if table != COMMON_CRAWL or file.subset in chosen]
        requested.sort(key=lambda file: file.subset != "warc")  # manifests list the pages last
        if only is not None:
            if not files:  # the list of a table that nobody else has may be lost
                files = [file for path in sorted(only) if (file := table.file(path)) and file.crawl == crawl]
            requested = [file for file in files if file.path in only]
        else:
            note_requested(store, requested)
        there = set(stored_paths(store, table, crawl))
        names = {file.path for file in files}
        for kind in ("files", "failures"):
            removed = set(stored_paths(store, table, crawl, kind=kind)) - names
            store.delete(kind, removed if only is None else removed & {*only})
        without_pages = _without_pages(store, table, crawl, there if only is None else there & {*only}) if pages else {}
        again = refresh or (only is not None and not pages)
        missing = [file for file in requested if again or file.path not in there or file.path in without_pages]
        outcome = Harvested(Progress(crawl, len(requested), len(requested) - len(missing)))
        tails = Tails(store, table, sorted(there), pages=pages)
        taker = Taker(source, tails, {} if refresh else without_pages, table, pages=pages)
        if pages and missing:
            needed = f"{plural(len(missing), 'request')} and {size(sum(tails.length(file.subset) for file in missing))}"
            notify(f"{crawl}: about {needed}, for the page indexes above all")
        others = there - {file.path for file in missing} if missing else ()
        seen = Duplicates((path, known.data) for path in others if (known := whole(store, path)))
        run = _Run(outcome, store, source, requested, missing, seen, report)
        try:
            run.take(taker, missing, source.connections)
            run.take_doubtful(taker, table)
        finally:
            run.batch.commit()
    return outcome


class _Run:
    """A running harvest of a crawl."""

    def __init__(
        self,
        outcome: Harvested,
        store: Store,
        source: PoliteSource,
        requested: Iterable[IndexFile],
        missing: Sequence[IndexFile],
        seen: Duplicates,
        report: Callable[[Progress], None],
    ) -> None:
        self.batch = _Batch(store)
        self._outcome = outcome
        self._store = store
        self._source = source
        self._requested = {file.path for file in requested}
        self._settled = self._requested - {file.path for file in missing}
        self._seen = seen
        self._put_off: set[str] = set()
        self._exchanges: dict[str, Exchange] = {}
        self._before = source.requests, source.bytes
        self._started = time.monotonic()
        self._report = report
        report(outcome.progress)

    def take(self, taker: Taker, missing: Iterable[IndexFile], workers: int) -> None:
        """Fetch files; those with the footer or page indexes of another are left to ``take_doubtful``."""
        with closing(_in_parallel(taker.take, missing, workers)) as results:
            for file, result in results:
                if isinstance(result, Taken) and result.exchange:
                    self._exchanges[file.path] = result.exchange
                if isinstance(result, Taken) and self._seen.add(file.path, result.parts):
                    self._put_off.add(file.path)
                else:
                    self._note(file, result)

    def take_doubtful(self, taker: Taker, table: Dataset) -> None:
        """Fetch files again, each on a new connection, whose responses may belong to other requests.

        These have the footer or page indexes of another file, which is an error if it remains so, or their connection
        received
        more than was requested.
        """
        results: dict[str, tuple[IndexFile, Taken | CatalogueError]] = {}
        while doubtful := self._doubtful() - results.keys():
            files = [file for path in sorted(doubtful) if (file := table.file(path))]
            with closing(_in_parallel(taker.take_apart, files, 1)) as decoded:
                for file, result in decoded:
                    results[file.path] = file, result
                    self._seen.add(file.path, result.parts if isinstance(result, Taken) else ())
        self.batch.commit()
        for path, (file, result) in results.items():
            if others := self._seen.others(path):
                message = (
                    f"{path} has the same footer or page index as {others[0]}, also on a connection of its own; one "
                    "may have been served for the other, so neither is stored"
                )
            error = BadFooter(message) if others else None
            if error or not isinstance(result, Taken):
                self._store.delete("files", [path])
            self._note(file, error or result)

    def _doubtful(self) -> set[str]:
        out_of_step = {path for path, exchange in self._exchanges.items() if exchange.doubtful}
        return self._seen.paths() | self._put_off | out_of_step

    def _note(self, file: IndexFile, result: Taken | CatalogueError) -> None:
        outcome, at = self._outcome, self._outcome.progress
        outcome.facts.pop(file.path, None)
        _note(outcome, self.batch, file, result)
        if isinstance(result, Taken):
            self._settled.add(file.path)
        else:
            self._settled.discard(file.path)
        at.done = len(self._settled & self._requested)  # not those of other subsets
        at.requests, at.bytes = self._source.requests - self._before[0], self._source.bytes - self._before[1]
        at.seconds = time.monotonic() - self._started
        self._report(at)


def _without_pages(store: Store, table: Dataset, crawl: str, paths: Iterable[str]) -> dict[str, StoredFile]:
    """Return the stored files that have page indexes which are not stored."""
    keys = store.keys("indexes", "" if crawl == table.name else f"crawl={crawl}/")
    known = {of[0] for key in keys if (of := row_group_of(key))}
    found = {}
    for path in paths:
        value = whole(store, path)
        if value is None:
            continue
        footer = decode_footer(value.data, value.size)
        requested = {group.ordinal for group in footer.row_groups if index_ranges([group], table.key)}
        there = store.indexes(path, requested, value) if path in known else {}
        if any(not there.get(n) or len(there[n].offset_indexes) < len(footer.columns) for n in requested):
            found[path] = value
    return found


class _Batch:
    """Collect what is stored in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: list[tuple[str, StoredFile]] = []
        self._failures: list[tuple[str, StoredFile]] = []
        self._indexes: list[tuple[str, dict[int, Indexes], StoredFile]] = []
        self._bytes = 0
        self._since = time.monotonic()

    def add(self, path: str, value: StoredFile, indexes: dict[int, Indexes]) -> None:
        (self._failures if value.note else self._files).append((path, value))
        if indexes:
            self._indexes.append((path, indexes, value))
        self._bytes += len(value.data)
        full = len(self._files) >= _BATCH_FILES or self._bytes >= _BATCH_BYTES
        if full or time.monotonic() - self._since > _BATCH_SECONDS:
            self.commit()

    def commit(self) -> None:
        files, self._files = self._files, []
        failures, self._failures = self._failures, []
        indexes, self._indexes = self._indexes, []
        self._bytes, self._since = 0, time.monotonic()
        if files:
            self._store.put("files", files)
        if failures:
            self._store.put("failures", failures)
        for path, found, version in indexes:
            self._store.add_indexes(path, found, version)


def _note(outcome: Harvested, batch: _Batch, file: IndexFile, result: Taken | CatalogueError) -> None:
    if isinstance(result, Taken):
        if result.facts:
            outcome.facts[file.path] = result.facts
        batch.add(file.path, result.stored, result.indexes)
        return
    if isinstance(result, Blocked | SourceUnavailable):
        raise result
    outcome.failures[file.path] = str(result)
    outcome.progress.failed += 1
    now = datetime.now(UTC).isoformat(timespec="seconds")
    batch.add(file.path, StoredFile(b"", 0, None, None, "", now, note=f"{type(result).__name__}: {result}"), {})
    if not outcome.facts and len(outcome.failures) >= _HOPELESS:
        message = f"the first {_HOPELESS} files all failed, the last with: {result}"
        raise SourceUnavailable(message) from result


def _in_parallel(
    work: Callable[[IndexFile], Taken], items: Iterable[IndexFile], workers: int
) -> Generator[tuple[IndexFile, Taken | CatalogueError], None, None]:
    """Yield results as they complete, with few items under way."""
    executor = ThreadPoolExecutor(workers, thread_name_prefix="harvest")
    try:
        for item, future in map_as_completed(executor, work, items, limit=2 * workers):
            try:
                yield item, future.result()
            except (SourceError, FormatError) as error:
                yield item, error
    finally:
        # Not waited for: whoever broke this off closes the source next, which ends what is under way.
        executor.shutdown(wait=False, cancel_futures=True)
