"""Documents of the store: the list of crawls, manifests, definitions of datasets, requested subsets, lists of blocks.

Complete lists of blocks are Parquet files in the folder ``blocks`` next to the store. The directory of each file (see
``cdx/block_file.py``) is a document of the store; without it the file is not used. What searches read of other lists,
and the versions of files with blocks, are values of the table ``facts``: without them, queries take longer.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.commoncrawl.crawls import COLLINFO, Crawl, parse_collinfo
from catalogue.commoncrawl.datasets import (
    COMMON_CRAWL,
    DATASET_DOCUMENT,
    MANIFEST_NAME,
    PATHS_DOCUMENT,
    Dataset,
    IndexFile,
    dataset_from_json,
    group_by_crawl,
    parse_manifest,
    parse_path_list,
)
from catalogue.errors import BadCdx, BadManifest, FormatError, NotHarvested, StoreDamaged, StoreError
from catalogue.formatting import closest_name
from catalogue.settings import STORE_NAME
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.checks import Response
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile, marker

if TYPE_CHECKING:
    from catalogue.cdx.block_file import StoredList
    from catalogue.cdx.known_lines import KnownLines

REQUESTED, VALUES = "requested/", "values/"
"""Prefixes of documents ``requested/CRAWL/SUBSET`` and ``values/CRAWL``, of which a harvest was requested."""


def stored_response(response: Response, source: PoliteSource, data: bytes | None = None) -> StoredFile:
    return StoredFile(
        data=response.body if data is None else data,
        size=response.total_size,
        etag=response.etag,
        last_modified=response.last_modified,
        source=response.origin or source.url,
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def listed_crawls(store: Store, source: str | None = None) -> dict[str, Crawl]:
    """Return the crawls of the stored list of a source by name, newest first; none if it is not stored."""
    with suppress(FormatError):
        if (document := store.undamaged("documents", COLLINFO)) and source in {None, document.source}:
            return parse_collinfo(document.data)
    return {}


def crawl_list_age(store: Store) -> timedelta | None:
    with suppress(StoreDamaged):
        if document := store.get("documents", COLLINFO):
            return datetime.now(UTC) - document.fetched_at
    return None


def manifests(documents: Iterable[str]) -> dict[str, str]:
    return {path.split("/")[1]: path for path in documents if path.endswith(f"/{MANIFEST_NAME}")}


def listed_files(store: Store, table: Dataset, documents: Iterable[str] | None = None) -> dict[str, list[IndexFile]]:
    """Return the files in the stored manifests, or in those of ``documents``, or in the list of a dataset, by crawl.

    Lists that older versions accepted, and that are refused now, count as not stored.
    """
    if table == COMMON_CRAWL:
        paths_by_crawl = manifests(store.keys("documents", MANIFEST_NAME) if documents is None else documents)
        stored = {crawl: store.get("documents", path) for crawl, path in paths_by_crawl.items()}
        found: dict[str, list[IndexFile]] = {}
        for crawl, document in stored.items():
            with suppress(BadManifest):
                if document:
                    found[crawl] = parse_manifest(crawl, document.data)
        return found
    document = store.get("documents", table.manifest or PATHS_DOCUMENT)
    with suppress(BadManifest):
        paths = parse_path_list(document.data, source=document.source) if document else ()
        return group_by_crawl(file for path in paths if (file := table.file(path)))
    return {}


def stored_paths(store: Store, table: Dataset, crawl: str, *, kind: str = "files") -> list[str]:
    paths = store.keys(kind, "" if crawl == table.name else f"crawl={crawl}/")
    return [path for path in paths if (file := table.file(path)) and file.crawl == crawl]


def note_requested(store: Store, files: Iterable[IndexFile]) -> None:
    """Store that these subsets were requested; an interrupted harvest then counts as incomplete."""
    requested = {f"{REQUESTED}{file.crawl}/{file.subset}" for file in files}
    new = sorted(requested - {*store.keys("documents", REQUESTED)})
    if new:
        store.put("documents", [(key, marker()) for key in new])


def note_values(store: Store, crawl: str) -> None:
    """Store that values of a crawl were harvested, so that its tables show them."""
    if f"{VALUES}{crawl}" not in store.keys("documents", VALUES):
        store.put("documents", [(f"{VALUES}{crawl}", marker())])


def requested_subsets(documents: Iterable[str]) -> set[tuple[str, str]]:
    parts = (key.removeprefix(REQUESTED).partition("/") for key in documents if key.startswith(REQUESTED))
    return {(crawl, subset) for crawl, _, subset in parts}


def load_dataset(store: Store) -> Dataset | None:
    """Return the definition of the dataset; None for Common Crawl's index."""
    document = store.get("documents", DATASET_DOCUMENT)
    return dataset_from_json(document.data) if document else None


