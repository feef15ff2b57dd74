"""Write the parts of a join, and the result that they make."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.atomic_files import named, put_in_place, whole_file
from catalogue.join.join_ledger import Part
from catalogue.join.keys import JoinKeys
from catalogue.join.kinds import INPUTS, PARTS, UNREAD, Kind, distinct
from catalogue.join.lookups import NUMBER, Lookups
from catalogue.join.spilling import parquet_files
from catalogue.parquet.arrow_arrays import flags, integers, numbers, positions
from catalogue.query.literals import literal

if TYPE_CHECKING:
    from catalogue.captures import Captures

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 18, 32 << 20
"""Captures that are added at a time."""
_REPEATED = [
    *("fetch_time", "content_mime_type", "content_mime_detected", "fetch_status", "content_languages"),
    *("content_charset", "fetch_redirect", "content_truncated", "warc_filename", "crawl", "subset"),
]
"""Columns with few values, for which dictionaries are tried."""
_PACKED: Any = {"compression": "zstd", "use_dictionary": _REPEATED}
_PAIRS, _PAIR_BYTES = 1 << 18, 256 << 20
"""Rows of an inner join that are made at a time, and about their bytes."""
_ROW_GROUP = 1 << 15
"""Rows of a row group of a part, so that a result reads few of others."""
_NOTHING = "nothing"


def write_part(
    kind: Kind,
    captures: "Captures",
    lookups: Lookups,
    keys: JoinKeys,
    path: Path,
) -> Part:
    """Read the captures of a slice, and write its part.

    Args:
        kind: of the join.
        captures: of the slice.
        lookups: the intervals of the slice.
        keys: of the join.
        path: of the file; it is not written if it would be empty.

    Raises:
        SourceError: if a request fails.
        DiskFailed: if the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}")
    try:
        with closing(captures.batches(warn=False, report=lambda _: None)) as batches:
            found = _chunks(lookups.numbered(batches, captures.plan.query.table.key))
            of = _write_collected(kind, found, temporary) if kind.collect else _write_joined(found, keys, temporary)
        if of is None:
            return Part("", 0, 0, 0, 0)
        put_in_place(temporary, path)
        return Part(path.name, of.rows, path.stat().st_size, of.first, of.last)
    finally:
        temporary.unlink(missing_ok=True)


class _Written(NamedTuple):
    """What is in a file."""

    rows: int
    first: int
    """Least number of a pattern."""
    last: int


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield captures in larger tables."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _write_joined(found: Iterable[pa.Table], keys: JoinKeys, path: Path) -> _Written | None:
    """Write captures with each row of the input that has their pattern."""
    writer, rows = None, 0
    least, greatest = [], []
    try:
        for chunk in found:
            of = numbers(chunk[NUMBER])
            least.append(int(of.min()))
            greatest.append(int(of.max()))
            inputs = keys.rows_of(distinct(of))
            for table in _pairs(chunk.drop_columns([NUMBER]), of, inputs):
                with named(path):
                    writer = writer or pq.ParquetWriter(path, table.schema, **_PACKED)
                    writer.write_table(table)
                rows += len(table)
    finally:
        if writer:
            with named(path):
                writer.close()
    return _Written(rows, min(least), max(greatest)) if writer else None


