"""Manifest → the footers that are missing → the store.

One request a file in the common case: its tail, by a suffix range whose length is learned from the footers before it.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from threading import Lock

from catalogue.crawl import IndexFile
from catalogue.display import Displayed
from catalogue.errors import BadFooter, Blocked, CatalogueError, FormatError, GivenUp, SourceError, StoreDamaged
from catalogue.examine import Examiner
from catalogue.facts import FileFacts
from catalogue.footer import TRAILER, Footer, RowGroup, decode_footer, footer_length
from catalogue.listing import held, held_paths, listed, note_requested, take_manifest
from catalogue.pages import Indexes, cut_indexes
from catalogue.plan import Cost
from catalogue.progress import Progress
from catalogue.ranges import ByteRange, Pin
from catalogue.source import PoliteSource, get_tail
from catalogue.store import Held, Store, row_group_of
from catalogue.table import INDEX, Table
from catalogue.wording import plural, size

FIRST_TAIL = 128 << 10
"""Bytes of the first tails of a crawl: more than the footer of nearly every index file so far."""
FIRST_TAIL_WITH_PAGES = 1 << 20
"""The same with page indexes, which lie before the footer: of 11 row groups with 30 columns they have about 0.9 MB."""

FILES_OF_A_SUBSET = 300
"""Index files of most crawls' subsets."""
FOOTER, FOOTER_WITH_PAGES = 85_000, 1_000_000
"""Bytes of a footer of most crawls, and of one with page indexes."""

_BATCH_FILES, _BATCH_BYTES, _BATCH_SECONDS = 200, 8 << 20, 5.0
_HOPELESS = 25
"""Files that fail one after another, before any succeeded, after which the rest is not tried."""


@dataclass(slots=True, repr=False)
class Harvested(Displayed):
    """What the harvest of a crawl came to."""

    progress: Progress
    facts: dict[str, FileFacts] = field(default_factory=dict)
    """Of the files that were taken, by path."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by path."""

    @property
    def told(self) -> str:
        """What it came to, in a sentence."""
        at = self.progress
        cost = f"{plural(at.requests, 'request')}, {size(at.bytes)}, {at.seconds:.1f} s"
        held = f"{at.done:,} of {plural(at.listed, 'file')} held, {len(self.facts):,} of them taken now"
        return f"{at.name}: {held}; {cost}"

    def _line(self) -> str:
        return self.told

    def _notes(self) -> Iterator[str]:
        for path, reason in self.failures.items():
            yield f"failed: {reason}" if path in reason else f"failed: {path}: {reason}"
        if self.failures:
            yield "Harvest it again to try these again."


@dataclass(frozen=True, slots=True, repr=False)
class HarvestEstimate(Displayed):
    """What a harvest will take."""

    crawls: int
    files: int
    """Files to harvest; where the manifest of a crawl is not stored, the usual number."""
    requests: int
    bytes: int
    seconds: float

    @property
    def summary(self) -> str:
        """The estimate on one line."""
        cost = f"{plural(self.requests, 'request')}, {size(self.bytes)}, about {self.seconds:.0f} s"
        return f"{plural(self.crawls, 'crawl')}, {plural(self.files, 'file')}: {cost}"

    def _line(self) -> str:
        return self.summary


