"""Fixtures of tests that compare both indexes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.settings import Settings
from tests.conftest import harvest_all


@pytest.fixture(scope="module")
def whole_settings(whole_mirror: Path, settings: Settings) -> Settings:
    return replace(settings, source=str(whole_mirror))


@pytest.fixture(scope="module")
def columnar(whole_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Everything is harvested, and what queries need of lists of blocks is searched."""
    data = harvest_all(whole_settings, tmp_path_factory.mktemp("columnar") / "data")
    with catalogue.open(data, settings=whole_settings) as cat:
        yield cat
