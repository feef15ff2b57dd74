"""The oracle held against pywb itself, where its programs are there: what is not known to differ must be the same."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from benchmarks.zipnum import VARIABLE, programs, pywb, write_cluster
from tests.support.cdx_exchanges import EXCHANGES, Exchange, Reply, ask, wrong_with
from tests.support.cdx_known import Known, known_of, oracle_of
from tests.support.cdx_oracle import Oracle

pytestmark = pytest.mark.skipif(programs() is None, reason=f"{VARIABLE} does not say where pywb is")


oracle = pytest.fixture(scope="module")(oracle_of)
asked = pytest.fixture(scope="module")(known_of)


@pytest.fixture(scope="module")
def base(crawl: str, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pywb")
    write_cluster(folder, crawl, (capture.raw for capture in oracle.captures))
    bin_folder = programs()
    assert bin_folder
    with pywb(folder, bin_folder) as served:
        yield served.url


def ask_pywb(base: str, path: str, headers: Mapping[str, str]) -> Reply:
    """As Common Crawl's patched pywb would answer, but for what the exchanges note."""
    query = urlsplit(path).query
    reply = ask(base, f"{path}&nosource=true&allowFuzzy=false" if query else path, headers)
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


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_the_oracle_answers_as_pywb_but_where_noted(
    exchange: Exchange, base: str, oracle: Oracle, asked: Known
) -> None:
    wrong = wrong_with(exchange, base, oracle, asked, ask_pywb)
    assert (wrong is not None) == bool(exchange.pywb), wrong or "no difference"
