"""Manifest → the footers that are missing → the store.

One request a file in the common case: its tail, by a suffix range whose length is learned from the footers before it.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from threading import Lock

from catalogue.crawl import (
    COLLINFO,
    KEY_COLUMN,
    Crawl,
    IndexFile,
    has_table,
    manifest_path,
    parse_collinfo,
    parse_manifest,
)
from catalogue.errors import (
    BadFooter,
    Blocked,
    CatalogueError,
    FormatError,
    GivenUp,
    Missing,
    SourceError,
    UnknownCrawl,
)
from catalogue.examine import Examiner, FileFacts
from catalogue.footer import TRAILER, Footer, RowGroup, decode_footer, footer_length
from catalogue.pages import Indexes, cut_indexes
from catalogue.ranges import ByteRange, Pin
from catalogue.source import PoliteSource, Response, get_tail
from catalogue.store import Held, Store

FIRST_TAIL = 128 << 10
"""Bytes of the first tails of a crawl: more than the footer of nearly every index file so far."""
FIRST_TAIL_WITH_PAGES = 1 << 20
"""The same with page indexes, which lie before the footer: of 11 row groups with 30 columns they have about 0.9 MB."""
CRAWL_LIST_AGE = timedelta(days=1)
"""Common Crawl asks for its list of crawls to be kept, as it changes once a month."""

_BATCH_FILES, _BATCH_BYTES, _BATCH_SECONDS = 200, 8 << 20, 5.0
_HOPELESS = 25
"""Files that fail one after another, before any succeeded, after which the rest is not tried."""


@dataclass(slots=True)
class Progress:
    """How far the harvest of a crawl is."""

    crawl: str
    listed: int
    """Files that the manifest names, of the subsets asked for."""
    done: int
    """Files held, those from before included."""
    failed: int = 0
    bytes: int = 0
    """Received for this crawl so far."""
    requests: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Harvested:
    """What the harvest of a crawl came to."""

    progress: Progress
    facts: dict[str, FileFacts] = field(default_factory=dict)
    """Of the files that were taken, by path."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by path."""


def take_crawl_list(store: Store, source: PoliteSource, *, max_age: timedelta = CRAWL_LIST_AGE) -> list[Crawl]:
    """The crawls there are, newest first, asked of the source only if the list held is older than ``max_age``."""
    held = store.get("documents", COLLINFO)
    if held and held.source == source.url and datetime.now(UTC) - datetime.fromisoformat(held.taken) < max_age:
        return parse_collinfo(held.data)
    answer = source.get(COLLINFO)
    crawls = parse_collinfo(answer.body)
    store.put("documents", [(COLLINFO, _held(answer, answer.body, source))])
    return crawls


def take_manifest(crawl: str, store: Store, source: PoliteSource, *, again: bool = False) -> list[IndexFile]:
    """The index files of a crawl; asked of the source once, or ``again``.

    Raises:
        UnknownCrawl: if the source has no manifest for it.
    """
    path = manifest_path(crawl)
    held = store.get("documents", path)
    if held and not again:
        return parse_manifest(crawl, held.data)
    if not has_table(crawl):
        message = f"{crawl} has no columnar index; the first crawl that has one is CC-MAIN-2013-20"
        raise UnknownCrawl(message)
    try:
        answer = source.get(path)
    except Missing as error:
        message = f"{source.url} has no columnar index of {crawl}; see: catalogue crawls"
        raise UnknownCrawl(message) from error
    files = parse_manifest(crawl, answer.body)
    store.put("documents", [(path, _held(answer, answer.body, source))])
    return files


def harvest(  # noqa: PLR0913 - each is named
    crawl: str,
    subsets: Iterable[str],
    *,
    store: Store,
    source: PoliteSource,
    examiner: Examiner,
    refresh: bool = False,
    pages: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
) -> Harvested:
    """Take the footers of a crawl's index files that are not held yet.

    Args:
        crawl: its name.
        subsets: of the files to take.
        store: takes what is found, a transaction a batch; what failed is noted there with its reason.
        source: where the files are.
        examiner: looks into the footers.
        refresh: take every footer again, and the manifest too; what that no longer lists is forgotten.
        pages: take the page indexes too, of the keys, and where the pages of every column lie.
        report: told how far it is, often.
        notify: told beforehand what page indexes will cost.

    Raises:
        SourceError: if the source failed as a whole; what was taken until then is in the store.
        StoreLocked: if another process harvests this crawl.
    """
    with store.harvesting(crawl):
        listed = take_manifest(crawl, store, source, again=refresh)
        wanted = [file for file in listed if file.subset in set(subsets)]
        held = set(store.keys("files", f"crawl={crawl}/"))
        names = {file.path for file in listed}
        for table in ("files", "failures"):
            if gone := set(store.keys(table, f"crawl={crawl}/")) - names:
                store.delete(table, gone)
        lacking = _without_pages(store, crawl, held) if pages else {}
        missing = [file for file in wanted if refresh or file.path not in held or file.path in lacking]
        outcome = Harvested(Progress(crawl, len(wanted), len(wanted) - len(missing)))
        tails = _Tails(store, crawl, pages=pages)
        taker = _Taker(source, examiner, tails, {} if refresh else lacking, pages=pages)
        if pages and missing:
            size = sum(tails.length(file.subset) for file in missing)
            notify(f"{crawl}: about {len(missing):,} requests and {size / 1e6:,.0f} MB, for the page indexes above all")
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


