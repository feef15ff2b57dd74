"""Check every stored value and the metadata database."""

import random
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import accumulate, takewhile

from catalogue.check.compare_files import REPAIR, Finding, compare_with_source, compared_length
from catalogue.commoncrawl.crawls import CrawlWords, newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, DATASET_DOCUMENT, PATHS_DOCUMENT, Dataset
from catalogue.errors import FormatError, QueryError, SourceError, StoreDamaged
from catalogue.formatting import ReprMixin, parse_size, plural, size
from catalogue.metadata_db import differences
from catalogue.metadata_db.refresh import refresh
from catalogue.progress import Progress, Report
from catalogue.query.arguments import several
from catalogue.selection import select_stored
from catalogue.session import Session
from catalogue.source.parallel import run_ahead
from catalogue.store.layout import TABLES, file_version_of, marker, row_group_of, unwritable
from catalogue.store.stored_lists import (
    LISTS,
    SEARCHES,
    SHARDS,
    crawls_with_blocks,
    forget_list,
    load_dataset,
    manifests,
    open_list,
)
from catalogue.tables.table_file import TABLES_FOLDER
from catalogue.tables.update_tables import damaged_tables, remake_tables

_RECOVERY = "sqlite3 {} .recover | sqlite3 recovered.sqlite; or harvest into another data folder"
_DAMAGED = {
    "files": "the stored footer is damaged; queries cannot use it",
    "documents": "the stored list is damaged",
    "failures": "the stored reason of a failure is damaged",
    "indexes": "the stored page index is damaged; queries run without it",
    "facts": "the stored results of searches are damaged; the next query searches again",
}
_WAS_DAMAGED, _OF_ANOTHER = "its stored footer was damaged", "its stored footer may be that of another file"
_REPORT_EVERY = 500


@dataclass(slots=True, repr=False)
class Checked(ReprMixin):
    """The result of a check."""

    findings: list[Finding] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    """The number of values, by table of the store."""
    bytes: int = 0
    catalogue: bool = False
    """Whether the metadata database was compared with the store."""
    compared: int = 0
    """The number of files that were compared with the source, by one request each."""
    equal: int = 0
    seed: int | None = None
    notes: list[str] = field(default_factory=list)
    """Sentences about a requested comparison that was not made, and why."""
    failure: SourceError | None = None
    """Why not all of the share could be compared."""
    repaired: bool = False
    """Whether damaged values were deleted and the metadata database was rebuilt."""
    dropped: list[str] = field(default_factory=list)
    """Paths of files whose stored footers were deleted."""
    harvests: list[str] = field(default_factory=list)
    """The commands that fetch them again."""

    @property
    def unrepaired(self) -> list[Finding]:
        """The findings that this check did not repair."""
        return [finding for finding in self.findings if not (self.repaired and finding.next == REPAIR)]

    @property
    def commands(self) -> list[str]:
        """What to run next."""
        return [*dict.fromkeys(finding.next for finding in self.unrepaired if finding.next), *self.harvests]

    @property
    def complete(self) -> bool:
        """Whether everything is valid now, and something of a requested comparison was compared."""
        return not (self.unrepaired or self.harvests or self.notes) and self.failure is None

    def _line(self) -> str:
        found = plural(len(self.findings), "finding") if self.findings else "no defects"
        return f"{sum(self.values.values()):,} values, {size(self.bytes)}: {found}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from ((table, f"{count:,}") for table, count in self.values.items())
        yield "catalogue", "compared with the store" if self.catalogue else "not compared with the store"
        if self.compared:
            yield "source", f"{self.equal:,} of {plural(self.compared, 'file')} equal"

    def _notes(self) -> Iterator[str]:
        yield from self.notes
        if self.failure:
            yield f"Not all of the share could be compared: {self.failure}"
        yield from (f"run: {command}" for command in self.commands)
        yield from (f"{finding.kind}: {finding}" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Share:
    """Which files are compared with the source."""

    percent: float | None = None
    part: tuple[int, int] | None = None
    size: int | None = None

    @classmethod
    def of(cls, text: str) -> "Share":
        if percent := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text):
            if 0 < float(percent[1]) <= 100:  # noqa: PLR2004
                return cls(percent=float(percent[1]))
        elif part := re.fullmatch(r"([0-9]+)/([0-9]+)", text):
            if 1 <= int(part[1]) <= int(part[2]):
                return cls(part=(int(part[1]), int(part[2])))
        else:
            with suppress(QueryError):
                return cls(size=parse_size(text))
        raise QueryError(
            f"{text!r} is not a share of the files; write it as 1%, as 3/30 for the third of thirty parts, or as 50MB"
        )

    def choose(self, paths: Sequence[str], length: Callable[[str], int], seed: int) -> list[str]:
        """Return the chosen paths, sorted; each file is in one part, independently of others."""
        if self.part:
            at, parts = self.part
            digests = {path: blake2b(path.encode(), digest_size=8).digest() for path in sorted(paths)}
            return [path for path, digest in digests.items() if int.from_bytes(digest) % parts == at - 1]
        drawn = random.Random(seed).sample(sorted(paths), len(paths))  # noqa: S311
        if self.percent is not None:
            return sorted(drawn[: max(1, round(len(drawn) * self.percent / 100))])
        most = self.size or 0
        within = takewhile(lambda total: total <= most, accumulate(map(length, drawn)))
        return sorted(drawn[: max(1, sum(1 for _ in within))])


