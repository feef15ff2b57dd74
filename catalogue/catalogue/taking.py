"""The crawls and files there are, and taking their footers."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from catalogue import metadata_db
from catalogue.captures import several
from catalogue.catalogue.opening import Opened
from catalogue.commoncrawl.crawls import SUBSETS, parse_crawl_words, plain_names, select_crawls, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL, define_dataset, parse_path_list, path_columns
from catalogue.commoncrawl.manifests import manifest_path
from catalogue.errors import FormatError, QueryError, SourceError, StoreDamaged, UnknownCrawl
from catalogue.examine import Examiner
from catalogue.harvest.crawl_list import CrawlList, fetch_crawl_list, fetch_path_list, resolve_manifest_paths
from catalogue.harvest.harvest import Harvested, HarvestEstimate, estimate_harvest, harvest
from catalogue.progress import Progress
from catalogue.settings import COLLINFO_SOURCE, DEFAULT_SOURCE, STORE_NAME
from catalogue.source.retry import PoliteSource
from catalogue.store.read_only import unwritable
from catalogue.store.stored_lists import (
    REQUESTED,
    held_paths,
    known_crawls,
    listed,
    load_dataset,
    save_dataset,
)
from catalogue.surt import Keys

_LIST_ATTEMPTS = 3
"""Requests for the list of crawls; if they fail, newer crawls are found by their manifests."""


class Taking(Opened):
    """What fills the store."""

    def define(
        self, key: str, *, keys: Keys | str | None = None, manifest: str | None = None, paths: Iterable[str] = ()
    ) -> None:
        """Say what the table is under whose name this was opened: sorted Parquet files, and where they are.

        Args:
            key: the column of text that they are sorted by.
            keys: what it holds, ``url``, ``host`` or ``text``; by default what its name suggests.
            manifest: path of the list of its files: text, a path a line, gzipped or not.
            paths: of its files, instead of that.

        Raises:
            QueryError: if these do not suit each other, or footers of it as it was before are held.
        """
        if self._name is None:
            message = "this is Common Crawl's index; open another table by its name: catalogue.open(table='hosts')"
            raise QueryError(message)
        given = tuple(paths)
        if (manifest is None) is (not given):
            message = f"to find the files of {self._name} takes either a manifest or their paths"
            raise QueryError(message)
        source = self.settings.source.rstrip("/")
        table = define_dataset(
            self._name,
            key,
            keys=Keys(keys) if keys else None,
            manifest=manifest and manifest.removeprefix(source).lstrip("/"),
        )
        listing = parse_path_list("\n".join(given).encode(errors="replace"), source=source) if given else ()
        store = self.create()
        before = None
        with suppress(StoreDamaged):  # what is damaged is defined again
            before = load_dataset(store)
        if before and (before.key, before.keys) != (table.key, table.keys) and store.keys("files"):
            message = (
                f"{self._name} holds footers of files sorted by {before.key}, as {before.keys.value}; "
                "choose another name, or forget them first"
            )
            raise QueryError(message)
        if before and before.key == table.key:  # what stands in paths is looked for when there are some
            table = replace(table, path_columns=before.path_columns)
        store.delete("failures", store.keys("failures"))
        save_dataset(store, table, listing)
        self.__dict__.pop("table", None)

    def crawl_list(self) -> CrawlList:
        """Return the crawls that the source lists, newest first; the list is fetched once a day at most.

        Raises:
            SourceError: if no list can be fetched, none is stored, and no manifest of a recent crawl is found.
        """
        if self.table != COMMON_CRAWL:
            message = f"only Common Crawl's index has a list of crawls; see: catalogue status --table {self.table.name}"
            raise QueryError(message)
        return self._fetch_crawl_list(lambda: self._source)

    def _fetch_crawl_list(self, data: Callable[[], PoliteSource] | None, attempts: int = _LIST_ATTEMPTS) -> CrawlList:
        store = self.create(to_write=False)
        url = COLLINFO_SOURCE if self.settings.source == DEFAULT_SOURCE else self.settings.source
        source = self._open_source(url, attempts=attempts)
        try:
            found = fetch_crawl_list(store, source, data)
        finally:
            self._count(source.requests, source.bytes)
            source.close()
        if found.warning:
            self._notify(found.warning)
        return found

    def harvest(
        self,
        crawls: str | Iterable[str] | None = None,
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> list[Harvested]:
        """Take the footers of crawls that are not held yet, and show them in the catalogue.

        Args:
            crawls: names, years, ranges ``A..B``, ``latest``, ``all``; of another table all unless given.
            subsets: ``warc``, ``crawldiagnostics``, ``robotstxt`` or ``all``, of the index.
            refresh: take them again, held or not.
            pages: take the page indexes too, which questions fetch when they need them otherwise.
            report: told how far it is, often, instead of a bar.

        Raises:
            SourceError: if the source failed as a whole; what was taken until then is kept, and so is shown later.
        """
        words, chosen, chosen_subsets = self._chosen(crawls, subsets, refresh=refresh)
        store, outcomes = self.create(), []
        with Examiner(self.table.key) as examiner, self._reporting(report, "files") as told:
            for crawl in chosen:
                try:
                    outcome = harvest(
                        crawl,
                        chosen_subsets,
                        table=self.table,
                        store=store,
                        source=self._source,
                        examiner=examiner,
                        refresh=refresh,
                        pages=pages,
                        report=told,
                        notify=self._notify,
                    )
                except UnknownCrawl as error:
                    if crawl in words:
                        raise
                    self._notify(str(error))  # a list of crawls runs ahead of their index
                    continue
                outcomes.append(outcome)
                metadata_db.refresh(self.path, store, self.table, facts=outcome.facts, examiner=examiner)
        return outcomes

    def harvest_estimate(
        self,
        crawls: str | Iterable[str] | None = None,
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
    ) -> HarvestEstimate:
        """Estimate what ``harvest`` with these arguments takes; the list of crawls is all that may be fetched.

        Raises:
            SourceError: if the list of crawls is needed and cannot be fetched.
        """
        _, chosen, chosen_subsets = self._chosen(crawls, subsets, refresh=False)
        return estimate_harvest(
            chosen,
            chosen_subsets,
            table=self.table,
            store=self.create(),
            cost=self._cost(),
            refresh=refresh,
            pages=pages,
        )

    def _chosen(
        self, crawls: str | Iterable[str] | None, subsets: str | Iterable[str], *, refresh: bool
    ) -> tuple[list[str], list[str], tuple[str, ...]]:
        """Return the words for crawls, the crawls that they mean, newest first, and the subsets to harvest."""
        if self._read_only:
            raise unwritable(self._store.path)
        if self.table == COMMON_CRAWL:
            words = resolve_manifest_paths(self._crawl_words(crawls), self.create(), lambda: self._source)
            return words, self._choose(words), select_subsets(several(subsets))
        words = several(crawls or "all")
        return words, self._choose_listed(words, refresh=refresh), SUBSETS

    def _known_crawls(self) -> list[str]:
        return known_crawls(self._store) if (self.data / STORE_NAME).exists() else []

    def _crawl_words(self, crawls: str | Iterable[str] | None) -> list[str]:
        return parse_crawl_words(several(crawls or ()), self._known_crawls())

    def _choose(self, words: Sequence[str]) -> list[str]:
        """The crawls that words mean. Plain names do without the list of crawls, if it cannot be had."""
        if not words:
            message = "which crawl is to be harvested? name one, such as CC-MAIN-2022-05, or latest"
            raise QueryError(message)
        plain = list(plain_names(words))
        select_crawls(plain, self._known_crawls())
        if len(plain) < len(words):
            return select_crawls(words, [crawl.id for crawl in self.crawl_list().crawls])
        with suppress(SourceError, FormatError):
            self._fetch_crawl_list(None, attempts=1)
        return select_crawls(words, [])

    def _choose_listed(self, words: Sequence[str], *, refresh: bool) -> list[str]:
        """The same of a table whose files are in one list."""
        fetch_path_list(self.table, self.create(), self._source, refresh=refresh)
        files = listed(self._store, self.table)
        there = {file.path for each in files.values() for file in each}
        if not there and self._store.keys("files"):  # a list that names nothing is none
            message = (
                f"the list of the files of {self._name} is lost; run: catalogue harvest --table {self._name} "
                f"--key {self.table.key} PATH..., as it was defined"
            )
            raise StoreDamaged(message)
        for kind in ("files", "failures"):
            self._store.delete(kind, set(self._store.keys(kind)) - there)
        columns = tuple(name for name in path_columns(there) if name != self.table.key)
        if columns != self.table.path_columns:
            save_dataset(self._store, replace(self.table, path_columns=columns))
            self.__dict__.pop("table")
        return self.table.select(words, list(files))

    def forget(self, crawls: str | Iterable[str]) -> int:
        """Delete what is held of crawls; returns how many footers that were.

        Raises:
            NotHarvested: if nothing is held of one.
            StoreLocked: if another process harvests one: what it has still to commit would seem to be all there is.
        """
        gone = 0
        for crawl in self.held(crawls):
            with self._store.harvesting(crawl):
                paths = held_paths(self._store, self.table, crawl)
                # Files last: as long as there are some, what was stopped can be gone on with by the same again.
                self._store.delete("failures", held_paths(self._store, self.table, crawl, kind="failures"))
                self._store.delete("documents", self._store.keys("documents", f"{REQUESTED}{crawl}/"))
                if self.table == COMMON_CRAWL:
                    pulled = self._store.keys("documents", f"snapshots/{crawl}/")
                    self._store.delete("documents", [manifest_path(crawl), *pulled])
                self._store.delete("files", paths)
            gone += len(paths)
        metadata_db.refresh(self.path, self._store, self.table)
        return gone

    def held(self, crawls: str | Iterable[str] = "all") -> list[str]:
        """The crawls of which something is held, newest first.

        Args:
            crawls: names, years, ranges ``A..B``, ``latest`` or ``all``.

        Raises:
            NotHarvested: if one is not.
        """
        self._check_store(crawls)
        files = (self.table.file(path) for path in self._store.keys("files"))
        return self.select_held({file.crawl for file in files if file}, crawls)

    def _check_store(self, crawls: str | Iterable[str], subsets: str | Iterable[str] = ()) -> None:
        """Raise ``NotHarvested`` that names the crawls, if there is no store."""
        if self._name is None and not (self.data / STORE_NAME).exists():
            nothing = f"nothing is harvested in {self.data} yet"
            self.table.select_stored((), several(crawls), subsets=select_subsets(several(subsets)), nothing=nothing)

    def select_held(self, held: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()) -> list[str]:
        """Of some crawls that are held those that words mean; see ``Dataset.select_stored``."""
        return self.table.select_stored(
            held, several(crawls), subsets=subsets, listed=lambda: known_crawls(self._store)
        )

    def gaps(self, held: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()) -> tuple[str, ...]:
        """Return a sentence for each range of crawls of which only some are stored; see ``Table.gaps``."""
        return self.table.gaps(held, several(crawls), subsets=subsets, listed=lambda: known_crawls(self._store))
