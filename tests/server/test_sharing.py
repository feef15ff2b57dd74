"""Catalogues that share a source and a cache: they answer as a single one, and fetch nothing twice."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from random import Random
from shutil import copytree
from threading import Barrier
from typing import Any

import pytest

from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.errors import SourceUnavailable, Throttled
from catalogue.selection import crawl_list, stored_crawls
from catalogue.session import Session
from catalogue.settings import Settings
from tests.read.test_answers import IDENTITY
from tests.support.faults import FaultServer, Kind, always
from tests.support.miniatures import OLD

THREADS, QUERIES, POOL = 8, 2, 4
PATTERNS = ["*.com", "*.org", "example.com/*", "https://example.com/"]
COLUMNS = [*IDENTITY, "fetch_status", "url_host_name"]
Query = Callable[[Catalogue], object]


@pytest.fixture(scope="module", autouse=True)
def _direct() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        yield


@pytest.fixture(scope="module")
def server(mirror: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(mirror) as running:
        yield running


@pytest.fixture(scope="module")
def harvested_there(server: LoopbackServer, whole_crawls: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two crawls of the server, one of them without page indexes."""
    folder = tmp_path_factory.mktemp("served")
    with Catalogue(Session(folder, Settings(source=server.url, cache=folder / "cache"))) as cat:
        cat.harvest([OLD, whole_crawls[-1]], subsets="all")
    return folder


@pytest.fixture
def opened(server: LoopbackServer, harvested_there: Path, tmp_path: Path) -> Iterator[Callable[..., Catalogue]]:
    """Open catalogues of a folder; requests are cheap, so that pages are read."""
    data = Path(copytree(harvested_there, tmp_path / "data"))
    server.log.clear()
    with ExitStack() as stack:

        def open_(source: str = server.url, patience: float = 60.0, **more: Any) -> Catalogue:
            chosen = Settings(source=source, cache=tmp_path / "cache", bandwidth=1e6, latency=0.002, **more)
            return stack.enter_context(Catalogue(Session(data, chosen, max_wait=patience)))

        yield open_


@pytest.fixture
def alone(mirror: Path, harvested_there: Path, tmp_path: Path) -> Iterator[Catalogue]:
    data = Path(copytree(harvested_there, tmp_path / "alone"))
    with Catalogue(Session(data, Settings(source=str(mirror), cache=tmp_path / "cache"))) as cat:
        yield cat


def sent_twice(server: LoopbackServer) -> list[str]:
    """Return index files with bytes that were sent more than once."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for each in server.log:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", each.range or "")
        assert found, each
        spans.setdefault(each.path, []).append((int(found[1]), int(found[2]) + 1))
    assert spans
    return [path for path, sent in spans.items() if any(start < end for (_, end), (start, _) in pairwise(sorted(sent)))]


def queries_of(crawls: list[str]) -> list[Query]:
    """Return queries of every kind, fewer than are run, so that equal ones are often run at the same time."""

    def query(text: str, crawl: str) -> Query:
        return lambda cat: cat.captures(text, crawls=crawl, columns=COLUMNS, limit=20).to_arrow()

    return [
        *(query(text, crawl) for text in PATTERNS for crawl in crawls),
        lambda cat: cat.captures("*.com", crawls=crawls[0], where="fetch_status = 200").count(),
        lambda cat: cat.sample(cat.captures("*", crawls=crawls[-1]), 3).to_arrow(),
        lambda cat: cat.sql("SELECT count(*), sum(num_rows) FROM files").fetchall(),
        lambda cat: cat.captures("*.org", columns=COLUMNS, unique="url").to_arrow(),
    ]


def pooled(catalogues: list[Catalogue], queries: list[Query]) -> list[object]:
    """Run queries in parallel, each with a free catalogue."""
    free: SimpleQueue[Catalogue] = SimpleQueue()
    for each in catalogues:
        free.put(each)
    start = Barrier(THREADS)

    def ask(number: int) -> list[object]:
        start.wait(10)
        answers = []
        for query in queries[number::THREADS]:
            cat = free.get()
            try:
                answers.append(query(cat))
            finally:
                free.put(cat)
        return answers

    with ThreadPoolExecutor(THREADS) as executor:
        answers = list(executor.map(ask, range(THREADS)))
    return [answers[number % THREADS][number // THREADS] for number in range(len(queries))]


def test_pool_answers_as_one_catalogue_and_fetches_nothing_twice(
    opened: Callable[..., Catalogue], server: LoopbackServer, alone: Catalogue
) -> None:
    drawn = Random(1).choices(queries_of(stored_crawls(alone.session)), k=THREADS * QUERIES)
    first = opened()
    pool = [first, *(Catalogue(first.session.share()) for _ in range(POOL - 1))]
    answers = pooled(pool, drawn)
    assert sent_twice(server) == []
    assert {cat.requests for cat in pool} == {len(server.log)}
    assert {cat.bytes for cat in pool} == {sum(each.sent_bytes for each in server.log)}
    right = {query: query(alone) for query in {*drawn}}
    assert answers == [right[query] for query in drawn]


def test_close_closes_only_its_catalogue(opened: Callable[..., Catalogue], server: LoopbackServer) -> None:
    first = opened()
    second, third = Catalogue(first.session.share()), Catalogue(Catalogue(first.session.share()).session.share())
    rows = first.captures("*.org", columns="url").to_arrow()
    before = len(server.log)
    assert second.requests == third.requests == before > 0
    assert second.captures("*.org", columns="url").to_arrow() == rows
    for _ in range(2):
        second.close()
        assert third.captures("*.org", columns="url").to_arrow() == rows
        assert second.captures("*.org", columns="url").to_arrow() == rows  # it opens again
    assert len(server.log) == before
    first.close()
    for each in (second, third):
        with pytest.raises(SourceUnavailable):
            each.captures("*.org", columns="*").to_arrow()
        each.close()
    assert first.captures("*.org", columns="url").to_arrow() == rows
    first.close()


def test_samples_without_cache_fetch_nothing_twice(
    opened: Callable[..., Catalogue], server: LoopbackServer, tmp_path: Path
) -> None:
    first = opened(cache_size=0)
    with Catalogue(first.session.share()) as second, Catalogue(first.session.share()) as third:
        samples = pooled(
            [second, third],
            [lambda cat: cat.sample(cat.captures("*", columns=["url", "fetch_status"]), 10).to_arrow()] * POOL,
        )
        assert all(sample == samples[0] for sample in samples)
        assert sent_twice(server) == []
    assert not (tmp_path / "cache" / "pages").exists()


def test_shared_catalogues_have_the_same_max_wait(mirror: Path, harvested_there: Path, tmp_path: Path) -> None:
    data = copytree(harvested_there, tmp_path / "data")
    with FaultServer(mirror, script=always(Kind.SLOW_DOWN)) as server:
        settings = Settings(source=server.url, cache=tmp_path / "cache", patience=250.0)
        with Catalogue(Session(data, settings, max_wait=2.0)) as first, Catalogue(first.session.share()) as second:
            for cat in (first, second):
                with pytest.raises(Throttled) as raised:
                    cat.captures("*", columns="url").to_arrow()
                assert raised.value.retry_after
                assert 200 < raised.value.retry_after <= 320
            with pytest.raises(Throttled):
                crawl_list(second.session)
