"""Which crawls there are, and which files a table has: taken from the source, or as the store holds it."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from catalogue.commoncrawl.crawls import has_columnar_index, no_columnar_index, suggest_crawl
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
    manifest_path,
    parse_collinfo,
    parse_manifest,
)
from catalogue.errors import FormatError, NotFound, StoreDamaged, UnknownCrawl
from catalogue.source.checks import Response
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile

CRAWL_LIST_AGE = timedelta(days=1)
"""Common Crawl asks for its list of crawls to be kept, as it changes once a month."""
REQUESTED = "requested/"
"""Prefix of documents ``requested/CRAWL/SUBSET``: the user asked to harvest that subset."""


def held(answer: Response, data: bytes, source: PoliteSource) -> StoredFile:
    """What was taken from a source, as the store keeps it."""
    return StoredFile(
        data=data,
        size=answer.total_size,
        etag=answer.etag,
        last_modified=answer.last_modified,
        source=source.url,
        taken=_now(),
    )


def take_crawl_list(store: Store, source: PoliteSource, *, max_age: timedelta = CRAWL_LIST_AGE) -> list[Crawl]:
    """The crawls there are, newest first, asked of the source only if the list held is older than ``max_age``."""
    known = _whole(store, COLLINFO)
    age = crawl_list_age(store)
    if known and known.source == source.url and age is not None and abs(age) < max_age:  # a clock may have been wrong
        return parse_collinfo(known.data)
    answer = source.get(COLLINFO)
    crawls = parse_collinfo(answer.body)
    if not store.read_only:
        store.put("documents", [(COLLINFO, held(answer, answer.body, source))])
    return crawls


def known_crawls(store: Store) -> list[str]:
    """The crawls of the list that is held, newest first; none if none is."""
    with suppress(FormatError):
        if known := _whole(store, COLLINFO):
            return [crawl.id for crawl in parse_collinfo(known.data)]
    return []


def crawl_list_age(store: Store) -> timedelta | None:
    """How long ago the list of crawls was taken that is held; None if none is, or it does not say."""
    with suppress(StoreDamaged):
        if known := store.get("documents", COLLINFO):
            return datetime.now(UTC) - known.taken_at
    return None


def take_manifest(crawl: str, store: Store, source: PoliteSource, *, again: bool = False) -> list[IndexFile]:
    """The files of a crawl of Common Crawl's index; asked of the source once, or ``again``.

    Raises:
        UnknownCrawl: if the source has no manifest for it.
    """
    path = manifest_path(crawl)
    known = _whole(store, path)
    if known and not again:
        return parse_manifest(crawl, known.data)
    if not has_columnar_index(crawl):
        raise UnknownCrawl(no_columnar_index(crawl))
    try:
        answer = source.get(path)
    except NotFound as error:
        message = f"{source.url} has no columnar index of {crawl}; {suggest_crawl(crawl, known_crawls(store))}"
        raise UnknownCrawl(message) from error
    files = parse_manifest(crawl, answer.body)
    store.put("documents", [(path, held(answer, answer.body, source))])
    return files


def take_list(table: Dataset, store: Store, source: PoliteSource, *, again: bool = False) -> None:
    """See to it that the store holds the list of the files of a table that is not Common Crawl's index.

    Raises:
        SourceError: if it cannot be had.
        BadManifest: if it is none.
    """
    if table.manifest is None or (_whole(store, table.manifest) and not again):
        return
    answer = source.get(table.manifest)
    parse_path_list(answer.body, source=source.url)
    store.put("documents", [(table.manifest, held(answer, answer.body, source))])


def manifests(documents: Iterable[str]) -> dict[str, str]:
    """Those documents that are lists of a crawl's files, by crawl."""
    return {path.split("/")[1]: path for path in documents if path.endswith(f"/{MANIFEST_NAME}")}


def listed(store: Store, table: Dataset, documents: Iterable[str] | None = None) -> dict[str, list[IndexFile]]:
    """The files of the lists that are held, by crawl.

    Args:
        store: which holds them.
        table: of the files.
        documents: to look for lists in, where each crawl has its own; all unless given.
    """
    if table == COMMON_CRAWL:
        there = manifests(store.keys("documents", MANIFEST_NAME) if documents is None else documents)
        known = {crawl: store.get("documents", path) for crawl, path in there.items()}
        return {crawl: parse_manifest(crawl, document.data) for crawl, document in known.items() if document}
    document = store.get("documents", table.manifest or PATHS_DOCUMENT)
    paths = parse_path_list(document.data, source=document.source) if document else ()
    return dict(group_by_crawl(file for path in paths if (file := table.file(path))))


def held_paths(store: Store, table: Dataset, crawl: str, *, kind: str = "files") -> list[str]:
    """Paths of files of a crawl that are held, or of its failures."""
    paths = store.keys(kind, "" if crawl == table.name else f"crawl={crawl}/")
    return [path for path in paths if (file := table.file(path)) and file.crawl == crawl]


def note_requested(store: Store, files: Iterable[IndexFile]) -> None:
    """Store that the subsets of these files were requested, so that an interrupted harvest is seen as incomplete."""
    requested = {f"{REQUESTED}{file.crawl}/{file.subset}" for file in files}
    new = sorted(requested - {*store.keys("documents", REQUESTED)})
    if new:
        store.put("documents", [(key, StoredFile(b"", 0, None, None, "", _now())) for key in new])


def requested_subsets(documents: Iterable[str]) -> set[tuple[str, str]]:
    """Return the pairs of crawl and subset that were requested, by the keys of the store's documents."""
    parts = (key.removeprefix(REQUESTED).partition("/") for key in documents if key.startswith(REQUESTED))
    return {(crawl, subset) for crawl, _, subset in parts}


def load_dataset(store: Store) -> Dataset | None:
    """The table of a store; None if it says nothing of one, as that of Common Crawl's index does not."""
    known = store.get("documents", DATASET_DOCUMENT)
    return dataset_from_json(known.data) if known else None


def save_dataset(store: Store, table: Dataset, paths: tuple[str, ...] = ()) -> None:
    """Note which table a store is of, and its files, if they were named one by one."""
    documents = [(DATASET_DOCUMENT, table.to_json())]
    if paths:
        documents.append((PATHS_DOCUMENT, "\n".join(paths).encode()))
    store.put("documents", [(key, StoredFile(data, len(data), None, None, "", _now())) for key, data in documents])


def _whole(store: Store, path: str) -> StoredFile | None:
    """A document that is held; not one that is damaged, since it can be had again."""
    with suppress(StoreDamaged):
        return store.get("documents", path)
    return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
