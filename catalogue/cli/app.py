"""The command ``catalogue``: common options, messages and exit statuses."""

import gc
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import traceback
import warnings
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
from catalogue.cli.completion import complete_datasets
from catalogue.errors import CatalogueError, DiskFailed, IncompleteAnswer
from catalogue.formatting import closest_name, printable, printable_lines
from catalogue.progress import Bars, bars

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from catalogue.catalogue import Catalogue
    from catalogue.settings import Settings


@dataclass(frozen=True, slots=True)
class Common:
    """Options that can be given before or after any command."""

    data: Path | None = None
    table: str | None = None
    source: str | None = None
    rate: float | None = None
    contact: str | None = None
    quiet: bool = False
    verbose: bool = False

    def say(self, text: str) -> None:
        """Print a message on standard error, unless --quiet is given."""
        if not self.quiet:
            show(text, err=True)

    def settings(self, **others: object) -> "Settings":
        from catalogue.store.folder_settings import settings_for

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
        """Progress bars for long work, on a terminal."""
        return bars(False if self.quiet else None)

    @contextmanager
    def opened(self, *, scheduler: str | None = None, **settings: object) -> "Iterator[Catalogue]":
        """Open the catalogue with these options and other settings; connect to a cluster."""
        from catalogue.catalogue import Catalogue
        from catalogue.session import Session

        chosen = self.settings(**settings)
        if self.verbose:
            from catalogue.source.open import environment_settings

            variables = "".join(f", {name}={value}" for name, value in environment_settings().items())
            click.echo(f"source: {chosen.source}{variables}", err=True)
        with (
            warnings.catch_warnings(),
            _executor(scheduler) as executor,
            Catalogue(
                Session(chosen.data, chosen, dataset=self.table, executor=executor, notify=self.say, bars=self.bars)
            ) as catalogue,
        ):
            warnings.simplefilter("ignore", IncompleteAnswer)  # commands print what is missing
            yield catalogue
            if self.verbose:
                click.echo(f"requests: {catalogue.requests}, bytes: {catalogue.bytes:,}", err=True)


def _executor(scheduler: str | None) -> "AbstractContextManager[Executor | None]":
    if scheduler is None:
        return nullcontext()
    from catalogue.read.dask_cluster import connect_to_cluster

    return connect_to_cluster(scheduler)


def show(text: str, *, err: bool = False) -> None:
    """Print a message without control characters, and with complete commands."""
    _print(printable_lines(complete_commands(text)), err=err)


def _print(text: str, *, err: bool) -> None:
    click.echo(wrapped(text) if (sys.stderr if err else sys.stdout).isatty() else text, err=err)


def wrapped(text: str) -> str:
    """Break lines at the width of the terminal, but not in commands, so that they can be copied."""
    unbroken = _TO_RUN.sub(lambda match: match[0].replace(" ", "\0"), text)
    width = shutil.get_terminal_size().columns
    lines = (
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
        for line in unbroken.split("\n")
    )
    return "\n".join(itertools.chain.from_iterable(lines)).replace("\0", " ")


def warn(text: str) -> None:
    """Print a message even with --quiet."""
    show(f"catalogue: {text}", err=True)


def complete_commands(text: str) -> str:
    """Add this command's options --data, --source and --table to the commands in a message."""
    given = _given[0] if _given else Common()
    options = {"--data": given.data, "--source": given.source, "--table": given.table}

    def with_options(match: re.Match[str]) -> str:
        rest = re.split("[;\n]", text[match.end() :], maxsplit=1)[0]
        missing = {
            option: value
            for option, value in options.items()
            if value is not None and option not in rest and (option, match[1]) != ("--table", "crawls")
        }
        return " ".join(["catalogue", *(f"{option} {shlex.quote(str(v))}" for option, v in missing.items()), match[1]])

    return _PROPOSED.sub(with_options, text)


_OPTIONS = [
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the store and the metadata database.  [default: ./data if it has a store, else the user's]",
    ),
    click.option(
        "--table",
        metavar="NAME",
        shell_complete=complete_datasets,
        help="A dataset other than Common Crawl's index; see: catalogue harvest -h",
    ),
    click.option("--source", metavar="URL", help="Where files are read from: an https, http or s3 URL, or a folder."),
    click.option("--rate", type=float, metavar="N", help="Maximum requests per second.  [default: 5 for Common Crawl]"),
    click.option("--contact", metavar="ADDRESS", help="E-mail address or web page where the source can reach you."),
    click.option("--quiet", "-q", is_flag=True, default=None, help="Print only results and errors."),
    click.option(
        "--verbose",
        "-v",
        is_flag=True,
        default=None,
        help="Print the source, proxy settings, the number of requests, and tracebacks of errors.",
    ),
]


