"""Whether what is held is right, and mending it if not."""

import secrets
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress

from catalogue import metadata_db
from catalogue.captures import several
from catalogue.catalogue.snapshots import Snapshots
from catalogue.check.check import Check
from catalogue.check.findings import Checked, Finding, Share
from catalogue.commoncrawl.crawls import check_crawl_name, newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, DATASET_DOCUMENT, PATHS_DOCUMENT, Dataset
from catalogue.doctor.diagnosis import Diagnosis
from catalogue.doctor.examination import MAX_WAIT, SourceExamination
from catalogue.doctor.installation import examine_installation
from catalogue.errors import (
    CatalogueError,
    DiskFailed,
    ForeignLog,
    FormatError,
    QueryError,
    StoreDamaged,
    StoreError,
    StoreLocked,
)
from catalogue.examine import Examiner
from catalogue.harvest.repair import Repair, Repaired, note_lost
from catalogue.progress import Progress
from catalogue.settings import COLLINFO_SOURCE, STORE_NAME
from catalogue.source.open import open_source
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.locks import alone
from catalogue.store.read_only import unwritable
from catalogue.store.salvaging import Salvaged, salvage
from catalogue.store.stored_lists import known_crawls, load_dataset, manifests
from catalogue.surt import Keys


class Sound(Snapshots):
    """What checks and mends what is held."""

    def check(
        self,
        crawls: str | Iterable[str] = "all",
        *,
        read_subset: str | None = None,
        seed: int | None = None,
        report: Callable[[Progress], None] | None = None,
    ) -> Checked:
        """Look whether all that is held is what was taken, and the catalogue says what the store does.

        Args:
            crawls: harvested ones, whose values are looked at: names, years, ranges ``A..B``, ``latest`` or ``all``.
                The store's file and the catalogue are looked at whole.
            read_subset: compare a share of the files with the source, by a request each: ``1%`` of them drawn at
                random, ``3/30`` the third of thirty parts, or as many as have ``50MB`` of footers and page indexes.
            seed: draws the share; another each time unless given.
            report: told how far it is, instead of a bar.

        Returns:
            What was found. If the source failed, that is in it; nothing is raised for it.

        Raises:
            QueryError: if a crawl is not harvested, or the share is none.
            StoreError: if there is something else, or the disk fails.
        """
        share = Share.of(read_subset) if read_subset is not None else None
        with self._reporting(report, "values") as told:
            return self._checked(crawls, share, seed, told)

    def _checked(
        self, crawls: str | Iterable[str], share: Share | None, seed: int | None, report: Callable[[Progress], None]
    ) -> Checked:
        store = self._openable()
        check = Check(self.data / STORE_NAME, self._scope(crawls, store), report=report)
        if not check.look_at_file() or store is None:
            self._say_why(check.checked, store)
            return check.checked
        table, known = self._table_of(store)
        path = self._database()
        state, fresh = store.state(), metadata_db.is_fresh(path, store)
        check.look_at_values(table, fresh=lambda: fresh and store.state() == state)
        if not check.checked.findings:
            check.look_at_catalogue(path, store, table)
        if share and known:
            with Examiner(table.key) as examiner:
                drawn = secrets.randbelow(1 << 32) if seed is None else seed
                check.compare(share, drawn, store, table, self._source, examiner)
        return check.checked

    def doctor(self, crawl: str | None = None) -> Diagnosis:
        """What the source and this installation are like, and what that means for cost.

        The source is asked ten times at most, politely, and each thing once; nothing is written but what is known of
        its host. Works with nothing harvested, and tells what is here when the source does not answer.

        Args:
            crawl: of whose index a file is looked at, or ``latest``; by default the newest that is harvested, or
                else listed.

        Raises:
            UnknownCrawl: if the source has no such crawl.
            QueryError: if this is another table than the index.
        """
        if self._name is not None:
            message = "only Common Crawl's index is looked at; leave out --table"
            raise QueryError(message)
        path, settings = self.data / STORE_NAME, self.settings
        if crawl is not None and crawl != "latest":
            check_crawl_name(crawl)
        held: list[str] = []
        if path.exists():
            with suppress(StoreError), Store(path, busy_seconds=1.0) as store:
                held = newest_first(manifests(store.keys("documents")))
        try:
            files = self._once(settings.source)
        except QueryError as error:
            here = tuple(examine_installation(self.data, path, self.path, settings, None))
            return Diagnosis(here, (), 0, 0, error)
        with ExitStack() as opened:
            opened.enter_context(closing(files))
            lists = files
            if settings.asks_strangers:
                lists = opened.enter_context(closing(self._once(COLLINFO_SOURCE)))
            here = tuple(examine_installation(self.data, path, self.path, settings, files))
            source = SourceExamination(lists, files, settings)
            try:
                source.run(crawl, held)
            finally:
                self._count(source.requests, source.bytes)
        return Diagnosis(here, tuple(source.observations), source.requests, source.bytes, source.failure)

    def _once(self, url: str) -> PoliteSource:
        """A source that makes one attempt at each request."""
        patience = min(self._patience, MAX_WAIT)
        return open_source(url, self.settings, clock=self._clock(), notify=self._notify, attempts=1, patience=patience)

    def repair(
        self, crawls: str | Iterable[str] = "all", *, report: Callable[[Progress], None] | None = None
    ) -> Repaired:
        """Mend what ``check`` finds: forget what is damaged, and take or find it again.

        Of a store whose file is damaged all that is whole goes into a new one, which takes its place; the old one is
        kept under another name. Stopped at any time, it can be run again; what is good is never let go of.

        Args:
            crawls: harvested ones, see ``check``.
            report: told how far it is, instead of a bar.

        Raises:
            QueryError: if a crawl is not harvested.
            SourceError: if the source fails as a whole; what was mended until then is.
            StoreLocked: if another process harvests or mends the same.
            StoreError: if there is something else, or the disk fails.
        """
        with self._reporting(report, "values") as told:
            return self._repaired(crawls, told)

    def _repaired(self, crawls: str | Iterable[str], report: Callable[[Progress], None]) -> Repaired:
        store = self._openable()
        if store and store.read_only:
            raise unwritable(store.path)
        repaired, requests = Repaired(), self.requests
        with alone(self.data / "repair.lock", f"another process repairs {self.data}; wait for it"):
            checked = self.check(crawls, report=report)
            lost: Iterable[str] = ()
            repaired.found = checked.findings
            if broken := [finding for finding in checked.findings if finding.kind == "store"]:
                lost = self._salvage(repaired).lost
                checked = self.check(crawls, report=report)
                repaired.found = [*broken, *checked.findings]
            store, (table, known) = self._store, self._table_of(self._store)
            if known:
                with Examiner(table.key) as examiner:
                    mending = Repair(
                        store, table, lambda: self._source, examiner, crawl_list=self.crawl_list, report=report
                    )
                    mending.mend(checked.findings, repaired, lost=lost)
                    with suppress(StoreDamaged):  # of another crawl than those that are asked about
                        metadata_db.up_to_date(self.path, store, table, facts=mending.facts, examiner=examiner)
                if any(finding.kind == "catalogue" for finding in checked.findings):
                    self._make_anew(repaired)
            self._left(crawls, report, repaired)
        repaired.requests = self.requests - requests
        return repaired

    def _openable(self) -> Store | None:
        """The store; None if it is one that is damaged.

        With another's log beside it, it is not looked at: SQLite would show both as one, and folding that log in for a
        repair would spoil what is whole.
        """
        try:
            return self._store
        except (DiskFailed, ForeignLog, StoreLocked):
            raise
        except StoreError:
            return None

    def _say_why(self, checked: Checked, store: Store | None) -> None:
        """Say of a store that cannot be opened why, if nothing else does."""
        if store is None and not checked.findings:
            try:
                self._open_store(create=False)
            except StoreError as error:
                checked.findings.append(Finding("store", "", str(error)))

    def _table_of(self, store: Store) -> tuple[Dataset, bool]:
        """The table; and whether it is that, or only has its name, since what it is cannot be read."""
        if self._name is None:
            return COMMON_CRAWL, True
        with suppress(StoreDamaged, FormatError):
            if table := load_dataset(store):
                return table, True
        return Dataset(self._name, "", Keys.TEXT), False

    def _scope(self, crawls: str | Iterable[str], store: Store | None) -> list[str] | None:
        """The crawls that are meant; None if all, or that cannot be told."""
        words = several(crawls)
        if store is None or tuple(words) == ("all",):
            return None
        table, _ = self._table_of(store)
        with suppress(StoreDamaged):
            files = (table.file(path) for kind in ("files", "failures") for path in store.keys(kind))
            return table.select_stored(
                {file.crawl for file in files if file}, words, listed=lambda: known_crawls(store)
            )
        return None

    def _salvage(self, repaired: Repaired) -> Salvaged:
        """Make a new store of what is whole."""
        table, known = COMMON_CRAWL, self._name is None
        if store := self._openable():
            with suppress(CatalogueError):
                table, known = self._table_of(store)
        others = {DATASET_DOCUMENT, PATHS_DOCUMENT, table.manifest if known else None}

        def is_file(key: str) -> bool:
            if not known:
                return key.endswith(".parquet")
            return table.file(key) is not None and key not in others and not key.startswith("snapshots/")

        shown = metadata_db.paths_shown(self.path)
        self.close()
        salvaged = salvage(self.data / STORE_NAME, is_file, shown)
        repaired.aside, repaired.salvaged = salvaged.aside, dict(salvaged.rows)
        note_lost(self._store, self._table_of(self._store)[0], salvaged.lost)
        return salvaged

    def _left(self, crawls: str | Iterable[str], report: Callable[[Progress], None], repaired: Repaired) -> None:
        """See what is left; a catalogue that is wrong is made anew, now that the store is well."""
        for last in (False, True):
            repaired.left = self.check(crawls, report=report).findings
            if last or all(finding.kind != "catalogue" for finding in repaired.left):
                return
            self._make_anew(repaired)

    def _make_anew(self, repaired: Repaired) -> None:
        metadata_db.make_anew(self.path, self.path, self._store, self.table)
        repaired.catalogue = True
