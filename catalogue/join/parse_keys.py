"""Parse the rows of an input."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.errors import QueryError
from catalogue.formatting import printable
from catalogue.join.inputs import OpenInput, texts_of
from catalogue.join.keys import PREFIX, ROW
from catalogue.parquet.arrow_arrays import binaries, flags, positions
from catalogue.surt import KeyInterval, Match, exact_keys, parse_pattern, prefix_interval

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
