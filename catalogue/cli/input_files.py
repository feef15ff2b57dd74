"""Files that commands read: patterns for --urls-file, and captures for fetch; also gzipped."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from catalogue.commoncrawl.capture import CAPTURE_COLUMNS
from catalogue.errors import QueryError
from catalogue.formatting import first_paragraph
from catalogue.parquet.arrow_arrays import check_years, texts
from catalogue.query.list_header import URL, cells_differ, has_column, header_of, is_skipped

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET, _ARROW, _ARROW_STREAM, _GZIP = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"\x1f\x8b"
_IN_URLS = set("./*:")
_BATCH_ROWS = 1 << 14
"""Rows as Python objects at a time. Arrow needs a tenth of their memory."""
_LONGEST_LINE = 256 << 20
"""Characters; a device such as ``/dev/zero`` has no line end."""
_CDXJ = re.compile(r"\s*[^\s{\[]\S*\s+(\S+)\s+(\{.*)", re.DOTALL)
_CDXJ_HEADERS = ("!", "@", "#")
"""Starts of lines that describe a CDXJ file."""
_CDX_FIELDS = dict(
    zip("abgksSV", ("url", "timestamp", "filename", "digest", "status", "length", "offset"), strict=True)
)
"""Letters of the first line of a CDX file, https://archive.org/web/researcher/cdx_legend.php."""
_OFFSETS = {"offset", "warc_record_offset"}


def _unzipped(file: BinaryIO) -> io.BufferedReader:
    buffered = io.BufferedReader(file) if not hasattr(file, "peek") else file  # type: ignore[type-var]
    is_zipped = buffered.peek(len(_GZIP)).startswith(_GZIP)
    return cast("io.BufferedReader", gzip.GzipFile(fileobj=buffered) if is_zipped else buffered)


