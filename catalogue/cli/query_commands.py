"""Commands that plan and answer questions about captures."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from catalogue.cli.app import Command, Common, OneOf, common, show
from catalogue.cli.budget import Leave, told
from catalogue.cli.completion import columns, crawls_held, subsets
from catalogue.cli.tables import as_json, can_ask, confirmed, harvest_bar, options_of_command, table
from catalogue.errors import NotHarvested, QueryError, SourceError
from catalogue.formatting import comma_separated, plural, size

FORMATS = ["table", "jsonl", "json", "csv", "tsv", "cdxj", "url", "parquet", "arrow", "arrows"]
"""Of captures."""

among_crawls = click.option(
    "--crawl",
    "crawls",
    multiple=True,
    shell_complete=crawls_held,
    help="Stored crawls: 2022-05, a year, A..B, latest or all; with commas or repeated.  [default: all]",
)
"""Gives a command the option that says which crawls it is about."""
_QUESTION = [
    click.argument("patterns", nargs=-1, metavar="[PATTERN]..."),
    among_crawls,
    click.option(
        "--subset",
        "subsets",
        multiple=True,
        shell_complete=subsets,
        help="Of warc (pages), crawldiagnostics (redirects, errors) and robotstxt.  [default: all held]",
    ),
    click.option("--match", type=OneOf(["exact", "prefix", "host", "domain"]), help="Instead of wildcards."),
    click.option(
        "--urls-file",
        "urls_files",
        type=click.File("rb"),
        multiple=True,
        help="More patterns: one a line, or a CSV file with a column url; also gzipped; - for stdin; repeatable.",
    ),
    click.option("--exact-url", is_flag=True, help="Match the URL as typed: scheme, www, case and slash count."),
    click.option(
        "--columns",
        multiple=True,
        shell_complete=columns,
        help="Comma-separated; * for all; repeatable.  [default: those of the CDX index]",
    ),
    click.option(
        "--where", multiple=True, help="A boolean expression over the columns, in SQL; of several all must be true."
    ),
    click.option(
        "--status", multiple=True, help="200, 2xx or 40x; several, repeated or comma-separated, are alternatives."
    ),
    click.option("--mime", multiple=True, help="Media type: text/html, or text/* for all that start so; also several."),
    click.option("--lang", multiple=True, help="Language in ISO 639-3, such as isl; also several."),
    click.option("--from", "from_", metavar="TIME", help="First time: 2022, 20220131, 2022-01-31T12:00:00; UTC."),
    click.option("--to", metavar="TIME", help="Last time, inclusive."),
]
harvest_first = click.option("--harvest", is_flag=True, help="First harvest what is not stored of the crawls named.")
"""Gives a command that takes leave the option to harvest."""
_CHOICE = [
    click.option("--limit", type=click.IntRange(min=0), help="Stop after this many captures."),
    click.option(
        "--unique",
        metavar="url|digest|COLUMN",
        shell_complete=columns,
        help="Of captures that are the same in this only the first that comes.",
    ),
    click.option("--latest", is_flag=True, help="Of each URL the last capture; or of what --unique says."),
    click.option("--ordered", is_flag=True, help="By key, time and crawl; takes the whole answer into memory."),
]


def question(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that make up a question."""
    for option in reversed([*_QUESTION, *_CHOICE]):
        command = option(command)
    return command


