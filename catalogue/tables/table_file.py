"""Write and read a table, a Parquet file; damage is found before pyarrow reads the damaged bytes.

pyarrow may abort the process on a damaged footer, and checksums of pages do not cover their headers. So a directory
stands before the footer, where no reader of Parquet looks: it has checksums of the footer, and of the columns of each
row group of the table. It also has bounds of these row groups, by which a query finds those that it needs.
"""

import json
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from catalogue.atomic_files import whole_file
from catalogue.parquet.footer import MAGIC, TRAILER, with_trailer
from catalogue.parquet.merge_footers import merge_footers

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS = 256
"""Rows of a row group of the table at most, so that a query decodes few of them."""

_MAGIC = b"CATTBL2\n"
_NUMBER = 4
"""Bytes of lengths and checksums."""
_END = _NUMBER + len(b"PAR1")


class TableDamaged(Exception):
    """A table that cannot be used; it is made again from the store."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """A row group of the table: rows of one subset, those without bounds first, the others by least key."""

    subset: str
    rows: int
    unbounded: int
    """Number of rows without bounds."""
    signed: bool
    """Whether bounds of some rows are in the order of signed bytes."""
    least: str
    """The least key of the rows with bounds."""
    greatest: str
    ends: Sequence[int]
    """Offsets in the file: start of the flat columns, their end, end of the column chunks."""
    checksums: Sequence[int]
    """Of the flat columns and of the column chunks."""
    footer: Sequence[int]
    """Start, end and checksum of a footer of this row group alone: that of all takes long to decode."""

    @property
    def contents(self) -> tuple[object, ...]:
        """Return what is equal in a table that was made again from the same files."""
        return self.subset, self.rows, self.unbounded, self.signed, self.least, self.greatest


class TableFile:
    """An open table."""

    def __init__(self, path: Path) -> None:
        """Open a table, and check its footer and directory.

        Raises:
            TableDamaged: if it is missing or damaged.
        """
        try:
            with path.open("rb") as file:
                self._content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            directory, self._footer_checksum, self.checksum = self._read_directory()
            self.schemas: list[str] = directory["schemas"]
            """See ``encode_columns``."""
            self.parts = [TablePart(**each) for each in directory["parts"]]
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise TableDamaged(f"{path} cannot be read: {error}") from error
        self._path = path
        self._opened: dict[int, pq.ParquetFile] = {}

    def _read_directory(self) -> tuple[dict[str, Any], int, int]:
        """Return the directory and its checksum."""
        content = self._content
        self._footer = len(content) - _END - int.from_bytes(content[-_END : -_END + _NUMBER], "little")
        end = self._footer - len(_MAGIC)
        stored, length = (int.from_bytes(content[at : at + _NUMBER], "little") for at in (end - 8, end - 4))
        packed = bytes(content[max(0, end - 8 - length) : max(0, end - 8)])
        if bytes(content[max(0, end) : self._footer]) != _MAGIC or crc32(packed) != stored:
            raise ValueError("its directory is damaged")
        directory: dict[str, Any] = json.loads(packed)
        if crc32(content[self._footer :]) != directory["footer"]:
            raise ValueError("its footer is damaged")
        return directory, directory["footer"], stored

    def _parquet(self, part: int) -> "pq.ParquetFile":
        """Open a row group of the table as a file of its own."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if part not in self._opened:
            start, end, checksum = self.parts[part].footer
            if crc32(self._content[start:end]) != checksum:
                raise TableDamaged(f"{self._path} is damaged")
            metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(self._content[start:end])))
            self._opened[part] = pq.ParquetFile(
                pa.BufferReader(pa.py_buffer(self._content)), metadata=metadata, pre_buffer=False
            )
        return self._opened[part]

    def read(self, part: int, columns: Sequence[str]) -> "pa.Table":
        """Return columns of a row group of the table: flat ones, or of ``chunks``.

        Raises:
            TableDamaged: if they are damaged.
        """
        of, at = self.parts[part], int(columns[0].startswith("chunks"))
        if crc32(self._content[of.ends[at] : of.ends[at + 1]]) != of.checksums[at]:
            raise TableDamaged(f"{self._path} is damaged")
        return self._parquet(part).read_row_group(0, columns=list(columns), use_threads=False)

    def read_flat(self, columns: Sequence[str]) -> "pa.Table":
        """Return flat columns of all rows.

        Raises:
            TableDamaged: if they are damaged.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for part in self.parts:
            if crc32(self._content[part.ends[0] : part.ends[1]]) != part.checksums[0]:
                raise TableDamaged(f"{self._path} is damaged")
        with pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._content)), pre_buffer=False) as file:
            return file.read(columns=list(columns), use_threads=False)

    def versions(self) -> dict[str, bytes]:
        """Return the digest of the value of each file in the store, by path.

        Raises:
            TableDamaged: if the table is damaged.
        """
        return dict(zip(*(column.to_pylist() for column in self.read_flat(("path", "version")).columns), strict=True))

    def check(self) -> None:
        """Check all rows.

        Raises:
            TableDamaged: if some are damaged.
        """
        for of in self.parts:
            places = [*pairwise(of.ends), (of.footer[0], of.footer[1])]
            for (start, end), checksum in zip(places, (*of.checksums, of.footer[2]), strict=True):
                if crc32(self._content[start:end]) != checksum:
                    raise TableDamaged(f"{self._path} is damaged")

    def read_all(self) -> "pa.Table":
        """Return all rows.

        Raises:
            TableDamaged: if some are damaged.
        """
        import pyarrow as pa

        self.check()
        return pa.concat_tables([self._parquet(part).read(use_threads=False) for part in range(len(self.parts))])


def write_table(path: Path, table: "pa.Table", schemas: Iterable[str], state: str) -> int:
    """Write a table, and replace the old one when it is complete and on disk.

    Args:
        path: of the file.
        table: rows with the columns of ``table_schema.TABLE``, in any order.
        schemas: by number; see ``encode_columns``.
        state: the state of the store that it is made from, which is put into the metadata of the file.

    Returns:
        The checksum of its directory.
    """
    from catalogue.tables.sort_rows import sorted_parts

    data = bytearray(MAGIC)
    entries: list[dict[str, Any]] = []
    footers: list[bytes] = []
    shifts: list[int] = []
    for part in sorted_parts(table, ROWS):
        shifts.append(len(data) - len(MAGIC))
        body, footer, extents = _encoded(part.rows, state)
        footers.append(footer)
        data += body
        ends = [end + shifts[-1] for end in extents]
        about = {name: getattr(part, name) for name in ("subset", "unbounded", "signed", "least", "greatest")}
        checksums = [crc32(data[start:end]) for start, end in pairwise(ends)]
        entries.append(about | {"rows": len(part.rows), "ends": ends, "checksums": checksums})
    for entry, footer, shift in zip(entries, footers, shifts, strict=True):
        packed = with_trailer(merge_footers([footer], [shift]))
        entry["footer"] = [len(data), len(data) + len(packed), crc32(packed)]
        data += packed
    footer = with_trailer(merge_footers(footers, shifts))
    directory = {"schemas": list(schemas), "parts": entries, "footer": crc32(footer)}
    packed = json.dumps(directory, separators=(",", ":")).encode()
    checksum = crc32(packed)
    with whole_file(path) as output:
        output.write(data + packed)
        output.write(checksum.to_bytes(_NUMBER, "little") + len(packed).to_bytes(_NUMBER, "little") + _MAGIC)
        output.write(footer)
    return checksum


def _encoded(rows: "pa.Table", state: str) -> tuple[bytes, bytes, list[int]]:
    """Return the pages of a file with one row group, its footer, and the offsets of ``TablePart.ends``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = BytesIO()
    with pq.ParquetWriter(buffer, rows.schema, **_options(rows.schema)) as writer:
        writer.write_table(rows, row_group_size=len(rows))
        writer.add_key_value_metadata({"state": state})
    data = buffer.getvalue()
    extents = _extents(pq.read_metadata(pa.BufferReader(data)).row_group(0))
    start = len(data) - _END - int.from_bytes(data[-_END : -_END + _NUMBER], "little")
    return data[len(MAGIC) : start], data[start:-TRAILER], extents


def _options(schema: "pa.Schema") -> dict[str, Any]:
    unique = {"row_group", "num_rows", "total_byte_size", "total_compressed_size", "file_offset", "min_key", "max_key"}
    repeated = [name for name in schema.names if name not in {*unique, "first_fetch", "last_fetch", "chunks"}]
    of_chunks = ("column_name", "physical_type", "codec", "encodings", "bounds")
    return {
        "compression": "lz4",  # zstd takes a third less space, and a query half more time
        "use_dictionary": repeated + [f"chunks.list.element.{name}" for name in of_chunks],
        "write_statistics": False,
        "store_schema": False,
    }


def _extents(row_group: Any) -> list[int]:  # noqa: ANN401 - a class without types
    """Return the start of the first column, of the first one of ``chunks``, and the end of the last."""
    columns = [row_group.column(number) for number in range(row_group.num_columns)]

    def start(column: Any) -> int:  # noqa: ANN401 - likewise
        offsets = (column.dictionary_page_offset, column.data_page_offset)
        return int(min(offset for offset in offsets if offset))

    chunks = next(column for column in columns if column.path_in_schema.startswith("chunks."))
    last = columns[-1]
    return [start(columns[0]), start(chunks), start(last) + last.total_compressed_size]
