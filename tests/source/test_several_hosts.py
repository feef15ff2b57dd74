"""Several hosts of the same files: each request goes to one that can answer it, and no rule of any is broken."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import Blocked, FileChanged, NotFound, SourceError, Throttled
from catalogue.settings import DEFAULT_SOURCE, Host, Settings
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.open import open_source
from catalogue.source.rate_limit import Policy
from catalogue.source.retry import PoliteSource, get_tail
from tests.support.answers import GOOD, TimedHost
from tests.support.clocks import FakeClock
from tests.support.faults import ALL_KINDS, SLOW, Fault, FaultServer, Kind, Script, always, first, on_suffixes, seeded
from tests.support.second_hosts import SecondHost, second_host
from tests.support.sources import SUFFIX, quick

PATH = "cc-index/table/cc-main/warc/crawl=CC-MAIN-2026-17/subset=warc/part 0.parquet"
OLD = PATH.replace("2026", "2025")
OTHER = "crawl-data/CC-MAIN-2026-17/segments/1/warc/x.warc.gz"
DATA = random.Random(3).randbytes(300_000)
FILES = {PATH: DATA, OLD: DATA, OTHER: DATA}
PARTS = [ByteRange(start, start + 1000) for start in range(0, 60_000, 1000)]
PROMPT = sorted({*ALL_KINDS} - SLOW, key=str)


def body(part: ByteRange) -> bytes:
    return DATA[part.start : part.end]


@contextmanager
def both(
    folder: Path, script: Script | None = None, *, rate: float | None = None, **second: Any
) -> Iterator[tuple[FaultServer, SecondHost, Settings]]:
    with FaultServer(FILES, script=script) as server, second_host(FILES, **second) as other:
        hosts = (Host("first", server.url, rate=rate), other.rules)
        yield server, other, Settings(source=server.url, hosts=hosts, cache=folder, patience=0.01)


@contextmanager
def opened(settings: Settings, **options: Any) -> Iterator[PoliteSource]:
    with closing(open_source(settings.source, settings, **options)) as source:
        yield source


def dead() -> Host:
    with FaultServer({}) as server:
        return Host("dead", server.url)


@pytest.mark.parametrize(("rate", "parts", "first"), [(1000.0, PARTS[:8], 8), (0.1, PARTS, 1)], ids=["below", "above"])
def test_requests_above_the_limit_of_the_first_host_go_to_the_next(
    rate: float, parts: list[ByteRange], first: int, tmp_path: Path
) -> None:
    with both(tmp_path, rate=rate) as (server, other, settings), opened(settings) as source:
        assert [source.get(PATH, part).body for part in parts] == [*map(body, parts)]
        assert (server.requests, len(other.redirecting.log)) == (first, first < len(parts))
        assert source.requests == server.requests + other.requests
        assert (source.url, source.connections) == (server.url, 64)


@pytest.mark.in_part(3)  # each kind of one of the three, since their number is not divisible by 3
@pytest.mark.parametrize("kind", PROMPT, ids=lambda kind: kind.value)
@pytest.mark.parametrize("faulty", ["first", "redirecting", "signed"])
def test_one_faulty_host_costs_two_requests(faulty: str, kind: Kind, tmp_path: Path) -> None:
    script = always(quick(kind, retry_after=600, hold=0.05, interval=0.01))
    scripts: dict[str, Any] = {"first": {"script": script}, "redirecting": {"redirect_faults": script}}
    with both(tmp_path, **scripts.get(faulty, {"faults": script})) as (_, _, settings):
        hosts = settings.hosts if faulty == "first" else settings.hosts[::-1]  # the faulty one is preferred
        with opened(replace(settings, source=hosts[0].address, hosts=hosts, patience=60.0)) as source:
            pin = FileVersion(len(DATA), None)
            found = [source.get(PATH, part, pin=pin).body for part in PARTS[:8]]
            if kind is not Kind.FLIPPED_BIT:  # which checks of pages, footers and records find
                assert found == [*map(body, PARTS[:8])]
            assert source.requests <= len(found) + (faulty == "first") + 2  # one for the address of the file


def test_dead_host_costs_one_request(tmp_path: Path) -> None:
    with both(tmp_path) as (server, _, settings):
        for hosts in ((dead(), settings.hosts[0]), (settings.hosts[0], dead())):
            told: list[str] = []
            with opened(replace(settings, source=hosts[0].address, hosts=hosts), notify=told.append) as source:
                with ThreadPoolExecutor(8) as threads:
                    assert [*threads.map(lambda part: source.get(PATH, part).body, PARTS)] == [*map(body, PARTS)]
                assert source.requests == len(PARTS) + (hosts[0].name == "dead")
                assert [text.rpartition("; ")[2] for text in told] == ["other hosts are used for now"] * len(told)
        assert server.requests == 2 * len(PARTS)


def test_slow_host_gets_few_requests(tmp_path: Path) -> None:
    with FaultServer(FILES, latency=0.3) as slow, second_host(FILES) as other:
        hosts = (Host("slow", slow.url), other.rules)
        settings = Settings(source=slow.url, hosts=hosts, cache=tmp_path, connections=2)
        with opened(settings) as source, ThreadPoolExecutor(8) as threads:
            assert [*threads.map(lambda part: source.get(PATH, part).body, PARTS)] == [*map(body, PARTS)]
            assert source.requests == len(PARTS) + 1
        assert slow.requests < len(PARTS) / 3


def test_block_of_one_host_pauses_no_request(tmp_path: Path) -> None:
    with both(tmp_path, always(Kind.BLOCKED), rate=50.0) as (server, _, settings):
        for requests in (1, 1):  # the block is known to the next process
            with opened(settings) as source:
                assert source.get(PATH, SUFFIX).body == DATA[-5000:]
            assert server.requests == requests


def test_if_all_hosts_are_blocked_the_error_is_as_ever(tmp_path: Path) -> None:
    blocked = always(Kind.BLOCKED)
    with (
        both(tmp_path, blocked, faults=blocked, redirect_faults=blocked) as (_, _, settings),
        opened(settings, max_wait=60.0) as source,
        pytest.raises(Throttled, match="try again in"),
    ):
        source.get(PATH, SUFFIX)


def test_old_crawls_and_lists_are_requested_of_the_first_host_alone(tmp_path: Path) -> None:
    with (
        both(tmp_path, first(1, Kind.CUT_FIN), first_crawl=2026) as (server, other, settings),
        opened(settings) as source,
    ):
        assert source.get(OLD, SUFFIX).body == DATA[-5000:]
        with pytest.raises(NotFound):
            source.get("collinfo.json")
        assert other.requests == 0
        assert source.get(PATH, SUFFIX).body == DATA[-5000:]
        assert (server.requests, other.requests) == (4, 2)


def test_crawl_that_a_host_lacks_costs_one_request(tmp_path: Path) -> None:
    with both(tmp_path, rate=1.0, has=lambda path: path != PATH) as (_, other, settings):
        hosts = (settings.hosts[1], replace(settings.hosts[0], rate=None))
        with opened(replace(settings, source=hosts[0].address, hosts=hosts)) as source:
            for part in PARTS[:5]:
                assert source.get(PATH, part).body == body(part)
            assert other.requests == 1
            assert source.get(OTHER, SUFFIX).body == DATA[-5000:]  # another folder
            assert other.requests == 3


def test_file_that_is_nowhere_is_not_found(tmp_path: Path) -> None:
    with both(tmp_path) as (server, _, settings), opened(settings) as source:
        for _ in range(2):
            with pytest.raises(NotFound, match=server.url):
                source.get(PATH + "x", SUFFIX)


def test_versions_are_pinned_per_host(tmp_path: Path) -> None:
    changed: list[Fault] = []
    with (
        both(tmp_path, rate=0.01, faults=lambda _: changed[0] if changed else None) as (server, other, settings),
        opened(settings, max_wait=10.0) as source,
    ):
        pin = source.get(PATH, SUFFIX).version
        assert pin.origin == server.url
        for _ in range(2):
            version = source.get(PATH, SUFFIX, pin=pin).version
            assert (version.origin, version.size) == (settings.hosts[1].address, pin.size)
        assert [each.headers.get("if-match") for each in other.signed.log] == [None, version.etag]
        changed.append(Fault(Kind.CHANGED_ETAG))
        with pytest.raises(Throttled, match="try again in"):  # of the first host, since the second has changed
            source.get(PATH, SUFFIX, pin=pin)


def test_new_version_of_the_pinned_host_is_an_error(tmp_path: Path) -> None:
    with both(tmp_path) as (_, other, settings), opened(settings) as source:
        pin = source.get(PATH, SUFFIX).version
        with pytest.raises(FileChanged):
            source.get(PATH, SUFFIX, pin=pin._replace(etag='"older"'))
        assert other.requests == 0
        with pytest.raises(FileChanged):  # of all hosts
            source.get(PATH, SUFFIX, pin=FileVersion(len(DATA) + 1, None))


def test_host_that_ignores_suffixes_is_not_asked_for_ends(tmp_path: Path) -> None:
    script = on_suffixes(Kind.WHOLE_FILE)
    with both(tmp_path, script) as (server, other, settings):
        with opened(settings) as source:
            for _ in range(3):
                assert get_tail(source, PATH, 5000).body == DATA[-5000:]
            assert (server.requests, other.redirecting.requests, other.signed.requests) == (1, 1, 3)
        with both(tmp_path / "all", script, faults=script) as (_, _, ignored), opened(ignored) as source:
            assert get_tail(source, PATH, 5000).body == DATA[-5000:]


@pytest.mark.parametrize("seed", range(3))
def test_faults_of_both_hosts_change_no_byte(seed: int, tmp_path: Path) -> None:
    unseen = {Kind.FLIPPED_BIT, Kind.OTHER_OBJECT, Kind.BLOCKED, Kind.EMPTY, Kind.HUGE_HEADER, Kind.MANY_HEADERS}
    unseen |= {Kind.CHANGED_ETAG}
    kinds = [quick(kind, retry_after=0) for kind in PROMPT if kind not in unseen]
    scripts = [seeded(seed + number, 0.3, kinds, max_in_a_row=2) for number in range(3)]
    with (
        both(tmp_path, scripts[0], faults=scripts[1], redirect_faults=scripts[2]) as (_, _, settings),
        opened(settings) as source,
        ThreadPoolExecutor(8) as threads,
    ):

        def get(part: ByteRange) -> bytes:
            for _ in range(20):
                try:
                    return source.get(PATH, part, pin=FileVersion(len(DATA), None)).body
                except SourceError:  # such as 404, which is not repeated
                    continue
            raise AssertionError(part)

        assert [*threads.map(get, PARTS)] == [*map(body, PARTS)]


def test_interrupted_requests_free_their_host(tmp_path: Path) -> None:
    with both(tmp_path) as (_, _, settings), opened(settings) as source:
        source.close()
        for _ in range(3):
            with pytest.raises(SourceError, match="closed"):
                source.get(PATH, SUFFIX)


@given(
    st.integers(1, 40),
    st.floats(1.0, 400.0),
    st.one_of(st.none(), st.floats(0.1, 50.0)),
    st.lists(st.floats(0.0, 100.0), max_size=4),
)
def test_no_window_has_more_requests_than_the_quota(
    count: int, seconds: float, rate: float | None, pauses: list[float]
) -> None:
    host = TimedHost(lambda _, __: GOOD)
    source = host.open(Policy(rate=rate).within(count, seconds))
    for pause in [0.0, *pauses]:
        host.clock.advance(pause)
        for _ in range(count + 3):
            source.get("x")
    for at in host.times:  # every window, wherever the host lets it start
        assert sum(at <= other < at + seconds for other in host.times) <= count


def test_processes_share_a_quota(tmp_path: Path) -> None:
    host = TimedHost(lambda _, __: GOOD)
    sources = [host.open(Policy(rate=10.0).within(20, 60.0), file=tmp_path / "host.json") for _ in range(2)]
    host.clock.run(*[lambda source=source: [source.get("x") for _ in range(20)] for source in sources])
    assert len(host.times) == 40
    assert all(sum(at <= other < at + 60.0 for other in host.times) <= 20 for at in host.times)


@pytest.mark.parametrize("repeated", [True, False])
def test_429_with_ratelimit_alone_pauses_all_processes_until_the_window_ends(tmp_path: Path, *, repeated: bool) -> None:
    host = TimedHost(lambda at, _: Throttled("quota", retry_after=100.0, pause=100.0) if at < 100.0 else GOOD)
    one, other = (host.open(Policy(rate=10.0), file=tmp_path / "host.json") for _ in range(2))
    if repeated:
        assert one.get("x") is GOOD
    else:
        with pytest.raises(Throttled):
            one.get_once("x")
        assert other.get("x") is GOOD
    assert [at >= 100.0 for at in host.times] == [False, True]


def test_quota_of_a_host_leaves_requests_to_the_other(tmp_path: Path) -> None:
    with both(tmp_path, rate=100.0, redirect_faults=always(Fault(Kind.QUOTA, retry_after=287))) as (_, other, settings):
        hosts = (replace(other.rules, rate=50.0), settings.hosts[0])
        with opened(replace(settings, source=hosts[0].address, hosts=hosts)) as source:
            assert [source.get(PATH, part).body for part in PARTS[:20]] == [*map(body, PARTS[:20])]
            assert other.requests == 1
            assert source.hosts_of()[0].seconds_to_wait() > 280


def test_block_of_the_default_source_names_the_second_host(tmp_path: Path) -> None:
    for hosts in ((), (Host("commoncrawl", DEFAULT_SOURCE), Host("b", "https://b.example/"))):
        settings = Settings(cache=tmp_path / str(len(hosts)), hosts=hosts)
        with opened(settings, clock=FakeClock()) as source:
            limiter = source.limiter
            for _ in range(2):
                limiter.blocked(limiter.acquire())
            last = limiter.acquire()
            with pytest.raises(Blocked) as raised:
                limiter.blocked(last)
            assert ("--source commoncrawl,huggingface" in str(raised.value)) == (not hosts)
