"""What the CDX API keeps in memory changes no answer, is limited, and is not used after the store has changed."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from hypothesis import settings as hypothesis_settings

import catalogue
from catalogue.cdx.blocks import Block
from catalogue.server.cdx_paging import ResultPage
from catalogue.server.cdx_request import parse_request
from catalogue.server.memory import Memory
from catalogue.server.service import Service
from catalogue.settings import Settings
from catalogue.surt.interval import EVERYTHING
from tests.server.conftest import INDEXES, requests
from tests.support.catalogues import harvested_in
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.faults import FaultServer
from tests.support.serving import Answer, get, running, serving


@pytest.fixture(scope="module", params=INDEXES)
def servers(request: pytest.FixtureRequest, by_index: Path, whole_settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Addresses of servers without memory, with some kilobytes, and with enough for everything."""
    data = by_index / str(request.param)
    with (
        serving(data, whole_settings, memory=0) as without,
        serving(data, whole_settings, memory=60_000) as little,
        serving(data, whole_settings) as enough,
    ):
        yield without, little, enough


@pytest.fixture
def logged(whole_mirror: Path, whole_settings: Settings, tmp_path: Path) -> Iterator[tuple[FaultServer, Settings]]:
    with FaultServer(whole_mirror) as source:
        yield source, replace(whole_settings, source=source.url, cache=tmp_path / "cache")


