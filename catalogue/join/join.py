"""Run a join: sort the keys, price it, read slice by slice, and write the result."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from catalogue.atomic_files import make_folder
from catalogue.errors import Blocked, FormatError, QueryError, SourceError, SourceUnavailable
from catalogue.join.inputs import Input, digest_of, open_input
from catalogue.join.joined import Joined
from catalogue.join.keys import JoinKeys
from catalogue.join.kinds import Kind, kind_of
from catalogue.join.ledger import JoinLedger
from catalogue.join.parts import concatenate, database, prepare_result, write_nothing, write_part, write_result
from catalogue.join.price import JoinEstimate
from catalogue.join.scope import Scope
from catalogue.join.slices import DEFAULT_SIZES, Sizes, Slice
from catalogue.join.sort_keys import sort_keys
from catalogue.progress import Progress, Report
from catalogue.query.query import Query, QueryOptions
from catalogue.session import Session
from catalogue.store.locks import locked
from catalogue.surt import Match

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
        """Check the words of a user."""
        kind = kind_of(how)
        try:
            return cls(Query.of("*", **query), kind, Match(match), on)
        except ValueError as error:
            if isinstance(error, QueryError):
                raise
            raise QueryError(f"invalid match {match!r}; use {', '.join(each.value for each in Match)}") from error


def estimate(session: Session, asked: JoinQuery, keys: Input) -> JoinEstimate:
    """Estimate the cost of a join; nothing is read from the source."""
    work = session.temporary_folder() / "join"
    work.mkdir()
    try:
        with _open(session, asked, keys, work, work / _INVALID, lambda _: None, DEFAULT_SIZES) as run:
            return run.estimate()
    finally:
        shutil.rmtree(work)


def join(
    session: Session,
    asked: JoinQuery,
    keys: Input,
    output: Path,
    *,
    agree: Callable[[JoinEstimate], None] = lambda _: None,
    report: Report | None = None,
    sizes: Sizes = DEFAULT_SIZES,
) -> Joined:
    """Run a join, or the rest of one that was interrupted; see ``Catalogue.join``."""
    is_file = output.suffix == ".parquet"
    folder = output.with_name(f".{output.name}.join") if is_file else output
    work = folder / ".join"
    if is_file and output.is_dir():
        raise QueryError(f"{output} is a folder; choose another name")
    if not is_file and output.exists() and not output.is_dir():
        raise QueryError(f"{output} is a file; for one file use a name that ends in .parquet")
    if not work.exists() and folder.exists() and any(folder.iterdir()):
        raise QueryError(f"{folder} contains other files; choose an empty or a new folder")
    make_folder(work)
    invalid = output.with_name(f"{output.stem}{_INVALID}") if is_file else output / _INVALID
    with locked(work / "lock", output), session.reporting(report, "slices") as bar:
        with _open(session, asked, keys, work, invalid, bar, sizes) as run:
            done = run.run(folder, agree)
        if is_file:
            concatenate(done.files, output)
            done.output = output
    if done.complete:
        shutil.rmtree(folder if is_file else work / "keys", ignore_errors=True)
    return done


@contextmanager
def _open(
    session: Session, asked: JoinQuery, keys: Input, work: Path, invalid: Path, report: Report, sizes: Sizes
) -> "Iterator[_Run]":
    scope = Scope(session, asked.query, asked.kind, sizes)
    query = asked.query
    about: dict[str, Any] = {
        "how": asked.kind.name,
        "match": asked.match.value,
        "on": asked.on,
        "input": digest_of(keys),
        "crawls": scope.crawls,
        "subsets": scope.subsets,
        "columns": scope.query.columns,
        "where": [query.where, *(str(each) for each in (query.filters, query.from_, query.to))],
        "index": query.index,
    }
    ledger = JoinLedger(work / "ledger.jsonl", about)
    sorted_keys = None
    try:
        folder = work / "keys"
        if not (ledger.input and folder.exists()):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            at = Progress("sorting keys", 0, 0)

            def advance(rows: int) -> None:
                at.done = rows
                report(at)

            with open_input(keys, asked.on) as given:
                counts = sort_keys(folder, given, session.dataset, asked.match, invalid, advance, batch=sizes.batch)
            ledger.add_input(asdict(counts))
        sorted_keys = JoinKeys(
            folder, ledger.input["patterns"], is_ascii=ledger.input["is_ascii"], most=sizes.in_memory
        )
        yield _Run(session, asked.kind, scope, ledger, sorted_keys, work, invalid, report)
    finally:
        ledger.close()
        if sorted_keys:
            sorted_keys.close()


class _Run:
    def __init__(
        self,
        session: Session,
        kind: Kind,
        scope: Scope,
        ledger: JoinLedger,
        keys: JoinKeys,
        work: Path,
        invalid: Path,
        report: Report,
    ) -> None:
        self._session, self._kind, self._scope = session, kind, scope
        self._ledger, self._keys, self._work, self._invalid, self._report = ledger, keys, work, invalid, report
        self._slices: list[Slice] = []
        """Of all crawls, in the order in which they are read."""
        self._missing: dict[str, None] = {}
        """Sentences about files that are not stored."""

    def estimate(self) -> JoinEstimate:
        """Cut the keys into slices, and price those that are not done."""
        prices = []
        self._slices = []
        for crawl in self._scope.crawls:
            state = self._scope.state(crawl)
            slices = self._ledger.slices(crawl, state)
            if slices is None:
                way = self._scope.way(crawl, self._keys)
                slices, price = way.slices, way.price
                self._ledger.add_slices(crawl, price.index, state, slices)
            else:
                left = [each for each in slices if each.name not in self._ledger.parts]
                price = self._scope.price(crawl, slices[0].index if slices else "", left, self._keys)
            prices.append(price)
            self._slices += slices
        requests, received = (sum(values) for values in zip(*((p.requests, p.bytes) for p in prices), strict=True))
        about = self._ledger.input
        seconds = self._session.cost().seconds(requests, received, len(prices))
        return JoinEstimate(about["rows"], about["patterns"], tuple(prices), requests, received, seconds)

    def run(self, folder: Path, agree: Callable[[JoinEstimate], None]) -> Joined:
        before = self._session.spent
        if not self._ledger.finished:
            agree(self.estimate())
            parts = folder if not self._kind.found else self._work / "parts"
            make_folder(parts)
            self._read(parts)
            rows = self._write(folder, parts)
            if not (self._ledger.failed or self._missing):
                self._ledger.finish(rows)
                shutil.rmtree(self._work / "parts", ignore_errors=True)
        else:
            rows = self._ledger.rows or 0
        about = self._ledger.input
        requests, received = (after - start for after, start in zip(self._session.spent, before, strict=True))
        return Joined(
            folder,
            self._kind.name,
            rows,
            about["rows"],
            about["patterns"],
            about["invalid"],
            self._invalid if about["invalid"] else None,
            self._ledger.slice_count,
            requests,
            received,
            dict(self._ledger.failed),
            tuple(self._missing),
        )

    def _read(self, parts: Path) -> None:
        """Read the slices that are not done."""
        at = Progress("reading", len(self._slices), 0)
        start = self._session.bytes
        with database(self._work) as connection:
            for each in self._slices:
                if each.name not in self._ledger.parts:
                    self._read_slice(each, parts / f"{each.name}.parquet", connection)
                at.done, at.bytes = at.done + 1, self._session.bytes - start
                at.failed = len(self._ledger.failed)
                self._report(at)

    def _read_slice(self, each: Slice, path: Path, connection: Any) -> None:  # noqa: ANN401 - DuckDB is not imported here
        lookups = self._keys.between(each.keys.start, each.keys.end)
        captures = self._scope.captures(each, lookups)
        try:
            part = write_part(self._kind, captures, lookups, self._keys, path, connection)
        except (Blocked, SourceUnavailable):
            raise
        except (SourceError, FormatError) as error:
            self._ledger.add_failed(each, str(error))
            return
        self._missing |= dict.fromkeys(captures.plan.missing)
        self._ledger.add_part(each, part)

    def _write(self, folder: Path, parts: Path) -> int:
        """Write the result; return the number of its rows."""
        if not self._kind.found:
            rows = sum(part.rows for part in self._ledger.parts.values())
            if not rows:
                write_nothing(self._keys, self._scope.schema, folder / "nothing.parquet")
            return rows
        rows = 0
        unread = self._unread()
        with database(self._work) as connection:
            prepare_result(self._kind, self._scope.schema, connection)
            for number, span in enumerate(self._keys.spans(self._scope.sizes.rows)):
                files = [parts / part.file for part in self._ledger.parts_of(*span)]
                path = folder / f"part-{number:05}.parquet"
                doubtful = np.arange(span[0], span[1] + 1) if self._missing else unread
                rows += write_result(self._kind, self._keys, files, doubtful, span, path, connection)
        return rows

    def _unread(self) -> np.ndarray:
        """Return the numbers of the patterns for which a slice failed."""
        failed = [each for each in self._slices if each.name in self._ledger.failed]
        found = [self._keys.between(each.keys.start, each.keys.end).patterns for each in failed]
        return np.unique(np.concatenate([np.arange(0), *found]))
