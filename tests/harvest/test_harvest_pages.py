"""``harvest --pages``: page indexes in the same requests as the footers, once."""

from pathlib import Path

import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.demo import LoopbackServer
from catalogue.errors import SourceUnavailable
from catalogue.session import Session
from catalogue.settings import Settings
from tests.support import crawls
from tests.support.mirrors import crawl_of, index_paths, read_footer


@pytest.fixture
def settings(server: LoopbackServer, tmp_path: Path) -> Settings:
    return Settings(source=server.url, cache=tmp_path / "cache", cache_size=0, latency=0.001, bandwidth=1e6)


@pytest.fixture(scope="module")
def crawl(mirror: Path) -> str:
    """One whose files have page indexes."""
    return max(
        crawl_of(path)
        for path in index_paths(mirror)
        if read_footer(path.read_bytes()).row_groups[0].chunks[KEY_COLUMN].offset_index
    )


def requests(server: LoopbackServer) -> list[str]:
    return [exchange.path for exchange in server.log if exchange.path.endswith(".parquet")]


def test_one_request_fetches_footer_and_page_indexes(
    server: LoopbackServer, settings: Settings, tmp_path: Path, crawl: str
) -> None:
    messages: list[str] = []
    with Catalogue(Session(tmp_path / "data", settings, notify=messages.append)) as cat:
        (harvested,) = cat.harvest(crawl, subsets="all", pages=True)
        assert harvested.progress.done == harvested.progress.listed > 0
        assert len(requests(server)) == len(set(requests(server))) == harvested.progress.listed
        assert any("page indexes" in text and f"{harvested.progress.listed:,} requests" in text for text in messages)
        server.log.clear()
        cat.harvest(crawl, subsets="all", pages=True)
        assert requests(server) == []
        found = cat.captures("*.example.com", crawls=crawl, columns="*")
        assert not found.plan.indexes
        assert found.plan.pages > 0
        pages = cat.pages(crawl)
        assert pages.num_rows.sum() == cat.files(crawl).num_rows.sum()
        assert cat.check(read_subset="100%").findings == []  # they equal those of the files


def test_does_not_request_stored_footers_or_missing_page_indexes(
    mirror: Path, server: LoopbackServer, settings: Settings, tmp_path: Path, crawl: str
) -> None:
    without = min(crawl_of(path) for path in index_paths(mirror))  # of 2018
    with Catalogue(Session(tmp_path / "data", settings)) as cat:
        cat.harvest(crawl)
        files = requests(server)
        sizes = {path: (mirror / path).stat().st_size for path in files}
        before = len(server.log)
        cat.harvest(crawl, pages=True)
        made = [exchange for exchange in server.log[before:] if exchange.path.endswith(".parquet")]
        assert sorted(exchange.path for exchange in made) == sorted(files)
        assert all(exchange.sent_bytes < sizes[exchange.path] / 2 for exchange in made)
        assert not cat.captures("*.example.com", crawls=crawl).plan.indexes
        cat.harvest(without, pages=True)
        server.log.clear()
        cat.harvest(without, pages=True)
        assert requests(server) == []
        assert cat.pages(without).empty
        assert cat.pages(without).dtypes.equals(cat.pages(crawl).dtypes)
        assert str(cat.files().dtypes["harvested_at"]) == "datetime64[us, UTC]"


def test_gives_up_if_the_first_files_fail_and_not_if_many_do(tmp_path: Path) -> None:
    mirror = crawls.crawl_of(tmp_path / "mirror", *[crawls.table(["com,example)/"])] * 30)
    with Catalogue(Session(tmp_path / "data", Settings(source=str(mirror), connections=1))) as cat:
        crawls.harvest_footers(cat)
        first, *others = sorted(mirror.rglob("*.parquet"))
        for path in others:
            path.unlink()
        (harvested,) = cat.harvest(crawls.CRAWL, pages=True)
        assert len(harvested.failures) == len(others)
        first.unlink()
        with pytest.raises(SourceUnavailable, match="the first 25 files all failed, the last with: "):
            cat.harvest(crawls.CRAWL, refresh=True)
