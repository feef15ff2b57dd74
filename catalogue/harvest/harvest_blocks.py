"""Fetch the complete list of blocks of a crawl's CDX index.

The list is fetched in parts of one version into a file, which the next run continues after an interruption. It is
parsed, checked and written as a Parquet file while it arrives; that file is used only when it is complete.
"""

import hashlib
import json
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from catalogue.atomic_files import make_folder, named, resume, whole_file
from catalogue.cdx.block_file import write_blocks
from catalogue.cdx.cluster import MAX_LIST, list_path, parse_pieces
from catalogue.cdx.list_search import end_of_list, find_shards
from catalogue.commoncrawl.crawls import CDX, suggest_crawl
from catalogue.errors import OF_ONE_FILE, BadCdx, FormatError, NotFound, StoreDamaged, UnknownCrawl
from catalogue.harvest.harvest import Harvested
from catalogue.progress import Progress, Report
from catalogue.session import Session
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.checks import MAX_DOCUMENT, Response
from catalogue.source.parallel import RequestThreads, run_ahead
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from catalogue.store.stored_lists import (
    LISTS,
    blocks_folder,
    delete_parts,
    list_file,
    listed_crawls,
    open_list,
    stored_response,
)

_AT_ONCE = 4
"""Requests at a time; their parts are in memory."""
_READ = 1 << 20
"""Bytes of an unfinished file that are read at once."""


def harvest_blocks(session: Session, crawl: str, report: Report, *, refresh: bool) -> Harvested:
    """Fetch the list of a crawl unless it is stored; with ``refresh``, also if the source has another version now.

    Raises:
        UnknownCrawl: if the source has no CDX index of the crawl.
        SourceError: if the source refuses all requests.
        StoreLocked: if another process harvests this crawl.
    """
    path = list_path(crawl)
    outcome = Harvested(Progress(crawl, 1, 0), index=CDX)
    store, spent, started = session.store, session.spending(), time.monotonic()
    with store.harvesting(crawl):
        try:
            if _fetch_list(session, crawl, report, refresh=refresh):
                outcome.fetched.add(path)
            delete_parts(store, crawl)  # also those of a command that was stopped when the list was stored
            outcome.progress.done = 1
        except OF_ONE_FILE as error:
            outcome.failures[path] = str(error)
            outcome.progress.failed = 1
    at = outcome.progress
    at.requests, at.bytes = spent()
    at.seconds = time.monotonic() - started
    return outcome


def _fetch_list(session: Session, crawl: str, report: Report, *, refresh: bool) -> bool:
    store, source = session.store, session.source
    stored = _usable_list(store, crawl)
    if stored and not refresh:
        return False
    try:
        end = end_of_list(source, crawl)
        if stored and stored.version == end.version._replace(origin=end.origin or source.url):
            return False
        shards = find_shards(source, crawl)
    except NotFound as error:
        message = f"{source.url} has no CDX index of {crawl}; {suggest_crawl(crawl, listed_crawls(store))}"
        raise UnknownCrawl(message) from error
    if end.total_size > MAX_LIST:
        raise BadCdx(f"{list_path(crawl)} has {end.total_size:,} bytes; at most {MAX_LIST:,} are accepted")
    make_folder(blocks_folder(store))
    version = json.dumps([source.url, end.total_size, end.etag, end.last_modified]).encode()
    part = blocks_folder(store) / f".{crawl}.{hashlib.blake2b(version, digest_size=8).hexdigest()}.part"
    with closing(RequestThreads(min(_AT_ONCE, source.connections))) as threads:
        try:
            with (
                named(part),
                resume(part) as file,
                closing(_pieces(crawl, file, source, end, threads, report)) as pieces,
                whole_file(list_file(store, crawl)) as output,
            ):
                blocks = parse_pieces(crawl, pieces, end.total_size, shards=shards)
                directory = write_blocks(output, crawl, blocks)
        except FormatError:
            threads.shutdown()  # what is received counts for this crawl
            part.unlink(missing_ok=True)
            raise
    store.put("documents", [(LISTS + crawl, replace(stored_response(end, source), data=directory))])
    return True


def _usable_list(store: Store, crawl: str) -> StoredFile | None:
    try:
        return store.get("documents", LISTS + crawl) if open_list(store, crawl) else None
    except StoreDamaged:
        return None


def _pieces(
    crawl: str, file: BinaryIO, source: PoliteSource, end: Response, threads: RequestThreads, report: Report
) -> Generator[bytes, None, None]:
    """Yield a list in pieces: what its file has, and then what is missing there, each piece after it is appended."""
    size, pin = end.total_size, end.version
    there = min(file.seek(0, 2), end.start)
    file.truncate(there)
    ranges = [ByteRange(at, min(at + MAX_DOCUMENT, end.start)) for at in range(there, end.start, MAX_DOCUMENT)]
    progress = Progress(f"{crawl} blocks", 1 + len(ranges), 1, bytes=len(end.body))
    report(progress)
    file.seek(0)
    yield from iter(partial(file.read, _READ), b"")
    fetch = partial(source.get, list_path(crawl), pin=pin)
    with closing(run_ahead(threads.submit, fetch, ranges, limit=_AT_ONCE)) as calls:
        for _, call in calls:
            body = call.result().body
            file.write(body)
            progress.done, progress.bytes = progress.done + 1, progress.bytes + len(body)
            report(progress)
            yield body
    file.write(end.body)
    file.flush()
    if file.tell() != size:
        raise BadCdx(f"{list_path(crawl)} has {file.tell():,} bytes instead of {size:,}")
    yield end.body
