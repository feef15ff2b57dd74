"""``catalogue old-index``."""

import json
import sys
from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Command, Common, common
from catalogue.cli.budget import Budget, budget_options
from catalogue.formatting import plural, size

if TYPE_CHECKING:
    from catalogue.commoncrawl.capture import Capture


@click.command("old-index", cls=Command)
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option(
    "--index",
    "path",
    metavar="PATH",
    help="The index file, relative to the source.  [default: projects/url-index/url-index.1356128792]",
)
@click.option("--limit", type=click.IntRange(min=0), help="Stop after this many captures.")
@budget_options
@common
def old_index(
    options: Common,
    *,
    patterns: tuple[str, ...],
    path: str | None,
    limit: int | None,
    budget: Budget,
) -> None:
    """Find captures of the crawl of 2012 in its URL index, as JSON lines for catalogue fetch.

    No harvest is necessary. This index contains exact URLs: www., letter case and a trailing slash matter. It has no
    times and no statuses.

    \b
    catalogue old-index example.com/page www.example.com/page
    catalogue old-index 'example.com/blog/*' --limit 10
    catalogue old-index '*.example.com' | catalogue fetch --captures - -o example.warc.gz
    catalogue old-index '*.is' --source ~/files --index url-index.1356128792
    """
    with options.opened() as catalogue:
        index = catalogue.old_index(path) if path else catalogue.old_index()
        extents = [index.find(pattern) for pattern in patterns]
        requests, needed = map(sum, zip(*(index.cost(extent, limit=limit) for extent in extents), strict=True))
        if not budget.covers(requests, needed):
            budget.confirm(f"{plural(requests, 'request')}, {size(needed)}")
        count = 0
        for extent in extents:
            for capture in index.captures(extent, limit=None if limit is None else limit - count):
                sys.stdout.write(f"{json.dumps(_line(capture))}\n")
                count += 1
    options.say(plural(count, "capture"))


def _line(capture: "Capture") -> dict[str, object]:
    """Return a capture with the field names of a CDX server."""
    return {
        "url": capture.url,
        "filename": capture.filename,
        "offset": capture.offset,
        "length": capture.length,
    }
