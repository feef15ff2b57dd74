"""The keys of a join, sorted on disk: each once, with the rows of the input that have it."""

import csv
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import QueryError
from catalogue.formatting import plural, printable
from catalogue.join.batch_file import BatchFile, BatchWriter
from catalogue.join.inputs import OpenInput, texts_of
from catalogue.parquet.arrow_arrays import binaries, booleans, flags, integers, positions
from catalogue.query.exact_keys import ExactKeys, KeyTexts
from catalogue.query.literals import literal
from catalogue.surt import END, KeyInterval, Keys, Match, merge, parse_key_pattern, prefix_interval, url_surtkeys

if TYPE_CHECKING:
    import duckdb

NUMBER, ROW = "number", "row_id"
PREFIX = "input_"
"""Of the columns of the input."""
LOOKUPS = pa.schema([("start", pa.binary()), ("end", pa.binary()), (NUMBER, pa.int64())])
"""An interval of keys, sorted by ``start``, and the number of its pattern; ``end`` is null for a single key."""
_INPUTS, _LOOKUPS = "inputs.arrow", "lookups.arrow"
_NEAR = 1 << 16
"""Difference of numbers up to which rows are read together."""
_IS_KEY = r"^[^/?#\s]*\)"
"""Keys have a parenthesis after the host, where URLs have none."""
_PARSED, _OTHERS, _FIRST = "parsed", "others", "first"
_MEMORY = "400MB"
_MOST_SORTED = 160 << 20
"""Bytes of rows that are sorted in memory."""
_SHOWN = 300
"""Characters of an invalid line that are kept."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What an input has."""

    rows: int
    patterns: int
    """Different ones."""
    invalid: int
    """Rows without a valid pattern."""
    is_ascii: bool
    """Whether all keys are ASCII."""


class Lookups(NamedTuple):
    """Some consecutive intervals."""

    starts: pa.BinaryArray
    ends: pa.BinaryArray
    numbers: np.ndarray
    """Of the patterns; shape (n,), int64."""

    @property
    def intervals(self) -> Sequence[KeyInterval]:
        """The same keys as disjoint ascending intervals."""
        if self.ends.null_count == len(self.ends):
            is_repeated = pc.any(pc.equal(self.starts[1:], self.starts[:-1]), min_count=0).as_py()
            return ExactKeys(pc.unique(self.starts) if is_repeated else self.starts)
        pairs = zip(self.starts.to_pylist(), self.ends.to_pylist(), strict=True)
        return merge(KeyInterval(start, start + b"\0" if end is None else end) for start, end in pairs)


