"""``catalogue status``, ``check``, ``verify`` and ``doctor``."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import complete_commands, show, warn, wrapped
from catalogue.cli.options import (
    FILE,
    Budget,
    Number,
    budget_options,
    complete_listed_crawls,
    crawl_option,
    json_option,
)
from catalogue.cli.tables import as_json, table
from catalogue.formatting import join_first, plural, printable, size
from catalogue.settings import STORE_NAME, config_file

if TYPE_CHECKING:
    from catalogue.check.check import Checked
    from catalogue.check.doctor import Observation

_LARGE_LOG = 32 << 20
"""Bytes. SQLite truncates the log at half of this, unless a reader blocks it."""
_MAX_STEPS = 2
_WIDTH, _NAME_WIDTH = 80, 16
"""Columns of doctor's output, also in a pipe: it is made to be pasted."""
_LONGEST = 1000


@command()
@json_option
def status(options: Common, *, json_: bool) -> None:
    """Print what is stored, and what to do next.

    For each crawl it prints the numbers of files, of parts of files (row groups), of row groups without bounds, and of
    failures. Then it prints sizes on disk. The keys in row groups without bounds are unknown, so every query reads
    them; catalogue backfill reads them once.

    \b
    catalogue status
    catalogue status --json
    """
    from catalogue.harvest.next_steps import next_steps
    from catalogue.reports import block_list_rows, coverage_rows, disk_sizes, failure_rows, value_rows

    with options.opened() as catalogue:
        session = catalogue.session
        coverage, failures = coverage_rows(session), failure_rows(session)
        lists, values = block_list_rows(session), value_rows(session)
        store_size, catalogue_size = disk_sizes(session)
        log_size = session.store.log_size()
        paths = {
            "store": session.data / STORE_NAME,
            "catalogue": catalogue.path,
            "config": config_file(),
            "cache": session.settings.cache,
        }
        steps = [replace(step, command=complete_commands(step.command)) for step in next_steps(session)]
    if json_:
        as_json(
            {
                "coverage": coverage,
                "blocks": lists,
                "values": values,
                "failures": failures,
                "store_bytes": store_size,
                "store_log_bytes": log_size,
                "catalogue_bytes": catalogue_size,
                "paths": {name: str(path.absolute()) for name, path in paths.items()},
                "source": session.settings.source,
                "next": [asdict(step) for step in steps],
            }
        )
        return
    _show_stored(coverage, lists, values)
    if coverage or lists:
        click.echo()
    click.echo(f"store {size(store_size)}, metadata database {size(catalogue_size)}")
    for name, path in paths.items():
        label = "database" if name == "catalogue" else name
        show(f"{label:9} {path.absolute()}{'' if path.exists() else ' (does not exist)'}")
    if log_size > _LARGE_LOG:
        show(f"the log of the store has {size(log_size)}, because a program keeps reading the store; stop it")
    for failure in failures:
        show(f"failed: {failure['reason']}")
    for step in steps[:_MAX_STEPS]:
        show(f"{step.why}; run: {step.command}")


_Rows: TypeAlias = list[dict[str, Any]]


def _show_stored(coverage: _Rows, lists: _Rows, values: _Rows) -> None:
    rows = [
        [
            *(row["crawl"], row["subset"]),
            f"{row['files_harvested']}/{'?' if row['files_listed'] is None else row['files_listed']}",
            *(row["row_groups"], row["without_bounds"], row["num_rows"], size(row["file_size"])),
        ]
        for row in coverage
    ]
    if rows:
        table(["crawl", "subset", "files", "row groups", "without bounds", "captures", "size"], rows)
    if lists:
        names = join_first([each["crawl"] for each in lists])
        show(f"lists of blocks of {names}: {size(sum(each['bytes'] for each in lists))}")
    for each in values:
        columns = join_first(each["columns"], len(each["columns"]))
        show(
            f"values of {each['crawl']}: {columns} of {plural(each['row_groups'], 'row group')}, {size(each['bytes'])}"
        )


