"""What is asked, and what a row group's metadata can say about it.

Pruning has two outcomes, ``CANNOT_MATCH`` and ``MIGHT_MATCH``; what is missing or doubtful means the latter. Whatever
is left is decided by the residual, on the rows themselves, always.
"""

import enum
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import pyarrow as pa

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import UnknownColumn
from catalogue.formatting import closest_name
from catalogue.parquet.model import Bounds, ColumnChunk, Order, RowGroup, number
from catalogue.surt import KeyInterval

_NO_SCHEMA = pa.schema([])

DRAWN_ORDER = "__drawn_order"
"""Column with the place of a drawn row in the random order of a sample."""

CDX_COLUMNS = (
    "url_surtkey",
    "fetch_time",
    "url",
    "content_mime_type",
    "content_mime_detected",
    "fetch_status",
    "content_digest",
    "warc_record_length",
    "warc_record_offset",
    "warc_filename",
    "content_languages",
    "content_charset",
    "fetch_redirect",
    "content_truncated",
)
"""The columns that make a line of the CDX index, and the default of a query of Common Crawl's."""


class Verdict(enum.Enum):
    """What metadata say about some rows."""

    CANNOT_MATCH = "cannot match"
    MIGHT_MATCH = "might match"


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a ``--where`` that statistics can refute: a column compared with constants of its own type."""

    column: str
    operator: str
    """``=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` or ``prefix``."""
    values: tuple[int, ...] | tuple[bytes, ...]
    """One, but for ``in``."""


@dataclass(frozen=True, slots=True)
class Where:
    """A boolean expression over the columns, in DuckDB's SQL."""

    sql: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]
    """All of which hold for every row that the expression keeps."""


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """Which rows, which columns of them, and how many."""

    intervals: tuple[KeyInterval, ...]
    """Of keys; disjoint and ascending."""
    patterns: tuple[str, ...]
    """As typed, for messages."""
    columns: tuple[str, ...] = CDX_COLUMNS
    where: Where | None = None
    where_untyped: Where | None = None
    """Instead of ``where``, for row groups without detected media types."""
    from_ms: int | None = None
    """First ``fetch_time``, in milliseconds since 1970 UTC."""
    to_ms: int | None = None
    """The same, behind the last: exclusive."""
    urls: tuple[str, ...] = ()
    """If any, ``url`` must be one of them."""
    limit: int | None = None
    ordered: bool = False
    """Whether rows come by key, time and crawl, or as they lie."""
    counts: bool = False
    """Whether only their number is wanted."""
    draws: bool = False
    """Whether only drawn rows are read, and the result has ``DRAWN_ORDER``."""
    table: Dataset = COMMON_CRAWL
    newer: pa.Schema = _NO_SCHEMA
    """The types of columns that are not known beforehand."""

    def of(self, *, untyped: bool) -> "ResolvedQuery":
        """The query of row groups with or without detected media types."""
        return replace(self, where=self.where_untyped) if untyped and self.where_untyped else self

    @property
    def deciding_columns(self) -> tuple[str, ...]:
        """The columns of the files that decide whether a row matches: the key first."""
        deciding = [self.table.key]
        deciding += self.where.columns if self.where else ()
        if self.table.time and (self.from_ms is not None or self.to_ms is not None):
            deciding.append(self.table.time)
        if self.urls:
            deciding.append("url")
        return self._of_files(deciding)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns to be read from the files, for the answer or to decide: the key first."""
        times = [self.table.time] if self.table.time and self.ordered else []
        return self._of_files([*self.deciding_columns, *times, *self.columns])

    @property
    def keys_decide(self) -> bool:
        """Whether a row matches as soon as its key does."""
        return not (self.where or self.urls) and self.from_ms is None and self.to_ms is None

    def _of_files(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in dict.fromkeys(names) if name not in self.table.path_columns)


def near(intervals: Sequence[KeyInterval], bounds: Bounds | None) -> tuple[KeyInterval, ...]:
    """Those of disjoint ascending intervals in which keys between the bounds can lie; all, if bounds are not known.

    In signed order, as old writers compared, this holds for the intervals that patterns make, because a prefix's
    strings lie together in that order too, and with ASCII on both sides the two orders compare alike.
    """
    if bounds is None:
        return tuple(intervals)
    first = bisect_right(intervals, bounds.min, key=attrgetter("end"))
    behind = bisect_right(intervals, bounds.max, key=attrgetter("start"))
    if bounds.order is Order.UNSIGNED:
        return tuple(intervals[first:behind])
    return tuple(
        interval
        for at, interval in enumerate(intervals)
        if first <= at < behind or not (interval.start.isascii() and interval.end.isascii())
    )


def holds(intervals: Sequence[KeyInterval], bounds: Bounds | None) -> bool:
    """Whether every key between the bounds lies in one of the intervals."""
    return (
        bounds is not None
        and bounds.order is Order.UNSIGNED
        and any(interval.start <= bounds.min and bounds.max < interval.end for interval in near(intervals, bounds))
    )


def is_untyped(group: RowGroup) -> bool:
    """Whether a row group has no detected media types, as those of the first crawls."""
    chunk = group.chunks.get("content_mime_detected")
    return chunk is None or chunk.null_count == chunk.num_values


def prune_row_group(query: ResolvedQuery, group: RowGroup) -> Verdict:
    """Whether rows of a row group can be asked for, by whatever statistics it has."""
    key = group.chunks.get(query.table.key)
    if key is None or not near(query.intervals, key.bounds):
        return Verdict.CANNOT_MATCH  # rows without keys match no question about keys
    time = group.chunks.get(query.table.time) if query.table.time else None
    if time and _refuted_by_time(query, time):
        return Verdict.CANNOT_MATCH
    for condition in query.where.conditions if query.where else ():
        chunk = group.chunks.get(condition.column)
        if chunk and _refuted(condition, chunk):
            return Verdict.CANNOT_MATCH
    return Verdict.MIGHT_MATCH


def _refuted_by_time(query: ResolvedQuery, chunk: ColumnChunk) -> bool:
    if not (known := chunk.milliseconds):
        return False
    first, last = known
    return (query.to_ms is not None and first >= query.to_ms) or (query.from_ms is not None and last < query.from_ms)


def _refuted(condition: Condition, chunk: ColumnChunk) -> bool:
    if chunk.null_count is not None and chunk.null_count == chunk.num_values:
        return True
    bounds = chunk.bounds
    if bounds is None:
        return False
    low: int | bytes | None
    high: int | bytes | None
    if isinstance(condition.values[0], int):
        if not chunk.column.plain_integer:
            return False
        low, high = number(chunk.column.physical_type, bounds.min), number(chunk.column.physical_type, bounds.max)
    elif chunk.column.physical_type == "BYTE_ARRAY":
        low, high = bounds.min, bounds.max
        one_piece = condition.operator in {"=", "in", "prefix"} and all(v.isascii() for v in condition.values)
        if bounds.order is Order.SIGNED and not one_piece:
            return False
    else:
        return False
    if low is None or high is None:
        return False
    return all(_outside(condition.operator, value, low, high) for value in condition.values)


def _outside(operator: str, value: int | bytes, low: int | bytes, high: int | bytes) -> bool:
    """Whether no x with low <= x <= high stands in the relation to the value."""
    match operator, value, low, high:
        case "prefix", bytes(), bytes(), bytes():
            return high < value or (low > value and not low.startswith(value))
        case (("=" | "in"), _, _, _):
            return not low <= value <= high  # type: ignore[operator]
        case "<", _, _, _:
            return low >= value  # type: ignore[operator]
        case "<=", _, _, _:
            return low > value  # type: ignore[operator]
        case ">", _, _, _:
            return high <= value  # type: ignore[operator]
        case ">=", _, _, _:
            return high < value  # type: ignore[operator]
    return False


def check_columns(names: Iterable[str], known: Collection[str] = (), table: Dataset = COMMON_CRAWL) -> tuple[str, ...]:
    """The names, each once and as it is spelled, if there are such columns; case does not matter.

    Args:
        names: asked for.
        known: columns of harvested files, some of which may be newer than this package.
        table: to which they belong.

    Raises:
        UnknownColumn: with the nearest name there is.
    """
    every = (*known, *(table.schema.names if table == COMMON_CRAWL else table.path_columns))
    there_are = {name.casefold(): name for name in every}
    found = []
    for name in names:
        if name in every:
            found.append(name)
            continue
        if name.casefold() not in there_are:
            like = closest_name(name[:100], there_are.values())
            hint = f"did you mean {like}?" if like else f"there are {', '.join(there_are.values())}"
            message = f"there is no column {name[:100]!r}; {hint}"
            raise UnknownColumn(message)
        found.append(there_are[name.casefold()])
    return tuple(dict.fromkeys(found))


def schema_of(query: ResolvedQuery, names: Iterable[str]) -> pa.Schema:
    """The types of columns, those of the files' paths always among them, and ``DRAWN_ORDER`` if rows are drawn."""
    every, known, newer = dict.fromkeys([*names, *query.table.path_columns]), query.table.schema, query.newer
    fields = [known.field(name) if name in known.names else newer.field(name) for name in every]
    return pa.schema([*fields, pa.field(DRAWN_ORDER, pa.float64())] if query.draws else fields)
