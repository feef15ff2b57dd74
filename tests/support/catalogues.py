"""Open catalogues, and harvest."""

from pathlib import Path
from typing import Any

import catalogue
from catalogue import Catalogue
from catalogue.settings import Settings
from catalogue.source.observe import Observer
from tests.support.crawls import CRAWL


def catalogue_in(
    folder: Path,
    source: str | Path,
    *,
    data: Path | None = None,
    table: str | None = None,
    trace: bool | Observer = False,
    **settings: Any,
) -> Catalogue:
    """Open a catalogue of a source; its cache, and its data unless ``data`` is given, are in a folder."""
    chosen = Settings(source=str(source), cache=folder / "cache", **settings)
    return catalogue.open(data or folder / "data", table=table, settings=chosen, trace=trace)


def harvested_in(
    folder: Path, source: str | Path, crawl: str = CRAWL, subsets: str = "warc", **settings: Any
) -> tuple[Path, Settings]:
    """Harvest a crawl; return the data folder, and its settings."""
    with catalogue_in(folder, source, **settings) as cat:
        cat.harvest(crawl, subsets=subsets)
        return cat.session.data, cat.session.settings
