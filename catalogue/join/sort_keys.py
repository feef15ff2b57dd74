"""Parse and sort the keys of an input."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.atomic_files import named, room, sync
from catalogue.errors import DiskFailed, QueryError
from catalogue.formatting import first_paragraph, plural, printable
from catalogue.join.inputs import OpenInput, texts_of
from catalogue.join.keys import INPUTS_FILE, LOOKUPS, LOOKUPS_FILE, NUMBER, PREFIX, ROW, batch_writer, same_as_keys
from catalogue.parquet.arrow_arrays import binaries, booleans, flags, joined, positions, sorted_pieces, texts_of_keys
from catalogue.query.literals import file_literal, literal
from catalogue.surt import KeyInterval, Match, exact_keys, parse_pattern, prefix_interval

if TYPE_CHECKING:
    import duckdb

FIRST, OTHERS = "first", "others"
_IS_KEY = r"^[^/?#\s()]+\)(?:\S|$)"
"""Keys have a parenthesis after the host, where URLs have none."""
_HEADER = ("text", "reason")
_SHOWN = 300


class ParsedInput:
    """Rows of the input with their patterns.

    Columns: the key of an exact pattern, or the start of its first interval; those of its other intervals; the number
    of the row; the columns of the input.
    """

    def __init__(self, given: OpenInput, match: Match, invalid: Path, report: Callable[[int], None]) -> None:
        self._given, self._match, self._report = given, match, report
        self._invalid_path, self._stack = invalid, ExitStack()
        if is_list_of_invalid(invalid):  # of an earlier attempt
            invalid.unlink()
        self._writer: Any = None
        self.rows = self.invalid = self.skipped = 0
        self.is_ascii = True
        self.has_others = False
        """Whether a pattern has more than one key; known when all batches are parsed."""
        self.example = ""
        fields = [
            pa.field(PREFIX + field.name, pa.string() if field.name == given.column else field.type)
            for field in given.schema
        ]
        self.column = PREFIX + given.column
        self.keys_column: str | None = PREFIX + given.column
        """A column in which every value so far is the key of its row; None if there is none."""
        self.schema = pa.schema([(FIRST, pa.binary()), (OTHERS, pa.binary()), (ROW, pa.int64()), *fields])

    def close(self) -> None:
        self._stack.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._given.batches:
            texts = texts_of(batch.column(self._given.column), self._given.column)
            firsts, others, valid = self._parsed(texts, batch.column(self._given.column))
            for keys in (firsts, others):  # intervals in hexadecimal digits are ASCII; their ends are not keys
                self.is_ascii &= pc.all(pc.string_is_ascii(keys.view(pa.string())), min_count=0).as_py()
            rows = positions(np.arange(self.rows + 1, self.rows + len(batch) + 1))
            given = [texts if field.name == self._given.column else batch.column(field.name) for field in batch.schema]
            found = pa.RecordBatch.from_arrays([firsts, others, rows, *given], schema=self.schema)
            self.rows += len(batch)
            self._report(self.rows)
            yield found.filter(valid) if valid is not None else found
        self._stack.close()

    def _parsed(self, texts: pa.StringArray, given: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
        if self._match is Match.EXACT:
            is_plain = texts.null_count == 0 and pc.all(pc.match_substring_regex(texts, _IS_KEY), min_count=0).as_py()
            if is_plain and pc.all(pc.equal(texts, pc.utf8_trim_whitespace(texts)), min_count=0).as_py():
                return texts.cast(pa.binary()), pa.repeat(binaries([b""])[0], len(texts)), None
        self.keys_column = None
        firsts, others, left_out = [], [], []
        for at, text in enumerate(texts.to_pylist()):
            if self._given.unit == "line" and text is not None and (not text.strip() or text.lstrip().startswith("#")):
                self.skipped += 1
                left_out.append(at)
                firsts.append(b"")
                others.append(b"")
                continue
            try:
                first, more = self._pattern(text)
            except QueryError as error:
                first, more = b"", b""
                value = given[at].as_py()
                reason = "it is not UTF-8" if text is None and value is not None else str(error)
                self._note(self.rows + 1 + at, value, reason)
                left_out.append(at)
            firsts.append(first)
            others.append(more)
        valid = None
        if left_out:
            mask = np.ones(len(texts), np.bool_)
            mask[left_out] = False
            valid = flags(mask)
        self.has_others |= any(others)
        return binaries(firsts), binaries(others), valid

    def _pattern(self, text: str | None) -> tuple[bytes, bytes]:
        if text is None or not (text := text.strip()):
            raise QueryError("it is empty")
        if is_key(text):
            return self._key(text)
        if self._match is Match.EXACT:
            newest, *others = exact_keys(text)
            return newest.encode(), b"\0".join(key.encode() for key in others)
        return _packed(parse_pattern(text, self._match).intervals)

    def _key(self, text: str) -> tuple[bytes, bytes]:
        if self._match is Match.EXACT:
            return text.encode(), b""
        if self._match is Match.PREFIX:
            return _packed([prefix_interval(text.encode())])
        host = text[: text.index(")")]
        ends = [")", ":"] if self._match is Match.HOST else [")", ",", ":"]
        return _packed([prefix_interval(f"{host}{end}".encode()) for end in ends])

    def _note(self, row: int, given: object, reason: str) -> None:
        text = given.decode(errors="replace") if isinstance(given, bytes) else "" if given is None else str(given)
        if self._writer is None:
            file = self._stack.enter_context(self._invalid_path.open("w", encoding="utf-8", newline=""))
            self._writer = csv.writer(file)
            self._writer.writerow([self._given.unit, *_HEADER])
            self.example = f"{self._given.unit} {row:,}: {reason}"
        self._writer.writerow([row, printable(text[:_SHOWN]), printable(reason)])
        self.invalid += 1


def is_key(text: str) -> bool:
    return ")" in text and re.match(_IS_KEY, text) is not None


def _packed(intervals: Sequence[KeyInterval]) -> tuple[bytes, bytes]:
    return intervals[0].start, b" ".join(f"{each.start.hex()}-{each.end.hex()}".encode() for each in intervals)


def unpacked(first: bytes, others: bytes, *, wide: bool) -> list[tuple[bytes, bytes | None]]:
    if not wide:
        return [(first, None), *((key, None) for key in (others.split(b"\0") if others else ()))]
    pairs = (each.decode().split("-") for each in others.split(b" "))
    return [(bytes.fromhex(start), bytes.fromhex(end)) for start, end in pairs]


def is_list_of_invalid(path: Path) -> bool:
    """Return whether a file lists the invalid rows of an input."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(_SHOWN).strip().endswith(",".join(_HEADER).encode())


