"""Query + footers → the exact byte ranges that answer it.

A plan is a frozen value: it can be printed, counted and compared with nothing fetched. Its waves are what can go out
together; today there is one, of whole column chunks.
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from catalogue.crawl import KEY_COLUMN, SCHEMA, IndexFile
from catalogue.errors import BadFooter
from catalogue.footer import Column, ColumnChunk, Footer, RowGroup
from catalogue.query import Query, Verdict, judge, near, schema_of
from catalogue.ranges import ByteRange, Pin, coalesce
from catalogue.surt import END, KeyInterval

MAX_FETCH = 64 << 20
"""Bytes up to which ranges are merged into one request, so that a broken one costs no more than that."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a source charges, in seconds: ``requests / rate + bytes / bandwidth``, and a round trip a wave."""

    rate: float | None = 5.0
    """Requests a second; None for no limit."""
    burst: int = 10
    """Requests that cost nothing."""
    bandwidth: float = 10e6
    """Bytes a second."""
    latency: float = 0.1
    """Seconds until the first byte."""
    connections: int = 4
    """Requests under way at once."""

    @property
    def max_gap(self) -> int:
        """Bytes between two ranges that are cheaper to read, and drop, than to ask for the second one separately."""
        request = 1 / self.rate if self.rate else self.latency / self.connections
        return int(request * self.bandwidth)

    def seconds(self, requests: int, size: int, waves: int) -> float:
        """How long a plan takes, about."""
        if not requests:
            return 0.0
        waiting = max(0, requests - self.burst) / self.rate if self.rate else requests * self.latency / self.connections
        return waiting + size / self.bandwidth + waves * self.latency


