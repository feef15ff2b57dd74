"""``catalogue doctor``."""

import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Command, Common, common, complete_commands
from catalogue.cli.completion import complete_listed_crawls
from catalogue.cli.tables import as_json
from catalogue.formatting import plural, printable, size

if TYPE_CHECKING:
    from catalogue.doctor import Observation

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
    from catalogue.doctor import Observation

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
    """Return the texts of an observation, of limited length, and with complete commands."""
    texts = asdict(observation) | {"means": complete_commands(observation.means)}
    return {name: printable(f"{text[:_LONGEST]}…" if text[_LONGEST:] else text) for name, text in texts.items()}


def _show(title: str, observations: "Iterable[Observation]") -> None:
    click.echo(title)
    for texts in map(_as_dict, observations):
        lines = _wrap(texts["seen"], 2 + _NAME) or [""]
        lines[0] = f"  {texts['about']:{_NAME - 1}} {lines[0].lstrip()}"
        click.echo("\n".join([*lines, *_wrap(texts["means"], 4 + _NAME)]))


def _wrap(text: str, indent: int) -> list[str]:
    margin = " " * indent
    # Names are not broken, so that they can be copied.
    return textwrap.wrap(
        text, _WIDTH, initial_indent=margin, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )
