"""Options that select captures, and ``catalogue plan``."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.app import Command, Common, OneOf, common, show
from catalogue.cli.budget import Budget, format_cost
from catalogue.cli.completion import complete_columns, complete_stored_crawls, complete_subsets
from catalogue.cli.tables import as_json, can_ask, confirmed, harvest_bar, options_of_command, table
from catalogue.errors import NotHarvested, QueryError, SourceError
from catalogue.formatting import comma_separated, plural, size

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.catalogue import Catalogue
    from catalogue.plan.plan import ReadPlan
    from catalogue.surt import Match

crawl_option = click.option(
    "--crawl",
    "crawls",
    multiple=True,
    shell_complete=complete_stored_crawls,
    help="Stored crawls: 2022-05, a year, A..B, latest or all; comma-separated or repeated.  [default: all]",
)
_FILTERS = [
    click.argument("patterns", nargs=-1, metavar="[PATTERN]..."),
    crawl_option,
    click.option(
        "--subset",
        "subsets",
        multiple=True,
        shell_complete=complete_subsets,
        help="warc (pages), crawldiagnostics (redirects, errors) or robotstxt; repeatable.  [default: all stored]",
    ),
    click.option(
        "--match", type=OneOf(["exact", "prefix", "host", "domain"]), help="How to match, instead of wildcards."
    ),
    click.option(
        "--urls-file",
        "urls_files",
        type=click.File("rb"),
        multiple=True,
        help="More patterns: one per line, or a CSV file with a column url; may be gzipped; - for stdin; repeatable.",
    ),
    click.option("--exact-url", is_flag=True, help="Match the exact URL, with scheme, www, case and slash."),
    click.option(
        "--columns",
        multiple=True,
        shell_complete=complete_columns,
        help="Comma-separated; * for all; repeatable.  [default: the fields of the CDX index]",
    ),
    click.option(
        "--where", multiple=True, help="A boolean SQL expression over the columns; repeatable, all must be true."
    ),
    click.option("--status", multiple=True, help="200, 2xx or 40x; alternatives comma-separated or repeated."),
    click.option("--mime", multiple=True, help="Media type, such as text/html or text/*; repeatable."),
    click.option("--lang", multiple=True, help="Language in ISO 639-3, such as isl; repeatable."),
    click.option("--from", "from_", metavar="TIME", help="First time: 2022, 20220131, 2022-01-31T12:00:00; UTC."),
    click.option("--to", metavar="TIME", help="Last time, inclusive."),
]
harvest_option = click.option(
    "--harvest", is_flag=True, help="First harvest the crawls of --crawl that are not stored."
)
_LIMITS = [
    click.option("--limit", type=click.IntRange(min=0), help="Stop after this many captures."),
    click.option(
        "--unique",
        metavar="url|digest|COLUMN",
        shell_complete=complete_columns,
        help="Keep only the first capture of each value.",
    ),
    click.option("--latest", is_flag=True, help="Keep only the latest capture of each URL, or of each --unique value."),
    click.option("--ordered", is_flag=True, help="Sort by key, time and crawl; holds all captures in memory."),
]


def query_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed([*_FILTERS, *_LIMITS]):
        command = option(command)
    return command


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter captures, without --limit, --unique, --latest and --ordered."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.command(cls=Command)
@query_options
@click.option("--indexes", is_flag=True, help="Fetch missing page indexes, for an exact plan.")
@click.option("--count", is_flag=True, help="Plan to count the captures.")
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@click.option("--paths", is_flag=True, help="Print only the paths of the files, one per line.")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the requests as a table: .parquet, .csv, …",
)
@common
def plan(
    options: Common,
    *,
    indexes: bool,
    count: bool,
    json_: bool,
    paths: bool,
    output: Path | None,
    **parameters: Any,
) -> None:
    """Print what a query would read: files, row groups, pages, requests, bytes and seconds.

    Makes no requests and works offline. Where page indexes are not stored yet, the pages are an estimate; --indexes
    fetches and stores them.

    Other engines can read the same bytes: --paths prints the files, and --output writes a row for each byte range:
    path, crawl, subset, row_group, column, start and end (exclusive), bytes. They still have to filter by url_surtkey.

    \b
    catalogue plan '*.example.com' --crawl latest
    catalogue plan example.com/page 'example.org/*' --json
    catalogue plan '*.example.com' --indexes
    catalogue plan '*.example.com' -o plan.parquet
    catalogue plan '*.example.com' --paths | sed 's|^|s3a://commoncrawl/|'
    """
    if json_ + paths + (output is not None) > 1:
        raise QueryError("--json, --paths and --output exclude each other")
    format_ = _format(output) if output else None
    with options.opened() as catalogue:
        captures = select_captures(catalogue, options, read_patterns(parameters))
        if count:
            captures = captures.counting()
        if indexes:
            captures.fetch_indexes()
        if format_:
            from catalogue.cli.row_writer import write

            reads = captures.plan.to_arrow()
            write(reads.to_batches(), reads.schema, format_, output, chosen_columns=True)
        elif paths:
            for path in captures.plan.paths:
                click.echo(path)
        elif json_:
            as_json(captures.plan.summary())
        else:
            show_plan(captures.plan)
    if not captures.complete:
        sys.exit(1)


def _format(output: Path) -> str:
    from catalogue.cli.row_writer import format_for

    format_ = format_for(None, output)
    if format_ in {"cdxj", "url"}:
        raise QueryError("a plan cannot be written as CDXJ or URLs; use .parquet, .csv, .tsv, .json, .jsonl or .arrow")
    return format_


def read_patterns(parameters: dict[str, Any]) -> dict[str, Any]:
    """Read the files of --urls-file, which can be read only once, and split lists at commas."""
    from catalogue.cli.pattern_input import patterns_in

    if "-" in parameters["patterns"]:
        raise QueryError("'-' is not a pattern; to read patterns from stdin use --urls-file -")
    listed = [pattern for file in parameters["urls_files"] for pattern in patterns_in(file)]
    return parameters | {
        "patterns": [*parameters["patterns"], *(text for _, text in listed)],
        "places": listed,
        "columns": comma_separated(parameters["columns"]),
        "subsets": comma_separated(parameters["subsets"]),
    }


def select_captures(
    catalogue: "Catalogue", options: Common, parameters: dict[str, Any], budget: Budget | None = None
) -> "Captures":
    """Return the captures that the options select, without reading them. On a terminal, print hints.

    Crawls that are not stored are harvested with ``--harvest``, and on a terminal if the user agrees.
    """
    if budget and parameters["harvest"]:
        if not parameters["crawls"]:
            raise QueryError("--harvest needs --crawl")
        budget.check(catalogue.harvest_estimate(**_harvest_arguments(parameters)))
        _harvest(catalogue, options, parameters)
    try:
        captures = captures_for(catalogue, parameters)
    except NotHarvested as error:
        if options.table is not None or error.call is None:
            raise
        _offer_harvest(catalogue, parameters, error)
        _harvest(catalogue, options, parameters)
        captures = captures_for(catalogue, parameters)
    if sys.stderr.isatty():
        for hint in _hints(options, parameters):
            options.say(hint)
    return captures


def _harvest_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    crawls = [word for word in parameters["crawls"] if word != "all" or parameters.get("harvest")]
    return {"crawls": crawls or ["latest"], "subsets": parameters["subsets"] or ["warc"]}


def _harvest(catalogue: "Catalogue", options: Common, parameters: dict[str, Any]) -> None:
    with harvest_bar(options) as bar:
        catalogue.harvest(**_harvest_arguments(parameters), report=bar)


def _offer_harvest(catalogue: "Catalogue", parameters: dict[str, Any], error: NotHarvested) -> None:
    """Ask the user on a terminal whether to harvest the missing crawls, with the cost.

    Raises:
        NotHarvested: if the user declines, or if there is no terminal.
    """
    problem, run, command = str(error).partition("; run: ")
    if parameters["crawls"] and "--harvest" in options_of_command():
        run = "; add --harvest, or run: "
    refused = NotHarvested(f"{problem}{run}{command}", crawl=error.crawl, call=error.call)
    if not can_ask():
        raise refused from error
    try:
        needed = catalogue.harvest_estimate(**_harvest_arguments(parameters))
    except SourceError:
        raise refused from error
    crawls = " ".join(_harvest_arguments(parameters)["crawls"])
    if not confirmed(f"{problem}. Harvesting {crawls} takes {format_cost(needed)}. Harvest now?"):
        raise refused from error


def captures_for(catalogue: "Catalogue", parameters: dict[str, Any]) -> "Captures":
    from catalogue.captures import find_captures
    from catalogue.query.query import Query
    from catalogue.surt import Match

    match = Match(parameters["match"]) if parameters["match"] else None
    try:
        query = Query.of(
            parameters["patterns"],
            crawls=parameters["crawls"] or "all",
            subsets=parameters["subsets"],
            columns=parameters["columns"] or None,
            where=parameters["where"],
            status=parameters["status"],
            mime=parameters["mime"],
            lang=parameters["lang"],
            from_=parameters["from_"],
            to=parameters["to"],
            limit=parameters.get("limit"),
            match=match,
            exact_url=parameters["exact_url"],
            ordered=parameters.get("ordered", False),
            unique=parameters.get("unique"),
            latest=parameters.get("latest", False),
        )
        return find_captures(catalogue.session, query)
    except QueryError:
        _check_lists(catalogue, parameters, match)
        raise


def _check_lists(catalogue: "Catalogue", parameters: dict[str, Any], match: "Match | None") -> None:
    """Raise a QueryError with file and line of the first invalid pattern of --urls-file."""
    from catalogue.surt import parse_key_patterns

    for place, text in parameters["places"]:
        try:
            parse_key_patterns([text], catalogue.session.dataset.keys, match, exact_url=parameters["exact_url"])
        except QueryError as error:
            raise QueryError(f"{place}: {error}") from None


def explain_empty_result(options: Common, catalogue: "Catalogue", parameters: dict[str, Any]) -> None:
    """Print which crawls contain no match, and hints."""
    from catalogue.selection import stored_crawls

    newest, *others = stored_crawls(catalogue.session, parameters["crawls"] or "all")
    crawls = f"{plural(1 + len(others), 'crawl')}, {others[-1]} to {newest}" if others else newest
    crawls += ", the newest stored" if "latest" in parameters["crawls"] else ""
    chosen = f" ({', '.join(parameters['subsets'])})" if parameters["subsets"] else ""
    options.say(f"nothing in {crawls}{chosen}")
    if not sys.stderr.isatty():  # select_captures printed them on terminals
        for hint in _hints(options, parameters):
            options.say(hint)


def _hints(options: Common, parameters: dict[str, Any]) -> Iterator[str]:
    pattern = parameters["patterns"][0]
    if options.table is None and not parameters["match"] and "/" not in pattern and "*" not in pattern:
        yield f"tip: {pattern} is its home page alone; '{pattern}/*' is the site, '*.{pattern}' subdomains too"


def show_plan(plan: "ReadPlan") -> None:
    table(
        ["files", "row groups", "of", "pages", "captures in them", "requests", "bytes", "seconds"],
        [
            [
                len(plan.paths),
                plan.row_groups,
                plan.considered,
                f"{plan.about}{plan.pages:,}" if plan.pages else "-",
                plan.rows,
                f"{plan.about}{plan.requests:,}",
                f"{plan.about}{size(plan.bytes)}",
                f"{plan.seconds:.1f}",
            ]
        ],
    )
    if plan.indexes:
        needed = f"{plural(len(plan.indexes), 'request')}, {size(sum(len(fetch.range) for fetch in plan.indexes))}"
        show(f"page indexes are fetched first ({needed}); until then this is an estimate; --indexes fetches them now")
    if plan.cached_bytes:
        show(f"{size(plan.cached_bytes)} more are cached")
    for warning in plan.warnings:
        show(f"note: {warning}")
    for problem in plan.missing:
        show(f"the answer may be incomplete: {problem}")
