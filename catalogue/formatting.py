"""Numbers, sizes, durations and names for people, values as JSON, and representations of objects."""

import difflib
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Any, ClassVar, Protocol
from unicodedata import category

from catalogue.errors import QueryError

_MAX_NAME = 100
"""Characters of a misspelled name that are compared."""
_MIN_SUBSTRING = 3
_MAX_NOTES, _MAX_TEXT = 10, 500
_NOT_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LEFT = 'style="text-align: left"'
"""Notebooks align tables to the right. The background can be dark or light, so there are no colours."""


def number(count: int) -> str:
    return f"{count:,}"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1,000 files`` or ``2 lists of blocks``."""
    first, of, rest = noun.partition(" of ")
    return f"{count:,} {first}{'' if count == 1 else 'es' if first.endswith('x') else 's'}{of}{rest}"


def without_key_range(row_groups: int) -> str:
    """Return a sentence about row groups without bounds, for readers who do not know these words."""
    verb, them = ("has", "it") if row_groups == 1 else ("have", "them")
    return f"{plural(row_groups, 'part')} of old files {verb} no key range, so every query reads {them}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def parse_size(text: str) -> int:
    """Return the bytes of a text such as ``2GB``, ``500 MB`` or ``1000``."""
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if not matched:
        raise QueryError(f"invalid size {text!r}; use 500MB or 2GB")
    return int(float(matched[1]) * 1000 ** ["", "K", "M", "G", "T"].index(matched[2]))


def duration(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:,.0f} h"  # noqa: PLR2004


class Priced(Protocol):
    """What has a cost, which may be an estimate."""

    @property
    def requests(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def seconds(self) -> float:
        """Return the duration, with waits for the rate limit."""
        ...


def format_cost(cost: Priced) -> str:
    return f"{plural(cost.requests, 'request')}, {size(cost.bytes)}, about {cost.seconds:.0f} s"


def clock(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return in_utc(time).replace(tzinfo=None).isoformat(" ", "seconds")


def in_utc(time: datetime) -> datetime:
    """Convert a time to UTC. A time without a zone is UTC already.

    Raises:
        ValueError: if the result is before the year 1 or after 9999.
    """
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def join_first(texts: Sequence[str], most: int = 3) -> str:
    named = ", ".join(texts[:most])
    return f"{named} and {len(texts) - most:,} more" if len(texts) > most else named


def printable(text: str) -> str:
    """Replace line ends and control characters, which could change a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printable_lines(text: str) -> str:
    """Do as ``printable``, but keep line ends, tabs, and the spaces and joiners of all scripts."""
    lines = text.replace("\r\n", "\n")
    kept = {c for c in {*lines} if c.isprintable() or c in "\n\t\u200c\u200d" or category(c) == "Zs"}
    return "".join(c if c in kept else "\N{REPLACEMENT CHARACTER}" for c in lines)


def first_paragraph(reason: object) -> str:
    """Return DuckDB's message on one line, without the statement or the traceback of a stream at its end."""
    message = str(reason).partition(". Detail: Python exception: ")[0]
    lines = itertools.takewhile(lambda line: line.strip() and not line.startswith("LINE "), message.splitlines())
    return " ".join(line.strip() for line in lines)


def closest_name(word: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to a misspelled one, ignoring case, if any is."""
    typed = word[:_MAX_NAME].casefold()
    by_folded = {name.casefold(): name for name in names}
    similar = difflib.get_close_matches(typed, by_folded, 1)
    if len(typed) >= _MIN_SUBSTRING:
        similar += [name for name in by_folded if typed in name]
    return by_folded[similar[0]] if similar else None


def not_among(what: str, given: object, valid: Iterable[str]) -> str:
    """Return the message that a value is none of the valid ones, with the most similar one, or all of them."""
    valid = [*dict.fromkeys(valid)]
    similar = closest_name(given, valid) if isinstance(given, str) else None
    several = " or ".join(filter(None, [", ".join(valid[:-1]), *valid[-1:]])) or "none"
    return f"{what} {given!r:.100}; {f'did you mean {similar}?' if similar else f'use {several}'}"


def without_secrets(url: str) -> str:
    """Remove query, fragment, user name and password from a URL."""
    return re.sub(r"[?#].*|(?:(?<=//)|^)[^/]*@", "", url, flags=re.DOTALL)


def to_json(value: Any) -> Any:  # noqa: ANN401 - any value of Arrow, DuckDB or numpy
    """Convert a value to what ``json.dumps`` takes.

    Times become ISO 8601 in UTC; bytes become hexadecimal digits; NaN and infinity become null. Decimals become
    numbers, or texts if a number would lose digits.
    """
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(name): to_json(inside) for name, inside in value.items()}
        case list() | tuple():
            return [to_json(inside) for inside in value]
        case Decimal():
            if value == value.to_integral_value():
                return int(value)
            return number if Decimal(repr(number := float(value))) == value else str(value)
        case datetime():
            time = in_utc(value)
            unit = "microseconds" if time.microsecond % 1000 else "milliseconds" if time.microsecond else "seconds"
            return time.isoformat(timespec=unit).replace("+00:00", "Z")
        case bytes():
            return value.hex()
    return to_json(value.item()) if hasattr(value, "item") else str(value)  # a number of numpy, or any other object


def json_text(value: object) -> str:
    """Return JSON on one line, without characters that change terminals, or that some readers take for line ends."""
    line = json.dumps(value, ensure_ascii=False)
    return line if line.isprintable() else _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def json_line(value: object) -> bytes:
    """Return ``json_text`` in UTF-8 with a line end; unpaired surrogates become question marks."""
    return json_text(value).encode(errors="replace") + b"\n"


class ReprMixin:
    """Represents an object as one line, as text, and as HTML for notebooks, without requests."""

    __slots__ = ()
    _max_rows: ClassVar[int] = 20

    def _line(self) -> str:
        raise NotImplementedError

    def _rows(self) -> Iterable[tuple[str, str]]:
        return ()

    def _notes(self) -> Iterable[str]:
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._short_line()}>"

    def __str__(self) -> str:
        rows, notes = self._details()
        width = max((len(name) for name, _ in rows), default=0)
        head = f"{type(self).__name__} {self._short_line()}"
        return "\n".join([head, *(f"  {name:{width}}  {text}" for name, text in rows), *notes])

    def _repr_html_(self) -> str:
        rows, notes = self._details()
        cells = (
            f'<tr><th scope="row" {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(text)}</td></tr>'
            for name, text in rows
        )
        table = f"<table><tbody>{''.join(cells)}</tbody></table>" if rows else ""
        head = f"<p><b>{escape(type(self).__name__)}</b> {escape(self._short_line())}</p>"
        return f"<div>{head}{table}{''.join(f'<p>{escape(note)}</p>' for note in notes)}</div>"

    def _short_line(self) -> str:
        try:
            return _short(self._line())
        except Exception as error:  # noqa: BLE001 - repr() must not raise
            return f"that cannot be shown: {_short(str(error))}"

    def _details(self) -> tuple[list[tuple[str, str]], list[str]]:
        try:
            rows = [(_short(name), _short(text)) for name, text in itertools.islice(self._rows(), self._max_rows)]
            notes = [_short(note) for note in self._notes()]
        except Exception as error:  # noqa: BLE001 - repr() must not raise
            return [], [_short(str(error))]
        if len(notes) > _MAX_NOTES:
            notes[_MAX_NOTES:] = [f"and {len(notes) - _MAX_NOTES:,} more"]
        return rows, notes


def _short(text: str) -> str:
    text = printable(text[: _MAX_TEXT + 1])
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
