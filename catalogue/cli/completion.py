"""What a shell completes, and the command that teaches it to."""

import re
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from catalogue.cli.app import Command, Common, OneOf, common, entry
from catalogue.errors import QueryError
from catalogue.settings import STORE_NAME, default_data, load_settings

_SHELLS = ["bash", "zsh", "fish"]
_MANIFEST = re.compile(r"crawl-data/([^/]+)/cc-index-table\.paths\.gz")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""What all names of ours are. A shell would run others: a store or a folder may be a stranger's."""


@click.command(cls=Command)
@click.argument("shell", type=OneOf(_SHELLS))
@common
def completion(_: Common, *, shell: str) -> None:
    """A script by which a shell completes commands, options, crawls and columns.

    Crawls are those of the data folder, and nothing is asked of anybody. Put the script where the shell looks; for zsh
    that is a folder of fpath, such as by fpath+=~/.zfunc before compinit in ~/.zshrc. Or try it in the shell that is
    open.

    \b
    catalogue completion bash > ~/.local/share/bash-completion/completions/catalogue
    catalogue completion zsh > ~/.zfunc/_catalogue
    catalogue completion fish > ~/.config/fish/completions/catalogue.fish
    eval "$(catalogue completion bash)"
    """  # noqa: D301 - \b is click's
    kind = get_completion_class(shell)
    assert kind  # noqa: S101 - click has all of them
    click.echo(kind(entry, {}, "catalogue", "_CATALOGUE_COMPLETE").source())


def crawls_held(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Crawls that are harvested, at least in part, and the words that stand for some."""
    from catalogue.store.glance import names_of  # noqa: PLC0415 - most completions do without

    names = names_of(_folder(context) / STORE_NAME)
    return _crawls([found[1] for name in names if (found := _MANIFEST.fullmatch(name))], incomplete)


def crawls_listed(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Crawls of the list that is held, and the words that stand for some."""
    from catalogue.store.glance import named_in  # noqa: PLC0415 - likewise

    return _crawls(named_in(_folder(context) / STORE_NAME, "collinfo.json"), incomplete)


def subsets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Subsets."""
    from catalogue.commoncrawl.crawls import SUBSETS  # noqa: PLC0415 - likewise

    return [name for name in (*SUBSETS, "all") if name.startswith(incomplete)]


def columns(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Columns, of which there may be some already, with commas between them."""
    from catalogue.commoncrawl.columns import SCHEMA  # noqa: PLC0415 - likewise

    before, comma, last = incomplete.rpartition(",")
    there = before.split(",")
    names = [name for name in SCHEMA.names if name.startswith(last) and name not in there]
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


def tables(context: click.Context, incomplete: str) -> list[str]:
    """Other tables in the data folder."""
    there_are = sorted(path.parent.name for path in _folder(context, table=False).glob(f"*/{STORE_NAME}"))
    return [name for name in there_are if _PLAIN.fullmatch(name) and name.startswith(incomplete)]


def _crawls(names: list[str], incomplete: str) -> list[CompletionItem]:
    before, dots, last = incomplete.rpartition("..")
    there_are = [*sorted(filter(_PLAIN.fullmatch, names)), *([] if dots else ["latest", "all"])]
    # Shells put a whole word in the place of what was typed, so that a year will do for a crawl of it.
    chosen = [name for name in there_are if last in {"", name[: len(last)], name.partition("-MAIN-")[2][: len(last)]}]
    return [CompletionItem(f"{before}{dots}{name}") for name in chosen]


def _folder(context: click.Context, *, table: bool = True) -> Path:
    """Where the store is that the words so far mean."""
    given: dict[str, object] = {}
    at: click.Context | None = context
    while at:  # those given later win
        given = {name: value for name, value in at.params.items() if value is not None} | given
        at = at.parent
    chosen, name = given.get("data"), given.get("table")
    try:
        folder = load_settings(data=chosen).data
    except QueryError:  # the command says so
        folder = default_data()
    return folder / name if table and isinstance(name, str) else folder
