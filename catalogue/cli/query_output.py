"""Answers to questions about captures."""

import sys
import warnings
from pathlib import Path
from typing import Any

import click

from catalogue.cli.app import Command, Common, OneOf, common, resumable, warn
from catalogue.cli.budget import Leave, with_leave
from catalogue.cli.query_commands import FORMATS, captures_by, found_by, harvest_first, prepared, question, say_where
from catalogue.cli.tables import as_json, batches_of, table
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.formatting import plural


@click.command(cls=Command)
@question
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
    help="A file, or - for stdout; to a folder, or to one to be made if this ends with /, a file a crawl is written.",
)
@click.option("--count", is_flag=True, help="Only how many; pages that match as a whole need not be read for that.")
@click.option("--by", type=OneOf(["crawl"]), help="With --count: how many in each crawl that has some.")
@click.option("--no-cache", is_flag=True, help="Neither use pages that were kept on disk nor keep any.")
@click.option("--scheduler", metavar="ADDRESS", help="Let the workers of a Dask cluster read, as tcp://host:8786.")
@harvest_first
@with_leave
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
    leave: Leave,
    **asked: Any,  # noqa: ANN401
) -> None:
    """Captures of URLs, sites or whole domains.

    A match is by key: http or https, www or not, letter case and a trailing slash make no difference.

    \b
    catalogue query example.com/page                      that page
    catalogue query 'example.com/blog/*' --crawl latest   what is below a path
    catalogue query '*.example.com' --status 200          a host and its subdomains
    catalogue query '*.is' --lang isl --limit 100         a whole top-level domain
    catalogue query '*.is' --count                        how many captures that are
    catalogue query example.com --count --by crawl        in each crawl
    catalogue query --urls-file urls.txt -o found.parquet
    catalogue query '*.example.com' --format url          URLs alone, a line each
    catalogue query '*.example.com' -o found/             a file a crawl; goes on where it was stopped
    """  # noqa: D301
    if count and (format_ or output):
        message = "--count prints a number and no captures; leave out --format and -o"
        raise QueryError(message)
    if by and not count:
        message = "--by goes with --count"
        raise QueryError(message)
    from catalogue.cli.row_writer import format_for, write  # noqa: PLC0415 - --help needs none of what this imports

    output = None if output == "-" else output
    folder = Path(output) if output and (output.endswith("/") or Path(output).is_dir()) else None
    path = Path(output) if output and not folder else None
    chosen = "" if folder else format_for(format_, path)
    asked = prepared(asked)
    asked |= {"columns": ["url"]} if "url" in {format_, chosen} and not asked["columns"] else {}
    settings = {"cache_size": 0} if no_cache else {}
    with options.opened(scheduler=scheduler, **settings) as catalogue, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteAnswer)  # said below, and by the exit status
        if folder:
            plans, missing = _into_folder(folder, format_, leave, catalogue, options, asked)
        else:
            found = found_by(catalogue, options, asked, leave)
            if count:
                rows = _count(leave.given(found.counting(), options), by_crawl=by is not None)
            else:
                wanted = bool(asked["columns"]) or options.table is not None
                batches = batches_of(leave.given(found, options), options, to_stdout=path is None)
                rows = write(batches, found.schema, chosen, path, chosen_columns=wanted)
                options.say(f"{plural(rows, 'capture')}" + (f" in {path}" if path else ""))
            if not rows and asked["limit"] != 0:
                say_where(options, catalogue, asked)
            plans, missing = [found.plan], found.plan.missing
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        options.say(f"note: {warning}")
    for lack in missing:
        warn(f"the answer may be incomplete: {lack}")
    if missing:
        sys.exit(1)


def _into_folder(
    folder: Path,
    format_: str | None,
    leave: Leave,
    catalogue: Any,  # noqa: ANN401 - importing their types is slow
    options: Common,
    asked: dict[str, Any],
) -> tuple[list[Any], tuple[str, ...]]:
    """Write a file a crawl of those that are not there yet.

    Returns:
        The plans of these; and what is not held that was asked for, a sentence each, of crawls too that have no file
        because nothing of the subsets is held of them.
    """
    from catalogue.cli.output_folder import Parts, question_of  # noqa: PLC0415 - --help needs none of what this imports
    from catalogue.reports import crawl_states  # noqa: PLC0415 - --help needs none of what this imports

    if asked["limit"] is not None or asked["unique"] or asked["latest"]:
        message = "a folder gets all captures of each crawl; leave out --limit, --unique and --latest"
        raise QueryError(message)
    found = found_by(catalogue, options, asked, leave)
    every = found.plan
    states = crawl_states(catalogue.session, asked["crawls"] or "all", asked["subsets"])
    question = question_of(found.question.query, every_column="*" in asked["columns"], subsets=asked["subsets"])
    plans = []
    with Parts(folder, format_, question) as parts:
        if not (lacking := parts.lacking(states)):
            options.say(f"{folder} has the answer of {plural(len(states), 'crawl')} already")
            return [], every.missing
        wanted = captures_by(catalogue, asked | {"crawls": lacking}).plan
        leave.agree(wanted)
        leave.show(wanted, options)
        with resumable():
            for crawl in lacking:
                found = captures_by(catalogue, asked | {"crawls": [crawl]})
                rows = parts.write(crawl, states[crawl], found, batches_of(found, options, to_stdout=False))
                options.say(f"{crawl}: {plural(rows, 'capture')}")
                plans.append(found.plan)
    return plans, tuple(dict.fromkeys(lack for plan in [every, *plans] for lack in plan.missing))


def _count(found: Any, *, by_crawl: bool) -> int:  # noqa: ANN401 - as above
    """Print how many captures there are; returns that."""
    if not by_crawl:
        count = int(found.count())
        click.echo(count)
        return count
    counts: dict[str, int] = found.count_by_crawl()
    if sys.stdout.isatty():
        table(["crawl", "captures"], counts.items())
    else:
        for crawl, captures in counts.items():
            as_json({"crawl": crawl, "captures": captures})
    return sum(counts.values())
