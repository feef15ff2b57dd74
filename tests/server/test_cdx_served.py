"""The server's answers to the CDX API, held against an oracle that looks at every capture."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from catalogue.settings import Settings
from tests.support.cdx_exchanges import EXCHANGES, Exchange, wrong_with
from tests.support.cdx_known import Known, known_of, oracle_of
from tests.support.cdx_oracle import Oracle, Page
from tests.support.serving import serving


@pytest.fixture(scope="module")
def base(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("served") / "data"))
    with serving(data, settings) as address:
        yield address


oracle = pytest.fixture(scope="module")(oracle_of)
asked = pytest.fixture(scope="module")(known_of)


@pytest.fixture(scope="module")
def parted() -> dict[str, list[Page]]:
    """Half of the questions are about one host: how the server parts its captures is looked at once."""
    return {}


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_every_rule(exchange: Exchange, base: str, oracle: Oracle, asked: Known, parted: dict[str, list[Page]]) -> None:
    assert wrong_with(exchange, base, oracle, asked, parted=parted) is None
