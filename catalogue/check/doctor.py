"""Examine this installation and the source."""

import os
import platform
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import ClassVar

from catalogue.commoncrawl.crawls import (
    COLLINFO,
    check_columnar,
    check_crawl_name,
    has_columnar_index,
    newest_first,
    parse_collinfo,
    parse_crawl_words,
    suggest_crawl,
)
from catalogue.commoncrawl.datasets import COMMON_CRAWL, IndexFile, manifest_path, parse_manifest
from catalogue.errors import (
    CatalogueError,
    FormatError,
    NotFound,
    QueryError,
    RangeIgnored,
    StoreError,
    UnknownCrawl,
    Unreachable,
    WrongRange,
)
from catalogue.formatting import ReprMixin, duration, plural, size
from catalogue.parquet.footer import USUAL_TAIL, decode_footer, footer_length, has_page_index, key_bounds
from catalogue.parquet.model import SIGNED, TRAILER, Footer, RowGroup
from catalogue.parquet.page_headers import page_header
from catalogue.plan.requests import plan_requests
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.same_name import OTHER, WAY_OUT
from catalogue.session import Session
from catalogue.settings import COLLINFO_SOURCE, Settings, config_file, install_command, package_version
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response, is_strong
from catalogue.source.open import credentials_from, environment_settings
from catalogue.source.retry import PoliteSource, explicit_tail
from catalogue.store.database import Store
from catalogue.store.locks import remote_kind
from catalogue.store.stored_lists import manifests
from catalogue.surt.key import url_surtkeys

_DUCKDB = "duckdb"
LIBRARIES = ("pyarrow", "duckdb", "pandas", "numpy", "click", "filelock", "sqlitedict", "warcio")
EXTRAS = {
    "s3": (("s3fs",), "s3:// as a source"),
    "dask": (("dask", "distributed"), "--scheduler, and to_dask()"),
    "iceberg": (("pyiceberg",), "export iceberg"),
    "polars": (("polars",), "to_polars(), and scan()"),
    "mcp": (("mcp",), "catalogue mcp"),
    "shell": (("duckdb-cli",), "the shell that catalogue sql opens"),
    "lake": (("duckdb-extension-ducklake", "duckdb-extension-httpfs"), "captures in SQL, without downloads by DuckDB"),
    "serve": (("fastapi", "uvicorn", "jinja2", "prometheus-client"), "catalogue serve"),
    "notebook": (("jupyterlab", "ipykernel", "matplotlib"), "the notebooks"),
}
_MAX_WAIT = 30.0
"""Seconds that a request may wait for the rate limit."""
_LOW_SPACE = 1_000_000_000
_CLOCK_S3, _CLOCK = 900.0, 2.0
"""Seconds of difference between clocks that S3 refuses, and that are not worth reporting."""
_PROBED_KEYS = 256 << 10
_PAGE_ROWS = 20_000
"""Most rows of a page of parquet-mr."""
_COMPILED = dict[str, object](footers=decode_footer, pages=page_header, plans=plan_requests, keys=url_surtkeys)
"""A function of each part that wheels have compiled."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One line of a diagnosis: subject, what was found, and what it means for cost or what to do.

    Nothing in it is secret, but it may contain text of servers and files.
    """

    about: str
    seen: str
    means: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(ReprMixin):
    """Observations of this installation (``here``) and the ``source``, and what they cost.

    ``failure`` is why the source could not be examined to the end.
    """

    _max_rows: ClassVar[int] = 60

    here: tuple[Observation, ...]
    source: tuple[Observation, ...]
    requests: int
    bytes: int
    failure: CatalogueError | None

    def _line(self) -> str:
        return f"by {plural(self.requests, 'request')}, {size(self.bytes)}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for each in (*self.source, *self.here):
            yield each.about, f"{each.seen}; {each.means}" if each.means else each.seen

    def _notes(self) -> Iterator[str]:
        if self.failure:
            yield f"The source could not be examined to the end: {self.failure}"


