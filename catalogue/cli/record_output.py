"""Records that a command found, kept as a file."""

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from catalogue.cli.app import Common, warn
from catalogue.cli.budget import Leave, told
from catalogue.cli.tables import as_json, harvest_bar, table
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.formatting import parse_size, plural, size
from catalogue.progress import Progress

FORMS = ["warc", "text", "metadata", "parquet", "payload"]
_HOSTS = 10

_OPTIONS = [
    click.option("--main-content", is_flag=True, help="Of texts, leave out navigation, footers and the like."),
    click.option(
        "--max-size", metavar="SIZE", help="Begin another file after so much, such as 1GB, which is usual for URLs."
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Let the workers of a Dask cluster fetch, as tcp://host:8786."),
]


def with_keeping(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options about records, but for their form and where they go."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Keep:
    """How records are to be kept, and where."""

    output: str | None
    """None to say what it would take, and fetch nothing; ``-`` for stdout."""
    form: str
    main_content: bool
    max_size: str | None

    def check(self, *, json_: bool) -> None:
        """Refuse what does not go together.

        Raises:
            QueryError: if something does not.
        """
        if self.main_content and self.form not in {"text", "parquet"}:
            message = f"--main-content is of texts, and {self.form} has none; leave it out, or fetch text"
            raise QueryError(message)
        if self.output is None:
            return
        if self.output == "-":
            self._check_stdout(json_=json_)
            return
        if self.form == "payload" and self.max_size:
            message = "payloads are a file each; leave out --max-size"
            raise QueryError(message)
        from catalogue.output.formats import SUFFIXES  # noqa: PLC0415 - --help needs none of what this imports
        from catalogue.output.targets import split_output  # noqa: PLC0415 - --help needs none of what this imports

        split_output(self.output, file=self.form != "payload")
        if self.max_size is not None and not parse_size(self.max_size):
            message = "--max-size must be a byte at least; give another, such as 1GB"
            raise QueryError(message)
        taken = [suffix for suffix in SUFFIXES.values() if suffix and self.output.endswith(suffix)]
        if self.form == "payload" and taken:
            message = f"payloads go to a folder, and {self.output} looks like a file; choose another name or form"
            raise QueryError(message)
        suffix = SUFFIXES[self.form]
        if not self.output.endswith(suffix):
            message = f"{self.output} would hold {self.form}; let its name end in {suffix}, or choose another form"
            raise QueryError(message)

    def _check_stdout(self, *, json_: bool) -> None:
        if self.max_size or json_:
            message = "stdout gets records and nothing else, in one piece; leave out --max-size and --json"
            raise QueryError(message)
        if self.form == "warc" and sys.stdout.isatty():
            message = "WARC records are no text for a terminal; add -o FILE"
            raise QueryError(message)

    def records(
        self,
        options: Common,
        catalogue: Any,  # noqa: ANN401 - importing its type is slow
        captures: Any,  # noqa: ANN401 - likewise
        leave: Leave,
        *,
        about: str,
        json_: bool,
    ) -> bool:
        """Fetch the records of captures; returns whether all could be had. Without an output, say what it takes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteAnswer)  # said below, and by the exit status
            if self.output is None:
                _show_estimate(catalogue.fetch_estimate(captures), json_=json_)
                return True

            def agree(needed: Any) -> None:  # noqa: ANN401 - importing its type is slow
                leave.agree(needed)
                if needed.captures and sys.stderr.isatty():
                    options.say(f"{plural(needed.captures, 'record')}: {told(needed)}")

            with ExitStack() as shown:
                bar: Any = None

                def report(at: Any) -> None:  # noqa: ANN401 - importing its type is slow
                    nonlocal bar  # which is not there before the user has agreed: both would write over each other
                    bar = bar or shown.enter_context(harvest_bar(options, "records"))
                    bar(Progress("fetch", captures.num_rows, at.records, failed=len(at.failed), bytes=at.bytes))

                done = catalogue.fetch(
                    captures,
                    sys.stdout.buffer if self.output == "-" else self.output,
                    form=self.form,
                    main_content=self.main_content,
                    most=parse_size(self.max_size) if self.max_size else None,
                    about=about,
                    agree=agree,
                    report=report,
                )
        _show_done(options, done, "" if self.output == "-" else "; no file was written", json_=json_)
        return not (done.failed or done.unusable)


def form_of(output: str | None) -> str:
    """The form that an output's name means; see ``format_of``."""
    from catalogue.output.open_output import format_of  # noqa: PLC0415 - --help needs none of what this imports

    return "warc" if output in {None, "-"} else format_of(output)


def columns_of_records() -> list[str]:
    """The columns that a record is found by."""
    from catalogue.commoncrawl.capture import RECORD_COLUMNS  # noqa: PLC0415 - --help needs none of what this imports

    return [*RECORD_COLUMNS]


def _show_estimate(needed: Any, *, json_: bool) -> None:  # noqa: ANN401 - importing its type is slow
    if json_:
        as_json(
            {
                "captures": needed.captures,
                "requests": needed.requests,
                "bytes": needed.bytes,
                "seconds": round(needed.seconds, 1),
                "hosts": needed.hosts,
            }
        )
        return
    table(
        ["captures", "requests", "bytes", "seconds"],
        [[needed.captures, needed.requests, size(needed.bytes), f"{needed.seconds:.1f}"]],
    )
    if needed.hosts:
        click.echo()
        hosts = list(needed.hosts.items())
        table(["host", "captures"], hosts[:_HOSTS])
        if len(hosts) > _HOSTS:
            click.echo(f"and {len(hosts) - _HOSTS:,} more")


def _show_done(options: Common, done: Any, otherwise: str, *, json_: bool) -> None:  # noqa: ANN401 - likewise
    if json_:
        failures = [{"filename": f, "offset": o, "reason": r} for (f, o), r in done.failed.items()]
        as_json(
            {
                "records": done.records,
                "others": done.others,
                "bytes": done.bytes,
                "files": done.files,
                "failed": failures,
                "unusable": done.unusable,
            }
        )
        return
    where = f" in {', '.join(done.files)}" if done.files else otherwise
    others = f", which has {done.others:,} of other queries, too" if done.others else ""
    options.say(f"{plural(done.records, 'record')}{where}{others}")
    for reason in [*done.failed.values(), *done.unusable]:
        warn(f"not fetched: {reason}")
