"""Commands that write down what is held for other engines and other people."""

import sys
from typing import Any

import click

from catalogue.cli.app import Common
from catalogue.cli.showing import as_json, plural


@click.group()
def export() -> None:
    """What is held, for other engines and other people; no data of the source is copied."""


def told(options: Common, exported: Any, *, json_: bool) -> None:  # noqa: ANN401 - importing its type is slow
    """Say what was exported; what is missing makes it done in part."""
    if json_:
        as_json(
            {
                "place": exported.place,
                "crawls": exported.crawls,
                "files": exported.files,
                "complete": exported.complete,
                "missing": exported.missing,
            }
        )
    else:
        crawls = plural(len(exported.crawls), "crawl")
        options.say(f"{exported.place}: {plural(exported.files, 'file')} of {crawls}")
        for lack in exported.missing:
            options.say(f"it is incomplete: {lack}")
    if not exported.complete:
        sys.exit(1)
