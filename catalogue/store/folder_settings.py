"""Settings for a data folder: the source of its files is the default."""

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
    dataset: str | None = None,
    notify: Callable[[str], None],
    **given: object,
) -> Settings:
    """Load settings; where no source is set, use the one that the stored files came from.

    Args:
        data: the data folder, if it is given.
        dataset: name of a dataset other than Common Crawl's index.
        notify: called with a sentence if stored files came from another source than the settings name.
        given: other settings, see ``load_settings``.

    Raises:
        QueryError: if a setting is invalid.
    """
    settings = load_settings(data=data, **given)
    folder = settings.data / dataset if dataset and dataset != COMMON_CRAWL.name else settings.data
    stored = sources_of(folder / STORE_NAME)
    if stored:
        settings = load_settings({"source": _as_setting(stored[0])}, data=data, **given)
    if others := [each for each in stored if canonical(each) != canonical(settings.source)]:
        notify(
            f"files in {folder} came from {_as_setting(others[0])}, but the source is {settings.source}; "
            "if that is not intended, use --source"
        )
    return settings


def _as_setting(source: str) -> str:
    return url2pathname(urlsplit(source).path).rstrip("/") or "/" if source.startswith("file:") else source
