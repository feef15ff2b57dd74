"""The command ``catalogue``: common options, messages and exit statuses."""

import gc
import os
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from catalogue.atomic_files import room
from catalogue.cli.messages import COMMANDS, SYNONYMS, echo, given_options, show, warn
from catalogue.cli.options import complete_datasets
from catalogue.cli.process import signals, stopped
from catalogue.errors import CatalogueError, DiskFailed, IncompleteAnswer, OutOfMemory, QueryError
from catalogue.formatting import closest_name, printable, printable_lines
from catalogue.progress import Bars, bars

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from catalogue.catalogue import Catalogue
    from catalogue.settings import Settings
    from catalogue.source.observe import Observer, RequestEvent


@dataclass(frozen=True, slots=True)
class Common:
    """Options before or after any command."""

    data: Path | None = None
    table: str | None = None
    source: str | None = None
    rate: float | None = None
    contact: str | None = None
    quiet: bool = False
    verbose: bool = False
    trace: bool = False

    def say(self, text: str) -> None:
        if not self.quiet:
            show(text, err=True)

    def note(self, sentences: Iterable[str]) -> None:
        for sentence in dict.fromkeys(sentences):
            self.say(f"note: {sentence}")

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
        return bars(False if self.quiet or self.trace else None)

    @contextmanager
    def opened(
        self, *, scheduler: str | None = None, observer: "Observer | None" = None, **settings: object
    ) -> "Iterator[Catalogue]":
        """Open the catalogue with these options and other settings; connect to a cluster."""
        from catalogue.catalogue import Catalogue
        from catalogue.session import Session

        chosen = self.settings(**settings)
        workers: AbstractContextManager[Executor | None] = nullcontext()
        if scheduler:
            from catalogue.read.dask_cluster import connect_to_cluster

            workers = connect_to_cluster(scheduler)
        if self.verbose:
            from catalogue.source.open import environment_settings

            variables = "".join(f", {name}={value}" for name, value in environment_settings().items())
            source = " and ".join(host.address for host in chosen.hosts) or chosen.source
            click.echo(f"source: {source}{variables}", err=True)
        with (
            warnings.catch_warnings(),
            workers as executor,
            Catalogue(
                Session(
                    chosen.data,
                    chosen,
                    dataset_name=self.table,
                    executor=executor,
                    notify=self.say,
                    bars=self.bars,
                    observer=self.observer(observer),
                )
            ) as catalogue,
        ):
            warnings.simplefilter("ignore", IncompleteAnswer)  # commands print what is missing
            yield catalogue
            if self.verbose:
                click.echo(f"requests: {catalogue.requests}, bytes: {catalogue.bytes:,}", err=True)

    def observer(self, other: "Observer | None" = None) -> "Observer | None":
        """Return a function that prints each request with --trace, and calls another observer."""
        if not self.trace:
            return other

        def observe(event: "RequestEvent") -> None:
            click.echo(printable_lines(str(event)), err=True)
            if other:
                other(event)

        return observe


