"""The values of options that shells complete."""

import re
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from catalogue.errors import QueryError

_MANIFEST = re.compile(r"crawl-data/([^/]+)/cc-index-table\.paths\.gz")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Other names in a store or a folder are not completed, because a shell could run them."""


def complete_stored_crawls(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from catalogue.store.folder_settings import document_names

    names = document_names(_store(context))
    return _crawls([found[1] for name in names if (found := _MANIFEST.fullmatch(name))], incomplete)


def complete_listed_crawls(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from catalogue.store.folder_settings import document_ids

    return _crawls(document_ids(_store(context), "collinfo.json"), incomplete)


def complete_subsets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from catalogue.commoncrawl.crawls import SUBSETS

    return [name for name in (*SUBSETS, "all") if name.startswith(incomplete)]


def complete_columns(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the last of several comma-separated columns."""
    from catalogue.commoncrawl.schema import SCHEMA

    before, comma, last = incomplete.rpartition(",")
    names = [name for name in SCHEMA.names if name.startswith(last) and name not in before.split(",")]
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


def complete_datasets(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from catalogue.settings import STORE_NAME

    datasets = sorted(path.parent.name for path in _folder(context, table=False).glob(f"*/{STORE_NAME}"))
    return [name for name in datasets if _PLAIN.fullmatch(name) and name.startswith(incomplete)]


def _crawls(names: list[str], incomplete: str) -> list[CompletionItem]:
    before, dots, last = incomplete.rpartition("..")
    choices = [*sorted(filter(_PLAIN.fullmatch, names)), *([] if dots else ["latest", "all"])]
    # Shells replace the typed word, therefore 2022 can complete to CC-MAIN-2022-05.
    chosen = [name for name in choices if last in {"", name[: len(last)], name.partition("-MAIN-")[2][: len(last)]}]
    return [CompletionItem(f"{before}{dots}{name}") for name in chosen]


def _store(context: click.Context) -> Path:
    from catalogue.settings import STORE_NAME

    return _folder(context) / STORE_NAME


def _folder(context: click.Context, *, table: bool = True) -> Path:
    from catalogue.settings import default_data, load_settings

    given: dict[str, object] = {}
    at: click.Context | None = context
    while at:  # later options override earlier ones
        given = {name: value for name, value in at.params.items() if value is not None} | given
        at = at.parent
    chosen, name = given.get("data"), given.get("table")
    try:
        folder = load_settings(data=chosen).data
    except QueryError:  # the command itself reports it
        folder = default_data()
    return folder / name if table and isinstance(name, str) else folder
