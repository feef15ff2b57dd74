"""The keys of a join, from a file, standard input, an Arrow table, or a DataFrame."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.errors import QueryError
from catalogue.formatting import first_paragraph, join_first
from catalogue.parquet.arrow_arrays import binaries
from catalogue.query.literals import literal

if TYPE_CHECKING:
    import duckdb

Input: TypeAlias = Any
"""Path of a file; or an Arrow table, a pandas or polars DataFrame, or an iterable of texts."""

TEXT_COLUMN = "key"
"""Name of the column of a file of lines, or of an iterable of texts."""
_NAMES = ("url_surtkey", "url", "key", "host", "url_host_name", "domain", "link")
"""Names of columns with keys, the most certain first."""
_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b"
_READERS = {".csv": "read_csv", ".tsv": "read_csv", ".jsonl": "read_ndjson", ".ndjson": "read_ndjson"}
_CHUNK = 4 << 20
"""Bytes of lines that become a batch."""
_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An open input."""

    batches: Iterable[pa.RecordBatch]
    """All rows, in their order; can be read once."""
    schema: pa.Schema
    column: str
    """Name of the column with the keys, which are texts; other values are converted."""
    unit: str
    """What rows are counted as: ``line`` or ``row``, from 1 on."""


@contextmanager
def open_input(keys: Input, on: str | None) -> Iterator[OpenInput]:
    """Open an input.

    Args:
        keys: see ``Input``.
        on: name of the column with the keys; by default the only one, or one of the usual names.

    Raises:
        QueryError: if the file does not exist, cannot be read, or no column is chosen.
    """
    if isinstance(keys, str | Path):
        with _opened_file(Path(keys), on) as opened:
            yield opened
        return
    table = _table_of(keys)
    yield OpenInput(table.to_batches(_BATCH), table.schema, _column(table.schema, on, "the table"), "row")


def digest_of(keys: Input) -> str:
    """Return a digest of an input, by which a join is recognized when it is run again."""
    if isinstance(keys, str | Path):
        with _errors(Path(keys)), Path(keys).open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    sink, table = _Digest(), _table_of(keys).combine_chunks()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), table.schema) as writer:
        writer.write_table(table)
    return sink.digest.hexdigest()


class _Digest(io.RawIOBase):
    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - the protocol accepts any buffer
        self.digest.update(data)
        return len(data)


def _table_of(keys: Input) -> pa.Table:
    if isinstance(keys, pa.Table):
        return keys
    if hasattr(keys, "__arrow_c_stream__"):  # DataFrames of pandas and polars, relations of DuckDB
        table = pa.table(keys)
        return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    return pa.table({TEXT_COLUMN: pa.array([str(each) for each in keys], pa.string())})


@contextmanager
def _opened_file(path: Path, on: str | None) -> Iterator[OpenInput]:
    import duckdb

    with ExitStack() as stack:
        with _errors(path):
            file = stack.enter_context(path.open("rb"))
            reader = _reader_of(path, file)
        if reader is None:
            if on is not None:
                raise QueryError(f"{path} has lines without columns; leave out the column {on}")
            schema = pa.schema([(TEXT_COLUMN, pa.binary())])
            lines = _batches_of_lines(stack.enter_context(_unzipped(file)), schema)
            yield OpenInput(_guarded(path, lines), schema, TEXT_COLUMN, "line")
            return
        with _errors(path):
            rows = _rows(stack.enter_context(duckdb.connect()), reader, path)
        yield OpenInput(_guarded(path, rows), rows.schema, _column(rows.schema, on, str(path)), "row")


def _guarded(path: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting = iter(batches)
    while True:
        with _errors(path):
            batch = next(waiting, None)
        if batch is None:
            return
        yield batch


def _reader_of(path: Path, file: BinaryIO) -> str | None:
    """Return the DuckDB function that reads a file; None for lines."""
    start = file.read(len(_PARQUET))
    file.seek(0)
    if start == _PARQUET:
        return "read_parquet"
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in {".gz", ".zst"}]
    if suffixes and suffixes[-1] == ".parquet":
        raise QueryError(f"{path} is not a Parquet file; its first bytes are {start!r}")
    return _READERS.get(suffixes[-1]) if suffixes else None


def _rows(connection: "duckdb.DuckDBPyConnection", reader: str, path: Path) -> pa.RecordBatchReader:
    options = ", all_varchar = true, header = true" if reader == "read_csv" else ""
    return connection.execute(f"SELECT * FROM {reader}({literal(str(path))}{options})").to_arrow_reader(_BATCH)


def _unzipped(file: BinaryIO) -> BinaryIO:
    is_zipped = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_zipped else io.BufferedReader(cast("Any", file))


def _batches_of_lines(file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rest, is_first = b"", True
    while data := file.read(_CHUNK):
        *lines, rest = (rest + data.removeprefix(b"\xef\xbb\xbf") if is_first else rest + data).split(b"\n")
        is_first = False
        yield pa.RecordBatch.from_arrays([binaries(lines)], schema=schema)
    if rest:
        yield pa.RecordBatch.from_arrays([binaries([rest])], schema=schema)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into one sentence."""
    import duckdb

    try:
        yield
    except FileNotFoundError as error:
        raise QueryError(f"there is no file {path}") from error
    except (OSError, EOFError, zlib.error, duckdb.Error, pa.ArrowException) as error:
        raise QueryError(f"{path} cannot be read: {first_paragraph(str(error))}") from error


def _column(schema: pa.Schema, on: str | None, where: str) -> str:
    names: list[str] = schema.names
    if on is not None:
        if on not in names:
            raise QueryError(f"{where} has no column {on}; there are {join_first(names)}")
        return on
    usual = [name for known in _NAMES for name in names if name.lower() == known]
    if len(names) == 1 or usual:
        return (usual or names)[0]
    raise QueryError(f"{where} has the columns {join_first(names)}; name the one with the keys, as in --on {names[0]}")


def texts_of(column: pa.Array) -> pa.Array:
    """Return keys as texts; what is not UTF-8 becomes null."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_decoded(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_dictionary(kind):
        return texts_of(pc.cast(column, kind.value_type))
    return column.cast(pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return None
