"""Catalogues that share a source and a cache: they fetch nothing twice, and each is closed for itself."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.errors import SourceUnavailable, Throttled
from catalogue.selection import crawl_list
from catalogue.session import Session
from catalogue.settings import Settings
from tests.support.faults import FaultServer, Kind, always
from tests.support.miniatures import OLD


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


def sent_twice(server: LoopbackServer) -> list[str]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for each in server.log:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", each.range or "")
        assert found, each
        spans.setdefault(each.path, []).append((int(found[1]), int(found[2]) + 1))
    assert spans
    return [path for path, sent in spans.items() if any(start < end for (_, end), (start, _) in pairwise(sorted(sent)))]


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
    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        pool = [stack.enter_context(Catalogue(first.session.share())) for _ in range(4)]
        draw = lambda cat: cat.sample(cat.captures("*", columns=["url", "fetch_status"]), 10).to_arrow()  # noqa: E731
        sample, *others = threads.map(draw, pool)
        assert all(other == sample for other in others)
        assert sent_twice(server) == []
        assert {cat.requests for cat in pool} == {len(server.log)}
        assert {cat.bytes for cat in pool} == {sum(each.sent_bytes for each in server.log)}
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