def estimate_harvest(
    crawls: Sequence[str],
    subsets: Collection[str],
    *,
    table: Table,
    store: Store,
    cost: Cost,
    refresh: bool = False,
    pages: bool = False,
) -> HarvestEstimate:
    """Estimate what harvesting crawls takes, without a request; see ``harvest`` for the arguments."""
    files = requests = 0
    known = listed(store, table)
    for crawl in crawls:
        stored = set() if refresh or pages else set(held_paths(store, table, crawl))
        if crawl in known:
            wanted = (file for file in known[crawl] if table != INDEX or file.subset in subsets)
            count = sum(file.path not in stored for file in wanted)
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
    table: Table = INDEX,
    store: Store,
    source: PoliteSource,
    examiner: Examiner,
    refresh: bool = False,
    pages: bool = False,
    only: Collection[str] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
) -> Harvested:
    """Take the footers of a crawl's index files that are not held yet.

    Args:
        crawl: its name.
        subsets: of the files to take, of the index; of another table all are.
        table: they belong to. Of another than Common Crawl's index the store holds the list of files.
        store: takes what is found, a transaction a batch; what failed is noted there with its reason.
        source: where the files are.
        examiner: looks into the footers.
        refresh: take every footer again, and the manifest too; what that no longer lists is forgotten.
        pages: take the page indexes too, of the keys, and where the pages of every column lie.
        only: paths of files to take, held or not, and no others; with ``pages``, of those held only what they lack.
        report: told how far it is, often.
        notify: told beforehand what page indexes will cost.

    Raises:
        SourceError: if the source failed as a whole; what was taken until then is in the store.
        StoreLocked: if another process harvests this crawl.
    """
    chosen = set(subsets)
    with store.harvesting(crawl):
        if table == INDEX:
            files = take_manifest(crawl, store, source, again=refresh)
        else:
            files = listed(store, table).get(crawl, [])
        wanted = [file for file in files if table != INDEX or file.subset in chosen]
        wanted.sort(key=lambda file: file.subset != "warc")  # manifests list the pages last
        if only is not None:
            if not files:  # the list of a table that nobody else has may be lost
                files = [file for path in sorted(only) if (file := table.file(path)) and file.crawl == crawl]
            wanted = [file for file in files if file.path in only]
        else:
            note_requested(store, wanted)
        there = set(held_paths(store, table, crawl))
        names = {file.path for file in files}
        for kind in ("files", "failures"):
            gone = set(held_paths(store, table, crawl, kind=kind)) - names
            store.delete(kind, gone if only is None else gone & {*only})
        lacking = _without_pages(store, table, crawl, there if only is None else there & {*only}) if pages else {}
        again = refresh or (only is not None and not pages)
        missing = [file for file in wanted if again or file.path not in there or file.path in lacking]
        outcome = Harvested(Progress(crawl, len(wanted), len(wanted) - len(missing)))
        tails = _Tails(store, table, sorted(there), pages=pages)
        taker = _Taker(source, examiner, tails, {} if refresh else lacking, table, pages=pages)
        if pages and missing:
            needed = f"{plural(len(missing), 'request')} and {size(sum(tails.length(file.subset) for file in missing))}"
            notify(f"{crawl}: about {needed}, for the page indexes above all")
        batch = _Batch(store)
        before, started = (source.requests, source.bytes), time.monotonic()
        report(outcome.progress)
        try:
            with closing(_in_parallel(taker.take, missing, source.connections)) as results:
                for file, result in results:
                    _note(outcome, batch, file, result)
                    outcome.progress.requests = source.requests - before[0]
                    outcome.progress.bytes = source.bytes - before[1]
                    outcome.progress.seconds = time.monotonic() - started
                    report(outcome.progress)
        finally:
            batch.commit()
    return outcome


def _without_pages(store: Store, table: Table, crawl: str, paths: Iterable[str]) -> dict[str, Held]:
    """The files held whose page indexes are not, though they have some."""
    keys = store.keys("indexes", "" if crawl == table.name else f"crawl={crawl}/")
    known = {of[0] for key in keys if (of := row_group_of(key))}
    found = {}
    for path in paths:
        value = _whole(store, path)
        if value is None:
            continue
        footer = decode_footer(value.data, value.size)
        wanted = {group.ordinal for group in footer.row_groups if _index_ranges([group], table.key)}
        there = store.indexes(path, wanted, value) if path in known else {}
        if any(not there.get(n) or len(there[n].offset_indexes) < len(footer.columns) for n in wanted):
            found[path] = value
    return found


def _whole(store: Store, path: str) -> Held | None:
    """A file's value; none that is damaged, from which nothing is learned."""
    with suppress(StoreDamaged):
        return store.get("files", path)
    return None


def _index_ranges(groups: Iterable[RowGroup], key: str) -> list[ByteRange]:
    """Where the page indexes lie that are worth keeping."""
    groups = list(groups)
    keys = (group.chunks[key].column_index for group in groups if key in group.chunks)
    located = (chunk.offset_index for group in groups for chunk in group.chunks.values())
    return sorted(at for at in (*keys, *located) if at)


@dataclass(frozen=True, slots=True)
class _Taken:
    held: Held
    facts: FileFacts | None
    """None of a footer that was held before."""
    indexes: dict[int, Indexes] = field(default_factory=dict)


