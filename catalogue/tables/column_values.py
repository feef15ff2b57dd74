"""The values of columns of row groups, from dictionary pages.

A file next to the table of a crawl has, for each value of a column, the row groups that contain it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.atomic_files import whole_file
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.gzip_members import crc32
from catalogue.errors import QueryError
from catalogue.parquet.arrow_arrays import array_of, booleans, integers, positions, texts
from catalogue.parquet.dictionary_pages import TEXT, dictionary_values, kind_of_values
from catalogue.parquet.model import ColumnChunk
from catalogue.query.random_order import RowGroupId
from catalogue.query.resolved_query import without_unknown

if TYPE_CHECKING:
    from collections.abc import Container

    from catalogue.query.resolved_query import ResolvedQuery, Where
    from catalogue.tables.crawl_table import FileMetadata

_DETECTED_TYPE = "content_mime_detected"
_FILE = pa.schema(
    [
        ("column_name", pa.string()),  # null: ``value`` is a path, and ``row_groups`` are its row groups
        ("kind", pa.string()),
        ("value", pa.string()),
        ("row_groups", pa.list_(pa.int32())),  # numbers of row groups, counted through all paths
    ]
)


class DictionaryPage(NamedTuple):
    """The dictionary page of a column chunk."""

    place: RowGroupId
    chunk: ColumnChunk
    data: bytes


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The distinct values of one column."""

    kind: str
    """The kind of values; see ``kind_of_values``."""
    values: pa.StringArray
    """Ascending, and null at the end if some row groups may contain nulls."""
    row_groups: pa.ListArray
    """The row groups of each value, as numbers in ``CrawlValues.places``."""

    def flags(self, count: int, values: np.ndarray | None = None) -> np.ndarray:
        """Return which of ``count`` row groups have one of the values, given by position; None for all."""
        lists = self.row_groups if values is None else self.row_groups.take(positions(values))
        found = np.zeros(count, bool)
        if len(flat := lists.flatten()):
            found[integers(flat)] = True
        return found


@dataclass(frozen=True, slots=True)
class CrawlValues:
    """The known values of row groups."""

    places: Sequence[RowGroupId]
    columns: Mapping[str, ColumnValues]

    def known(self, name: str) -> np.ndarray:
        column = self.columns.get(name)
        return column.flags(len(self.places)) if column else np.zeros(len(self.places), bool)

    def ruled_out(self, query: "ResolvedQuery") -> set[RowGroupId]:
        if query.where is None or not self.places:
            return set()
        refuted = self._refuted(query.where, query)
        if query.where_declared and refuted.any():
            detected = self.columns.get(_DETECTED_TYPE)
            typed = np.zeros(len(self.places), bool)
            if detected:
                nulls = np.flatnonzero(booleans(detected.values.is_null()))
                typed = self.known(_DETECTED_TYPE) & ~detected.flags(len(self.places), nulls)
            refuted &= typed | self._refuted(query.where_declared, query)
        return {self.places[number] for number in np.flatnonzero(refuted).tolist()}

    def _refuted(self, where: "Where", query: "ResolvedQuery") -> np.ndarray:
        from catalogue.query.where import column_conditions, connect, where_positions

        fields = {field.name: field for field in (*query.table.schema, *query.newer)}
        refuted = np.zeros(len(self.places), bool)
        with connect() as connection:
            for condition in column_conditions(where):
                (name,) = condition.columns
                column, field = self.columns.get(name), fields.get(name)
                if column is None or field is None or not _has_kind(field.type, column.kind):
                    continue
                try:
                    values = pa.table({name: column.values.cast(field.type)})
                    matching = where_positions(condition, values, connection)
                except (QueryError, pa.ArrowInvalid):  # a row that is read reports it
                    continue
                refuted |= self.known(name) & ~column.flags(len(self.places), matching)
        return refuted


def _has_kind(column_type: pa.DataType, kind: str) -> bool:
    return bool(pa.types.is_string(column_type) if kind == TEXT else pa.types.is_integer(column_type))


def dictionary_pages(file: "FileMetadata", names: "Container[str] | None" = None) -> Iterator[DictionaryPage]:
    """Yield the stored pages of some columns, or of all."""
    for group in file.footer.row_groups:
        indexes = file.indexes(group.ordinal)
        for name, data in indexes.dictionaries.items() if indexes else ():
            if (names is None or name in names) and name in group.chunks:
                chunk = group.chunks[name]
                if chunk.dictionary_page and kind_of_values(chunk):
                    yield DictionaryPage((file.path, group.ordinal), chunk, data)