def check_store(
    session: Session,
    crawls: CrawlWords,
    read_subset: str | None,
    seed: int | None,
    report: Report | None,
    *,
    repair: bool,
) -> Checked:
    share = Share.of(read_subset) if read_subset is not None else None
    if seed is not None and share is None:
        raise QueryError("a seed needs a share to compare, such as read_subset='5%'")
    drawn = secrets.randbelow(1 << 32) if seed is None else seed
    with session.reporting(report, "values") as progress:
        try:
            store = session.store
            problem = store.problem()
        except StoreDamaged as error:
            problem = str(error).partition("; run: ")[0]
        if problem:
            command = _RECOVERY.format(shlex.quote(str(session.store_path)))
            return Checked([Finding("store", "", f"{session.store_path} is damaged: {problem}", command)])
        if repair and store.read_only:
            raise unwritable(store.path)
        dataset = COMMON_CRAWL if session.dataset_name is None else None
        with suppress(StoreDamaged, FormatError):
            dataset = dataset or load_dataset(store)
        chosen, words = None, several(crawls, "crawls")
        if dataset and words != ("all",):
            files = (dataset.file(path) for table in ("files", "failures") for path in store.keys(table))
            chosen = {
                *select_stored(session, words, {file.crawl for file in files if file} | {*crawls_with_blocks(store)})
            }
        checked = _check_values(session, dataset, chosen, progress)
        _check_lists(session, checked, chosen, repair=repair)
        if dataset:
            _Check(session, dataset, chosen, checked).run(share, drawn, progress, repair=repair)
        elif not any(finding.kind == "documents" for finding in checked.findings):
            next_ = _definition(DATASET_DOCUMENT, session)
            checked.findings.append(Finding("documents", DATASET_DOCUMENT, "it is missing", next_))
        return checked


def _check_values(
    session: Session, dataset: Dataset | None, crawls: set[str] | None, report: Callable[[Progress], None]
) -> Checked:
    checked = Checked()
    progress = Progress("check", sum(map(session.store.count, TABLES)), 0)
    report(progress)
    before, misplaced = session.store.states(), False
    versions: dict[str, object] = {}
    for table in TABLES:
        checked.values[table] = 0
        for key, value in session.store.values(table):
            length = len(value) if isinstance(value, bytes) else 0
            progress.done += 1
            progress.bytes += length
            if progress.done % _REPORT_EVERY == 0:
                report(progress)
            if crawls is not None and dataset and _crawl_of(table, key, dataset) not in {None, *crawls}:
                continue
            checked.values[table] += 1
            checked.bytes += length
            version = file_version_of(value) if isinstance(key, str) and key.isprintable() else None
            if table == "files":
                versions[key] = version
            if problem := _DAMAGED[table] if version is None else _misplaced(table, key, version, dataset, versions):
                checked.findings.append(Finding(table, str(key), problem, _definition(str(key), session)))
                misplaced |= version is not None
    if misplaced and before != session.store.states():
        raise differences.changed_during_check(session.store)  # tables were read one after the other
    report(progress)
    return checked


def _check_lists(session: Session, checked: Checked, crawls: set[str] | None, *, repair: bool) -> None:
    """Read the lists of blocks completely; ``repair`` deletes damaged ones.

    A damaged directory is a value of the store.
    """
    checked.values["blocks"] = 0
    for crawl in crawls_with_blocks(session.store):
        if crawls is not None and crawl not in crawls:
            continue
        try:
            found = open_list(session.store, crawl)
            checked.bytes += found.read_all() if found else 0
        except StoreDamaged as error:
            if str(error).startswith(LISTS):
                continue
            problem = str(error).partition("; run: ")[0]
            checked.findings.append(Finding("blocks", LISTS + crawl, problem, REPAIR))
            if repair:
                with session.store.harvesting(crawl):
                    forget_list(session.store, crawl)
                checked.harvests.append(f"catalogue harvest --crawl {crawl} --index cdx")
        checked.values["blocks"] += 1


def _definition(key: str, session: Session) -> str:
    if key not in {DATASET_DOCUMENT, PATHS_DOCUMENT}:
        return REPAIR
    files = "PATH..." if key == PATHS_DOCUMENT else "--manifest PATH"
    return f"catalogue harvest --table {session.dataset_name} --key COLUMN {files}, as it was defined"


