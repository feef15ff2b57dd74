"""Lists of index files: manifests of crawls, and lists of the files of other datasets."""

from collections.abc import Callable, Iterable

from catalogue.commoncrawl.crawls import has_columnar_index, no_columnar_index, suggest_crawl
from catalogue.commoncrawl.datasets import Dataset, parse_path_list
from catalogue.commoncrawl.manifests import IndexFile, is_manifest_path, manifest_path, parse_manifest
from catalogue.errors import NotFound, UnknownCrawl
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import listed_crawls, stored_document, stored_response


def fetch_manifest(crawl: str, store: Store, source: PoliteSource, *, refresh: bool = False) -> list[IndexFile]:
    """Return the files of a crawl of Common Crawl's index; the manifest is fetched once, or to ``refresh`` it."""
    path = manifest_path(crawl)
    stored = stored_document(store, path)
    if stored and not refresh:
        return parse_manifest(crawl, stored.data)
    if not has_columnar_index(crawl):
        raise UnknownCrawl(no_columnar_index(crawl))
    try:
        response = source.get(path)
    except NotFound as error:
        if stored:  # from another path, see resolve_manifest_paths
            return parse_manifest(crawl, stored.data)
        message = f"{source.url} has no columnar index of {crawl}; {suggest_crawl(crawl, listed_crawls(store))}"
        raise UnknownCrawl(message) from error
    files = parse_manifest(crawl, response.body)
    store.put("documents", [(path, stored_response(response, source))])
    return files


def resolve_manifest_paths(words: Iterable[str], store: Store, source: Callable[[], PoliteSource]) -> list[str]:
    """Store manifests that are named by path among words for crawls, and return the words with their crawls instead."""
    resolved = []
    for word in words:
        if is_manifest_path(word):
            try:
                response = source().get(word)
            except NotFound as error:
                message = f"{source().url} has no manifest {word}"
                raise UnknownCrawl(message) from error
            crawl = parse_manifest(None, response.body)[0].crawl
            store.put("documents", [(manifest_path(crawl), stored_response(response, source()))])
            resolved.append(crawl)
        else:
            resolved.append(word)
    return resolved


def fetch_path_list(dataset: Dataset, store: Store, source: PoliteSource, *, refresh: bool = False) -> list[str]:
    """Store the list of the files of a dataset other than Common Crawl's index, if it has one that is not stored.

    Returns:
        The lines of a list that was fetched which are not paths.
    """
    if dataset.manifest is None or (stored_document(store, dataset.manifest) and not refresh):
        return []
    response = source.get(dataset.manifest)
    skipped: list[str] = []
    parse_path_list(response.body, source=source.url, skipped=skipped)
    store.put("documents", [(dataset.manifest, stored_response(response, source))])
    return skipped
