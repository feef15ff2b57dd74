"""Settings for a data folder."""

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.settings import STORE_NAME, Settings, canonical, is_folder, load_settings
from catalogue.store.glance import stored_sources


def settings_for(
    *,
    data: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    notify: Callable[[str], None],
    **options: object,
) -> Settings:
    """Load settings; if no source is set, use the source of the stored files.

    Raises:
        QueryError: if a setting is invalid.
    """
    settings = load_settings(data=data, **options)
    folder = settings.data / dataset if dataset and dataset != COMMON_CRAWL.name else settings.data
    stored = stored_sources(folder / STORE_NAME)
    if stored:
        settings = load_settings({"source": _as_setting(stored[0])}, data=data, **options)
    others = [source for source in stored if canonical(source) != canonical(settings.source)]
    if others and ("://" in settings.source or is_folder(settings.source)):  # a folder that is missing is an error
        origin, advice = _as_setting(others[0]), "use another --data folder for it"
        if options.get("source"):
            advice += ", or leave out --source"
        elif canonical(settings.source) not in map(canonical, stored):  # of the environment or config.toml
            advice += f", or --source {origin}"
        else:
            advice = "if that is not intended, use --source"
        notify(f"files in {folder} came from {origin}, but the source is now {settings.source}; {advice}")
    return settings


def _as_setting(source: str) -> str:
    if not source.startswith("file:"):
        return source
    from urllib.request import url2pathname

    return url2pathname(urlsplit(source).path).rstrip("/") or "/"