def _without_pages(store: Store, crawl: str, held: Iterable[str]) -> dict[str, Held]:
    """The files held whose page indexes are not, though they have some."""
    known = {key.rpartition("#")[0] for key in store.keys("indexes", f"crawl={crawl}/")}
    found = {}
    for path in held:
        value = store.get("files", path)
        if value is None:
            continue
        footer = decode_footer(value.data, value.size)
        wanted = {group.ordinal for group in footer.row_groups if _index_ranges([group])}
        there = store.indexes(path, wanted, value) if path in known else {}
        if any(not there.get(n) or len(there[n].offset_indexes) < len(footer.columns) for n in wanted):
            found[path] = value
    return found


def _index_ranges(groups: Iterable[RowGroup]) -> list[ByteRange]:
    """Where the page indexes lie that are worth keeping."""
    groups = list(groups)
    keys = (group.chunks[KEY_COLUMN].column_index for group in groups if KEY_COLUMN in group.chunks)
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
        self, source: PoliteSource, examiner: Examiner, tails: "_Tails", known: Mapping[str, Held], *, pages: bool
    ) -> None:
        self._source = source
        self._examiner = examiner
        self._tails = tails
        self._known = known
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
        except FormatError as error:
            message = f"{file.path}: {error}"
            raise type(error)(message) from error
        held = _held(tail, footer, self._source)
        if not self._pages:
            self._tails.learn(file.subset, length)
            return _Taken(held, facts)
        decoded = decode_footer(footer, size)
        ranges = _index_ranges(decoded.row_groups)
        self._tails.learn(file.subset, size - TRAILER - ranges[0].start if ranges else length)
        return _Taken(held, facts, self._indexes(file, decoded, Pin(size, tail.etag), body))

    def _indexes(self, file: IndexFile, footer: Footer, pin: Pin, body: bytes) -> dict[int, Indexes]:
        """The page indexes of a file, of which the last bytes, ``body``, are here."""
        ranges = _index_ranges(footer.row_groups)
        if not ranges:
            return {}
        start, end = ranges[0].start, max(each.end for each in ranges)
        first = pin.size - len(body)
        if start < first:
            rest = ByteRange(start, min(first, end))
            before = self._source.get(file.path, rest, pin=pin).body
            first, body = start, before + body if rest.end == first else before
        return cut_indexes(footer, KEY_COLUMN, body, first)


class _Tails:
    """How long a tail to ask for: enough for the largest footer of the crawl and subset so far, and a little more."""

    def __init__(self, store: Store, crawl: str, *, pages: bool) -> None:
        self._lock = Lock()
        self._first = FIRST_TAIL_WITH_PAGES if pages else FIRST_TAIL
        self._largest: dict[str, int] = {}
        for path in islice(store.keys("files", f"crawl={crawl}/"), 0, None, 10):
            held = store.get("files", path)
            if held:
                ranges = _index_ranges(decode_footer(held.data, held.size).row_groups) if pages else []
                length = held.size - TRAILER - ranges[0].start if ranges else len(held.data)
                self.learn(path.partition("/subset=")[2].partition("/")[0], length)

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
            for future in done:
                item = under_way.pop(future)
                try:
                    yield item, future.result()
                except (SourceError, FormatError) as error:
                    yield item, error
    finally:
        # Not waited for: whoever broke this off closes the source next, which ends what is under way.
        executor.shutdown(wait=False, cancel_futures=True)


def _held(answer: Response, data: bytes, source: PoliteSource) -> Held:
    return Held(
        data=data,
        size=answer.total_size,
        etag=answer.etag,
        last_modified=answer.last_modified,
        source=source.url,
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
    )