def collect_values(pages: Iterable[DictionaryPage], dataset: Dataset) -> CrawlValues:
    """Decode dictionary pages; pages from which nothing can be concluded count as missing."""
    by_column: dict[str, dict[str, list[DictionaryPage]]] = {}
    for page in pages:
        if kind := kind_of_values(page.chunk):
            by_column.setdefault(page.chunk.column.name, {}).setdefault(kind, []).append(page)
    # A column has one type in all files of a dataset, or nothing is concluded from its values.
    same = {name: next(iter(kinds.items())) for name, kinds in by_column.items() if len(kinds) == 1}
    places = sorted({page.place for _, some in same.values() for page in some})
    number_of = {place: number for number, place in enumerate(places)}
    columns = {}
    for name, (kind, some) in sorted(same.items()):
        found: list[pa.Array] = []
        row_groups: list[np.ndarray] = []
        decoded = dictionary_values([(page.chunk, page.data) for page in some])
        for page, values in zip(some, decoded, strict=True):
            if values is None:
                continue
            known = without_unknown(name, values) if dataset == COMMON_CRAWL else values
            found.append(known.cast(pa.string()))
            if page.chunk.column.optional and page.chunk.null_count != 0:
                found.append(pa.nulls(1, pa.string()))
            count = sum(map(len, found)) - sum(map(len, row_groups))
            row_groups.append(np.full(count, number_of[page.place]))
        if found:
            columns[name] = _grouped(kind, pa.concat_arrays(found), np.concatenate(row_groups))
    return CrawlValues(places, columns)


def _grouped(kind: str, values: pa.StringArray, row_groups: np.ndarray) -> ColumnValues:
    encoded = values.dictionary_encode(null_encoding="encode")
    order = pc.sort_indices(encoded.dictionary)  # null at the end
    ranks = np.empty(len(order), np.int64)
    ranks[integers(order)] = np.arange(len(order))
    span = int(row_groups.max()) + 1
    pairs = np.unique(ranks[integers(encoded.indices)] * span + row_groups)
    starts = np.searchsorted(pairs // span, np.arange(len(order) + 1))
    return ColumnValues(kind, encoded.dictionary.take(order), _lists(starts, pairs % span))


def _lists(starts: np.ndarray, items: np.ndarray) -> pa.ListArray:
    offsets, values = positions(starts).cast(pa.int32()), positions(items).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


def write_values(path: Path, values: CrawlValues) -> int:
    """Replace the file of a crawl, and return its checksum; 0 without values, where the file is deleted."""
    if not values.columns:
        path.unlink(missing_ok=True)
        return 0
    paths = Counter(path for path, _ in values.places)
    ordinals = np.array([ordinal for _, ordinal in values.places], np.int64)
    starts = np.cumsum([0, *paths.values()])
    buffer = BytesIO()
    options = {"use_dictionary": ["column_name", "kind"], "write_statistics": False, "store_schema": False}
    encoding = {"value": "DELTA_BYTE_ARRAY", "row_groups.list.element": "DELTA_BINARY_PACKED"}
    with pq.ParquetWriter(buffer, _FILE, compression="zstd", column_encoding=encoding, **options) as writer:
        writer.write_table(_rows(None, None, texts([*paths]), _lists(starts, ordinals)))
        for name, column in values.columns.items():
            writer.write_table(_rows(name, column.kind, column.values, column.row_groups))
    data = buffer.getvalue()
    with whole_file(path) as file:
        file.write(data)
    return crc32(data)


def _rows(name: str | None, kind: str | None, values: pa.StringArray, lists: pa.ListArray) -> pa.Table:
    same = (array_of(pa.string(), [each] * len(values)) for each in (name, kind))
    return pa.Table.from_arrays([*same, values, lists], schema=_FILE)


def read_values(path: Path, checksum: int, names: "Container[str] | None" = None) -> CrawlValues | None:
    """Read the values; None if the file is missing or another one."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if crc32(data) != checksum:
        return None
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    places: list[RowGroupId] = []
    columns = {}
    for number in range(file.num_row_groups):
        (name,) = file.read_row_group(number, columns=["column_name"]).column(0).slice(0, 1).to_pylist()
        if name is None:
            rows = file.read_row_group(number, columns=["value", "row_groups"]).to_pylist()
            places += [(row["value"], ordinal) for row in rows for ordinal in row["row_groups"]]
        elif names is None or name in names:
            rows = file.read_row_group(number, use_threads=False).combine_chunks()
            (kind,) = rows.column("kind").slice(0, 1).to_pylist()
            columns[name] = ColumnValues(kind, rows.column("value").chunk(0), rows.column("row_groups").chunk(0))
    return CrawlValues(places, columns)
