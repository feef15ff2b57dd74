"""Run a join."""

import math
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from catalogue.atomic_files import errors_of, make_folder
from catalogue.captures import Captures
from catalogue.errors import UNUSABLE, Blocked, FormatError, NotHarvested, QueryError, SourceError, SourceUnavailable
from catalogue.formatting import join_first
from catalogue.join.inputs import Input, digest_of, open_input, read_once
from catalogue.join.joined import Joined, JoinEstimate, files_in_order
from catalogue.join.keys import JoinKeys
from catalogue.join.kinds import KINDS, Kind, distinct, kind_of
from catalogue.join.parts import (
    prefer_exact,
    result_of,
    row_groups_of,
    rows_of_other_urls,
    write_nothing,
    write_part,
    write_tables,
)
from catalogue.join.scope import JoinScope
from catalogue.join.slices import DEFAULT_SIZES, JoinLedger, JoinPart, Sizes, Slice
from catalogue.join.sort_keys import is_list_of_invalid, sort_keys
from catalogue.progress import Progress, Report
from catalogue.query.arguments import unknown_argument
from catalogue.query.parameters import BY_NAME
from catalogue.query.query import Query, QueryOptions
from catalogue.session import Session
from catalogue.store.locks import locked
from catalogue.surt.pattern import Match

_KEPT = 4
"""Rows of parts in memory, for each row of the input in a file of the result."""
_WORK, _LOCK = ".join", "lock"
_LEDGER, _KEYS, _PARTS = "ledger.jsonl", "keys", "parts"
_OWN = re.compile(r"\.?(?:CC-MAIN-[0-9-]+(?:-[a-z]+)?-[0-9]{5,}|part-[0-9]{5,}|nothing)\.parquet(?:\.part)?")
_OTHER_FORMATS = {".csv", ".tsv", ".json", ".jsonl", ".arrow", ".txt"}
_INVALID = "_invalid.csv"
"""Readers of a folder of Parquet files ignore names with an underscore."""


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """What is joined, and how."""

    query: Query
    """Crawls, subsets, columns, filters and index; its patterns are not used."""
    kind: Kind
    match: Match
    on: str | None

    @classmethod
    def of(cls, how: str, on: str | None, match: Match | str, query: QueryOptions) -> "JoinQuery":
        if others := sorted({*query}.difference(QueryOptions.__annotations__)):
            if {*others}.isdisjoint(BY_NAME):
                raise unknown_argument("join", others[0], QueryOptions.__annotations__)
            raise QueryError(f"a join does not have the options {join_first(others)}; filter its result instead")
        asked = Query.of("*", match=match, **query)
        match = asked.match or Match.EXACT
        return cls(replace(asked, match=None), kind_of(how, match), match, on)


def estimate(session: Session, asked: JoinQuery, keys: Input) -> JoinEstimate:
    with TemporaryDirectory(dir=session.temporary_folder) as folder:
        given, work = _read_once(keys), Path(folder)
        with closing(_JoinRun(session, asked, given, work, work / _INVALID, lambda _: None)) as run:
            return run.estimate()


