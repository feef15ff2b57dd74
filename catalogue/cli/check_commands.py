"""Commands that check what is held, and mend it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Command, Common, common, show
from catalogue.cli.query_commands import among_crawls
from catalogue.cli.tables import as_json, harvest_bar
from catalogue.formatting import plural, size

if TYPE_CHECKING:
    from catalogue.check.findings import Checked, Finding
    from catalogue.harvest.repair import Repaired


@click.command(cls=Command)
@among_crawls
@click.option(
    "--read-subset", metavar="SHARE", help="Compare with the source: 1%, 3/30 for a part of thirty, or 50MB of footers."
)
@click.option("--seed", type=click.IntRange(min=0), help="Draw the same share as before, which says its seed.")
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def check(options: Common, *, crawls: tuple[str, ...], read_subset: str | None, seed: int | None, json_: bool) -> None:
    """Check that what is held is what was taken.

    Every value of the store is compared with the digest that was written with it, and the catalogue with one made
    anew. Nothing is asked of the source but with --read-subset: then a share of the footers, and of page indexes that
    are held, is taken once more, by a request a file, and compared.

    Leaves with 0 if all is well; 1 if something is wrong, which is told with what to do about it, or if no file is in
    the share; 2 if the question is; 74 if the disk fails; 75 if the source does.

    \b
    catalogue check
    catalogue check --read-subset 1%
    catalogue check --read-subset 3/30 --crawl CC-MAIN-2022-05
    """  # noqa: D301
    with options.opened() as catalogue, harvest_bar(options, "values", resumes=False) as bar:
        before = catalogue.requests, catalogue.bytes
        done = catalogue.check(crawls or "all", read_subset=read_subset, seed=seed, report=bar)
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
            }
        )
    else:
        _show(done.findings)
        for line in _looked_at(done, f"{plural(requests, 'request')}, {size(received)}"):
            options.say(line)
        _say_next(options, done.findings)
    if done.failure:
        raise done.failure
    if not done.complete:
        sys.exit(1)


def _looked_at(done: "Checked", cost: str) -> list[str]:
    """What was looked at, a sentence each."""
    from catalogue.check.findings import EMPTY  # noqa: PLC0415 - slow to import

    well = "all is well" if done.catalogue and not done.empty else "nothing is wrong with what was looked at"
    found = plural(len(done.findings), "finding") if done.findings else well
    counts = _counted(done.values)
    told = [f"store: {counts}; {size(done.bytes)}"] if counts else []
    if not done.catalogue:
        told.append("the catalogue was not compared with it")
    if done.compared:
        drawn = "" if done.seed is None else f" (--seed {done.seed})"
        told.append(f"source: {done.equal:,} of {plural(done.compared, 'file')} the same{drawn}; {cost}")
    return [*told, *([EMPTY] if done.empty else ()), found]


@click.command(cls=Command)
@among_crawls
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def repair(options: Common, *, crawls: tuple[str, ...], json_: bool) -> None:
    """Mend what check finds.

    What is damaged is taken again, by a request for each such file and none for others; what was found in files is
    found again, and the catalogue made anew. If the store's file is damaged, all that is whole in it goes into a new
    one, and the old one is kept under another name. It can be stopped at any time, and run again.

    Leaves with 0 if all is well again; 1 if something is left, which is told; 75 if the source fails, or somebody
    harvests meanwhile.

    \b
    catalogue check || catalogue repair
    catalogue repair --crawl CC-MAIN-2022-05
    """  # noqa: D301
    with options.opened() as catalogue, harvest_bar(options, "values") as bar:
        done = catalogue.repair(crawls or "all", report=bar)
    if json_:
        as_json({"ok": done.complete, **asdict(done), "aside": done.aside and str(done.aside)})
    else:
        _tell(options, done)
    if not done.complete:
        sys.exit(1)


def _tell(options: Common, done: "Repaired") -> None:
    for finding in done.found:
        options.say(f"found: {finding}")
    for line in _done(done):
        options.say(line)
    for path, reason in done.failures.items():
        show(f"failed: {reason}" if path in reason else f"failed: {path}: {reason}")
    _show(done.left)
    if any(finding.kind == "suspect" for finding in done.left):
        options.say("what is suspect was asked for again: the source itself has it so, or still serves another")
    if not done.found:
        options.say("all is well; nothing was to be mended")
    elif done.complete:
        options.say("all is well again")
    elif done.left:
        options.say(f"{plural(len(done.left), 'finding')} left")
        _say_next(options, done.left)
    else:
        options.say("run the same command again to try again")


def _done(done: "Repaired") -> Iterator[str]:
    """What was done, a sentence each."""
    if done.aside:
        counts = _counted(done.salvaged) or "nothing"
        yield f"a new store was made of what is whole: {counts}; the old one is {done.aside}"
    if done.taken or done.requests:
        yield f"{plural(len(done.taken), 'footer')} taken again; {plural(done.requests, 'request')}"
    if done.forgotten:
        some = plural(len(done.forgotten), "row group")
        yield f"of {some} what reading had taught of pages is forgotten; catalogue backfill learns it again"
    if done.catalogue:
        yield "the catalogue was made anew"


def _counted(values: "Mapping[str, int]") -> str:
    """How many values there are, by the name of their table."""
    nouns = {"files": "footer", "documents": "list", "failures": "failure", "indexes": "page index", "facts": "fact"}
    return ", ".join(plural(count, nouns[table]) for table, count in values.items() if count)


def _show(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        show(f"{finding.kind}: {finding}")


def _say_next(options: Common, findings: "Sequence[Finding]") -> None:
    for command in dict.fromkeys(finding.next for finding in findings):
        options.say(f"run: {command}")
