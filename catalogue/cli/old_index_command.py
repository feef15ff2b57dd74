"""Commands that find records where there is no columnar index."""

import json
import sys
from typing import Any

import click

from catalogue.cli.app import Command, Common, common
from catalogue.cli.budget import Leave, with_leave
from catalogue.formatting import plural, size


@click.command("old-index", cls=Command)
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option(
    "--index",
    "path",
    metavar="PATH",
    help="The index file, relative to the source.  [default: projects/url-index/url-index.1356128792]",
)
@click.option("--limit", type=click.IntRange(min=0), help="Stop after this many captures.")
@with_leave
@common
def old_index(
    options: Common,
    *,
    patterns: tuple[str, ...],
    path: str | None,
    limit: int | None,
    leave: Leave,
) -> None:
    """Captures of the crawl of 2012, by its URL index, as JSON lines for catalogue fetch.

    Nothing need be harvested. That index knows URLs as they were typed: www., letter case and a trailing slash make a
    difference, and of time and status it says nothing.

    \b
    catalogue old-index example.com/page www.example.com/page
    catalogue old-index 'example.com/blog/*' --limit 10
    catalogue old-index '*.example.com' | catalogue fetch --captures - -o example.warc.gz
    catalogue old-index '*.is' --source ~/files --index url-index.1356128792
    """  # noqa: D301
    with options.opened() as catalogue:
        index = catalogue.old_index(path) if path else catalogue.old_index()
        extents = [index.find(pattern) for pattern in patterns]
        requests, needed = map(sum, zip(*(index.cost(extent, limit=limit) for extent in extents), strict=True))
        if not leave.covers(requests, needed):
            leave.confirm(f"{plural(requests, 'request')}, {size(needed)}")
        count = 0
        for extent in extents:
            for capture in index.captures(extent, limit=None if limit is None else limit - count):
                sys.stdout.write(f"{json.dumps(_line(capture))}\n")
                count += 1
    options.say(plural(count, "capture"))


def _line(capture: Any) -> dict[str, Any]:  # noqa: ANN401 - importing its type is slow
    """A capture in the terms of a CDX server."""
    return {
        "url": capture.url,
        "filename": capture.filename,
        "offset": capture.offset,
        "length": capture.length,
    }
