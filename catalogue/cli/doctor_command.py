"""``catalogue doctor``."""

import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Command, Common, common, complete_commands
from catalogue.cli.completion import complete_listed_crawls
from catalogue.cli.tables import as_json
from catalogue.errors import CatalogueError
from catalogue.formatting import plural, printable, size

if TYPE_CHECKING:
    from catalogue.doctor.diagnosis import Observation

_WIDTH = 80
"""Columns, also in a pipe: the output is made to be pasted."""
_NAME = 16
_LONGEST = 1000


@click.command(cls=Command)
@click.option(
    "--crawl",
    shell_complete=complete_listed_crawls,
    help="Crawl whose file is examined, or latest.  [default: the newest harvested, else listed]",
)
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def doctor(options: Common, *, crawl: str | None, json_: bool) -> None:
    """Examine the source and this installation, and explain what they mean for cost.

    Makes ten requests at most: how the source answers ranges, how it identifies versions of files, and how one index
    file is laid out. Nothing has to be harvested. The output contains no secret, contact or credential and can be
    pasted into a bug report.

    Exit status 75 if the source does not answer; the installation is examined all the same.

    \b
    catalogue doctor
    catalogue doctor --crawl CC-MAIN-2018-05
    catalogue doctor --source s3://commoncrawl/ --json
    """
    with options.opened() as catalogue:
        found = catalogue.doctor(crawl)
        source = catalogue.session.settings.source
    here, there = map(_with_options, ([*found.here, _terminal()], found.source))
    if json_:
        as_json(
            {
                "here": [_plain(each) for each in here],
                "source": [_plain(each) for each in there],
                "requests": found.requests,
                "bytes": found.bytes,
                "failure": found.failure and str(found.failure),
            }
        )
    else:
        _show("here", here)
        _show(f"{source}: {plural(found.requests, 'request')}, {size(found.bytes)}", there)
    if found.failure:
        raise found.failure if json_ else _final_error(source, found.failure, found.source)


def _final_error(source: str, failure: CatalogueError, seen: "Iterable[Observation]") -> CatalogueError:
    """Return the error without sentences that were printed."""
    if str(failure) not in {each.seen for each in seen}:
        return failure
    error = CatalogueError(f"{source} could not be examined to the end; see above")
    error.exit_status = failure.exit_status
    return error


def _terminal() -> "Observation":
    from catalogue.doctor.diagnosis import Observation

    kinds = [name for name, stream in (("output", sys.stdout), ("errors", sys.stderr)) if stream.isatty()]
    connected = f"{' and '.join(kinds)}, TERM={os.environ.get('TERM')}" if kinds else "none"
    return Observation("terminal", f"{connected}; text is {sys.stdout.encoding}")


def _with_options(seen: "Iterable[Observation]") -> "list[Observation]":
    return [replace(each, means=complete_commands(each.means)) for each in seen]


def _plain(each: "Observation") -> dict[str, str]:
    return {name: _short(text) for name, text in asdict(each).items()}


def _show(title: str, seen: "Iterable[Observation]") -> None:
    click.echo(title)
    for each in seen:
        lines = _wrapped(each.seen, 2 + _NAME) or [""]
        lines += _wrapped(each.means, 4 + _NAME)
        lines[0] = f"  {each.about:{_NAME - 1}} {lines[0].lstrip()}"
        click.echo("\n".join(lines))


def _wrapped(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(
        _short(text),
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,  # names can be copied
        break_on_hyphens=False,
    )


def _short(text: str) -> str:
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
