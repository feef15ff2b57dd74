"""What people see: tables that fit, progress, numbers with units."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import click

from catalogue.cli.app import Common


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


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


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: as wide as the terminal, or in a pipe as wide as it needs."""
    shown = [[_printable(cell(value)) for value in row] for row in rows]
    numbers = [
        bool(rows) and all(isinstance(row[at], int | float) or row[at] is None for row in rows)
        for at in range(len(names))
    ]
    widths = [max(len(name), *(len(row[at]) for row in shown)) if shown else len(name) for at, name in enumerate(names)]
    if sys.stdout.isatty():
        widths = _fitted(widths, shutil.get_terminal_size().columns)
    for row in [list(names), ["-" * width for width in widths], *shown]:
        cells = [
            _cut(text, width).rjust(width) if number else _cut(text, width).ljust(width)
            for text, width, number in zip(row, widths, numbers, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _fitted(widths: list[int], room: int) -> list[int]:
    """Take from the widest columns until the row fits."""
    widths = list(widths)
    while sum(widths) + 2 * (len(widths) - 1) > room and max(widths) > 8:  # noqa: PLR2004 - narrower says nothing
        widths[widths.index(max(widths))] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _printable(text: str) -> str:
    """Without what would move a terminal's cursor; values come from strangers' pages."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def as_json(value: object) -> None:
    """Print one value as a line of JSON."""
    click.echo(json.dumps(value, default=_jsonable, ensure_ascii=False))


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "item"):  # a number of numpy's
        return value.item()
    return str(value)


class _Harvesting(Protocol):
    crawl: str
    listed: int
    done: int
    failed: int
    bytes: int


class Bar(Protocol):
    """Shows how far something is."""

    def __call__(self, progress: _Harvesting, /) -> None:
        """Show this."""


@contextmanager
def harvest_bar(options: Common) -> Iterator[Bar]:
    """A progress bar a crawl, on a terminal; elsewhere nothing."""
    if options.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only terminals need it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f} files/s  {task.fields[received]}  {task.fields[failed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    tasks: dict[str, Any] = {}

    def show(progress: _Harvesting) -> None:
        if progress.crawl not in tasks:
            tasks[progress.crawl] = bar.add_task(
                progress.crawl, total=progress.listed, completed=progress.done, rate=0.0, received="", failed=""
            )
        task = tasks[progress.crawl]
        bar.update(
            task,
            completed=progress.done + progress.failed,
            rate=bar.tasks[task].speed or 0.0,
            received=size(progress.bytes),
            failed=f"{progress.failed} failed" if progress.failed else "",
        )

    with bar:
        yield show