class JoinKeys:
    """The sorted keys in a folder."""

    def __init__(self, folder: Path, patterns: int, *, is_ascii: bool) -> None:
        """Use the files that ``write_keys`` wrote.

        Args:
            folder: of the files.
            patterns: number of different ones.
            is_ascii: whether all keys are ASCII.
        """
        self.patterns = patterns
        self.is_ascii = is_ascii
        self._inputs, self._lookups = BatchFile(folder / _INPUTS), BatchFile(folder / _LOOKUPS)
        self._firsts = [bytes.fromhex(first) for first, _ in self._lookups.places]
        self._reached = [bytes.fromhex(reached) for _, reached in self._lookups.places]
        self._starts = [0, *accumulate(self._lookups.counts)]

    def close(self) -> None:
        self._inputs.close()
        self._lookups.close()

    def __len__(self) -> int:
        """Return the number of intervals."""
        return self._starts[-1]

    @property
    def input_schema(self) -> pa.Schema:
        """Of the rows of the input, with the number of their pattern."""
        return self._inputs.schema

    def rows_between(self, first: int, last: int) -> pa.RecordBatch:
        """Return the rows of the input whose pattern has a number between two, inclusive; sorted by number."""
        start = bisect_left(self._inputs.places, first, key=itemgetter(1))
        stop = bisect_right(self._inputs.places, last, key=itemgetter(0))
        rows = self._inputs.read(range(start, max(start, stop)))
        known = integers(rows.column(NUMBER))
        begin, end = np.searchsorted(known, first), np.searchsorted(known, last, side="right")
        return rows.slice(begin, end - begin)

    def rows_of(self, patterns: np.ndarray) -> pa.RecordBatch:
        """Return the rows of the input that have one of some patterns, given by ascending numbers; sorted by number."""
        cuts = np.flatnonzero(np.diff(patterns) > _NEAR) + 1
        runs = [run for run in np.split(patterns, cuts) if len(run)]
        parts = [self.rows_between(int(run[0]), int(run[-1])) for run in runs] or [self.rows_between(0, -1)]
        (rows,) = pa.Table.from_batches(parts).combine_chunks().to_batches() or [parts[0]]
        return rows

    def place(self, key: bytes) -> int:
        """Return about how many intervals start before a key; at most those of a batch too few."""
        return self._starts[max(0, bisect_left(self._firsts, key) - 1)] if key < END else len(self)

    def about(self, keys: KeyInterval) -> int:
        """Return about how many intervals start in an interval of keys."""
        return self.place(keys.end) - self.place(keys.start)

    def lacks(self, key: bytes) -> bool:
        """Return whether no interval has a key."""
        return self.lacks_all(key, key + b"\0")

    def lacks_all(self, start: bytes, end: bytes) -> bool:
        """Return whether no interval has keys between two keys, the second exclusive."""
        return not len(self.between(start, end).numbers)

    def between(self, start: bytes, end: bytes) -> Lookups:
        """Return the intervals with keys between two keys, the second exclusive, cut to them."""
        first = min(max(0, bisect_right(self._firsts, start) - 1), bisect_right(self._reached, start))
        batch = self._lookups.read(range(first, max(first, bisect_left(self._firsts, end))))
        begins, ends = batch.column("start"), batch.column("end")
        if ends.null_count == len(ends):
            low = bisect_left(KeyTexts(begins), start)
            chosen = batch.slice(low, bisect_left(KeyTexts(begins), end, lo=low) - low)
            begins, ends = chosen.column("start"), chosen.column("end")
        else:
            low, high = binaries([start, end])
            inside = pc.or_(pc.greater_equal(begins, low), pc.greater(pc.fill_null(ends, b""), low))
            chosen = batch.filter(pc.and_(inside, pc.less(begins, high)))
            begins, ends = chosen.column("start"), chosen.column("end")
            begins = pc.if_else(pc.less(begins, low), low, begins)
            ends = pc.if_else(pc.greater(ends, high), high, ends)
        return Lookups(begins, ends, integers(chosen.column(NUMBER)))


def write_keys(
    folder: Path,
    given: OpenInput,
    dataset: Dataset,
    match: Match,
    invalid: Path,
    report: Callable[[int], None] = lambda _: None,
    *,
    batch: int = 1 << 14,
) -> Counts:
    """Sort the patterns of an input into files of a folder.

    Args:
        folder: exists; has room for about three times the input.
        given: the input.
        dataset: which decides what keys are.
        match: what each row matches.
        invalid: CSV file for the rows without a valid pattern: number, text, reason. Written only if there are any.
        report: called with the number of rows so far.
        batch: most rows of a batch.

    Raises:
        QueryError: if no row has a valid pattern, or the input cannot be read.
    """
    import duckdb

    with ExitStack() as stack:
        connection = stack.enter_context(duckdb.connect())
        connection.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 2")
        connection.execute(f"SET temp_directory = {literal(str(folder / 'spilled'))}")
        parsing = stack.enter_context(closing(_Parsing(given, dataset, match, invalid, report)))
        inorder = _sorted(parsing, connection, batch)
        patterns = _write_numbered(folder, inorder, connection, batch, wide=match is not Match.EXACT)
        if not patterns:
            example = f"; {parsing.example}" if parsing.example else ""
            raise QueryError(f"none of the {plural(parsing.rows, given.unit)} is {_what(match)}{example}")
        return Counts(parsing.rows, patterns, parsing.invalid, parsing.is_ascii)


def _what(match: Match) -> str:
    return {Match.EXACT: "a URL", Match.PREFIX: "a prefix of URLs"}.get(match, f"the name of a {match.value}")


