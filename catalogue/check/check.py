"""Check every stored value and the metadata database; with ``repair``, drop what is damaged and rebuild the rest."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

from catalogue import metadata_db
from catalogue.check.compare_files import Comparison
from catalogue.check.findings import REPAIR, Checked, Finding, Share
from catalogue.commoncrawl.crawls import newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, DATASET_DOCUMENT, PATHS_DOCUMENT, Dataset
from catalogue.errors import DiskFailed, FormatError, SourceError, StoreDamaged, StoreLocked
from catalogue.progress import Progress
from catalogue.session import Session
from catalogue.store.database import Store
from catalogue.store.read_only import unwritable
from catalogue.store.schema import TABLES, row_group_of
from catalogue.store.stored_file import Label, StoredFile, label_of
from catalogue.store.stored_lists import load_dataset, manifests
from catalogue.stored import select_stored, several

RECOVERY = "see the troubleshooting page: sqlite3 .recover, or harvest into another --data folder"
_DAMAGED = {
    "files": "the stored footer is damaged; queries of this file fail",
    "documents": "the stored list is damaged",
    "failures": "the stored reason of a failure is damaged",
    "indexes": "the stored page index is damaged; queries do without it",
    "facts": "the stored summary of the footer is damaged; it is rebuilt when it is needed",
}
_REPORT_EVERY = 500
"""Values between two reports of progress."""


def check_store(
    session: Session,
    crawls: str | Iterable[str] = "all",
    *,
    read_subset: str | None = None,
    seed: int | None = None,
    repair: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Checked:
    """Check what is stored; see ``Catalogue.check``."""
    share = Share.of(read_subset) if read_subset is not None else None
    with session.reporting(report, "values") as progress:
        return _Check(session, crawls, progress).run(share, seed, repair=repair)


class _Check:
    def __init__(self, session: Session, crawls: str | Iterable[str], report: Callable[[Progress], None]) -> None:
        self._session = session
        self._words = several(crawls)
        self._report = report
        self._checked = Checked()

    def run(self, share: Share | None, seed: int | None, *, repair: bool) -> Checked:
        store = self._open()
        if store is None:
            return self._checked
        if repair and store.read_only:
            raise unwritable(store.path)
        dataset = self._dataset(store)
        crawls = self._crawls(store, dataset)
        self._check_values(store, dataset, crawls)
        if dataset is None:
            if not any(finding.kind == "documents" for finding in self._checked.findings):
                self._find("documents", DATASET_DOCUMENT, "it is missing", self._definition(DATASET_DOCUMENT))
            return self._checked
        if share:
            self._compare(share, seed, store, dataset, crawls)
        if repair:
            self._drop(store, dataset)
        if repair or not self._checked.findings:
            self._check_database(store, dataset, crawls, repair=repair)
        self._checked.repaired = repair
        files = [file for path in self._checked.dropped if (file := dataset.file(path))]
        for crawl in newest_first({file.crawl for file in files}):
            subsets = sorted({file.subset for file in files if file.crawl == crawl})
            self._checked.harvests.append(dataset.harvest_command(crawl, subsets))
        return self._checked

    def _find(self, kind: str, key: str, what: str, next_: str | None = None) -> None:
        self._checked.findings.append(Finding(kind, key, what, *([next_] if next_ else [])))

    def _open(self) -> Store | None:
        """Return the store, unless its file is damaged."""
        try:
            store = self._session.store
            problem = store.problem()
        except (DiskFailed, StoreLocked):
            raise
        except StoreDamaged as error:
            problem = str(error)
        if problem:
            self._find("store", "", f"{self._session.store_path} is damaged: {problem}", RECOVERY)
            return None
        return store

    def _dataset(self, store: Store) -> Dataset | None:
        """Return the dataset; None if its definition is damaged."""
        if self._session.dataset_name is None:
            return COMMON_CRAWL
        with suppress(StoreDamaged, FormatError):
            return load_dataset(store)
        return None

    def _crawls(self, store: Store, dataset: Dataset | None) -> set[str] | None:
        """Return the crawls whose values are checked; None for all."""
        if dataset is None or self._words == ["all"]:
            return None
        files = (dataset.file(path) for table in ("files", "failures") for path in store.keys(table))
        return {*select_stored(self._session, {file.crawl for file in files if file}, self._words)}

    def _check_values(self, store: Store, dataset: Dataset | None, crawls: set[str] | None) -> None:
        progress = Progress("check", sum(map(store.count, TABLES)), 0)
        self._report(progress)
        versions: dict[str, Label | None] = {}
        for table in TABLES:
            self._checked.values[table] = 0
            for key, value in store.values(table):
                size = len(value) if isinstance(value, bytes) else 0
                progress.done += 1
                progress.bytes += size
                if progress.done % _REPORT_EVERY == 0:
                    self._report(progress)
                if crawls is not None and dataset and _crawl_of(table, key, dataset) not in {None, *crawls}:
                    continue
                self._checked.values[table] += 1
                self._checked.bytes += size
                label = label_of(value) if isinstance(key, str) and key.isprintable() else None
                if table == "files":
                    versions[key] = label
                if problem := _DAMAGED[table] if label is None else _misplaced(table, key, label, dataset, versions):
                    self._find(table, str(key), problem, self._definition(str(key)))
        self._report(progress)

    def _definition(self, key: str) -> str | None:
        """Return the command that defines the dataset again, for keys of its definition."""
        if key not in {DATASET_DOCUMENT, PATHS_DOCUMENT}:
            return None
        files = "PATH..." if key == PATHS_DOCUMENT else "--manifest PATH"
        return f"catalogue harvest --table {self._session.dataset_name} --key COLUMN {files}, as it was defined"

    def _drop(self, store: Store, dataset: Dataset) -> None:
        """Delete damaged values."""
        for table in TABLES:
            keys = [each.key for each in self._checked.findings if each.kind == table and each.next == REPAIR]
            store.delete(table, keys)
            if table == "files":
                self._note_missing(store, [key for key in keys if dataset.file(key)], "its stored footer was damaged")

    def _note_missing(self, store: Store, paths: list[str], reason: str) -> None:
        """Store failures for files that were deleted, so that answers say that they are incomplete."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if paths:
            store.put("failures", [(path, StoredFile(b"", 0, None, None, "", now, note=reason)) for path in paths])
        self._checked.dropped += paths

    def _check_database(self, store: Store, dataset: Dataset, crawls: set[str] | None, *, repair: bool) -> None:
        path = self._session.writable_database(changes=repair)
        if repair:
            metadata_db.rebuild(path, store, dataset)
        for problem in metadata_db.problems(path, store, dataset):
            self._find("catalogue", "", f"{path.name} differs from the store: {problem}")
        self._checked.catalogue = True
        if dataset != COMMON_CRAWL or self._checked.findings:
            return
        suspects = dict(metadata_db.suspects(path, store))
        for each, problem in suspects.items():
            if crawls is None or _crawl_of("files", each, dataset) in crawls:
                self._find("suspect", each, f"{problem}; the source may have sent one for the other")
        if repair and suspects:
            paths = [finding.key for finding in self._checked.findings if finding.kind == "suspect"]
            store.delete("files", paths)
            self._note_missing(store, paths, "its stored footer may be that of another file")
            metadata_db.refresh(path, store, dataset)

    def _compare(self, share: Share, seed: int | None, store: Store, dataset: Dataset, crawls: set[str] | None) -> None:
        """Compare a share of the files with the source, by one request for each."""
        checked, source = self._checked, self._session.source
        damaged = {finding.key for finding in checked.findings if finding.kind == "files"}
        paths = [
            path
            for path in store.keys("files")
            if path not in damaged and (file := dataset.file(path)) and (crawls is None or file.crawl in crawls)
        ]
        drawn = secrets.randbelow(1 << 32) if seed is None else seed
        checked.seed = None if share.part else drawn
        comparison = Comparison(store, dataset, source)
        chosen = share.choose(paths, comparison.length, drawn) if paths else []
        checked.empty = not chosen
        progress = Progress("source", len(chosen), 0)
        before = source.bytes
        self._report(progress)
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="check")
        try:
            for findings in executor.map(comparison.compare, chosen):
                checked.findings += findings
                checked.compared += 1
                checked.equal += not findings
                progress.done, progress.bytes = progress.done + 1, source.bytes - before
                self._report(progress)
        except SourceError as error:
            checked.failure = error
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def _crawl_of(table: str, key: str, dataset: Dataset) -> str | None:
    """Return the crawl that a key of a table belongs to; None if it belongs to none."""
    if table == "documents":
        return next(iter(manifests([key])), None) if dataset == COMMON_CRAWL else None
    path, _ = (table == "indexes" and row_group_of(key)) or (key, 0)
    file = dataset.file(path)
    return file.crawl if file else None


def _misplaced(
    table: str, key: str, label: Label, dataset: Dataset | None, versions: Mapping[str, Label | None]
) -> str | None:
    """Return what is wrong with the key of a valid value."""
    if table == "documents" or dataset is None:
        return None
    path, _ = (table == "indexes" and row_group_of(key)) or (key, 0)
    if dataset.file(path) is None or (table == "indexes" and row_group_of(key) is None):
        return "this is not the path of an index file"
    if table not in {"indexes", "facts"}:
        return None
    if path not in versions:
        return "it belongs to a file that is not stored"
    file = versions[path]
    if table == "indexes" and file and file.version != label.version:
        return "it belongs to another version of the file"
    return None
