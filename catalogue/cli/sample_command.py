"""``catalogue sample``."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.app import Common, command
from catalogue.cli.fetch_command import RecordOutput, record_columns, record_options
from catalogue.cli.messages import report_incomplete, warn
from catalogue.cli.options import (
    CAPTURE_FORMATS,
    RECORD_FORMATS,
    Budget,
    Number,
    OneOf,
    budget_options,
    complete_columns,
    format_for,
    harvest_option,
    query_options,
)
from catalogue.cli.select_captures import read_patterns, select_captures
from catalogue.cli.tables import as_json, show_plan
from catalogue.commoncrawl.crawls import COLUMNAR
from catalogue.errors import QueryError
from catalogue.formatting import format_cost, plural

if TYPE_CHECKING:
    from catalogue.catalogue import Catalogue
    from catalogue.plan.plan import ReadPlan
    from catalogue.sample import Sample


@command()
@query_options("limit", "unique", "latest", "ordered", "index")
@click.option("-n", "--size", type=Number(min=1), required=True, help="Number of captures.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed draws the same sample.")
@click.option(
    "--per",
    metavar="host|domain|COLUMN",
    shell_complete=complete_columns,
    help="Draw at most --max captures of each host, domain or value.",
)
@click.option("--max", "most", type=Number(min=1), help="With --per: maximum number of captures of each.  [default: 1]")
@click.option(
    "--format",
    "format_",
    type=OneOf(CAPTURE_FORMATS),
    help="Format of captures.  [default: the suffix of -o; without it table on a terminal, jsonl in a pipe]",
)
@click.option("--fetch", "form", type=OneOf(RECORD_FORMATS), help="Write the records of the captures, as fetch does.")
@click.option("-o", "--output", help="The file to write, or - for stdout.")
@record_options
@click.option("--dry-run", is_flag=True, help="Print the cost of the first round, and read nothing.")
@harvest_option
@budget_options
@click.option("--json", "json_", is_flag=True, help="One JSON object, with --fetch or --dry-run.")
def sample(
    options: Common,
    *,
    format_: str | None,
    records: RecordOutput,
    scheduler: str | None,
    dry_run: bool,
    budget: Budget,
    json_: bool,
    **parameters: Any,
) -> int:
    """Draw a uniform random sample of captures or records.

    Each capture that matches is equally likely. Without patterns, the sample is drawn from all captures. With the same
    seed, a smaller sample is the start of a larger one. The crawls must be harvested.

    \b
    catalogue sample -n 1000 --crawl CC-MAIN-2022-05 -o sample.parquet
    catalogue sample -n 100 '*.is' --seed 7
    catalogue sample -n 500 --crawl 2022-05 --per host --max 5  at most 5 a host
    catalogue sample -n 100 --crawl 2022-05 --lang isl --fetch text -o texts.jsonl
    """
    from catalogue.cli.row_writer import write

    fetching = bool(records.form)
    drawing = {name: parameters.pop(name) for name in ("size", "seed", "per", "most")}
    refused = {
        "--max needs --per, such as --per host": drawing["most"] is not None and drawing["per"] is None,
        "--main-content, --max-size and --scheduler need --fetch": not fetching
        and (records.main_content or records.max_size or scheduler),
        "leave out --format or --fetch": fetching and format_,
        "use either --harvest or --dry-run": parameters["harvest"] and dry_run,
        "leave out --columns or --fetch": fetching and parameters["columns"],
        "no output; add one, such as -o sample.warc.gz": fetching and records.output is None and not dry_run,
        "--json needs --fetch or --dry-run; for captures as JSON lines use --format jsonl": json_
        and not (fetching or dry_run),
    }
    for message, applies in refused.items():
        if applies:
            raise QueryError(message)
    if fetching:
        records.check(json_=json_)
    path = Path(records.output) if records.output not in {None, "-"} else None
    chosen = "" if fetching or dry_run else format_for(format_, path)
    everything = not (parameters["patterns"] or parameters["urls_files"])
    parameters = read_patterns(parameters) | {"index": COLUMNAR}
    parameters |= {"columns": ["url"]} if chosen == "url" and not parameters["columns"] else {}
    parameters |= {"patterns": ["*"]} if everything else {}
    with options.opened(scheduler=scheduler) as catalogue:
        parameters |= {"columns": record_columns(catalogue, records.form)} if fetching else {}
        captures = select_captures(catalogue, options, parameters, budget)
        drawn = catalogue.sample(captures, **drawing | {"most": drawing["most"] or 1})
        if dry_run:
            return _show_cost(drawn, json_=json_)
        batches = drawn.batches(_confirmation(options, drawn, catalogue, budget))
        if fetching:
            import pyarrow as pa

            rows = pa.Table.from_batches(batches, drawn.schema)
            about = f"a sample of {' '.join([*parameters['patterns'], *parameters['crawls']])}, seed {drawing['seed']}"
            records = replace(records, missing=drawn.missing)
            complete = records.fetch(options, catalogue, rows, budget, about=about, json_=json_)
        else:
            columns = bool(parameters["columns"]) or options.table is not None
            write(batches, drawn.schema, chosen, path, chosen_columns=columns)
            options.say(f"{plural(drawn.found, 'capture')}" + (f" in {path}" if path else ""))
            complete = True
    if drawn.found < drawn.size:
        warn(drawn.shortfall)
    options.note(drawn.notes)
    report_incomplete("the sample is incomplete", drawn.missing)
    return int(not (complete and drawn.complete))


def _show_cost(drawn: "Sample", *, json_: bool) -> int:
    plan = replace(drawn.plan, unlisted=drawn.missing)
    if json_:
        as_json(plan.summary())
    else:
        show_plan(plan)
    if drawn.rows < drawn.size:
        warn(f"there are only {plural(drawn.rows, 'row')} to draw from")
    return int(bool(drawn.missing) or drawn.rows < drawn.size)


def _confirmation(
    options: Common, drawn: "Sample", catalogue: "Catalogue", budget: Budget
) -> Callable[["ReadPlan"], None]:
    allowed = budget

    def agree(plan: "ReadPlan") -> None:
        nonlocal allowed
        made, received = catalogue.requests, catalogue.bytes
        so_far = f"{drawn.found:,} of {plural(drawn.size, 'capture')} found"
        before = f", after {plural(made, 'request')}; {so_far}" if made else ""
        allowed = allowed.ask(made + plan.requests, received + plan.bytes, f"this takes {format_cost(plan)}{before}")
        if sys.stderr.isatty() and not plan.indexes:
            options.say(f"{so_far}; reading {plural(plan.rows, 'row')}: {format_cost(plan)}")

    return agree
