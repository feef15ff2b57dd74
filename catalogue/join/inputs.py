"""The keys of a join, from a file, an Arrow table, or a DataFrame."""

import csv
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.atomic_files import open_file
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError
from catalogue.formatting import first_paragraph, join_first
from catalogue.parquet.arrow_arrays import binaries
from catalogue.query.list_header import URL, cells_differ, has_column, header_of, is_skipped
from catalogue.query.literals import file_literal, literal

Input: TypeAlias = Any
"""Path of a file; or captures, an Arrow table, a DataFrame or column of pandas or polars, or texts."""

TEXT_COLUMN = "key"
_KEY = COMMON_CRAWL.key
_PARQUET, _GZIP, _ZSTD = b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CSV = {".csv", ".tsv"}
_JSON = {".json", ".jsonl", ".ndjson"}
_STARTS_JSON = re.compile(r"\s*(?:\{|\[\s*(?:[{\"]|$))")
_CDX_LINE = re.compile(r"\S+\)\S* \d{14} ")
"""A capture in CDX or CDXJ, which would be a key with spaces."""
_CSV_ERROR = re.compile(r"CSV Error on Line: (\d+)\n.*?([^\n]+)\s*\nPossible fixes:", re.DOTALL)
"""DuckDB's message; the fixes are options that a join does not have."""
_CSV_STATE = "CSV Parser state machine"
"""In DuckDB's message about line feeds where the lines before end with CR LF, and the reverse."""
_CHUNK = 4 << 20
_BATCH = 1 << 16
_PARQUET_ROWS, _PARQUET_BUFFER = 1 << 14, 1 << 20
_LONGEST = 16 << 20
"""Bytes of a row of CSV or JSON."""
_PLAIN = "hive_partitioning = false"
"""An option against columns of values in the names of folders, such as ``url=...``."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An open input."""

    batches: Iterable[pa.RecordBatch]
    """All rows, in their order; can be read once."""
    schema: pa.Schema
    column: str
    """The column with the keys."""
    unit: str
    """What rows are counted as, from 1 on: ``line`` or ``row``."""


@contextmanager
def open_input(keys: Input, on: str | None) -> Iterator[OpenInput]:
    """Open an input, whose keys are in the column ``on``; by default the only one, ``url`` or ``url_surtkey``.

    Raises:
        QueryError: if it cannot be read, or no column is chosen.
    """
    if isinstance(keys, str | Path):
        with _opened_file(Path(keys), on) as opened:
            _check_types(opened.schema)
            yield opened
        return
    _check_types(keys.schema)
    yield OpenInput(
        map(_plain, keys.to_batches(_BATCH)),
        _plain(keys.slice(0, 0)).schema,
        _column(keys.schema, on, "the table"),
        "row",
    )


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        if _has_odd_type(field.type):
            raise QueryError(f"the column {field.name} has type {field.type}, which a result cannot have; leave it out")


def _has_odd_type(kind: pa.DataType) -> bool:
    of = pa.types
    odd = of.is_union(kind) or of.is_run_end_encoded(kind) or of.is_interval(kind) or kind.equals(pa.struct([]))
    return odd or any(_has_odd_type(kind.field(at).type) for at in range(kind.num_fields))


def digest_of(keys: Input) -> str:
    """Return a digest, by which a join is recognized when it is run again."""
    if isinstance(keys, str | Path):
        with _errors(Path(keys)), open_file(Path(keys)) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    sink, table = _Digest(), keys.combine_chunks()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), table.schema) as writer:
        writer.write_table(table)
    return sink.digest.hexdigest()


def read_once(keys: Input) -> "str | Path | pa.Table":
    """Return an input that can be read twice: a path, or an Arrow table.

    Raises:
        QueryError: if it is no input.
    """
    if isinstance(keys, str | Path | pa.Table):
        return keys
    what = type(keys).__name__
    try:
        if hasattr(keys, "collect") and hasattr(keys, "lazy"):  # of polars, which is read at once
            keys = keys.collect()
        if hasattr(keys, "to_frame"):
            keys = keys.to_frame(keys.name or TEXT_COLUMN)
        if isinstance(keys, Mapping):
            return pa.table(dict(keys))
        if isinstance(keys, pa.Array | pa.ChunkedArray):
            return pa.table({TEXT_COLUMN: keys})
        if hasattr(keys, "__arrow_c_stream__"):
            table = pa.table(keys)
            return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
        if not isinstance(keys, Iterable):
            raise QueryError(f"{what} is not a list of keys; pass a path, a table, or texts")
        texts = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in keys]
        return pa.table({TEXT_COLUMN: pa.array(texts, pa.string())})
    except (pa.ArrowException, UnicodeError, ValueError, TypeError) as error:
        if isinstance(error, QueryError):
            raise
        raise QueryError(f"the {what} cannot be read as a table: {_short(error)}; use texts or a table") from error


