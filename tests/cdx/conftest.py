from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.cluster import make_list
from catalogue.cdx.cluster import BlockList, parse_blocks
from catalogue.cdx.lines import COLUMNS
from tests.support.block_lists import BLOCKS, CRAWL
from tests.support.cdx_indexes import CdxIndex, indexes_of
from tests.support.mirrors import whole_table


@pytest.fixture(scope="package")
def listed() -> bytes:
    return make_list(BLOCKS)


@pytest.fixture(scope="package")
def blocks(listed: bytes) -> BlockList:
    return parse_blocks(CRAWL, listed)


@pytest.fixture(scope="session")
def whole_rows(whole_mirror: Path) -> pa.Table:
    """All rows of the columnar index, with the columns that follow from CDX lines."""
    return whole_table(whole_mirror, COLUMNS)


@pytest.fixture(scope="session")
def indexes(whole_mirror: Path, whole_rows: pa.Table) -> list[CdxIndex]:
    return indexes_of(whole_mirror, whole_rows)


@pytest.fixture(scope="session")
def scanned(indexes: list[CdxIndex]) -> dict[str, list[bytes]]:
    return {index.crawl: index.lines for index in indexes}