def undefined_dataset(folder: Path, name: str | None) -> NotHarvested:
    similar = closest_name(name or "", (path.parent.name for path in folder.glob(f"*/{STORE_NAME}")))
    hint = f"did you mean {similar}? if not, " if similar else ""
    return NotHarvested(
        f"there is no dataset {name} in {folder} yet; {hint}"
        f"run: catalogue harvest --table {name} --key COLUMN --manifest PATH",
        call="define('COLUMN', manifest='PATH'), then cat.harvest()",
    )


def save_dataset(store: Store, table: Dataset, paths: tuple[str, ...] = ()) -> None:
    """Store the definition of a dataset, and the paths of its files if the user listed them."""
    documents = [(DATASET_DOCUMENT, table.to_json())]
    if paths:
        documents.append((PATHS_DOCUMENT, "\n".join(paths).encode()))
    store.put("documents", [(key, marker(data=data)) for key, data in documents])


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


def open_list(store: Store, crawl: str) -> "StoredList | None":
    """Open the stored list of a crawl; None if it is not stored.

    Raises:
        StoreDamaged: if it is damaged.
    """
    from catalogue.cdx.block_file import StoredList

    document = store.get("documents", LISTS + crawl)
    return StoredList(list_file(store, crawl), document.data) if document else None


def list_version(store: Store, crawl: str) -> FileVersion | None:
    document = store.get("documents", LISTS + crawl)
    return document.version if document else None


def crawls_with_blocks(store: Store) -> list[str]:
    return [key.removeprefix(LISTS) for key in store.keys("documents", LISTS) if key.startswith(LISTS)]


def crawls_with_lines(store: Store) -> list[str]:
    return [key.removeprefix(SEARCHES) for key in store.keys("facts", SEARCHES) if key.startswith(SEARCHES)]


def forget_list(store: Store, crawl: str) -> None:
    """Delete the list of a crawl, and what searches read of it; its document last, so that this can be repeated."""
    list_file(store, crawl).unlink(missing_ok=True)
    store.delete("facts", [SEARCHES + crawl, SHARDS + crawl])
    store.delete("documents", [LISTS + crawl])


def delete_parts(store: Store, crawl: str) -> None:
    """Delete the unfinished files of a list, in any version; no other process may harvest it."""
    for left in blocks_folder(store).glob(f".{crawl}.*.part"):
        left.unlink(missing_ok=True)


def save_lines(store: Store, source: str, known: "Iterable[KnownLines]") -> None:
    """Store the lines that searches of a source know, except where there are many."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    values = []
    for each in known:
        fragments = [*each]
        if sum(len(fragment.data) for fragment in fragments) <= _MOST:
            parts = [[part.start, len(part.data)] for part in fragments]
            header = {"shards": each.shards, "parts": parts, "origin": each.version.origin}
            body = b"".join([json.dumps(header).encode(), b"\n", *(part.data for part in fragments)])
            stored = StoredFile(body, each.version.size, each.version.etag, None, source, now)
            values.append((SEARCHES + each.crawl, stored))
    store.add_facts(values)


def stored_lines(store: Store, source: str, crawl: str) -> "KnownLines | None":
    """Return the valid lines of ``save_lines``."""
    from catalogue.cdx.known_lines import KnownLines

    with suppress(ValueError, KeyError, TypeError, BadCdx, StoreDamaged):
        if (stored := store.get("facts", SEARCHES + crawl)) and stored.source == source:
            end = stored.data.index(b"\n") + 1
            header = json.loads(stored.data[:end])
            parts = _cut(stored.data, end, header["parts"])
            version = FileVersion(stored.size, stored.etag, header.get("origin"))
            return KnownLines(crawl, version, parts, shards=header["shards"])
    return None


def _cut(data: bytes, at: int, parts: list[list[int]]) -> Iterator[tuple[int, bytes]]:
    for start, length in parts:
        yield start, data[at : at + length]
        at += length


def save_versions(store: Store, source: str, versions: Mapping[str, Mapping[str, FileVersion]]) -> None:
    """Store the versions of files by crawl and path, by which their cached bytes are found."""
    values = []
    for crawl, of_files in versions.items():
        values.append((SHARDS + crawl, marker(data=json.dumps(dict(of_files)).encode(), source=source)))
    store.add_facts(values)


def stored_versions(store: Store, source: str, crawl: str) -> dict[str, FileVersion]:
    with suppress(ValueError, TypeError, AttributeError, StoreDamaged):
        if (stored := store.get("facts", SHARDS + crawl)) and stored.source == source:
            return {path: FileVersion(*each) for path, each in json.loads(stored.data).items()}
    return {}


def forget_lines(store: Store, crawl: str) -> None:
    """Delete what is known of another version of an index."""
    with suppress(StoreError):
        store.delete("facts", [SEARCHES + crawl, SHARDS + crawl])
