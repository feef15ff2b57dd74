"""``catalogue fetch``, and the output of records for ``sample --fetch``."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import report_incomplete
from catalogue.cli.options import (
    RECORD_FORMATS,
    Budget,
    OneOf,
    budget_options,
    combine,
    harvest_option,
    json_option,
    query_options,
    scheduler_option,
)
from catalogue.cli.process import resumable
from catalogue.cli.select_captures import read_patterns, select_captures
from catalogue.cli.tables import as_json, options_given, table
from catalogue.errors import QueryError
from catalogue.formatting import format_cost, parse_size, plural, size

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.catalogue import Catalogue
    from catalogue.output.fetch import FetchEstimate
    from catalogue.output.ledger import RecordKey

_HOSTS = 10
_record_options = combine(
    click.option("--main-content", is_flag=True, help="Leave navigation, page footers and the like out of texts."),
    click.option(
        "--max-size",
        metavar="SIZE",
        help="Start a new file at this size.  [default: none; 1GB for s3:// and other remote outputs]",
    ),
    scheduler_option,
)


@dataclass(frozen=True)
class RecordOutput:
    """The place and the form of the records that a command writes."""

    output: str | None
    """None to print the cost and fetch nothing; ``-`` for stdout."""
    form: str
    """Empty if captures are written instead."""
    main_content: bool
    max_size: str | None
    missing: tuple[str, ...] = ()
    """Sentences about captures that may be missing."""

    @property
    def most(self) -> int | None:
        """Approximate bytes of a file."""
        return None if self.max_size is None else parse_size(self.max_size)

    def check(self, *, json_: bool) -> None:
        from catalogue.output.formats import FormatSpec
        from catalogue.output.open_output import check_output

        FormatSpec(self.form, self.main_content)
        if self.output == "-":
            if self.max_size or json_:
                raise QueryError("with stdout as output, leave out --max-size and --json")
            if self.form == "warc" and sys.stdout.isatty():
                raise QueryError("WARC records cannot be printed on a terminal; add -o FILE")
        elif self.output is not None:
            check_output(self.output, self.form, self.most)

    def fetch(
        self, options: Common, catalogue: "Catalogue", captures: "pa.Table", budget: Budget, *, about: str, json_: bool
    ) -> bool:
        """Fetch records with the rest of the budget; return whether none failed. Without an output, print the cost."""
        if self.output is None:
            _show_estimate(catalogue.fetch_estimate(captures), json_=json_)
            return True
        remaining = budget.after(catalogue.requests, catalogue.bytes)

        def agree(needed: "FetchEstimate") -> None:
            remaining.check(needed)
            if needed.captures and sys.stderr.isatty():
                options.say(f"{plural(needed.captures, 'record')}: {format_cost(needed)}")

        with resumable():
            done = catalogue.fetch(
                captures,
                sys.stdout.buffer if self.output == "-" else self.output,
                form=self.form,
                main_content=self.main_content,
                most=self.most,
                about=about,
                agree=agree,
            )
        if json_:
            reasons = {"failed": _reasons(done.failed), "undecoded": _reasons(done.undecoded)}
            as_json(asdict(done) | reasons | {"missing": self.missing})
        else:
            folder = (self.output or "").rstrip("/").removesuffix(Path(self.output or "").name)
            where = (
                f" in {', '.join(f'{folder}{name}' for name in done.files)}"
                if done.files
                else "; no file was written" * (self.output != "-")
            )
            others = f", which also has {done.others:,} of other queries" if done.others else ""
            options.say(f"{plural(done.records, 'record')}{where}{others}")
            report_incomplete("not fetched", [*done.failed.values(), *done.unusable])
            report_incomplete("not decoded", done.undecoded.values())
        return not (done.failed or done.unusable or done.undecoded)


def _reasons(failed: Mapping["RecordKey", str]) -> list[dict[str, object]]:
    return [{"filename": archive, "offset": offset, "reason": reason} for (archive, offset), reason in failed.items()]


def record_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def with_records(
        *args: Any, output: str | None, form: str | None, main_content: bool, max_size: str | None, **options: Any
    ) -> Any:
        return command(*args, records=RecordOutput(output, form or "", main_content, max_size), **options)

    return _record_options(with_records)


@command()
@query_options()
@click.option(
    "--captures",
    "file",
    type=click.File("rb"),
    help="Fetch the captures in this file: JSON lines, CDXJ, CDX, CSV or Parquet; - for stdin.",
)
@click.option(
    "-o", "--output", help="The file to write, such as found.warc.gz or s3://bucket/found.jsonl; - for stdout."
)
@click.option(
    "--format",
    "form",
    type=OneOf(RECORD_FORMATS),
    help="warc: complete records. text, metadata: JSON lines. parquet: a table with texts. payload: a folder.  "
    "[default: by -o, where .jsonl means text; else warc]",
)
@record_options
@click.option("--dry-run", is_flag=True, help="Print the cost, and fetch nothing.")
@harvest_option
@budget_options
@json_option
def fetch(
    options: Common,
    *,
    file: BinaryIO | None,
    records: RecordOutput,
    scheduler: str | None,
    dry_run: bool,
    budget: Budget,
    json_: bool,
    **parameters: Any,
) -> int:
    """Fetch archived pages as WARC, text, metadata or payloads.

    Each record is checked against the index. A ledger next to the output lists the finished records, so after an
    interruption the same command fetches only the missing ones.

    \b
    catalogue fetch '*.example.com' --crawl latest --dry-run
    catalogue fetch '*.example.com' --crawl latest -o example.warc.gz
    catalogue fetch 'example.com/blog/*' --crawl latest --main-content -o blog.jsonl
    catalogue fetch 'example.com/blog/*' --crawl latest --format text -o -
    catalogue fetch '*.example.com' --mime application/pdf --format payload -o documents
    catalogue query '*.is' --where "content_languages = 'isl'" | catalogue fetch --captures - -o isl.warc.gz
    catalogue fetch --urls-file domains.txt --crawl latest --latest -o s3://bucket/copy/pages.warc.gz --yes
    """
    if bool(parameters["patterns"] or parameters["urls_files"]) is bool(file):
        raise QueryError("use either patterns or --captures")
    if file and (ignored := options_given(parameters)):
        raise QueryError(f"--captures names the captures to fetch; leave out {', '.join(ignored)}")
    if records.output is None and not dry_run:
        raise QueryError("no output; add one, such as -o found.warc.gz")
    if dry_run and parameters["harvest"]:
        raise QueryError("use either --harvest or --dry-run")
    if parameters["columns"]:
        raise QueryError("fetch writes complete records; leave out --columns")
    if not records.form:
        from catalogue.output.open_output import format_of

        form = "warc" if records.output in {None, "-"} else format_of(records.output)
        records = replace(records, form=form)
    records.check(json_=json_)
    records = replace(records, output=None if dry_run else records.output)
    parameters = read_patterns(parameters)
    with options.opened(scheduler=scheduler) as catalogue:
        missing: tuple[str, ...] = ()
        if file:
            from catalogue.cli.input_files import captures_in

            rows = captures_in(file)
        else:
            captures = select_captures(
                catalogue, options, parameters | {"columns": record_columns(catalogue, records.form)}, budget
            )
            rows, missing = budget.approve(captures, options).to_arrow(), captures.plan.missing
            options.note(captures.plan.warnings)
        about = " ".join([*parameters["patterns"], *parameters["crawls"]]) or (file.name if file else "")
        records = replace(records, missing=missing)
        complete = records.fetch(options, catalogue, rows, budget, about=f"captures of {about}", json_=json_)
    return report_incomplete("the captures may be incomplete", missing) or int(not complete)


def record_columns(catalogue: "Catalogue", form: str) -> list[str]:
    """Return the columns that locate records and, if payloads are decoded, describe these; of other datasets, some."""
    from catalogue.commoncrawl.capture import PAYLOAD_COLUMNS, RECORD_COLUMNS

    names = [*RECORD_COLUMNS, *(PAYLOAD_COLUMNS if form != "warc" else ())]
    stored = names if catalogue.session.dataset_name is None else catalogue.session.metadata().columns()
    return [name for name in names if name in stored or name.startswith("warc_")]


def _show_estimate(needed: "FetchEstimate", *, json_: bool) -> None:
    if json_:
        as_json(asdict(needed) | {"seconds": round(needed.seconds, 1)})
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