_OPTIONS = [
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data folder, where everything is stored.  [variable: CATALOGUE_DATA; default: ./data if it has data, "
        "else a folder in your home]",
    ),
    click.option(
        "--table",
        metavar="NAME",
        shell_complete=complete_datasets,
        help="A dataset other than Common Crawl's index; see: catalogue harvest -h",
    ),
    click.option(
        "--source",
        metavar="URL",
        help="Where files are read from: an https, http or s3 URL, a folder, or hosts: commoncrawl,huggingface.  "
        "[variable: CATALOGUE_SOURCE; default: the source of the stored files; if there are none, Common Crawl]",
    ),
    click.option(
        "--rate",
        type=float,
        metavar="N",
        help="Maximum requests per second.  [variable: CATALOGUE_RATE; default: 5 for Common Crawl]",
    ),
    click.option(
        "--contact",
        metavar="ADDRESS",
        help="E-mail address or web page where the source can reach you.  [variable: CATALOGUE_CONTACT]",
    ),
    click.option("--quiet", "-q", is_flag=True, default=None, help="Print only results and errors."),
    click.option(
        "--verbose",
        "-v",
        is_flag=True,
        default=None,
        help="Also print the source, proxy settings, number of requests, and tracebacks of errors.",
    ),
    click.option(
        "--trace",
        is_flag=True,
        default=None,
        help="Print each request: file, range, bytes, milliseconds, purpose, and whether it came from the cache.",
    ),
]


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options to a command, which gets them as one ``Common``; later options override earlier ones."""

    @wraps(command)
    @click.pass_context
    def wrapped(context: click.Context, /, **options: Any) -> Any:
        names = Common.__dataclass_fields__
        given = {name: options.pop(name) for name in list(options) if name in names}
        before = context.obj or Common()
        context.obj = replace(before, **{name: value for name, value in given.items() if value is not None})
        given = context.obj
        given_options.update({"--data": given.data, "--source": given.source, "--table": given.table})
        return context.invoke(command, context.obj, **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


class Command(click.Command):
    """A command that refuses empty values, and options given twice of which only the last value would be used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            values, _, given = self.make_parser(ctx).parse_args(args=[*args])
            for option, times in Counter(given).items():
                value = values.get(option.name or "")
                if isinstance(option, click.Option) and "" in (value if isinstance(value, list) else [value]):
                    ctx.fail(f"{option.opts[0]} is given an empty value; leave it out, or give it a value.")
                if times > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag):
                    ctx.fail(f"{option.opts[0]} takes one value, but is given {times} times.")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own, of_all = [], []
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                if ctx.parent and parameter.name in Common.__dataclass_fields__:
                    of_all.append(parameter.opts[0])
                else:
                    own.append(record)
        with formatter.section("Options"):
            formatter.write_dl(own)
        if of_all:
            formatter.write_paragraph()
            formatter.write_text(f"Options of all commands: {', '.join(of_all)}; see: catalogue -h")
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def command() -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command with the common options."""
    return lambda function: click.command(cls=Command)(common(function))


class Group(Command, click.Group):
    """A group of ``Command``."""

    command_class = Command


class _Commands(Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with status 1
            return _closed_pipe()
        except KeyboardInterrupt:  # click would print an empty line
            return stopped()
        except EOFError as error:  # click would take it for a Ctrl-C
            return stopped() if signals else _print_error(error)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's method imports the modules of all commands for their help.
        names = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click compares only with imported commands.
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            as_pattern = f"{'query' if '*' in args[0] else 'get'} {args[0]}" if "." in args[0] else ""
            similar = SYNONYMS.get(args[0]) or closest_name(args[0], COMMANDS) or as_pattern
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {similar!r}?" if similar else ""))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        module = import_module(f"catalogue.cli.{COMMANDS[cmd_name]}")
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
    """Find captures in Common Crawl, and read archived pages.

    Each crawl has an index that lists its captures. Only the parts that can match are read, so a query needs no
    preparation.

    \b
    catalogue demo                                   try it offline, in a minute
    catalogue get https://example.com/ --text        the newest archived page
    catalogue query '*.example.com' --crawl latest   the captures of a site
    catalogue harvest --crawl latest                 make queries cheaper
    """


def run() -> int:
    """Run the command line and return the exit status; see ``catalogue.cli.main``."""
    _prepare_streams()
    gc.set_threshold(_GC_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts a thread per core, and no command needs them
    try:
        status = entry(standalone_mode=False, prog_name="catalogue")
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return stopped()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:  # noqa: BLE001 - users get no tracebacks
        return stopped() if signals else _status_of(error)
    return status if isinstance(status, int) else 0


def _status_of(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return _usage_error(error)
    if isinstance(error, BrokenPipeError):
        return _closed_pipe()
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        problem = "there is not enough memory, or no more threads may be started"
        return _print_error(OutOfMemory(f"{problem}; end other programs or raise the limit, and run it again"))
    if isinstance(error, UnicodeEncodeError) and "\udc80" <= error.object[error.start] <= "\udcff":
        near = error.object[max(0, error.start - 40) : error.end + 40]
        return _print_error(QueryError(f"{near!r} has bytes that are not text in this locale; use others"))
    if isinstance(error, OSError) and not isinstance(error, CatalogueError):
        free = room(error.filename, error) if error.filename else ""
        place = error.filename or "the output or the disk"
        return _print_error(DiskFailed(f"{place}: {error.strerror or error}{free}"))
    return _print_error(error)


_NO_MEMORY = re.compile(
    "can't start new thread|launch worker thread|Out of Memory Error|Cannot allocate memory|failed to map segment"
)
"""Messages of Python, Arrow, DuckDB and the operating system."""
_FULL_DISK = re.compile("No space left|disk is full|GB free there|[Qq]uota exceeded")
_CLOSED_PIPE = 141
"""128 plus SIGPIPE, which Windows does not define."""
_GC_OBJECTS = 100_000
"""New objects between searches for cycles; the default of 700 takes a sixth of the time of decoding."""


def _prepare_streams() -> None:
    """Open closed streams, and write UTF-8 to files and pipes in any locale, as all formats of captures are."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="replace")


def _closed_pipe() -> int:
    """Exit like a program stopped by SIGPIPE: no message, and nothing written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _CLOSED_PIPE


def _usage_error(error: click.ClickException) -> int:
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.NoSuchOption):
        similar = SYNONYMS.get(error.option_name)
        if not error.ctx or similar not in {opt for each in error.ctx.command.params for opt in each.opts}:
            near = closest_name(error.option_name.lstrip("-"), (each.lstrip("-") for each in error.possibilities or ()))
            similar = near and f"--{near}"
        tip = f" Did you mean {similar!r}?" if similar else ""
        error = click.UsageError(f"No such option {error.option_name!r}.{tip}", error.ctx)
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx and not message.endswith("?"):
        message = f"{message.removesuffix('.')}; see: {error.ctx.command_path} --help"
    echo(printable(f"catalogue: {message}"), err=True)
    return error.exit_code


def _print_error(error: Exception) -> int:
    if "--verbose" in sys.argv or "-v" in sys.argv:
        traceback.print_exc()
    if isinstance(error, CatalogueError):
        is_full = _FULL_DISK.search(str(error)) and "make room" not in str(error)
        warn(f"{error}; make room and run the same command again" if is_full else f"{error}")
        return error.exit_status
    what = printable(f"{type(error).__name__}: {error}".splitlines()[0])
    echo(f"catalogue: internal error ({what}); -v prints the traceback, please report it", err=True)
    return os.EX_SOFTWARE if hasattr(os, "EX_SOFTWARE") else 70