class OneOf(click.Choice[str]):
    """A choice that suggests the closest valid value."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        similar = closest_name(str(value), self.choices)
        return super().get_invalid_choice_message(value, ctx) + (f" Did you mean {similar!r}?" if similar else "")


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options to a command, which gets them as one ``Common``. Later options override earlier ones."""

    @wraps(command)
    @click.pass_context
    def wrapped(context: click.Context, /, **options: Any) -> Any:
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
    """A command that refuses to take an option twice if only the last value would be used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=[*args])
            for option, times in Counter(given).items():
                if times > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag):
                    ctx.fail(f"{option.opts[0]} takes one value, but is given {times} times.")
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    """A group of commands of class ``Command``."""

    command_class = Command


class _Commands(Group):
    """Import the module of a command when it is needed."""

    modules = {  # noqa: RUF012 - a constant
        "crawls": "harvest_commands",
        "harvest": "harvest_commands",
        "backfill": "harvest_commands",
        "status": "status_commands",
        "forget": "harvest_commands",
        "check": "status_commands",
        "doctor": "status_commands",
        "plan": "query_commands",
        "query": "query_commands",
        "join": "join_command",
        "fetch": "fetch_command",
        "sample": "sample_command",
        "old-index": "query_commands",
        "export": "export_commands",
        "pull": "export_commands",
        "serve": "serve_commands",
        "sql": "sql_command",
        "demo": "serve_commands",
        "completion": "completion_command",
    }

    synonyms = {  # noqa: RUF012 - a constant
        **dict.fromkeys(["get", "download"], "fetch"),
        **dict.fromkeys(["search", "find", "lookup"], "query"),
        **dict.fromkeys(["delete", "remove", "rm"], "forget"),
        "list": "crawls",
    }

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with status 1
            return _closed_pipe()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.modules)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's method imports the modules of all commands for their help.
        names = [CompletionItem(name) for name in self.modules if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click compares only with imported commands.
        if args[0] not in self.modules and not ctx.resilient_parsing:
            similar = self.synonyms.get(args[0]) or closest_name(args[0], self.modules)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {similar!r}?" if similar else ""))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.modules:
            return None
        from importlib import import_module

        module = import_module(f"catalogue.cli.{self.modules[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


def _print_version(context: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from catalogue.settings import package_version

        click.echo(f"catalogue, version {package_version()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@common
def entry(_: Common) -> None:
    """Find captures in Common Crawl's columnar index. Only bytes that can contain matches are read.

    \b
    catalogue demo                                       everything, offline, in a minute
    catalogue harvest --crawl CC-MAIN-2022-05            store the footers of a crawl's index files
    catalogue query '*.example.com' --crawl latest       captures of a site
    catalogue sql "select * from row_groups limit 5"     the metadata in the footers
    """


def main() -> NoReturn:
    """Run the command line and exit.

    Exit status: 0 done; 1 partly done; 2 invalid arguments; 70 internal error; 74 disk failure; 75 try again later; 130
    or 143 stopped; 141 standard output was closed.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    _open_closed_streams()
    gc.set_threshold(_GC_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts a thread per core, and no command needs them
    try:
        status = entry(standalone_mode=False, prog_name="catalogue")
        sys.stdout.flush()
    except click.ClickException as error:
        status = _usage_error(error)
    except (click.Abort, KeyboardInterrupt):
        status = _stopped()
    except BrokenPipeError:
        status = _closed_pipe()
    except CatalogueError as error:
        status = _print_error(error)
    except OSError as error:
        free = room(error.filename, error) if error.filename else ""
        status = _print_error(DiskFailed(f"{error.filename or 'the disk'}: {error.strerror or error}{free}"))
    except Exception as error:  # noqa: BLE001 - users get no tracebacks
        if type(error).__module__.partition(".")[0] in {"duckdb", "_duckdb"} and not _signals:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            sys.exit(_print_error(DiskFailed(f"the catalogue cannot be read ({first}); run: catalogue check --repair")))
        status = _stopped() if _signals else _print_bug(error)
    sys.exit(status if isinstance(status, int) else 0)


_PROPOSED = re.compile(rf"\bcatalogue ({'|'.join(_Commands.modules)})\b")
"""A command in a message."""
_TO_RUN = re.compile(r"(?<=run: )[^;\n]+")
"""A command to copy."""
_given: list[Common] = []
"""The options of the running command."""
_resumable: list[bool] = []
"""Not empty while the same command can resume the running work."""
_CLOSED_PIPE = 141
"""128 plus the number of SIGPIPE, which Windows does not define."""
_GC_OBJECTS = 100_000
"""New objects between searches for cycles; the default of 700 takes a sixth of the time of decoding."""
_signals: list[int] = []
"""Signals received. Libraries can replace the KeyboardInterrupt by other errors."""


@contextmanager
def resumable() -> Iterator[None]:
    """Mark work that the same command can resume after it was stopped."""
    _resumable.append(True)
    yield
    _resumable.clear()  # not if it was stopped


def _open_closed_streams() -> None:
    """Replace closed standard streams, which are None, by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8", closefd=False))


def _stop(number: int, _: FrameType | None) -> NoReturn:
    _signals.append(number)
    raise KeyboardInterrupt


def _stopped() -> int:
    resume = "; committed work is kept, and the same command resumes it" if _resumable else ""
    _print(f"stopped{resume}", err=True)
    return 128 + (_signals[0] if _signals else signal.SIGINT)


def _closed_pipe() -> int:
    """Exit like a program stopped by SIGPIPE: no message, and nothing written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _CLOSED_PIPE


def _usage_error(error: click.ClickException) -> int:
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        return error.exit_code
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx and not message.endswith("?"):
        message = f"{message.removesuffix('.')}; see: {error.ctx.command_path} --help"
    _print(printable(f"catalogue: {message}"), err=True)
    return error.exit_code


def _print_error(error: CatalogueError) -> int:
    if "--verbose" in sys.argv or "-v" in sys.argv:
        traceback.print_exc()
    warn(f"{error}")
    return error.exit_status


def _print_bug(error: Exception) -> int:
    if "--verbose" in sys.argv or "-v" in sys.argv:
        traceback.print_exc()
    what = printable(f"{type(error).__name__}: {error}".splitlines()[0])
    _print(f"catalogue: internal error ({what}); -v prints the traceback, please report it", err=True)
    return os.EX_SOFTWARE if hasattr(os, "EX_SOFTWARE") else 70
