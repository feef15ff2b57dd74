"""What people see: tables that fit, progress, numbers with units."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from catalogue.cli.app import Common
from catalogue.progress import Report, is_terminal, nowhere, on_terminal
from catalogue.wording import plain, printable


def cell(value: object) -> str:
    """A value in a table."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return "-" if value != value else f"{value:,.6g}"  # noqa: PLR0124 - NaN
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S")
        case bytes():
            return value.hex()
        case list() | tuple():
            return ", ".join(cell(item) for item in value)
    return "-" if str(value) in {"NaT", "<NA>"} else str(value)


class Table:
    """A table in the making: as wide as the terminal, or in a pipe as wide as it needs.

    Widths are those of the first rows, so that many rows can be printed as they come.
    """

    def __init__(self, names: Sequence[str], *, first: int = 1000) -> None:
        """Start with the names of the columns; widths are decided when ``first`` rows are there, or all are."""
        self._names = list(names)
        self._first = first
        self._waiting: list[Sequence[Any]] = []
        self._widths: list[int] | None = None
        self._numbers: list[bool] = []
        self._count = 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Print rows, perhaps later."""
        for row in rows:
            self._count += 1
            self._waiting.append(row)
        if self._widths or len(self._waiting) >= self._first:
            self._print()

    def close(self) -> int:
        """Print what is left; returns how many rows there were."""
        self._print()
        return self._count

    def _print(self) -> None:
        rows, self._waiting = self._waiting, []
        shown = [[printable(cell(value)) for value in row] for row in rows]
        if self._widths is None:
            columns = range(len(self._names))
            self._numbers = [bool(rows) and all(isinstance(r[at], int | float | None) for r in rows) for at in columns]
            widths = [max([len(self._names[at]), *(len(row[at]) for row in shown)]) for at in columns]
            room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            self._widths = _fitted(widths, room) if room else widths
            self._line(self._names)
            self._line(["-" * width for width in self._widths])
        for row in shown:
            self._line(row)

    def _line(self, cells: Sequence[str]) -> None:
        # In a pipe nothing is cut: a later row may stand out, but says all it has to say.
        cut = _cut if sys.stdout.isatty() else lambda text, _: text
        padded = [
            cut(text, width).rjust(width) if number else cut(text, width).ljust(width)
            for text, width, number in zip(cells, self._widths or [], self._numbers, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table."""
    printer = Table(names)
    printer.add(rows)
    printer.close()


def _fitted(widths: list[int], room: int) -> list[int]:
    """Take from the widest columns until the row fits."""
    widths = list(widths)
    while sum(widths) + 2 * (len(widths) - 1) > room and max(widths) > 8:  # noqa: PLR2004 - narrower says nothing
        widths[widths.index(max(widths))] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def as_json(value: object) -> None:
    """Print one value as a line of JSON."""
    click.echo(json.dumps(plain(value), ensure_ascii=False))


def confirmed(question: str) -> bool:
    """Ask the person at the terminal; nobody there means no."""
    return sys.stdin.isatty() and sys.stderr.isatty() and click.confirm(question, err=True)


@contextmanager
def harvest_bar(options: Common, what: str = "files") -> Iterator[Report]:
    """A progress bar a crawl, on a terminal; elsewhere nothing."""
    with nowhere(what) if options.quiet or not is_terminal() else on_terminal(what) as bar:
        yield bar
