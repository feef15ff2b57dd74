"""What people see: tables that fit, progress, numbers with units."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import click

from catalogue.cli.app import Common, resumable, show, wrapped
from catalogue.formatting import join_first, plural, printable, to_json
from catalogue.progress import Report, is_terminal, no_bar, terminal_bar

_NARROWEST, _NARROWEST_NAME, _ROOMY = 20, 8, 40
"""Characters to which texts and names of columns may be cut; long texts are cut to the last before names are."""
_GAP = 2
_FIRST = 1000
"""Rows that are read before the first is printed on a terminal."""


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


@dataclass(frozen=True, slots=True)
class _Column:
    """What a column needs, in characters."""

    name: int
    whole: int
    """Its widest value that may not be cut: a number or a time of which a part is missing is another one."""
    text: int
    """Its widest value that may be."""
    narrowest: int
    """To which it may be."""

    def width(self, name: int, text: int) -> int:
        """How wide it is if its name and its texts are cut to so many."""
        return max(min(self.name, name), self.whole, min(self.text, text))


class Table:
    """A table in the making: as wide as the terminal, or in a pipe as wide as it needs.

    Widths are those of the first rows, so that many rows can be printed as they come.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        narrowest: Mapping[str, int] | None = None,
        expendable: Sequence[str] = (),
        first: int = _FIRST,
        text_of: Callable[[object], str] = cell,
    ) -> None:
        """Start with the names of the columns.

        Args:
            names: of the columns.
            narrowest: characters to which the texts of a column may be cut, where those are not the usual number.
            expendable: columns that are left out before others, in this order; after them it is the last that goes.
            first: rows by which widths are decided, if there are as many.
            text_of: a value as it is printed.
        """
        self.names = list(names)
        self._narrowest = narrowest or {}
        self._expendable = expendable
        self._first = first
        self._text_of = text_of
        self._waiting: list[Sequence[Any]] = []
        self._widths: dict[int, int] | None = None
        """Of the columns that are shown."""
        self._numbers: set[int] = set()
        self._terminal = sys.stdout.isatty()
        self._count = 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Print rows, perhaps later."""
        for row in rows:
            self._count += 1
            self._waiting.append(row)
        if self._widths is not None or len(self._waiting) >= self._first:
            self._print()

    def close(self) -> int:
        """Print what is left, and say what was left out; returns how many rows there were."""
        self._print()
        if more := [printable(name) for at, name in enumerate(self.names) if at not in (self._widths or {})]:
            show(f"{plural(len(more), 'column')} more ({join_first(more)}): {_how_to_see()}")
        return self._count

    def _print(self) -> None:
        rows, self._waiting = self._waiting, []
        if self._widths is None:
            at_all = range(len(self.names))
            self._numbers = {at for at in at_all if rows and all(isinstance(r[at], int | float | None) for r in rows)}
            columns = {at: self._column(at, rows) for at in at_all}
            room = shutil.get_terminal_size().columns if self._terminal else sys.maxsize
            last = [at for name in self._expendable for at in at_all if self.names[at] == name]
            self._widths = _fitted(columns, room, [*last, *(at for at in reversed(at_all) if at not in last)])
            self._line(self.names)
            self._line(["-" * self._widths.get(at, 0) for at in at_all])
        for row in rows:
            self._line(row)

    def _column(self, at: int, rows: Sequence[Sequence[Any]]) -> _Column:
        whole, text = (
            max((len(self._shown(row[at])) for row in rows if _may_be_cut(row[at]) is cut), default=0)
            for cut in (False, True)
        )
        name = self.names[at]
        return _Column(len(printable(name)), whole, text, self._narrowest.get(name, _NARROWEST))

    def _shown(self, value: object) -> str:
        return printable(self._text_of(value))

    def _line(self, row: Sequence[Any]) -> None:
        padded = []
        for at, width in (self._widths or {}).items():
            text = self._shown(row[at])
            # In a pipe nothing is cut: a later row may stand out, but says all it has to say.
            if self._terminal and len(text) > width and _may_be_cut(row[at]):
                text = f"{text[: width - 1]}…"
            padded.append(text.rjust(width) if at in self._numbers else text.ljust(width))
        click.echo("  ".join(padded).rstrip())


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], **fitting: Any) -> None:  # noqa: ANN401 - see Table
    """Print a table; how it is made to fit is said as to ``Table``."""
    printer = Table(names, **fitting)
    printer.add(rows)
    printer.close()


def _may_be_cut(value: object) -> bool:
    return not isinstance(value, int | float | Decimal | date | time | timedelta | None)


def _fitted(columns: dict[int, _Column], room: int, expendable: Sequence[int]) -> dict[int, int]:
    """How wide columns are in a row that fits; as many as it takes are left out, and one at least is not.

    Long texts are cut first, then the names of columns, and only then is cut what makes texts hard to read.
    """
    columns = dict(columns)
    for at in expendable:
        if len(columns) == 1 or _room({at: c.width(_NARROWEST_NAME, c.narrowest) for at, c in columns.items()}) <= room:
            break
        del columns[at]
    widths = {at: column.width(room, room) for at, column in columns.items()}
    for name, text in ((room, _ROOMY), (_NARROWEST_NAME, _ROOMY), (_NARROWEST_NAME, 0)):
        least = {at: column.width(name, max(text, column.narrowest)) for at, column in columns.items()}
        while _room(widths) > room and (wide := [at for at in widths if widths[at] > least[at]]):
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _room(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _how_to_see() -> str:
    """What shows the columns that a terminal has no room for, in the command that is run."""
    there_are = options_of_command()
    ways = {"--columns": "choose some by --columns", "--format": "add --format jsonl", "--json": "add --json"}
    if "--format" in there_are:  # where --json may be of something else
        del ways["--json"]
    possible = ["widen the terminal", *(way for option, way in ways.items() if option in there_are)]
    return ", or ".join(filter(None, [", ".join(possible[:-1]), possible[-1]]))


def options_of_command() -> set[str]:
    """Names of the options of the command that is run."""
    context = click.get_current_context(silent=True)
    return {option for each in (context.command.params if context else ()) for option in each.opts}


def options_given(values: dict[str, Any]) -> list[str]:
    """Names of those options of the command that is run, among these parameters, that have a value."""
    given = {name for name, value in values.items() if value is not None and value is not False and value != ()}
    return [each.opts[0] for each in click.get_current_context().command.params if each.name in given]


def as_json(value: object) -> None:
    """Print one value as a line of JSON."""
    click.echo(json.dumps(to_json(value), ensure_ascii=False))


def can_ask() -> bool:
    """Whether a person is at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask the person at the terminal; nobody there means no."""
    return can_ask() and click.confirm(wrapped(question), err=True)


def batches_of(found: Any, options: Common, *, to_stdout: bool) -> Iterator[Any]:  # noqa: ANN401 - importing its type is slow
    """Read the rows of an answer, with a bar on a terminal until rows are printed there.

    Args:
        found: the answer.
        options: of the command.
        to_stdout: whether the rows are printed.
    """
    first: list[Any] = []
    with options.bars("row groups") as bar:
        batches = found.batches(report=bar)
        if not (to_stdout and sys.stdout.isatty()):
            yield from batches
        while sum(batch.num_rows for batch in first) < _FIRST and (batch := next(batches, None)) is not None:
            first.append(batch)
    yield from first
    yield from batches


@contextmanager
def harvest_bar(options: Common, what: str = "files", *, resumes: bool = True) -> Iterator[Report]:
    """A progress bar a crawl, on a terminal, for work that the same command resumes; elsewhere nothing."""
    shown = no_bar(what) if options.quiet or not is_terminal() else terminal_bar(what)
    with resumable() if resumes else nullcontext(), shown as bar:
        yield bar
