"""Write captures and other rows in all formats: to a file, stdout, or a folder with a file per crawl."""

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.atomic_files import make_folder, named, output_file, whole_file
from catalogue.cdx.lines import Output, lines_of, write_lines
from catalogue.cli.options import SUFFIXES, format_for
from catalogue.cli.tables import table
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError
from catalogue.formatting import json_text, printable_lines
from catalogue.parquet.arrow_arrays import chunks, rows_of, texts
from catalogue.store.locks import locked

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.plan.question import Question
    from catalogue.session import Session

_TABLE_COLUMNS = ["fetch_time", "fetch_status", "content_mime_detected", "url", "crawl"]
_WAYS = ["choose some by --columns", "add --format jsonl"]
_MIN_WIDTHS = {"url": 32, "content_mime_detected": 12}
"""Characters to which texts may be cut on a terminal."""
_DROP_FIRST = ["crawl", "content_mime_detected", "fetch_status", "fetch_time"]
_INDEX_TIME = "fetch_time"
_PAGE = 1000
_ROW_GROUP = 1 << 17
_LIST = "answer.json"
"""The list of the files of an output folder, by which a query can be resumed."""


def write(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format_: str,
    output: Path | None,
    *,
    chosen_columns: bool = True,
    most: int | None = None,
) -> int:
    """Write rows to a file or stdout; return their number. The file appears when it is complete.

    A table has only the most important columns, unless the user chose some; a terminal shows ``most`` of its rows.
    """
    if format_ == "table":
        names = schema.names if chosen_columns else [name for name in _TABLE_COLUMNS if name in schema.names]
        drop_first = () if chosen_columns else _DROP_FIRST
        rows = _rows(batches, names)
        return table(names, rows, min_widths=_MIN_WIDTHS, drop_first=drop_first, most=most, ways=_WAYS)
    needed = {"cdxj": ["url_surtkey", "fetch_time"], "url": ["url"]}.get(format_, [])
    if not {*needed} <= {*schema.names}:
        raise QueryError(f"--format {format_} needs the {'columns' if needed[1:] else 'column'} {' and '.join(needed)}")
    with _target(output) as file:
        match format_:
            case "jsonl" | "json":
                return _write_json(batches, file, array=format_ == "json")
            case "cdxj":
                return _write_texts(batches, file, lambda batch: write_lines(lines_of(batch), Output.CDXJ))
            case "url":
                return _write_texts(batches, file, _urls)
            case "csv" | "tsv":
                delimiter = "," if format_ == "csv" else "\t"
                names = _quoted(texts(schema.names), delimiter).to_pylist()
                file.write(f"{delimiter.join(names)}\n".encode())
                return _write_texts(batches, file, lambda batch: _separated(batch, delimiter))
            case "parquet":
                return _write_whole(batches, pq.ParquetWriter(file, schema, compression="zstd"))
        new = pa.ipc.new_file if format_ == "arrow" else pa.ipc.new_stream
        return _write_whole(batches, new(file, schema))


@contextmanager
def _target(output: Path | None) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        if output is None or _is_stdout(output):
            stack.enter_context(named("standard output"))
            stack.callback(sys.stdout.buffer.flush)
            file: Any = _Terminal() if output is None and sys.stdout.isatty() else sys.stdout.buffer
        else:
            file = stack.enter_context(output_file(output))
        if output is not None and output.suffix == ".gz":
            file = cast("IO[bytes]", stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)))
        yield file


class _Terminal:
    """Standard output, for text whose control characters would change the terminal."""

    def write(self, text: bytes) -> int:
        return sys.stdout.buffer.write(printable_lines(text.decode()).encode())


