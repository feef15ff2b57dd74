"""Row groups as planning uses them, from the columns of a table."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from catalogue.parquet.model import CODECS, Column, ColumnChunk, Footer, RowGroup
from catalogue.source.byte_ranges import ByteRange
from catalogue.tables.footer_rows import bounds_of
from catalogue.tables.table_schema import CHUNK

_CODECS = {name: number for number, name in enumerate(CODECS)}
USED = [field.name for field in CHUNK if field.name not in {"column_name", "physical_type"}]
"""Values of column chunks that planning uses; the schema has the others."""


class StoredChunks(Mapping[str, ColumnChunk]):
    """The column chunks of a row group, each made at its first use."""

    def __init__(self, columns: Mapping[str, Column], values: Mapping[str, list[Any]]) -> None:
        """Use the values of the chunks, in the order of the columns of the schema."""
        self._columns = columns
        self._values = values
        self._places = {name: place for place, name in enumerate(columns)}
        self._chunks: dict[str, ColumnChunk] = {}

    def __getitem__(self, name: str) -> ColumnChunk:
        if (chunk := self._chunks.get(name)) is None:
            place = self._places[name]
            of = {field: values[place] for field, values in self._values.items()}
            chunk = self._chunks[name] = _chunk(self._columns[name], of)
        return chunk

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def codecs(self) -> tuple[str, ...]:
        """Return the codecs of the chunks, each once."""
        return tuple(dict.fromkeys(self._values["codec"]))


def _chunk(column: Column, of: Mapping[str, Any]) -> ColumnChunk:
    start, data_page = of["file_offset"], of["data_page_offset"]
    return ColumnChunk(
        column=column,
        range=ByteRange(start, start + of["total_compressed_size"]),
        codec=_codec(of["codec"]),
        encodings=tuple(map(int, of["encodings"].split(","))) if of["encodings"] else (),
        num_values=of["num_values"],
        total_uncompressed_size=of["total_uncompressed_size"],
        data_page_offset=data_page,
        dictionary_page_offset=start if start != data_page else None,
        dictionary_coded=of["dictionary_coded"],
        null_count=of["null_count"],
        bounds=bounds_of(of["min"], of["max"], of["bounds"]) if of["bounds"] else None,
        column_index=_range(of["column_index_offset"], of["column_index_length"]),
        offset_index=_range(of["offset_index_offset"], of["offset_index_length"]),
    )


def _codec(name: str) -> int:
    found = _CODECS.get(name)
    return int(name[len("UNKNOWN(") : -1]) if found is None else found


def _range(start: int | None, length: int | None) -> ByteRange | None:
    return None if start is None or length is None else ByteRange(start, start + length)


def row_group_of(row: Mapping[str, Any], columns: Mapping[str, Column], chunks: pa.ListArray, place: int) -> RowGroup:
    """Return a row group.

    Args:
        row: values of the flat columns.
        columns: the schema of the file.
        chunks: column chunks of this and other rows, with the values ``USED``.
        place: of the row among these.
    """
    some = chunks[place].values
    # Lists, because arrays would keep the values of all rows in memory.
    stored = StoredChunks(columns, {name: some.field(name).to_pylist() for name in USED})
    return RowGroup(
        ordinal=row["row_group"],
        num_rows=row["num_rows"],
        total_byte_size=row["total_byte_size"],
        total_compressed_size=row["total_compressed_size"],
        start=row["file_offset"],
        codecs=stored.codecs(),
        chunks=stored,
    )


def footer_of(row: Mapping[str, Any], columns: Mapping[str, Column], row_groups: tuple[RowGroup, ...]) -> Footer:
    """Return a footer with these row groups."""
    return Footer(row["file_num_rows"], row["created_by"], columns, row_groups)
