"""What a check found to be wrong is forgotten, and taken or found again.

What the source has is asked for before what is damaged is let go of, and only that. So whatever happens meanwhile
nothing is lost that was good, and to run it again goes on from there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from catalogue.check.findings import LOST, Finding, told_next
from catalogue.commoncrawl.datasets import COMMON_CRAWL, DATASET_DOCUMENT, PATHS_DOCUMENT, Dataset
from catalogue.commoncrawl.manifests import COLLINFO, IndexFile, manifest_path
from catalogue.display import Displayed
from catalogue.errors import FormatError, StoreDamaged, UnknownCrawl
from catalogue.examine import Examiner
from catalogue.formatting import plural
from catalogue.harvest.crawl_list import fetch_path_list
from catalogue.harvest.harvest import Harvested, harvest
from catalogue.parquet.summary import FileSummary
from catalogue.progress import Progress
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile
from catalogue.store.stored_lists import manifests, note_requested, requested_subsets


@dataclass(slots=True, repr=False)
class Repaired(Displayed):
    """What a repair came to."""

    found: list[Finding] = field(default_factory=list)
    """What was wrong."""
    left: list[Finding] = field(default_factory=list)
    """What is so still, or may be."""
    aside: Path | None = None
    """What the damaged store is called now, if a new one was made of what was whole in it."""
    salvaged: dict[str, int] = field(default_factory=dict)
    """How many values that were, by table."""
    taken: list[str] = field(default_factory=list)
    """Paths of files whose footers were taken again."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons why others could not be, by path."""
    forgotten: list[str] = field(default_factory=list)
    """Page indexes that their files do not have, ``path#row_group``: reading taught them, and will again."""
    catalogue: bool = False
    """Whether the catalogue was made anew."""
    requests: int = 0
    """Made of the source."""

    @property
    def complete(self) -> bool:
        """Whether all is well again."""
        return not (self.left or self.failures)

    def _line(self) -> str:
        if not self.found:
            return "nothing: all is well"
        state = "all is well again" if self.complete else f"{plural(len(self.left), 'finding')} left"
        return f"{plural(len(self.found), 'finding')}: {state}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        if self.aside:
            yield "the damaged store", str(self.aside)
        yield "footers taken again", f"{len(self.taken):,}"
        yield "requests", f"{self.requests:,}"
        yield "catalogue", "made anew" if self.catalogue else "left as it was"

    def _notes(self) -> Iterator[str]:
        yield from (f"failed: {path}: {reason}" for path, reason in self.failures.items())
        yield from told_next(self.left)


