"""Commands that fetch the pages themselves."""

import sys
import warnings
from dataclasses import replace
from typing import Any, BinaryIO

import click

from catalogue.cli.app import Command, Common, OneOf, common, warn
from catalogue.cli.budget import Leave, with_leave
from catalogue.cli.query_commands import found_by, harvest_first, prepared, question
from catalogue.cli.record_output import FORMS, Keep, columns_of_records, form_of, with_keeping
from catalogue.cli.tables import options_given
from catalogue.errors import IncompleteAnswer, QueryError


@click.command(cls=Command)
@question
@click.option(
    "--captures",
    "file",
    type=click.File("rb"),
    help="Instead of a pattern: JSON lines, CDXJ, CSV, Parquet; - for stdin.",
)
@click.option(
    "-o", "--output", help="The file to write, such as found.warc.gz or s3://bucket/found.jsonl; - for stdout."
)
@click.option(
    "--format",
    "form",
    type=OneOf(FORMS),
    help="Records as archived; JSON lines of text or metadata; a table with texts; or a folder of payloads.  "
    "[default: by -o, where .jsonl means text; else warc]",
)
@with_keeping
@click.option("--dry-run", is_flag=True, help="Only say what it would take.")
@harvest_first
@with_leave
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
    leave: Leave,
    json_: bool,
    **asked: Any,  # noqa: ANN401
) -> None:
    """The archived records of captures, as WARC, or their text, metadata or payloads.

    Every record is checked against the index. It can be stopped at any time; the same again goes on from there, and
    fetches only what is missing: a ledger beside the output notes what is safely in it.

    \b
    catalogue fetch '*.example.com' --crawl latest --dry-run
    catalogue fetch '*.example.com' --crawl latest --status 200 -o example.warc.gz
    catalogue fetch 'example.com/blog/*' --crawl latest --main-content -o blog.jsonl
    catalogue fetch 'example.com/blog/*' --crawl latest --format text -o -
    catalogue fetch '*.example.com' --mime application/pdf --format payload -o documents
    catalogue query '*.is' --where "content_languages = 'isl'" | catalogue fetch --captures - -o isl.warc.gz
    catalogue fetch --urls-file domains.txt --crawl latest --latest -o s3://bucket/copy/pages.warc.gz --yes
    """  # noqa: D301
    if bool(asked["patterns"] or asked["urls_files"]) is bool(file):
        message = "what is to be fetched? give either patterns or --captures"
        raise QueryError(message)
    if file and (ignored := options_given(asked)):
        message = f"--captures names the captures to fetch; leave out {', '.join(ignored)}"
        raise QueryError(message)
    if output is None and not dry_run:
        message = "where are the records to go? say it with -o, such as -o found.warc.gz"
        raise QueryError(message)
    if asked["columns"]:
        message = "--columns are of captures, and fetch keeps whole records; leave it out"
        raise QueryError(message)
    keep = Keep(output, form or form_of(output), main_content, max_size)
    keep.check(json_=json_)
    keep = replace(keep, output=None if dry_run else output)
    asked = prepared(asked)
    with options.opened(scheduler=scheduler) as catalogue:
        missing: tuple[str, ...] = ()
        if file:
            from catalogue.cli.capture_input import captures_in  # noqa: PLC0415 - --help needs none of what this imports

            rows = captures_in(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IncompleteAnswer)  # said below, and by the exit status
                found = found_by(catalogue, options, asked | {"columns": columns_of_records()}, leave)
                found = leave.given(found, options)
                rows, missing = found.to_arrow(), found.plan.missing
        about = " ".join([*asked["patterns"], *asked["crawls"]]) or (file.name if file else "")
        left = leave.after(catalogue.requests, catalogue.bytes)
        whole = keep.records(options, catalogue, rows, left, about=f"captures of {about}", json_=json_)
    for lack in missing:
        warn(f"the captures may be incomplete: {lack}")
    if missing or not whole:
        sys.exit(1)
