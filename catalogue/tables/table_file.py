"""Write and read a table, a Parquet file; damage is found before pyarrow reads the damaged bytes.

pyarrow may abort the process on a damaged footer, and checksums of pages do not cover their headers. So a directory
before the footer, where no reader of Parquet looks, has checksums of the footer and of each row group. It also has
bounds of the row groups, by which a query finds those that it needs.
"""

import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from catalogue.atomic_files import whole_file
from catalogue.parquet.merge_footers import merge_footers
from catalogue.parquet.model import MAGIC, SIGNED, TRAILER, with_trailer

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS = 256
"""Rows of a row group, so that a query decodes few of them."""

_MAGIC = b"CATTBL5\n"
_NUMBER = 4
_END = _NUMBER + len(b"PAR1")


class TableDamaged(Exception):
    """A table that cannot be used; it is made again from the store."""


@dataclass(slots=True)
class TablePart:
    """A row group of the table: rows of one subset, those without bounds first, the others by least key."""

    subset: str
    rows: int
    unbounded: int
    signed: bool
    """Whether some bounds are in the order of signed bytes."""
    least: str
    greatest: str
    sections: list[list[int]]
    """Start, end and checksum of the columns, and of a footer of this row group alone, as that of all takes long to
    decode.
    """

    @property
    def contents(self) -> tuple[object, ...]:
        """Return what is equal in a table that was made again from the same files."""
        return self.subset, self.rows, self.unbounded, self.signed, self.least, self.greatest


_COLUMNS, _FOOTER = range(2)


class TableFile:
    """An open table; its methods raise ``TableDamaged``."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            directory, self.checksum = self._read_directory()
            self.schemas: dict[str, str] = directory["schemas"]
            self.parts = [TablePart(**each) for each in directory["parts"]]
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise TableDamaged(f"{path} cannot be read: {error}") from error
        self._path = path
        self._parts: dict[int, pq.ParquetFile] = {}
        self._valid: set[tuple[int, int]] = set()

    def _read_directory(self) -> tuple[dict[str, Any], int]:
        content = self._content
        footer = len(content) - _END - int.from_bytes(content[-_END : -_END + _NUMBER], "little")
        end = footer - len(_MAGIC)
        stored, length = (int.from_bytes(content[at : at + _NUMBER], "little") for at in (end - 8, end - 4))
        packed = bytes(content[max(0, end - 8 - length) : max(0, end - 8)])
        if bytes(content[max(0, end) : footer]) != _MAGIC or crc32(packed) != stored:
            raise ValueError("its directory is damaged")
        directory: dict[str, Any] = json.loads(packed)
        if crc32(content[footer:]) != directory["footer"]:
            raise ValueError("its footer is damaged")
        return directory, stored

    def _check(self, part: int, section: int) -> tuple[int, int]:
        start, end, checksum = self.parts[part].sections[section]
        if (part, section) not in self._valid:
            if crc32(self._content[start:end]) != checksum:
                raise TableDamaged(f"{self._path} is damaged")
            self._valid.add((part, section))
        return start, end

    def check(self) -> None:
        for part in range(len(self.parts)):
            for section in (_COLUMNS, _FOOTER):
                self._check(part, section)

    def read(self, part: int, columns: Sequence[str]) -> "pa.RecordBatch":
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._check(part, _COLUMNS)
        if part not in self._parts:
            start, end = self._check(part, _FOOTER)
            metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(self._content[start:end])))
            content = pa.BufferReader(pa.py_buffer(self._content))
            self._parts[part] = pq.ParquetFile(content, metadata=metadata, pre_buffer=False)
        (rows,) = self._parts[part].read_row_group(0, columns=columns, use_threads=False).to_batches()
        return rows

    @cached_property
    def _all_parts(self) -> "pq.ParquetFile":
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._content)), pre_buffer=False)

    def columns(self, subset: str, names: Sequence[str]) -> "pa.Table":
        parts = [number for number, part in enumerate(self.parts) if part.subset == subset]
        for part in parts:
            self._check(part, _COLUMNS)
        return self._all_parts.read_row_groups(parts, columns=names, use_threads=False)

    def read_all(self) -> "pa.Table":
        self.check()
        return self._all_parts.read(use_threads=False)


def write_table(path: Path, table: "pa.Table", schemas: Mapping[str, str], state: str) -> int:
    """Replace a table by one with these rows, in any order, and return the checksum of its directory."""
    data = bytearray(MAGIC)
    parts: list[TablePart] = []
    footers: list[bytes] = []
    shifts: list[int] = []
    for part, rows in _sorted_parts(table):
        shifts.append(len(data) - len(MAGIC))
        pages, footer = _encoded(rows, state)
        data += pages
        part.sections = [_section(data, len(data) - len(pages), len(data))]
        parts.append(part)
        footers.append(footer)
    for part, footer, shift in zip(parts, footers, shifts, strict=True):
        start = len(data)
        data += with_trailer(merge_footers([footer], [shift]))
        part.sections.append(_section(data, start, len(data)))
    footer = with_trailer(merge_footers(footers, shifts))
    directory = {"schemas": schemas, "parts": [asdict(part) for part in parts], "footer": crc32(footer)}
    packed = json.dumps(directory, separators=(",", ":")).encode()
    checksum = crc32(packed)
    with whole_file(path) as output:
        output.write(data + packed)
        output.write(checksum.to_bytes(_NUMBER, "little") + len(packed).to_bytes(_NUMBER, "little") + _MAGIC)
        output.write(footer)
    return checksum


def _section(data: bytearray, start: int, end: int) -> list[int]:
    return [start, end, crc32(memoryview(data)[start:end])]


def _sorted_parts(table: "pa.Table") -> Iterator[tuple[TablePart, "pa.Table"]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_bounded = pc.is_valid(table.column("min_key")).cast(pa.int8())
    order = [(name, "ascending") for name in ("subset", "is_bounded", "min_key", "path", "row_group")]
    ordered = table.take(pc.sort_indices(table.append_column("is_bounded", is_bounded), order)).combine_chunks()
    start = 0
    for subset, same in groupby(ordered.column("subset").to_pylist()):
        end = start + len([*same])
        for first in range(start, end, ROWS):
            rows = ordered.slice(first, min(ROWS, end - first))
            least, greatest, origins = (rows.column(name).to_pylist() for name in ("min_key", "max_key", "bounds_from"))
            known = [key for key in greatest if key is not None]
            unbounded, signed = len(rows) - len(known), SIGNED in origins
            first_key, last_key = (least[unbounded], max(known)) if known else ("", "")
            yield TablePart(subset, len(rows), unbounded, signed, first_key, last_key, []), rows
        start = end


def _encoded(rows: "pa.Table", state: str) -> tuple[bytes, bytes]:
    import pyarrow.parquet as pq

    from catalogue.tables.table_schema import REPEATED

    buffer = BytesIO()
    options = {"use_dictionary": REPEATED, "write_statistics": False, "store_schema": False}
    # zstd takes a third less space, and a query half more time.
    with pq.ParquetWriter(buffer, rows.schema, compression="lz4", **options) as writer:
        writer.write_table(rows, row_group_size=len(rows))
        writer.add_key_value_metadata({"state": state})
    data = buffer.getvalue()
    start = len(data) - _END - int.from_bytes(data[-_END : -_END + _NUMBER], "little")
    return data[len(MAGIC) : start], data[start:-TRAILER]
