"""Options that several commands share and what shells complete; the format of an output; the budget of a command."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from catalogue.cli.messages import for_command_line, options_of_command, wrapped
from catalogue.errors import QueryError, TooExpensive
from catalogue.formatting import Priced, closest_name, format_cost, parse_size, plural, size
from catalogue.progress import is_terminal
from catalogue.query.parameters import Interface, Parameter, parameters_of

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.check.receipt import ReceiptRecorder
    from catalogue.cli.app import Common
    from catalogue.plan.plan import ReadPlan

CAPTURE_FORMATS = ["table", "jsonl", "json", "csv", "tsv", "cdxj", "url", "parquet", "arrow", "arrows"]
RECORD_FORMATS = ["warc", "text", "metadata", "parquet", "payload"]
MAX_REQUESTS, MAX_BYTES = 500, 1_000_000_000
"""What commands use without asking."""

_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "url"}
_BY_SUFFIX |= {f".{format_}": format_ for format_ in ("json", "csv", "tsv", "cdxj", "parquet", "arrow", "arrows")}
_BINARY = {"parquet", "arrow", "arrows"}
SUFFIXES = {format_: suffix.removeprefix(".") for suffix, format_ in reversed(_BY_SUFFIX.items())}

_MANIFEST = re.compile(r"crawl-data/([^/]+)/cc-index-table\.paths\.gz")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Other names in a store or a folder are not completed, because a shell could run them."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Number(click.IntRange):
    """A whole number, which messages and help pages of click name after a type of Python."""

    name = "number"


class OneOf(click.Choice[str]):
    """A choice that suggests the closest valid value."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        options = ctx.command.params if ctx else []
        others = (f"{each.opts[0]} {value}" for each in options if value in getattr(each.type, "choices", ()))
        known = _BY_SUFFIX.get(f".{value}")
        similar = known if known in self.choices else closest_name(str(value), self.choices) or next(others, None)
        return super().get_invalid_choice_message(value, ctx) + (f" Did you mean {similar!r}?" if similar else "")


