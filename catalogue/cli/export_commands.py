"""Commands that write down what is held for other engines and other people."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from catalogue.cli.app import Command, Common, Group, OneOf, common
from catalogue.cli.query_commands import among_crawls
from catalogue.cli.tables import as_json, harvest_bar
from catalogue.formatting import plural

_json = click.option("--json", "json_", is_flag=True, help="One JSON object.")


@click.group(cls=Group)
def export() -> None:
    """What is held, for other engines and other people; no data of the source is copied.

    \b
    catalogue export ducklake
    catalogue export iceberg index.iceberg
    catalogue export snapshot /srv/www/index-footers
    """  # noqa: D301 - \b is click's


@export.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@among_crawls
@click.option("--backend", type=OneOf(["sqlite", "duckdb"]), help="What keeps it.  [default: as it is, or sqlite]")
@_json
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
    from catalogue.export.ducklake_attach import attach  # noqa: PLC0415 - --help needs none of what this imports
    from catalogue.sql import lake_path  # noqa: PLC0415 - --help needs none of what this imports

    with options.opened() as catalogue:
        exported = catalogue.export_ducklake(path, crawls=crawls or "all", backend=backend)
        if path is None:
            with catalogue.connect() as connection:
                lacking = attach(connection, lake_path(catalogue.session), catalogue.session.settings.source)
            if lacking:
                options.say(f"catalogue sql cannot read it yet: {lacking}")
        _tell(options, exported, json_=json_)


@export.command()
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@among_crawls
@click.option("--location", metavar="URL", help="Where engines read the files from.  [default: the source]")
@_json
@common
def iceberg(options: Common, *, path: Path, crawls: tuple[str, ...], location: str | None, json_: bool) -> None:
    """An Iceberg table over all index files where they are, for pyiceberg, DuckDB, Spark and others.

    PATH is its folder. Engines that read it open only the files that might hold what is asked for by
    url_surtkey, crawl and subset. It has addresses in it: make it where it is to be read. At the same PATH again it
    gets a new snapshot, of just these crawls; what has not changed is left as it is.

    DuckDB takes times of crawls before CC-MAIN-2021-49, which are UTC, for times of its session's zone: set that to
    UTC. pyiceberg by itself reads s3 and folders but not https, and filters by crawl or subset only if you select them;
    Catalogue.iceberg() in Python does both, and asks for no footer. Spark needs the jar iceberg-spark-runtime, and
    s3a.

    \b
    catalogue export iceberg index.iceberg
    catalogue export iceberg index.iceberg --crawl latest --location s3a://commoncrawl/
    duckdb -c "SET TimeZone='UTC'; LOAD iceberg; SELECT url FROM iceberg_scan('index.iceberg')
      WHERE url_surtkey >= 'com,example)/' AND url_surtkey < 'com,example)0'"
    spark.read.format("iceberg").load("file:///data/index.iceberg")
    """  # noqa: D301
    with options.opened() as catalogue:
        exported = catalogue.export_iceberg(path, crawls=crawls or "all", location=location)
    _tell(options, exported, json_=json_)


@export.command()
@click.argument("place", metavar="PATH_OR_URL")
@among_crawls
@_json
@common
def snapshot(options: Common, *, place: str, crawls: tuple[str, ...], json_: bool) -> None:
    """A snapshot of what is stored, which others can store by catalogue pull.

    PATH_OR_URL is its folder, local or anywhere fsspec can write: a Parquet file for each crawl with its footers and
    page indexes, and the tables files, row_groups and pages for other tools. Run again, it writes only the crawls that
    have changed. It can run during a harvest.

    \b
    catalogue export snapshot /srv/www/index-footers
    catalogue export snapshot s3://bucket/index-footers --crawl CC-MAIN-2022-05
    """  # noqa: D301
    with options.opened() as catalogue, harvest_bar(options) as bar:
        exported = catalogue.export_snapshot(place, crawls=crawls or "all", report=bar)
    _tell(options, exported, json_=json_)


def _tell(options: Common, exported: Any, *, json_: bool) -> None:  # noqa: ANN401 - importing its type is slow
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


@click.command(cls=Command)
@click.argument("place", metavar="PATH_OR_URL")
@click.option(
    "--crawl",
    "crawls",
    multiple=True,
    help="Crawls of the snapshot: 2022-05, a year, A..B, latest or all; with commas or repeated.  [default: all]",
)
@click.option(
    "--compare",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Files of each crawl to compare with the source, and as many with page indexes; 0 for none.",
)
@_json
@common
def pull(options: Common, *, place: str, crawls: tuple[str, ...], compare: int, json_: bool) -> None:
    """Store a snapshot that somebody else exported, from a folder or an address.

    What is stored already stays. It can be stopped at any time; run again, it continues with the next crawl. Every
    file is checked, and some footers and page indexes are compared with the source; still, the maker of a snapshot
    could leave files out: pull from people you trust.

    \b
    catalogue pull https://example.org/index-footers --crawl CC-MAIN-2022-05
    catalogue pull /srv/www/index-footers
    """  # noqa: D301
    with options.opened() as catalogue, harvest_bar(options, "crawls") as bar:
        pulled = catalogue.pull(place, crawls=crawls or "all", compare=compare, report=bar)
    if json_:
        as_json(asdict(pulled))
    else:
        added = f"{plural(pulled.files, 'footer')} added, {pulled.kept:,} stored before"
        pages = f"page indexes of {plural(pulled.row_groups, 'row group')}"
        compared = f"{pulled.compared:,} compared with the source"
        looked_at = plural(len(pulled.crawls), "crawl")
        if pulled.unchanged == len(pulled.crawls):
            options.say(f"{looked_at}: nothing is new since the last pull")
        else:
            options.say(f"{looked_at}: {added}; {pages}; {compared}")
        for lack in pulled.missing:
            options.say(f"what is stored is incomplete: {lack}")
    if pulled.missing:
        sys.exit(1)
