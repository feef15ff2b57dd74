"""Documents of the store: the list of crawls, manifests, definitions of datasets, and requested subsets."""

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
"""Prefix of documents ``requested/CRAWL/SUBSET``: the user requested a harvest of that subset."""


def stored_response(response: Response, source: PoliteSource, data: bytes | None = None) -> StoredFile:
    """Return a value with the body of a response, or with ``data`` derived from it."""
    return StoredFile(
        data=response.body if data is None else data,
        size=response.total_size,
        etag=response.etag,
        last_modified=response.last_modified,
        source=source.url,
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def stored_crawl_list(store: Store, source: str | None = None) -> list[Crawl]:
    """Return the crawls of the stored list of a source, newest first; none if it is not stored."""
    with suppress(FormatError):
        if (document := stored_document(store, COLLINFO)) and source in {None, document.source}:
            return parse_collinfo(document.data)
    return []


def listed_crawls(store: Store) -> list[str]:
    return [crawl.id for crawl in stored_crawl_list(store)]


def crawl_list_age(store: Store) -> timedelta | None:
    with suppress(StoreDamaged):
        if document := store.get("documents", COLLINFO):
            return datetime.now(UTC) - document.fetched_at
    return None


def manifests(documents: Iterable[str]) -> dict[str, str]:
    """Return the manifests among names of documents, by crawl."""
    return {path.split("/")[1]: path for path in documents if path.endswith(f"/{MANIFEST_NAME}")}


def listed_files(store: Store, table: Dataset, documents: Iterable[str] | None = None) -> dict[str, list[IndexFile]]:
    """Return the files in the stored manifests, or in those of ``documents``, or in the list of a dataset, by crawl."""
    if table == COMMON_CRAWL:
        paths_by_crawl = manifests(store.keys("documents", MANIFEST_NAME) if documents is None else documents)
        stored = {crawl: store.get("documents", path) for crawl, path in paths_by_crawl.items()}
        return {crawl: parse_manifest(crawl, document.data) for crawl, document in stored.items() if document}
    document = store.get("documents", table.manifest or PATHS_DOCUMENT)
    paths = parse_path_list(document.data, source=document.source, skipped=[]) if document else ()
    return group_by_crawl(file for path in paths if (file := table.file(path)))


def stored_paths(store: Store, table: Dataset, crawl: str, *, kind: str = "files") -> list[str]:
    paths = store.keys(kind, "" if crawl == table.name else f"crawl={crawl}/")
    return [path for path in paths if (file := table.file(path)) and file.crawl == crawl]


def note_requested(store: Store, files: Iterable[IndexFile]) -> None:
    """Store that these subsets were requested; an interrupted harvest then counts as incomplete."""
    requested = {f"{REQUESTED}{file.crawl}/{file.subset}" for file in files}
    new = sorted(requested - {*store.keys("documents", REQUESTED)})
    if new:
        store.put("documents", [(key, marker()) for key in new])


def requested_subsets(documents: Iterable[str]) -> set[tuple[str, str]]:
    """Return crawl and requested subset of each such document."""
    parts = (key.removeprefix(REQUESTED).partition("/") for key in documents if key.startswith(REQUESTED))
    return {(crawl, subset) for crawl, _, subset in parts}


def load_dataset(store: Store) -> Dataset | None:
    """Return the definition of the dataset; None for Common Crawl's index."""
    document = store.get("documents", DATASET_DOCUMENT)
    return dataset_from_json(document.data) if document else None


def save_dataset(store: Store, table: Dataset, paths: tuple[str, ...] = ()) -> None:
    """Store the definition of a dataset, and the paths of its files if the user listed them."""
    documents = [(DATASET_DOCUMENT, table.to_json())]
    if paths:
        documents.append((PATHS_DOCUMENT, "\n".join(paths).encode()))
    store.put("documents", [(key, marker(data=data)) for key, data in documents])


def stored_document(store: Store, path: str) -> StoredFile | None:
    """Return a stored document; None if it is missing or damaged."""
    with suppress(StoreDamaged):
        return store.get("documents", path)
    return None