class _Parsing:
    """Rows of the input with their patterns.

    Columns: the key of an exact pattern, or the start of its first interval; those of its other intervals; the number
    of the row; the columns of the input.
    """

    def __init__(
        self, given: OpenInput, dataset: Dataset, match: Match, invalid: Path, report: Callable[[int], None]
    ) -> None:
        self._given, self._keys, self._match, self._report = given, dataset.keys, match, report
        self._invalid_path, self._stack = invalid, ExitStack()
        self._writer: Any = None
        self.rows = self.invalid = 0
        self.is_ascii = True
        self.example = ""
        """The first invalid row."""
        fields = [
            pa.field(PREFIX + field.name, pa.string() if field.name == given.column else field.type)
            for field in given.schema
        ]
        self.schema = pa.schema([(_FIRST, pa.binary()), (_OTHERS, pa.binary()), (ROW, pa.int64()), *fields])

    def close(self) -> None:
        self._stack.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._given.batches:
            texts = texts_of(batch.column(self._given.column))
            firsts, others, valid = self._parsed(texts, batch.column(self._given.column))
            self.is_ascii &= _is_ascii(firsts) and _is_ascii(others)
            rows = positions(np.arange(self.rows + 1, self.rows + len(batch) + 1))
            given = [texts if field.name == self._given.column else batch.column(field.name) for field in batch.schema]
            found = pa.RecordBatch.from_arrays([firsts, others, rows, *given], schema=self.schema)
            self.rows += len(batch)
            self._report(self.rows)
            yield found.filter(valid) if valid is not None else found
        self._stack.close()

    def _parsed(self, texts: pa.StringArray, given: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
        """Return first starts, the other intervals of each pattern in bytes, and which rows are valid."""
        if self._match is Match.EXACT and self._keys is Keys.URL:
            is_key = pc.match_substring_regex(texts, _IS_KEY)
            if texts.null_count == 0 and pc.all(is_key, min_count=0).as_py():
                return texts.cast(pa.binary()), pa.repeat(binaries([b""])[0], len(texts)), None
        firsts, others, invalid = [], [], []
        for at, text in enumerate(texts.to_pylist()):
            try:
                first, more = self._pattern(text)
            except QueryError as error:
                first, more = b"", b""
                self._note(self.rows + 1 + at, given[at].as_py(), str(error))
                invalid.append(at)
            firsts.append(first)
            others.append(more)
        valid = None
        if invalid:
            mask = np.ones(len(texts), np.bool_)
            mask[invalid] = False
            valid = flags(mask)
        return binaries(firsts), binaries(others), valid

    def _pattern(self, text: str | None) -> tuple[bytes, bytes]:
        if text is None or not (text := text.strip()):
            raise QueryError("it is empty" if text is not None else "it has no text in UTF-8")
        if self._keys is Keys.URL and _is_key(text):
            return self._key(text)
        pattern = parse_key_pattern(text, self._keys, self._match)
        if self._match is Match.EXACT:
            keys = [each.start for each in pattern.intervals]
            if self._keys is Keys.URL and len(keys) > 1:
                keys = [key.encode() for key in url_surtkeys(text)]
            return keys[0], b"\0".join(keys[1:])
        return _packed(pattern.intervals)

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
            self._writer.writerow([self._given.unit, "text", "reason"])
            self.example = f"{self._given.unit} {row:,}: {reason}"
        self._writer.writerow([row, printable(text[:_SHOWN]), printable(reason)])
        self.invalid += 1


def _is_ascii(values: pa.BinaryArray) -> bool:
    """Return whether values are ASCII; intervals in hexadecimal digits always are, and their ends are not keys."""
    data = values.buffers()[2]
    return data is None or not (np.frombuffer(data, np.uint8) & 0x80).any()


def _is_key(text: str) -> bool:
    host = text.replace("?", "/").replace("#", "/").partition("/")[0]
    return ")" in host and not any(map(str.isspace, host))


def _packed(intervals: Sequence[KeyInterval]) -> tuple[bytes, bytes]:
    """Return the first start of a pattern, and its intervals in hexadecimal digits."""
    return intervals[0].start, b" ".join(f"{each.start.hex()}-{each.end.hex()}".encode() for each in intervals)


def _unpacked(first: bytes, others: bytes, *, wide: bool) -> list[tuple[bytes, bytes | None]]:
    """Return starts and ends of the intervals of a pattern."""
    if not wide:
        return [(first, None), *((key, None) for key in (others.split(b"\0") if others else ()))]
    pairs = (each.decode().split("-") for each in others.split(b" "))
    return [(bytes.fromhex(start), bytes.fromhex(end)) for start, end in pairs]


def _write_numbered(
    folder: Path, inorder: pa.RecordBatchReader, connection: "duckdb.DuckDBPyConnection", batch: int, *, wide: bool
) -> int:
    """Number the different patterns of sorted rows, and write rows and intervals; return the number of patterns."""
    count, before = 0, None
    with ExitStack() as stack:
        names = [name for name in inorder.schema.names if name not in {_FIRST, _OTHERS}]
        schema = pa.schema([(NUMBER, pa.int64()), *(inorder.schema.field(name) for name in names)])
        inputs = stack.enter_context(BatchWriter(folder / _INPUTS, schema))
        lookups = stack.enter_context(_LookupWriter(folder, connection, batch, wide=wide))
        for some in inorder:
            if not some.num_rows:
                continue
            firsts, others = some.column(_FIRST), some.column(_OTHERS)
            is_new = _changes(firsts, others, before)
            numbered = count - 1 + np.cumsum(is_new)
            before = firsts[-1].as_py(), others[-1].as_py()
            rows = pa.RecordBatch.from_arrays([positions(numbered), *map(some.column, names)], schema=schema)
            inputs.write(rows, (int(numbered[0]), int(numbered[-1])))
            if not is_new.all():
                firsts, others = (each.filter(flags(is_new)) for each in (firsts, others))
            count += len(firsts)
            lookups.write(firsts, others, numbered[is_new])
    return count


def _sorted(parsing: _Parsing, connection: "duckdb.DuckDBPyConnection", rows: int) -> pa.RecordBatchReader:
    """Return the rows sorted by pattern and row; on disk if they are many."""
    waiting, size = [], 0
    batches = parsing.batches()
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > _MOST_SORTED:
            reader = pa.RecordBatchReader.from_batches(parsing.schema, chain(waiting, batches))
            connection.register(_PARSED, reader)
            return connection.execute(f"FROM {_PARSED} ORDER BY {_FIRST}, {ROW}").to_arrow_reader(rows)
    table = pa.Table.from_batches(waiting, parsing.schema).combine_chunks()
    waiting.clear()
    return table.take(pc.sort_indices(table[_FIRST])).to_reader(rows)  # keeps the order of equal ones


class _LookupWriter:
    """Writes the intervals of patterns, sorted."""

    def __init__(self, folder: Path, connection: "duckdb.DuckDBPyConnection", batch: int, *, wide: bool) -> None:
        self._batch = batch
        self._path, self._unsorted = folder / _LOOKUPS, folder / "unsorted.arrow"
        self._connection, self._wide = connection, wide
        self._is_sorted, self._reached = True, b""
        self._writer = BatchWriter(self._unsorted, LOOKUPS)

    def __enter__(self) -> Self:
        return self

    def write(self, firsts: pa.Array, others: pa.Array, of: np.ndarray) -> None:
        """Write the intervals of patterns, given by their first starts, their other intervals, and numbers."""
        if not self._wide and not (pc.max(pc.binary_length(others)).as_py() or 0):
            self._write(
                pa.RecordBatch.from_arrays([firsts, pa.nulls(len(firsts), pa.binary()), positions(of)], schema=LOOKUPS)
            )
            return
        self._is_sorted = False
        found = [
            (start, end, number)
            for first, more, number in zip(firsts.to_pylist(), others.to_pylist(), of.tolist(), strict=True)
            for start, end in _unpacked(first, more, wide=self._wide)
        ]
        starts, ends, numbered = zip(*found, strict=True)
        columns = [binaries(starts), pa.array(ends, pa.binary()), positions(np.array(numbered))]
        for at in range(0, len(found), self._batch):
            self._write(pa.RecordBatch.from_arrays([each[at : at + self._batch] for each in columns], schema=LOOKUPS))

    def _write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        self._reached = max(self._reached, pc.max(batch.column("end")).as_py() or b"")
        self._writer.write(batch, (batch.column("start")[0].as_py().hex(), self._reached.hex()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
        if error is None:
            self._unsorted.with_suffix(".json").rename(self._path.with_suffix(".json"))
            self._unsorted.rename(self._path)
            if not self._is_sorted:
                self._sort()

    def _sort(self) -> None:
        unsorted = BatchFile(self._path)
        self._connection.register(_PARSED, pa.RecordBatchReader.from_batches(LOOKUPS, unsorted.all()))
        sorted_rows = self._connection.execute(f"FROM {_PARSED} ORDER BY start, {NUMBER}").to_arrow_reader(self._batch)
        self._reached = b""
        self._writer = BatchWriter(self._unsorted, LOOKUPS)
        with self._writer:
            for batch in sorted_rows:
                self._write(batch.cast(LOOKUPS))
        unsorted.close()
        self._unsorted.with_suffix(".json").rename(self._path.with_suffix(".json"))
        self._unsorted.rename(self._path)


def _changes(firsts: pa.Array, others: pa.Array, before: tuple[Any, Any] | None) -> np.ndarray:
    """Return whether each pattern differs from the one before it."""
    found = np.ones(len(firsts), np.bool_)
    same = pc.and_(pc.equal(firsts[1:], firsts[:-1]), pc.equal(others[1:], others[:-1]))
    found[1:] = ~booleans(same)
    found[0] = before is None or (firsts[0].as_py(), others[0].as_py()) != before
    return found
