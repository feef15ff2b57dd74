"""``catalogue plan``, ``catalogue query`` and ``catalogue old-index``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import report_incomplete
from catalogue.cli.options import (
    CAPTURE_FORMATS,
    FILE,
    Budget,
    Number,
    OneOf,
    budget_options,
    format_for,
    harvest_option,
    json_option,
    query_options,
    receipt_option,
    recorder_for,
    scheduler_option,
)
from catalogue.cli.process import resumable
from catalogue.cli.select_captures import NOT_OF_QUERY, captures_for, read_patterns, report_rows, select_captures
from catalogue.cli.tables import as_json, batches_of, show_plan, table
from catalogue.errors import QueryError
from catalogue.formatting import plural, size

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.catalogue import Catalogue
    from catalogue.plan.plan import ReadPlan

_SHOWN_ROWS = 100
"""Rows of a result that a terminal shows without --limit."""


@command()
@query_options()
@click.option("--indexes", is_flag=True, help="First fetch page indexes and search for blocks, for an exact plan.")
@click.option("--count", is_flag=True, help="Plan a count of the captures.")
@json_option
@click.option("--paths", is_flag=True, help="Print only the paths of the files, one per line.")
@click.option("--output", "-o", type=FILE, help="Write the requests as a table: .parquet, .csv, …")
def plan(
    options: Common, *, indexes: bool, count: bool, json_: bool, paths: bool, output: Path | None, **parameters: Any
) -> int:
    """Print what a query would read.

    It prints requests, bytes and seconds, and the parts of an index that the query reads. In the CDX index these are
    blocks. The columnar index has files, which consist of row groups, and these of pages. A plan makes no requests,
    except for the list of crawls if latest, a year or a range needs it. If page indexes or places of blocks are not
    stored yet, the plan is an estimate; --indexes fetches and stores them.

    Other engines can read the same bytes of the columnar index: --paths prints the files, and --output writes a row for
    each byte range: path, crawl, subset, row_group, column, start and end (exclusive), bytes. They must filter by
    url_surtkey.

    \b
    catalogue plan '*.example.com' --crawl latest
    catalogue plan example.com/page 'example.org/*' --json
    catalogue plan '*.example.com' --indexes
    catalogue plan '*.example.com' --index columnar -o plan.parquet
    catalogue plan '*.example.com' --index columnar --paths | sed 's|^|s3a://commoncrawl/|'
    """
    if json_ + paths + (output is not None) > 1:
        raise QueryError("--json, --paths and --output exclude each other")
    format_ = format_for(None, output) if output else ""
    from catalogue.commoncrawl.crawls import may_exist, suggest_crawl
    from catalogue.selection import known_crawls

    with options.opened() as catalogue:
        found = select_captures(catalogue, options, read_patterns(parameters))
        captures = found.counting() if count else found
        if indexes:
            captures.fetch_indexes()
        planned = captures.explain()
        listed = known_crawls(catalogue.session)
        for crawl in captures.question.crawls:
            if not may_exist(crawl, listed):  # a query asks the source
                options.say(f"the list of crawls does not have {crawl}; {suggest_crawl(crawl, listed)}")
        if planned.searched and (output or paths):
            raise QueryError("the files are known only after a search for blocks; add --indexes or --index columnar")
        if output:
            from catalogue.cli.row_writer import write

            reads = planned.to_arrow()
            write(reads.to_batches(), reads.schema, format_, output)
        elif paths:
            click.echo("".join(f"{path}\n" for path in planned.paths), nl=False)
        elif json_:
            as_json(planned.summary())
        else:
            show_plan(planned)
    return int(bool(planned.missing))


@command()
@query_options()
@click.option(
    "--format",
    "format_",
    type=OneOf(CAPTURE_FORMATS),
    help="Format of the output.  [default: the suffix of -o; without it table on a terminal, jsonl in a pipe]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="A file, or - for stdout. A folder, or a name that ends with /, gets one file per crawl, and can be resumed.",
)
@click.option("--count", is_flag=True, help="Print only the number of captures.")
@click.option(
    "--by", type=click.Choice(["crawl"]), help="With --count: print the number for each crawl that has matches."
)
@receipt_option
@click.option("--no-cache", is_flag=True, help="Do not read or write the cache.")
@scheduler_option
@harvest_option
@budget_options
def query(
    options: Common,
    *,
    format_: str | None,
    output: str | None,
    count: bool,
    receipt: Path | None,
    scheduler: str | None,
    budget: Budget,
    **parameters: Any,
) -> int:
    """Find captures of URLs, sites or whole domains.

    A pattern ignores the scheme, www, letter case and a trailing slash, except with --exact-url.

    \b
    catalogue query example.com/page                     that page
    catalogue query 'example.com/blog/*' --crawl latest  everything below a path
    catalogue query '*.example.com'                      a host and its subdomains
    catalogue query '*.is' --lang isl --limit 100        a whole top-level domain
    catalogue query '*.is' --count                       the number of captures
    catalogue query example.com --count --by crawl       the number in each crawl
    catalogue query --urls-file urls.txt -o found.parquet
    catalogue query '*.example.com' --format url         only URLs, one per line
    catalogue query example.com/page --index cdx --crawl 2022-05  needs no harvest
    catalogue query '*.example.com' -o found/            one file per crawl
    """
    if count and (format_ or output):
        raise QueryError("--count prints only a number; leave out --format and -o")
    settings: dict[str, Any] = {"cache_size": 0} if parameters.pop("no_cache") else {}
    if (by := parameters.pop("by")) and not count:
        raise QueryError("--by needs --count")
    from catalogue.cli.row_writer import write

    output = None if output == "-" else output
    folder = Path(output) if output and (output.endswith("/") or Path(output).is_dir()) else None
    path = Path(output) if output and not folder else None
    chosen = "" if folder else format_for(format_, path)
    parameters = read_patterns(parameters)
    parameters |= {"columns": ["url"]} if "url" in {format_, chosen} and not parameters["columns"] else {}
    recorder = recorder_for(receipt, path if not scheduler else None)
    with options.opened(scheduler=scheduler, observer=recorder, **settings) as catalogue:
        if folder:
            plans, missing = _write_folder(folder, format_, budget, catalogue, options, parameters)
        else:
            found = select_captures(catalogue, options, parameters, budget)
            if count:
                found = budget.approve(found.counting(), options)
                rows = _count(found, by_crawl=by is not None)
            else:
                chosen_columns = bool(parameters["columns"]) or options.table is not None
                most = _SHOWN_ROWS if chosen == "table" and parameters["limit"] is None else None
                found = budget.approve(found, options)
                batches = batches_of(found, options, printed=path is None, most=most)
                rows = write(batches, found.schema, chosen, path, chosen_columns=chosen_columns, most=most)
            if found.more or not (count and rows):
                report_rows(options, parameters, rows, path, found)
            plans, missing = [found.plan], found.plan.missing
            if recorder and receipt and path:
                recorder.add_footers(catalogue.session, found.plan.index_files)
                described = {name: value for name, value in parameters.items() if value and name not in NOT_OF_QUERY}
                recorder.write(receipt, path, described, missing)
    options.note(warning for plan in plans for warning in plan.warnings)
    return report_incomplete("the answer may be incomplete", missing)


def _write_folder(
    folder: Path,
    format_: str | None,
    budget: Budget,
    catalogue: "Catalogue",
    options: Common,
    parameters: dict[str, Any],
) -> "tuple[list[ReadPlan], tuple[str, ...]]":
    from catalogue.cli.row_writer import crawl_states, describe_query, open_output_folder

    if parameters["limit"] is not None or parameters["unique"] or parameters["latest"]:
        raise QueryError("with a folder as output, leave out --limit, --unique and --latest")
    found = select_captures(catalogue, options, parameters, budget)
    plans = [found.plan]
    states = crawl_states(catalogue.session, found.question)
    spent, allowed = found.spending(), budget

    def agree(plan: "ReadPlan") -> None:
        allowed.after(*spent()).check_plan(plan)

    with open_output_folder(folder, format_, describe_query(found.question, parameters)) as output:
        crawls = output.missing(states)
        if crawls:
            needed = captures_for(catalogue, parameters | {"crawls": crawls}).plan
            allowed = budget.check(needed)
            budget.show(needed, options)
        else:
            options.say(f"{folder} already has the captures of {plural(len(states), 'crawl')}")
        with resumable():
            for crawl in crawls:
                found = captures_for(catalogue, parameters | {"crawls": [crawl]}).agreed(agree)
                rows = output.write(crawl, states[crawl], found, batches_of(found, options, printed=False, most=None))
                options.say(f"{crawl}: {plural(rows, 'capture')}")
                plans.append(found.plan)
    return plans[1:], tuple(dict.fromkeys(problem for plan in plans for problem in plan.missing))


def _count(found: "Captures", *, by_crawl: bool) -> int:
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


@command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option(
    "--index",
    "path",
    metavar="PATH",
    help="The index file, relative to the source.  [default: projects/url-index/url-index.1356128792]",
)
@click.option("--limit", type=Number(min=0), help="Stop after this many captures.")
@budget_options
def old_index(
    options: Common, *, patterns: tuple[str, ...], path: str | None, limit: int | None, budget: Budget
) -> None:
    """Find captures of the crawl of 2012 in its URL index.

    It prints JSON lines, which catalogue fetch reads. It needs no harvest. This index contains exact URLs:
    www., letter case and a trailing slash matter. It has no times and no statuses.

    \b
    catalogue old-index example.com/page www.example.com/page
    catalogue old-index 'example.com/blog/*' --limit 10
    catalogue old-index '*.example.com' | catalogue fetch --captures - -o example.warc.gz
    catalogue old-index '*.is' --source ~/files --index url-index.1356128792
    """
    with options.opened() as catalogue:
        index = catalogue.old_index(path)
        extents = [index.find(pattern) for pattern in patterns]
        requests, needed = map(sum, zip(*(index.cost(extent, limit=limit) for extent in extents), strict=True))
        budget.ask(requests, needed, f"this takes {plural(requests, 'request')}, {size(needed)}")
        count = 0
        for extent in extents:
            for found in index.captures(extent, limit=None if limit is None else limit - count):
                fields = {"url": found.url, "filename": found.filename, "offset": found.offset, "length": found.length}
                sys.stdout.write(f"{json.dumps(fields)}\n")
                count += 1
    options.say(plural(count, "capture") + ("; there may be more, beyond --limit" if count == limit else ""))