def patterns_in(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Read the patterns of a file, each with file name and line number for messages.

    Skips blank lines and lines that start with ``#``. Spaces at the ends of lines remain, as keys may have some. A file
    is CSV if its first line has a field ``url``, or if its name ends so.

    Raises:
        QueryError: if it is not UTF-8 text, or CSV without a column ``url`` and with several others.
    """
    if file.closed:
        raise QueryError("stdin can be read only once; leave out one --urls-file -")
    try:
        with io.TextIOWrapper(_unzipped(file), "utf-8-sig", newline="") as lines:
            for number, text in _patterns(_lines(lines, file.name), file.name):
                if (stripped := text.strip()) and not stripped.startswith("#"):
                    yield f"{file.name}, line {number}", text
    except UnicodeDecodeError as error:
        reason = f"{error.reason} at byte {error.start}"
        raise QueryError(f"{file.name} is not UTF-8 text: {reason}; for Parquet use: catalogue join") from error
    except (csv.Error, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise QueryError(f"{file.name} cannot be read: {error}") from error


def _lines(text: io.TextIOWrapper, name: str) -> Iterator[str]:
    number = 0
    while line := text.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise QueryError(f"{name}, line {number:,}, is longer than {_LONGEST_LINE:,} characters")
        yield line


def _patterns(lines: Iterator[str], name: str) -> Iterator[tuple[int, str]]:
    before = 0
    for first in lines:
        if not is_skipped(first):
            break
        before += 1
    else:
        return
    unzipped = name.lower().removesuffix(".gz")
    delimiter, header = header_of(first, tabs=unzipped.endswith(".tsv"))
    has_url = has_column(header)
    if not has_url and not unzipped.endswith((".csv", ".tsv")):
        yield from ((number, line.rstrip("\r\n")) for number, line in enumerate(chain([first], lines), before + 1))
        return
    if not has_url and len(header) > 1:
        raise QueryError(f"{name} has no column url, but {', '.join(header)}; rename the column with the URLs to url")
    at = [field.lower() for field in header].index(URL) if has_url else 0
    without_header = not has_url and not _IN_URLS.isdisjoint(header[0])
    rows = csv.reader(chain([first] if without_header else [], lines), delimiter=delimiter)
    for row in rows:
        if row and not row[0].startswith("#"):
            line = before + rows.line_num + (not without_header)
            if any(row[len(header) :]):  # the cell would be the start of a URL
                raise QueryError(f"{name} cannot be read: {cells_differ(line, len(header), len(row))}")
            yield line, row[at].strip() if at < len(row) else ""


def captures_in(file: BinaryIO) -> "pa.Table":
    """Return the columns of a file that locate records: Parquet, Arrow, JSON, JSON lines, CDXJ, CDX or CSV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stream = _unzipped(file)
        start = stream.peek(len(_ARROW))
        if start.startswith(_PARQUET):
            table = pq.ParquetFile(io.BytesIO(stream.read())).read(columns=[*CAPTURE_COLUMNS])
        elif start.startswith((_ARROW, _ARROW_STREAM)):
            opened = pa.ipc.open_file if start.startswith(_ARROW) else pa.ipc.open_stream
            table = opened(stream.read()).read_all()
            table = table.select([name for name in table.column_names if name in CAPTURE_COLUMNS])
        else:
            with io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
                table = _table(_rows(_lines(text, file.name)))
        table.validate(full=True)  # Arrow's format is read as it is: a wrong offset can end the process
        for name in table.column_names:
            check_years(table.column(name))  # KeyError if two columns have this name
    except (ValueError, KeyError, RecursionError, EOFError, OSError, zlib.error, csv.Error, pa.ArrowException) as error:
        message = f"{file.name} contains no captures as JSON, JSON lines, CDXJ, CDX, CSV, Parquet or Arrow"
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else first_paragraph(error)
        raise QueryError(f"{message}: {reason}") from error
    return table


def _rows(text: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    numbered = enumerate(text, 1)
    before, first = next(((number - 1, line.lstrip()) for number, line in numbered if not _is_skipped(line)), (0, ""))
    lines = chain([first], (line for _, line in numbered))
    if first.startswith("["):
        yield from (row if isinstance(row, dict) else {} for row in json.loads("".join(lines)))
        return
    if first.startswith("CDX "):
        names = [_CDX_FIELDS.get(letter, letter) for letter in first.split()[1:]]
        yield from (dict(zip(names, line.split(), strict=False)) for _, line in numbered if line.strip())
        return
    if not (first.startswith("{") or _CDXJ.match(first)):
        delimiter = max("\t;,", key=first.count)
        header = [
            name.strip().lower() for name in next(csv.reader(lines, delimiter=delimiter, skipinitialspace=True), [])
        ]
        rows = csv.DictReader(lines, header, delimiter=delimiter, skipinitialspace=True)
        # Without this check, a one-line file of another format would be read as a header without captures.
        if first and set(CAPTURE_COLUMNS).isdisjoint(header):
            raise ValueError("the first line is neither a JSON object nor a header with columns of captures")
        yield from rows
        return
    for number, line in enumerate(lines, before + 1):
        if not _is_skipped(line):
            cdxj = _CDXJ.fullmatch(line)
            try:
                row = json.loads(cdxj[2] if cdxj else line)
            except ValueError as error:
                raise ValueError(f"line {number:,} is not JSON: {error}") from error
            yield (row | ({"timestamp": cdxj[1]} if cdxj else {})) if isinstance(row, dict) else {}


def _is_skipped(line: str) -> bool:
    if not line.lstrip().startswith(_CDXJ_HEADERS):
        return not line.strip()
    names = (name.strip().strip('"').lower() for name in re.split("[\t;,]", line))
    return _OFFSETS.isdisjoint(names)  # unless it is the header of a table, such as @timestamp,filename,offset


def _table(rows: Iterator[Mapping[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    schema = pa.schema([(name, pa.string()) for name in CAPTURE_COLUMNS])
    tables = [pa.Table.from_batches([], schema)]
    while batch := list(islice(rows, _BATCH_ROWS)):
        columns = [texts([_text(row.get(name)) for row in batch]) for name in schema.names]
        tables.append(pa.table(columns, schema=schema))
    table = pa.concat_tables(tables)
    present = [name for name in schema.names if table.column(name).null_count < table.num_rows]
    return table.select(present) if table.num_rows else table


def _text(value: object) -> str | None:
    if isinstance(value, float) and value.is_integer():  # pandas writes integers so if one is missing
        value = int(value)
    # URLs of records contain no unpaired surrogates.
    return None if value is None else str(value).encode(errors="replace").decode()
