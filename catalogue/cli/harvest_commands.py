"""Commands that take footers, and say which are held."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

import click

from catalogue.cli import completion
from catalogue.cli.app import Command, Common, OneOf, common, literally, show
from catalogue.cli.budget import MANY_BYTES, MANY_REQUESTS, told
from catalogue.cli.completion import crawls_held, crawls_listed
from catalogue.cli.query_commands import among_crawls
from catalogue.cli.tables import as_json, confirmed, harvest_bar, table
from catalogue.errors import QueryError, TooExpensive
from catalogue.formatting import parse_size, plural, size
from catalogue.progress import Progress
from catalogue.settings import STORE_NAME, config_file

if TYPE_CHECKING:
    from catalogue import Catalogue
    from catalogue.harvest.harvest import Harvested

_LONG_LOG = 32 << 20
"""Bytes; a log that nobody holds up has half of that at most."""

_FEW_STEPS = 2
"""That are told of at once; more come up when these are done."""


class _Chosen(TypedDict):
    """Arguments of a harvest besides the crawls."""

    subsets: tuple[str, ...]
    refresh: bool
    pages: bool


@click.command(cls=Command)
@click.option("--json", "json_", is_flag=True, help="One JSON object a crawl.")
@common
def crawls(options: Common, *, json_: bool) -> None:
    """The crawls there are, newest first, and which are harvested.

    \b
    catalogue crawls
    catalogue crawls --json | head -1
    """  # noqa: D301
    from catalogue.harvest.harvest_crawls import crawl_list  # noqa: PLC0415 - --help needs none of what this imports

    with options.opened() as catalogue:
        listed = crawl_list(catalogue.session)
        rows = catalogue.crawls().to_dict("records")
    shown = {row["crawl"] for row in rows}
    empty = dict.fromkeys(rows[0] if rows else ["name", "first_fetch", "last_fetch"])
    found = {"has_table": True, "files_harvested": 0, "subsets": [], "num_rows": 0}
    rows = [{**empty, "crawl": crawl, **found} for crawl in listed.found if crawl not in shown] + rows
    if json_:
        for row in rows:
            as_json(_plain(row))
        sys.exit(0 if listed.complete else 1)
    table(
        ["crawl", "name", "from", "to", "harvested"],
        [[r["crawl"], r["name"], _day(r["first_fetch"]), _day(r["last_fetch"]), _harvested(r)] for r in rows],
        min_widths={"name": 12, "harvested": 24},
        drop_first=["name", "to"],
    )
    if not listed.complete:
        sys.exit(1)


def _harvested(row: dict[Any, Any]) -> str:
    if not row["has_table"]:
        return "has no columnar index"
    if not row["files_harvested"]:
        return "no"
    return f"{row['files_harvested']} files: {', '.join(row['subsets'])}"


def _day(time: Any) -> str:  # noqa: ANN401 - pandas has a NaT of its own
    return "-" if str(time) in {"NaT", "None"} else str(time)[:10]


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    """A row of a DataFrame with None where pandas has its own marks of absence, and lists where it has arrays."""
    return {
        name: value.tolist()
        if hasattr(value, "tolist") and hasattr(value, "__len__")
        else None
        if value != value  # noqa: PLR0124 - NaN and NaT
        else value
        for name, value in row.items()
    }


@click.command(cls=Command)
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option(
    "--crawl",
    "crawls",
    multiple=True,
    shell_complete=crawls_listed,
    help="Crawls that the source lists: 2022-05, a year, A..B, latest or all; with commas or repeated. "
    "Or the path of a manifest, for a crawl that is not listed.",
)
@click.option(
    "--subset",
    "subsets",
    multiple=True,
    shell_complete=completion.subsets,
    default=["warc"],
    show_default=True,
    help="Of the index's three parts warc (pages), crawldiagnostics (redirects, errors), robotstxt; or all.",
)
@click.option("--pages", is_flag=True, help="Take page indexes too, in the same requests; some 1 MB a file.")
@click.option("--refresh", is_flag=True, help="Take again what is held, to notice files that changed.")
@click.option("--dry-run", is_flag=True, help="Only report what it will take; fetches the list of crawls at most.")
@click.option("--yes", is_flag=True, help="Do not ask before more than 500 requests or 1 GB for several crawls.")
@click.option("--key", metavar="COLUMN", help="With --table: the column of text that its files are sorted by.")
@click.option(
    "--keys", type=OneOf(["url", "host", "text"]), help="With --table: what that holds.  [default: by its name]"
)
@click.option("--manifest", metavar="PATH", help="With --table: where the source lists its files, a path a line.")
@click.option("--paths-file", type=click.File("rb"), help="With --table: such a list here; - for stdin.")
@click.option("--json", "json_", is_flag=True, help="One JSON object a crawl.")
@common
def harvest(  # noqa: PLR0913 - an option each
    options: Common,
    *,
    paths: tuple[str, ...],
    crawls: tuple[str, ...],
    subsets: tuple[str, ...],
    pages: bool,
    refresh: bool,
    dry_run: bool,
    yes: bool,
    key: str | None,
    keys: str | None,
    manifest: str | None,
    paths_file: BinaryIO | None,
    json_: bool,
) -> None:
    """Take the footers of a crawl's index files into the store.

    One small request a file. It can be stopped at any time and goes on from there; what is held is not asked for again.

    \b
    catalogue harvest --crawl CC-MAIN-2022-05
    catalogue harvest --crawl CC-MAIN-2021-04..CC-MAIN-2021-49 --subset all --yes
    catalogue harvest --crawl latest --contact you@example.org
    catalogue harvest --crawl CC-MAIN-2022-05 --pages
    catalogue harvest --crawl 2022 --pages --dry-run

    Other tables that are sorted by a column of text are harvested once under a name, and asked with --table as well:

    \b
    catalogue harvest --table hosts --key surt_host_name --manifest projects/host-index-testing/v2.paths.gz
    catalogue query '*.example.com' --table hosts
    catalogue harvest --table mine --source ~/files --key name a.parquet b.parquet
    """  # noqa: D301
    defines = bool(paths or key or keys or manifest or paths_file)
    if options.table is None and defines:
        message = "--key, --manifest and paths are for other tables; name one with --table"
        raise QueryError(message)
    if options.table is None and not crawls:
        message = "which crawl is to be harvested? name it, such as --crawl latest"
        raise QueryError(message)
    chosen: _Chosen = {"subsets": subsets, "refresh": refresh, "pages": pages}
    with options.opened() as catalogue:
        if defines:
            _define(catalogue, key, keys, manifest, [*paths, *_listed_in(paths_file, catalogue)])
        if dry_run:
            needed = catalogue.harvest_estimate(crawls or None, **chosen)
            as_json(asdict(needed)) if json_ else click.echo(needed.summary)
            return
        if not yes:
            _agree(catalogue, crawls, chosen)
        if catalogue.session.settings.asks_strangers and not catalogue.session.settings.contact:
            options.say("tip: --contact you@example.org lets Common Crawl write to you before it has to block you")
        with harvest_bar(options) as bar:
            outcomes = catalogue.harvest(crawls or None, **chosen, report=bar)
    for outcome in outcomes:
        _show_outcome(options, outcome, json_=json_)
    if any(outcome.failures for outcome in outcomes):
        options.say("some files failed; run the same command again to try them again")
        sys.exit(1)


def _agree(catalogue: "Catalogue", crawls: Sequence[str], chosen: "_Chosen") -> None:
    """Ask before a large harvest of several crawls.

    Raises:
        TooExpensive: if the user says no, or cannot be asked.
    """
    from catalogue.commoncrawl.crawls import plain_names  # noqa: PLC0415 - --help needs none of what this imports

    words = [word for text in crawls for word in text.split(",")]
    if len(words) == len([*plain_names(words)]) <= 1:
        return
    needed = catalogue.harvest_estimate(crawls, **chosen)
    large = needed.requests > MANY_REQUESTS or needed.bytes > MANY_BYTES
    if needed.crawls > 1 and large and not confirmed(f"This harvests {needed.summary}. Go on?"):
        message = f"this harvests {needed.summary}; choose fewer crawls, or add --yes"
        raise TooExpensive(message)


def _show_outcome(options: Common, outcome: "Harvested", *, json_: bool) -> None:
    at = outcome.progress
    if json_:
        as_json(
            {
                "crawl": at.name,
                "files": at.listed,
                "harvested": at.done,
                "taken": len(outcome.facts),
                "failed": outcome.failures,
                "requests": at.requests,
                "bytes": at.bytes,
            }
        )
    else:
        options.say(outcome.told)
    for path, reason in outcome.failures.items():
        options.say(f"  {path}: {reason}" if path not in reason else f"  {reason}")


def _listed_in(file: BinaryIO | None, catalogue: Any) -> tuple[str, ...]:  # noqa: ANN401 - importing its type is slow
    from catalogue.commoncrawl.datasets import parse_path_list  # noqa: PLC0415 - --help needs none of what this imports

    return parse_path_list(file.read(), source=catalogue.session.settings.source.rstrip("/")) if file else ()


def _define(catalogue: Any, key: str | None, keys: str | None, manifest: str | None, paths: list[str]) -> None:  # noqa: ANN401
    if key is None:
        message = "by which column are these files sorted? say it with --key"
        raise QueryError(message)
    catalogue.define(key, keys=keys, manifest=manifest, paths=paths)


@click.command(cls=Command)
@among_crawls
@click.option("--only-gaps", is_flag=True, help="Only what has no bounds; leave zipped files as they are.")
@click.option("--files", multiple=True, metavar="GLOB", help="Only index files such as '*part-00007-*'; repeatable.")
@click.option("--budget", metavar="SIZE", help="End before more than this is received, such as 2GB.")
@click.option("--scheduler", metavar="ADDRESS", help="Let the workers of a Dask cluster read, as tcp://host:8786.")
@click.option("--dry-run", is_flag=True, help="Only say what it would take.")
@click.option("--yes", is_flag=True, help="Do not ask, however much it is.")
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def backfill(  # noqa: PLR0913 - an option each
    options: Common,
    *,
    crawls: tuple[str, ...],
    only_gaps: bool,
    files: tuple[str, ...],
    budget: str | None,
    scheduler: str | None,
    dry_run: bool,
    yes: bool,
    json_: bool,
) -> None:
    """Learn which keys row groups hold whose footers do not say, or say too little.

    Bounds are the least and the greatest key of a row group. Some have none, and in most files of before mid 2022,
    which are two sorted streams zipped together, they say next to nothing. Page indexes are taken where that is
    enough, else the keys are read, once. It can be stopped at any time and goes on from there.

    \b
    catalogue backfill --dry-run
    catalogue backfill --crawl CC-MAIN-2018-05 --budget 2GB
    catalogue backfill --only-gaps
    """  # noqa: D301
    most = parse_size(budget) if budget else None
    with options.opened(scheduler=scheduler) as catalogue:
        filling = catalogue.backfill(crawls or "all", only_gaps=only_gaps, files=files)
        needed = filling.estimate
        cost = told(needed)
        options.say(f"{plural(needed.row_groups, 'row group')} of {plural(needed.files, 'file')}: {cost}")
        if dry_run:
            if json_:
                as_json(asdict(needed))
            return
        large = needed.requests > MANY_REQUESTS or min(needed.bytes, most or needed.bytes) > MANY_BYTES
        if large and not yes and not confirmed("Go on?"):
            message = f"this takes {cost}; set a --budget, or add --yes if that is meant"
            raise TooExpensive(message)
        with harvest_bar(options) as bar:
            done = filling.run(
                budget=most,
                report=lambda at: bar(
                    Progress("backfill", needed.files, at.done, failed=len(at.failures), bytes=at.bytes)
                ),
            )
        catalogue.update()
    complete = done.done == needed.files
    if json_:
        as_json(asdict(done) | {"files": needed.files, "complete": complete})
    else:
        made = f"{plural(done.requests, 'request')}, {size(done.bytes)}, {done.seconds:.1f} s"
        options.say(f"{done.done:,} of {plural(needed.files, 'file')} done; {made}")
        for path, reason in done.failures.items():
            options.say(f"  {path}: {reason}" if path not in reason else f"  {reason}")
    if not complete:
        spent = "the budget allows no further file; " if not done.failures else ""
        options.say(f"{spent}run the same command again to go on")
        sys.exit(1)


@click.command(cls=Command)
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def status(options: Common, *, json_: bool) -> None:
    """What is held: files, row groups, gaps in statistics, failures, sizes; and what to do next, by what is held.

    Row groups without bounds are those whose keys nobody knows, so that every question reads them; backfill mends that.

    \b
    catalogue status
    catalogue status --json
    """  # noqa: D301
    from catalogue.reports import disk_sizes  # noqa: PLC0415 - --help needs none of what this imports
    from catalogue.status import next_steps  # noqa: PLC0415 - --help needs none of what this imports

    with options.opened() as catalogue:
        coverage = [_plain(row) for row in catalogue.coverage().to_dict("records")]
        failures = [_plain(row) for row in catalogue.failures().to_dict("records")]
        store_size, catalogue_size = disk_sizes(catalogue.session)
        log_size = catalogue.session.store.log_size()
        paths = {
            "store": catalogue.session.data / STORE_NAME,
            "catalogue": catalogue.path,
            "config": config_file(),
            "cache": catalogue.session.settings.cache,
        }
        steps = [replace(step, command=literally(step.command)) for step in next_steps(catalogue.session)]
    if json_:
        as_json(
            {
                "coverage": coverage,
                "failures": failures,
                "store_bytes": store_size,
                "store_log_bytes": log_size,
                "catalogue_bytes": catalogue_size,
                "paths": {name: str(path.absolute()) for name, path in paths.items()},
                "source": catalogue.session.settings.source,
                "next": [asdict(step) for step in steps],
            }
        )
        return
    table(
        ["crawl", "subset", "files", "row groups", "without bounds", "captures", "size"],
        [
            [
                r["crawl"],
                r["subset"],
                f"{r['files_harvested']}/{'?' if r['files_listed'] is None else int(r['files_listed'])}",
                r["row_groups"],
                r["without_bounds"],
                r["num_rows"],
                size(r["file_size"]),
            ]
            for r in coverage
        ],
    )
    click.echo(f"\nstore {size(store_size)}, catalogue {size(catalogue_size)}")
    for name, path in paths.items():
        show(f"{name:9} {path.absolute()}{'' if path.exists() else ' (not there)'}")
    if log_size > _LONG_LOG:
        show(f"of the store {size(log_size)} are its log, because some program reads it all the time; end that one")
    for failure in failures:
        show(f"failed: {failure['reason']}")
    for step in steps[:_FEW_STEPS]:
        show(f"{step.why}; run: {step.command}")


@click.command(cls=Command)
@click.option(
    "--crawl",
    "crawls",
    multiple=True,
    required=True,
    shell_complete=crawls_held,
    help="Stored crawls: 2022-05, a year, A..B, latest or all; with commas or repeated.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def forget(options: Common, *, crawls: tuple[str, ...], yes: bool) -> None:
    """Delete what is held of a crawl.

    \b
    catalogue forget --crawl CC-MAIN-2018-05
    """  # noqa: D301
    from catalogue.selection import stored_crawls  # noqa: PLC0415 - --help needs none of what this imports

    with options.opened() as catalogue:
        chosen = stored_crawls(catalogue.session, crawls)
        names = ", ".join(chosen)
        if not yes and not confirmed(f"Delete the footers of {names}?"):
            message = f"nothing was deleted; to delete the footers of {names} add --yes"
            raise QueryError(message)
        gone = catalogue.forget(chosen)
    options.say(f"{plural(gone, 'footer')} of {names} deleted")
