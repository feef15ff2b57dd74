"""Filters of the CDX API, applied to lines."""

import enum
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.lines import UNKNOWN_TYPE, fields_of
from catalogue.errors import QueryError, TooExpensive
from catalogue.parquet.arrow_arrays import texts

_ALIASES = {
    "u": "url",
    "original": "url",
    "statuscode": "status",
    "mimetype": "mime",
    "m": "mime",
    "s": "length",
    "l": "length",
    "o": "offset",
    "d": "digest",
    "t": "timestamp",
    "k": "urlkey",
    "f": "filename",
    "charset": "encoding",
}
"""Other names of fields in filters, as in pywb; ``s`` is not the status."""
_TEXT_COLUMNS = {"mime": "content_mime_type", "mime-detected": "content_mime_detected", "digest": "content_digest"}
_MAX_LENGTH = 2000
_EXPRESSION_SECONDS = 10.0
"""Limit for a request's regular expressions. RE2 needs 20 ms a row for some of 2,000 characters: hours for a part."""
_MAX_SLICE, _QUICK = 256, 0.05
"""Lines filtered between two readings of the clock; if these take fewer seconds, the next slice is twice as large."""


class Operator(enum.Enum):
    """How a filter compares; the value is its prefix."""

    CONTAINS = ""
    EQUALS = "="
    MATCHES = "~"
    """An RE2 expression, anchored at the start; its time is proportional to the text."""


@dataclass(frozen=True, slots=True)
class Filter:
    """``[!][=|~]field:value``."""

    operator: Operator
    field: str
    """Empty for the complete line."""
    value: str
    inverted: bool = False

    def mask(self, values: Sequence[str]) -> list[bool]:
        """Return which values of the field, or lines, are selected; a missing field is an empty text."""
        match self.operator:
            case Operator.CONTAINS:
                selected = [self.value in value for value in values]
            case Operator.EQUALS:
                selected = [self.value == value for value in values]
            case Operator.MATCHES:
                selected = pc.match_substring_regex(texts(values), _anchored(self.value)).to_pylist()
        return [not each for each in selected] if self.inverted else selected

    @property
    def sql(self) -> str | None:
        """Return a condition on index columns for pruning by statistics; all selected rows meet it."""
        if self.inverted or self.operator is not Operator.EQUALS:
            return None
        if self.field == "status" and re.fullmatch("[1-9][0-9]{2}", self.value, re.ASCII):
            return f"fetch_status = {self.value}"
        if (self.field, self.value) == ("mime", UNKNOWN_TYPE):
            return f"{_TEXT_COLUMNS[self.field]} IS NULL"
        if self.field in _TEXT_COLUMNS and re.fullmatch(r"[\w.+/-]+", self.value, re.ASCII):
            return f"{_TEXT_COLUMNS[self.field]} = '{self.value}'"
        return None


def parse_filter(text: str) -> Filter:
    """Parse a filter.

    Raises:
        QueryError: if it is too long, or not an expression of RE2.
    """
    if len(text) > _MAX_LENGTH:
        raise QueryError(f"Invalid value for filter= param: it has more than {_MAX_LENGTH:,} characters")
    rest = text.removeprefix("!")
    operator = Operator(rest[0]) if rest[:1] in {"=", "~"} else Operator.CONTAINS
    field, colon, value = rest.removeprefix(operator.value).partition(":")
    if not colon:
        field, value = "", field
    found = Filter(operator, _ALIASES.get(field, field), value, inverted=rest != text)
    if operator is Operator.MATCHES:
        for pattern in (value, _anchored(value)):  # the value alone too: its parentheses could close the group
            try:
                pc.match_substring_regex(texts([""]), pattern)
            except pa.ArrowInvalid as error:
                reason = str(error).rpartition(": ")[2]
                message = f"Invalid value for filter= param: {text[:200]} ({reason}; expressions are RE2's)"
                raise QueryError(message) from error
    return found


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})"


def _select(lines: Sequence[str], filters: Sequence[Filter]) -> Sequence[str]:
    fields = [fields_of(line) for line in lines] if any(each.field for each in filters) else []
    for each in filters:
        mask = each.mask([values.get(each.field, "") for values in fields] if each.field else lines)
        lines, fields = list(compress(lines, mask)), list(compress(fields, mask))
    return lines


def apply_filters(
    batches: Iterable[Sequence[str]], filters: Sequence[Filter], *, clock: Callable[[], float] = time.thread_time
) -> Iterator[Sequence[str]]:
    """Yield the lines that all filters select; ``clock`` returns CPU seconds.

    Raises:
        TooExpensive: if regular expressions take more than ``_EXPRESSION_SECONDS`` in all.
    """
    timed = any(each.operator is Operator.MATCHES for each in filters)
    left, size = _EXPRESSION_SECONDS, 1
    for lines in batches:
        at = 0
        while at < len(lines):
            began = clock()
            selected = lines[at : at + size] if timed else lines
            at += len(selected)
            selected = _select(selected, filters)
            took = clock() - began
            left -= took
            if timed and left < 0:
                message = f"the expressions in filter= take more than {_EXPRESSION_SECONDS:.0f} s; use simpler ones"
                raise TooExpensive(message)
            size = min(2 * size, _MAX_SLICE) if took < _QUICK else max(1, size // 2)
            yield selected
