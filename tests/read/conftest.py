"""Fixtures of tests that compare both indexes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import newest_first
from catalogue.settings import Settings


@pytest.fixture(scope="module")
def whole_settings(whole_mirror: Path, settings: Settings) -> Settings:
    return replace(settings, source=str(whole_mirror))


@pytest.fixture(scope="module")
def columnar(
    whole_data: Path, whole_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalogue]:
    """Everything is harvested, and what queries need of lists of blocks is searched."""
    data = copytree(whole_data, tmp_path_factory.mktemp("columnar") / "data")
    with catalogue.open(data, settings=whole_settings) as cat:
        yield cat


@pytest.fixture(scope="module")
def crawls(columnar: Catalogue) -> list[str]:
    return newest_first(columnar.session.metadata().crawls)


@pytest.fixture(scope="module")
def newest(crawls: list[str]) -> str:
    return crawls[0]


@pytest.fixture
def copied(whole_mirror: Path, tmp_path: Path) -> Path:
    return Path(copytree(whole_mirror, tmp_path / "mirror"))


@pytest.fixture(scope="module")
def some(whole_crawls: list[str]) -> list[str]:
    """The oldest of them and the newest: all subsets, and a dozen files."""
    return [whole_crawls[0], whole_crawls[-1]]