_MEMORY = "512MB"
SPILLED = "spilled"


@contextmanager
def database(folder: Path) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a database in memory that spills to a folder.

    Raises:
        DiskFailed: if the folder has no room.
        QueryError: if rows are too large for its memory, or have a type that it does not read.
    """
    import duckdb

    spilled = folder / SPILLED
    try:
        with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
            connection.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 2; SET TimeZone = 'UTC'")
            connection.execute(f"SET temp_directory = {literal(str(spilled))}")
            yield connection
    except duckdb.OutOfMemoryException as error:
        message = f"rows of the input are too large to be sorted in {_MEMORY}; leave out columns with long texts"
        raise QueryError(message) from error
    except (duckdb.NotImplementedException, duckdb.InvalidInputException) as error:
        message = f"a column of the input has a type that DuckDB does not read: {first_paragraph(error)}"
        raise QueryError(message) from error
    except duckdb.Error as error:
        message = f"the join cannot continue in {folder}: {first_paragraph(error)}{room(folder, error)}"
        raise DiskFailed(f"{message}; what was finished is not lost") from error


_Write: TypeAlias = Callable[[pa.RecordBatch], None]

_PARSED_FILE = "parsed.parquet"
_MOST_SORTED = 160 << 20
"""Bytes of rows that are sorted in memory."""


def sort_keys(
    folder: Path,
    given: OpenInput,
    match: Match,
    invalid: Path,
    report: Callable[[int], None],
    *,
    batch: int,
) -> dict[str, Any]:
    """Sort the patterns of an input into files of a folder, which needs about three times the room of the input.

    Rows without a valid pattern are written to the CSV file ``invalid``: number, text, reason. ``report`` is called
    with the number of rows so far; ``batch`` limits the rows of a batch. The result counts rows, different patterns and
    invalid rows; ``column`` is that of the patterns in a result.

    Raises:
        QueryError: if no row has a valid pattern, or the input cannot be read.
    """
    with ExitStack() as stack:
        parsing = stack.enter_context(closing(ParsedInput(given, match, invalid, report)))
        inorder = stack.enter_context(_sorted(parsing, batch, folder))
        patterns = _write_numbered(folder, inorder, batch, parsing, wide=match is not Match.EXACT)
        (folder / _PARSED_FILE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.is_file():
                sync(path)
        if not patterns:
            example = f"; {parsing.example}" if parsing.example else ""
            names = {Match.EXACT: "a URL", Match.PREFIX: "a prefix of URLs"}
            what = names.get(match, f"the name of a {match.value}")
            count = parsing.rows - parsing.skipped
            if not count:
                raise QueryError("the list has no keys")
            none = f"none of the {plural(count, given.unit)} is" if count > 1 else f"the only {given.unit} is not"
            raise QueryError(f"{none} {what}{example}")
        counts = {"rows": parsing.rows - parsing.skipped, "patterns": patterns, "invalid": parsing.invalid}
        return {**counts, "is_ascii": parsing.is_ascii, "column": parsing.column}


def _write_numbered(
    folder: Path, inorder: pa.RecordBatchReader, batch: int, parsing: ParsedInput, *, wide: bool
) -> int:
    count, before, keys_column, single = 0, None, parsing.keys_column, not parsing.has_others
    with ExitStack() as stack:
        fields = [field for field in inorder.schema if field.name not in {FIRST, OTHERS}]
        fields = [same_as_keys(field.name) if field.name == keys_column else field for field in fields]
        schema = pa.schema([pa.field(NUMBER, pa.int64()), *fields])
        is_large = (folder / _PARSED_FILE).exists()
        write_inputs = stack.enter_context(batch_writer(folder / INPUTS_FILE, schema, compress=is_large))
        lookups = stack.enter_context(_lookup_writer(folder, batch, ordered=single, compress=is_large))
        for some in inorder:
            if not some.num_rows:
                continue
            firsts, others = some.column(FIRST), some.column(OTHERS)
            is_new = _changes(firsts, others, before)
            numbered = count - 1 + np.cumsum(is_new)
            before = firsts[-1].as_py(), others[-1].as_py()
            columns = [pa.nulls(len(some)) if each.name == keys_column else some.column(each.name) for each in fields]
            rows = pa.RecordBatch.from_arrays([positions(numbered), *columns], schema=schema)
            write_inputs(rows, (int(numbered[0]), int(numbered[-1])))
            if not is_new.all():
                firsts, others = (each.filter(flags(is_new)) for each in (firsts, others))
            count += len(firsts)
            if len(firsts):
                lookups(_lookups(firsts, others, numbered[is_new], single=single, wide=wide))
    return count


@contextmanager
def _sorted(parsing: ParsedInput, rows: int, folder: Path) -> Iterator[pa.RecordBatchReader]:
    waiting: list[pa.RecordBatch] = []
    batches, size = parsing.batches(), 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > _MOST_SORTED:
            path = folder / _PARSED_FILE
            with _parquet_writer(path, parsing.schema) as write:
                for each in chain(waiting, batches):
                    write(each)
            waiting.clear()
            with database(folder) as connection:
                yield _by_duckdb(connection, path, f"{FIRST}, {ROW}", rows)
            return
    yield pa.RecordBatchReader.from_batches(parsing.schema, _inorder(parsing, waiting, rows))


def _inorder(parsing: ParsedInput, waiting: list[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows by key; where the column of the input has only keys, it is made of them instead of sorted."""
    schema, same = parsing.schema, parsing.keys_column
    every = pa.Table.from_batches(waiting, schema)
    waiting.clear()
    keys = joined(every[FIRST])
    others = {name: joined(every[name]) for name in schema.names if name not in {FIRST, same}}
    del every
    for places, some in sorted_pieces(keys, rows) if len(keys) else ():
        columns = {name: column.take(places) for name, column in others.items()} | {FIRST: some}
        if same is not None:
            columns[same] = texts_of_keys(some)
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _by_duckdb(connection: "duckdb.DuckDBPyConnection", path: Path, order: str, rows: int) -> pa.RecordBatchReader:
    file = f"read_parquet({file_literal(path)}, hive_partitioning = false)"
    query = f"FROM {file} ORDER BY {order}"
    return connection.execute(query).to_arrow_reader(rows)


