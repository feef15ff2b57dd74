"""The files of the folder ``tables``: for each crawl a table, and one small file with the state that the tables show.

Damage is found before pyarrow reads the damaged bytes: it may abort the process on a damaged footer, and checksums of
pages do not cover their headers. So a table has a directory before the footer, where no reader of Parquet looks, with
checksums of the footer and of each row group. It also has bounds of the row groups, by which a query finds those that
it needs.

The state has what a plan needs of all crawls. It is written after the tables; a table that was replaced since then, or
is damaged, has another checksum.
"""

import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any

from catalogue.atomic_files import whole_file
from catalogue.commoncrawl.gzip_members import crc32
from catalogue.parquet.model import MAGIC, SIGNED, Column, kind_of
from catalogue.parquet.splice import with_trailer
from catalogue.parquet.write_rows import MOST_ROWS, add_row_group, encode_footer

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.store.database import Store

TABLES_FOLDER, STATE_NAME = "tables", "state.json"

_LAYOUT = 7
"""A state of another version is made again; so are tables with another magic number."""

TABLE = {
    # Equal in all row groups of a file
    "path": "text",
    "crawl": "text",
    "subset": "text",
    "version": "bytes",  # digest of the value of the store
    "file_size": "int64",
    "footer_size": "int64",
    "etag": "text",
    "last_modified": "text",
    "source": "text",
    "taken": "text",
    "file_num_rows": "int64",
    "created_by": "text",
    "file_codec": "text",
    "schema": "text",  # digest of encode_columns
    "utc_times": "bool",
    "has_page_index": "bool",
    "ordered": "bool",  # see Footer
    "file_min_key": "text",
    # Of a row group; null in the row of a file without row groups
    "row_group": "int32",
    "num_rows": "int64",
    "total_byte_size": "int64",
    "total_compressed_size": "int64",
    "file_offset": "int64",
    "min_key": "text",
    "max_key": "text",
    "bounds_from": "text",
    "first_fetch": "int64",
    "last_fetch": "int64",
    "footer_offset": "int32",  # of the struct of the row group in the footer
}
"""Kinds of the columns by name; see ``parquet/write_rows.py``."""
REPEATED = [
    *("path", "crawl", "subset", "version", "etag", "last_modified", "source", "taken", "created_by", "file_codec"),
    *("schema", "file_min_key", "bounds_from"),
]
"""Values that many rows share; they have dictionaries."""
STORED_VALUES = itemgetter("file_size", "etag", "last_modified", "source", "taken")
"""What follows the data in a ``StoredFile``."""


def encode_columns(columns: Mapping[str, Column]) -> str:
    values = [{field.name: getattr(each, field.name) for field in fields(Column)} for each in columns.values()]
    for each in values:
        each["element"] = each["element"].hex()
    return json.dumps(values, separators=(",", ":"))


@lru_cache(64)  # the files of a crawl have few schemas, and crawls have the same ones
def decode_columns(text: str) -> Mapping[str, Column]:
    """Return the leaves of a schema by name, from the text of ``encode_columns``."""
    values = json.loads(text)
    return {each["name"]: Column(**{**each, "element": bytes.fromhex(each["element"])}) for each in values}


@lru_cache(64)
def column_kinds(text: str) -> Mapping[str, str]:
    """Return the types of these columns as words."""
    return {name: kind_of(column) for name, column in decode_columns(text).items()}


def digest_of(schema: str) -> str:
    return blake2b(schema.encode(), digest_size=8).hexdigest()


_MAGIC = b"CATTBL7\n"
_NUMBER = 4
_END = _NUMBER + len(b"PAR1")


class TableDamaged(Exception):
    """A table cannot be used; it is made again from the store."""


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


_FOOTER = 1
"""Place of a footer in ``TablePart.sections``."""


class TableFile:
    """An open table."""

    def __init__(self, path: Path) -> None:
        """Open and check a table.

        Raises:
            TableDamaged: if it is missing, or a checksum is wrong.
        """
        try:
            with path.open("rb") as file:
                self._content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self.schemas, self.parts, self.checksum = self._read_directory()
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise TableDamaged(f"{path} cannot be read: {error}") from error

    def _read_directory(self) -> tuple[dict[str, str], list[TablePart], int]:
        content = self._content
        footer = len(content) - _END - int.from_bytes(content[-_END : -_END + _NUMBER], "little")
        end = footer - len(_MAGIC)
        stored = int.from_bytes(content[end - 2 * _NUMBER : end - _NUMBER], "little")
        length = int.from_bytes(content[end - _NUMBER : end], "little")
        packed = bytes(content[max(0, end - 8 - length) : max(0, end - 8)])
        if bytes(content[max(0, end) : footer]) != _MAGIC or crc32(packed) != stored:
            raise ValueError("its directory is damaged")
        directory = json.loads(packed)
        if crc32(content[footer:]) != directory["footer"]:
            raise ValueError("its footer is damaged")
        parts = []
        for each in directory["parts"]:
            part = TablePart(**each)
            for start, stop, checksum in part.sections:
                if crc32(content[start:stop]) != checksum:
                    raise ValueError("its rows are damaged")
            parts.append(part)
        return directory["schemas"], parts, stored

    def read(self, part: int, columns: Sequence[str]) -> "pa.RecordBatch":
        import pyarrow as pa
        import pyarrow.parquet as pq

        start, end, _ = self.parts[part].sections[_FOOTER]
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(self._content[start:end])))
        content = pa.BufferReader(pa.py_buffer(self._content))
        file = pq.ParquetFile(content, metadata=metadata, pre_buffer=False)
        (rows,) = file.read_row_group(0, columns=columns, use_threads=False).to_batches()
        return rows

    def columns(self, subset: str, names: Sequence[str]) -> "pa.Table":
        return self._joined([number for number, part in enumerate(self.parts) if part.subset == subset], names)

    def read_all(self) -> "pa.Table":
        return self._joined(range(len(self.parts)), [*TABLE])

    def _joined(self, parts: Iterable[int], names: Sequence[str]) -> "pa.Table":
        import pyarrow as pa

        return pa.Table.from_batches([self.read(part, names) for part in parts])


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], schemas: Mapping[str, str]) -> int:
    """Replace a table by one with these rows, in any order, and return the checksum of its directory."""
    data = bytearray(MAGIC)
    parts: list[TablePart] = []
    groups: list[bytes] = []
    for part, some in _sorted_parts(rows):
        start = len(data)
        groups.append(add_row_group(data, TABLE, REPEATED, some))
        part.sections.append(_section(data, start))
        parts.append(part)
    for part, group in zip(parts, groups, strict=True):
        start = len(data)
        data += with_trailer(encode_footer(TABLE, [group], part.rows))
        part.sections.append(_section(data, start))
    footer = with_trailer(encode_footer(TABLE, groups, sum(part.rows for part in parts)))
    directory = {"schemas": schemas, "parts": [asdict(part) for part in parts], "footer": crc32(footer)}
    packed = json.dumps(directory, separators=(",", ":")).encode()
    checksum = crc32(packed)
    with whole_file(path) as output:
        output.write(data + packed)
        output.write(checksum.to_bytes(_NUMBER, "little") + len(packed).to_bytes(_NUMBER, "little") + _MAGIC)
        output.write(footer)
    return checksum