def diagnose(session: Session, crawl: str | None = None) -> Diagnosis:
    if session.dataset_name is not None:
        raise QueryError("doctor examines only Common Crawl's index; leave out --table")
    if crawl is not None and (crawl := ",".join(parse_crawl_words([crawl]))) != "latest":
        check_crawl_name(crawl)
        check_columnar(crawl)
    stored: list[str] = []
    with suppress(StoreError):
        if session.store_path.exists():
            with Store(session.store_path, busy_seconds=1.0) as store:
                stored = newest_first(manifests(store.keys("documents")))
    with ExitStack() as opened:
        opened.enter_context(session.bars(""))

        def source(url: str) -> PoliteSource:
            found = opened.enter_context(closing(session.open_source(url, attempts=1, max_wait=_MAX_WAIT)))
            return found.hosts_of()[0]

        try:
            files = source(session.settings.source)
        except QueryError as error:
            return Diagnosis(tuple(_installation(session, None)), (), 0, 0, error)
        lists = files if session.settings.list_source == session.settings.source else source(COLLINFO_SOURCE)
        here = tuple(_installation(session, files))
        examination, spent = _Examination(lists, files, session.settings), session.spending()
        examination.run(crawl, stored)
        return Diagnosis(here, tuple(examination.observations), *spent(), examination.failure)


