"""Write the parts of a join, and the result that they make."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.atomic_files import whole_file
from catalogue.join.keys import NUMBER, ROW, JoinKeys, Lookups
from catalogue.join.kinds import Kind, distinct, newest_of, pairs
from catalogue.join.slices import JoinPart
from catalogue.join.sort_keys import is_key
from catalogue.parquet.arrow_arrays import booleans, chunks, flags, numbers, positions
from catalogue.surt.equality import same_url

if TYPE_CHECKING:
    from catalogue.captures import Captures

EXACT = "exact"
"""Column: whether the capture has the URL of the list; null if the list has a key."""


def with_exact(joined: pa.Table, keys: JoinKeys) -> pa.Table:
    """Append the column ``EXACT``."""
    nulls = pa.nulls(len(joined), pa.bool_())
    return joined.append_column(EXACT, nulls if keys.are_keys else _are_exact(joined[keys.column], joined["url"]))


def _are_exact(texts: pa.ChunkedArray, urls: pa.ChunkedArray) -> pa.Array:
    exact, is_url = are_true(pc.equal(texts, urls)), np.ones(len(texts), np.bool_)
    others = np.flatnonzero(~exact)
    pairs = zip(*(column.take(positions(others)).to_pylist() for column in (texts, urls)), strict=True)
    for row, (text, url) in zip(others.tolist(), pairs, strict=True):
        is_url[row] = not is_key(text.strip())
        exact[row] = is_url[row] and same_url(text.strip(), url or "")
    return pc.if_else(flags(is_url), flags(exact), pa.nulls(1, pa.bool_())[0])


def are_true(values: pa.ChunkedArray) -> np.ndarray:
    """Return which values are true, not false or null."""
    found = values.combine_chunks()
    known: np.ndarray = booleans(found) & booleans(pc.is_valid(found))
    return known


def latest_of_rows(joined: pa.Table) -> pa.Table:
    """Keep the newest exact capture of each row, or the newest if none is exact, in the order of the rows."""
    rows = numbers(joined[ROW])
    _, first, at = np.unique(rows, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return joined
    exact = are_true(joined[EXACT])
    keep = exact | ~np.isin(rows, rows[exact])
    return newest_of(joined.filter(flags(keep)), first[at][keep])


_CHUNK_ROWS, _CHUNK_BYTES = 1 << 18, 32 << 20
_REPEATED = [
    *("fetch_time", "content_mime_type", "content_mime_detected", "fetch_status", "content_languages"),
    *("content_charset", "fetch_redirect", "content_truncated", "warc_filename", "crawl", "subset"),
]
"""Columns with few values, for which dictionaries are tried."""
_PACKED: Any = {"compression": "zstd", "use_dictionary": _REPEATED}
_TEMPORARY: Any = {"compression": "lz4", "use_dictionary": False, "write_statistics": [NUMBER]}
_ROW_GROUP = 1 << 15
"""Small, so that a result reads few rows of others."""


def write_part(
    kind: Kind, captures: "Captures", lookups: Lookups, keys: JoinKeys, path: Path, *, temporary: bool
) -> JoinPart:
    """Read the captures of a slice, and write its part if it has rows; a ``temporary`` one is made in less time.

    Raises:
        SourceError: if a request fails.
        DiskFailed: if the file cannot be written.
    """
    reached: list[int] = []

    def tables(found: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for chunk in found:
            of = numbers(chunk[NUMBER])
            reached.extend((int(of.min()), int(of.max())))
            if kind.collect:
                yield chunk
                continue
            for joined in pairs(chunk, keys.rows_of(distinct(of))):
                yield with_exact(joined, keys) if kind.exact else joined

    with closing(captures.batches(warn=False, report=lambda _: None)) as batches:
        numbered = _numbered(batches, captures.plan.query.table.key, lookups)
        large = chunks(numbered, _CHUNK_ROWS, _CHUNK_BYTES)
        found = _collected(kind.collect, map(kind.collect, large)) if kind.collect else large
        size = _ROW_GROUP if kind.collect else None
        if not (rows := write_tables(tables(found), path, row_group_size=size, temporary=temporary)):
            return JoinPart("", 0, 0, 0, 0)
    return JoinPart(path.name, rows, path.stat().st_size, min(reached), max(reached))


def _numbered(batches: Iterable[pa.RecordBatch], key: str, lookups: Lookups) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, patterns = lookups.find(batch.column(key).cast(pa.binary()))
        chosen = batch if np.array_equal(rows, np.arange(len(batch))) else batch.take(positions(rows))
        names = [NUMBER, *batch.schema.names]
        yield pa.RecordBatch.from_arrays([positions(patterns), *chosen.columns], names=names)


def _collected(collect: Callable[[pa.Table], pa.Table], found: Iterable[pa.Table]) -> list[pa.Table]:
    some: list[pa.Table] = []
    for table in filter(len, found):
        some.append(table)
        if sum(map(len, some[1:])) > max(_CHUNK_ROWS, 2 * len(some[0])):  # seldom, as each time all are sorted
            some = [collect(pa.concat_tables(some))]
    return some if len(some) < 2 else [collect(pa.concat_tables(some))]  # noqa: PLR2004 - one is sorted already


def result_of(
    kind: Kind, schema: pa.Schema, keys: JoinKeys, parts: Iterable[Path], unread: np.ndarray, span: tuple[int, int]
) -> pa.Table:
    """Return the result of any kind but ``inner`` for the patterns of a span, least and greatest inclusive.

    ``schema`` is that of captures; ``unread`` has ascending numbers of patterns for which not everything was read.
    """
    assert kind.result and kind.collect  # noqa: S101, PT018 - an inner join needs none
    nothing = pa.Table.from_batches([], schema.insert(0, pa.field(NUMBER, pa.int64())))
    (collected,) = _collected(kind.collect, (_within(part, span) for part in parts)) or [kind.collect(nothing)]
    found = kind.result(collected, keys.rows_of(np.arange(span[0], span[1] + 1)), unread)
    found = with_exact(found, keys) if kind.exact else found
    return latest_of_rows(found) if kind.exact and not keys.are_keys else found


def _within(part: Path, span: tuple[int, int]) -> pa.Table:
    with pq.ParquetFile(part) as file:
        of_groups = (file.metadata.row_group(group).column(0).statistics for group in range(file.num_row_groups))
        chosen = [at for at, each in enumerate(of_groups) if each.min <= span[1] and each.max >= span[0]]
        found = file.read_row_groups(chosen, use_threads=False)
    start, stop = np.searchsorted(numbers(found[NUMBER]), (span[0], span[1] + 1))
    return found.slice(start, stop - start)


def write_tables(
    tables: Iterable[pa.Table], path: Path, *, row_group_size: int | None = None, temporary: bool = False
) -> int:
    rest = iter(tables)
    if (table := next(rest, None)) is None:
        return 0
    rows, options = 0, _TEMPORARY if temporary else _PACKED
    with whole_file(path) as file, pq.ParquetWriter(file, table.schema, **options) as writer:
        while table is not None:
            writer.write_table(table, row_group_size)
            rows += len(table)
            del table  # before the next one takes memory
            table = next(rest, None)
    return rows


def write_nothing(kind: Kind, schema: pa.Schema, keys: JoinKeys, path: Path) -> None:
    empty = pa.schema([*list(keys.input_schema)[1:], *schema]).empty_table()
    write_tables([with_exact(empty, keys) if kind.exact else empty], path)


def prefer_exact(files: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Remove captures of other URLs from rows that have exact ones in any file; yield changed files with their rows.

    A file whose rows all go is unchanged, and has 0.
    """
    has_exact = np.zeros(0, np.bool_)  # by number of the row, which with blank lines exceeds the count of rows
    mixed: list[Path] = []
    for path in files:
        rows, is_exact, is_other = _rows_and_exact(path)
        new = max(0, 1 + int(rows.max(initial=0)) - len(has_exact))
        has_exact = np.append(has_exact, np.zeros(new, np.bool_))
        has_exact[rows[is_exact]] = True
        if is_other.any():
            mixed.append(path)
    for path in mixed:
        rows, _, is_other = _rows_and_exact(path)
        keep = ~(is_other & has_exact[rows])
        if not keep.all():
            yield path, write_tables(_kept(path, keep), path)


def rows_of_other_urls(files: Iterable[Path]) -> int:
    return sum(int(np.count_nonzero(_rows_and_exact(path)[2])) for path in files)


def _rows_and_exact(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with pq.ParquetFile(path) as file:
        found = file.read([ROW, EXACT], use_threads=False)
    return numbers(found[ROW]), are_true(found[EXACT]), are_true(pc.invert(found[EXACT]))


def _kept(path: Path, keep: np.ndarray) -> Iterator[pa.Table]:
    start = 0
    for rows in row_groups_of(path):
        if len(kept := rows.filter(flags(keep[start : start + len(rows)]))):
            yield kept
        start += len(rows)


def row_groups_of(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, use_threads=False)
