"""A catalogue of all crawls with both indexes, and all rows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.settings import Settings
from tests.join.test_join import Oracle
from tests.support.mirrors import whole_table


@pytest.fixture(scope="session")
def rows(whole_mirror: Path) -> pa.Table:
    """All captures, sorted by key, with the columns that tests compare."""
    names = ["url_surtkey", "url", "fetch_time", "fetch_status", "warc_filename", "warc_record_offset"]
    return whole_table(whole_mirror, [*names, "crawl", "subset"]).sort_by([("url_surtkey", "ascending")])


@pytest.fixture(scope="module")
def crawls(both: Catalogue) -> list[str]:
    """The crawls that have both indexes, oldest first."""
    return sorted({*both.session.metadata().crawls}.intersection(both.session.block_lists.stored))


@pytest.fixture(scope="module")
def oracle(rows: pa.Table, crawls: list[str]) -> Oracle:
    return Oracle(rows, crawls)


@pytest.fixture(scope="module")
def some(rows: pa.Table, crawls: list[str]) -> Oracle:
    """Of two crawls, which are smaller."""
    return Oracle(rows, crawls[-2:])


@pytest.fixture(scope="session")
def both(
    both_data: Path, whole_mirror: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalogue]:
    data = copytree(both_data, tmp_path_factory.mktemp("both") / "data")
    with catalogue.open(data, settings=replace(settings, source=str(whole_mirror))) as cat:
        yield cat
