"""Documents of the store: the list of crawls, manifests, definitions of datasets, and what was requested."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from catalogue.commoncrawl.datasets import (
    COMMON_CRAWL,
    DATASET_DOCUMENT,
    PATHS_DOCUMENT,
    Dataset,
    dataset_from_json,
    group_by_crawl,
    parse_path_list,
)
from catalogue.commoncrawl.manifests import (
    COLLINFO,
    MANIFEST_NAME,
    Crawl,
    IndexFile,
    parse_collinfo,
    parse_manifest,
)
from catalogue.errors import FormatError, StoreDamaged
from catalogue.source.checks import Response
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile, marker

REQUESTED = "requested/"
"""Prefix of documents ``requested/CRAWL/SUBSET``: the user asked to harvest that subset."""


def stored_response(answer: Response, source: PoliteSource, data: bytes | None = None) -> StoredFile:
    """Return the body of a response, or ``data`` made from it, as a value of the store."""
    return StoredFile(
        data=answer.body if data is None else data,
        size=answer.total_size,
        etag=answer.etag,
        last_modified=answer.last_modified,
        source=source.url,
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def stored_crawls(store: Store, source: str | None = None) -> list[Crawl]:
    """Return the crawls of the stored list, newest first; none if there is none, or it is of another source."""
    with suppress(FormatError):
        if (known := stored_document(store, COLLINFO)) and source in {None, known.source}:
            return parse_collinfo(known.data)
    return []


def known_crawls(store: Store) -> list[str]:
    """Return the names of the crawls of the stored list, newest first."""
    return [crawl.id for crawl in stored_crawls(store)]


def crawl_list_age(store: Store) -> timedelta | None:
    """Return how long ago the stored list of crawls was fetched; None if none is stored."""
    with suppress(StoreDamaged):
        if known := store.get("documents", COLLINFO):
            return datetime.now(UTC) - known.fetched_at
    return None


def manifests(documents: Iterable[str]) -> dict[str, str]:
    """Return the documents that are manifests, by crawl."""
    return {path.split("/")[1]: path for path in documents if path.endswith(f"/{MANIFEST_NAME}")}


def listed(store: Store, table: Dataset, documents: Iterable[str] | None = None) -> dict[str, list[IndexFile]]:
    """Return the files of the stored lists by crawl.

    Args:
        store: the store.
        table: the dataset.
        documents: names of documents to look for manifests in; all by default.
    """
    if table == COMMON_CRAWL:
        there = manifests(store.keys("documents", MANIFEST_NAME) if documents is None else documents)
        known = {crawl: store.get("documents", path) for crawl, path in there.items()}
        return {crawl: parse_manifest(crawl, document.data) for crawl, document in known.items() if document}
    document = store.get("documents", table.manifest or PATHS_DOCUMENT)
    paths = parse_path_list(document.data, source=document.source) if document else ()
    return group_by_crawl(file for path in paths if (file := table.file(path)))


def stored_paths(store: Store, table: Dataset, crawl: str, *, kind: str = "files") -> list[str]:
    """Return paths of stored files of a crawl, or of its failures."""
    paths = store.keys(kind, "" if crawl == table.name else f"crawl={crawl}/")
    return [path for path in paths if (file := table.file(path)) and file.crawl == crawl]


def note_requested(store: Store, files: Iterable[IndexFile]) -> None:
    """Store that the subsets of these files were requested, so that an interrupted harvest is seen as incomplete."""
    requested = {f"{REQUESTED}{file.crawl}/{file.subset}" for file in files}
    new = sorted(requested - {*store.keys("documents", REQUESTED)})
    if new:
        store.put("documents", [(key, marker()) for key in new])


def requested_subsets(documents: Iterable[str]) -> set[tuple[str, str]]:
    """Return the pairs of crawl and subset that were requested, by the keys of the store's documents."""
    parts = (key.removeprefix(REQUESTED).partition("/") for key in documents if key.startswith(REQUESTED))
    return {(crawl, subset) for crawl, _, subset in parts}


def load_dataset(store: Store) -> Dataset | None:
    """Return the definition of the dataset, or None: the store of Common Crawl's index has none."""
    known = store.get("documents", DATASET_DOCUMENT)
    return dataset_from_json(known.data) if known else None


def save_dataset(store: Store, table: Dataset, paths: tuple[str, ...] = ()) -> None:
    """Store the definition of a dataset, and the paths of its files if they were given one by one."""
    documents = [(DATASET_DOCUMENT, table.to_json())]
    if paths:
        documents.append((PATHS_DOCUMENT, "\n".join(paths).encode()))
    store.put("documents", [(key, marker(data=data)) for key, data in documents])


def stored_document(store: Store, path: str) -> StoredFile | None:
    """Return a stored document; None if it is missing or damaged, as it can be fetched again."""
    with suppress(StoreDamaged):
        return store.get("documents", path)
    return None
