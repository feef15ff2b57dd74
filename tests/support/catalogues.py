"""Open catalogues."""

from pathlib import Path
from typing import Any

import catalogue
from catalogue import Catalogue
from catalogue.settings import Settings
from catalogue.source.observe import Observer


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
