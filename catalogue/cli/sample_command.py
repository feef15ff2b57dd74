"""Random samples of captures."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from catalogue.cli.app import Command, Common, OneOf, common, warn
from catalogue.cli.budget import Leave, told, with_leave
from catalogue.cli.completion import columns
from catalogue.cli.query_commands import FORMATS, found_by, harvest_first, population, prepared, show_plan
from catalogue.cli.record_output import FORMS, Keep, columns_of_records, with_keeping
from catalogue.cli.tables import as_json
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.formatting import plural


@click.command(cls=Command)
@population
@click.option("-n", "--size", type=click.IntRange(min=1), required=True, help="How many captures.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same gives the same sample.")
@click.option(
    "--per", metavar="host|domain|COLUMN", shell_complete=columns, help="No more of each of these than --max."
)
@click.option("--max", "most", type=click.IntRange(min=1), help="See --per.  [default: 1]")
@click.option(
    "--format",
    "format_",
    type=OneOf(FORMATS),
    help="Of captures.  [default: by -o; else table on a terminal, jsonl in a pipe]",
)
@click.option("--fetch", "form", type=OneOf(FORMS), help="Instead of captures their records, as by fetch.")
@click.option("-o", "--output", help="The file to write, or - for stdout.")
@with_keeping
@click.option("--dry-run", is_flag=True, help="Only say what its first round would read.")
@harvest_first
@with_leave
@click.option("--json", "json_", is_flag=True, help="With --fetch or --dry-run one JSON object.")
@common
def sample(  # noqa: PLR0913 - an option each
    options: Common,
    *,
    size: int,
    seed: int,
    per: str | None,
    most: int | None,
    format_: str | None,
    form: str | None,
    output: str | None,
    main_content: bool,
    max_size: str | None,
    scheduler: str | None,
    dry_run: bool,
    leave: Leave,
    json_: bool,
    **asked: Any,  # noqa: ANN401
) -> None:
    """A random sample of captures, each as likely as any other, or of their records.

    Rows are drawn from all that there are, and those that do not match make room for others. The smaller of two samples
    is the beginning of the larger one. Without a pattern it is of everything.

    \b
    catalogue sample -n 1000 --crawl CC-MAIN-2022-05 -o sample.parquet
    catalogue sample -n 100 '*.is' --status 200 --seed 7
    catalogue sample -n 500 --crawl latest --per host --max 5     no host more than five times
    catalogue sample -n 100 --crawl latest --status 200 --fetch warc -o sample.warc.gz
    """  # noqa: D301
    from catalogue.cli.row_writer import format_for, write  # noqa: PLC0415 - --help needs none of what this imports

    if most is not None and per is None:
        message = "--max limits the captures of one --per; add --per host, or leave out --max"
        raise QueryError(message)
    keep = Keep(output, form, main_content, max_size) if form else None
    output = None if output == "-" else output
    fetching = bool(main_content or max_size or scheduler)
    _check(keep, asked, fetching=fetching, listed=bool(format_), dry_run=dry_run, json_=json_)
    chosen = "" if keep or dry_run else format_for(format_, Path(output) if output else None)
    everything = not (asked["patterns"] or asked["urls_files"])
    asked = prepared(asked)
    asked |= {"columns": columns_of_records()} if keep else {}
    asked |= {"columns": ["url"]} if chosen == "url" and not asked["columns"] else {}
    asked |= {"patterns": ["*"]} if everything else {}
    with options.opened(scheduler=scheduler) as catalogue, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteAnswer)  # said below, and by the exit status
        drawn = catalogue.sample(found_by(catalogue, options, asked, leave), size, seed=seed, per=per, most=most or 1)
        if dry_run:
            _show_cost(drawn, json_=json_)
            return
        batches = drawn.batches(_agreement(options, drawn, catalogue, leave))
        if keep:
            import pyarrow as pa  # noqa: PLC0415 - --help needs none of what this imports

            captures = pa.Table.from_batches(batches, drawn.schema)
            about = f"a sample of {' '.join([*asked['patterns'], *asked['crawls']])}, seed {seed}"
            left = leave.after(catalogue.requests, catalogue.bytes)
            whole = keep.records(options, catalogue, captures, left, about=about, json_=json_)
        else:
            columns = bool(asked["columns"]) or options.table is not None
            write(batches, drawn.schema, chosen, Path(output) if output else None, chosen_columns=columns)
            options.say(f"{plural(drawn.found, 'capture')}" + (f" in {output}" if output else ""))
            whole = True
    if drawn.found < drawn.size:
        among = f"among all {plural(drawn.rows, 'row')}"
        warn(f"only {drawn.found:,} of {plural(drawn.size, 'capture')} were found, {among}")
    for lack in drawn.missing:
        warn(f"it is no sample of all that was asked for: {lack}")
    if not (whole and drawn.complete):
        sys.exit(1)


def _check(
    keep: Keep | None, asked: dict[str, Any], *, fetching: bool, listed: bool, dry_run: bool, json_: bool
) -> None:
    """Refuse what does not go together."""
    refused = {
        "--main-content, --max-size and --scheduler go with --fetch": fetching and not keep,
        "--format is of captures, and --fetch keeps their records; leave out one of the two": keep and listed,
        "--columns are of captures, and --fetch keeps whole records; leave out one of the two": keep
        and asked["columns"],
        "where are the records to go? say it with -o, such as -o sample.warc.gz": keep
        and keep.output is None
        and not dry_run,
        "--json goes with --fetch or --dry-run; for the captures as JSON lines say --format jsonl": json_
        and not (keep or dry_run),
    }
    for message, is_so in refused.items():
        if is_so:
            raise QueryError(message)
    if keep:
        keep.check(json_=json_)


def _show_cost(drawn: Any, *, json_: bool) -> None:  # noqa: ANN401 - importing its type is slow
    plan = replace(drawn.plan, missing=drawn.missing)
    if json_:
        as_json(plan.summary())
    else:
        show_plan(plan)
    if drawn.rows < drawn.size:
        warn(f"there are only {plural(drawn.rows, 'row')} to draw from")
    if drawn.missing or drawn.rows < drawn.size:
        sys.exit(1)


def _agreement(options: Common, drawn: Any, catalogue: Any, leave: Leave) -> Any:  # noqa: ANN401 - importing their types is slow
    """Asks the user when it takes more than was agreed to, and on a terminal tells how far it is."""
    allowed = leave

    def agree(plan: Any) -> None:  # noqa: ANN401 - likewise
        nonlocal allowed
        made, received = catalogue.requests, catalogue.bytes
        so_far = f"{drawn.found:,} of {plural(drawn.size, 'capture')} are found"
        if not allowed.covers(made + plan.requests, received + plan.bytes):
            leave.confirm(told(plan) + (f" more, beside {plural(made, 'request')} made; {so_far}" if made else ""))
            allowed = replace(leave, max_requests=2 * (made + plan.requests), max_bytes=2 * (received + plan.bytes))
        if sys.stderr.isatty() and not plan.indexes:
            options.say(f"{so_far}; looking at {plural(plan.rows, 'row')}: {told(plan)}")

    return agree
