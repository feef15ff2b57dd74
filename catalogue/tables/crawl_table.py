"""The row groups of a crawl, as a query finds and uses them."""

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.datasets import IndexFile
from catalogue.errors import StoreChanged
from catalogue.parquet.arrow_arrays import positions
from catalogue.parquet.column_chunk import LazyChunks, decode_chunks
from catalogue.parquet.model import SIGNED, UNSIGNED, Column, ColumnChunk, Footer, RowGroup
from catalogue.parquet.page_index import Indexes
from catalogue.query.key_intervals import KeyIntervals
from catalogue.query.random_order import DrawnRows, RowGroupId
from catalogue.source.byte_ranges import ByteRange
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from catalogue.tables.table_file import TABLE, TableFile, decode_columns

_VALUES = [name for name in TABLE if name not in {"footer_size", "utc_times", "has_page_index"}]
_PARTS = 512
"""Parts of all crawls whose flat columns are in memory, of some 0.2 MB each."""
_DECODED = 256
"""Parts of all crawls with decoded row groups, of some 10 kB each, or 1 MB if all are decoded."""
_FOOTERS = 64
"""Footers in memory, of some 0.1 MB each."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """An index file with row groups that may match, and what is stored about it."""

    file: IndexFile
    stored: StoredFile
    """The value of the store, without the footer's bytes."""
    footer: Footer
    """The footer with these row groups; column chunks are decoded at first use."""
    indexes: Callable[[int], Indexes | None] = field(default=lambda _: None, compare=False)
    """It returns the stored page indexes and bounds of a row group."""
    cached: tuple[ByteRange, ...] = ()
    drawn: Mapping[RowGroupId, DrawnRows] = field(default_factory=dict, compare=False)
    """The drawn rows of a sample; of other row groups all."""
    least: str = ""
    """A lower bound of its keys, by which files are sorted."""

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def ordinals(self) -> tuple[int, ...]:
        return tuple(group.ordinal for group in self.footer.row_groups)

    def among(self, ordinals: Container[int]) -> "FileMetadata":
        groups = tuple(group for group in self.footer.row_groups if group.ordinal in ordinals)
        return replace(self, footer=replace(self.footer, row_groups=groups))


_Row: TypeAlias = tuple[dict[str, Any], RowGroup]


