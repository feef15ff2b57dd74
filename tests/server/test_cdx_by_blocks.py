"""The CDX API answers from blocks what it answers from Parquet files."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import settings

from catalogue.settings import Settings
from tests.server.conftest import requests
from tests.support.amounts import in_soak
from tests.support.faults import Fault, FaultServer, Kind, Request
from tests.support.serving import get, served_from, serving


@pytest.fixture(scope="module")
def servers(by_index: Path, whole_settings: Settings) -> Iterator[dict[str, str]]:
    with (
        serving(by_index / "columnar", whole_settings) as columnar,
        serving(by_index / "cdx", whole_settings) as cdx,
        serving(by_index / "both", whole_settings) as both,
    ):
        yield {"columnar": columnar, "cdx": cdx, "both": both}


def test_answers_are_equal(servers: dict[str, str], crawl_and_urls: tuple[str, list[str]]) -> None:
    crawl, urls = crawl_and_urls
    lines = 0
    for words in requests(urls, settings().max_examples):
        query = urlencode(words | {"pageSize": "1000"})
        one, *others = (get(address, f"/{crawl}-index?{query}") for address in servers.values())
        assert one.status in {200, 400, 404}  # some random hosts have a port next to a wildcard
        for other in others:
            assert other.status == one.status, words
            if one.status == 200:
                assert str.splitlines(other.text) == str.splitlines(one.text), words
        lines += len(one.text.splitlines())
    assert lines > 10


def test_pages_are_complete_and_disjoint(servers: dict[str, str], crawl_and_urls: tuple[str, list[str]]) -> None:
    crawl, _ = crawl_and_urls
    whole = str.splitlines(get(servers["columnar"], f"/{crawl}-index?url=*.com&pageSize=1000").text)
    assert whole
    pages = {}
    for name, address in servers.items():
        count = get(address, f"/{crawl}-index?url=*.com&pageSize=1&showNumPages=true").json["pages"]
        texts = [get(address, f"/{crawl}-index?url=*.com&pageSize=1&page={page}").text for page in range(count)]
        assert [line for text in texts for line in str.splitlines(text)] == whole
        pages[name] = [str.splitlines(text) for text in texts]
    assert pages["both"] == pages["columnar"] == pages["cdx"]


@in_soak
def test_search_page_shows_captures_of_blocks(
    whole_settings: Settings, servers: dict[str, str], crawl_and_urls: tuple[str, list[str]], tmp_path: Path
) -> None:
    crawl, urls = crawl_and_urls
    host = urls[0].split("/")[2]
    query = urlencode({"url": f"{host}/*", "crawl": crawl})
    with serving(tmp_path / "nothing", whole_settings) as empty:
        by_files, by_blocks, by_search = (
            get(address, f"/search.csv?{query}").text for address in (servers["columnar"], servers["cdx"], empty)
        )
        assert by_files.splitlines()[1:]
        assert by_files == by_blocks == by_search
        shown = get(empty, f"/search?{query}")
        assert shown.status == 200
        assert "Blocks of the CDX index" in shown.text
        assert f"{crawl} · " in get(empty, "/").text


def test_stored_lists_need_no_list_of_crawls(
    by_index: Path,
    whole_mirror: Path,
    whole_settings: Settings,
    crawl_and_urls: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    crawl, urls = crawl_and_urls

    def script(request: Request) -> Fault | None:
        return Fault(Kind.NOT_FOUND) if request.path == "collinfo.json" else None

    with (
        FaultServer(whole_mirror, script=script) as source,
        served_from(source.url, by_index / "cdx", whole_settings, tmp_path) as address,
    ):
        for name in (crawl, "latest"):
            assert get(address, f"/{name}-index?{urlencode({'url': urls[0]})}").status == 200


@pytest.mark.parametrize(("damaged", "statuses"), [(1, [200]), (2, [409, 200])])
def test_damaged_blocks_are_requested_again(
    by_index: Path,
    whole_mirror: Path,
    whole_settings: Settings,
    servers: dict[str, str],
    crawl_and_urls: tuple[str, list[str]],
    tmp_path: Path,
    damaged: int,
    statuses: list[int],
) -> None:
    path = f"/{crawl_and_urls[0]}-index?{urlencode({'url': crawl_and_urls[1][0]})}"

    def script(request: Request) -> Fault | None:
        is_damaged = "/cdx-0" in request.path and request.attempt < damaged
        return Fault(Kind.FLIPPED_BIT) if is_damaged else None

    with (
        FaultServer(whole_mirror, script=script) as source,
        served_from(source.url, by_index / "cdx", whole_settings, tmp_path) as address,
    ):
        answers = [get(address, path) for _ in statuses]
    assert [answer.status for answer in answers] == statuses
    assert answers[-1].text == get(servers["cdx"], path).text
