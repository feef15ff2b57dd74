"""The command ``catalogue``, and what all its commands share."""

import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from catalogue.atomic_files import room
from catalogue.errors import CatalogueError, DiskFailed
from catalogue.formatting import closest_name, printable, printable_lines
from catalogue.progress import Bars, bars
from catalogue.settings import Settings, package_version

if TYPE_CHECKING:
    from catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Common:
    """The options that stand before or after any command."""

    data: Path | None = None
    table: str | None = None
    source: str | None = None
    rate: float | None = None
    contact: str | None = None
    quiet: bool = False
    verbose: bool = False

    def say(self, text: str) -> None:
        """Tell the user something that is no result."""
        if not self.quiet:
            show(text, err=True)

    def settings(self, **others: object) -> Settings:
        """What the options, and others beside them, set."""
        from catalogue.store.folder_settings import settings_for  # noqa: PLC0415 - --help needs none of what this imports

        return settings_for(
            data=self.data,
            dataset=self.table,
            notify=self.say,
            source=self.source,
            rate=self.rate,
            contact=self.contact,
            **others,
        )

    @property
    def bars(self) -> Bars:
        """Bars for what takes long, on a terminal."""
        return bars(False if self.quiet else None)

    @contextmanager
    def opened(self, *, scheduler: str | None = None, **settings: object) -> "Iterator[Catalogue]":
        """The catalogue that the options mean, with some settings beside theirs, and a cluster's workers."""
        from catalogue.catalogue import Catalogue  # noqa: PLC0415 - --help needs none of what this imports
        from catalogue.read.dask_cluster import connected  # noqa: PLC0415 - likewise
        from catalogue.session import Session  # noqa: PLC0415 - likewise

        chosen = self.settings(**settings)
        if self.verbose:
            from catalogue.source.open import environment_settings  # noqa: PLC0415 - likewise

            told = "".join(f", {name}={value}" for name, value in environment_settings().items())
            click.echo(f"source: {chosen.source}{told}", err=True)
        with (
            connected(scheduler) if scheduler else nullcontext() as executor,
            Catalogue(
                Session(chosen.data, chosen, dataset=self.table, executor=executor, notify=self.say, bars=self.bars)
            ) as catalogue,
        ):
            yield catalogue
            if self.verbose:
                click.echo(f"requests: {catalogue.requests}, bytes: {catalogue.bytes:,}", err=True)


def show(text: str, *, err: bool = False) -> None:
    """Print what is said to people: strangers' names cannot act in it, and commands in it can be run as they are."""
    _print(printable_lines(literally(text)), err=err)


def _print(text: str, *, err: bool) -> None:
    click.echo(wrapped(text) if (sys.stderr if err else sys.stdout).isatty() else text, err=err)


def wrapped(text: str) -> str:
    """Break lines between words where a terminal ends; commands to run stay on one line, so that they can be copied."""
    whole = _TO_RUN.sub(lambda match: match[0].replace(" ", "\0"), text)
    width = shutil.get_terminal_size().columns
    lines = (
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""] for line in whole.split("\n")
    )
    return "\n".join(itertools.chain.from_iterable(lines)).replace("\0", " ")


def warn(text: str) -> None:
    """Say what should be known, even to who wants to hear nothing else."""
    show(f"catalogue: {text}", err=True)


def literally(text: str) -> str:
    """A text whose commands have the options by which this one was told what it is about."""
    given = _given[0] if _given else Common()
    options = {"--data": given.data, "--source": given.source, "--table": given.table}

    def with_options(match: re.Match[str]) -> str:
        there_are = re.split("[;\n]", text[match.end() :], maxsplit=1)[0]
        lacking = {
            option: value
            for option, value in options.items()
            if value is not None and option not in there_are and (option, match[1]) != ("--table", "crawls")
        }
        return " ".join(["catalogue", *(f"{option} {shlex.quote(str(v))}" for option, v in lacking.items()), match[1]])

    return _PROPOSED.sub(with_options, text)