def _short(error: BaseException) -> str:
    if found := _CSV_ERROR.search(str(error)):
        line, cause = found.groups()
        counts = re.search(r"Columns: (\d+) Found: (\d+)", cause)
        return cells_differ(line, *counts.groups()) if counts else f"line {line}: {cause.removesuffix('.')}"
    if _CSV_STATE in str(error):
        return "its line ends or quotes differ between lines; write all lines in one way, such as with LF at the end"
    return first_paragraph(str(error))[:_SHOWN]


class _Digest(io.RawIOBase):
    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - the protocol accepts any buffer
        self.digest.update(data)
        return len(data)


def _plain(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with types that all functions of Arrow and DuckDB know."""
    columns = [_plain_column(column) for column in rows.columns]
    names = rows.schema.names
    if isinstance(rows, pa.Table):
        return pa.RecordBatch.from_arrays([column.combine_chunks() for column in columns], names=names)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _plain_column(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    for decodes in (False, True):  # Arrow decodes no dictionary of views
        column = column.cast(_plain_type(column.type, decodes=decodes))
    return column


def _plain_type(kind: pa.DataType, *, decodes: bool) -> pa.DataType:
    """Return a type without views and large texts at any depth, and without dictionaries if ``decodes``."""
    of = pa.types
    if of.is_dictionary(kind):
        values = _plain_type(kind.value_type, decodes=decodes)
        return values if decodes else pa.dictionary(kind.index_type, values)
    if of.is_string_view(kind) or of.is_large_string(kind):
        return pa.string()
    if of.is_binary_view(kind) or of.is_large_binary(kind):
        return pa.binary()
    if of.is_struct(kind):
        return pa.struct([each.with_type(_plain_type(each.type, decodes=decodes)) for each in kind])
    if of.is_map(kind):
        fields = (each.with_type(_plain_type(each.type, decodes=decodes)) for each in (kind.key_field, kind.item_field))
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        field = kind.value_field.with_type(_plain_type(kind.value_type, decodes=decodes))
        if of.is_fixed_size_list(kind):
            return pa.list_(field, kind.list_size)
        return pa.large_list(field) if of.is_large_list(kind) else pa.list_(field)
    return kind


@contextmanager
def _opened_file(path: Path, on: str | None) -> Iterator[OpenInput]:
    with ExitStack() as stack:
        with _errors(path):
            file = stack.enter_context(open_file(path))
            parquet = None
            if _start_of(file) == _PARQUET:
                parquet = stack.enter_context(pq.ParquetFile(file, buffer_size=_PARQUET_BUFFER, pre_buffer=False))
            function = None if parquet else _reader_of(path, file, on)
        if parquet:
            rows = map(_plain, parquet.iter_batches(_PARQUET_ROWS, use_threads=False))
            with _errors(path):
                first = next(rows, None) or _plain(parquet.schema_arrow.empty_table())
            column = _column(first.schema, on, str(path))
            yield OpenInput(chain([first], _guarded(path, rows)), first.schema, column, "row")
        elif function:
            import duckdb

            with _errors(path), _unzipped(file) as unzipped:  # DuckDB accepts a compressed file that is cut off
                while unzipped is not file and unzipped.read(_CHUNK):
                    pass
            with _errors(path, duckdb.Error):
                connection = stack.enter_context(duckdb.connect())
                found = connection.sql(f"FROM {function}")  # DuckDB 2 copies the rows of execute()
                reader = found.to_arrow_reader(_BATCH)
                kinds = dict(zip(found.columns, map(str, found.types), strict=True))
            column = _column(reader.schema, on, str(path))
            if kinds[column] == "JSON":  # where it has texts and other values, so that texts are in quotes
                name = '"' + column.replace('"', '""') + '"'
                with _errors(path, duckdb.Error):
                    query = f"SELECT * REPLACE ({name} ->> '$' AS {name}) FROM {function}"
                    reader.close()
                    reader = connection.sql(query).to_arrow_reader(_BATCH)
            yield OpenInput(_guarded(path, reader, duckdb.Error), reader.schema, column, "row")
        else:
            if on is not None:
                raise QueryError(f"{path} is text without columns; leave out the column {on}")
            schema = pa.schema([(TEXT_COLUMN, pa.binary())])
            lines = _batches_of_lines(stack.enter_context(_unzipped(file)), schema)
            yield OpenInput(_guarded(path, lines), schema, TEXT_COLUMN, "line")


def _are_values(fields: Sequence[str]) -> bool:
    """Return whether the first line of a file may have a key, which would be lost as the name of a column."""
    return len(fields) <= 1 or any(not field or "://" in field or field.isdigit() for field in fields)


def _start_of(file: BinaryIO) -> bytes:
    start = file.read(len(_PARQUET))
    file.seek(0)
    return start


def _guarded(path: Path, batches: Iterable[pa.RecordBatch], *kinds: type[Exception]) -> Iterator[pa.RecordBatch]:
    with _errors(path, *kinds):
        yield from batches


def _reader_of(path: Path, file: BinaryIO, on: str | None) -> str | None:
    start, name = _start_of(file), file_literal(path)
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in {".gz", ".zst"}]
    kind = suffixes[-1] if suffixes else ""
    if kind == ".parquet":
        raise QueryError(f"{path} is not a Parquet file; its first bytes are {start!r}")
    packed = "gzip" if start.startswith(_GZIP) else "zstd" if start == _ZSTD else "uncompressed"
    before, first = _first_line(path, strict=kind in _CSV)
    if kind in _JSON or (kind not in _CSV and _STARTS_JSON.match(first)):
        options = f"sample_size = -1, maximum_object_size = {_LONGEST}, {_PLAIN}"
        return f"read_json({name}, compression = '{packed}', {options})"
    if _CDX_LINE.match(first):
        raise QueryError(f"{path} has captures in CDX or CDXJ; use a list of URLs, or CSV with a column url")
    columns = () if on is None else (on,)
    delimiter, names = header_of(first, *columns, tabs=kind == ".tsv")
    if not has_column(names, *columns):
        if kind not in _CSV:
            return None
        if on is None and _are_values(names):
            advice = "; for a list without columns, use a name that ends in .txt" if len(names) == 1 else ""
            message = "its first line must name the columns, such as url, or the column must be given, as in on='link'"
            raise QueryError(f"{path} has no header; {message}{advice}")
    names = [each or f"column{at}" for at, each in enumerate(names)]  # such as the index of pandas
    return _read_csv(path, before, delimiter, names, packed.replace("uncompressed", "none"))


def _first_line(path: Path, *, strict: bool) -> tuple[int, str]:
    """Return the first line that is not blank and no comment, and the number of lines before it."""
    before = 0
    with open_file(path) as file, _unzipped(file) as lines:
        text = io.TextIOWrapper(lines, "utf-8-sig", "strict" if strict else "replace", newline="")
        while (line := text.readline(_LONGEST)) and is_skipped(line):
            before += 1
        return before, line


def _read_csv(path: Path, before: int, delimiter: str, names: Sequence[str], packed: str) -> str:
    _check_names(names, str(path))
    columns = ", ".join(f"{literal(each)}: 'VARCHAR'" for each in names)
    dialect = f"delim = {literal(delimiter)}, quote = '\"', escape = '\"', max_line_size = {_LONGEST}"
    options = f"auto_detect = false, header = true, skip = {before}, {dialect}, compression = '{packed}', {_PLAIN}"
    return f"read_csv({file_literal(path)}, {options}, columns = {{{columns}}})"


@contextmanager
def _unzipped(file: BinaryIO) -> Iterator[BinaryIO]:
    start = _start_of(file)
    if start.startswith(_GZIP):
        with gzip.GzipFile(fileobj=file) as unzipped:
            yield cast("BinaryIO", unzipped)
    elif start == _ZSTD:
        yield cast(
            "BinaryIO", io.BufferedReader(cast("Any", pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")))
        )
    else:
        yield file


def _batches_of_lines(file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rest, is_first = b"", True
    while data := file.read(_CHUNK):
        data = rest + data.removeprefix(b"\xef\xbb\xbf") if is_first else rest + data
        is_first, start = False, b"\r" if data.endswith(b"\r") else b""  # maybe of a line end
        *lines, rest = data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest += start
        if len(rest) > _LONGEST:
            raise pa.ArrowInvalid(f"a line has more than {_LONGEST:,} bytes")
        yield pa.RecordBatch.from_arrays([binaries(lines)], schema=schema)
    if rest:
        yield pa.RecordBatch.from_arrays([binaries([rest.removesuffix(b"\r")])], schema=schema)


@contextmanager
def _errors(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise QueryError(f"there is no file {path}") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error, pa.ArrowException, *kinds) as error:
        raise QueryError(f"{path} cannot be read: {_short(error)}") from error


def _column(schema: pa.Schema, on: str | None, where: str) -> str:
    names: list[str] = schema.names
    _check_names(names, where)
    if not names:
        raise QueryError(f"{where} has no columns")
    if on is not None:
        if on not in names:
            raise QueryError(f"{where} has no column {on}; there are {join_first(names)}")
        return on
    usual = [name for known in (URL, _KEY) for name in names if name.lower() == known]
    if len(names) == 1 or usual:
        return (usual or names)[0]
    raise QueryError(f"{where} has the columns {join_first(names)}; name the one with the keys, as in on='{names[0]}'")


def _check_names(names: Sequence[str], where: str) -> None:
    if len({name.casefold() for name in names}) < len(names):
        raise QueryError(f"{where} has several columns with the same name: {join_first(sorted(names))}")


def texts_of(column: pa.Array, name: str) -> pa.StringArray:
    """Return keys as texts; what is not UTF-8 becomes null.

    Raises:
        QueryError: if values are of another kind, such as lists.
    """
    try:
        column = _plain_column(column)
        return column.cast(pa.string())
    except pa.ArrowException as error:
        if pa.types.is_binary(column.type):
            return pa.array([_decoded(value) for value in column.to_pylist()], pa.string())
        raise QueryError(f"the column {name} has values of type {column.type}, which cannot be keys") from error


def _decoded(value: bytes | None) -> str | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return None
