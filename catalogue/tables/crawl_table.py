"""The row groups of a crawl, as a query finds and uses them."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import StoreLocked
from catalogue.parquet.arrow_arrays import positions
from catalogue.parquet.key_column import SIGNED
from catalogue.parquet.model import Footer, RowGroup
from catalogue.query.exact_keys import is_ascii
from catalogue.source.byte_ranges import FileVersion
from catalogue.store.stored_file import StoredFile
from catalogue.surt import KeyInterval, overlap
from catalogue.tables.file_metadata import FileMetadata
from catalogue.tables.footer_rows import USED, StoredChunks
from catalogue.tables.table_file import TableDamaged, TableFile, TablePart
from catalogue.tables.table_schema import CHUNK_PATH, FLAT, decode_columns

_Found = TypeVar("_Found")
_CHUNKS = [CHUNK_PATH + name for name in USED]
_VALUES = [name for name in FLAT if name not in {"version", "footer_size", "file_codec", "utc_times", "has_page_index"}]
_PARTS = 128
"""Parts whose flat columns are in memory, of some 0.1 MB each."""
_CHUNK_PARTS = 4
"""Parts whose column chunks are in memory, of some 1.5 MB each."""
_ROW_GROUPS = 2048
"""Row groups whose column chunks are in memory, of some 30 kB each."""


class _Keys(NamedTuple):
    """Bounds of the rows of a part, without the first rows, which have none."""

    least: list[bytes]
    greatest: list[bytes]
    reached: list[bytes]
    """The greatest key so far."""
    signed: list[int]
    """Rows whose bounds are in signed order."""


class CrawlTable:
    """The rows of one table."""

    def __init__(self, table: TableFile, repair: Callable[[], TableFile]) -> None:
        """Use a table; ``repair`` makes it again if it turns out to be damaged."""
        self._table = table
        self._repair = repair
        self._flat = lru_cache(_PARTS)(self._read_flat)
        self._keys = lru_cache(_PARTS)(self._read_keys)
        self._chunks = lru_cache(_CHUNK_PARTS)(self._read_chunks)
        self._row_chunks = lru_cache(_ROW_GROUPS)(self._chunks_of_row)

    def _reading(self, read: Callable[[TableFile], _Found]) -> _Found:
        try:
            return read(self._table)
        except TableDamaged:
            before, self._table = self._table, self._repair()
            if [part.contents for part in before.parts] != [part.contents for part in self._table.parts]:
                message = "a damaged table was made again, and has other row groups now; run the query again"
                raise StoreLocked(message) from None
            return read(self._table)

    def _read_flat(self, part: int) -> pa.RecordBatch:
        return self._reading(lambda table: table.read(part, _VALUES))

    def _read_keys(self, part: int) -> _Keys:
        bounded = self._flat(part).slice(self._table.parts[part].unbounded)
        least, greatest, origins = (bounded.column(name).to_pylist() for name in ("min_key", "max_key", "bounds_from"))
        least, greatest = ([key.encode() for key in each] for each in (least, greatest))
        signed = [row for row, origin in enumerate(origins) if origin == SIGNED]
        return _Keys(least, greatest, [*accumulate(greatest, max)], signed)

    def _read_chunks(self, part: int) -> pa.ListArray:
        return self._reading(lambda table: table.read(part, _CHUNKS)).column("chunks")

    def _chunks_of_row(self, part: int, row: int, schema: str) -> StoredChunks:
        return StoredChunks(decode_columns(self._table.schemas[schema]), lambda: self._chunks(part)[row].values)

    def files(
        self, subset: str, intervals: Sequence[KeyInterval], may_match: Callable[[dict[str, Any]], bool] = bool
    ) -> list[FileMetadata]:
        """Return the files with row groups whose keys may be in one of the ascending, disjoint intervals, by path.

        Args:
            subset: of the files.
            intervals: of keys.
            may_match: whether a row may match otherwise.
        """
        groups: dict[str, list[tuple[dict[str, Any], RowGroup]]] = {}
        for part, row, values in self._matching(subset, intervals):
            if may_match(values):
                group = RowGroup(
                    ordinal=values["row_group"],
                    num_rows=values["num_rows"],
                    total_byte_size=values["total_byte_size"],
                    total_compressed_size=values["total_compressed_size"],
                    start=values["file_offset"],
                    chunks=self._row_chunks(part, row, values["schema"]),
                )
                groups.setdefault(values["path"], []).append((values, group))
        return [self._file(*zip(*groups[path], strict=True)) for path in sorted(groups)]

    def _file(self, rows: Sequence[dict[str, Any]], groups: Sequence[RowGroup]) -> FileMetadata:
        of = rows[0]
        columns = decode_columns(self._table.schemas[of["schema"]])
        in_order = tuple(sorted(groups, key=lambda group: group.ordinal))
        return FileMetadata(
            IndexFile(of["path"], of["crawl"], of["subset"]),
            FileVersion(of["file_size"], of["etag"]),
            Footer(of["file_num_rows"], of["created_by"], columns, in_order),
            least=of["file_min_key"],
            stored=StoredFile(b"", *(of[name] for name in ("file_size", "etag", "last_modified", "source", "taken"))),
        )

    def _matching(self, subset: str, intervals: Sequence[KeyInterval]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield part, row and values of the row groups whose keys may be in one of the intervals."""
        parts = [number for number, part in enumerate(self._table.parts) if part.subset == subset]
        # Bounds in signed order are valid for ASCII only; see resolved_query.near.
        signed = any(self._table.parts[number].signed for number in parts) and not is_ascii(intervals)
        for number in parts:
            if _may_match(self._table.parts[number], intervals, signed=signed):
                rows = self._rows(number, intervals, signed=signed)
                flat = self._flat(number).take(positions(np.array(rows, np.int64)))
                for row, values in zip(rows, flat.to_pylist(), strict=True):
                    if values["row_group"] is not None:
                        yield number, row, values

    def _rows(self, part: int, intervals: Sequence[KeyInterval], *, signed: bool) -> list[int]:
        unbounded = self._table.parts[part].unbounded
        keys = self._keys(part)
        found: set[int] = set()
        if len(intervals) > len(keys.least):
            bounds = enumerate(zip(keys.least, keys.greatest, strict=True))
            found.update(row for row, (least, greatest) in bounds if overlap(intervals, least, greatest))
        else:
            for interval in intervals:
                end = bisect_left(keys.least, interval.end)
                start = bisect_left(keys.reached, interval.start, 0, end)
                found.update(row for row in range(start, end) if keys.greatest[row] >= interval.start)
        if signed:
            found.update(keys.signed)
        return [*range(unbounded), *sorted(unbounded + row for row in found)]

    def columns(self, subset: str, names: Sequence[str]) -> pa.Table:
        """Return flat columns of all rows of a subset, in the order of keys."""
        return self._reading(lambda table: table.columns(subset, names))


def _may_match(part: TablePart, intervals: Sequence[KeyInterval], *, signed: bool) -> bool:
    if part.unbounded or (part.signed and signed):
        return True
    return overlap(intervals, part.least.encode(), part.greatest.encode())