def _tables(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from catalogue.cli.completion import tables  # noqa: PLC0415 - it knows our options

    return tables(context, incomplete)


_OPTIONS = [
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the store and the catalogue.  [default: data, if there is a store in it, else your own]",
    ),
    click.option(
        "--table",
        metavar="NAME",
        shell_complete=_tables,
        help="Another table than Common Crawl's index; see: catalogue harvest -h",
    ),
    click.option("--source", metavar="URL", help="Where files are read from: https, http, s3 or a folder."),
    click.option("--rate", type=float, metavar="N", help="Requests a second at most.  [default: 5 for Common Crawl]"),
    click.option("--contact", metavar="ADDRESS", help="E-mail or page by which the source can reach you."),
    click.option("--quiet", "-q", is_flag=True, default=None, help="Say nothing but results and errors."),
    click.option(
        "--verbose",
        "-v",
        is_flag=True,
        default=None,
        help="Count requests; show the way to the source, and where errors come from.",
    ),
]


class OneOf(click.Choice[str]):
    """A choice that says which of them was meant."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """See ``click.Choice``."""
        like = closest_name(str(value), self.choices)
        return super().get_invalid_choice_message(value, ctx) + (f" Did you mean {like!r}?" if like else "")


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options; it gets them as one ``Common``, those given later winning."""

    @wraps(command)
    @click.pass_context
    def wrapped(context: click.Context, /, **options: Any) -> Any:  # noqa: ANN401 - click's
        names = Common.__dataclass_fields__
        given = {name: options.pop(name) for name in list(options) if name in names}
        before = context.obj or Common()
        context.obj = replace(before, **{name: value for name, value in given.items() if value is not None})
        _given[:] = [context.obj]
        return context.invoke(command, context.obj, **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


class Command(click.Command):
    """A command that refuses an option given more than once if only its last value would count."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:  # noqa: D102 - click's
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=[*args])
            for option, times in Counter(given).items():
                if times > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag):
                    ctx.fail(f"{option.opts[0]} takes one value, and is given {times} times.")
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command


class _Commands(Group):
    """Imports a command's module when it is asked for."""

    homes = {  # noqa: RUF012 - a constant of click's own class
        "crawls": "harvest_commands",
        "harvest": "harvest_commands",
        "backfill": "harvest_commands",
        "status": "harvest_commands",
        "forget": "harvest_commands",
        "check": "check_commands",
        "doctor": "doctor_command",
        "plan": "query_commands",
        "query": "query_output",
        "fetch": "fetch_command",
        "sample": "sample_command",
        "old-index": "old_index_command",
        "export": "export_commands",
        "pull": "export_commands",
        "serve": "serve_command",
        "sql": "sql_command",
        "demo": "demo_command",
        "completion": "completion",
    }

    synonyms = {  # noqa: RUF012 - likewise
        **dict.fromkeys(["get", "download"], "fetch"),
        **dict.fromkeys(["search", "find", "lookup"], "query"),
        **dict.fromkeys(["delete", "remove", "rm"], "forget"),
        "list": "crawls",
    }

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # of which click makes status 1
            return _unread()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.homes)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's own imports every command, to say what it does.
        names = [CompletionItem(name) for name in self.homes if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click looks at commands that are there, and ours come when they are asked for.
        if args[0] not in self.homes and not ctx.resilient_parsing:
            like = self.synonyms.get(args[0]) or closest_name(args[0], self.homes)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {like!r}?" if like else ""))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.homes:
            return None
        from importlib import import_module  # noqa: PLC0415

        home = import_module(f"catalogue.cli.{self.homes[cmd_name]}")
        command: click.Command = getattr(home, cmd_name.replace("-", "_"))
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_version(), prog_name="catalogue")
@common
def entry(_: Common) -> None:
    """Find captures in Common Crawl's columnar index by reading only the bytes that can hold them.

    \b
    catalogue demo                                       everything, offline, in a minute
    catalogue harvest --crawl CC-MAIN-2022-05            take the footers of a crawl's index files
    catalogue query '*.example.com' --crawl latest       captures of a site
    catalogue sql "select * from row_groups limit 5"     what the footers say
    """  # noqa: D301 - \b is click's