class Purpose(enum.Enum):
    """What a range is for."""

    CHUNK = "column chunk"


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a fetch, and what they are for."""

    purpose: Purpose
    row_group: int
    column: str
    range: ByteRange


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request."""

    path: str
    range: ByteRange
    parts: tuple[Part, ...]
    """All within ``range``; what lies between them is dropped."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """An index file whose footer is held."""

    file: IndexFile
    pin: Pin
    footer: Footer


@dataclass(frozen=True, slots=True)
class RowGroupRead:
    """A row group to be read, and what is left to decide about its rows."""

    ordinal: int
    num_rows: int
    intervals: tuple[KeyInterval, ...]
    """The residual of the keys: those that may lie in this group."""
    chunks: tuple[ColumnChunk, ...]
    bounded: bool
    """Whether the bounds of its keys were known; without them it is read on the off chance."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """What is read of one file."""

    file: IndexFile
    pin: Pin
    created_by: str
    row_groups: tuple[RowGroupRead, ...]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The reads that answer a query, and what they cost."""

    query: Query
    schema: pa.Schema
    """Of the answer."""
    row_schema: pa.Schema
    """Of the rows before the residual has decided: all that is read."""
    files: tuple[FileRead, ...]
    waves: tuple[tuple[Fetch, ...], ...]
    cost: Cost
    considered: int
    """Row groups of the crawls and subsets asked for, read or not."""
    missing: tuple[str, ...] = ()
    """What is not held and might match, a sentence each; if any, the answer may be incomplete."""
    warnings: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests will be made; with a limit, at most."""
        return sum(len(wave) for wave in self.waves)

    @property
    def bytes(self) -> int:
        """How many bytes will be received; with a limit, at most."""
        return sum(len(fetch.range) for wave in self.waves for fetch in wave)

    @property
    def row_groups(self) -> int:
        """How many row groups are read."""
        return sum(len(file.row_groups) for file in self.files)

    @property
    def rows(self) -> int:
        """How many rows the row groups hold: no answer is longer."""
        return sum(group.num_rows for file in self.files for group in file.row_groups)

    @property
    def unbounded(self) -> tuple[int, int]:
        """How many row groups are read only because the bounds of their keys are not known, and their bytes."""
        sizes = [
            sum(len(chunk.range) for chunk in group.chunks)
            for file in self.files
            for group in file.row_groups
            if not group.bounded
        ]
        return len(sizes), sum(sizes)

    @property
    def seconds(self) -> float:
        """How long it takes at the present rate, about."""
        return self.cost.seconds(self.requests, self.bytes, len(self.waves))

    @property
    def exact(self) -> bool:
        """Whether requests and bytes are exactly these, or at most these."""
        return self.query.limit is None or self.query.ordered

    def summary(self) -> dict[str, Any]:
        """The plan in numbers, as ``plan --json`` prints it."""
        groups, size = self.unbounded
        return {
            "files": len(self.files),
            "row_groups": self.row_groups,
            "row_groups_considered": self.considered,
            "pages": None,
            "rows": self.rows,
            "requests": self.requests,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "waves": len(self.waves),
            "exact": self.exact,
            "complete": not self.missing,
            "missing": list(self.missing),
            "without_bounds": {"row_groups": groups, "bytes": size},
            "warnings": list(self.warnings),
        }


def plan_reads(
    query: Query,
    held: Iterable[HeldFile],
    *,
    cost: Cost,
    considered: int,
    missing: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> ReadPlan:
    """Plan a query.

    Args:
        query: what is asked.
        held: files that might hold matching rows; it does no harm if they do not.
        cost: of the source.
        considered: row groups there are in all that was asked about.
        missing: what of that is not held.
        warnings: to be handed on.

    Returns:
        Reads in order of keys: files by their least key, within a file row groups as they lie.
    """
    judged = [_read(query, file) for file in held]
    reads = sorted((read for read in judged if read.read.row_groups), key=lambda read: read.order)
    files = tuple(read.read for read in reads)
    fetches = tuple(fetch for file in files for fetch in _fetches(file, cost))
    newer: dict[str, pa.DataType] = {}
    for read in reads:
        for name, kind in read.newer.items():
            newer[name] = kind if newer.get(name, kind) == kind else pa.string()
    keyless = tuple(
        f"{read.read.file.path} has no column {KEY_COLUMN} to find rows by" for read in judged if read.keyless
    )
    plan = ReadPlan(
        query=query,
        schema=schema_of(query.columns, newer),
        row_schema=schema_of(query.read_columns, newer),
        files=files,
        waves=(fetches,) if fetches else (),
        cost=cost,
        considered=considered,
        missing=(*missing, *keyless),
    )
    return replace(plan, warnings=(*warnings, *_warnings(plan)))


@dataclass(frozen=True, slots=True)
class _Read:
    order: tuple[bytes, IndexFile]
    """The least key of what is read, and the file."""
    read: FileRead
    newer: dict[str, pa.DataType]
    """Types of columns that are newer than this package."""
    keyless: bool


def _read(query: Query, held: HeldFile) -> _Read:
    groups: list[RowGroupRead] = []
    least = END
    for group in held.footer.row_groups:
        if judge(query, group) is Verdict.CANNOT_MATCH:
            continue
        key = group.chunks.get(KEY_COLUMN)
        bounds = key.bounds if key else None
        least = min(least, bounds.min if bounds else b"")
        groups.append(
            RowGroupRead(
                ordinal=group.ordinal,
                num_rows=group.num_rows,
                intervals=near(query.intervals, bounds),
                chunks=tuple(_flat_chunks(query, held, group)),
                bounded=bounds is not None,
            )
        )
    read = FileRead(held.file, held.pin, held.footer.created_by, tuple(groups))
    columns = held.footer.columns
    newer = {n: _arrow_type(columns[n]) for n in query.read_columns if n not in SCHEMA.names and n in columns}
    return _Read((least, held.file), read, newer, keyless=KEY_COLUMN not in columns)


def _warnings(plan: ReadPlan) -> Iterator[str]:
    groups, size = plan.unbounded
    if groups:
        yield (
            f"of row groups whose files do not say which keys they hold, {groups:,} must be read ({size:,} bytes); "
            "a backfill of their bounds would save that"
        )
    if plan.row_groups == plan.considered > 1:
        yield "nothing can be pruned by this question: every row group is read"


def _flat_chunks(query: Query, held: HeldFile, group: RowGroup) -> Iterator[ColumnChunk]:
    for name in query.read_columns:
        chunk = group.chunks.get(name)
        nested = not chunk.column.flat if chunk else any(other.startswith(f"{name}.") for other in group.chunks)
        if nested:
            message = f"{held.file.path}: column {name} has more than one value a row, which cannot be read"
            raise BadFooter(message)
        if chunk:
            yield chunk


def _fetches(file: FileRead, cost: Cost) -> Iterator[Fetch]:
    parts = sorted(
        (
            Part(Purpose.CHUNK, group.ordinal, chunk.column.name, chunk.range)
            for group in file.row_groups
            for chunk in group.chunks
        ),
        key=lambda part: part.range,
    )
    waiting = iter(parts)
    part = next(waiting, None)
    for whole in coalesce((part.range for part in parts), max_gap=cost.max_gap, max_length=MAX_FETCH):
        inside: list[Part] = []
        while part and part.range in whole:
            inside.append(part)
            part = next(waiting, None)
        yield Fetch(file.file.path, whole, tuple(inside))


def _arrow_type(column: Column) -> pa.DataType:
    """The type under which a column is shown that is newer than this package."""
    match column.physical_type:
        case "BYTE_ARRAY" | "FIXED_LEN_BYTE_ARRAY" if column.converted_type is None:
            return pa.binary()
        case "INT32" | "INT64" if column.plain_integer:
            return pa.int64()
        case "FLOAT" | "DOUBLE":
            return pa.float64()
        case "BOOLEAN":
            return pa.bool_()
    return pa.string()
