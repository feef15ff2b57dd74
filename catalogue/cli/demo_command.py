"""The first minute: every command against a miniature crawl, without a network."""

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
        "Take the footers of one crawl's index files: one small request a file.",
        ["harvest", "--crawl", _CRAWL, "--subset", "all"],
    ),
    ("And of an older one, whose files look different.", ["harvest", "--crawl", "CC-MAIN-2018-05"]),
    ("What is held now?", ["status"]),
    (
        "SQL over what the footers say.",
        ["sql", "select row_group, num_rows, min_url_surtkey, max_url_surtkey from row_groups limit 4"],
    ),
    (
        "What would it cost to find a site's captures? Nothing is read for this.",
        ["plan", "*.example.com", "--crawl", _CRAWL],
    ),
    (
        "Find them: exactly the requests that were planned.",
        ["query", "*.example.com", "--crawl", _CRAWL, "--status", "200", "--limit", "6", "--format", "table"],
    ),
    (
        "One page, over all crawls that are held.",
        ["query", "https://shop.example.com/dir/", "--limit", "2", "--format", "cdxj"],
    ),
]


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Leave the miniature crawl and what was harvested of it in a folder.")
@click.option("--serve", is_flag=True, help="Keep serving the miniature crawl until Ctrl-C, to try commands on it.")
@common
def demo(options: Common, *, keep: bool, serve: bool) -> None:
    """Everything against a miniature crawl, offline, in a minute.

    \b
    catalogue demo
    catalogue demo --serve      then try commands of your own on it
    """  # noqa: D301
    folder = Path(tempfile.mkdtemp(prefix="catalogue-demo-"))
    try:
        miniature = write_miniature(folder / "mirror")
        options.say(
            f"A miniature of data.commoncrawl.org, made up: "
            f"{len(miniature.files)} index files, {miniature.rows:,} captures."
        )
        with (
            LoopbackServer(folder / "mirror") as server,
            _environment(
                CATALOGUE_DATA=str(folder / "data"),
                CATALOGUE_SOURCE=server.url,
                CATALOGUE_CACHE=str(folder / "cache"),  # the user's own is for what others ask, too
            ),
        ):
            for why, command in _COMMANDS:
                _run(why, command)
            _show_python(folder / "data", server.url)
            asked = [exchange for exchange in server.log if "cc-index/table" in exchange.path]
            click.echo(
                f"\nIn all {len(asked)} requests were made of index files, "
                f"for {sum(exchange.sent_bytes for exchange in asked):,} bytes."
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
    # A command that found something amiss leaves by SystemExit, as it would on its own.
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
