"""``catalogue demo``."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

import catalogue
from catalogue.cli.app import Command, Common, common, entry
from catalogue.demo import LoopbackServer, write_miniature

_CRAWL = "CC-MAIN-2022-05"
_COMMANDS = [
    ("What crawls are there?", ["crawls"]),
    (
        "Store the footers of one crawl's index files: one small request per file.",
        ["harvest", "--crawl", _CRAWL, "--subset", "all"],
    ),
    ("The same for an older crawl, whose files have another layout.", ["harvest", "--crawl", "CC-MAIN-2018-05"]),
    ("What is stored now?", ["status"]),
    (
        "SQL over the footers.",
        ["sql", "select row_group, num_rows, min_url_surtkey, max_url_surtkey from row_groups limit 4"],
    ),
    (
        "What would it cost to find a site's captures? This makes no request.",
        ["plan", "*.example.com", "--crawl", _CRAWL],
    ),
    (
        "Find them, with exactly the planned requests.",
        ["query", "*.example.com", "--crawl", _CRAWL, "--status", "200", "--limit", "6", "--format", "table"],
    ),
    (
        "One page, in all stored crawls.",
        ["query", "https://shop.example.com/dir/", "--limit", "2", "--format", "cdxj"],
    ),
]


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Keep the folder with the miniature crawl and its harvested metadata.")
@click.option("--serve", is_flag=True, help="Keep serving the miniature crawl until Ctrl-C, to try commands on it.")
@common
def demo(options: Common, *, keep: bool, serve: bool) -> None:
    """Run the most important commands on a miniature crawl, offline, in a minute.

    \b
    catalogue demo
    catalogue demo --serve      then try other commands on it
    """
    folder = Path(tempfile.mkdtemp(prefix="catalogue-demo-"))
    try:
        miniature = write_miniature(folder / "mirror")
        options.say(
            f"A miniature of data.commoncrawl.org with made-up content: "
            f"{len(miniature.files)} index files, {miniature.rows:,} captures."
        )
        with (
            LoopbackServer(folder / "mirror") as server,
            _environment(
                CATALOGUE_DATA=str(folder / "data"),
                CATALOGUE_SOURCE=server.url,
                CATALOGUE_CACHE=str(folder / "cache"),  # the cache of the user has pages of real crawls
            ),
        ):
            for why, command in _COMMANDS:
                _run(why, command)
            _show_python(folder / "data", server.url)
            requests = [exchange for exchange in server.log if "cc-index/table" in exchange.path]
            click.echo(
                f"\nIn total, {len(requests)} requests for index files were made, "
                f"for {sum(exchange.sent_bytes for exchange in requests):,} bytes."
            )
            if serve:
                _serve(folder, server.url)
    finally:
        if keep:
            click.echo(f"\nKept in {folder}; as a source: --source {folder / 'mirror'} --data {folder / 'data'}")
        else:
            shutil.rmtree(folder)


def _run(why: str, command: list[str]) -> None:
    shown = " ".join(f"'{word}'" if set(word) & set(" *?&") else word for word in command)
    click.echo(f"\n# {why}\n$ catalogue {shown}")
    # Commands exit with status 1 by SystemExit.
    with suppress(SystemExit):
        entry.main(command, standalone_mode=False)


def _show_python(data: Path, source: str) -> None:
    click.echo(
        "\n# The same from Python, as a DataFrame.\n"
        ">>> import catalogue\n"
        f'>>> cat = catalogue.open("{data}", source="{source}")\n'
        f'>>> found = cat.captures("*.example.com", crawls="{_CRAWL}", columns=["url", "fetch_time", "fetch_status"])\n'
        ">>> found"
    )
    with catalogue.open(data, source=source) as cat:
        found = cat.captures("*.example.com", crawls=_CRAWL, columns=["url", "fetch_time", "fetch_status"])
        click.echo(repr(found))
        click.echo(">>> found.to_pandas().head()")
        click.echo(found.to_pandas().head().to_string(max_colwidth=40))


def _serve(folder: Path, url: str) -> None:
    click.echo(
        f"\nServing {url} until Ctrl-C. In another terminal:\n"
        f"  export CATALOGUE_SOURCE={url} CATALOGUE_DATA={folder / 'data'}\n"
        "  catalogue query '*.example.com'"
    )
    threading.Event().wait()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
