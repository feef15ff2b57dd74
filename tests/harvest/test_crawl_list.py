"""The list of crawls while its host answers, and while it does not."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import catalogue
from catalogue.commoncrawl.crawls import COLLINFO, newest_first
from catalogue.commoncrawl.datasets import manifest_path
from catalogue.errors import BadManifest, IncompleteAnswer, NotHarvested, SourceError, UnknownCrawl
from catalogue.harvest.harvest import resolve_manifest_paths
from catalogue.selection import MAX_PROBES, fetch_crawl_list
from catalogue.settings import STORE_NAME, Settings
from catalogue.source.open import open_source
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request, only
from tests.support.mirrors import copy_crawl

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
"""Monday of week 48."""
LISTED = ["CC-MAIN-2026-38", "CC-MAIN-2026-34", "CC-MAIN-2012"]


def manifest_of(crawl: str) -> bytes:
    return gzip.compress(f"cc-index/crawl={crawl}/subset=warc/part-00000.gz.parquet\n".encode())


def files(*crawls: str, listed: list[str] | None = None) -> dict[str, bytes]:
    content = {manifest_path(crawl): manifest_of(crawl) for crawl in crawls}
    if listed is not None:
        content[COLLINFO] = json.dumps([{"id": name} for name in listed]).encode()
    return content


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], PoliteSource]]:
    settings = Settings(cache=tmp_path / "cache")
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(closing(open_source(url, settings, attempts=1)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "store.sqlite", create=True)) as opened:
        yield opened


def set_age(store: Store, age: timedelta | str) -> None:
    known = store.get("documents", COLLINFO)
    assert known
    fetched = age if isinstance(age, str) else (datetime.now(UTC) - age).isoformat()
    store.put("documents", [(COLLINFO, replace(known, taken=fetched))])


@pytest.mark.parametrize(
    ("age", "requests"),
    [(timedelta(hours=23), 0), (timedelta(hours=25), 1), (timedelta(hours=-25), 1), ("soon", 1)],
    ids=["of today", "old", "of the future", "invalid time"],
)
def test_fetches_the_list_once_a_day(
    store: Store, opened: Callable[[str], PoliteSource], age: timedelta | str, requests: int
) -> None:
    with FaultServer(files(listed=LISTED)) as server:
        source = opened(server.url)
        first = fetch_crawl_list(store, source)
        assert [*first.crawls] == LISTED
        assert (first.warning, first.found, first.complete) == (None, (), True)
        set_age(store, age)
        before = len(server.log)
        assert fetch_crawl_list(store, source) == first
        assert len(server.log) - before == requests


NOT_REACHABLE: dict[str, tuple[list[str], timedelta, list[str], list[str], int, str]] = {
    "newer crawls": (
        *(LISTED, timedelta(days=26, hours=2), ["47", "43"], ["47", "43"], MAX_PROBES),
        "using the list of 26 days ago and CC-MAIN-2026-47, CC-MAIN-2026-43, found on the data host; other crawls",
    ),
    "recent list": (["CC-MAIN-2026-46"], timedelta(hours=30), [], [], 2, "using the list of 1 day ago"),
    "list with a supplemental crawl": (
        *(["CC-SUPPLEMENTAL-2026-47", "CC-MAIN-2026-41"], timedelta(days=9), ["45"], ["45"], 7),
        "using the list of 9 days ago and CC-MAIN-2026-45, found on the data host; other crawls may exist",
    ),
    "future list": (["CC-MAIN-2026-46"], timedelta(days=-4), [], [], 2, "using the stored list"),
    "no stored list": (
        *([], timedelta(), ["45", "41"], ["45"], 4),
        "no list is stored and CC-MAIN-2026-45, found on the data host; other crawls may exist",
    ),
    "refusal": (
        *(["CC-MAIN-2026-41"], timedelta(days=9), ["47", "45"], [], 2),
        "using the list of 9 days ago; other crawls may exist: name one in full, such as CC-MAIN-2022-05",
    ),
}
NOT_REACHABLE["damaged manifest"] = NOT_REACHABLE["refusal"]
"""The stored list and its age, weeks of crawls on the host and of those found, requests, warning."""


@pytest.mark.parametrize("condition", NOT_REACHABLE)
def test_finds_newer_crawls_by_their_manifests_while_the_list_is_not_reachable(
    store: Store, opened: Callable[[str], PoliteSource], condition: str
) -> None:
    stored, age, on_host, found, requests, warning = NOT_REACHABLE[condition]
    newest, content = manifest_path("CC-MAIN-2026-47"), files(*(f"CC-MAIN-2026-{week}" for week in on_host))
    content |= {newest: b"no gzip"} if condition == "damaged manifest" else {}
    with FaultServer(content, script=only(newest, Kind.DENIED) if condition == "refusal" else None) as server:
        with FaultServer(files(listed=stored or None)) as listing:  # else the other could get its port
            lists = opened(listing.url)
            if stored:
                fetch_crawl_list(store, lists)
                set_age(store, age)
        done = fetch_crawl_list(store, lists, lambda: opened(server.url), now=NOW)
        probed = [request.path for request in server.log]
    assert probed == [manifest_path(f"CC-MAIN-2026-{week}") for week in range(48, 48 - requests, -1)]
    names = [f"CC-MAIN-2026-{week}" for week in found]
    assert list(done.found) == names
    assert [*done.crawls] == newest_first([*names, *stored])
    assert warning in (done.warning or "")
    assert done.complete is ("other crawls" not in warning)
    if done.complete:  # it is stored, for a day
        again = fetch_crawl_list(store, lists)
        assert ([*again.crawls], again.warning) == ([*names, *stored], None)


def test_without_list_and_manifests_it_is_an_error(store: Store, opened: Callable[[str], PoliteSource]) -> None:
    with FaultServer({}) as server:
        source = opened(server.url)
        with pytest.raises(SourceError, match="collinfo"):
            fetch_crawl_list(store, source, lambda: source, now=NOW)
        assert len(server.log) == 1 + MAX_PROBES


def test_harvests_a_crawl_by_the_path_of_its_manifest(tmp_path: Path) -> None:
    path, crawl = "projects/test/CC-SUPPLEMENTAL-2026-22/cc-index-table.paths.gz", "CC-SUPPLEMENTAL-2026-22"
    content = {path: manifest_of(crawl), "projects/other/x.paths.gz": gzip.compress(b"projects/x.parquet\n")}
    with FaultServer(content) as server, catalogue.open(tmp_path, source=server.url) as cat:
        assert resolve_manifest_paths(cat.session, ["latest", path]) == ["latest", crawl]
        assert cat.session.store.get("documents", manifest_path(crawl))
        with pytest.raises(UnknownCrawl, match=r"has no manifest projects/none/x.paths.gz"):
            resolve_manifest_paths(cat.session, ["projects/none/x.paths.gz"])
        with pytest.raises(BadManifest, match="lists no index file"):
            resolve_manifest_paths(cat.session, ["projects/other/x.paths.gz"])


@pytest.mark.parametrize("listed", [b'[{"id": "%b"}]', None], ids=["listed since then", "host is away"])
def test_names_may_be_years_newer_than_an_old_list(
    whole_mirror: Path, crawl: str, tmp_path: Path, listed: bytes | None
) -> None:
    source = copy_crawl(whole_mirror, crawl, tmp_path / "source")
    (source / COLLINFO).write_bytes(b'[{"id": "CC-MAIN-2013-20"}]')
    with catalogue_in(tmp_path, source) as cat:
        count = cat.captures("*.com", crawls=crawl).count()  # without a stored list
        cat.captures("*.com", crawls="all")  # fetches the list
        assert cat.captures("*.com", crawls=crawl).count() == count
        with pytest.raises(UnknownCrawl, match=f"there is no crawl {crawl}"):
            cat.captures("*.com", crawls=crawl, index="columnar")
        set_age(cat.session.store, timedelta(days=26))
        if listed:
            (source / COLLINFO).write_bytes(listed % crawl.encode())
        else:
            (source / COLLINFO).unlink()
        with pytest.raises(NotHarvested, match=f"{crawl} is not harvested yet"):
            cat.captures("*.com", crawls=crawl, index="columnar")
        if listed:
            with pytest.raises(UnknownCrawl, match="there is no crawl CC-MAIN-2099-10"):
                cat.captures("*.com", crawls="CC-MAIN-2099-10").count()


def test_commands_work_while_the_host_of_the_list_is_away(command: Command, mirror: Path, crawl: str) -> None:
    """Every command that needs no new crawl works, and commands that need the list say what they could not fetch."""

    def script(request: Request) -> Fault | None:
        return Fault(Kind.DISCONNECT) if request.path == COLLINFO and away else None

    away: bool = True
    with FaultServer(mirror, script=script) as server:
        here = replace(command, source=server.url)
        assert here("harvest", "--crawl", crawl).status == 0
        assert here("query", "*.example.com", "--limit", "1").status == 0
        (here.home / "urls.txt").write_text("https://example.com/\n")
        for words in ("query example.com", "query example.com --index columnar", "join urls.txt -o found"):
            refused = here(*words.split(), "--crawl", "2010..2030")  # which other crawls that has is not known
            assert (refused.status, refused.out) == (75, "")
            assert "collinfo.json" in refused.err
        nothing = here("crawls")
        assert nothing.status == 75
        assert "collinfo.json" in nothing.err
        away = False
        assert here("crawls").status == 0
        with closing(Store(here.data / STORE_NAME)) as store:
            set_age(store, timedelta(days=26))
        away = True
        listed = here("crawls", "--json", "--quiet")
        assert listed.status == 1  # newer crawls may exist: the miniature ends years ago
        assert crawl in {row["crawl"] for row in listed.json_lines()}
        assert "using the list of 26 days ago; other crawls may exist" in listed.err
        page = "https://example.com/"
        for words in (f"query {page} --count", f"get {page} --headers", f"sample {page} -n 1", "site example.com"):
            ran = here(*words.split(), "--crawl", f"{crawl}..{crawl}")
            assert (ran.status, bool(ran.out)) == (1, True)
            assert re.search("incomplete: cannot fetch the list of crawls .*; other crawls may exist", ran.err)
        with catalogue_in(here.home, server.url) as cat:
            frame = cat.scan(page, crawls=f"{crawl}..").filter(pl.col("crawl") < crawl)
            with pytest.warns(IncompleteAnswer, match="other crawls may exist"):
                assert frame.select("url").collect().height == 0
        harvested = here("harvest", "--crawl", "latest")
        assert (harvested.status, "collinfo.json" in harvested.err.splitlines()[-2]) == (1, True)
        assert here("status").status == 0