@command()
@crawl_option
@click.option(
    "--read-subset",
    metavar="SHARE",
    help="Compare a part with the source: 1%, 3/30 (the third of thirty parts), or 50MB of footers.",
)
@click.option("--seed", type=Number(min=0), help="Compare the same random part as the check that printed this seed.")
@click.option("--repair", is_flag=True, help="Delete damaged values and rebuild the metadata database.")
@json_option
def check(
    options: Common, *, crawls: tuple[str, ...], read_subset: str | None, seed: int | None, repair: bool, json_: bool
) -> int:
    """Check what is stored, and repair it.

    It compares each stored value with its digest, and the metadata database with the store. With --read-subset, it also
    compares a part of the footers and page indexes with the source, with one request per file; otherwise it makes no
    requests. With --repair, it deletes damaged values and rebuilds the metadata database; catalogue harvest then
    fetches the deleted footers again.

    The exit status is 0 if there are no defects or all are repaired, 1 if there are defects, 2 for invalid arguments,
    74 if the disk fails, and 75 if the source fails. Defects are printed with the command that repairs them.

    \b
    catalogue check
    catalogue check --repair
    catalogue check --read-subset 1%
    catalogue check --read-subset 3/30 --crawl CC-MAIN-2022-05
    """
    with options.opened() as catalogue:
        done = catalogue.check(crawls or "all", read_subset=read_subset, seed=seed, repair=repair)
        requests, received = catalogue.requests, catalogue.bytes
    if json_:
        as_json(
            {
                "ok": done.complete,
                "findings": [asdict(each) | {"next": complete_commands(each.next)} for each in done.findings],
                "values": done.values,
                "bytes": done.bytes,
                "catalogue": done.catalogue,
                "compared": done.compared,
                "equal": done.equal,
                "seed": done.seed,
                "requests": requests,
                "notes": done.notes,
                "repaired": done.repaired,
                "dropped": done.dropped,
                "next": [*map(complete_commands, done.commands)],
            }
        )
    else:
        for finding in done.findings:
            show(f"{finding.kind}: {finding}")
        for line in _summary(done, f"{plural(requests, 'request')}, {size(received)}"):
            options.say(line)
    if done.failure:
        raise done.failure
    return int(not done.complete)


def _summary(done: "Checked", cost: str) -> list[str]:
    nouns = {"files": "footer", "documents": "list", "failures": "failure", "indexes": "page index", "facts": "fact"}
    nouns["blocks"] = "list of blocks"
    counts = ", ".join(plural(count, nouns[table]) for table, count in done.values.items() if count)
    lines = [f"store: {counts}; {size(done.bytes)}"] if counts else []
    if not done.catalogue:
        lines.append("the metadata database was not compared with the store")
    seed = "" if done.seed is None else f" (--seed {done.seed})"
    if done.compared:
        lines.append(f"source: {done.equal:,} of {plural(done.compared, 'file')} equal{seed}; {cost}")
    lines += done.notes
    lines.append(plural(len(done.findings), "finding") if done.findings else "no defects")
    if done.repaired:
        lines.append(f"{'damaged values are deleted, and ' if done.findings else ''}the metadata database is rebuilt")
    if done.dropped:
        lines.append(f"{plural(len(done.dropped), 'footer')} to be harvested again")
    return [*lines, *(f"run: {command}" for command in done.commands)]


