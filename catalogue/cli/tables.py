"""Tables and JSON on standard output."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.messages import options_of_command, show
from catalogue.commoncrawl.crawls import INDEX_NAMES
from catalogue.formatting import clock, join_first, json_text, plural, printable, size, to_json

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.captures import Captures
    from catalogue.cli.app import Common
    from catalogue.plan.crawl_plan import CrawlPlan
    from catalogue.plan.plan import ReadPlan

_MIN_TEXT, _MIN_NAME = 20, 8
"""Characters to which texts and names of columns may be cut."""
_GAP = "  "
_PAGE = 1000
_UNCUT = int | float | Decimal | date | time | timedelta | None


def cell(value: object) -> str:
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
            return clock(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return ", ".join(cell(item) for item in value)
    return str(value)


@dataclass(slots=True)
class _Column:
    at: int
    name: str
    width: int
    least: int
    cut: bool
    right: bool

    def line_up(self, text: str, *, cut: bool) -> str:
        from rich.cells import cell_len, set_cell_size

        if cut and cell_len(text) > self.width:
            text = f"{set_cell_size(text, self.width - 1)}…"
        space = " " * (self.width - cell_len(text))
        return f"{space}{text}" if self.right else f"{text}{space}"


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    min_widths: Mapping[str, int] = MappingProxyType({}),
    drop_first: Sequence[str] = (),
    most: int | None = None,
    format_value: Callable[[object], str] = cell,
    ways: Sequence[str] = ("add --json",),
) -> int:
    """Print rows as columns of text; return how many there were.

    On a terminal, texts are cut to ``min_widths`` (by default 20), and columns are left out until lines fit, at first
    those of ``drop_first``, and only the first ``most`` rows are shown. The first 1,000 rows determine the widths. A
    message names the ``ways`` to see the other columns.
    """
    from rich.cells import cell_len

    terminal, remaining = sys.stdout.isatty(), iter(rows)
    room = shutil.get_terminal_size().columns if terminal else sys.maxsize
    most = most if terminal and most is not None else sys.maxsize
    first = [*islice(remaining, min(_PAGE, most))]
    columns = []
    for at, name in enumerate(map(printable, names)):
        values = [row[at] for row in first]
        longest = max((cell_len(printable(format_value(value))) for value in values), default=0)
        cut = not all(isinstance(value, _UNCUT) for value in values)
        least = min(longest, room, min_widths.get(name, _MIN_TEXT)) if cut else longest
        least = max(least, min(cell_len(name), _MIN_NAME))
        width = max(least, min(room, max(longest, cell_len(name))))
        right = bool(values) and all(isinstance(value, int | float | None) for value in values)
        columns.append(_Column(at, name, width, least, terminal and cut, right))
    shown = _fit(columns, room, drop_first)

    def show_line(texts: Iterable[str]) -> None:
        click.echo(_GAP.join(texts).rstrip())

    show_line(column.line_up(column.name, cut=terminal) for column in shown)
    show_line("-" * column.width for column in shown)
    count = 0
    for count, row in enumerate(chain(first, remaining), 1):
        if count <= most:  # in a pipe nothing is cut: a long text in a later row moves the rest of its line
            show_line(column.line_up(printable(format_value(row[column.at])), cut=column.cut) for column in shown)
    *possible, last = "widen the terminal", *ways
    if dropped := [column.name for column in columns if column not in shown]:
        show(f"{plural(len(dropped), 'column')} more ({join_first(dropped)}): {', '.join(possible)}, or {last}")
    if count > most:
        show(f"the first {most:,} of {count:,} rows; all of them: -o rows.csv, or --format jsonl")
    return count


def _fit(columns: list[_Column], room: int, drop_first: Sequence[str]) -> list[_Column]:
    shown = [*columns]
    first = [column for name in drop_first for column in columns if column.name == name]
    for column in [*first, *(each for each in reversed(columns) if each not in first)]:
        if len(shown) > 1 and sum(each.least + len(_GAP) for each in shown) - len(_GAP) > room:
            shown.remove(column)
    for _ in range(sum(each.width + len(_GAP) for each in shown) - len(_GAP) - room):
        if wide := [each for each in shown if each.width > each.least]:
            max(wide, key=lambda each: each.width).width -= 1
    return shown


def options_given(values: dict[str, Any]) -> list[str]:
    given = {name for name, value in values.items() if value is not None and value is not False and value != ()}
    return [each.opts[0] for each in click.get_current_context().command.params if each.name in given]


def show_plan(plan: "ReadPlan") -> None:
    if len(plan.crawls) > 1:
        _show_plans(plan.crawls)
    cost = [f"{plan.about}{plan.requests:,}", f"{plan.about}{size(plan.bytes)}", f"{plan.seconds:.1f}"]
    if plan.searched or plan.blocks:
        place: dict[str, object] = {"row groups": f"{plan.row_groups:,}"} if plan.is_columnar else {}
        place["blocks of the CDX index"] = str(plan.block_count or "-")
    else:
        pages = f"{plan.about}{plan.pages:,}" if plan.pages else "-"
        place = {"files": len(plan.paths), "row groups": plan.row_groups, "of": plan.considered}
        place |= {"pages": pages, "captures in them": plan.rows}
    table([*place, "requests", "bytes", "seconds"], [[*place.values(), *cost]])
    for sentence in plan.choices() if len(plan.crawls) == 1 else ():
        show(sentence)
    if plan.ruled_out:
        show(f"{plural(plan.ruled_out, 'row group')} ruled out by the values of their columns")
    hint = "; --indexes fetches them now" if plan.indexes and "--indexes" in options_of_command() else ""
    for sentence in plan.preparations():
        show(f"{sentence}{'' if plan.searched else hint}")
    if plan.cached_bytes:
        show(f"another {size(plan.cached_bytes)} come from the cache")
    for warning in plan.warnings:
        show(f"note: {warning}")
    for problem in plan.missing:
        show(f"the answer may be incomplete: {problem}")


def _show_plans(plans: "Sequence[CrawlPlan]") -> None:
    rows = []
    for each in plans:
        other = f"{INDEX_NAMES[each.other.index]}: {each.other}" if each.other else each.why
        cost = (each.requests, size(each.bytes), f"{each.seconds:.1f}")
        rows.append([each.crawl, INDEX_NAMES[each.index], *cost, other])
    table(["crawl", "index", "requests", "bytes", "seconds", "instead of"], rows, drop_first=["instead of"])
    click.echo()


def as_json(value: object) -> None:
    click.echo(json_text(to_json(value)))


def batches_of(
    captures: "Captures", options: "Common", *, printed: bool, most: int | None
) -> "Iterator[pa.RecordBatch]":
    """Read captures with a progress bar on a terminal, except while rows are ``printed`` there, up to ``most``."""
    unit = "row groups" if captures.plan.is_columnar else "blocks"
    batches = captures.batches(report=lambda progress: bar(progress))  # noqa: PLW0108 - of the present bar
    first: list[pa.RecordBatch] = []
    with options.bars(unit) as bar:
        if not (printed and sys.stdout.isatty()):
            yield from batches
        while sum(batch.num_rows for batch in first) < (most or _PAGE) and (batch := next(batches, None)) is not None:
            first.append(batch)
    yield from first
    with options.bars(unit) if most is not None else nullcontext(bar) as bar:
        yield from batches