def _is_stdout(path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except OSError:
        return False


def _rows(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[list[Any]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _PAGE):
            for row in rows_of(batch.slice(start, _PAGE)):
                yield [row[name] for name in names]


def _write_json(batches: Iterable[pa.RecordBatch], file: IO[bytes], *, array: bool) -> int:
    lead, between, end = ("[\n", ",\n", "\n]\n") if array else ("", "\n", "\n")
    count = 0
    for batch in batches:
        rows = _texts(batch).to_pylist()
        if rows:
            file.write(f"{between if count else lead}{between.join(map(json_text, rows))}".encode())
        count += len(rows)
    file.write((end if count else "[]\n" if array else "").encode())
    return count


def _write_texts(batches: Iterable[pa.RecordBatch], file: IO[bytes], text_of: Callable[[pa.RecordBatch], bytes]) -> int:
    count = 0
    for batch in batches:
        file.write(text_of(batch))
        count += batch.num_rows
    return count


def _urls(batch: pa.RecordBatch) -> bytes:
    urls = (url.replace("\n", "%0A").replace("\r", "%0D") for url in batch.column("url").to_pylist() if url)
    return "".join(f"{url}\n" for url in urls).encode()


def _separated(batch: pa.RecordBatch, delimiter: str) -> bytes:
    """Return lines of CSV; empty text is quoted, null is not."""
    columns = [_quoted(column.cast(pa.string()), delimiter) for column in _texts(batch).columns]
    null = "" if len(columns) > 1 else '""'  # readers skip empty lines
    lines = pc.binary_join_element_wise(*columns, *texts([delimiter]), null_handling="replace", null_replacement=null)
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _quoted(values: pa.Array, delimiter: str) -> pa.Array:
    special = pc.match_substring_regex(values, f'^$|[{delimiter}"\r\n]')
    quote, nothing = texts(['"', ""])
    quoted = pc.binary_join_element_wise(quote, pc.replace_substring(values, '"', '""'), quote, nothing)
    return pc.if_else(special, quoted, values)


def _write_whole(batches: Iterable[pa.RecordBatch], writer: Any) -> int:
    count = 0
    with writer:
        for rows in chunks(batches, _ROW_GROUP):
            writer.write_table(rows)
            count += rows.num_rows
    return count


def _texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert types that JSON and CSV do not have to text: times to ISO 8601, bytes to hexadecimal digits."""
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = array.type
        if pa.types.is_timestamp(kind):
            # strftime would look for UTC in the time zones of the system, which may have none.
            written = array.cast(pa.timestamp(kind.unit)).cast(pa.string())
            if name == _INDEX_TIME and kind.unit == "ms":
                written = pc.replace_substring(written, ".000", "")  # the index has whole seconds
            zone = texts(["Z" if kind.tz else "", ""])
            arrays.append(pc.binary_join_element_wise(pc.replace_substring(written, " ", "T"), *zone))
        elif pa.types.is_binary(kind):
            arrays.append(texts([None if v is None else v.hex() for v in array.to_pylist()]))
        elif pa.types.is_decimal(kind) or pa.types.is_date(kind):
            arrays.append(array.cast(pa.string()))
        elif pa.types.is_floating(kind):
            arrays.append(pc.if_else(pc.is_finite(array), array, pa.nulls(1, kind)[0]))  # JSON has no NaN
        else:
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


@contextmanager
def open_output_folder(folder: Path, format_: str | None, description: Mapping[str, Any]) -> "Iterator[OutputFolder]":
    """Open or create the folder for the captures of one query, for one process at a time.

    Raises:
        QueryError: if the folder contains anything else.
        StoreLocked: if another process writes into it.
    """
    format_ = format_ or "parquet"
    format_for(format_, folder)
    make_folder(folder)
    with locked(folder / ".answer.lock", folder):
        yield OutputFolder(folder, format_, description)


class OutputFolder:
    """The folder with the captures of one query."""

    def __init__(self, folder: Path, format_: str, description: Mapping[str, Any]) -> None:
        self._folder = folder
        self._format = format_
        self._query = json.loads(json.dumps({**description, "format": format_}))
        self._parts: dict[str, dict[str, Any]] = {}
        if (folder / _LIST).exists():
            self._read()
        elif any(not file.name.startswith(".") for file in folder.iterdir()):
            raise QueryError(f"{folder} contains other files; choose an empty or a new folder")
        else:
            self._write_list()  # before the first file, so that a folder with files always has a list

    def _read(self) -> None:
        try:
            listed = json.loads((self._folder / _LIST).read_text(encoding="utf-8"))
            query, parts = listed["question"], dict(listed["parts"])
            for part in parts.values():
                _ = part["file"], part["size"], part["complete"], part["state"]
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._folder / _LIST} cannot be read; choose another folder, or empty this one"
            raise QueryError(message) from error
        if query != self._query:
            raise QueryError(f"{self._folder} contains the captures of another query; choose another folder")
        self._parts = parts

    def missing(self, states: Mapping[str, str]) -> list[str]:
        """Return the crawls without a complete file of this state; see ``crawl_states``."""
        return [crawl for crawl, state in states.items() if not self._is_complete(self._parts.get(crawl), state)]

    def _is_complete(self, part: dict[str, Any] | None, state: str) -> bool:
        if not part or not part["complete"] or part["state"] != state:
            return False
        path = self._folder / part["file"] if part["file"] else None
        return path is None or (path.is_file() and path.stat().st_size == part["size"])

    def write(self, crawl: str, state: str, captures: "Captures", batches: Iterable[pa.RecordBatch]) -> int:
        name = f"{crawl}.{SUFFIXES[self._format]}"
        path = self._folder / name
        count = write(batches, captures.plan.schema, self._format, path)
        size = path.stat().st_size
        if not count:
            path.unlink()
        result = {"captures": count, "complete": captures.complete, "state": state}
        self._parts[crawl] = {"file": name if count else None, "size": size} | result
        self._write_list()
        return count

    def _write_list(self) -> None:
        with whole_file(self._folder / _LIST) as file:
            file.write(json.dumps({"question": self._query, "parts": self._parts}, indent=1).encode())


def crawl_states(session: "Session", question: "Question") -> dict[str, str]:
    """Return the crawls, each with a digest of its stored files if captures depend on what is stored."""
    if session.dataset == COMMON_CRAWL:
        return dict.fromkeys(question.crawls, "")
    shown = session.metadata()
    return {crawl: shown.state_of(crawl, question.subsets) for crawl in question.crawls}


def describe_query(question: "Question", parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what distinguishes a query from others, except crawls."""
    query = question.query
    return {
        "table": query.table.name,
        "patterns": query.patterns,
        "intervals": [[each.start.hex(), each.end.hex()] for each in query.intervals],
        "columns": "*" if "*" in parameters["columns"] else query.columns,
        "where": query.where and query.where.sql,
        "from": query.from_ms,
        "to": query.to_ms,
        "urls": query.urls,
        "ordered": query.ordered,
        "subsets": sorted(question.subsets),
    }