@dataclass(frozen=True, slots=True)
class _Check:
    session: Session
    dataset: Dataset
    crawls: set[str] | None
    checked: Checked

    def run(self, share: Share | None, seed: int, report: Callable[[Progress], None], *, repair: bool) -> None:
        checked = self.checked
        if share:
            self._compare(share, seed, report)
        if repair:
            self.session.store.repair_keys()
            for table in TABLES:
                keys = [each.key for each in checked.findings if each.kind == table and each.next == REPAIR]
                if table == "files":
                    self._note_missing(filter(self.dataset.file, keys), _WAS_DAMAGED)
                self.session.store.delete(table, keys)
        if repair or not checked.findings:
            try:
                self._check_database(repair=repair)
            except StoreDamaged as error:  # keys that are not text
                checked.findings.append(Finding("store", "", str(error)))
        checked.repaired = repair
        if repair:  # also those that an earlier repair deleted before it was stopped
            checked.dropped = [path for path, note in self._failures() if note in {_WAS_DAMAGED, _OF_ANOTHER}]
        files = [file for path in checked.dropped if (file := self.dataset.file(path))]
        for crawl in newest_first({file.crawl for file in files}):
            subsets = sorted({file.subset for file in files if file.crawl == crawl})
            checked.harvests.append(self.dataset.harvest_command(crawl, subsets))

    def _note_missing(self, paths: Iterable[str], reason: str) -> None:
        """Store failures for deleted files, so that answers are incomplete, and forget pulls of their crawls."""
        store, failures = self.session.store, [(path, marker(reason)) for path in paths]
        if failures:
            store.put("failures", failures)
        for file in filter(None, (self.dataset.file(path) for path, _ in failures)):
            store.delete("documents", store.keys("documents", f"snapshots/{file.crawl}/"))

    def _failures(self) -> Iterator[tuple[str, str]]:
        store = self.session.store
        return ((path, value.note) for path in store.keys("failures") if (value := store.get("failures", path)))

    def _check_database(self, *, repair: bool) -> None:
        store, dataset, checked = self.session.store, self.dataset, self.checked
        path = self.session.writable_database()
        if repair:
            remake_tables(self.session.writable_tables(), store, dataset)
            differences.rebuild(path, store, dataset)
        for name in damaged_tables(self.session.writable_tables()):
            checked.findings.append(Finding("catalogue", "", f"{TABLES_FOLDER}/{name} is damaged"))
        for problem in differences.problems(path, store, dataset):
            checked.findings.append(Finding("catalogue", "", f"{path.name} differs from the store: {problem}"))
        checked.catalogue = True
        if dataset != COMMON_CRAWL or checked.findings:
            return
        suspects = dict(differences.suspects(path, store))
        chosen = [each for each in suspects if self.crawls is None or _crawl_of("files", each, dataset) in self.crawls]
        for each in chosen:
            what = f"{suspects[each]}; the source may have sent the wrong file"
            checked.findings.append(Finding("suspect", each, what))
        if repair and chosen:
            self._note_missing(chosen, _OF_ANOTHER)
            store.delete("files", chosen)
            refresh(path, store, dataset)

    def _compare(self, share: Share, seed: int, report: Callable[[Progress], None]) -> None:
        checked, source = self.checked, self.session.source
        damaged = {finding.key for finding in checked.findings if finding.kind == "files"}
        paths = [
            path
            for path in self.session.store.keys("files")
            if path not in damaged
            and (file := self.dataset.file(path))
            and (self.crawls is None or file.crawl in self.crawls)
        ]
        checked.seed = None if share.part else seed
        chosen = share.choose(paths, partial(compared_length, self.session), seed) if paths else []
        if not chosen:
            checked.notes.append(
                "no file was compared with the source: the share contains no file; choose another, such as 1%"
            )
        progress = Progress("source", len(chosen), 0)
        before = source.bytes
        report(progress)

        def compare(path: str) -> list[Finding]:
            return [*compare_with_source(self.session, path)]

        with closing(run_ahead(source.connections, compare, chosen)) as calls:
            try:
                for _, call in calls:
                    findings = call.result()
                    checked.findings += findings
                    checked.compared += 1
                    checked.equal += not findings
                    progress.done, progress.bytes = progress.done + 1, source.bytes - before
                    report(progress)
            except SourceError as error:
                checked.failure = error


_OF_BLOCKS = {"documents": (LISTS,), "facts": (SEARCHES, SHARDS)}
"""Prefixes of the keys of values about lists of blocks, by table."""


def _crawl_of(table: str, key: str, dataset: Dataset) -> str | None:
    if any(map(key.startswith, _OF_BLOCKS.get(table, ()))):
        return key.partition("/")[2]
    if table == "documents":
        return next(iter(manifests([key])), None) if dataset == COMMON_CRAWL else None
    path, _ = (table == "indexes" and row_group_of(key)) or (key, 0)
    file = dataset.file(path)
    return file.crawl if file else None


def _misplaced(
    table: str, key: str, version: object, dataset: Dataset | None, versions: Mapping[str, object]
) -> str | None:
    if table in {"documents", "facts"} or dataset is None:
        return None
    place = row_group_of(key) if table == "indexes" else (key, 0)
    if place is None or dataset.file(place[0]) is None:
        return "this is not the path of an index file"
    if table == "indexes" and place[0] not in versions:
        return "it belongs to a file that is not stored"
    if table == "indexes" and versions[place[0]] not in {None, version}:
        return "it belongs to another version of the file"
    return None
