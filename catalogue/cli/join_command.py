"""``catalogue join``."""

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import report_incomplete, warn
from catalogue.cli.options import Budget, OneOf, budget_options, json_option, query_options, scheduler_option
from catalogue.cli.process import resumable
from catalogue.cli.select_captures import describe_crawls, describe_subsets
from catalogue.cli.tables import as_json, table
from catalogue.errors import QueryError
from catalogue.formatting import duration, format_cost, parse_size, plural, size
from catalogue.query.parameters import typed

if TYPE_CHECKING:
    from catalogue.join.joined import Joined, JoinEstimate

_HOW = ["inner", "semi", "anti", "crawls", "latest"]
_MOST_CRAWLS = 20


@command()
@click.argument("keys", type=click.File("rb"))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A new folder, or a file such as found.parquet.")
@click.option(
    "--how",
    type=OneOf(_HOW),
    default="inner",
    show_default=True,
    help="inner: all captures of each key. semi: keys with captures. anti: keys without captures. crawls: each key "
    "with the number, crawls, times and statuses of its captures. latest: the newest capture of each key.",
)
@click.option(
    "--on",
    metavar="COLUMN",
    help="The column with the keys.  [default: url or url_surtkey; the only one, except of CSV]",
)
@click.option(
    "--match",
    type=OneOf(["exact", "prefix", "host", "domain"]),
    default="exact",
    show_default=True,
    help="What a key matches.",
)
@query_options("patterns", "match", "urls_files", "exact_url", "limit", "unique", "latest", "ordered")
@click.option("--dry-run", is_flag=True, help="Print the cost, and read nothing.")
@click.option(
    "--budget",
    "most",
    metavar="SIZE",
    help="Stop before receiving more than this, such as 2GB; the same command continues.",
)
@scheduler_option
@budget_options
@json_option
def join(
    options: Common,
    *,
    keys: BinaryIO,
    output: Path | None,
    dry_run: bool,
    most: str | None,
    scheduler: str | None,
    budget: Budget,
    json_: bool,
    **parameters: Any,
) -> int:
    """Join a list of URLs, hosts or domains with crawls.

    It finds which of up to 100 million URLs are in which crawls, in bounded memory.

    KEYS is a text file with one URL per line, or a Parquet, CSV, TSV or JSON-lines file; - for stdin. The result is a
    folder of Parquet files, or one file. Its column row_id is the number of the line or row of KEYS; the columns of
    KEYS have the prefix input_. Lines that are not URLs are listed in _invalid.csv. After an interruption, the same
    command continues.

    In the index, several URLs can have one key, such as /abc and /AbC. inner and latest return captures of the URL
    itself; if there are none, they return captures of other URLs with the same key, and the column exact is false.

    \b
    catalogue join urls.txt --crawl latest -o found/
    catalogue join urls.txt --crawl 2022..2023 --dry-run
    catalogue join links.csv --on link --crawl all --how crawls -o links.parquet
    catalogue join urls.txt --crawl latest --how anti -o never-archived.parquet
    catalogue join domains.txt --match domain --crawl latest --how semi -o known/
    catalogue join urls.txt --crawl latest --how latest -o pages.parquet
    catalogue fetch --captures pages.parquet -o pages.warc.gz
    """
    if (output is None) is not dry_run:
        raise QueryError("no output; add one, such as -o found/" if output is None else "use either -o or --dry-run")
    max_bytes = parse_size(most) if most else None
    query: Any = typed(parameters)
    with options.opened(scheduler=scheduler) as catalogue:
        path = Path(keys.name)
        if keys.name == "<stdin>" or not path.is_file():  # a pipe can be read once
            if path.is_char_device() and not keys.isatty():
                raise QueryError(f"{path} is a device, not a list of keys")
            path = catalogue.session.new_temporary_folder() / "stdin"
            with path.open("wb") as file:
                shutil.copyfileobj(keys, file)
        if output is None:
            _show(catalogue.join_estimate(path, **query), json_=json_)
            return 0

        def agree(cost: "JoinEstimate") -> None:
            budget.check(cost)
            if cost.requests and sys.stderr.isatty():
                options.say(f"{plural(cost.patterns, 'key')}: {format_cost(cost)}")

        with resumable():
            done = catalogue.join(path, output, agree=agree, budget=max_bytes, **query)
    _report(options, done, json_=json_)
    return int(not done.complete)


def _report(options: Common, done: "Joined", *, json_: bool) -> None:
    if json_:
        as_json(asdict(done) | {"complete": done.complete})
        return
    searched = f"{describe_subsets(done.subsets)} in {describe_crawls(done.crawls)}"
    options.say(f"{plural(done.rows, 'row')} in {done.output}, of {plural(done.patterns, 'key')}; searched: {searched}")
    if done.invalid:
        options.say(f"{plural(done.invalid, 'row')} of the input without a valid key, listed in {done.invalid_file}")
    if done.other_urls:
        count = plural(done.other_urls, "row")
        warn(f"for {count}, there are only captures of other URLs with the same key; the column exact is false there")
    options.note(done.notes)
    report_incomplete("the result may be incomplete", done.problems)


def _show(cost: "JoinEstimate", *, json_: bool) -> None:
    if json_:
        as_json(asdict(cost))
        return
    rows = [
        [each.crawl, each.index, each.slices, each.requests, size(each.bytes), duration(each.seconds)]
        for each in cost.crawls[:_MOST_CRAWLS]
    ]
    table(["crawl", "index", "slices", "requests", "bytes", "time"], rows)
    if len(cost.crawls) > _MOST_CRAWLS:
        click.echo(f"and {len(cost.crawls) - _MOST_CRAWLS:,} more crawls")
    about = "" if all(each.exact for each in cost.crawls) else "about "
    click.echo(f"{plural(cost.patterns, 'key')} of {plural(cost.rows, 'row')}: {about}{format_cost(cost)}")