def join(
    session: Session,
    asked: JoinQuery,
    keys: Input,
    output: Path,
    *,
    agree: Callable[[JoinEstimate], None] | None = None,
    budget: int | None = None,
    report: Report | None = None,
    sizes: Sizes = DEFAULT_SIZES,
) -> Joined:
    """Run a join, or the rest of one that was interrupted; see ``Catalogue.join``."""
    keys = _read_once(keys)
    is_file = _is_file(output, keys)
    folder = output.with_name(f".{output.name}.join") if is_file else output
    work = folder / _WORK
    invalid = output.with_name(f"{output.stem}{_INVALID}") if is_file else output / _INVALID
    if not work.exists() and folder.exists() and any(folder.iterdir()):
        raise QueryError(f"{folder} contains other files; choose an empty or a new folder")
    if is_file and invalid.exists() and not is_list_of_invalid(invalid):
        raise QueryError(f"{invalid} would be replaced by a list of invalid rows; choose another name")
    new = [path for path in (invalid, work, folder) if not path.exists()]
    with errors_of(output, folder.parent):
        make_folder(work)
    with locked(work / _LOCK, output), _removed_if_refused(new, folder), session.reporting(report, "slices") as bar:
        with closing(_JoinRun(session, asked, keys, work, invalid, bar, sizes)) as run:
            done = run.run(folder, output, agree, math.inf if budget is None else budget)
        if done.complete and is_file:
            (work / _LEDGER).unlink()  # first, so that a deletion that is interrupted leaves no complete join
        if done.complete:
            for name in (_KEYS, _PARTS):
                shutil.rmtree(work / name, ignore_errors=True)
        if done.complete and is_file:  # before another process can lock it
            shutil.rmtree(folder, ignore_errors=True)
    return done


@contextmanager
def _removed_if_refused(new: Collection[Path], folder: Path) -> Iterator[None]:
    work = folder / _WORK
    try:
        yield
    except (QueryError, UnicodeEncodeError):  # the latter: of a name that pyarrow does not open
        parts = (path for at in (folder, work / _PARTS) if at.exists() for path in _own_files(at))
        if work in new and next(parts, None) is None:
            for name in (_KEYS, _PARTS):
                shutil.rmtree(work / name, ignore_errors=True)
            with suppress(OSError):  # where open files cannot be deleted
                for path in (work / _LEDGER, work / _LOCK, *new):
                    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _read_once(keys: Input) -> Input:
    return keys.to_arrow() if isinstance(keys, Captures) else read_once(keys)


def _is_file(output: Path, keys: Input) -> bool:
    is_file = output.suffix.lower() == ".parquet"
    if output.suffix.lower() in _OTHER_FORMATS:
        message = f"a join writes Parquet; instead of {output.name} use a folder, or a name that ends in .parquet"
        raise QueryError(message)
    if is_file and output.is_dir():
        raise QueryError(f"{output} is a folder; choose another name")
    if is_file and isinstance(keys, str | Path) and Path(keys).exists() and output.exists() and output.samefile(keys):
        raise QueryError(f"{output} is the list of keys; choose another name for the result")
    if not is_file and output.exists() and not output.is_dir():
        raise QueryError(f"{output} is a file; for one file use a name that ends in .parquet")
    return is_file


