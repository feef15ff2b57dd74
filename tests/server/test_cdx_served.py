"""The CDX API compared with an oracle that scans all captures."""

import pytest

from tests.support.amounts import in_part
from tests.support.cdx_exchanges import EXCHANGES, Exchange, find_error
from tests.support.cdx_known import Known, known_of, oracle_of
from tests.support.cdx_oracle import Oracle, Page
from tests.support.serving import serving_harvested

base = pytest.fixture(scope="module")(serving_harvested)
oracle = pytest.fixture(scope="module")(oracle_of)
known = pytest.fixture(scope="module")(known_of)


@pytest.fixture(scope="module")
def pages_of() -> dict[str, list[Page]]:
    """Pages of the server: half of the requests are about one host, whose pages are checked once."""
    return {}


@in_part(5)
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_answers_by_every_rule(
    exchange: Exchange, base: str, oracle: Oracle, known: Known, pages_of: dict[str, list[Page]]
) -> None:
    assert find_error(exchange, base, oracle, known, pages_of=pages_of) is None