def main() -> NoReturn:
    """Run the command line; never returns.

    Exit status: 0 done; 1 done in part; 2 a wrong question; 70 a bug; 74 the disk failed; 75 try again later; 130 or
    143 stopped; 141 the reader of standard output closed it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    _open_closed_streams()
    try:
        status = entry(standalone_mode=False, prog_name="catalogue")
        sys.stdout.flush()
    except click.ClickException as error:
        status = _misused(error)
    except (click.Abort, KeyboardInterrupt):
        status = _stopped()
    except BrokenPipeError:
        status = _unread()
    except CatalogueError as error:
        status = _explain(error)
    except OSError as error:
        free = room(error.filename, error) if error.filename else ""
        status = _explain(DiskFailed(f"{error.filename or 'the disk'}: {error.strerror or error}{free}"))
    except Exception as error:  # noqa: BLE001 - the last resort: nobody should have to read a traceback
        if type(error).__module__.partition(".")[0] in {"duckdb", "_duckdb"} and not _signals:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            sys.exit(_explain(DiskFailed(f"the catalogue cannot be read ({first}); run: catalogue check --repair")))
        status = _stopped() if _signals else _explain_bug(error)
    sys.exit(status if isinstance(status, int) else 0)


_PROPOSED = re.compile(rf"\bcatalogue ({'|'.join(_Commands.homes)})\b")
"""A command in what is said."""
_TO_RUN = re.compile(r"(?<=run: )[^;\n]+")
"""A command that is to be copied."""
_given: list[Common] = []
"""The options of the command that is run."""
_resumable: list[bool] = []
"""Whether work is under way that the same command resumes."""
_CLOSED_PIPE = 141
"""128 and the number of SIGPIPE, which Windows does not have."""
_signals: list[int] = []
"""Signals to stop that came; libraries turn what is raised for them into errors of their own."""


@contextmanager
def resumable() -> Iterator[None]:
    """Do work that the same command resumes if it is stopped."""
    _resumable.append(True)
    yield
    _resumable.clear()  # not if it was stopped


def _open_closed_streams() -> None:
    """Give streams that the caller closed, which are None, the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8", closefd=False))


def _stop(number: int, _: FrameType | None) -> NoReturn:
    _signals.append(number)
    raise KeyboardInterrupt


def _stopped() -> int:
    goes_on = "; what was committed is kept, and the same command goes on from there" if _resumable else ""
    _print(f"stopped{goes_on}", err=True)
    return 128 + (_signals[0] if _signals else signal.SIGINT)


def _unread() -> int:
    """End as a program that SIGPIPE ends: nothing failed, and nothing more may be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _CLOSED_PIPE


def _misused(error: click.ClickException) -> int:
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        return error.exit_code
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx and not message.endswith("?"):
        message = f"{message.removesuffix('.')}; see: {error.ctx.command_path} --help"
    _print(printable(f"catalogue: {message}"), err=True)
    return error.exit_code


def _explain(error: CatalogueError) -> int:
    if "--verbose" in sys.argv or "-v" in sys.argv:
        traceback.print_exc()
    # Strangers name columns and files, of which it may speak.
    warn(f"{error}")
    return error.exit_status


def _explain_bug(error: Exception) -> int:
    if "--verbose" in sys.argv or "-v" in sys.argv:
        traceback.print_exc()
    what = printable(f"{type(error).__name__}: {error}".splitlines()[0])
    _print(f"catalogue: something failed that should not ({what}); -v shows where, please report it", err=True)
    return os.EX_SOFTWARE if hasattr(os, "EX_SOFTWARE") else 70