def complete_stored_crawls(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from catalogue.store.folder_settings import document_names

    names = document_names(_store(context))
    return _crawls([found[1] for name in names if (found := _MANIFEST.fullmatch(name))], incomplete)


def complete_listed_crawls(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from catalogue.store.folder_settings import document_ids

    return _crawls(document_ids(_store(context), "collinfo.json"), incomplete)


def complete_subsets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from catalogue.commoncrawl.crawls import SUBSETS

    return [name for name in (*SUBSETS, "all") if name.startswith(incomplete)]


def complete_columns(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from catalogue.commoncrawl.schema import SCHEMA

    before, comma, last = incomplete.rpartition(",")
    names = [name for name in SCHEMA.names if name.startswith(last) and name not in before.split(",")]
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


def complete_datasets(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from catalogue.settings import STORE_NAME

    datasets = sorted(path.parent.name for path in _folder(context, table=False).glob(f"*/{STORE_NAME}"))
    return [name for name in datasets if _PLAIN.fullmatch(name) and name.startswith(incomplete)]


def _crawls(names: list[str], incomplete: str) -> list[CompletionItem]:
    last = re.split(r"\.\.|,", incomplete)[-1]
    before = incomplete.removesuffix(last)
    choices = [*sorted(filter(_PLAIN.fullmatch, names)), *([] if before.endswith(".") else ["latest", "all"])]
    # Shells replace the typed word, therefore 2022 can complete to CC-MAIN-2022-05.
    chosen = [name for name in choices if last in {"", name[: len(last)], name.partition("-MAIN-")[2][: len(last)]}]
    return [CompletionItem(f"{before}{name}") for name in chosen]


def _store(context: click.Context) -> Path:
    from catalogue.settings import STORE_NAME

    return _folder(context) / STORE_NAME


def _folder(context: click.Context, *, table: bool = True) -> Path:
    from catalogue.settings import default_data, load_settings

    given: dict[str, object] = {}
    at: click.Context | None = context
    while at:  # later options override earlier ones
        given = {name: value for name, value in at.params.items() if value is not None} | given
        at = at.parent
    chosen, name = given.get("data"), given.get("table")
    try:
        folder = load_settings(data=chosen).data
    except QueryError:  # the command itself reports it
        folder = default_data()
    return folder / name if table and isinstance(name, str) else folder


def combine(*each: Decorator) -> Decorator:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(each):
            command = option(command)
        return command

    return add


FILE = click.Path(dir_okay=False, path_type=Path)
json_option = click.option("--json", "json_", is_flag=True, help="One JSON object.")
receipt_option = click.option(
    "--receipt",
    type=FILE,
    help="Write a receipt, which lists the bytes that the answer was made from; see: catalogue verify -h",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def crawls_option(
    help_: str, complete: Callable[..., Any] | None = complete_stored_crawls, *, required: bool = False
) -> Decorator:
    return click.option("--crawl", "crawls", multiple=True, required=required, shell_complete=complete, help=help_)


crawl_option = crawls_option(
    "Stored crawls: 2022-05, a year, A..B, latest, all or stored; comma-separated or repeated.  [default: all]"
)
harvest_option = click.option(
    "--harvest", is_flag=True, help="First harvest the crawls of --crawl that are not stored."
)
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS", help="Use the workers of a Dask cluster, such as tcp://host:8786."
)
_COMPLETE: dict[str, Callable[..., Any]] = dict.fromkeys(["columns", "unique"], complete_columns)
_COMPLETE |= {"crawls": complete_stored_crawls, "subsets": complete_subsets}
_METAVARS = {"from_": "TIME", "to": "TIME", "unique": "url|digest|COLUMN"}


def query_options(*without: str) -> Decorator:
    return combine(*map(_query_option, parameters_of(Interface.COMMAND_LINE, *without)))


def _query_option(each: Parameter) -> Decorator:
    if each.name == "patterns":
        return click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
    kind: Any = each.kind
    if each.name == "urls_files":
        kind = click.File("rb")
    elif each.choices and not each.several:
        kind = OneOf(each.values)
    elif each.kind is int:
        kind = Number(min=0)
    return click.option(
        each.option,
        each.name,
        type=None if each.kind is bool else kind,
        is_flag=each.kind is bool or None,  # False would let click accept the option without a value
        multiple=each.several,
        metavar=_METAVARS.get(each.name),
        shell_complete=_COMPLETE.get(each.name),
        help=each.help,
    )


def check_folder(file: Path) -> None:
    from catalogue.output.targets import local_path

    if not local_path(file).parent.is_dir():
        raise QueryError(f"there is no folder {file.parent} to write to; make it, or choose another name")


def format_for(requested: str | None, output: Path | None) -> str:
    if requested == "table" and output is not None:
        raise QueryError(f"--format table cannot be written to a file; use {', '.join(CAPTURE_FORMATS[1:])}")
    terminal = output is None and sys.stdout.isatty()
    if output is None:
        format_ = requested or ("table" if terminal else "jsonl")
    else:
        check_folder(output)
        format_ = requested or _BY_SUFFIX.get(Path(output.name.removesuffix(".gz")).suffix, "")
    has_option = "--format" in options_of_command()
    only_captures = () if has_option else ("cdxj", "url")  # plan writes requests
    if not format_ or format_ in only_captures:
        endings = ", ".join(sorted(suffix for suffix, of in _BY_SUFFIX.items() if of not in only_captures))
        otherwise = "; or add --format" if has_option else ""
        raise QueryError(f"the format of {output} is unknown; use an ending: {endings}{otherwise}")
    if format_ in _BINARY and terminal:
        raise QueryError(f"--format {format_} cannot be printed on a terminal; add -o FILE")
    if format_ in _BINARY and output is not None and output.suffix == ".gz":
        raise QueryError(f"{format_} files are compressed already; use a name without .gz")
    return format_


def recorder_for(receipt: Path | None, answer: Path | None) -> "ReceiptRecorder | None":
    """Return what records requests for a receipt, if one is written."""
    if receipt is None:
        return None
    if answer is None:
        advice = "--save FILE" if "--save" in options_of_command() else "-o FILE, without --scheduler"
        raise QueryError(f"--receipt needs one output file; add {advice}")
    if receipt.resolve() == answer.resolve():
        raise QueryError("--receipt and the answer need different files")
    check_folder(receipt)
    from catalogue.check.receipt import ReceiptRecorder

    return ReceiptRecorder()


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask the user a question; without a terminal the answer is no."""
    return can_ask() and click.confirm(wrapped(for_command_line(question)), err=True)


@dataclass(frozen=True)
class Budget:
    """Requests and bytes that need no confirmation; with ``yes`` any number."""

    yes: bool
    max_requests: int = MAX_REQUESTS
    max_bytes: int = MAX_BYTES

    def covers(self, requests: int, received: int) -> bool:
        return self.yes or (requests <= self.max_requests and received <= self.max_bytes)

    def after(self, requests: int, received: int) -> "Budget":
        return replace(
            self, max_requests=max(0, self.max_requests - requests), max_bytes=max(0, self.max_bytes - received)
        )

    def ask(self, requests: int, received: int, action: str, advice: str = "narrow the query") -> "Budget":
        """Ask the user to confirm an action that exceeds the budget; see ``confirm``.

        Return the budget for what follows: twice the confirmed cost.
        """
        if self.covers(requests, received):
            return self
        confirm(action, advice)
        return replace(self, max_requests=2 * requests, max_bytes=2 * received)

    def check(self, cost: Priced) -> "Budget":
        """Ask the user to confirm a cost that exceeds the budget; see ``ask``."""
        return self.ask(cost.requests, cost.bytes, f"this takes {format_cost(cost)}")

    def check_plan(self, plan: "ReadPlan") -> None:
        """Ask the user to confirm a plan whose cost may exceed the budget; see ``ask``."""
        most, received = plan.committed
        perhaps = f", perhaps up to {most:,} requests" if plan.searched and most > plan.requests else ""
        self.ask(most, received, f"this takes {format_cost(plan)}{perhaps}")

    def approve(self, captures: "Captures", options: "Common") -> "Captures":
        """Check the cost of captures before they are read; see ``confirm``."""
        spent, allowed = captures.spending(), self

        def agree(plan: "ReadPlan") -> None:
            allowed.after(*spent()).check_plan(plan)
            if plan.is_ready:
                self.show(plan, options)

        def meter() -> None:
            nonlocal allowed
            requests, received = spent()
            action = f"{plural(requests, 'request')} and {size(received)} were not enough for --limit"
            allowed = allowed.ask(requests, received, action)

        return captures.agreed(agree, meter)

    def show(self, plan: "ReadPlan", options: "Common") -> None:
        if self.yes and is_terminal():
            options.say(f"{plural(plan.row_groups, 'row group')}: {format_cost(plan)}")


def confirm(action: str, advice: str) -> None:
    """Ask the user to confirm an action, such as ``this takes 600 requests``.

    Raises:
        TooExpensive: if the user does not, or if there is no terminal.
    """
    if not confirmed(f"{action[:1].upper()}{action[1:]}. Continue?"):
        raise TooExpensive(f"{action}; {advice}, or add --yes")


def max_requests_option(default: int) -> Decorator:
    return click.option(
        "--max-requests",
        type=Number(min=0),
        default=default,
        show_default=True,
        help="Ask before making more requests than this.",
    )


_budget_options = combine(
    yes_option,
    max_requests_option(MAX_REQUESTS),
    click.option(
        "--max-bytes",
        type=parse_size,
        metavar="SIZE",
        default="1GB",
        show_default=True,
        help="Ask before reading more than this.",
    ),
)


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def with_budget(*args: Any, yes: bool, max_requests: int, max_bytes: int, **options: Any) -> Any:
        return command(*args, budget=Budget(yes, max_requests, max_bytes), **options)

    return _budget_options(with_budget)
