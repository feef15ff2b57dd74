"""What searches read of lists of blocks, and the versions of files with blocks: without it, queries take longer.

Both are values of the table ``facts``, whose changes do not outdate the metadata database.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from catalogue.cdx.known_lines import Fragment, KnownLines
from catalogue.errors import BadCdx, StoreError
from catalogue.source.byte_ranges import FileVersion
from catalogue.store.database import Store
from catalogue.store.stored_blocks import SEARCHES, SHARDS
from catalogue.store.stored_file import StoredFile, marker

_MOST = 4 << 20
"""Bytes of lines that are stored of one list; whoever searches more harvests the list."""


def save_lines(store: Store, source: str, known: KnownLines) -> None:
    """Store the lines that a search of a source knows, unless there are many.

    Raises:
        StoreError: if they cannot be stored.
    """
    fragments = [*known]
    if sum(len(each.data) for each in fragments) <= _MOST:
        header = {"shards": known.shards, "parts": [[each.start, len(each.data)] for each in fragments]}
        body = b"".join([json.dumps(header).encode(), b"\n", *(each.data for each in fragments)])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        stored = StoredFile(body, known.version.size, known.version.etag, None, source, now)
        store.add_facts([(SEARCHES + known.crawl, stored)])


def stored_lines(store: Store, source: str, crawl: str) -> KnownLines | None:
    """Return the lines that earlier searches of a source read; None if there are none, or damaged ones."""
    with suppress(ValueError, KeyError, TypeError, BadCdx):
        if (stored := store.facts([SEARCHES + crawl]).get(SEARCHES + crawl)) and stored.source == source:
            end = stored.data.index(b"\n") + 1
            header = json.loads(stored.data[:end])
            fragments = _cut(stored.data, end, header["parts"])
            return KnownLines(crawl, FileVersion(stored.size, stored.etag), fragments, shards=header["shards"])
    return None


def _cut(data: bytes, at: int, parts: list[list[int]]) -> Iterator[Fragment]:
    for start, length in parts:
        yield Fragment(start, data[at : at + length])
        at += length


def save_versions(store: Store, source: str, crawl: str, versions: Mapping[str, FileVersion]) -> None:
    """Store the versions of files with blocks by path, by which their cached bytes are found.

    Raises:
        StoreError: if they cannot be stored.
    """
    data = json.dumps({path: [each.size, each.etag] for path, each in versions.items()}).encode()
    store.add_facts([(SHARDS + crawl, marker(data=data, source=source))])


def stored_versions(store: Store, source: str, crawl: str) -> dict[str, FileVersion]:
    """Return these versions; none if they are damaged or of another source."""
    with suppress(ValueError, TypeError, AttributeError):
        if (stored := store.facts([SHARDS + crawl]).get(SHARDS + crawl)) and stored.source == source:
            return {path: FileVersion(size, etag) for path, (size, etag) in json.loads(stored.data).items()}
    return {}


def forget_lines(store: Store, crawl: str) -> None:
    """Delete what is known of another version of an index: lines of its list, and versions of its files."""
    with suppress(StoreError):
        store.delete("facts", [SEARCHES + crawl, SHARDS + crawl])
