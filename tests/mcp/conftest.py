"""A source over HTTP, and data folders with and without stored crawls."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from catalogue.demo import Miniature
from catalogue.settings import Settings
from tests.conftest import once
from tests.support.catalogues import catalogue_in
from tests.support.faults import FaultServer
from tests.support.miniatures import MODERN, NEWEST, rows


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def source(miniature: Miniature) -> Iterator[FaultServer]:
    with FaultServer(miniature.folder) as server:
        yield server


@pytest.fixture(scope="session")
def harvested_once(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the pages of one crawl, and the list of blocks of another; to be copied."""

    def make(folder: Path) -> Path:
        with catalogue_in(folder, miniature.folder) as cat:
            cat.harvest(MODERN)
            cat.harvest(NEWEST, index="cdx")
        return folder / "data"

    return once(tmp_path_factory, "mcp", make)


@pytest.fixture(scope="session")
def page_url(miniature: Miniature) -> str:
    """The URL of an HTML page whose only capture in a crawl has a record."""
    found = rows(miniature, MODERN)
    counts = Counter(row["url_surtkey"] for row in found)
    return next(
        str(row["url"])
        for row in found
        if counts[row["url_surtkey"]] == 1
        and row["content_mime_detected"] == "text/html"
        and (miniature.folder / row["warc_filename"]).exists()
    )


@pytest.fixture
def stored(source: FaultServer, harvested_once: Path, tmp_path: Path) -> Settings:
    copytree(harvested_once, tmp_path / "data")
    return Settings(source=source.url, cache=tmp_path / "cache", data=tmp_path / "data", patience=0.01)


@pytest.fixture
def empty(source: FaultServer, tmp_path: Path) -> Settings:
    return Settings(source=source.url, cache=tmp_path / "cache", data=tmp_path / "data", patience=0.01)