class _Taker:
    """Takes one file's footer, and its page indexes if they are wanted."""

    def __init__(
        self,
        source: PoliteSource,
        examiner: Examiner,
        tails: "_Tails",
        known: Mapping[str, Held],
        table: Table,
        *,
        pages: bool,
    ) -> None:
        self._source = source
        self._examiner = examiner
        self._tails = tails
        self._known = known
        self._table = table
        self._pages = pages

    def take(self, file: IndexFile) -> _Taken:
        if known := self._known.get(file.path):
            pin = Pin(known.size, known.etag if known.source == self._source.url else None)
            return _Taken(known, None, self._indexes(file, decode_footer(known.data, known.size), pin, b""))
        tail = get_tail(self._source, file.path, self._tails.length(file.subset))
        try:
            length = footer_length(tail.body)
            size = tail.total_size
            if length + TRAILER + 4 > size:
                message = f"the footer claims {length:,} of the file's {size:,} bytes"
                raise BadFooter(message)
            body = tail.body
            if length + TRAILER > len(body):
                rest = ByteRange(size - TRAILER - length, size - len(body))
                body = self._source.get(file.path, rest, pin=Pin(size, tail.etag)).body + body
            footer = body[-TRAILER - length : -TRAILER]
            facts = self._examiner.examine(footer, size)
            if self._table != INDEX and self._table.key not in facts.column_names:
                message = f"has no column {self._table.key} to find rows by, but {', '.join(facts.column_names)}"
                raise BadFooter(message)
        except FormatError as error:
            message = f"{file.path}: {error}"
            raise type(error)(message) from error
        taken = held(tail, footer, self._source)
        if not self._pages:
            self._tails.learn(file.subset, length)
            return _Taken(taken, facts)
        decoded = decode_footer(footer, size)
        ranges = _index_ranges(decoded.row_groups, self._table.key)
        self._tails.learn(file.subset, size - TRAILER - ranges[0].start if ranges else length)
        return _Taken(taken, facts, self._indexes(file, decoded, Pin(size, tail.etag), body))

    def _indexes(self, file: IndexFile, footer: Footer, pin: Pin, body: bytes) -> dict[int, Indexes]:
        """The page indexes of a file, of which the last bytes, ``body``, are here."""
        ranges = _index_ranges(footer.row_groups, self._table.key)
        if not ranges:
            return {}
        start, end = ranges[0].start, max(each.end for each in ranges)
        first = pin.size - len(body)
        if start < first:
            rest = ByteRange(start, min(first, end))
            before = self._source.get(file.path, rest, pin=pin).body
            first, body = start, before + body if rest.end == first else before
        return cut_indexes(footer, self._table.key, body, first)


class _Tails:
    """How long a tail to ask for: enough for the largest footer of the crawl and subset so far, and a little more."""

    def __init__(self, store: Store, table: Table, paths: Sequence[str], *, pages: bool) -> None:
        self._lock = Lock()
        self._first = FIRST_TAIL_WITH_PAGES if pages else FIRST_TAIL
        self._largest: dict[str, int] = {}
        for path in paths[::10]:
            known, file = _whole(store, path), table.file(path)
            if known and file:
                footer = decode_footer(known.data, known.size) if pages else None
                ranges = _index_ranges(footer.row_groups, table.key) if footer else []
                self.learn(file.subset, known.size - TRAILER - ranges[0].start if ranges else len(known.data))

    def length(self, subset: str) -> int:
        with self._lock:
            largest = self._largest.get(subset)
        return self._first if largest is None else largest * 5 // 4 + 4096

    def learn(self, subset: str, footer_length: int) -> None:
        with self._lock:
            self._largest[subset] = max(footer_length, self._largest.get(subset, 0))


class _Batch:
    """Collects what goes into the store in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: list[tuple[str, Held]] = []
        self._failures: list[tuple[str, Held]] = []
        self._indexes: list[tuple[str, dict[int, Indexes], Held]] = []
        self._bytes = 0
        self._since = time.monotonic()

    def add(self, path: str, held: Held, indexes: dict[int, Indexes]) -> None:
        (self._failures if held.note else self._files).append((path, held))
        if indexes:
            self._indexes.append((path, indexes, held))
        self._bytes += len(held.data)
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


def _note(outcome: Harvested, batch: _Batch, file: IndexFile, result: "_Taken | CatalogueError") -> None:
    if isinstance(result, _Taken):
        if result.facts:
            outcome.facts[file.path] = result.facts
        outcome.progress.done += 1
        batch.add(file.path, result.held, result.indexes)
        return
    if isinstance(result, Blocked | GivenUp):
        raise result
    outcome.failures[file.path] = str(result)
    outcome.progress.failed += 1
    now = datetime.now(UTC).isoformat(timespec="seconds")
    batch.add(file.path, Held(b"", 0, None, None, "", now, note=f"{type(result).__name__}: {result}"), {})
    if not outcome.facts and len(outcome.failures) >= _HOPELESS:
        message = f"the first {_HOPELESS} files all failed, the last with: {result}"
        raise GivenUp(message) from result


def _in_parallel(
    work: Callable[[IndexFile], _Taken], items: Iterable[IndexFile], workers: int
) -> Generator[tuple[IndexFile, _Taken | CatalogueError], None, None]:
    """Results as they come, with no more than a few items under way, however many there are."""
    executor = ThreadPoolExecutor(workers, thread_name_prefix="harvest")
    waiting = iter(items)
    under_way: dict[Future[_Taken], IndexFile] = {}
    try:
        while True:
            for item in islice(waiting, 2 * workers - len(under_way)):
                under_way[executor.submit(work, item)] = item
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in [each for each in under_way if each in done]:  # in the order of submission
                item = under_way.pop(future)
                try:
                    yield item, future.result()
                except (SourceError, FormatError) as error:
                    yield item, error
    finally:
        # Not waited for: whoever broke this off closes the source next, which ends what is under way.
        executor.shutdown(wait=False, cancel_futures=True)
