"""``catalogue crawls``, ``harvest``, ``backfill`` and ``forget``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import is_new_tip, report_incomplete, warn
from catalogue.cli.options import (
    Budget,
    OneOf,
    complete_columns,
    complete_listed_crawls,
    complete_subsets,
    confirmed,
    crawl_option,
    crawls_option,
    json_option,
    scheduler_option,
    yes_option,
)
from catalogue.cli.process import resumable
from catalogue.cli.tables import as_json, table
from catalogue.errors import NotHarvested, QueryError
from catalogue.formatting import format_cost, parse_size, plural, size

if TYPE_CHECKING:
    from catalogue import Catalogue
    from catalogue.harvest.backfill import Estimate, Filled
    from catalogue.harvest.harvest import Harvested
    from catalogue.harvest.harvest_crawls import HarvestEstimate


_TIMES = ("first_fetch", "last_fetch")


@command()
@click.option("--json", "json_", is_flag=True, help="One JSON object per crawl.")
def crawls(options: Common, *, json_: bool) -> int:
    """List all crawls, newest first, and show which are harvested.

    \b
    catalogue crawls
    catalogue crawls --json | head -1
    """
    from catalogue.reports import crawl_rows
    from catalogue.selection import crawl_list

    with options.opened() as catalogue:
        listed = crawl_list(catalogue.session)
        rows = crawl_rows(catalogue.session)
    shown = {row["crawl"] for row in rows}
    new = dict.fromkeys(rows[0] if rows else ["name", *_TIMES])
    new |= {"has_table": True, "files_listed": None, "files_harvested": 0, "subsets": [], "num_rows": 0}
    rows = [{**new, "crawl": crawl} for crawl in listed.found if crawl not in shown] + rows
    if json_:
        for row in rows:
            as_json(row)
    else:
        table(
            ["crawl", "name", "from", "to", "harvested"],
            [[row["crawl"], row["name"], *(str(row[at] or "-")[:10] for at in _TIMES), _state(row)] for row in rows],
            min_widths={"name": 12, "harvested": 24},
            drop_first=["name", "to"],
        )
    return report_incomplete("the list may be incomplete", listed.missing)


def _state(row: Mapping[str, Any]) -> str:
    stored, listed = row["files_harvested"], row["files_listed"] or 0
    count = f"{stored} of {plural(listed, 'file')}" if stored < listed else plural(stored, "file")
    found = [f"{count}: {', '.join(row['subsets'])}"] if stored else []
    found += ["list of blocks"] if row.get("blocks") else []
    return "; ".join(found) or ("no" if row["has_table"] else "has no columnar index")


@command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@crawls_option(
    "Crawls: 2022-05, a year, A..B, latest or all; comma-separated or repeated. If a crawl is not listed, write "
    "the path of its manifest.",
    complete_listed_crawls,
)
@click.option(
    "--subset",
    "subsets",
    multiple=True,
    shell_complete=complete_subsets,
    help="Parts of a crawl: warc (pages), crawldiagnostics (redirects, errors), robotstxt, or all; repeatable.  "
    "[default: warc]",
)
@click.option(
    "--index",
    type=OneOf(["columnar", "cdx", "both"]),
    default="columnar",
    show_default=True,
    help="columnar: footers of Parquet files, 25 MB a crawl. cdx: the list of blocks of the CDX index, "
    "105 MB to fetch, 26 MB on disk; with it, a URL takes one request.",
)
@click.option(
    "--pages", is_flag=True, help="Also store page indexes, for exact plans: about 1 MB per file, in the same requests."
)
@click.option(
    "--values",
    multiple=True,
    metavar="COLUMN",
    shell_complete=complete_columns,
    help="Also store the values that these columns have in each part of a file (row group), so that queries by them "
    "read only parts with matching values; all for media types, languages, charset, status and TLD; comma-separated or "
    "repeated.",
)
@click.option("--refresh", is_flag=True, help="Fetch stored footers again, to find changed files.")
@click.option("--dry-run", is_flag=True, help="Print the cost; fetch nothing except the list of crawls.")
@click.option("--yes", is_flag=True, help="Do not ask if several crawls or values take over 500 requests or 1 GB.")
@click.option("--key", metavar="COLUMN", help="With --table: the text column by which the files are sorted.")
@click.option(
    "--keys",
    type=OneOf(["url", "host", "text"]),
    help="With --table: what this column contains.  [default: depends on its name]",
)
@click.option("--manifest", metavar="PATH", help="With --table: list of the files at the source, a path per line.")
@click.option("--paths-file", type=click.File("rb"), help="With --table: a local list of the files; - for stdin.")
@click.option("--json", "json_", is_flag=True, help="One JSON object per crawl.")
def harvest(
    options: Common,
    *,
    paths: tuple[str, ...],
    paths_file: BinaryIO | None,
    crawls: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    json_: bool,
    **parameters: Any,
) -> int:
    """Make queries of a crawl cheaper: store tables of contents.

    Each crawl has two indexes with the same captures. The columnar index is Parquet files: harvest stores the footer of
    each file, which says what the file contains, with one small request per file. The CDX index is text in compressed
    blocks: harvest --index cdx stores the list of blocks, with about nine large requests. After an interruption, the
    same command continues; what is stored is not requested again.

    \b
    catalogue harvest --crawl CC-MAIN-2022-05
    catalogue harvest --crawl CC-MAIN-2021-04..CC-MAIN-2021-49 --subset all --yes
    catalogue harvest --crawl latest --contact you@example.org
    catalogue harvest --crawl CC-MAIN-2022-05 --pages
    catalogue harvest --crawl CC-MAIN-2022-05 --index cdx
    catalogue harvest --crawl 2022 --pages --dry-run
    catalogue harvest --crawl CC-MAIN-2022-05 --values content_mime_detected,content_languages

    You can also query other Parquet files that are sorted by a text column. Harvest them once with a name for --table:

    \b
    catalogue harvest --table hosts --key surt_host_name --manifest projects/host-index-testing/v2.paths.gz
    catalogue query '*.example.com' --table hosts
    catalogue harvest --table mine --source ~/files --key name a.parquet b.parquet
    """
    definition = {name: parameters.pop(name) for name in ("key", "keys", "manifest")}
    defines = bool(paths or paths_file or any(definition.values()))
    if options.table is None and defines:
        raise QueryError("--key, --manifest and paths need --table; a crawl needs --crawl, such as --crawl latest")
    if options.table is None and not crawls:
        raise QueryError("no crawl; add one, such as --crawl latest")
    if defines and definition["key"] is None:
        raise QueryError("no sort column; add one with --key")
    with options.opened() as catalogue:
        if defines:
            from catalogue.commoncrawl.datasets import parse_path_list

            source = catalogue.session.settings.source.rstrip("/")
            listed = parse_path_list(paths_file.read(), source=source) if paths_file else ()
            catalogue.define(**definition, paths=[*paths, *listed])
        if dry_run:
            needed = catalogue.harvest_estimate(crawls or None, **parameters)
            as_json(_rounded(needed)) if json_ else click.echo(needed.summary)
            return 0
        if not yes:
            _confirm_harvest(catalogue, crawls, parameters)
        settings = catalogue.session.settings
        if settings.is_anonymous and is_new_tip("contact", settings.cache):
            options.say("tip: with --contact you@example.org, Common Crawl can write to you instead of blocking you")
        with resumable():
            outcomes = catalogue.harvest(crawls or None, **parameters)
    for outcome in outcomes:
        _show_outcome(options, outcome, json_=json_)
    failed = any(outcome.failures for outcome in outcomes)
    if failed:
        options.say("some files failed; run the same command again to retry them")
    return int(failed)


def _rounded(cost: "HarvestEstimate | Estimate | Filled") -> dict[str, Any]:
    return asdict(cost) | {"seconds": round(cost.seconds, 1)}


def _confirm_harvest(catalogue: "Catalogue", crawls: Sequence[str], parameters: Mapping[str, Any]) -> None:
    from catalogue.commoncrawl.crawls import plain_names

    words = [word for text in crawls for word in text.split(",")]
    if len(words) == len([*plain_names(words)]) <= 1 and not parameters["values"]:
        return
    needed = catalogue.harvest_estimate(crawls, **parameters)
    if needed.crawls > 1 or parameters["values"]:
        Budget(yes=False).ask(needed.requests, needed.bytes, f"this harvests {needed.summary}", "choose fewer crawls")


def _show_outcome(options: Common, outcome: "Harvested", *, json_: bool) -> None:
    at = outcome.progress
    if json_:
        as_json(
            {
                "crawl": at.name,
                "index": outcome.index,
                "files": at.listed,
                "harvested": at.done,
                "taken": len(outcome.fetched),
                "failed": outcome.failures,
                "requests": at.requests,
                "bytes": at.bytes,
            }
        )
    else:
        options.say(outcome.summary)
    _show_failures(outcome.failures)


def _show_failures(failures: Mapping[str, str]) -> None:
    for path, reason in failures.items():
        warn(f"{path}: {reason}" if path not in reason else reason)


@command()
@crawl_option
@click.option("--only-gaps", is_flag=True, hidden=True)  # without effect; scripts for earlier versions have it
@click.option(
    "--files",
    multiple=True,
    metavar="GLOB",
    help="Only index files whose path matches, such as '*part-00007-*'; repeatable.",
)
@click.option("--budget", metavar="SIZE", help="Stop before receiving more than this, such as 2GB.")
@scheduler_option
@click.option("--dry-run", is_flag=True, help="Print the cost, and read nothing.")
@yes_option
@json_option
def backfill(
    options: Common,
    *,
    budget: str | None,
    scheduler: str | None,
    dry_run: bool,
    yes: bool,
    json_: bool,
    **parameters: Any,
) -> int:
    """Speed up queries of old crawls: read missing key ranges once.

    Some parts of old files (row groups) have no bounds: their smallest and largest keys are unknown, so every query
    reads them. This command finds the bounds, from the page indexes or the keys of these row groups, and stores them.
    After an interruption, the same command continues.

    \b
    catalogue backfill --dry-run
    catalogue backfill --crawl CC-MAIN-2018-05 --budget 2GB
    """
    max_bytes = parse_size(budget) if budget else None
    with options.opened(scheduler=scheduler) as catalogue:
        filling = catalogue.backfill(parameters.pop("crawls") or "all", **parameters)
        needed = filling.estimate
        cost = format_cost(needed)
        summary = f"{plural(needed.row_groups, 'row group')} of {plural(needed.files, 'file')}: {cost}"
        if dry_run:
            as_json(_rounded(needed)) if json_ else click.echo(summary)
            return 0
        options.say(summary)
        most = min(needed.bytes, max_bytes or needed.bytes)
        Budget(yes).ask(needed.requests, most, f"this takes {cost}", "set a --budget")
        with resumable():
            done = filling.run(budget=max_bytes)
        catalogue.session.updated_database()
    complete = done.done == needed.files
    if json_:
        as_json(_rounded(done) | {"files": needed.files, "complete": complete})
    else:
        spent = f"{plural(done.requests, 'request')}, {size(done.bytes)}, {done.seconds:.1f} s"
        options.say(f"{done.done:,} of {plural(needed.files, 'file')} done; {spent}")
        _show_failures(done.failures)
    if not complete:
        reason = "the budget is too small for another file; " if not done.failures else ""
        begun = done.done or done.failures
        warn(f"{reason}{'run the same command again to continue' if begun else 'choose a larger one'}")
    return int(not complete)


@command()
@crawls_option("Stored crawls: 2022-05, a year, A..B, latest or all; comma-separated or repeated.", required=True)
@yes_option
def forget(options: Common, *, crawls: tuple[str, ...], yes: bool) -> None:
    """Delete what is stored of a crawl.

    It deletes footers, page indexes, values of columns, and the list of blocks of the CDX index.

    \b
    catalogue forget --crawl CC-MAIN-2018-05
    """
    from catalogue.selection import select_stored

    with options.opened() as catalogue:
        catalogue.session.check_writable()
        try:
            chosen = select_stored(catalogue.session, crawls)
        except NotHarvested as error:
            what = error.crawl or ", ".join(crawls)
            if catalogue.session.store_path.exists():
                catalogue.session.updated_database()  # the same command may have been killed before this
            raise QueryError(f"nothing of {what} is stored; see: catalogue status") from error
        names = ", ".join(chosen)
        lists = len({*chosen} & {*catalogue.session.block_lists.stored})
        if not yes and not confirmed(f"Delete what is stored of {names}?"):
            raise QueryError(f"nothing was deleted; add --yes to delete what is stored of {names}")
        deleted = catalogue.forget(chosen)
    counts = {"footer": deleted, "list of blocks": lists}
    what = " and ".join(plural(count, noun) for noun, count in counts.items() if count)
    options.say(f"what is stored of {names} is deleted{what and f': {what}'}")
