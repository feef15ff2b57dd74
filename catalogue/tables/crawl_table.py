"""The row groups of a crawl, as a query finds and uses them."""

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate
from math import inf
from operator import attrgetter
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
from catalogue.tables.table_file import STORED_VALUES, TABLE, TableFile, decode_columns

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
        self.flat = lru_cache(_PARTS)(partial(TableFile.read, columns=_VALUES))
        self.keys = lru_cache(_PARTS)(self._read_keys)
        self.decoded = lru_cache(_DECODED)(lambda _table, _part: dict[int, _Row]())

    def _read(self, path: str, version: bytes) -> StoredFile:
        if stored := self._store.get("files", path, version):
            return stored
        raise StoreChanged(path)

    def _read_keys(self, table: TableFile, part: int) -> "_Keys":
        of = table.parts[part]
        rows = self.flat(table, part).slice(of.unbounded)
        least = rows.column("min_key").cast(pa.binary()).to_pylist()
        greatest = rows.column("max_key").cast(pa.binary()).to_pylist()
        signed: set[int] = set()
        if of.signed:
            origins = enumerate(rows.column("bounds_from").to_pylist(), of.unbounded)
            signed = {row for row, origin in origins if origin == SIGNED}
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
    """Bounds of the rows of a part that have some."""

    least: list[bytes]
    greatest: list[bytes]
    reached: list[bytes]
    """The greatest key of the rows up to each."""
    signed: set[int]
    """The rows with bounds in signed order, counted from the first one of the part."""


@dataclass(eq=False, slots=True)
class CrawlTable:
    """The rows of one table."""

    table: TableFile
    _footers: StoredFooters

    def _rows(self, number: int, places: set[int]) -> dict[int, _Row]:
        known = self._footers.decoded(self.table, number)
        if new := sorted(places.difference(known)):
            flat = self._footers.flat(self.table, number).take(positions(np.array(new, np.int64)))
            for place, of in zip(new, flat.to_pylist(), strict=True):
                group = RowGroup(
                    ordinal=of["row_group"],
                    num_rows=of["num_rows"],
                    total_byte_size=of["total_byte_size"],
                    total_compressed_size=of["total_compressed_size"],
                    start=of["file_offset"],
                    offset=of["footer_offset"],
                    chunks=self._footers.chunks(of, decode_columns(self.table.schemas[of["schema"]])),
                )
                known[place] = of, group
        return known

    def files(
        self,
        subsets: Container[str],
        intervals: KeyIntervals,
        earliest: float = -inf,
        latest: float = inf,
        *,
        by_footers: bool = False,
    ) -> list[FileMetadata]:
        """Return the files with row groups whose keys may be in one of the ascending, disjoint intervals, by path.

        Known times of row groups overlap those from ``earliest`` to before ``latest``, in milliseconds since 1970.
        ``by_footers`` uses no bounds that were found in page indexes or by a backfill.
        """
        files: dict[str, tuple[dict[str, Any], list[RowGroup]]] = {}
        for number, part in enumerate(self.table.parts):
            if part.subset not in subsets:
                continue
            places = {*range(part.unbounded)}
            if by_footers:
                origins = self._footers.flat(self.table, number).column("bounds_from").to_pylist()
                places.update(row for row, origin in enumerate(origins) if origin not in {UNSIGNED, SIGNED})
            # Bounds in signed order are valid for ASCII only; see KeyIntervals.span.
            signed = part.signed and bool(intervals.not_ascii)
            if signed or intervals.overlap(part.least.encode(), part.greatest.encode()):
                places |= self._places(number, intervals, signed=signed)
            rows = self._rows(number, places)
            for place in sorted(places):
                of, group = rows[place]
                first, last = of["first_fetch"], of["last_fetch"]
                is_in_time = first is None or last is None or (earliest <= last and first < latest)
                if of["row_group"] is not None and is_in_time:
                    files.setdefault(of["path"], (of, []))[1].append(group)
        return [self._file(*files[path]) for path in sorted(files)]

    def _file(self, of: dict[str, Any], groups: list[RowGroup]) -> FileMetadata:
        return FileMetadata(
            IndexFile(of["path"], of["crawl"], of["subset"]),
            StoredFile(b"", *STORED_VALUES(of)),
            Footer(
                of["file_num_rows"],
                of["created_by"],
                decode_columns(self.table.schemas[of["schema"]]),
                tuple(sorted(groups, key=attrgetter("ordinal"))),
                tuple(of["file_codec"].split("+")),
                of["ordered"],
            ),
            least=of["file_min_key"],
        )

    def _places(self, number: int, intervals: KeyIntervals, *, signed: bool) -> set[int]:
        unbounded, keys = self.table.parts[number].unbounded, self._footers.keys(self.table, number)
        found = {*keys.signed} if signed else set[int]()
        if len(intervals) > len(keys.least):
            bounds = enumerate(zip(keys.least, keys.greatest, strict=True), unbounded)
            found.update(row for row, (least, greatest) in bounds if intervals.overlap(least, greatest))
        else:
            for interval in intervals:
                end = bisect_left(keys.least, interval.end)
                start = bisect_left(keys.reached, interval.start, 0, end)
                found.update(unbounded + row for row in range(start, end) if keys.greatest[row] >= interval.start)
        return found