class _JoinRun:
    def __init__(
        self,
        session: Session,
        asked: JoinQuery,
        given: Input,
        work: Path,
        invalid: Path,
        report: Report,
        sizes: Sizes = DEFAULT_SIZES,
    ) -> None:
        self._session, self._asked, self._kind, self._given = session, asked, asked.kind, given
        self._work, self._invalid, self._report, self._sizes = work, invalid, report, sizes
        self._scope = JoinScope(session, asked.query, asked.kind, sizes)
        self._slices: list[Slice] = []
        self._cut: list[tuple[str, str, str, list[Slice]]] = []
        """Crawl, index, state and slices that are not in the ledger yet."""
        self._ledger = JoinLedger(work / _LEDGER, self._described())

    def _described(self) -> dict[str, Any]:
        query = self._asked.query
        return {
            "how": self._kind.name,
            "match": self._asked.match.value,
            "on": self._asked.on,
            "input": digest_of(self._given),
            "crawls": self._scope.selection.crawls,
            "subsets": self._scope.selection.subsets,
            "columns": self._scope.query.columns,
            "where": [query.where, query.status, query.mime, query.lang, str(query.from_), str(query.to)],
            "index": query.index,
        }

    def close(self) -> None:
        self._ledger.close()
        if "_keys" in self.__dict__:
            self._keys.close()

    @cached_property
    def _keys(self) -> JoinKeys:
        folder = self._work / _KEYS
        if self._ledger.finished or not (self._ledger.input and folder.exists()):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            at = Progress("sorting keys", 0, 0)

            def advance(rows: int) -> None:
                at.done = rows
                self._report(at)

            with open_input(self._given, self._asked.on) as given:
                counts = sort_keys(folder, given, self._asked.match, self._invalid, advance, self._sizes)
            self._ledger.add_input(counts)
        about = self._ledger.input
        keys = JoinKeys(folder, about["patterns"], about["column"], is_ascii=about["is_ascii"])
        if keys.are_keys:  # for which no URL is preferred
            self._kind = replace(self._kind, collect=KINDS[self._kind.name].collect)
        return keys

    def estimate(self) -> JoinEstimate:
        prices = []
        self._slices, self._cut = [], []
        for crawl in self._scope.selection.crawls:
            state = self._scope.states[crawl]
            slices = self._ledger.slices(crawl, state)
            if slices is None:
                price, slices = self._scope.way(crawl, self._keys)
                self._cut.append((crawl, price.index, state, slices))
            else:
                left = [each for each in slices if each.name not in self._ledger.parts]
                price = self._scope.price(crawl, self._ledger.index(crawl), left, self._keys)
            prices.append(price)
            self._slices += slices
        requests, received = (sum(values) for values in zip(*((p.requests, p.bytes) for p in prices), strict=True))
        about = self._ledger.input
        seconds = self._session.cost().seconds(requests, received, len(prices))
        return JoinEstimate(about["rows"], about["patterns"], tuple(prices), requests, received, seconds)

    def run(self, folder: Path, output: Path, agree: Callable[[JoinEstimate], None] | None, most: float) -> Joined:
        is_file, spent, next_bytes = output != folder, self._session.spending(), 0
        ledger, parts = self._ledger, self._work / _PARTS if is_file or self._kind.collect else folder
        crawls = self._scope.selection.crawls
        is_current = all(ledger.slices(crawl, self._scope.states[crawl]) is not None for crawl in crawls)
        if not (ledger.finished and is_current and ledger.has_result(output.parent if is_file else folder)):
            ledger.forget_lost(parts)  # which a finished join has deleted
            cost = self.estimate()
            if agree:
                agree(cost)
            for each in self._cut:
                ledger.add_slices(*each)
            make_folder(parts)
            known = {part.file for part in ledger.parts.values()}
            for path in _own_files(parts):  # some are of slices that were cut again
                if path.name not in known:
                    path.unlink()
            next_bytes = self._read(parts, most, temporary=parts != folder)
            if self._kind.exact and not (self._kind.collect or self._keys.are_keys):
                self._prefer_exact(parts)
            rows = self._write(folder, output)
            if not (ledger.failed or self._missing or next_bytes):
                ledger.finish(rows, [output] if is_file else _own_files(folder))
        else:
            rows = ledger.rows or 0
        requests, received = spent()
        about = ledger.input
        return Joined(
            output,
            self._kind.name,
            rows,
            about["rows"],
            about["patterns"],
            about["invalid"],
            self._invalid if about["invalid"] else None,
            crawls,
            self._scope.selection.subsets,
            ledger.slice_count,
            requests,
            received,
            dict(ledger.failed),
            self._missing,
            sum(each.name not in ledger.parts and each.name not in ledger.failed for each in self._slices),
            next_bytes,
            rows_of_other_urls([output] if is_file else _own_files(folder)) if self._kind.exact else 0,
            tuple(self._scope.query.absences(crawls)),
        )

    @cached_property
    def _missing(self) -> tuple[str, ...]:
        crawls = self._scope.selection.crawls
        found = (text for crawl in crawls for text in self._scope.missing(crawl, self._ledger.index(crawl)))
        return (*self._scope.selection.missing, *dict.fromkeys(found))

    def _read(self, parts: Path, most: float, *, temporary: bool) -> int:
        at = Progress("reading", len(self._slices), 0)
        start = self._session.bytes
        for each in self._slices:
            if each.name not in self._ledger.parts:
                left = most - (self._session.bytes - start)
                if next_bytes := self._read_slice(each, parts / f"{each.name}.parquet", left, temporary=temporary):
                    return next_bytes
            at.done, at.bytes = at.done + 1, self._session.bytes - start
            at.failed = len(self._ledger.failed)
            self._report(at)
        return 0

    def _read_slice(self, each: Slice, path: Path, most: float, *, temporary: bool) -> int:
        lookups = self._keys.between(each.keys.start, each.keys.end)
        captures = self._scope.captures(each, lookups)
        try:
            plan = captures.plan
            if plan.bytes > most:
                return plan.bytes
            try:
                part = write_part(self._kind, captures, lookups, self._keys, path, temporary=temporary)
            except UNUSABLE as error:
                other = self._scope.by_other(each, lookups, sum(of_crawl.price for of_crawl in plan.crawls), error)
                if other is None or other.plan.bytes > most:
                    raise
                part = write_part(self._kind, other, lookups, self._keys, path, temporary=temporary)
        except (Blocked, SourceUnavailable):
            raise
        except (SourceError, FormatError, NotHarvested) as error:  # the last: too many blocks for a pattern
            self._ledger.add_failed(each, str(error))
        else:
            self._ledger.add_part(each, part)
        return 0

    def _prefer_exact(self, parts: Path) -> None:
        slices = {self._ledger.parts[each.name].file: each for each in self._slices if each.name in self._ledger.parts}
        files = [parts / name for name in slices if name]
        for path, rows in prefer_exact(files):
            each = slices[path.name]
            known = self._ledger.parts[each.name]
            if not rows:
                path.unlink()
            part = known._replace(rows=rows, size=path.stat().st_size) if rows else JoinPart("", 0, 0, 0, 0)
            self._ledger.add_part(each, part)

    def _write(self, folder: Path, output: Path) -> int:
        is_file = output != folder
        if not self._kind.collect:
            rows = sum(part.rows for part in self._ledger.parts.values())
            if not rows:
                path = output if is_file else folder / "nothing.parquet"
                write_nothing(self._kind, self._scope.schema, self._keys, path)
            elif is_file:
                write_tables(chain.from_iterable(map(row_groups_of, files_in_order(self._work / _PARTS))), output)
            return rows
        rows, names = 0, set[str]()
        kept = sum(part.rows for part in self._ledger.parts.values())
        step = max(1, min(self._sizes.rows, _KEPT * self._sizes.rows * self._keys.patterns // max(1, kept)))
        spans = [*self._keys.spans(step)]
        if is_file:
            return write_tables(map(self._result_of, spans), output)
        a_file = self._sizes.rows // step
        for number, start in enumerate(range(0, len(spans), a_file)):
            path = folder / f"part-{number:05}.parquet"
            names.add(path.name)
            rows += write_tables(map(self._result_of, spans[start : start + a_file]), path)
        for path in _own_files(folder):
            if path.name not in names:  # of an earlier result
                path.unlink()
        return rows

    def _result_of(self, span: tuple[int, int]) -> pa.Table:
        parts = self._work / _PARTS
        files = [parts / part.file for part in self._ledger.parts_of(*span)]
        first, stop = np.searchsorted(self._unread, (span[0], span[1] + 1))
        unread = np.arange(span[0], span[1] + 1) if self._missing else self._unread[first:stop]
        return result_of(self._kind, self._scope.schema, self._keys, files, unread, span)

    @cached_property
    def _unread(self) -> np.ndarray:
        others = [each for each in self._slices if each.name not in self._ledger.parts]
        found = [self._keys.between(each.keys.start, each.keys.end).patterns for each in others]
        return distinct(np.concatenate([np.arange(0), *found]))


def _own_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if _OWN.fullmatch(path.name))
