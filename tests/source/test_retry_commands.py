"""Commands send few requests to a host that blocks or fails, and continue later."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import Blocked, SourceError, SourceUnavailable
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.rate_limit import Clock, Limiter, Policy
from tests.support.clocks import START, FakeClock
from tests.support.commands import Command
from tests.support.crawls import BARE, bare_crawl
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.miniatures import OLD
from tests.support.serving import get, serving

LISTED = 300
"""Files of a crawl, none of which can be read."""
MAX_REQUESTS = LISTED + LISTED // 10 + 500
"""Limit of requests to such a crawl."""
Row = dict[str, Any]


class LastingClock(FakeClock):
    """A fake clock that ignores ``stop``, for several sources in turn."""

    def stop(self) -> None:
        pass


class BlockedAfter:
    """A script that lets some requests pass and, while ``blocking`` is set, blocks all others."""

    def __init__(self, clock: FakeClock, passing: int) -> None:
        self.blocking = True
        self.times: list[float] = []
        """Times of blocked requests since the start."""
        self._clock, self._passing = clock, passing

    def __call__(self, request: Request) -> Fault | None:
        if not self.blocking or request.number < self._passing:
            return None
        self.times.append(self._clock.now() - START)
        return Fault(Kind.BLOCKED)


def harvest(cat: Catalogue, _: str, __: Path, ___: list[Row]) -> object:
    cat.harvest(OLD, subsets="all")
    return sorted(cat.files(OLD).path)


def query(cat: Catalogue, crawl: str, _: Path, __: list[Row]) -> object:
    return cat.captures("*", crawls=crawl, subsets="all", columns=["url", "fetch_time"]).to_arrow()


def fetch(cat: Catalogue, _: str, folder: Path, rows: list[Row]) -> object:
    folder.mkdir(exist_ok=True)
    fetched = cat.fetch(rows, folder / "found.jsonl", form="metadata")
    return not fetched.failed, sorted((folder / "found.jsonl").read_text().splitlines())


def backfill(cat: Catalogue, _: str, __: Path, ___: list[Row]) -> object:
    done = cat.backfill(crawls=BARE).run()
    columns = ["path", "row_group", "min_url_surtkey", "max_url_surtkey"]
    return not done.failures, cat.row_groups(BARE)[columns].values.tolist()


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def limited(server: FaultServer, folder: Path, connections: int = 4) -> Settings:
    """Settings with the rate for Common Crawl."""
    cache = folder / "cache"
    return Settings(source=server.url, rate=5.0, connections=connections, patience=10.0, cache=cache, cache_size=0)


@pytest.fixture(scope="module")
def rows(harvested: Catalogue, crawl: str) -> list[Row]:
    captures: list[Row] = harvested.captures("*.com", crawls=crawl, subsets="all").to_arrow().slice(0, 30).to_pylist()
    return captures


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("work", "passing"),
    [(harvest, 2), (query, 3), (fetch, 0), (backfill, 1)],
    ids=["harvest", "query", "fetch", "backfill"],
)
def test_block_is_probed_twice_and_the_command_can_continue_later(
    work: Callable[[Catalogue, str, Path, list[Row]], Any],
    passing: int,
    data: Path,
    mirror: Path,
    settings: Settings,
    crawl: str,
    rows: list[Row],
    tmp_path: Path,
) -> None:
    clock = LastingClock()
    script = BlockedAfter(clock, passing)
    blocked, normal = tmp_path / "blocked", tmp_path / "normal"
    if work is backfill:
        mirror, data = bare_crawl(tmp_path / "bare"), tmp_path / "data"
        settings = replace(settings, source=str(mirror))
        with catalogue.open(data, settings=settings) as cat:
            cat.harvest(BARE)
    if work is not harvest:
        copytree(data, blocked)
        copytree(data, normal)
    with FaultServer(mirror, script=script) as server:
        # One connection: several threads would wait one after the other on a fake clock.
        one_connection = limited(server, tmp_path, connections=1)
        with (
            Catalogue(Session(blocked, one_connection, clock=lambda: clock)) as cat,
            pytest.raises(Blocked, match=r"Run the same command again after") as raised,
        ):
            work(cat, crawl, tmp_path / "out", rows)
        assert raised.value.exit_status == 75
        assert [time - script.times[0] for time in script.times] == [0, 300, 1200]  # the last two are probes
        requests = server.requests
        with Catalogue(Session(blocked, one_connection, clock=lambda: clock)) as cat, pytest.raises(Blocked):
            work(cat, crawl, tmp_path / "out", rows)
        assert server.requests == requests
        script.blocking = False
        clock.advance(900)
        with Catalogue(Session(blocked, one_connection, clock=lambda: clock)) as cat:
            result = work(cat, crawl, tmp_path / "out", rows)
    with Catalogue(Session(normal, settings)) as cat:
        assert result == work(cat, crawl, tmp_path / "other", rows)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", [Kind.SLOW_DOWN, Kind.DISCONNECT])
def test_commands_give_up_a_host_that_only_fails(kind: Kind, tmp_path: Path) -> None:
    name = "CC-MAIN-2022-05"
    folder = f"cc-index/table/cc-main/warc/crawl={name}/subset=warc"
    paths = [f"{folder}/part-{number:05}.gz.parquet" for number in range(LISTED)]
    files = dict.fromkeys(paths, b"PAR1" * 100)
    files[f"crawl-data/{name}/cc-index-table.paths.gz"] = gzip.compress("\n".join(paths).encode())
    clock = LastingClock()
    with FaultServer(files, script=lambda each: Fault(kind) if each.path.endswith(".parquet") else None) as server:
        with (
            Catalogue(Session(tmp_path / "data", limited(server, tmp_path), clock=lambda: clock)) as cat,
            pytest.raises(SourceUnavailable) as raised,
        ):
            cat.harvest(name)
        assert raised.value.exit_status == 75
        assert "an hour" in str(raised.value)
        assert 0 < server.requests <= MAX_REQUESTS


def test_commands_give_up_a_host_that_refuses_connections(data: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer({}) as server:
        closed = limited(server, tmp_path)
    with Catalogue(Session(data, closed, clock=LastingClock)) as cat:
        captures = cat.captures("*", crawls=crawl, columns="url")
        for read in (captures.to_arrow, lambda: cat.sample(captures, 30).to_arrow()):
            with pytest.raises(SourceError) as raised:
                read()
            assert raised.value.exit_status == 75
        assert 0 < cat.requests <= 220


def test_commands_end_soon_if_every_response_is_a_web_page(tmp_path: Path) -> None:
    with FaultServer({}, script=always(Kind.HTML_200)) as server:
        calls: list[Callable[[Catalogue], object]] = [
            lambda cat: cat.harvest(OLD),
            lambda cat: cat.harvest("latest"),
            lambda cat: cat.captures("example.com", crawls=OLD).to_arrow(),
            lambda cat: cat.get("example.com"),
        ]
        clock = LastingClock()
        for call in calls:
            before = server.requests
            with (
                Catalogue(Session(tmp_path / "data", limited(server, tmp_path), clock=lambda: clock)) as cat,
                pytest.raises(SourceError, match="a proxy may answer instead of the source") as raised,
            ):
                call(cat)
            assert raised.value.exit_status == 75
            assert server.requests - before <= 6
        assert sum(clock.waits) < 40


@pytest.fixture
def server(mirror: Path) -> Iterator[FaultServer]:
    with FaultServer(mirror, script=always(Kind.BLOCKED)) as running:
        yield running


def test_block_stops_all_commands(
    server: FaultServer, data: Path, crawl: str, settings: Settings, tmp_path: Path
) -> None:
    command = Command(data, server.url, tmp_path)
    settings = replace(settings, source=server.url, rate=5.0, cache=tmp_path / "cache", cache_size=0)
    with command.start("harvest", "--crawl", crawl, "--refresh", "--rate", "5") as process:
        assert process.stderr
        assert b"came from" in process.stderr.readline()
        assert b"waiting 300 s before one more try" in process.stderr.readline()
        requests = server.requests
        assert 0 < requests <= 4
        with serving(data, settings) as address:
            for _ in range(3):
                answer = get(address, f"/{crawl}-index?url=example.com/*")
                assert answer.status == 503
                assert 200 < int(answer.headers["retry-after"]) <= 300
        process.terminate()
        assert process.wait(timeout=30) == 143
    assert server.requests == requests


def test_lasting_block_ends_commands_before_a_request(
    server: FaultServer, data: Path, crawl: str, rows: list[Row], tmp_path: Path
) -> None:
    # The state at the start of the last pause, here without waiting for the earlier pauses.
    file = tmp_path / "cache" / "127.0.0.1.json"
    limiter = Limiter(Policy(rate=5.0, pauses=(0.0, 0.0, 900.0)), clock=Clock(), file=file)
    for _ in range(3):
        limiter.blocked(limiter.acquire())
    assert Command(data, str(bare_crawl(tmp_path / "bare")), tmp_path)("harvest", "--crawl", BARE).status == 0
    command = Command(data, server.url, tmp_path)
    (tmp_path / "captures.jsonl").write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    for words in (
        ["harvest", "--crawl", crawl, "--refresh"],
        ["query", "*", "--crawl", crawl],
        ["fetch", "--captures", "captures.jsonl", "-o", "found.warc.gz", "--yes"],
        ["sample", "*", "-n", "5", "--crawl", crawl],
        ["backfill", "--crawl", BARE, "--yes"],
        ["crawls"],
    ):
        ran = command(*words, "--rate", "5")
        assert (ran.status, ran.out) == (75, ""), (words, ran)
        assert "Run the same command again after" in ran.err
    assert server.requests == 0


def test_harvest_before_a_sample_names_failures(mirror: Path, crawl: str, tmp_path: Path) -> None:
    def script(request: Request) -> Fault | None:
        return Fault(Kind.NOT_FOUND) if request.path.endswith(".parquet") else None

    with FaultServer(mirror, script=script) as server:
        ran = Command(tmp_path / "data", server.url, tmp_path)("sample", "-n", "5", "--crawl", crawl, "--harvest")
    assert (ran.status, "--harvest" in ran.err) == (2, False)
    assert f"of {crawl} could not be harvested, such as: {server.url}" in ran.err
