"""A crawl of the complete mirror, stored by either index and by both."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.settings import Settings
from tests.conftest import once

INDEXES = ["columnar", "cdx", "both"]


@pytest.fixture(scope="session")
def whole_settings(whole_mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(source=str(whole_mirror), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def crawl_and_urls(whole_mirror: Path) -> tuple[str, list[str]]:
    newest = max(whole_mirror.rglob("crawl=*"), key=lambda folder: folder.name)
    tables = [pq.ParquetFile(path).read(columns=["url"]) for path in newest.rglob("*.parquet")]
    urls = {url for table in tables for url in table.column(0).to_pylist()}
    return newest.name.removeprefix("crawl="), sorted(url for url in urls if "*" not in url and url.isascii())


def _harvest_by_index(crawl: str, settings: Settings, folder: Path) -> Path:
    for index in INDEXES:
        with catalogue.open(folder / index, settings=settings) as cat:
            cat.harvest(crawl, subsets="all", index=index)
    return folder


@pytest.fixture(scope="session")
def by_index(
    crawl_and_urls: tuple[str, list[str]], whole_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Data folders of the crawl, named by the stored indexes, for queries."""
    made = once(tmp_path_factory, "by_index", partial(_harvest_by_index, crawl_and_urls[0], whole_settings))
    return Path(copytree(made, tmp_path_factory.mktemp("by_index") / "data"))


def requests(urls: list[str], count: int) -> Iterator[dict[str, str]]:
    chance = random.Random(7)
    for _ in range(count):
        url = chance.choice(urls)
        host = url.split("/")[2]
        yield chance.choice(
            [
                {"url": url},
                {"url": f"{host}/*"},
                {"url": f"*.{host.removeprefix('www.')}"},
                {"url": url.partition("?")[0][:40], "matchType": "prefix"},
                {"url": "nowhere.invalid"},
            ]
        ) | chance.choice(
            [{}, {"filter": "=status:200"}, {"filter": "~mime:.*html"}, {"limit": "3"}, {"sort": "reverse"}]
        )
