"""Parse and sort the keys of an input."""

import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.errors import QueryError
from catalogue.formatting import plural, printable
from catalogue.join.inputs import OpenInput, texts_of
from catalogue.join.keys import INPUTS_FILE, LOOKUPS, LOOKUPS_FILE, NUMBER, PREFIX, ROW, batch_writer, same_as_keys
from catalogue.join.slices import Sizes
from catalogue.parquet.arrow_arrays import (
    array_of,
    binaries,
    booleans,
    flags,
    integers,
    joined,
    positions,
    sorted_pieces,
)
from catalogue.query.list_header import is_skipped
from catalogue.read.key_order import WaitingRows
from catalogue.surt.interval import END, KeyInterval, prefix_interval
from catalogue.surt.pattern import Match, exact_keys, parse_pattern

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

    def _parsed(self, texts: pa.StringArray, given: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
        if self._match is Match.EXACT:
            is_plain = texts.null_count == 0 and pc.all(pc.match_substring_regex(texts, _IS_KEY), min_count=0).as_py()
            if is_plain and pc.all(pc.equal(texts, pc.utf8_trim_whitespace(texts)), min_count=0).as_py():
                return texts.cast(pa.binary()), pa.repeat(binaries([b""])[0], len(texts)), None
        self.keys_column = None
        firsts, others, left_out = [], [], []
        for at, text in enumerate(texts.to_pylist()):
            first = more = b""
            try:
                if self._given.unit == "line" and text is not None and is_skipped(text.lstrip()):
                    self.skipped += 1
                    left_out.append(at)
                else:
                    first, more = self._pattern(text)
            except QueryError as error:
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
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(_SHOWN).strip().endswith(",".join(_HEADER).encode())


_Write: TypeAlias = Callable[[pa.RecordBatch], None]
_PLACE = "place"


def _places(values: pa.BinaryArray, numbers: pa.Int64Array) -> pa.BinaryArray:
    """Return a key in the order of values and numbers: rows of one value, which can be most, are merged in parts."""
    big_endian = pa.py_buffer(integers(numbers).astype(">i8").tobytes())
    ends = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, big_endian]).cast(pa.binary())
    return pc.binary_join_element_wise(pc.replace_substring(values, b"\0", b"\0\xff"), ends, b"\0\0")


class _Sorter:
    """Sorts rows by a binary column, and those with equal values by a number; many rows wait in a file."""

    def __init__(
        self,
        schema: pa.Schema,
        by: tuple[str, str],
        folder: Path,
        sizes: Sizes,
        same: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Take the columns to sort ``by``; ``same`` returns a column that so far has the same values as the first."""
        self._schema, self._by, self._folder, self._sizes, self._same = schema, by, folder, sizes, same
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._stack = ExitStack()
        self._merged: WaitingRows | None = None

    def close(self) -> None:
        self._stack.close()

    @property
    def is_large(self) -> bool:
        return self._merged is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, whose numbers follow those of earlier ones."""
        self._waiting.append(batch)
        self._size += batch.nbytes
        if self._size > self._sizes.sorted:
            if self._merged is None:
                schema, most = self._schema.append(pa.field(_PLACE, pa.binary())), self._sizes.sorted // 2
                self._merged = WaitingRows(schema, _PLACE, [], self._stack, most, self._folder)
            self._merge(self._merged)

    def _merge(self, merged: WaitingRows) -> None:
        for piece in self._inorder():
            place = _places(*(piece.column(name) for name in self._by))
            rows = pa.Table.from_batches([piece]).append_column(_PLACE, place)
            deque(merged.below(b"", rows), 0)  # no row has a lower key, but rows may be written to disk
        self._size = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._merged is None:
            yield from self._inorder()
            return
        self._merge(self._merged)
        for rows in self._merged.below(END):
            yield from rows.drop_columns([_PLACE]).combine_chunks().to_batches(self._sizes.batch)

    def _inorder(self) -> Iterator[pa.RecordBatch]:
        """Remove and yield the rows in memory; where another column has only keys, it is made of them."""
        names, key, same = self._schema.names, self._by[0], self._same()
        every = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting = []
        keys = joined(every[key])
        others = {name: joined(every[name]) for name in names if name not in {key, same}}
        del every
        for places, some in sorted_pieces(keys, self._sizes.batch) if len(keys) else ():
            columns = {name: column.take(places) for name, column in others.items()} | {key: some}
            if same is not None:
                columns[same] = some.view(pa.string())
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], schema=self._schema)