def population(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command those of them that say what there is, but not what is chosen of that."""
    for option in reversed(_QUESTION):
        command = option(command)
    return command


@click.command(cls=Command)
@question
@click.option("--indexes", is_flag=True, help="Fetch the page indexes that are lacking, to be exact.")
@click.option("--count", is_flag=True, help="Of what counting the captures would read.")
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@click.option("--paths", is_flag=True, help="Only the files, relative to the source, a line each.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="What is read as a table: .parquet, .csv, …"
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
    **asked: Any,  # noqa: ANN401
) -> None:
    """What a query would read: files, row groups, pages, requests, bytes and seconds.

    Reads nothing and works offline. Where page indexes are not held yet the pages are an estimate; --indexes fetches
    and keeps them.

    Other engines can be told what to read: --paths names the files, and --output writes a row for each run of bytes:
    path, crawl, subset, row_group, column, start and end (exclusive), bytes. They still have to filter by url_surtkey.

    \b
    catalogue plan '*.example.com' --crawl latest
    catalogue plan example.com/page 'example.org/*' --json
    catalogue plan '*.example.com' --indexes
    catalogue plan '*.example.com' -o plan.parquet
    catalogue plan '*.example.com' --paths | sed 's|^|s3a://commoncrawl/|'
    """  # noqa: D301
    if json_ + paths + (output is not None) > 1:
        message = "--json, --paths and --output are three answers; choose one"
        raise QueryError(message)
    format_ = _format(output) if output else None
    with options.opened() as catalogue:
        found = found_by(catalogue, options, prepared(asked))
        if count:
            found = found.counting()
        if indexes:
            found.fetch_indexes()
        if format_:
            from catalogue.cli.row_writer import write  # noqa: PLC0415 - slow to import

            reads = found.plan.to_arrow()
            write(reads.to_batches(), reads.schema, format_, output, chosen_columns=True)
        elif paths:
            for path in found.plan.paths:
                click.echo(path)
        elif json_:
            as_json(found.plan.summary())
        else:
            show_plan(found.plan)
    if not found.complete:
        sys.exit(1)


def _format(output: Path) -> str:
    """The format of a plan in a file.

    Raises:
        QueryError: if its name says none that a plan can have.
    """
    from catalogue.cli.row_writer import format_for  # noqa: PLC0415 - slow to import

    format_ = format_for(None, output)
    if format_ in {"cdxj", "url"}:
        message = "a plan has no captures to write as CDXJ or URLs; write .parquet, .csv, .tsv, .json, .jsonl or .arrow"
        raise QueryError(message)
    return format_


def prepared(asked: dict[str, Any]) -> dict[str, Any]:
    """Read the files of patterns, which can be read only once, and split lists at their commas."""
    from catalogue.cli.pattern_input import patterns_in  # noqa: PLC0415 - --help needs none of what this imports

    if "-" in asked["patterns"]:
        message = "'-' is not a pattern; to read patterns from stdin use --urls-file -"
        raise QueryError(message)
    listed = [pattern for file in asked["urls_files"] for pattern in patterns_in(file)]
    return asked | {
        "patterns": [*asked["patterns"], *(text for _, text in listed)],
        "places": listed,
        "columns": comma_separated(asked["columns"]),
        "subsets": comma_separated(asked["subsets"]),
    }


def found_by(catalogue: Any, options: Common, asked: dict[str, Any], leave: Leave | None = None) -> Any:  # noqa: ANN401 - importing their types is slow
    """Return the captures that the options select, not read yet. On a terminal, print hints on what else may be meant.

    Crawls that are not stored are harvested with ``--harvest``, and on a terminal if the user agrees.
    """
    if leave and asked["harvest"]:
        if not asked["crawls"]:
            message = "--harvest needs to know which crawls; name them with --crawl"
            raise QueryError(message)
        leave.agree(catalogue.harvest_estimate(**_lacking(asked)))
        _harvest(catalogue, options, asked)
    try:
        found = captures_by(catalogue, asked)
    except NotHarvested as error:
        if options.table is not None or error.call is None:
            raise
        _offer(catalogue, asked, error)
        _harvest(catalogue, options, asked)
        found = captures_by(catalogue, asked)
    if sys.stderr.isatty():
        for tip in _tips(options, asked):
            options.say(tip)
    return found


def _lacking(asked: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a harvest of what a question is about."""
    crawls = [word for word in asked["crawls"] if word != "all" or asked.get("harvest")]
    return {"crawls": crawls or ["latest"], "subsets": asked["subsets"] or ["warc"]}


def _harvest(catalogue: Any, options: Common, asked: dict[str, Any]) -> None:  # noqa: ANN401 - as above
    with harvest_bar(options) as bar:
        catalogue.harvest(**_lacking(asked), report=bar)


def _offer(catalogue: Any, asked: dict[str, Any], error: NotHarvested) -> None:  # noqa: ANN401 - as above
    """Ask the user at the terminal whether to harvest what a question lacks, at its price.

    Raises:
        NotHarvested: if not, or if nobody can be asked.
    """
    what, run, command = str(error).partition("; run: ")
    if asked["crawls"] and "--harvest" in options_of_command():
        run = "; add --harvest, or run: "
    refused = NotHarvested(f"{what}{run}{command}", crawl=error.crawl, call=error.call)
    if not can_ask():
        raise refused from error
    try:
        needed = catalogue.harvest_estimate(**_lacking(asked))
    except SourceError:
        raise refused from error
    if not confirmed(f"{what}. To harvest {' '.join(_lacking(asked)['crawls'])} takes {told(needed)}. Do it now?"):
        raise refused from error


def captures_by(catalogue: Any, asked: dict[str, Any]) -> Any:  # noqa: ANN401 - likewise
    """Find captures by options of the command line."""
    from catalogue.find_captures import find_captures  # noqa: PLC0415 - slow to import
    from catalogue.query.query import Query  # noqa: PLC0415
    from catalogue.surt import Match  # noqa: PLC0415

    match = Match(asked["match"]) if asked["match"] else None
    try:
        query = Query.of(
            asked["patterns"],
            crawls=asked["crawls"] or "all",
            subsets=asked["subsets"],
            columns=asked["columns"] or None,
            where=asked["where"],
            status=asked["status"],
            mime=asked["mime"],
            lang=asked["lang"],
            from_=asked["from_"],
            to=asked["to"],
            limit=asked.get("limit"),
            match=match,
            exact_url=asked["exact_url"],
            ordered=asked.get("ordered", False),
            unique=asked.get("unique"),
            latest=asked.get("latest", False),
        )
        return find_captures(catalogue.session, query)
    except QueryError:
        _check_lists(catalogue, asked, match)
        raise


def _check_lists(catalogue: Any, asked: dict[str, Any], match: Any) -> None:  # noqa: ANN401 - likewise
    """Name the place of the first pattern of a file that is invalid.

    Raises:
        QueryError: if there is one.
    """
    from catalogue.surt import parse_key_patterns  # noqa: PLC0415

    for place, text in asked["places"]:
        try:
            parse_key_patterns([text], catalogue.session.dataset.keys, match, exact_url=asked["exact_url"])
        except QueryError as error:
            message = f"{place}: {error}"
            raise QueryError(message) from None


def say_where(options: Common, catalogue: Any, asked: dict[str, Any]) -> None:  # noqa: ANN401
    """Say of a question that found nothing where nothing was found, and what may have been meant."""
    from catalogue.selection import stored_crawls  # noqa: PLC0415 - --help needs none of what this imports

    newest, *others = stored_crawls(catalogue.session, asked["crawls"] or "all")
    crawls = f"{plural(1 + len(others), 'crawl')}, {others[-1]} to {newest}" if others else newest
    crawls += ", the newest held" if "latest" in asked["crawls"] else ""
    chosen = f" ({', '.join(asked['subsets'])})" if asked["subsets"] else ""
    options.say(f"nothing in {crawls}{chosen}")
    if not sys.stderr.isatty():  # else it was said before
        for tip in _tips(options, asked):
            options.say(tip)


def _tips(options: Common, asked: dict[str, Any]) -> Iterator[str]:
    pattern = asked["patterns"][0]
    if options.table is None and not asked["match"] and "/" not in pattern and "*" not in pattern:
        yield f"tip: {pattern} is its home page alone; '{pattern}/*' is the site, '*.{pattern}' subdomains too"


def show_plan(plan: Any) -> None:  # noqa: ANN401
    """Print a plan as a table."""
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
        show(f"page indexes are fetched first ({needed}); until then the rest is an estimate: --indexes does it now")
    if plan.cached_bytes:
        show(f"{size(plan.cached_bytes)} more are in the cache")
    for warning in plan.warnings:
        show(f"note: {warning}")
    for lack in plan.missing:
        show(f"the answer may be incomplete: {lack}")