def _pairs(captures: pa.Table, of: np.ndarray, inputs: pa.RecordBatch) -> Iterator[pa.Table]:
    """Yield each capture with each row of the input that has its pattern, some at a time.

    Args:
        captures: the captures.
        of: the numbers of their patterns.
        inputs: the rows, sorted by the number of their pattern.
    """
    patterns, given = integers(inputs.column(NUMBER)), inputs.drop_columns([NUMBER])
    first = np.searchsorted(patterns, of)
    counts = np.searchsorted(patterns, of, side="right") - first
    ends = np.cumsum(counts)
    size = 1 + sum(rows.nbytes // max(1, len(rows)) for rows in (given, captures))
    step = max(1, min(_PAIRS, _PAIR_BYTES // size))
    for start in range(0, int(ends[-1]), step):
        pairs = np.arange(start, min(start + step, int(ends[-1])))
        at = np.searchsorted(ends, pairs, side="right")
        rows_of = given.take(positions(first[at] + pairs - (ends[at] - counts[at])))
        chosen = captures if np.array_equal(at, np.arange(len(captures))) else captures.take(positions(at))
        names = [*rows_of.schema.names, *chosen.column_names]
        yield pa.table([*rows_of.columns, *chosen.columns], names=names)


def _write_collected(kind: Kind, found: Iterable[pa.Table], path: Path) -> _Written | None:
    """Write what a kind collects of captures."""
    kept: pa.Table | None = None
    for chunk in found:
        assert kind.collect  # noqa: S101 - an inner join collects nothing
        kept = kind.collect(chunk if kept is None else pa.concat_tables([kept, kind.collect(chunk)]))
    if kept is None:
        return None
    of = numbers(kept[NUMBER])
    inorder = kept if (np.diff(of) >= 0).all() else kept.take(positions(np.argsort(of, kind="stable")))
    with named(path):
        pq.write_table(inorder, path, row_group_size=_ROW_GROUP, **_PACKED)
    return _Written(len(kept), int(of.min()), int(of.max()))


def prepare_result(kind: Kind, schema: pa.Schema, connection: duckdb.DuckDBPyConnection) -> None:
    """Make an empty part, so that the result has all columns; ``schema`` is that of captures."""
    assert kind.collect  # noqa: S101 - an inner join needs no result
    nothing = kind.collect(schema.insert(0, pa.field(NUMBER, pa.int64())).empty_table())
    connection.register(_NOTHING, nothing)


def write_chosen(
    kind: Kind, keys: JoinKeys, parts: Iterable[Path], unread: np.ndarray, span: tuple[int, int], path: Path
) -> int:
    """Do what ``write_result`` does, for a result that has rows of the input alone."""
    assert kind.chosen  # noqa: S101 - the caller looked
    rows = keys.rows_between(*span)
    of, given = integers(rows.column(NUMBER)), rows.drop_columns([NUMBER])
    chosen = given.filter(flags(kind.chosen(_is_in(of, _patterns_in(parts, span)), _is_in(of, unread))))
    with whole_file(path) as file:
        pq.write_table(pa.Table.from_batches([chosen]), file, compression="zstd")
    return len(chosen)


def _patterns_in(parts: Iterable[Path], span: tuple[int, int]) -> np.ndarray:
    """Return the ascending numbers of the patterns in parts, of a span at least; parts are sorted by them."""
    found = [np.arange(0)]
    for part in parts:
        with pq.ParquetFile(part) as file:
            of_groups = (file.metadata.row_group(group).column(0).statistics for group in range(file.num_row_groups))
            wanted = [at for at, each in enumerate(of_groups) if each.min <= span[1] and each.max >= span[0]]
            found.append(numbers(file.read_row_groups(wanted, columns=[NUMBER], use_threads=False).column(0)))
    return np.unique(np.concatenate(found))


def _is_in(values: np.ndarray, inorder: np.ndarray) -> np.ndarray:
    """Return whether each value is one of some ascending others."""
    if not len(inorder):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(inorder, values), len(inorder) - 1)
    return np.asarray(inorder[at] == values)


def write_result(
    kind: Kind,
    keys: JoinKeys,
    parts: Iterable[Path],
    unread: np.ndarray,
    span: tuple[int, int],
    path: Path,
    connection: duckdb.DuckDBPyConnection,
) -> int:
    """Write the result for some patterns; return the number of rows.

    Args:
        kind: of the join.
        keys: of the join.
        parts: files that may have them.
        unread: numbers of patterns for which not everything was read.
        span: least and greatest number of the patterns.
        path: of the file.
        connection: to a database in memory.
    """
    within = f"WHERE {NUMBER} BETWEEN {span[0]} AND {span[1]}"
    files = [*parts]
    connection.register(UNREAD, pa.table({NUMBER: positions(unread)}))
    found = f"SELECT * FROM {parquet_files(files)} {within} UNION ALL BY NAME" if files else ""
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {PARTS} AS {found} FROM {_NOTHING}")
    connection.register(INPUTS, pa.Table.from_batches([keys.rows_between(*span)]))
    temporary = path.with_name(f".{path.name}")
    to = f"TO {literal(str(temporary))} (FORMAT parquet, COMPRESSION zstd)"
    (rows,) = connection.execute(f"COPY ({kind.result}) {to}").fetchone() or (0,)
    put_in_place(temporary, path)
    return int(rows)


def write_nothing(keys: JoinKeys, schema: pa.Schema, path: Path) -> None:
    """Write an inner join without rows; ``schema`` is that of captures."""
    given = keys.input_schema
    with whole_file(path) as file:
        pq.write_table(pa.schema([*list(given)[1:], *schema]).empty_table(), file)


def concatenate(parts: Iterable[Path], path: Path) -> None:
    """Write the rows of several files to one."""
    first, *others = parts
    with whole_file(path) as file, pq.ParquetWriter(file, pq.read_schema(first), compression="zstd") as writer:
        for part in (first, *others):
            with pq.ParquetFile(part) as opened:
                for group in range(opened.num_row_groups):
                    writer.write_table(opened.read_row_group(group))
