"""``catalogue export`` and ``catalogue pull``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Common, Group, command, common
from catalogue.cli.messages import report_incomplete
from catalogue.cli.options import Number, OneOf, crawl_option, crawls_option, json_option
from catalogue.cli.process import resumable
from catalogue.cli.tables import as_json
from catalogue.formatting import plural

if TYPE_CHECKING:
    from catalogue.export.exports import Exported


@click.group(cls=Group)
def export() -> None:
    """Export stored metadata for other engines and other people. No data of the source is copied.

    \b
    catalogue export ducklake
    catalogue export iceberg index.iceberg
    catalogue export snapshot /srv/www/index-footers
    """


@export.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@crawl_option
@click.option(
    "--backend",
    type=OneOf(["sqlite", "duckdb"]),
    help="Database of the DuckLake.  [default: that of the existing file, else sqlite]",
)
@json_option
@common
def ducklake(options: Common, *, path: Path | None, crawls: tuple[str, ...], backend: str | None, json_: bool) -> int:
    """Write a DuckLake, for DuckDB 1.5 and later.

    The DuckLake is a database with one table of all captures; the index files stay at the source. PATH is the file to
    write, by default captures.ducklake in the data folder, which catalogue sql attaches as cc. The table has only the
    crawls of --crawl; another export adds a snapshot for each new or changed crawl.

    \b
    catalogue export ducklake
    catalogue export ducklake shared.ducklake --crawl CC-MAIN-2022-05..
    catalogue sql "select url from cc.captures where crawl = 'CC-MAIN-2022-05'
                   and cc.surt_match(url_surtkey, '*.example.com')"

    DuckDB can also read it without catalogue, after INSTALL ducklake; INSTALL sqlite; INSTALL httpfs:

    \b
    ATTACH 'ducklake:sqlite:captures.ducklake' AS cc (READ_ONLY);
    SELECT url, fetch_time FROM cc.captures
    WHERE crawl = 'CC-MAIN-2022-05' AND cc.surt_match(url_surtkey, 'example.com/blog/*');

    With --backend duckdb the DuckLake is smaller, and faster with many crawls; attach it as ducklake:captures.ducklake.
    DuckDB reads the index files from the source of the harvest; to read them from another place, add options to ATTACH:
    DATA_PATH 's3://commoncrawl/', OVERRIDE_DATA_PATH true.

    DuckDB opens only files that can contain rows of the requested crawl, subset and keys. Always filter by these:
    DuckDB has no rate limit, and Common Crawl blocks clients that send too many requests. surt_match accepts plain
    hosts and paths; for other URLs use url_surtkey = 'com,example)/page?a=1', as returned by catalogue.url_surtkey.
    """
    from catalogue.export.ducklake_sql import attach, lake_path

    with options.opened() as catalogue:
        exported = catalogue.export_ducklake(path, crawls=crawls or "all", backend=backend)
        if path is None:
            with catalogue.connect() as connection:
                problem = attach(connection, lake_path(catalogue.session), catalogue.session.settings.source)
            if problem:
                options.say(f"catalogue sql cannot read it yet: {problem}")
        return _show_result(options, exported, json_=json_)


@export.command()
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@crawl_option
@click.option("--location", metavar="URL", help="URL from which engines read the files.  [default: the source]")
@json_option
@common
def iceberg(options: Common, *, path: Path, crawls: tuple[str, ...], location: str | None, json_: bool) -> int:
    """Write an Iceberg table, for Spark, pyiceberg and others.

    The table has all captures; the index files stay at the source. PATH is the folder to write. Engines open only the
    files that can match filters on url_surtkey, crawl and subset. The table contains absolute paths, so write it where
    it will be read. Another export to the same PATH adds a snapshot of the crawls of --crawl; unchanged files are not
    rewritten.

    Times of crawls before CC-MAIN-2021-49 are UTC, but DuckDB reads them in the time zone of its session, so set
    TimeZone to UTC. pyiceberg reads s3 and folders but not https, and filters by crawl or subset only if these columns
    are selected; Catalogue.iceberg() in Python has neither limit, and requests no footers. Spark needs the jar
    iceberg-spark-runtime, and s3a.

    \b
    catalogue export iceberg index.iceberg
    catalogue export iceberg index.iceberg --crawl 2022-05 --location s3a://commoncrawl/
    duckdb -c "SET TimeZone='UTC'; LOAD iceberg; SELECT url FROM iceberg_scan('index.iceberg')
      WHERE url_surtkey >= 'com,example)/' AND url_surtkey < 'com,example)0'"
    spark.read.format("iceberg").load("file:///data/index.iceberg")
    """
    with options.opened() as catalogue:
        exported = catalogue.export_iceberg(path, crawls=crawls or "all", location=location)
    return _show_result(options, exported, json_=json_)


@export.command()
@click.argument("place", metavar="PATH_OR_URL")
@crawl_option
@json_option
@common
def snapshot(options: Common, *, place: str, crawls: tuple[str, ...], json_: bool) -> int:
    """Write a snapshot, which others can store by catalogue pull.

    PATH_OR_URL is a local folder, or a URL to which fsspec can write. For each crawl the command writes a file with the
    footers and page indexes. If you run it again, it writes only the crawls that have changed, and removes those that
    are not stored any more; with --crawl, others stay. It can run during a harvest. You can stop it at any time; if you
    run it again, it continues with the next crawl.

    \b
    catalogue export snapshot /srv/www/index-footers
    catalogue export snapshot s3://bucket/index-footers --crawl CC-MAIN-2022-05
    """
    with options.opened() as catalogue, resumable():
        exported = catalogue.export_snapshot(place, crawls=crawls or "all")
    return _show_result(options, exported, json_=json_)


def _show_result(options: Common, exported: "Exported", *, json_: bool) -> int:
    if json_:
        as_json(asdict(exported) | {"complete": exported.complete})
    else:
        crawls = plural(len(exported.crawls), "crawl")
        options.say(f"{exported.place}: {plural(exported.files, 'file')} of {crawls}")
        report_incomplete("it is incomplete", exported.missing)
    return int(not exported.complete)


@command()
@click.argument("place", metavar="PATH_OR_URL")
@crawls_option(
    "Crawls of the snapshot: 2022-05, a year, A..B, latest or all; comma-separated or repeated.  [default: all]", None
)
@click.option(
    "--compare",
    type=Number(min=0),
    default=3,
    show_default=True,
    help="For each crawl, compare this many files, and as many with page indexes, with the source; 0 for none.",
)
@json_option
def pull(options: Common, *, place: str, crawls: tuple[str, ...], compare: int, json_: bool) -> int:
    """Store a snapshot that somebody else exported.

    PATH_OR_URL is a folder or an address. Values that are stored already are not replaced. You can stop the command at
    any time; if you run it again, it continues with the next crawl. It checks every file, and compares some footers
    and page indexes with the source. The maker of a snapshot can still leave files out, so pull only from people you
    trust.

    \b
    catalogue pull https://example.org/index-footers --crawl CC-MAIN-2022-05
    catalogue pull /srv/www/index-footers
    """
    with options.opened() as catalogue, resumable():
        pulled = catalogue.pull(place, crawls=crawls or "all", compare=compare)
    if json_:
        as_json(asdict(pulled))
    else:
        news = "nothing new since the last pull"
        if pulled.unchanged != len(pulled.crawls):
            news = f"{plural(pulled.files, 'footer')} added, {pulled.kept:,} stored before; page indexes of "
            news += f"{plural(pulled.row_groups, 'row group')}; {pulled.compared:,} compared with the source"
        options.say(f"{plural(len(pulled.crawls), 'crawl')}: {news}")
        report_incomplete("the store is incomplete", pulled.missing)
    return int(bool(pulled.missing))
