"""Harvest crawls into the store, forget them, and define datasets."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from catalogue.commoncrawl.crawls import (
    CDX,
    COLLINFO,
    COLUMNAR,
    INDEXES,
    STORED,
    SUBSETS,
    CrawlWords,
    check_columnar,
    parse_crawl_words,
    select_subsets,
)
from catalogue.commoncrawl.datasets import COMMON_CRAWL, define_dataset, manifest_path, parse_path_list, path_columns
from catalogue.errors import CatalogueError, FormatError, QueryError, SourceError, StoreDamaged, UnknownCrawl
from catalogue.formatting import ReprMixin, format_cost, plural
from catalogue.harvest.harvest import Harvested, fetch_path_list, harvest, resolve_manifest_paths
from catalogue.progress import Progress, Report
from catalogue.query.arguments import member_of, one_of, several
from catalogue.selection import check_listed, known_crawls, select_listed, select_stored, update_crawl_list, with_stored
from catalogue.session import Session
from catalogue.store.stored_lists import (
    REQUESTED,
    VALUES,
    crawls_with_blocks,
    delete_parts,
    forget_list,
    listed_files,
    load_dataset,
    save_dataset,
    stored_paths,
)
from catalogue.surt.pattern import Keys
from catalogue.tables.make_table import FooterRows
from catalogue.tables.table_file import TABLES_FOLDER

BOTH = "both"
HARVESTED_INDEXES = (*INDEXES, BOTH)
"""What can be harvested of a crawl."""
FILES_OF_A_SUBSET = 300
"""Index files of a subset in most crawls."""
_ROW_GROUPS, _DICTIONARY = 11, 3000
"""Usual row groups of a file, and bytes of a dictionary page."""
_FOOTER, _FOOTER_WITH_PAGES = 85_000, 1_000_000
"""Usual bytes of a footer, without and with page indexes."""
_LIST_BYTES, _LIST_REQUESTS = 104_000_000, 9
"""Usual bytes of a list of blocks, and requests for it: for the number of shards, the end of the list, and 7 parts."""


@dataclass(frozen=True, slots=True, repr=False)
class HarvestEstimate(ReprMixin):
    """The cost of a harvest."""

    crawls: int
    files: int
    """Files to harvest; where the manifest of a crawl is not stored, the usual number."""
    requests: int
    bytes: int
    seconds: float

    @property
    def summary(self) -> str:
        """The estimate on one line."""
        return f"{plural(self.crawls, 'crawl')}, {plural(self.files, 'file')}: {format_cost(self)}"

    def _line(self) -> str:
        return self.summary


def define(
    session: Session,
    key: str,
    *,
    keys: Keys | str | None = None,
    manifest: str | None = None,
    paths: str | Iterable[str] = (),
) -> None:
    if session.dataset_name is None:
        raise QueryError("this is Common Crawl's index; open another table by its name: catalogue.open(table='hosts')")
    given = several(paths, "paths", numbers=False)
    if (manifest is None) is (not given):
        raise QueryError(f"the files of {session.dataset_name} need either a manifest or their paths")
    source = session.settings.source.rstrip("/")
    table = define_dataset(
        session.dataset_name,
        key,
        keys=member_of("keys", Keys)(keys) if keys else None,
        manifest=manifest and manifest.removeprefix(source).lstrip("/"),
    )
    listing = parse_path_list("\n".join(given).encode(errors="replace"), source=source) if given else ()
    store = session.create_store()
    before = None
    with suppress(StoreDamaged):  # what is damaged is defined again
        before = load_dataset(store)
    if before and (before.key, before.keys) != (table.key, table.keys) and store.keys("files"):
        raise QueryError(
            f"{session.dataset_name} has footers of files sorted by {before.key}, as {before.keys.value}; "
            "choose another name, or forget them first"
        )
    if before and before.key == table.key:  # columns of paths are found when there are paths
        table = replace(table, path_columns=before.path_columns)
    store.delete("failures", store.keys("failures"))
    save_dataset(store, table, listing)
    if listing:  # footers of other files would count as those of listed ones
        store.delete("files", {*store.keys("files")}.difference(listing))
    session.reload_dataset()


def update_tables(
    session: Session, decoded: Mapping[str, FooterRows] = MappingProxyType({}), values: Collection[str] = ()
) -> None:
    from catalogue.tables import update_tables as tables

    folder, notify = session.data / TABLES_FOLDER, session.notify
    tables.update_tables(folder, session.store, session.dataset, decoded=decoded, values=values, notify=notify)


@dataclass(slots=True)
class HarvestOptions:
    """What is stored of crawls; see ``Catalogue.harvest``."""

    subsets: str | Iterable[str] = ()
    refresh: bool = False
    pages: bool = False
    index: str = COLUMNAR
    values: str | Iterable[str] = ()

    def __post_init__(self) -> None:
        self.values = several(self.values, "values")  # an iterator can be read once


def harvest_crawls(
    session: Session, crawls: CrawlWords | None, options: HarvestOptions, report: Report | None
) -> list[Harvested]:
    _check_options(session, options)
    outcomes: list[Harvested] = []
    decoded: dict[str, FooterRows] = {}

    def harvest_index(crawl: str, of_index: str, progress: Report) -> Harvested:
        refresh = options.refresh
        if of_index == CDX:
            from catalogue.harvest.harvest_blocks import harvest_blocks

            return harvest_blocks(session, crawl, progress, refresh=refresh)
        with suppress(StoreDamaged):  # of a manifest, which is fetched again
            session.store.delete("files", session.metadata().undecodable(crawl))  # answers count them as missing
        return harvest(session, crawl, subsets, refresh=refresh, pages=options.pages, decoded=decoded, report=progress)

    with session.reporting(report, "files") as progress:
        words, chosen, subsets, unlisted = _select(session, crawls, options.subsets, refresh=options.refresh)
        session.create_store()
        for crawl in chosen:
            for of_index in (COLUMNAR, CDX) if options.index == BOTH else (options.index,):
                try:
                    outcomes.append(harvest_index(crawl, of_index, progress))
                except UnknownCrawl as error:
                    if crawl in words:
                        raise
                    # The list of crawls may have a crawl before its index is published.
                    outcomes.append(Harvested(Progress(crawl, 0, 0), failures={crawl: str(error)}, index=of_index))
                except BaseException:
                    with suppress(CatalogueError):  # the first error is raised
                        update_tables(session, decoded)  # so that the next query does not wait for it
                    raise
            update_tables(session, decoded)
            decoded.clear()
            if options.values:
                outcomes.append(_harvest_values(session, crawl, options.values, subsets, progress))
    session.updated_database()  # once for all crawls, since it is copied each time
    for reason in unlisted:
        outcomes[0].failures[COLLINFO] = reason
    return outcomes


def _harvest_values(
    session: Session, crawl: str, values: str | Iterable[str], subsets: Sequence[str], report: Report
) -> Harvested:
    from catalogue.harvest.harvest_values import harvest_values, value_columns

    try:
        columns = value_columns(session, values)
        return harvest_values(session, crawl, columns, subsets, lambda at: report(replace(at, name=f"{crawl} values")))
    finally:
        update_tables(session, values=[crawl])
        session.forget_tables()


def _check_options(session: Session, options: HarvestOptions) -> None:
    index, values = options.index, options.values
    one_of("index", HARVESTED_INDEXES)(index)
    if index == CDX and values:
        raise QueryError("values are in the columnar index; use index='columnar' or 'both'")
    if values and session.dataset_name is None:
        from catalogue.harvest.harvest_values import value_columns

        value_columns(session, values)  # an unknown column is an error before the first request
    if index != COLUMNAR and session.dataset_name:
        raise QueryError(f"{session.dataset_name} has no CDX index; its only index is columnar")


def estimate_crawls(session: Session, crawls: CrawlWords | None, options: HarvestOptions) -> HarvestEstimate:
    """Estimate the cost of ``harvest_crawls``; at most lists are fetched."""
    _check_options(session, options)
    _, chosen, subsets, _ = _select(session, crawls, options.subsets, refresh=False)
    store, dataset = session.create_store(), session.dataset
    known = listed_files(store, dataset)
    files = requests = received = 0
    for crawl in (each for each in chosen if each not in known):
        check_listed(session, crawl, known_crawls(session))
        if options.index != CDX:
            check_columnar(crawl)
    if options.index != COLUMNAR:
        files = len({*chosen} - (set() if options.refresh else {*crawls_with_blocks(store)}))
        requests, received = files * _LIST_REQUESTS, files * _LIST_BYTES
    for crawl in chosen if options.index != CDX else ():
        count = FILES_OF_A_SUBSET * len(subsets)
        if crawl in known:
            stored = set() if options.refresh or options.pages else set(stored_paths(store, dataset, crawl))
            requested = (file for file in known[crawl] if dataset != COMMON_CRAWL or file.subset in subsets)
            count = sum(file.path not in stored for file in requested)
        files += count
        requests += count + (options.refresh or crawl not in known)
        received += count * (_FOOTER_WITH_PAGES if options.pages else _FOOTER)
        if options.values:
            more = _cost_of_values(session, crawl, options.values, subsets, count)
            requests, received = requests + more[0], received + more[1]
    return HarvestEstimate(len(chosen), files, requests, received, session.cost().seconds(requests, received, 1))


def _cost_of_values(
    session: Session, crawl: str, values: str | Iterable[str], subsets: Sequence[str], missing: int
) -> tuple[int, int]:
    from catalogue.harvest.harvest_values import dictionary_index, value_columns

    columns = value_columns(session, values)
    stored = session.store_path.exists() and session.metadata().has_files(crawl)
    needed = dictionary_index(session, crawl, subsets).missing_dictionaries(columns) if stored else ()
    usual = missing * _ROW_GROUPS
    return len(needed) + usual, sum(len(each.range) for each in needed) + usual * len(columns) * _DICTIONARY


def _select(
    session: Session, crawls: CrawlWords | None, subsets: str | Iterable[str], *, refresh: bool
) -> tuple[list[str], list[str], tuple[str, ...], tuple[str, ...]]:
    """Return the words, their crawls, newest first, the subsets, and why the list of crawls is incomplete."""
    session.check_writable()
    words = [*several(() if crawls is None else crawls, "crawls")]
    chosen_subsets = several(subsets, "subsets")
    if session.dataset == COMMON_CRAWL:
        words = parse_crawl_words(words, known_crawls(session))
        words = resolve_manifest_paths(session, with_stored(session, words) if STORED in words else words)
        selected = select_listed(session, words)
        if not selected.listed:  # all crawls are named
            with suppress(SourceError, FormatError):
                update_crawl_list(session, None, attempts=1)
        return words, [*selected.crawls], select_subsets(chosen_subsets or SUBSETS[:1]), selected.missing
    if chosen_subsets:
        raise QueryError(f"the harvest of {session.dataset.name} stores all its files; leave out the subsets")
    return words, _select_in_list(session, words or ["all"], refresh=refresh), SUBSETS, ()


def _select_in_list(session: Session, words: Sequence[str], *, refresh: bool) -> list[str]:
    store, dataset = session.create_store(), session.dataset
    fetch_path_list(session, refresh=refresh)
    files = listed_files(store, dataset)
    paths = {file.path for each in files.values() for file in each}
    if not paths and store.keys("files"):  # a list that names nothing is none
        raise StoreDamaged(
            f"the list of the files of {dataset.name} is lost; run: catalogue harvest --table {dataset.name} "
            f"--key {dataset.key} PATH..., as it was defined"
        )
    for kind in ("files", "failures"):
        store.delete(kind, set(store.keys(kind)) - paths)
    columns = tuple(name for name in path_columns(paths) if name != dataset.key)
    if columns != dataset.path_columns:
        save_dataset(store, replace(dataset, path_columns=columns))
        session.reload_dataset()
    return session.dataset.select(words, list(files))


def forget_crawls(session: Session, crawls: CrawlWords) -> int:
    store, dataset = session.store, session.dataset
    deleted = 0
    for crawl in select_stored(session, crawls):
        with store.harvesting(crawl):
            paths = stored_paths(store, dataset, crawl)
            # Files last: as long as there are some, an interrupted command can be run again.
            store.delete("failures", stored_paths(store, dataset, crawl, kind="failures"))
            store.delete("documents", [*store.keys("documents", f"{REQUESTED}{crawl}/"), f"{VALUES}{crawl}"])
            if dataset == COMMON_CRAWL:
                store.delete("documents", [manifest_path(crawl), *store.keys("documents", f"snapshots/{crawl}/")])
                delete_parts(store, crawl)
                forget_list(store, crawl)
                session.forget_blocks(crawl)
            store.delete("files", paths)
        deleted += len(paths)
    update_tables(session)
    session.updated_database()
    return deleted
