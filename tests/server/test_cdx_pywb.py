"""The oracle compared with pywb, where it is installed: only known differences are allowed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from benchmarks.zipnum import VARIABLE, programs, pywb, write_cluster
from tests.support.amounts import part_of
from tests.support.cdx_exchanges import EXCHANGES, Exchange, Reply, find_error, send
from tests.support.cdx_known import Known, known_of, oracle_of
from tests.support.cdx_oracle import Oracle

IS_MISSING = programs() is None
pytestmark = pytest.mark.skipif(IS_MISSING, reason=f"{VARIABLE} is not set, or names a folder without pywb")
SENT = part_of(EXCHANGES, 9)
oracle = pytest.fixture(scope="module")(oracle_of)
known = pytest.fixture(scope="module")(known_of)


@pytest.fixture(scope="module")
def base(crawl: str, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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


@pytest.mark.parametrize("exchange", SENT[:1] if IS_MISSING else SENT, ids=lambda exchange: exchange.name)
def test_oracle_agrees_with_pywb_except_where_noted(
    exchange: Exchange, base: str, oracle: Oracle, known: Known
) -> None:
    error = find_error(exchange, base, oracle, known, send_to_pywb)
    assert (error is not None) == bool(exchange.pywb), error or "no difference"
