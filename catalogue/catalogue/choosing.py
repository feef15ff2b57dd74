"""The settings for a data folder, with the source that its files came from."""

import os
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import url2pathname

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.settings import STORE_NAME, Settings, canonical, load_settings
from catalogue.store.glance import sources_of


def settings_for(
    *,
    data: str | os.PathLike[str] | None = None,
    table: str | None = None,
    notify: Callable[[str], None],
    **given: object,
) -> Settings:
    """Load settings; where no source is set, that of the stored files is used.

    Args:
        data: the folder, if it is given.
        table: name of another table than the index.
        notify: called with a sentence if files came from another source than that which is asked.
        given: other settings, see ``load_settings``.

    Raises:
        QueryError: if a setting cannot be used.
    """
    settings = load_settings(data=data, **given)
    folder = settings.data / table if table and table != COMMON_CRAWL.name else settings.data
    stored = sources_of(folder / STORE_NAME)
    if stored:
        settings = load_settings({"source": _setting(stored[0])}, data=data, **given)
    if others := [each for each in stored if canonical(each) != canonical(settings.source)]:
        notify(
            f"files in {folder} came from {_setting(others[0])}, but {settings.source} is asked for them; "
            "if that is not meant, choose with --source"
        )
    return settings


def _setting(source: str) -> str:
    """Return a source as a user would set it: a folder as a path."""
    return url2pathname(urlsplit(source).path).rstrip("/") or "/" if source.startswith("file:") else source
