"""A resolved query: pruning of row groups by their statistics, and the residual filter of rows.

Row groups with missing or doubtful statistics might match; the residual filter decides.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.schema import SINCE
from catalogue.errors import UnknownColumn
from catalogue.formatting import closest_name
from catalogue.parquet.arrow_arrays import integer, joined, moment, positions, texts, true_positions
from catalogue.parquet.column_chunk import number
from catalogue.parquet.model import ColumnChunk, Order, RowGroup
from catalogue.query.filters import UNKNOWN_TYPE
from catalogue.query.key_intervals import KeyIntervals
from catalogue.surt.interval import EVERYTHING

_STATUS, _ONE = "fetch_status", integer(1, pa.int8())
_UNKNOWN_TEXTS = texts(["", "-", UNKNOWN_TYPE])
_NO_SCHEMA = pa.schema([])
_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)

ALL_TYPED = SINCE["content_languages"]
"""The first crawl with languages, which are newer than detected media types: its captures lack them only by chance."""

DRAWN_ORDER = "__drawn_order"
"""Column with the place of a row in the random order of a sample."""

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
    "warc_record_id",
)
"""The columns of a CDX line; by default, those of a query."""
MAY_BE_UNKNOWN = {_STATUS, "fetch_redirect", *(name for name in CDX_COLUMNS if name.startswith("content_"))}


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a ``--where`` that statistics can refute: a column and constants of its type."""

    column: str
    operator: str
    """``=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` or ``prefix``."""
    values: tuple[int, ...] | tuple[bytes, ...]
    """One value, except for ``in``."""