class StoredFooters:
    """Column chunks, decoded from stored footers when they are used, and what is kept of the tables of all crawls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._value = lru_cache(_FOOTERS)(self._read)
        self.flat = lru_cache(_PARTS)(lambda table, part: table.read(part, _VALUES))
        self.keys = lru_cache(_PARTS)(self._read_keys)
        self.decoded = lru_cache(_DECODED)(lambda _table, _part: dict[int, _Row]())

    def _read(self, path: str, version: bytes) -> StoredFile:
        stored = self._store.get("files", path, version)
        if stored is None:
            raise StoreChanged(path)
        return stored

    def _read_keys(self, table: TableFile, part: int) -> "_Keys":
        of = table.parts[part]
        rows = self.flat(table, part).slice(of.unbounded)
        least, greatest = (rows.column(name).cast(pa.binary()).to_pylist() for name in ("min_key", "max_key"))
        origins = rows.column("bounds_from").to_pylist() if of.signed else []
        signed = [row for row, origin in enumerate(origins) if origin == SIGNED]
        return _Keys(least, greatest, [*accumulate(greatest, max)], signed)

    def chunks(self, row: Mapping[str, Any], columns: Mapping[str, Column]) -> LazyChunks:
        """Return the column chunks of a row group.

        The first use raises ``StoreDamaged``, or ``StoreLocked`` if the footer was replaced.
        """
        decoded: list[LazyChunks] = []

        def make(name: str, _: Column) -> ColumnChunk:
            if not decoded:
                stored = self._value(row["path"], row["version"])
                options = {"columns": columns, "created_by": row["created_by"], "ordered": row["ordered"]}
                decoded.append(decode_chunks(stored.data, stored.size, offset=row["footer_offset"], **options))
            return decoded[0][name]

        return LazyChunks(columns, make)


class _Keys(NamedTuple):
    least: list[bytes]
    greatest: list[bytes]
    reached: list[bytes]
    signed: list[int]


class CrawlTable:
    """The rows of one table."""

    def __init__(self, table: TableFile, footers: StoredFooters) -> None:
        self.table = table
        self._footers = footers

    def _rows(self, part: int, rows: Sequence[int]) -> list[_Row]:
        known = self._footers.decoded(self.table, part)
        if new := [row for row in rows if row not in known]:
            flat = self._footers.flat(self.table, part).take(positions(np.array(new, np.int64)))
            known |= zip(new, map(self._row, flat.to_pylist()), strict=True)
        return [known[row] for row in rows]

    def _row(self, of: dict[str, Any]) -> _Row:
        columns = decode_columns(self.table.schemas[of["schema"]])
        group = RowGroup(
            ordinal=of["row_group"],
            num_rows=of["num_rows"],
            total_byte_size=of["total_byte_size"],
            total_compressed_size=of["total_compressed_size"],
            start=of["file_offset"],
            offset=of["footer_offset"],
            chunks=self._footers.chunks(of, columns),
        )
        return of, group

    def files(
        self,
        subset: str,
        intervals: KeyIntervals,
        may_match: Callable[[dict[str, Any]], bool] = bool,
        *,
        by_footers: bool = False,
    ) -> list[FileMetadata]:
        """Return the files with row groups whose keys may be in one of the ascending, disjoint intervals, by path.

        ``by_footers`` uses no bounds that were found in page indexes or by a backfill.
        """
        parts = [number for number, part in enumerate(self.table.parts) if part.subset == subset]
        # Bounds in signed order are valid for ASCII only; see KeyIntervals.span.
        signed = any(self.table.parts[number].signed for number in parts) and bool(intervals.not_ascii)
        files: dict[str, list[_Row]] = {}
        for number in parts:
            part = self.table.parts[number]
            places: list[int] = []
            if by_footers:
                origins = self._footers.flat(self.table, number).column("bounds_from").to_pylist()
                places += [row for row, origin in enumerate(origins) if origin not in {UNSIGNED, SIGNED}]
            is_open = part.unbounded or (part.signed and signed)
            if is_open or intervals.overlap(part.least.encode(), part.greatest.encode()):
                places += self._places(number, intervals, signed=signed)
            for row in self._rows(number, sorted({*places})):
                if row[0]["row_group"] is not None and may_match(row[0]):
                    files.setdefault(row[0]["path"], []).append(row)
        return [self._file(files[path]) for path in sorted(files)]

    def _file(self, rows: Sequence[_Row]) -> FileMetadata:
        of, _ = rows[0]
        columns = decode_columns(self.table.schemas[of["schema"]])
        in_order = tuple(sorted((group for _, group in rows), key=lambda group: group.ordinal))
        return FileMetadata(
            IndexFile(of["path"], of["crawl"], of["subset"]),
            StoredFile(b"", *(of[name] for name in ("file_size", "etag", "last_modified", "source", "taken"))),
            Footer(
                of["file_num_rows"],
                of["created_by"],
                columns,
                in_order,
                tuple(of["file_codec"].split("+")),
                of["ordered"],
            ),
            least=of["file_min_key"],
        )

    def _places(self, part: int, intervals: KeyIntervals, *, signed: bool) -> list[int]:
        unbounded = self.table.parts[part].unbounded
        keys = self._footers.keys(self.table, part)
        found: set[int] = set()
        if len(intervals) > len(keys.least):
            bounds = enumerate(zip(keys.least, keys.greatest, strict=True))
            found.update(row for row, (least, greatest) in bounds if intervals.overlap(least, greatest))
        else:
            for interval in intervals:
                end = bisect_left(keys.least, interval.end)
                start = bisect_left(keys.reached, interval.start, 0, end)
                found.update(row for row in range(start, end) if keys.greatest[row] >= interval.start)
        if signed:
            found.update(keys.signed)
        return [*range(unbounded), *sorted(unbounded + row for row in found)]