@contextmanager
def _parquet_writer(path: Path, schema: pa.Schema) -> Iterator[_Write]:
    """Write rows that DuckDB will sort: it would keep Arrow batches in memory, beyond its limit."""
    with named(path), pq.ParquetWriter(path, schema, compression="lz4", use_dictionary=False) as file:
        yield file.write_batch


@contextmanager
def _lookup_writer(folder: Path, rows: int, *, ordered: bool, compress: bool) -> Iterator[_Write]:
    reached, unsorted = b"", folder / "unsorted.parquet"

    def write(batch: pa.RecordBatch) -> None:
        nonlocal reached
        reached = max(reached, pc.max(batch.column("end")).as_py() or b"")
        write_batch(batch, (batch.column("start")[0].as_py().hex(), reached.hex()))

    with batch_writer(folder / LOOKUPS_FILE, LOOKUPS, compress=compress) as write_batch:
        if ordered:
            yield write
            return
        with _parquet_writer(unsorted, LOOKUPS) as write_unsorted:
            yield write_unsorted
        with database(folder) as connection:
            for batch in _by_duckdb(connection, unsorted, f"start, {NUMBER}", rows):
                if len(batch):
                    write(batch.cast(LOOKUPS))
        unsorted.unlink()


def _lookups(firsts: pa.Array, others: pa.Array, of: np.ndarray, *, single: bool, wide: bool) -> pa.RecordBatch:
    """Make intervals; ``single`` if each is one key."""
    if single:
        columns = [firsts, pa.nulls(len(firsts), pa.binary()), positions(of)]
        return pa.RecordBatch.from_arrays(columns, schema=LOOKUPS)
    found = [
        (start, end, number)
        for first, more, number in zip(firsts.to_pylist(), others.to_pylist(), of.tolist(), strict=True)
        for start, end in unpacked(first, more, wide=wide)
    ]
    starts, ends, numbered = zip(*found, strict=True)
    columns = [binaries(starts), pa.array(ends, pa.binary()), positions(np.array(numbered))]
    return pa.RecordBatch.from_arrays(columns, schema=LOOKUPS)


def _changes(firsts: pa.Array, others: pa.Array, before: tuple[Any, Any] | None) -> np.ndarray:
    found = np.ones(len(firsts), np.bool_)
    same = pc.and_(pc.equal(firsts[1:], firsts[:-1]), pc.equal(others[1:], others[:-1]))
    found[1:] = ~booleans(same)
    found[0] = before is None or (firsts[0].as_py(), others[0].as_py()) != before
    return found
