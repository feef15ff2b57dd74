"""``catalogue query``."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.app import Command, Common, OneOf, common, resumable, warn
from catalogue.cli.budget import Budget, budget_options
from catalogue.cli.query_commands import (
    captures_for,
    explain_empty_result,
    harvest_option,
    query_options,
    read_patterns,
    select_captures,
)
from catalogue.cli.tables import FORMATS, as_json, batches_of, table
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.formatting import plural

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.catalogue import Catalogue
    from catalogue.plan.plan import ReadPlan


@click.command(cls=Command)
@query_options
@click.option(
    "--format",
    "format_",
    type=OneOf(FORMATS),
    help="[default: by -o; else table on a terminal, jsonl in a pipe]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="A file, or - for stdout; for a folder, or a name that ends with /, one file per crawl.",
)
@click.option("--count", is_flag=True, help="Print only the number. Pages that match completely are not read.")
@click.option("--by", type=OneOf(["crawl"]), help="With --count: the number in each crawl that has matches.")
@click.option("--no-cache", is_flag=True, help="Do not read or write the cache of pages.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Read with the workers of a Dask cluster, such as tcp://host:8786."
)
@harvest_option
@budget_options
@common
def query(
    options: Common,
    *,
    format_: str | None,
    output: str | None,
    count: bool,
    by: str | None,
    no_cache: bool,
    scheduler: str | None,
    budget: Budget,
    **parameters: Any,
) -> None:
    """Find captures of URLs, sites or whole domains.

    Matching ignores the scheme, www, letter case and a trailing slash.

    \b
    catalogue query example.com/page                      that page
    catalogue query 'example.com/blog/*' --crawl latest   everything below a path
    catalogue query '*.example.com' --status 200          a host and its subdomains
    catalogue query '*.is' --lang isl --limit 100         a whole top-level domain
    catalogue query '*.is' --count                        the number of captures
    catalogue query example.com --count --by crawl        in each crawl
    catalogue query --urls-file urls.txt -o found.parquet
    catalogue query '*.example.com' --format url          only URLs, one per line
    catalogue query '*.example.com' -o found/             one file per crawl; can be resumed
    """
    if count and (format_ or output):
        raise QueryError("--count prints only a number; leave out --format and -o")
    if by and not count:
        raise QueryError("--by needs --count")
    from catalogue.cli.row_writer import format_for, write

    output = None if output == "-" else output
    folder = Path(output) if output and (output.endswith("/") or Path(output).is_dir()) else None
    path = Path(output) if output and not folder else None
    chosen = "" if folder else format_for(format_, path)
    parameters = read_patterns(parameters)
    parameters |= {"columns": ["url"]} if "url" in {format_, chosen} and not parameters["columns"] else {}
    settings = {"cache_size": 0} if no_cache else {}
    with options.opened(scheduler=scheduler, **settings) as catalogue, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteAnswer)  # printed below
        if folder:
            plans, missing = _into_folder(folder, format_, budget, catalogue, options, parameters)
        else:
            found = select_captures(catalogue, options, parameters, budget)
            if count:
                rows = _count(budget.approve(found.counting(), options), by_crawl=by is not None)
            else:
                chosen_columns = bool(parameters["columns"]) or options.table is not None
                batches = batches_of(budget.approve(found, options), options, to_stdout=path is None)
                rows = write(batches, found.schema, chosen, path, chosen_columns=chosen_columns)
                options.say(f"{plural(rows, 'capture')}" + (f" in {path}" if path else ""))
            if not rows and parameters["limit"] != 0:
                explain_empty_result(options, catalogue, parameters)
            plans, missing = [found.plan], found.plan.missing
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        options.say(f"note: {warning}")
    for problem in missing:
        warn(f"the answer may be incomplete: {problem}")
    if missing:
        sys.exit(1)


def _into_folder(
    folder: Path,
    format_: str | None,
    budget: Budget,
    catalogue: "Catalogue",
    options: Common,
    parameters: dict[str, Any],
) -> "tuple[list[ReadPlan], tuple[str, ...]]":
    """Write a file for each crawl that has none yet.

    Returns:
        The plans of these crawls, and a sentence about each crawl or subset that is not stored.
    """
    from catalogue.cli.output_folder import OutputFolder, describe_query
    from catalogue.reports import crawl_states

    if parameters["limit"] is not None or parameters["unique"] or parameters["latest"]:
        raise QueryError("with a folder as output, leave out --limit, --unique and --latest")
    found = select_captures(catalogue, options, parameters, budget)
    every = found.plan
    states = crawl_states(catalogue.session, parameters["crawls"] or "all", parameters["subsets"])
    description = describe_query(
        found.question.query, every_column="*" in parameters["columns"], subsets=parameters["subsets"]
    )
    plans = []
    with OutputFolder(folder, format_, description) as parts:
        if not (missing := parts.missing(states)):
            options.say(f"{folder} already has the captures of {plural(len(states), 'crawl')}")
            return [], every.missing
        needed = captures_for(catalogue, parameters | {"crawls": missing}).plan
        budget.check(needed)
        budget.show(needed, options)
        with resumable():
            for crawl in missing:
                found = captures_for(catalogue, parameters | {"crawls": [crawl]})
                rows = parts.write(crawl, states[crawl], found, batches_of(found, options, to_stdout=False))
                options.say(f"{crawl}: {plural(rows, 'capture')}")
                plans.append(found.plan)
    return plans, tuple(dict.fromkeys(problem for plan in [every, *plans] for problem in plan.missing))


def _count(found: "Captures", *, by_crawl: bool) -> int:
    """Print and return the number of captures."""
    if not by_crawl:
        count = found.count()
        click.echo(count)
        return count
    counts = found.count_by_crawl()
    if sys.stdout.isatty():
        table(["crawl", "captures"], counts.items())
    else:
        for crawl, captures in counts.items():
            as_json({"crawl": crawl, "captures": captures})
    return sum(counts.values())
