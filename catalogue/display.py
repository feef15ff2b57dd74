"""How values show themselves: on one line, as text on a terminal, and as HTML in a notebook."""

from collections.abc import Iterable
from html import escape
from itertools import islice
from typing import ClassVar

from catalogue.formatting import printable

_MOST_NOTES, _LONGEST = 10, 500
"""That are shown, and characters of one thing."""
_LEFT = 'style="text-align: left"'
"""Notebooks put what is in tables to the right. There are no colours, since nobody knows on which ground it is."""


class Displayed:
    """What says of itself what it is, without asking or reading anything for that."""

    __slots__ = ()
    _most_rows: ClassVar[int] = 20
    """That are shown."""

    def _line(self) -> str:
        """What it is, on one line."""
        raise NotImplementedError

    def _rows(self) -> Iterable[tuple[str, str]]:
        """More of it, by name."""
        return ()

    def _notes(self) -> Iterable[str]:
        """What should be known besides."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_first(self)}>"

    def __str__(self) -> str:
        rows, notes = _rest(self)
        width = max((len(name) for name, _ in rows), default=0)
        head = f"{type(self).__name__} {_first(self)}"
        return "\n".join([head, *(f"  {name:{width}}  {text}" for name, text in rows), *notes])

    def _repr_html_(self) -> str:
        rows, notes = _rest(self)
        cells = (
            f'<tr><th scope="row" {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(text)}</td></tr>'
            for name, text in rows
        )
        table = f"<table><tbody>{''.join(cells)}</tbody></table>" if rows else ""
        head = f"<p><b>{escape(type(self).__name__)}</b> {escape(_first(self))}</p>"
        return f"<div>{head}{table}{''.join(f'<p>{escape(note)}</p>' for note in notes)}</div>"


def some(texts: Iterable[str], count: int, *, most: int = 3) -> str:
    """The first few of some texts, and how many there are besides.

    Args:
        texts: such as patterns.
        count: how many there are.
        most: of them that are named.
    """
    named = ", ".join(islice(texts, most))
    return f"{named} and {count - most:,} more" if count > most else named


def _first(value: Displayed) -> str:
    try:
        return _short(value._line())  # noqa: SLF001 - this module is the other half of that class
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, who looks at it is to be told that much
        return f"that cannot be shown: {_short(str(error))}"


def _rest(value: Displayed) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        rows = [(_short(name), _short(text)) for name, text in islice(value._rows(), value._most_rows)]  # noqa: SLF001
        notes = [_short(note) for note in value._notes()]  # noqa: SLF001 - likewise
    except Exception as error:  # noqa: BLE001 - likewise
        return [], [_short(str(error))]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"and {len(notes) - _MOST_NOTES:,} more"]
    return rows, notes


def _short(text: str) -> str:
    """A text that fits, and does nothing but to be read."""
    text = printable(text[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
