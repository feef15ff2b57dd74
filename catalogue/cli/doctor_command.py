"""The command that tells what a source and this installation are like."""

import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Command, Common, common, literally
from catalogue.cli.completion import crawls_listed
from catalogue.cli.tables import as_json
from catalogue.errors import CatalogueError
from catalogue.formatting import plural, printable, size

if TYPE_CHECKING:
    from catalogue.doctor import Seen

_WIDTH = 80
"""Also where nobody looks: it is made to be pasted."""
_NAME = 16
_LONGEST = 1000


@click.command(cls=Command)
@click.option(
    "--crawl",
    shell_complete=crawls_listed,
    help="Whose files to look at, or latest.  [default: the newest harvested, else listed]",
)
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def doctor(options: Common, *, crawl: str | None, json_: bool) -> None:
    """What the source and this installation are like, and what that means for cost.

    Asks the source ten times at most, each thing once: how it answers ranges, which versions of files it can tell
    apart, and how one index file is laid out. Nothing need be harvested. What is printed holds no secret, no contact
    and no value of a credential, and is good to paste into a bug report as it is.

    Leaves with 75 if the source does not answer; what is here is told all the same.

    \b
    catalogue doctor
    catalogue doctor --crawl CC-MAIN-2018-05
    catalogue doctor --source s3://commoncrawl/ --json
    """  # noqa: D301 - \b is click's
    with options.opened() as catalogue:
        found = catalogue.doctor(crawl)
        source = catalogue.settings.source
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
        raise found.failure if json_ else _said(source, found.failure, found.source)


def _said(source: str, failure: CatalogueError, seen: "Iterable[Seen]") -> CatalogueError:
    """What went wrong, without what was said of it already."""
    if str(failure) not in {each.seen for each in seen}:
        return failure
    error = CatalogueError(f"{source} could not be looked at to the end; why stands above")
    error.exit_status = failure.exit_status
    return error


def _terminal() -> "Seen":
    from catalogue.doctor import Seen  # noqa: PLC0415 - --help needs none of what this imports

    kinds = [name for name, stream in (("output", sys.stdout), ("errors", sys.stderr)) if stream.isatty()]
    told = f"{' and '.join(kinds)}, TERM={os.environ.get('TERM')}" if kinds else "none"
    return Seen("terminal", f"{told}; text is {sys.stdout.encoding}")


def _with_options(seen: "Iterable[Seen]") -> "list[Seen]":
    return [replace(each, means=literally(each.means)) for each in seen]


def _plain(each: "Seen") -> dict[str, str]:
    return {name: _short(text) for name, text in asdict(each).items()}


def _show(title: str, seen: "Iterable[Seen]") -> None:
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
    """On one line that is not too long: servers and files may say what they like of themselves."""
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
