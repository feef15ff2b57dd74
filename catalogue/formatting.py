"""Numbers, sizes, times and addresses as people may read them, and values as JSON has them; all say them alike."""

import difflib
import heapq
import itertools
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from catalogue.errors import QueryError

_TELLING = 3
"""Letters of a name that tell which it is part of."""
_COMPARED = 200
"""Names that are compared letter by letter, which takes up to a millisecond each."""


def number(count: int) -> str:
    """With commas."""
    return f"{count:,}"


def comma_separated(texts: str | Iterable[str]) -> list[str]:
    """Split a text, or each of several, at its commas."""
    return [word.strip() for text in ([texts] if isinstance(texts, str) else texts) for word in text.split(",")]


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith("x") else "s")


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """A time that something takes."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:,.0f} h"  # noqa: PLR2004


def printable(text: str) -> str:
    """On one line, and without what would move a terminal's cursor: values come from strangers' pages."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printable_lines(text: str) -> str:
    """Likewise, on the lines that it has."""
    return "\n".join(map(printable, text.split("\n")))


def in_short(reason: object) -> str:
    """What DuckDB says is wrong, without the picture of where: up to its first empty line, on one."""
    lines = itertools.takewhile(lambda line: line.strip() and not line.startswith("LINE "), str(reason).splitlines())
    return " ".join(line.strip() for line in lines)


def closest_name(word: str, there_are: Iterable[str]) -> str | None:
    """The name that somebody meant who typed another one; None if none is like it. Case does not matter."""
    names = {name.casefold(): name for name in there_are}
    typed = word.casefold()
    near = names if len(names) <= _COMPARED else heapq.nlargest(_COMPARED, names, key=lambda name: _alike(typed, name))
    like = difflib.get_close_matches(typed, near, 1)
    if len(typed) >= _TELLING:
        like += [name for name in names if typed in name]
    return names[like[0]] if like else None


def _alike(one: str, other: str) -> int:
    """Letters that two words begin with alike, and end with: quickly counted, as nobody mistypes both ends."""
    least = min(len(one), len(other))
    return sum(
        next((at for at, (a, b) in enumerate(zip(*ends, strict=False)) if a != b), least)
        for ends in ((one, other), (reversed(one), reversed(other)))
    )


def open_part(address: str) -> str:
    """An address without what might be secret: query, fragment, user's name and password."""
    return re.sub(r"[?#].*|(?:(?<=//)|^)[^/]*@", "", address, flags=re.DOTALL)


def clock(time: datetime) -> str:
    """A time to the second, in its own zone."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def in_utc(time: datetime) -> datetime:
    """A time in UTC; one that names no zone is taken for that.

    Raises:
        ValueError: if it would lie before the year 1 there, or behind 9999.
    """
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever Arrow, DuckDB and numpy hold
    """A value as JSON has it.

    Times are ISO 8601 in UTC, with milliseconds if they have such, and UTC if they name no zone; bytes are hexadecimal;
    what is no finite number is null.
    """
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(name): plain(inside) for name, inside in value.items()}
        case list() | tuple():
            return [plain(inside) for inside in value]
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            time = in_utc(value)
            return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds").replace("+00:00", "Z")
        case bytes():
            return value.hex()
    return plain(value.item()) if hasattr(value, "item") else str(value)  # numpy's numbers, and the rest


def parse_size(text: str) -> int:
    """The reverse of ``size``: ``2GB``, ``500 MB``, ``1000``.

    Raises:
        QueryError: if it is none.
    """
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", text.strip())
    if not matched:
        message = f"{text!r} is no size; write it as 500MB or 2GB"
        raise QueryError(message)
    return int(float(matched[1]) * 1000 ** ["", "k", "M", "G", "T"].index(matched[2]))
