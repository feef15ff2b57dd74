"""``catalogue check``."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Command, Common, common, show
from catalogue.cli.query_commands import crawl_option
from catalogue.cli.tables import as_json, harvest_bar
from catalogue.formatting import plural, size

if TYPE_CHECKING:
    from catalogue.check.findings import Checked


@click.command(cls=Command)
@crawl_option
@click.option(
    "--read-subset", metavar="SHARE", help="Compare with the source: 1%, 3/30 for a part of thirty, or 50MB of footers."
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Draw the same random share as a check that printed this seed."
)
@click.option("--repair", is_flag=True, help="Delete damaged values and rebuild the metadata database.")
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def check(
    options: Common, *, crawls: tuple[str, ...], read_subset: str | None, seed: int | None, repair: bool, json_: bool
) -> None:
    """Check what is stored, and repair it.

    Compares every value of the store with its digest, and the metadata database with the store. Makes no requests,
    except with --read-subset, which compares a share of the footers and page indexes with the source, by one request a
    file. With --repair, damaged values are deleted and the metadata database is rebuilt; harvest fetches the deleted
    footers again.

    Exit status: 0 no defects, or all of them repaired; 1 defects, printed with the command that repairs them, or an
    empty share; 2 invalid arguments; 74 disk failure; 75 source failure.

    \b
    catalogue check
    catalogue check --repair
    catalogue check --read-subset 1%
    catalogue check --read-subset 3/30 --crawl CC-MAIN-2022-05
    """
    with options.opened() as catalogue, harvest_bar(options, "values", resumes=False) as bar:
        before = catalogue.requests, catalogue.bytes
        done = catalogue.check(crawls or "all", read_subset=read_subset, seed=seed, repair=repair, report=bar)
        requests, received = catalogue.requests - before[0], catalogue.bytes - before[1]
    if json_:
        as_json(
            {
                "ok": done.complete,
                "findings": [asdict(finding) for finding in done.findings],
                "values": done.values,
                "bytes": done.bytes,
                "catalogue": done.catalogue,
                "compared": done.compared,
                "equal": done.equal,
                "seed": done.seed,
                "requests": requests,
                "repaired": done.repaired,
                "dropped": done.dropped,
                "next": done.commands,
            }
        )
    else:
        for finding in done.findings:
            show(f"{finding.kind}: {finding}")
        for line in _summary(done, f"{plural(requests, 'request')}, {size(received)}"):
            options.say(line)
    if done.failure:
        raise done.failure
    if not done.complete:
        sys.exit(1)


def _summary(done: "Checked", cost: str) -> list[str]:
    """Return sentences about what was checked, and what to do next."""
    from catalogue.check.findings import EMPTY

    counts = _counted(done.values)
    lines = [f"store: {counts}; {size(done.bytes)}"] if counts else []
    if not done.catalogue:
        lines.append("the metadata database was not compared with the store")
    if done.compared:
        seed = "" if done.seed is None else f" (--seed {done.seed})"
        lines.append(f"source: {done.equal:,} of {plural(done.compared, 'file')} equal{seed}; {cost}")
    if done.empty:
        lines.append(EMPTY)
    lines.append(plural(len(done.findings), "finding") if done.findings else "no defects")
    if done.repaired:
        lines.append("damaged values are deleted, and the metadata database is rebuilt")
    if done.dropped:
        lines.append(f"{plural(len(done.dropped), 'footer')} to be harvested again")
    return [*lines, *(f"run: {command}" for command in done.commands)]


def _counted(values: Mapping[str, int]) -> str:
    """Count values by the name of their table."""
    nouns = {"files": "footer", "documents": "list", "failures": "failure", "indexes": "page index", "facts": "fact"}
    return ", ".join(plural(count, nouns[table]) for table, count in values.items() if count)
