"""The CDX API compared with an oracle that scans all captures, and the oracle with pywb, where it is installed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from benchmarks.zipnum import VARIABLE, programs, pywb, write_cluster
from tests.support.amounts import part_of
from tests.support.cdx_exchanges import EXCHANGES, Exchange, Reply, find_error, send
from tests.support.cdx_known import Known, known_of, oracle_of
from tests.support.cdx_oracle import Oracle, Page
from tests.support.serving import serving_harvested

base = pytest.fixture(scope="module")(serving_harvested)
oracle = pytest.fixture(scope="module")(oracle_of)
known = pytest.fixture(scope="module")(known_of)
IS_MISSING = programs() is None
SENT = part_of(EXCHANGES, 9)


@pytest.fixture(scope="module")
def pages_of() -> dict[str, list[Page]]:
    """Pages of the server: half of the requests are about one host, whose pages are checked once."""
    return {}


@pytest.mark.in_part(5)
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_answers_by_every_rule(
    exchange: Exchange, base: str, oracle: Oracle, known: Known, pages_of: dict[str, list[Page]]
) -> None:
    assert find_error(exchange, base, oracle, known, pages_of=pages_of) is None


@pytest.fixture(scope="module")
def pywb_base(crawl: str, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pywb")
    write_cluster(folder, crawl, (capture.raw for capture in oracle.captures))
    bin_folder = programs()
    assert bin_folder
    with pywb(folder, bin_folder) as served:
        yield served.url


def send_to_pywb(base: str, path: str) -> Reply:
    """Change answers as Common Crawl's patches do."""
    query = urlsplit(path).query
    reply = send(base, f"{path}&nosource=true&allowFuzzy=false" if query else path)
    if reply.type in {"text/x-ndjson", "text/x-cdxj"} and '"pages"' not in reply.text[:20]:
        body = "".join(f"{_renamed(line)}\n" for line in reply.text.splitlines())
        return replace(reply, body=body.encode())
    return reply


def _renamed(line: str) -> str:
    start, brace, rest = line.partition("{")
    fields = json.loads(brace + rest)
    fields.pop("access", None)
    if charset := fields.pop("charset", None):
        fields["encoding"] = charset
    return start + json.dumps(fields)


@pytest.mark.skipif(IS_MISSING, reason=f"{VARIABLE} is not set, or names a folder without pywb")
@pytest.mark.parametrize("exchange", SENT[:1] if IS_MISSING else SENT, ids=lambda exchange: exchange.name)
def test_oracle_agrees_with_pywb_except_where_noted(
    exchange: Exchange, pywb_base: str, oracle: Oracle, known: Known
) -> None:
    error = find_error(exchange, pywb_base, oracle, known, send_to_pywb)
    assert (error is not None) == bool(exchange.pywb), error or "no difference"