@dataclass(frozen=True, slots=True)
class Where:
    """A boolean expression over columns, in DuckDB's SQL."""

    sql: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]
    """They hold for every matching row."""


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """The rows and columns of a query."""

    intervals: KeyIntervals
    patterns: tuple[str, ...]
    """The user's spelling, for messages."""
    columns: tuple[str, ...] = CDX_COLUMNS
    where: Where | None = None
    where_untyped: Where | None = None
    """The condition for old crawls, where captures without a detected media type have the declared one."""
    where_declared: Where | None = None
    """The same by the declared type alone, which rules out values."""
    from_ms: int | None = None
    """Milliseconds since 1970 UTC."""
    to_ms: int | None = None
    """End of ``fetch_time``, exclusive."""
    urls: tuple[str, ...] = ()
    """Accepted values of ``url``; empty for all."""
    limit: int | None = None
    ordered: bool = False
    """Rows of all crawls are sorted by key, time and crawl."""
    any_order: bool = False
    """Rows may be returned as they lie."""
    counts: bool = False
    """Only their number is requested."""
    draws: bool = False
    """Only drawn rows are read; the result has ``DRAWN_ORDER``."""
    table: Dataset = COMMON_CRAWL
    newer: pa.Schema = _NO_SCHEMA
    """Columns that are not in the schema of the dataset, or have another type in its files."""

    def of(self, crawl: str) -> "ResolvedQuery":
        return replace(self, where=self.where_untyped) if self.where_untyped and is_untyped(crawl) else self

    @property
    def counting(self) -> "ResolvedQuery":
        """The query of the number of rows; it needs at least one column."""
        columns = () if self.table.path_columns else (self.table.key,)
        return replace(self, columns=columns, ordered=False, counts=True)

    @property
    def tested_columns(self) -> tuple[str, ...]:
        """The columns of conditions, except of those on keys."""
        tested = [*self.where.columns] if self.where else []
        if self.table.time and (self.from_ms is not None or self.to_ms is not None):
            tested.append(self.table.time)
        return (*tested, *(["url"] if self.urls else []))

    def absences(self, crawls: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each column of a condition that some of the crawls are too old to have."""
        oldest = min(crawls, default="~") if self.table == COMMON_CRAWL else "~"
        for name in self.tested_columns:
            if oldest < SINCE.get(name, ""):
                yield f"crawls before {SINCE[name]} have no {name}; it is null there"

    @property
    def deciding_columns(self) -> tuple[str, ...]:
        """The columns of the files that decide whether a row matches, the key first."""
        return self._of_files([self.table.key, *self.tested_columns])

    @property
    def read_columns(self) -> tuple[str, ...]:
        times = [self.table.time] if self.table.time and self.ordered else []
        return self._of_files([*self.deciding_columns, *times, *self.columns])

    def _of_files(self, names: Iterable[str]) -> tuple[str, ...]:
        columns = dict.fromkeys(names)
        for name in self.table.path_columns:
            columns.pop(name, None)
        return tuple(columns)

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns of the files that are read of crawls of any age."""
        untyped = replace(self, where=self.where_untyped).read_columns if self.where_untyped else ()
        return tuple(dict.fromkeys([*self.read_columns, *untyped]))

    @property
    def is_inorder(self) -> bool:
        """Whether rows are returned crawl by crawl, then by subset and key.

        Other rows are counted, sorted later, or returned as they lie.
        """
        return self.table == COMMON_CRAWL and not (self.ordered or self.any_order or self.counts or self.draws)

    @property
    def with_nulls(self) -> bool:
        """Whether rows without a key match: in other datasets than Common Crawl's index, if all keys do."""
        return self.table != COMMON_CRAWL and self.is_of_everything

    @property
    def is_of_everything(self) -> bool:
        """Whether all keys match."""
        return len(self.intervals) == 1 and self.intervals[0] == EVERYTHING

    @property
    def keys_decide(self) -> bool:
        return not (self.where or self.urls) and self.from_ms is None and self.to_ms is None

    @property
    def stops_early(self) -> bool:
        """Whether reading ends when there are enough rows."""
        return self.limit is not None and not self.ordered


def is_untyped(crawl: str) -> bool:
    """Return whether declared media types replace detected ones that a crawl may lack."""
    return crawl < ALL_TYPED


def might_match(query: ResolvedQuery, group: RowGroup) -> bool:
    """Return whether rows might satisfy ``where`` by the statistics of their row group.

    Keys and times are compared where row groups are found.
    """
    conditions = query.where.conditions if query.where else ()
    return not any((chunk := group.chunks.get(each.column)) and _refuted(each, chunk) for each in conditions)


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
    """Return whether no x with low <= x <= high satisfies ``x operator value``."""
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


Matching: TypeAlias = Callable[[Where, pa.Table], np.ndarray]
"""It returns the positions of the rows for which an expression is true."""


@dataclass(frozen=True, slots=True)
class Residual:
    """Applies the conditions of a query to rows."""

    query: ResolvedQuery
    matching: Matching | None
    """None without an expression."""

    def keep(self, rows: pa.Table, *, decided: Sequence[str] = ()) -> tuple[pa.Table, np.ndarray]:
        """Return the matching rows, and their positions.

        Conditions on the columns ``decided``, by which the rows were already filtered, are skipped.
        """
        query, table, where = self.query, self.query.table, self.query.where
        undecided = {*rows.column_names}.difference(decided, table.path_columns)
        masks = []
        if table.key in undecided and not query.with_nulls:
            masks.append(query.intervals.mask(joined(rows.column(table.key)).cast(pa.binary())))
        if table.time in undecided and query.from_ms is not None:
            masks.append(pc.greater_equal(rows.column(table.time), moment(query.from_ms)))
        if table.time in undecided and query.to_ms is not None:
            masks.append(pc.less(rows.column(table.time), moment(query.to_ms)))
        if query.urls and "url" in undecided:
            urls = rows.column("url")
            masks.append(pc.is_in(urls, value_set=texts(query.urls).cast(urls.type)))
        numbers = np.arange(rows.num_rows)
        mask = reduce(pc.and_, masks) if masks else None
        if mask is not None and not pc.all(mask, skip_nulls=False, min_count=0).as_py():
            rows, numbers = rows.filter(mask), numbers[true_positions(mask)]
        if where and self.matching and rows.num_rows:
            needed = {*where.columns}
            if table.key in rows.column_names:  # keys that are read later match for certain
                needed.add(table.key)
            if needed & undecided and needed <= {*rows.column_names, *table.path_columns}:
                matching = self.matching(where, rows)
                rows, numbers = rows.take(positions(matching)), numbers[matching]
        return rows, numbers


def without_unknown(name: str, values: _Values) -> _Values:
    """Replace unknown values of Common Crawl's index by null, as those of CDX lines: also statuses below 1."""
    if name == _STATUS and pa.types.is_signed_integer(values.type):
        return _without(pc.less(values, _ONE), values)
    is_text = name in MAY_BE_UNKNOWN and values.type == pa.string()
    return known_texts(values) if is_text else values


def known_texts(values: _Values) -> _Values:
    """Replace unknown texts by null: empty ones, ``-``, and the media type of captures without one."""
    return _without(pc.is_in(values, value_set=_UNKNOWN_TEXTS), values)


def _without(unknown: _Values, values: _Values) -> _Values:
    return pc.if_else(unknown, pa.nulls(1, values.type)[0], values) if pc.any(unknown).as_py() else values


def check_columns(names: Iterable[str], known: Collection[str] = (), table: Dataset = COMMON_CRAWL) -> tuple[str, ...]:
    """Return each name once, in the spelling of the files, whose columns are ``known``.

    Raises:
        UnknownColumn: with the closest name.
    """
    every = (*known, *(table.schema.names if table == COMMON_CRAWL else table.path_columns))
    found = []
    for name in names:
        if name in every:
            found.append(name)
            continue
        there_are = {each.casefold(): each for each in every}
        if name.casefold() not in there_are:
            like = closest_name(name[:100], there_are.values())
            more = ", and after a harvest those that a crawl adds" if table == COMMON_CRAWL else ""
            hint = f"did you mean {like}?" if like else f"there are {', '.join(there_are.values())}{more}"
            raise UnknownColumn(f"there is no column {name[:100]!r}; {hint}")
        found.append(there_are[name.casefold()])
    return tuple(dict.fromkeys(found))


def schema_of(query: ResolvedQuery, names: Iterable[str]) -> pa.Schema:
    """Return the schema of columns and path columns, with ``DRAWN_ORDER`` if rows are drawn."""
    schema, newer = query.table.schema, query.newer
    known = dict(zip([*schema.names, *newer.names], [*schema, *newer], strict=True))
    fields = [known[name] for name in dict.fromkeys([*names, *query.table.path_columns])]
    return pa.schema([*fields, pa.field(DRAWN_ORDER, pa.float64())] if query.draws else fields)
