"""Commands that write down what is held for other engines and other people."""

import sys
from pathlib import Path
from typing import Any

import click

from catalogue.cli.app import Common, common
from catalogue.cli.showing import as_json, plural


@click.group()
def export() -> None:
    """What is held, for other engines and other people; no data of the source is copied.

    \b
    catalogue export ducklake
    """  # noqa: D301 - \b is click's


@export.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--crawl", "crawls", multiple=True, metavar="CRAWL", help="Name, A..B, latest or all.  [default: all]")
@click.option(
    "--backend", type=click.Choice(["sqlite", "duckdb"]), help="What keeps it.  [default: as it is, or sqlite]"
)
@click.option("--json", "json_", is_flag=True, help="Say what was written as JSON.")
@common
def ducklake(options: Common, *, path: Path | None, crawls: tuple[str, ...], backend: str | None, json_: bool) -> None:
    """A DuckLake: one table over all index files where they are, for any DuckDB since 1.5.

    PATH is its file, by default captures.ducklake in the data folder, where catalogue sql attaches it as cc. It holds
    the crawls asked for and no others; written again it has one snapshot more for each crawl that is new or another.

    \b
    catalogue export ducklake
    catalogue export ducklake shared.ducklake --crawl CC-MAIN-2022-05..
    catalogue sql "select url from cc.captures where crawl = 'CC-MAIN-2022-05'
                   and cc.surt_match(url_surtkey, '*.example.com')"

    Without this tool, in any DuckDB that has run INSTALL ducklake; INSTALL sqlite; INSTALL httpfs:

    \b
    ATTACH 'ducklake:sqlite:captures.ducklake' AS cc (READ_ONLY);
    SELECT url, fetch_time FROM cc.captures
    WHERE crawl = 'CC-MAIN-2022-05' AND cc.surt_match(url_surtkey, 'example.com/blog/*');

    One kept with --backend duckdb is attached as ducklake:captures.ducklake; it is smaller, and quicker with many
    crawls. Files are read from where the footers were taken; from elsewhere with another option of ATTACH:
    DATA_PATH 's3://commoncrawl/', OVERRIDE_DATA_PATH true.

    Only the files are opened that may hold rows of the crawl, subset and keys asked for, so always ask for some:
    DuckDB knows of no limit on requests, and Common Crawl blocks who makes too many. surt_match takes plain hosts and
    paths, and refuses others; those take url_surtkey = 'com,example)/page?a=1', as catalogue.url_surtkey writes it.
    """  # noqa: D301 - \b is click's
    with options.opened() as catalogue:
        told(options, catalogue.export_ducklake(path, crawls=crawls or "all", backend=backend), json_=json_)


def told(options: Common, exported: Any, *, json_: bool) -> None:  # noqa: ANN401 - importing its type is slow
    """Say what was exported; what is missing makes it done in part."""
    if json_:
        as_json(
            {
                "place": exported.place,
                "crawls": exported.crawls,
                "files": exported.files,
                "complete": exported.complete,
                "missing": exported.missing,
            }
        )
    else:
        crawls = plural(len(exported.crawls), "crawl")
        options.say(f"{exported.place}: {plural(exported.files, 'file')} of {crawls}")
        for lack in exported.missing:
            options.say(f"it is incomplete: {lack}")
    if not exported.complete:
        sys.exit(1)