@command()
@click.argument("receipt", type=FILE)
@click.option(
    "--answer", type=FILE, help="The file with the answer.  [default: the one that the receipt names, next to it]"
)
@click.option("--read-source", is_flag=True, help="Also read the ranges of the receipt again and compare them.")
@json_option
@budget_options
def verify(
    options: Common, *, receipt: Path, answer: Path | None, read_source: bool, json_: bool, budget: Budget
) -> int:
    """Check an answer against the receipt that --receipt wrote.

    Without --read-source it makes no requests. The exit status is 1 if the answer, the receipt or the source
    was changed.

    \b
    catalogue query '*.example.com' -o found.jsonl --receipt found.receipt
    catalogue verify found.receipt
    catalogue verify found.receipt --read-source
    """
    from catalogue.check.receipt import check_answer, check_source, read_receipt

    read = read_receipt(receipt)
    file = answer or receipt.with_name(read.answer)
    problems = [problem] if (problem := check_answer(read, file)) else []
    if read_source:
        with options.opened() as catalogue:
            takes = f"this takes {plural(len(read.reads), 'request')}, {size(read.bytes)}"
            budget.ask(len(read.reads), read.bytes, takes, "verify fewer ranges")
            problems += check_source(read, catalogue.session)
    if json_:
        as_json(
            {
                "valid": not problems,
                "problems": problems,
                "source_read": read_source,
                "answer": str(file),
                "created": read.created,
                "query": read.query,
                "incomplete": read.incomplete,
                "ranges": len(read.reads),
                "bytes": read.bytes,
            }
        )
    else:
        if not problems:
            show(f"{file} matches its receipt")
        again = "read again" if read_source else "not read again (--read-source reads them)"
        click.echo(f"made from {plural(len(read.reads), 'range')}, {size(read.bytes)}, {again}")
        for note in read.incomplete:
            click.echo(f"the answer was incomplete: {printable(note)}")
        for problem in problems:
            warn(problem)
    return int(bool(problems))


@command()
@click.option(
    "--crawl",
    shell_complete=complete_listed_crawls,
    help="Examine a file of this crawl, or of latest.  [default: the newest harvested crawl, else the newest listed]",
)
@json_option
def doctor(options: Common, *, crawl: str | None, json_: bool) -> None:
    """Examine the source and this installation.

    With at most ten requests, it examines how the source answers range requests and identifies versions of files, and
    the layout of one index file. It explains what this means for the cost of queries. It needs no harvest. You can
    paste the output into a bug report: it contains no secret, contact or credential.

    If the source does not answer, it still examines the installation, and the exit status is 75.

    \b
    catalogue doctor
    catalogue doctor --crawl CC-MAIN-2018-05
    catalogue doctor --source s3://commoncrawl/ --json
    """
    from catalogue.check.doctor import Observation

    with options.opened() as catalogue:
        found = catalogue.doctor(crawl)
        source = catalogue.session.settings.source
    here = (*found.here, Observation("terminal", _terminal()))
    if json_:
        as_json(
            {
                "here": [_as_dict(each) for each in here],
                "source": [_as_dict(each) for each in found.source],
                "requests": found.requests,
                "bytes": found.bytes,
                "failure": found.failure and str(found.failure),
            }
        )
    else:
        _show("here", here)
        _show(f"{source}: {plural(found.requests, 'request')}, {size(found.bytes)}", found.source)
    if found.failure:
        raise found.failure


def _terminal() -> str:
    kinds = [name for name, stream in (("output", sys.stdout), ("errors", sys.stderr)) if stream.isatty()]
    connected = f"{' and '.join(kinds)}, TERM={os.environ.get('TERM')}" if kinds else "none"
    return f"{connected}; text is {sys.stdout.encoding}"


def _as_dict(observation: "Observation") -> dict[str, str]:
    texts = asdict(observation) | {"means": complete_commands(observation.means)}
    return {name: printable(f"{text[:_LONGEST]}…" if text[_LONGEST:] else text) for name, text in texts.items()}


def _show(title: str, observations: "Iterable[Observation]") -> None:
    click.echo(title)
    for texts in map(_as_dict, observations):
        seen = wrapped(texts["seen"], _WIDTH, " " * (2 + _NAME_WIDTH)).lstrip()
        click.echo(f"  {texts['about']:{_NAME_WIDTH - 1}} {seen}")
        if texts["means"]:
            click.echo(wrapped(texts["means"], _WIDTH, " " * (4 + _NAME_WIDTH)))
