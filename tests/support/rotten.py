"""Stores with what rotted in them, and a source to mend them from."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.settings import Settings
from tests.support.rot import harvested


def whole_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackServer, Path]]:
    """A served crawl, and the folder where it is held."""
    with harvested(tmp_path_factory.mktemp("whole")) as (server, cat):
        yield server, cat.session.data


def its_server(whole: tuple[LoopbackServer, Path]) -> LoopbackServer:
    del whole[0].log[:]
    return whole[0]


def its_copy(whole: tuple[LoopbackServer, Path], server: LoopbackServer, tmp_path: Path) -> Iterator[Catalogue]:
    """A copy, to be damaged."""
    shutil.copytree(whole[1], tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=Settings(source=server.url, cache=tmp_path / "cache")) as opened:
        yield opened