class _Examination:
    """Examines a source by eight requests at most, each attempted once."""

    def __init__(self, lists: PoliteSource, files: PoliteSource, settings: Settings) -> None:
        self.observations: list[Observation] = []
        self.failure: CatalogueError | None = None
        self._lists, self._files, self._settings = lists, files, settings
        self._speeds: list[tuple[float, int]] = []
        self._has_manifest = False
        self._folder = files.url.startswith("file:")

    def run(self, crawl: str | None, stored: Sequence[str]) -> None:
        listed = self._examine_list()
        named = crawl if crawl != "latest" else next(iter(listed), None)
        candidates = [named] if named else [] if crawl else [*stored[:1], *listed[:2]][:2]
        cause = self.failure.__cause__ if isinstance(self.failure, Unreachable) else None
        is_refused = isinstance(cause, OSError) and not isinstance(cause, HTTPException)
        if (is_refused and self._lists is self._files) or (self.failure and not candidates):
            return
        try:
            file = self._first_file(candidates)
            tail = self._fetch_tail(file.path)
            self._observe_version(file.path, tail)
            self._examine_file(file, tail)
        except CatalogueError as error:
            if isinstance(error, NotFound) and named and not self._has_manifest:
                raise UnknownCrawl(f"{error}; {suggest_crawl(named, listed)}") from error
            self.failure = error
            if not isinstance(error, RangeIgnored):  # observed already
                self._add("files", str(error), "no more requests were made")
        self._examine_speed()

    def _add(self, about: str, seen: str, means: str = "") -> None:
        self.observations.append(Observation(about, seen, means))

    def _get(self, path: str, requested: RequestedRange = None, pin: FileVersion | None = None) -> Response:
        started = time.perf_counter()
        response = self._files.get(path, requested, pin=pin)
        self._speeds.append((time.perf_counter() - started, len(response.body)))
        return response

    def _examine_list(self) -> list[str]:
        try:
            response = self._lists.get(COLLINFO)
            crawls = [*parse_collinfo(response.body)]
        except CatalogueError as error:
            self.failure = None if isinstance(error, NotFound) else error
            self._add("list of crawls", str(error), "latest, all and ranges of crawls need it; names of crawls do not")
            return []
        self._add("list of crawls", f"{plural(len(crawls), 'crawl')}, the newest {crawls[0]}")
        with suppress(ValueError, TypeError, OverflowError):  # a folder, or a server without a Date
            skew = abs((datetime.now(UTC) - parsedate_to_datetime(response.date or "")).total_seconds())
            means = "S3 refuses requests of a machine with such a wrong clock; set the clock"
            seen = f"differs by {duration(skew)}" if skew > _CLOCK else "as the source's"
            self._add("clock", seen, means if skew > _CLOCK_S3 else "")
        return [crawl for crawl in crawls if has_columnar_index(crawl)]

    def _first_file(self, crawls: Sequence[str]) -> IndexFile:
        last = NotFound("no list of crawls; name a crawl with --crawl")
        for crawl in crawls:
            try:
                files = parse_manifest(crawl, self._get(manifest_path(crawl)).body)
            except NotFound:
                last = NotFound(f"{self._files.url} has no columnar index of {crawl}")
                self._add("manifest", f"none of {crawl}", "a crawl may be listed before its index exists")
                continue
            counts = ", ".join(f"{count:,} {subset}" for subset, count in Counter(f.subset for f in files).items())
            rate = self._files.limiter.rate
            seconds = f", at least {duration(len(files) / rate)}" if rate else ""
            means = f"a harvest of all of them takes {plural(len(files), 'request')}{seconds}"
            self._add("manifest", f"{crawl}: {plural(len(files), 'file')} ({counts})", means)
            self._has_manifest = True
            return next((file for file in files if file.subset == "warc"), files[0])
        raise last

    def _fetch_tail(self, path: str) -> Response:
        answered = True
        try:
            tail = self._get(path, SuffixRange(USUAL_TAIL))
            self._add("suffix ranges", "honoured", "a footer takes one request")
        except (RangeIgnored, WrongRange) as error:
            answered = False
            try:
                tail = explicit_tail(self._files, path, USUAL_TAIL)
            except RangeIgnored:
                means = "index files are too large to be read completely: this source cannot be used"
                self._add("ranges", "ignored: the source offers complete files", means)
                raise
            means = "a footer takes two requests instead of one: 600 for the 300 files of a crawl"
            seen = "ignored: the source offers the complete file" if type(error) is RangeIgnored else f"wrong: {error}"
            self._add("suffix ranges", seen, means)
        if self._files.limiter.state.ignores_suffixes is answered:
            self._files.limiter.note_suffixes(ignored=not answered)
        return tail

    def _observe_version(self, path: str, tail: Response) -> None:
        modified = f", of {tail.last_modified}" if tail.last_modified else ""
        self._add("file", f"{path.rpartition('/')[2]}: {size(tail.total_size)}{modified}")
        if tail.server:
            self._add("server", tail.server)
        strong = is_strong(tail.etag)
        means = "changed files are detected by their size alone, and pages are not cached"
        seen = f"{'strong' if strong else 'weak'}: {tail.etag}" if tail.etag else "none"
        self._add("ETag", seen, "pages are cached, and changed files are detected" if strong else means)

    def _examine_file(self, file: IndexFile, tail: Response) -> None:
        total, pin = tail.total_size, tail.version
        length, body = footer_length(tail.body), tail.body
        if length + TRAILER > len(body):
            body = self._get(file.path, ByteRange(max(0, total - TRAILER - length), total), pin=pin).body
        footer = decode_footer(body[-TRAILER - length : -TRAILER], total)
        self.observations += observe_layout(file.crawl, footer, length)
        keys = [group.chunks["url_surtkey"].range for group in footer.row_groups if "url_surtkey" in group.chunks]
        if not keys:
            return
        end = min(keys[0].end, keys[0].start + _PROBED_KEYS)
        page = self._get(file.path, ByteRange(keys[0].start, end), pin=pin).body
        self._add("ranges", "honoured")
        try:
            seen, means = "yes", ""
            if not page_header(page).has_crc:
                gzipped = "GZIP" in footer.codecs
                seen, means = "none", "gzip has checksums, too" if gzipped else "some flipped bits are not detected"
        except FormatError as error:
            seen, means = str(error), "its row groups cannot be read"
        self._add("page checksums", seen, means)

    def _examine_speed(self) -> None:
        if not self._speeds or self._folder:
            return
        seconds, received = max(self._speeds, key=lambda each: each[1])
        fastest = 1000 * min(self._speeds)[0]
        assumed = f"{1000 * self._settings.latency:,.0f} ms and {size(self._settings.bandwidth)}/s"
        seen = f"{fastest:.0f} ms for the fastest response; {size(received)} in {seconds:.2g} s, measured once"
        self._add("speed", seen, f"plans assume {assumed}: CATALOGUE_LATENCY, CATALOGUE_BANDWIDTH")


