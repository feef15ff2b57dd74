"""Output of records, for ``fetch`` and ``sample --fetch``."""

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.app import Common, warn
from catalogue.cli.budget import Budget, format_cost
from catalogue.cli.tables import as_json, harvest_bar, table
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.formatting import parse_size, plural, size
from catalogue.progress import Progress, Report

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.catalogue import Catalogue
    from catalogue.output.fetch import Fetched, FetchEstimate

FORMS = ["warc", "text", "metadata", "parquet", "payload"]
_HOSTS = 10

_OPTIONS = [
    click.option("--main-content", is_flag=True, help="Leave out navigation, footers and the like from texts."),
    click.option("--max-size", metavar="SIZE", help="Start another file at this size.  [default for URLs: 1GB]"),
    click.option(
        "--scheduler", metavar="ADDRESS", help="Fetch with the workers of a Dask cluster, such as tcp://host:8786."
    ),
]


def record_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of record output to a command, except form and output."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class RecordOutput:
    """Where records are written, and how."""

    output: str | None
    """None to print the cost and fetch nothing; ``-`` for stdout."""
    form: str
    main_content: bool
    max_size: str | None

    def check(self, *, json_: bool) -> None:
        if self.main_content and self.form not in {"text", "parquet"}:
            raise QueryError(f"{self.form} has no texts; leave out --main-content, or fetch text")
        if self.output is None:
            return
        if self.output == "-":
            self._check_stdout(json_=json_)
            return
        if self.form == "payload" and self.max_size:
            raise QueryError("each payload is a file; leave out --max-size")
        from catalogue.output.formats import SUFFIXES
        from catalogue.output.targets import split_output

        split_output(self.output, file=self.form != "payload")
        if self.max_size is not None and not parse_size(self.max_size):
            raise QueryError("--max-size must not be 0; use one such as 1GB")
        of_files = [suffix for suffix in SUFFIXES.values() if suffix and self.output.endswith(suffix)]
        if self.form == "payload" and of_files:
            message = f"payloads are written to a folder; {self.output} looks like a file"
            raise QueryError(message)
        suffix = SUFFIXES[self.form]
        if not self.output.endswith(suffix):
            message = f"the name of a file with {self.form} ends in {suffix}; {self.output} does not"
            raise QueryError(message)

    def _check_stdout(self, *, json_: bool) -> None:
        if self.max_size or json_:
            raise QueryError("with stdout as output, leave out --max-size and --json")
        if self.form == "warc" and sys.stdout.isatty():
            raise QueryError("WARC records cannot be printed on a terminal; add -o FILE")

    def fetch(
        self,
        options: Common,
        catalogue: "Catalogue",
        captures: "pa.Table",
        budget: Budget,
        *,
        about: str,
        json_: bool,
    ) -> bool:
        """Fetch records, and return whether none failed. Without an output, print the cost."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteAnswer)  # printed below
            if self.output is None:
                _show_estimate(catalogue.fetch_estimate(captures), json_=json_)
                return True

            def agree(needed: "FetchEstimate") -> None:
                budget.check(needed)
                if needed.captures and sys.stderr.isatty():
                    options.say(f"{plural(needed.captures, 'record')}: {format_cost(needed)}")

            with ExitStack() as stack:
                bar: Report | None = None

                def report(at: "Fetched") -> None:
                    nonlocal bar  # opened after the confirmation, which it would overwrite
                    bar = bar or stack.enter_context(harvest_bar(options, "records"))
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
        _show_result(options, done, "" if self.output == "-" else "; no file was written", json_=json_)
        return not (done.failed or done.unusable)


def form_of(output: str | None) -> str:
    from catalogue.output.open_output import format_of

    return "warc" if output in {None, "-"} else format_of(output)


def record_columns() -> list[str]:
    from catalogue.commoncrawl.capture import RECORD_COLUMNS

    return [*RECORD_COLUMNS]


def _show_estimate(needed: "FetchEstimate", *, json_: bool) -> None:
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


def _show_result(options: Common, done: "Fetched", otherwise: str, *, json_: bool) -> None:
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
    others = f", which also has {done.others:,} of other queries" if done.others else ""
    options.say(f"{plural(done.records, 'record')}{where}{others}")
    for reason in [*done.failed.values(), *done.unusable]:
        warn(f"not fetched: {reason}")
