"""Whatever is done by however many: a host that refuses or fails is asked little, and later all goes on."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from catalogue import Catalogue
from catalogue.errors import Blocked, SourceError, SourceUnavailable
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.rate_limit import Limiter, Policy, SystemClock
from tests.support.clocks import START, FakeClock
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.miniatures import OLD
from tests.support.serving import get, serving

LISTED = 300
"""Files of a crawl, none of which can be had."""
MOST = LISTED + LISTED // 10 + 500
"""Requests that such a crawl may take."""


class LastingClock(FakeClock):
    """A fake clock that goes on when a source that was closed stops it."""

    def stop(self) -> None:
        pass


class Failing:
    """A script that lets some requests pass, then fails all until it is told to stop, and notes when each came."""

    def __init__(self, clock: FakeClock, kind: Kind, passing: int) -> None:
        self.failing = True
        self.times: list[float] = []
        """At which requests were failed."""
        self._clock = clock
        self._kind = kind
        self._left = passing

    def __call__(self, _: Request) -> Fault | None:
        if not self.failing or self._left > 0:
            self._left -= 1
            return None
        self.times.append(self._clock.now() - START)
        return Fault(self._kind)


@dataclass(frozen=True)
class Work:
    """Something that takes many requests."""

    do: "Callable[[Catalogue, str, Path, list[Row]], Any]"
    """Given a crawl, a folder, and captures whose records are there."""
    passing: int
    """Requests that pass before the trouble begins."""
    stored: bool = True
    """Whether it starts where the footers are held."""


Row = dict[str, Any]


def _harvest(cat: Catalogue, _: str, __: Path, ___: list[Row]) -> object:
    cat.harvest(OLD, subsets="all")
    return sorted(cat.files(OLD).path)


def _query(cat: Catalogue, crawl: str, _: Path, __: list[Row]) -> object:
    return cat.captures("*", crawls=crawl, columns=["url", "fetch_time"]).to_arrow()


def _sample(cat: Catalogue, crawl: str, _: Path, __: list[Row]) -> object:
    return cat.sample(cat.captures("*", crawls=crawl, columns="url"), 30).to_arrow()


def _fetch(cat: Catalogue, _: str, folder: Path, rows: list[Row]) -> object:
    fetched = cat.fetch(rows, folder / "found.jsonl", form="metadata")
    return not fetched.failed, sorted((folder / "found.jsonl").read_text().splitlines())


def _backfill(cat: Catalogue, _: str, __: Path, ___: list[Row]) -> object:
    done = cat.backfill(crawls=OLD).run()
    return not done.failures, cat.row_groups(OLD)[
        ["path", "row_group", "min_url_surtkey", "max_url_surtkey"]
    ].values.tolist()


WORKS = {
    "harvest": Work(_harvest, passing=2, stored=False),
    "query": Work(_query, passing=3),
    "fetch": Work(_fetch, passing=0),
    "backfill": Work(_backfill, passing=1),
}


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("COLUMNS", "80")


def polite(server: FaultServer, folder: Path, connections: int = 4) -> Settings:
    """As Common Crawl is asked."""
    return Settings(
        source=server.url, rate=5.0, connections=connections, patience=10.0, cache=folder / "cache", cache_size=0
    )


@pytest.fixture(scope="module")
def rows(harvested: Catalogue, crawl: str) -> list[Row]:
    found: list[Row] = harvested.captures("*.com", crawls=crawl).to_arrow().slice(0, 30).to_pylist()
    return found


@pytest.fixture
def data(untaught_data: Path, tmp_path: Path) -> Path:
    return Path(copytree(untaught_data, tmp_path / "data"))


@pytest.mark.parametrize("name", WORKS)
def test_block_is_probed_twice_and_the_command_can_continue_later(
    name: str, data: Path, mirror: Path, settings: Settings, crawl: str, rows: list[Row], tmp_path: Path
) -> None:
    work, clock = WORKS[name], LastingClock()
    script = Failing(clock, Kind.BLOCKED, work.passing)
    mine, theirs = (tmp_path / "mine" if not work.stored else data), tmp_path / "theirs"
    if work.stored:
        copytree(data, theirs)
    for folder in ("out", "other"):
        (tmp_path / folder).mkdir()
    with FaultServer(mirror, script=script) as server:
        # Several threads that wait by a fake clock, and do not know of each other, would wait one after the other.
        asking = polite(server, tmp_path, connections=1)
        with (
            Catalogue(Session(mine, asking, clock=lambda: clock)) as cat,
            pytest.raises(Blocked, match=r"Run the same command again after") as raised,
        ):
            work.do(cat, crawl, tmp_path / "out", rows)
        assert raised.value.exit_status == 75
        assert [when - script.times[0] for when in script.times] == [0, 300, 1200]  # two ask whether it is over
        # Somebody who comes meanwhile asks nothing at all.
        requested = server.requests
        with Catalogue(Session(mine, asking, clock=lambda: clock)) as cat, pytest.raises(Blocked):
            work.do(cat, crawl, tmp_path / "out", rows)
        assert server.requests == requested
        script.failing = False
        clock.advance(900)
        with Catalogue(Session(mine, asking, clock=lambda: clock)) as cat:
            found = work.do(cat, crawl, tmp_path / "out", rows)
    with Catalogue(Session(theirs, settings)) as cat:
        assert found == work.do(cat, crawl, tmp_path / "other", rows)


@pytest.fixture(scope="module")
def listing() -> dict[str, bytes]:
    """A source that lists many files."""
    name = "CC-MAIN-2022-05"
    paths = [
        f"cc-index/table/cc-main/warc/crawl={name}/subset=warc/part-{number:05}.gz.parquet" for number in range(LISTED)
    ]
    manifest = gzip.compress("\n".join(paths).encode())
    return {f"crawl-data/{name}/cc-index-table.paths.gz": manifest} | dict.fromkeys(paths, b"PAR1" * 100)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Kind.SLOW_DOWN),
        Fault(Kind.TOO_MANY),
        Fault(Kind.XML_IN_200, variant=0),
        Fault(Kind.XML_IN_200, variant=1),
        Fault(Kind.DISCONNECT),
    ],
    ids=lambda fault: f"{fault.kind.value}-{fault.variant}",
)
def test_commands_give_up_a_host_that_only_fails(fault: Fault, listing: dict[str, bytes], tmp_path: Path) -> None:
    clock = LastingClock()
    with FaultServer(listing, script=lambda each: fault if each.path.endswith(".parquet") else None) as server:
        asking = polite(server, tmp_path)
        with (
            Catalogue(Session(tmp_path / "data", asking, clock=lambda: clock)) as cat,
            pytest.raises(SourceUnavailable) as raised,
        ):
            cat.harvest("CC-MAIN-2022-05")
        assert raised.value.exit_status == 75
        assert "an hour" in str(raised.value)
        assert 0 < server.requests <= MOST


def test_commands_give_up_a_host_that_refuses_connections(data: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer({}) as server:
        removed = polite(server, tmp_path)
    with Catalogue(Session(data, removed, clock=LastingClock)) as cat:
        for work in (_query, _sample):
            with pytest.raises(SourceError) as raised:
                work(cat, crawl, tmp_path, [])
            assert raised.value.exit_status == 75
        assert 0 < cat.requests <= 220


# ---- processes ----


@pytest.fixture
def server(mirror: Path) -> Iterator[FaultServer]:
    with FaultServer(mirror, script=always(Kind.BLOCKED)) as running:
        yield running


COMMANDS: dict[str, list[str]] = {
    "harvest": ["harvest", "--crawl", "{crawl}", "--refresh"],
    "query": ["query", "*", "--crawl", "{crawl}"],
    "fetch": ["fetch", "--captures", "{captures}", "-o", "found.warc.gz", "--yes"],
    "sample": ["sample", "*", "-n", "5", "--crawl", "{crawl}"],
    "backfill": ["backfill", "--crawl", OLD, "--yes"],
    "crawls": ["crawls"],
}


def test_block_stops_all_commands(
    server: FaultServer, data: Path, crawl: str, settings: Settings, tmp_path: Path
) -> None:
    command = Command(data, server.url, tmp_path)
    asking = replace(settings, source=server.url, rate=5.0, cache=tmp_path / "cache", cache_size=0)
    with command.start("harvest", "--crawl", crawl, "--refresh", "--rate", "5") as process:
        assert process.stderr
        assert b"came from" in process.stderr.readline()
        assert b"waiting 300 s before one more try" in process.stderr.readline()
        requested = server.requests
        assert 0 < requested <= 4
        with serving(data, asking) as address:
            for _ in range(3):
                answer = get(address, f"/{crawl}-index?url=example.com/*")
                assert answer.status == 503
                assert 200 < int(answer.headers["retry-after"]) <= 300
        process.terminate()
        assert process.wait(timeout=30) == 143
    assert server.requests == requested


def test_lasting_block_ends_commands_before_a_request(
    server: FaultServer, data: Path, crawl: str, rows: list[Row], tmp_path: Path
) -> None:
    # As it is noted when the last of the pauses has begun, but that the others were of no time.
    file = tmp_path / "cache" / "127.0.0.1.json"
    limiter = Limiter(Policy(rate=5.0, pauses=(0.0, 0.0, 900.0)), clock=SystemClock(), file=file)
    for _ in range(3):
        limiter.blocked(limiter.acquire())
    command = Command(data, server.url, tmp_path)
    (tmp_path / "captures.jsonl").write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    for words in COMMANDS.values():
        ran = command(*(word.format(crawl=crawl, captures="captures.jsonl") for word in words), "--rate", "5")
        assert (ran.status, ran.out) == (75, ""), (words, ran)
        assert "Run the same command again after" in ran.err
    assert server.requests == 0