def sort_keys(
    folder: Path, given: OpenInput, match: Match, invalid: Path, report: Callable[[int], None], sizes: Sizes
) -> dict[str, Any]:
    """Sort the patterns of an input into files of a folder, which needs about three times the room of the input.

    Rows without a valid pattern are written to the CSV file ``invalid``: number, text, reason. ``report`` is called
    with the number of rows so far. The result counts rows, different patterns and invalid rows; ``column`` is that of
    the patterns in a result.

    Raises:
        QueryError: if no row has a valid pattern, or the input cannot be read.
    """
    with closing(ParsedInput(given, match, invalid, report)) as parsing:
        with closing(_Sorter(parsing.schema, (FIRST, ROW), folder, sizes, lambda: parsing.keys_column)) as rows:
            for batch in parsing.batches():
                rows.add(batch)
            patterns = _write_numbered(folder, rows, sizes, parsing, wide=match is not Match.EXACT)
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


def _write_numbered(folder: Path, rows: _Sorter, sizes: Sizes, parsing: ParsedInput, *, wide: bool) -> int:
    count, before, keys_column, single = 0, None, parsing.keys_column, not parsing.has_others
    with ExitStack() as stack:
        fields = [field for field in parsing.schema if field.name not in {FIRST, OTHERS}]
        fields = [same_as_keys(field.name) if field.name == keys_column else field for field in fields]
        schema = pa.schema([pa.field(NUMBER, pa.int64()), *fields])
        write_inputs = stack.enter_context(batch_writer(folder / INPUTS_FILE, schema, compress=rows.is_large))
        lookups = stack.enter_context(_lookup_writer(folder, sizes, ordered=single, compress=rows.is_large))
        for some in rows.batches():
            firsts, others = some.column(FIRST), some.column(OTHERS)
            is_new = _changes(firsts, others, before)
            numbered = count - 1 + np.cumsum(is_new)
            before = firsts[-1].as_py(), others[-1].as_py()
            columns = [pa.nulls(len(some)) if each.name == keys_column else some.column(each.name) for each in fields]
            inputs = pa.RecordBatch.from_arrays([positions(numbered), *columns], schema=schema)
            write_inputs(inputs, (int(numbered[0]), int(numbered[-1])))
            if not is_new.all():
                firsts, others = (each.filter(flags(is_new)) for each in (firsts, others))
            count += len(firsts)
            if len(firsts):
                lookups(_lookups(firsts, others, numbered[is_new], single=single, wide=wide))
    return count


@contextmanager
def _lookup_writer(folder: Path, sizes: Sizes, *, ordered: bool, compress: bool) -> Iterator[_Write]:
    reached = b""

    def write(batch: pa.RecordBatch) -> None:
        nonlocal reached
        reached = max(reached, pc.max(batch.column("end")).as_py() or b"")
        write_batch(batch, (batch.column("start")[0].as_py().hex(), reached.hex()))

    with batch_writer(folder / LOOKUPS_FILE, LOOKUPS, compress=compress) as write_batch:
        if ordered:
            yield write
            return
        with closing(_Sorter(LOOKUPS, ("start", NUMBER), folder, sizes)) as unsorted:
            yield unsorted.add
            for batch in unsorted.batches():
                write(batch)


def _lookups(firsts: pa.Array, others: pa.Array, of: np.ndarray, *, single: bool, wide: bool) -> pa.RecordBatch:
    if single:
        columns = [firsts, pa.nulls(len(firsts), pa.binary()), positions(of)]
        return pa.RecordBatch.from_arrays(columns, schema=LOOKUPS)
    found = [
        (start, end, number)
        for first, more, number in zip(firsts.to_pylist(), others.to_pylist(), of.tolist(), strict=True)
        for start, end in unpacked(first, more, wide=wide)
    ]
    starts, ends, numbered = zip(*found, strict=True)
    columns = [binaries(starts), array_of(pa.binary(), ends), positions(np.array(numbered))]
    return pa.RecordBatch.from_arrays(columns, schema=LOOKUPS)


def _changes(firsts: pa.Array, others: pa.Array, before: tuple[Any, Any] | None) -> np.ndarray:
    found = np.ones(len(firsts), np.bool_)
    same = pc.and_(pc.equal(firsts[1:], firsts[:-1]), pc.equal(others[1:], others[:-1]))
    found[1:] = ~booleans(same)
    found[0] = before is None or (firsts[0].as_py(), others[0].as_py()) != before
    return found