def observe_layout(crawl: str, footer: Footer, length: int) -> Iterator[Observation]:
    """Observe writer, bounds, order and page index of a file, and what they mean for a query for one URL."""
    groups = footer.row_groups
    count = len(groups)
    yield Observation("writer", footer.created_by.strip()[:100] or "unknown")
    rows = f"{plural(footer.num_rows, 'row')} in {plural(count, 'row group')}"
    columns = plural(len(footer.columns), "column")
    yield Observation("footer", f"{size(length)}; {rows}, {'+'.join(footer.codecs)}, {columns}")
    if not groups:
        return
    bounds = [key_bounds(group) for group in groups]
    kinds = Counter(kind for _, _, kind in bounds)
    means = "correct, though other readers do not use signed bounds" if kinds[SIGNED] else ""
    if kinds["missing"]:
        means = f"every query reads row groups without bounds; after a harvest, run: catalogue backfill --crawl {crawl}"
    yield Observation("bounds of keys", ", ".join(f"{kind}: {count}" for kind, count in kinds.items()), means)
    known = [(low, high) for low, high, _ in bounds if low is not None and high is not None]
    if len(known) == count and all(before[1] <= after[0] for before, after in pairwise(known)):
        yield Observation("order", "sorted", "one URL is in one row group of a file")
    elif len(known) == count:
        depth = max(sum(low <= at <= high for low, high in known) for at, _ in known)
        means = f"one URL may be in {depth} row groups of a file; the CDX index usually answers with fewer requests"
        yield Observation("order", "zipped: key ranges of row groups overlap", means)
    chunk_bytes, page_bytes = _bytes_per_url(groups)
    if not has_page_index(footer):
        yield Observation("page index", "none", f"one URL reads a row group, {size(chunk_bytes)}")
        return
    cheaper = f"one URL reads about {size(page_bytes)}, where a row group would be {size(chunk_bytes)}"
    yield Observation("page index", "yes", cheaper if page_bytes < chunk_bytes else "")


def _bytes_per_url(groups: Sequence[RowGroup]) -> tuple[int, int]:
    chunk_bytes = page_bytes = 0
    for group in groups:
        for name in CDX_COLUMNS:
            if chunk := group.chunks.get(name):
                chunk_bytes += len(chunk.range)
                indexes = (chunk.column_index if name == COMMON_CRAWL.key else None, chunk.offset_index)
                page_bytes += sum(len(index) for index in indexes if index)
                page_bytes += len(chunk.range) * min(group.num_rows, _PAGE_ROWS) // max(1, group.num_rows)
    return chunk_bytes // len(groups), page_bytes // len(groups)


def _installation(session: Session, source: PoliteSource | None) -> Iterator[Observation]:
    yield Observation("catalogue", f"{package_version()}, Python {platform.python_version()}")
    cores = plural(os.cpu_count() or 1, "core")
    yield Observation("machine", f"{platform.system()} {platform.release()}, {platform.machine()}, {cores}")
    yield Observation("libraries", ", ".join(f"{name} {_version(name) or 'is missing'}" for name in LIBRARIES))
    if other := _version(OTHER):
        yield Observation("same name", f"{OTHER} {other} of spaCy is here, too", f"one breaks the other; {WAY_OUT}")
    compiled = [name for name, function in _COMPILED.items() if not isinstance(function, FunctionType)]
    means = f"the wheels for Linux have {', '.join(_COMPILED)} compiled; a footer is decoded seven times as fast"
    yield Observation("compiled code", ", ".join(compiled) or "none", "" if [*_COMPILED] == compiled else means)
    for name, (needs, purpose) in EXTRAS.items():
        versions = {each: _version(each) for each in needs}
        if all(versions.values()):
            yield Observation("extra", f"{name} ({', '.join(f'{k} {v}' for k, v in versions.items())})")
        else:
            yield Observation("extra missing", f"{name}: {purpose}", f"run: {install_command(name)}")
    yield from _duckdb()
    yield from _files(session)
    yield from _settings(session.settings, source)