def _section(data: bytearray, start: int) -> list[int]:
    return [start, len(data), crc32(memoryview(data)[start:])]


def _sorted_parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[TablePart, Sequence[Mapping[str, Any]]]]:
    def place(row: Mapping[str, Any]) -> tuple[object, ...]:
        least = row.get("min_key")
        return row["subset"], least is not None, least or "", row["path"], row.get("row_group") or 0

    for subset, same in groupby(sorted(rows, key=place), itemgetter("subset")):
        ordered = [*same]
        for first in range(0, len(ordered), MOST_ROWS):
            some = ordered[first : first + MOST_ROWS]
            greatest = [row["max_key"] for row in some if row.get("max_key") is not None]
            unbounded, signed = len(some) - len(greatest), any(row.get("bounds_from") == SIGNED for row in some)
            least = some[unbounded]["min_key"] if greatest else ""
            yield TablePart(subset, len(some), unbounded, signed, least, max(greatest, default=""), []), some


@dataclass(slots=True)
class CrawlState:
    """The state of one crawl."""

    checksum: int = 0
    """That of the table's directory; 0 without a table."""
    stored_files: str = ""
    """A digest that changes with its stored files."""
    stored_indexes: str = ""
    """The same for page indexes."""
    gaps: int = 0
    """Row groups whose footers have no bounds; page indexes can change their rows."""
    schemas: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    """Files in the table, by subset."""
    row_groups: dict[str, int] = field(default_factory=dict)
    manifest: int = 0
    """The number of the row of its manifest in the store."""
    listed: dict[str, int] = field(default_factory=dict)
    """Files in its manifest, by subset."""
    requested: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    """Files that could not be fetched or decoded, by subset."""
    undecodable: dict[str, str] = field(default_factory=dict)
    """Reasons why stored footers are not in the table, by path."""
    values: int = 0
    """The checksum of the file of column values; 0 without one."""


@dataclass(slots=True)
class TablesState:
    """The state of all tables."""

    dataset: str
    store: str
    indexes: str
    crawls: dict[str, CrawlState]
    schemas: dict[str, str]

    def shows(self, store: "Store", *, indexes: bool) -> bool:
        """Return whether the tables show everything that is stored; ``indexes``: page indexes, too."""
        state, index_state = store.states()
        return self.store == state and (not indexes or self.indexes == index_state)

    @property
    def store_id(self) -> str:
        """The part of ``store`` that changes when numbers of rows may be used again."""
        return self.store.partition(":")[0]


def copied_folder(data: Path, temporary_folder: Path) -> Path:
    copy = temporary_folder / TABLES_FOLDER
    if not copy.exists():
        copy.mkdir()
        with suppress(OSError):  # they are made again then
            for file in (data / TABLES_FOLDER).iterdir():
                copyfile(file, copy / file.name)  # without its mode, which may be read-only
    return copy


def table_path(folder: Path, crawl: str) -> Path:
    return folder / f"{crawl}.parquet"


def values_path(folder: Path, crawl: str) -> Path:
    return folder / f"{crawl}.values.parquet"


def read_state(folder: Path) -> TablesState | None:
    """Return the state; None if it is missing, damaged or of another version."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        checksum, _, packed = (folder / STATE_NAME).read_bytes().partition(b"\n")
        if int(checksum) == crc32(packed):
            values = json.loads(packed)
            if values.pop("layout") == _LAYOUT:
                crawls = {crawl: CrawlState(**each) for crawl, each in values.pop("crawls").items()}
                return TablesState(**values, crawls=crawls)
    return None


def write_state(folder: Path, state: TablesState) -> None:
    packed = json.dumps(asdict(state) | {"layout": _LAYOUT}, separators=(",", ":")).encode()
    with whole_file(folder / STATE_NAME) as file:
        file.write(b"%d\n%b" % (crc32(packed), packed))


def fresh_state(folder: Path, store: "Store", key: str, *, indexes: bool = False) -> TablesState | None:
    """Return the state of tables that are up to date; see ``TablesState.shows``."""
    state = read_state(folder)
    return state if state and state.dataset == key and state.shows(store, indexes=indexes) else None