def note_lost(store: Store, table: Dataset, keys: Iterable[str]) -> None:
    """Note as failures which files are not held any more, so that answers say so until they are taken again."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lost = StoredFile(b"", 0, None, None, "", now, note=LOST)
    if paths := [path for path in sorted(keys) if table.file(path)]:
        store.put("failures", [(path, lost) for path in paths])


class Repair:
    """Mends a store whose file is well."""

    def __init__(
        self,
        store: Store,
        table: Dataset,
        source: Callable[[], PoliteSource],
        examiner: Examiner,
        *,
        crawl_list: Callable[[], object],
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Prepare to.

        Args:
            store: to be mended.
            table: of which it holds the footers.
            source: to be asked, if need be.
            examiner: looks into the footers.
            crawl_list: takes the list of crawls.
            report: told how far it is.
        """
        self._store = store
        self._table = table
        self._source = source
        self._examiner = examiner
        self._crawl_list = crawl_list
        self._report = report
        self.facts: dict[str, FileSummary] = {}
        """Of the files that were taken again, by path."""

    def mend(self, findings: Sequence[Finding], repaired: Repaired, *, lost: Iterable[str] = ()) -> None:
        """Forget what is wrong, and take again what the source has.

        Args:
            findings: what is wrong.
            repaired: is told what was done.
            lost: keys that are not there any more.

        Raises:
            SourceError: if the source fails as a whole; what was mended until then is.
            StoreLocked: if another process harvests the same.
        """
        wrong: dict[str, list[str]] = {}
        for finding in findings:
            wrong.setdefault(finding.kind, []).append(finding.key)
        gone = [*wrong.get("indexes", ()), *(key for key in lost if "#" in key)]
        self._store.delete("facts", wrong.get("facts", ()))
        self._store.delete("indexes", gone)
        for kind in ("files", "failures"):
            self._store.delete(kind, [path for path in wrong.get(kind, ()) if self._table.file(path) is None])
        damaged = self._take_documents({*wrong.get("documents", ()), *lost})
        again = {*wrong.get("files", ()), *wrong.get("suspect", ()), *wrong.get("failures", ())}
        self._take_files(self._by_crawl(again | self._lost()), dict.fromkeys(damaged, ()), repaired)
        self._drop(wrong.get("files", ()))
        self._take_indexes(gone, repaired)

    def _take_documents(self, keys: set[str]) -> list[str]:
        """Take lists again, or forget what is none; returns the crawls whose lists are to be taken with their files."""
        if COLLINFO in keys:
            self._crawl_list()
        if self._table.manifest in keys:
            fetch_path_list(self._table, self._store, self._source())
        lists = manifests(keys) if self._table == COMMON_CRAWL else {}
        kept = {COLLINFO, DATASET_DOCUMENT, PATHS_DOCUMENT, self._table.manifest, *lists.values()}
        self._store.delete("documents", keys - kept)
        note_requested(self._store, (IndexFile("", crawl, subset) for crawl, subset in requested_subsets(keys)))
        if self._table == COMMON_CRAWL:
            there = {*self._store.keys("documents")}
            held = self._by_crawl([*self._store.keys("files"), *self._store.keys("failures")])
            lists |= {crawl: path for crawl in held if (path := manifest_path(crawl)) not in there}
        return sorted(lists)

    def _take_files(
        self, paths: Mapping[str, Sequence[str]], others: Mapping[str, Sequence[str]], repaired: Repaired
    ) -> None:
        for crawl, wanted in sorted({**others, **paths}.items()):
            try:
                outcome = self._harvest(crawl, wanted)
            except (UnknownCrawl, FormatError) as error:  # its list cannot be had any more, and stands for nothing
                repaired.failures[manifest_path(crawl) if self._table == COMMON_CRAWL else crawl] = str(error)
                if self._table == COMMON_CRAWL and crawl in others:
                    self._store.delete("documents", [manifest_path(crawl)])
                continue
            self.facts |= outcome.facts
            repaired.taken += sorted(outcome.facts)
            repaired.failures |= outcome.failures

    def _harvest(self, crawl: str, paths: Iterable[str], *, pages: bool = False) -> Harvested:
        return harvest(
            crawl,
            (),
            table=self._table,
            store=self._store,
            source=self._source(),
            examiner=self._examiner,
            pages=pages,
            only=set(paths),
            report=self._report,
        )

    def _drop(self, paths: Iterable[str]) -> None:
        """Forget those damaged values of which nothing came instead: that they are lacking is noted."""
        damaged = []
        for path in paths:
            try:
                self._store.get("files", path)
            except StoreDamaged:
                damaged.append(path)
        note_lost(self._store, self._table, {*damaged} - {*self._store.keys("failures")})
        self._store.delete("files", damaged)

    def _take_indexes(self, keys: Sequence[str], repaired: Repaired) -> None:
        """Take page indexes again which the files have."""
        of = {key: named[0] for key in keys if (named := row_group_of(key))}
        held = {path for path in {*of.values()} if self._is_whole(path)}
        for crawl, paths in sorted(self._by_crawl(held).items()):
            repaired.failures |= self._harvest(crawl, paths, pages=True).failures
        there = {key for path in held for key in self._store.index_keys(path)}
        repaired.forgotten += sorted({key for key in of if of[key] in held} - there)

    def _is_whole(self, path: str) -> bool:
        with suppress(StoreDamaged):
            return self._store.get("files", path) is not None
        return False

    def _lost(self) -> set[str]:
        """Files that were lost with a damaged store, perhaps in an earlier repair that could not take them."""
        found = set()
        for path in self._store.keys("failures"):
            with suppress(StoreDamaged):
                held = self._store.get("failures", path)
                found |= {path} if held and held.note == LOST else set()
        return found

    def _by_crawl(self, paths: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in paths:
            if file := self._table.file(path):
                found.setdefault(file.crawl, []).append(path)
        return found
