"""Looking at the store, value by value, and at the catalogue that is derived from it."""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from catalogue import metadata_db
from catalogue.check.compare_files import Comparison
from catalogue.check.findings import LOST, REPAIR, Checked, Finding, Share
from catalogue.commoncrawl.datasets import COMMON_CRAWL, DATASET_DOCUMENT, PATHS_DOCUMENT, Dataset
from catalogue.errors import SourceError, StoreDamaged
from catalogue.examine import Examiner
from catalogue.progress import Progress
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.inspecting import Inspection, Seen, inspected
from catalogue.store.schema import TABLES, row_group_of
from catalogue.store.stored_file import Label
from catalogue.store.stored_lists import manifests

_MEANS = {
    "files": "the footer is not what was written; questions about it fail",
    "documents": "the list is not what was written",
    "failures": "the note why it could not be taken is not what was written",
    "indexes": "the page index is not what was written; questions do without it",
    "facts": "what was found in the footer is not what was written; it is found again when it is needed",
}
_EVERY = 500
"""Values after which it is told how far it is."""
_TRIES = 3
"""How often the catalogue is compared, if somebody writes to the store meanwhile."""


class Check:
    """Looks at what is held of some crawls."""

    def __init__(
        self,
        path: Path,
        crawls: Collection[str] | None = None,
        *,
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Prepare to look.

        Args:
            path: of the store's file.
            crawls: whose values are looked at; all, and what belongs to none, if that is None.
            report: told how far it is.
        """
        self._path = path
        self._crawls = crawls
        self._report = report
        self.checked = Checked()

    def _found(self, kind: str, key: str, what: str, mend: str = REPAIR) -> None:
        self.checked.findings.append(Finding(kind, key, what, mend))

    # ---- the store ----

    def look_at_file(self) -> bool:
        """Look at the store's file, apart from values; returns whether it can be opened and read on.

        Raises:
            StoreError: if it is something else than a store of this version.
        """
        with inspected(self._path) as inspection:
            wrong = inspection.wrong()
        if wrong:
            self._found("store", "", f"the file {self._path.name} is damaged: {wrong}")
        return wrong is None

    def look_at_values(self, table: Dataset, *, fresh: Callable[[], bool]) -> None:
        """Look at every value of the store.

        Args:
            table: of which it holds the footers.
            fresh: whether the catalogue shows all that is in it, asked once, when this has begun.

        Raises:
            StoreDamaged: if they cannot be read on, as in a file that is damaged.
        """
        with inspected(self._path) as inspection:
            inspection.begin()
            shown = fresh()
            at = Progress("check", sum(inspection.sizes().values()), 0)
            self._report(at)
            versions: dict[str, Seen] = {}
            documents: dict[str, Label | None] = {}
            for each in TABLES:
                self.checked.values[each] = 0
                for seen in self._wanted(inspection, each, table, at):
                    if each == "files":
                        versions[seen.key] = seen
                    elif each == "documents":
                        documents[seen.key] = seen.label
                    elif each == "failures" and seen.label and seen.label.note == LOST:
                        versions[seen.key] = replace(seen, label=None)  # what is known of its pages may be right
                    if wrong := self._wrong(each, seen, table, versions, fresh=shown):
                        self._found(each, seen.key, wrong, _mend(each, seen.key, table))
            # What is not there has no digest; and a definition that is damaged does not say which list it means.
            if table != COMMON_CRAWL and versions and documents.get(DATASET_DOCUMENT, True):
                needed = (DATASET_DOCUMENT, table.manifest or PATHS_DOCUMENT)
                if lost := next((key for key in needed if key not in documents), None):
                    self._found("documents", lost, "it is not there any more", _mend("documents", lost, table))
            self._report(at)

    def _wanted(self, inspection: Inspection, name: str, table: Dataset, at: Progress) -> Iterator[Seen]:
        """The values of one of the store's tables that belong to the crawls, or to none."""
        crawls = None if self._crawls is None else {None, *self._crawls}
        for seen in inspection.values(name):
            at.done += 1
            at.bytes += seen.size
            if at.done % _EVERY == 0:
                self._report(at)
            if crawls is None or crawl_of(name, seen.key, table) in crawls:
                self.checked.values[name] += 1
                self.checked.bytes += seen.size
                yield seen

    def _wrong(self, name: str, seen: Seen, table: Dataset, files: dict[str, Seen], *, fresh: bool) -> str | None:
        """What is wrong with a value; files come first."""
        if seen.label is None:
            return _MEANS[name]
        if name == "documents":
            return None
        path = seen.key
        if name == "indexes":
            of = row_group_of(seen.key)
            if not of:
                return "no page index has such a key"
            path, _ = of
        if table.file(path) is None:
            return "this is no path of a file"
        if name == "failures" and seen.label.note == LOST:
            return "it was lost with the damaged store, and is to be taken again"
        return None if name in {"files", "failures"} else _foreign(name, seen.label, files.get(path), fresh=fresh)

    # ---- the catalogue ----

    def look_at_catalogue(self, path: Path, store: Store, table: Dataset) -> None:
        """Compare the catalogue with one that is made anew of the store.

        Raises:
            DiskFailed: if that cannot be made.
        """
        for _ in range(_TRIES):
            state = (store.state(), store.index_state())
            try:
                different = self._compared(path, store, table)
            except StoreDamaged:
                if self._crawls is None:
                    raise
                return  # of a crawl that nobody asked about
            if not different or (store.state(), store.index_state()) == state:  # and nobody wrote to it meanwhile
                break
        else:
            return
        self.checked.catalogue = True
        for what in different:
            self._found("catalogue", "", f"{path.name} is not what the store says: {what}")
        if not different:
            self._suspect(path, store, table)

    def _compared(self, path: Path, store: Store, table: Dataset) -> list[str]:
        """What is wrong with the catalogue."""
        if found := metadata_db.up_to_date(path, store, table):
            return [found]
        with TemporaryDirectory(prefix="catalogue-") as folder:
            anew = Path(folder) / "anew.duckdb"
            metadata_db.make_anew(anew, path, store, table)
            return list(metadata_db.differences(path, anew))

    def _suspect(self, path: Path, store: Store, table: Dataset) -> None:
        """Files of which something else than a checksum says that they may be others."""
        if table != COMMON_CRAWL:  # of which nobody knows whether two files may be the same
            return
        with metadata_db.reading(path) as connection:
            alike = metadata_db.alike(connection)
            intruders = list(metadata_db.intruders(connection))
        for paths in alike:
            seen: dict[bytes, str] = {}
            for each in paths:
                held = store.get("files", each)
                if held and (other := seen.setdefault(held.data, each)) != each:
                    for one, two in ((other, each), (each, other)):
                        self._suspected(
                            one, f"its footer is the same as that of {two}: one was served for the other", table
                        )
        for each, other in intruders:
            what = f"it has keys between those of {other}, as hardly any files of its crawl and subset have"
            self._suspected(each, f"{what}: another may have been served for it", table)

    def _suspected(self, path: str, what: str, table: Dataset) -> None:
        file = table.file(path)
        if self._crawls is None or (file and file.crawl in self._crawls):
            self._found("suspect", path, what)

    # ---- the source ----

    def compare(
        self, share: Share, seed: int, store: Store, table: Dataset, source: PoliteSource, examiner: Examiner
    ) -> None:
        """Compare a share of what is held with the source, by one request a file, and with what footers say.

        Args:
            share: of the files.
            seed: draws them.
            store: which holds them.
            table: they belong to.
            source: to be asked.
            examiner: looks into the footers once more.
        """
        damaged = {finding.key for finding in self.checked.findings if finding.kind == "files"}
        of_these = self._crawls
        paths = [
            path
            for path in store.keys("files")
            if path not in damaged and (file := table.file(path)) and (of_these is None or file.crawl in of_these)
        ]
        self.checked.seed = None if share.part else seed
        one = Comparison(store, table, source, examiner)
        chosen = share.choose(paths, one.length, seed) if paths else []
        self.checked.empty = not chosen
        at = Progress("source", len(chosen), 0)
        before = source.bytes
        self._report(at)
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="check")
        try:
            for findings in executor.map(one.compare, chosen):
                self.checked.findings += findings
                self.checked.compared += 1
                self.checked.equal += not findings
                at.done, at.bytes = at.done + 1, source.bytes - before
                self._report(at)
        except SourceError as error:
            self.checked.failure = error
        finally:
            # Not waited for: whoever broke this off closes the source next, which ends what is under way.
            executor.shutdown(wait=False, cancel_futures=True)


def _foreign(name: str, label: Label, file: Seen | None, *, fresh: bool) -> str | None:
    """What is wrong with something derived of a file, as that is held."""
    if file is None:
        return "it is of a file that is not held"
    if file.label is None:  # then nobody can tell
        return None
    of_another = (
        label.version != file.label.version if name == "indexes" else not metadata_db.are_of(label.note, file.digest)
    )
    if of_another and (name == "indexes" or fresh):
        return "it is of another version of the file than is held"
    return None


def crawl_of(name: str, key: str, table: Dataset) -> str | None:
    """The crawl to which a key of one of the store's tables belongs; None if to none, or it is no such key."""
    if name == "documents":
        return next(iter(manifests([key])), None) if table == COMMON_CRAWL else None
    path, _ = (name == "indexes" and row_group_of(key)) or (key, 0)
    file = table.file(path)
    return file.crawl if file else None


def _mend(name: str, key: str, table: Dataset) -> str:
    if name == "documents" and key in {DATASET_DOCUMENT, PATHS_DOCUMENT}:
        files = "PATH..." if key == PATHS_DOCUMENT else "--manifest PATH"
        return f"catalogue harvest --table {table.name} --key COLUMN {files}, as it was defined"
    return REPAIR
