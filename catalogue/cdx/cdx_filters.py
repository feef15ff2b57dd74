"""Filters of the CDX API. Regular expressions are RE2's, which take time in proportion to the text."""

import enum
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.lines import FIELDS, RAW
from catalogue.errors import QueryError

_ALIASES = {"u": "url", "original": "url", "statuscode": "status", "mimetype": "mime", "m": "mime"}
_ALIASES |= {"s": "length", "l": "length", "o": "offset", "d": "digest", "t": "timestamp", "k": "urlkey"}
_ALIASES |= {"f": "filename", "charset": "encoding"}
"""Other names of fields in filters, as pywb has them: ``s`` is not the status."""
_LONGEST = 2000
"""Characters of a filter."""
_PUSHED = {"mime": "content_mime_type", "mime-detected": "content_mime_detected", "digest": "content_digest"}
"""Fields that are columns of text."""


class How(enum.Enum):
    """How a filter compares; its value stands before the field."""

    CONTAINS = ""
    EQUALS = "="
    MATCHES = "~"
    """As a regular expression, from the value's beginning on."""


@dataclass(frozen=True, slots=True)
class Filter:
    """``[!][=|~]field:value``."""

    how: How
    field: str
    """Empty for the whole line."""
    value: str
    inverted: bool = False

    def mask(self, table: pa.RecordBatch) -> pa.Array:
        """Which captures, of a table of CDX fields, it keeps. What a capture does not have is an empty text."""
        if self.field and self.field not in FIELDS:
            values = pa.array([""] * table.num_rows, pa.string())
        else:
            values = table.column(self.field or RAW).fill_null("")
        match self.how:
            case How.CONTAINS:
                kept = pc.match_substring(values, self.value)
            case How.EQUALS:
                kept = pc.equal(values, self.value)
            case How.MATCHES:
                kept = pc.match_substring_regex(values, _anchored(self.value))
        return pc.invert(kept) if self.inverted else kept

    @property
    def sql(self) -> str | None:
        """A condition on the columns of the index that all it keeps fulfil and that statistics may refute."""
        if self.inverted or self.how is not How.EQUALS:
            return None
        if self.field == "status" and re.fullmatch("[1-9][0-9]{2}", self.value, re.ASCII):
            return f"fetch_status = {self.value}"
        if self.field in _PUSHED and re.fullmatch(r"[\w.+/-]+", self.value, re.ASCII):
            return f"{_PUSHED[self.field]} = '{self.value}'"
        return None


def parse_filter(text: str) -> Filter:
    """A filter as it is typed.

    Raises:
        QueryError: if it is a regular expression that is none, or too long.
    """
    if len(text) > _LONGEST:
        message = f"Invalid value for filter= param: it has more than {_LONGEST:,} characters"
        raise QueryError(message)
    rest = text.removeprefix("!")
    how = How(rest[0]) if rest[:1] in {"=", "~"} else How.CONTAINS
    field, colon, value = rest.removeprefix(how.value).partition(":")
    if not colon:
        field, value = "", field
    found = Filter(how, _ALIASES.get(field, field), value, inverted=rest != text)
    if how is How.MATCHES:
        for pattern in (value, _anchored(value)):  # the first, for parentheses could close what is around it
            try:
                pc.match_substring_regex(pa.array([""]), pattern)
            except pa.ArrowInvalid as error:
                reason = str(error).rpartition(": ")[2]
                message = f"Invalid value for filter= param: {text[:200]} ({reason}; expressions are RE2's)"
                raise QueryError(message) from error
    return found


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})"
