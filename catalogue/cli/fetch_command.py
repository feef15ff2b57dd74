"""``catalogue fetch``."""

import sys
import warnings
from dataclasses import replace
from typing import Any, BinaryIO

import click

from catalogue.cli.app import Command, Common, OneOf, common, warn
from catalogue.cli.budget import Budget, budget_options
from catalogue.cli.query_commands import harvest_option, query_options, read_patterns, select_captures
from catalogue.cli.record_output import FORMS, RecordOutput, form_of, record_columns, record_options
from catalogue.cli.tables import options_given
from catalogue.errors import IncompleteAnswer, QueryError


@click.command(cls=Command)
@query_options
@click.option(
    "--captures",
    "file",
    type=click.File("rb"),
    help="Fetch the captures of a file instead: JSON lines, CDXJ, CSV, Parquet; - for stdin.",
)
@click.option(
    "-o", "--output", help="The file to write, such as found.warc.gz or s3://bucket/found.jsonl; - for stdout."
)
@click.option(
    "--format",
    "form",
    type=OneOf(FORMS),
    help="Complete records; JSON lines of text or metadata; a table with texts; or a folder of payloads.  "
    "[default: by -o, where .jsonl means text; else warc]",
)
@record_options
@click.option("--dry-run", is_flag=True, help="Print the cost, and fetch nothing.")
@harvest_option
@budget_options
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def fetch(  # noqa: PLR0913 - an option each
    options: Common,
    *,
    file: BinaryIO | None,
    output: str | None,
    form: str | None,
    main_content: bool,
    max_size: str | None,
    scheduler: str | None,
    dry_run: bool,
    budget: Budget,
    json_: bool,
    **parameters: Any,
) -> None:
    """Fetch the archived records of captures as WARC, or their text, metadata or payloads.

    Every record is compared with the index. A ledger next to the output lists its records: after an interruption, the
    same command fetches only the missing ones.

    \b
    catalogue fetch '*.example.com' --crawl latest --dry-run
    catalogue fetch '*.example.com' --crawl latest --status 200 -o example.warc.gz
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
    if output is None and not dry_run:
        raise QueryError("no output; add one, such as -o found.warc.gz")
    if parameters["columns"]:
        raise QueryError("fetch writes complete records; leave out --columns")
    records = RecordOutput(output, form or form_of(output), main_content, max_size)
    records.check(json_=json_)
    records = replace(records, output=None if dry_run else output)
    parameters = read_patterns(parameters)
    with options.opened(scheduler=scheduler) as catalogue:
        missing: tuple[str, ...] = ()
        if file:
            from catalogue.cli.capture_input import captures_in

            rows = captures_in(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IncompleteAnswer)  # printed below
                captures = select_captures(catalogue, options, parameters | {"columns": record_columns()}, budget)
                captures = budget.approve(captures, options)
                rows, missing = captures.to_arrow(), captures.plan.missing
        about = " ".join([*parameters["patterns"], *parameters["crawls"]]) or (file.name if file else "")
        remaining = budget.after(catalogue.requests, catalogue.bytes)
        complete = records.fetch(options, catalogue, rows, remaining, about=f"captures of {about}", json_=json_)
    for problem in missing:
        warn(f"the captures may be incomplete: {problem}")
    if missing or not complete:
        sys.exit(1)
