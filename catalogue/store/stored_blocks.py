"""What is stored of the lists of blocks of the CDX index.

Complete lists are Parquet files in the folder ``blocks`` next to the store. The directory of each file (see
``cdx/block_file.py``) is a document of the store; without it the file is not used. What searches read of other lists,
and the versions of files with blocks, are values of the table ``facts``: without them, queries take longer.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.errors import BadCdx, StoreDamaged, StoreError
from catalogue.source.byte_ranges import FileVersion
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile, marker

if TYPE_CHECKING:
    from catalogue.cdx.known_lines import Fragment, KnownLines

LISTS = "blocks/"
"""Prefix of documents ``blocks/CRAWL``, the directories."""
SEARCHES, SHARDS = "searches/", "shards/"
"""Prefixes of values ``searches/CRAWL`` and ``shards/CRAWL`` of the table ``facts``."""
_MOST = 4 << 20
"""Bytes of lines that are stored of one list; for more, the list should be harvested."""


def blocks_folder(store: Store) -> Path:
    return store.path.parent / "blocks"


def list_file(store: Store, crawl: str) -> Path:
    return blocks_folder(store) / f"{crawl}.parquet"


def crawls_with_blocks(store: Store) -> list[str]:
    return [key.removeprefix(LISTS) for key in store.keys("documents", LISTS) if key.startswith(LISTS)]


def forget_list(store: Store, crawl: str) -> None:
    """Delete the list of a crawl, and what searches read of it."""
    store.delete("documents", [LISTS + crawl])
    store.delete("facts", [SEARCHES + crawl, SHARDS + crawl])
    list_file(store, crawl).unlink(missing_ok=True)


def save_lines(store: Store, source: str, known: "Iterable[KnownLines]") -> None:
    """Store the lines that searches of a source know, except where there are many."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    values = []
    for each in known:
        fragments = [*each]
        if sum(len(fragment.data) for fragment in fragments) <= _MOST:
            header = {"shards": each.shards, "parts": [[part.start, len(part.data)] for part in fragments]}
            body = b"".join([json.dumps(header).encode(), b"\n", *(part.data for part in fragments)])
            stored = StoredFile(body, each.version.size, each.version.etag, None, source, now)
            values.append((SEARCHES + each.crawl, stored))
    store.add_facts(values)


def stored_lines(store: Store, source: str, crawl: str) -> "KnownLines | None":
    """Return the valid lines that earlier searches of a source read."""
    from catalogue.cdx.known_lines import KnownLines

    with suppress(ValueError, KeyError, TypeError, BadCdx, StoreDamaged):
        if (stored := store.get("facts", SEARCHES + crawl)) and stored.source == source:
            end = stored.data.index(b"\n") + 1
            header = json.loads(stored.data[:end])
            fragments = _cut(stored.data, end, header["parts"])
            return KnownLines(crawl, FileVersion(stored.size, stored.etag), fragments, shards=header["shards"])
    return None


def _cut(data: bytes, at: int, parts: list[list[int]]) -> "Iterator[Fragment]":
    from catalogue.cdx.known_lines import Fragment

    for start, length in parts:
        yield Fragment(start, data[at : at + length])
        at += length


def save_versions(store: Store, source: str, versions: Mapping[str, Mapping[str, FileVersion]]) -> None:
    """Store the versions of files by crawl and path, by which their cached bytes are found."""
    values = []
    for crawl, of_files in versions.items():
        data = json.dumps({path: [each.size, each.etag] for path, each in of_files.items()}).encode()
        values.append((SHARDS + crawl, marker(data=data, source=source)))
    store.add_facts(values)


def stored_versions(store: Store, source: str, crawl: str) -> dict[str, FileVersion]:
    """Return these versions; none if they are damaged or of another source."""
    with suppress(ValueError, TypeError, AttributeError, StoreDamaged):
        if (stored := store.get("facts", SHARDS + crawl)) and stored.source == source:
            return {path: FileVersion(size, etag) for path, (size, etag) in json.loads(stored.data).items()}
    return {}


def forget_lines(store: Store, crawl: str) -> None:
    """Delete what is known of another version of an index."""
    with suppress(StoreError):
        store.delete("facts", [SEARCHES + crawl, SHARDS + crawl])