def shown(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    return answer.status, answer.body, {name: text for name, text in answer.headers.items() if name != "date"}


OPTIONS = [
    *({}, {"output": "json"}, {"output": "text"}, {"showNumPages": "true"}, {"pageSize": "1"}, {"page": "1"}),
    *({"fl": "url,charset,nosuch"}, {"closest": "2022"}, {"from": "2018", "to": "202208"}),
    {"output": "json", "filter": "!~url:.*[a-m]$"},
    *({"limit": "5"}, {"limit": "5", "sort": "reverse"}, {"limit": "1", "closest": "202208"}),
]


def test_answers_are_the_same_bytes(servers: tuple[str, str, str], crawl_and_urls: tuple[str, list[str]]) -> None:
    crawl, urls = crawl_and_urls
    chance = random.Random(27)
    asked = [
        f"/{crawl}-index?{urlencode(words | options)}"
        for words, options in zip(requests(urls, hypothesis_settings().max_examples // 2), cycle(OPTIONS), strict=False)
    ]
    for path in chance.sample(asked, len(asked)) + chance.choices(asked, k=len(asked) // 2):
        expected, *others = (shown(get(address, path)) for address in servers)
        assert expected[0] in {200, 400, 404}
        for other in others:
            assert other == expected, path


@pytest.mark.in_part(2)
@pytest.mark.parametrize("index", ["columnar", "cdx"])
def test_repeated_requests_read_nothing(
    by_index: Path, logged: tuple[FaultServer, Settings], crawl_and_urls: tuple[str, list[str]], index: str
) -> None:
    (crawl, urls), (source, reading) = crawl_and_urls, logged
    hosts = sorted({url.split("/")[2] for url in urls})
    asked = (*urls[:: len(urls) // 8], f"{hosts[0]}/*", f"*.{hosts[1]}")
    paths = [f"/{crawl}-index?{urlencode({'url': url})}" for url in asked]
    with serving(by_index / index, reading) as address:
        first = [get(address, path) for path in paths]
        shutil.rmtree(reading.cache, ignore_errors=True)
        source.reset()
        assert [get(address, path).body for path in paths] == [each.body for each in first]
        for more in ("&output=json", "&filter=status:2", "&limit=1", "&fl=url", "&sort=reverse"):
            assert {get(address, path + more).status for path in paths} <= {404, *(each.status for each in first)}
        assert not source.log


@pytest.mark.in_soak
def test_other_urls_of_a_block_read_nothing(
    by_index: Path, logged: tuple[FaultServer, Settings], crawl_and_urls: tuple[str, list[str]]
) -> None:
    (crawl, urls), (source, reading) = crawl_and_urls, logged
    some = urls[:: len(urls) // 120]
    with serving(by_index / "cdx", reading) as address:
        for url in some:
            assert get(address, f"/{crawl}-index?{urlencode({'url': url})}").status == 200
        read = [(each.path, each.headers["range"]) for each in source.log if each.path.endswith(".gz")]
    assert 0 < len(read) == len({*read}) < len(some) / 4


def test_changes_of_the_store_are_seen(settings: Settings, tmp_path: Path) -> None:
    chosen = replace(settings, source=str(crawl_of(tmp_path / "mirror", table(["com,example)/"]))))
    path = f"/{CRAWL}-index?url=example.com/*"
    with catalogue.open(tmp_path / "data", settings=chosen) as cat, serving(tmp_path / "data", chosen) as address:
        for _ in range(2):
            for _ in range(2):
                assert get(address, path).status == 404
            cat.harvest(CRAWL)
            for _ in range(2):
                assert get(address, path).status == 200
            cat.forget(CRAWL)
        assert get(address, path).status == 404


@pytest.mark.in_part(2)
@pytest.mark.parametrize("index", ["columnar", "cdx"])
def test_memory_is_limited(
    by_index: Path, whole_settings: Settings, crawl_and_urls: tuple[str, list[str]], index: str
) -> None:
    crawl, urls = crawl_and_urls
    service = Service(by_index / index, whole_settings, at_once=2, memory=20_000)
    sizes = []
    with running(service) as address:
        for url in urls[:: len(urls) // 12]:
            get(address, f"/{crawl}-index?{urlencode({'url': url})}")
            sizes.append(service.memory.size)
    service.close()
    assert 0 < max(sizes) <= 20_000


def test_drops_what_was_not_used_for_the_longest_time() -> None:
    memory = Memory(10_000)
    blocks = [Block("x", number, b"%01000d 20220101000000 {}\n" % number) for number in range(10)]
    for block in blocks:
        memory.keep_block("", block)
        memory.block("", "x", 0)
    kept = [number for number in range(10) if memory.block("", "x", number)]
    assert kept == [0, *range(11 - len(kept), 10)]
    assert 4 < len(kept) < 10
    assert memory.size <= 10_000
    memory.keep_lines("", "x", (EVERYTHING,), ["x" * 9000])
    assert memory.lines("", "x", (EVERYTHING,)) is None
    assert [number for number in range(10) if memory.block("", "x", number)] == kept


def test_long_keys_count() -> None:
    memory = Memory(1_000_000)
    for number in range(30):
        request = parse_request([("url", f"example.com/{number}" + "a" * 30_000)])
        memory.keep_page("", "x", request, ResultPage(1, 1, (request.pattern.intervals,)))
        memory.keep_lines("", "x", request.pattern.intervals, [])
    kept = [
        number
        for number in range(30)
        if memory.page("", "x", parse_request([("url", f"example.com/{number}" + "a" * 30_000)]))
    ]
    assert 0 < len(kept) < 10


@contextmanager
def serving_many(folder: Path, **options: Any) -> Iterator[tuple[str, list[str]]]:
    """Serve 20,000 captures of a day; yield the address, and their keys in order."""
    keys = [f"com,example)/{number:05}" for number in range(20_000)]
    times = pa.array([datetime(2022, 8, 8, tzinfo=UTC)] * len(keys), pa.timestamp("ms"))
    mirror = crawl_of(folder / "mirror", table(keys, fetch_time=times), **options)
    with serving(*harvested_in(folder, mirror)) as address:
        yield address, keys


@pytest.mark.parametrize("options", ["", "&sort=reverse", "&closest=2022", "&filter==status:200"])
def test_limited_requests_change_no_later_answer(options: str, tmp_path: Path) -> None:
    """A limit ends the conversion of rows to lines early, which are more than are converted together."""
    with serving_many(tmp_path) as (address, keys):
        path = f"/{CRAWL}-index?url=example.com/*&output=text&fl=urlkey"
        for _ in range(2):  # the first one changes the store
            assert get(address, f"{path}&limit=5{options}").text.count("\n") == 5
        assert get(address, path).text.splitlines() == keys


def test_pages_without_captures_of_a_time_are_not_other_ones_later(tmp_path: Path) -> None:
    with serving_many(tmp_path, row_group_size=4000) as (address, _):
        path = f"/{CRAWL}-index?url=example.com/*&pageSize=1&page=1"
        assert get(address, path).status == 200
        assert [get(address, f"{path}&from=20220810").status for _ in range(3)] == [404] * 3