def _duckdb() -> Iterator[Observation]:
    found = {name: each for name in (_DUCKDB, *EXTRAS["shell"][0], *EXTRAS["lake"][0]) if (each := _version(name))}
    if len({*found.values()}) > 1:
        needed = " ".join(f"'{name}=={found[_DUCKDB]}'" for name in found)
        seen = ", ".join(f"{name} {each}" for name, each in found.items())
        yield Observation("versions of DuckDB", seen, f"they must be equal; run: pip install {needed}")


def _version(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _files(session: Session) -> Iterator[Observation]:
    data, store, database = (path.absolute() for path in (session.data, session.store_path, session.database_path))
    existing = next(each for each in (data, *data.parents) if each.exists())
    free, kind = shutil.disk_usage(existing).free, remote_kind(existing)
    means = "locks may not work there: use it from one machine at a time" if kind else ""
    if free < _LOW_SPACE:
        means = "little space: the footers of a crawl take 25 MB, the cache takes up to its limit"
    where = f", on a network file system ({kind})" if kind else ""
    yield Observation("data folder", f"{data}{_absent(data)}, {size(free)} free{where}", means)
    if not store.exists():
        yield Observation("store", f"{store}: none yet", "run: catalogue harvest --crawl latest")
        return
    try:
        with Store(store, busy_seconds=1.0) as opened:
            counts = f"{plural(opened.count('files'), 'footer')}, {plural(opened.count('failures'), 'failure')}"
            sizes = f"{size(opened.size())}, of it {size(opened.log_size())} log"
            yield Observation("store", f"{store}: {sizes}; {counts}")
    except CatalogueError as error:
        yield Observation("store", f"cannot be opened: {error}", "queries need it")
    there = f"{database}: {size(database.stat().st_size)}" if database.exists() else ""
    means = "" if there else "the next query builds it from the store, without a request"
    yield Observation("catalogue file", there or "none yet", means)


def _settings(settings: Settings, source: PoliteSource | None) -> Iterator[Observation]:
    if source:
        usual, now = source.limiter.policy.rate, source.limiter.rate
        rate = "any number of" if usual is None else f"at most {usual:g}"
        reduced = bool(now and usual and now < usual)
        current = f", at present {now:g}" if reduced else ""
        means = "the source demanded a lower rate; it rises again by itself" if reduced else ""
        yield Observation("politeness", f"{rate} requests a second{current}; {source.connections} connections", means)
    anonymous = settings.is_anonymous
    means = "with --contact Common Crawl can write to you before it has to block you" if anonymous else ""
    yield Observation("contact", "set" if settings.contact else "none", means)
    yield Observation("config", f"{config_file()}{_absent(config_file())}")
    cache = f"{settings.cache}, {size(settings.cache_size)} at most" if settings.cache_size else "none"
    yield Observation("cache of pages", cache, "" if settings.cache_size else "pages are fetched again for each query")
    yield from (Observation("environment", f"{name}={value}") for name, value in environment_settings().items())
    if settings.source.startswith("s3:"):
        found = credentials_from()
        means = "" if found else "S3 needs credentials; set them up (aws configure), or use the default source"
        yield Observation("credentials", f"found, by {found}" if found else "none found", means)


def _absent(path: Path) -> str:
    return "" if path.exists() else " (does not exist)"
