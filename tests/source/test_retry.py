"""Which errors are retried, after which waits, and when a host is given up."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, cycle

import pytest

from catalogue.errors import (
    Blocked,
    CatalogueError,
    ConnectionRefused,
    FileChanged,
    Forbidden,
    NameNotResolved,
    NotFound,
    NotParquet,
    ProxyRefused,
    RangeIgnored,
    Redirected,
    SourceError,
    SourceUnavailable,
    Throttled,
    UnexpectedHtml,
    Unreachable,
    WrongLength,
    WrongRange,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.rate_limit import COMMON_CRAWL, S3_COMMON_CRAWL, Clock, Limiter, Policy
from catalogue.source.retry import ATTEMPTS, PoliteSource
from tests.support.answers import GOOD, Answer, Answers
from tests.support.clocks import FakeClock
from tests.support.faults import FaultServer
from tests.support.sources import BOUNDED, FILES, PATH, SUFFIX, open_http

PERMANENT = [Forbidden, NotFound, NotParquet, Redirected]


def source_of(
    *answers: Answer,
    clock: FakeClock | None = None,
    policy: Policy = COMMON_CRAWL,
    jitter: float = 0.0,
    notify: Callable[[str], None] = lambda _: None,
    attempts: int = ATTEMPTS,
) -> PoliteSource:
    """A source whose responses repeat."""
    limiter = Limiter(policy, clock=clock or FakeClock())
    return PoliteSource(Answers(cycle(answers)), limiter, notify=notify, jitter=lambda: jitter, attempts=attempts)


def outcomes(source: PoliteSource, paths: Iterable[str], requested: ByteRange | SuffixRange = SUFFIX) -> list[str]:
    """Read files; return the names of errors, and an empty text for each success."""

    def outcome(path: str) -> str:
        try:
            source.get(path, requested)
        except CatalogueError as error:
            return type(error).__name__
        return ""

    return [outcome(path) for path in paths]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (Unreachable("x"), [0.5]),  # the first retry has no wait
        (WrongLength("x"), [0.5]),
        (WrongRange("x"), [0.5]),
        (RangeIgnored("x"), [0.5]),
        (UnexpectedHtml("x"), [0.5]),
        (Throttled("x"), [11.25, 22.5]),
        (Throttled("x", retry_after=0.0), [11.25, 22.5]),
        (Throttled("x", retry_after=9.0), [11.25, 22.5]),
        (Throttled("x", retry_after=30.0), [30.0, 30.0]),
        (Throttled("x", retry_after=86400.0), [300.0, 300.0]),
        (Blocked("x"), [300.0, 900.0]),
    ],
)
def test_retries_temporary_errors(error: CatalogueError, waits: list[float]) -> None:
    clock = FakeClock()
    source = source_of(error, error, GOOD, clock=clock, jitter=0.5)
    assert source.get("x", BOUNDED) is GOOD
    assert (source.requests, source.bytes) == (3, 5)
    assert [wait for wait in clock.waits if wait > 1e-6] == pytest.approx(waits)


@pytest.mark.parametrize(
    ("error", "requests", "waits"),
    [
        *((kind("x"), 1, []) for kind in PERMANENT),
        *((kind("x"), 3, [0.5]) for kind in (WrongRange, WrongLength)),
        (Unreachable("x"), 12, [0.5, 1, 2, 4, 8, *[10] * 5]),
        (RangeIgnored("x"), 4, [0.5, 1]),
        (Throttled("x"), 12, [11.25, 22.5, 45, 90, 180, *[300] * 6]),
        (Throttled("x", retry_after=9999.0), 12, [300] * 11),
        (Blocked("x"), 3, [300, 900]),
    ],
)
def test_limits_attempts_for_lasting_errors(error: CatalogueError, requests: int, waits: list[float]) -> None:
    clock = FakeClock()
    source = source_of(error, clock=clock, jitter=0.5)
    with pytest.raises(type(error)) as raised:
        source.get("x", BOUNDED)
    assert (source.requests, source.bytes) == (requests, 0)
    assert [wait for wait in clock.waits if wait >= 0.5] == pytest.approx(waits)
    assert raised.type is type(error)


@pytest.mark.parametrize(
    ("earlier", "requests", "error"), [([], 3, SourceUnavailable), ([GOOD], 6, UnexpectedHtml)], ids=["new", "usable"]
)
def test_a_host_that_has_only_sent_web_pages_is_given_up_sooner(
    earlier: list[Answer], requests: int, error: type[CatalogueError]
) -> None:
    clock = FakeClock()
    limiter = Limiter(COMMON_CRAWL, clock=clock)
    source = PoliteSource(Answers(chain(earlier, cycle([UnexpectedHtml("x")]))), limiter, jitter=lambda: 0.5)
    for _ in earlier:
        source.get("x", BOUNDED)
    with pytest.raises(error, match=r"^x$"):
        source.get("x", BOUNDED)
    assert source.requests - len(earlier) == requests
    assert sum(clock.waits) < 10


def test_another_version_is_requested_once_more() -> None:
    pin = FileVersion(10, '"a"')
    source = source_of(FileChanged("x"), GOOD)
    assert source.get("x", BOUNDED, pin=pin) is GOOD
    source = source_of(FileChanged("x"), FileChanged("x"), GOOD)
    with pytest.raises(FileChanged):
        source.get("x", BOUNDED, pin=pin)
    assert source.requests == 2


def test_does_not_wait_after_the_last_attempt() -> None:
    clock = FakeClock()
    for error in (Throttled("x"), Unreachable("x"), Blocked("x")):
        with pytest.raises(type(error)):
            source_of(error, clock=clock, attempts=1).get("x")
    assert clock.waits == []


def test_reports_the_reason_of_waits_and_lowers_the_rate() -> None:
    messages: list[str] = []
    source = source_of(Throttled("slow down"), Unreachable("broken"), Blocked("blocked"), GOOD, notify=messages.append)
    assert source.get("x") is GOOD
    assert messages == ["slow down; waiting 10 s", "blocked; waiting 300 s before one more try"]
    assert source.limiter.rate == 1.25  # of 5, halved twice


def test_gives_up_a_host_that_only_throttles() -> None:
    clock = FakeClock()
    source = source_of(Throttled("x"), clock=clock)
    paths = [str(number) for number in range(1000)]
    by_thread = clock.run(*(partial(outcomes, source, paths[thread::8]) for thread in range(8)))
    assert all(isinstance(names, list) for names in by_thread)
    assert {*chain(*by_thread)} == {"Throttled", "SourceUnavailable"}  # type: ignore[arg-type]
    assert source.requests <= 200 + 8  # the bound is 1.1 x 1000 + 500
    with pytest.raises(SourceUnavailable, match="Run the same command again in an hour") as raised:
        source.get("0", SUFFIX)
    assert raised.value.exit_status == 75
    assert source.requests <= 200 + 8


@pytest.mark.parametrize(
    ("error", "failures", "until"),
    [(Unreachable("x"), 18, 0), (Unreachable("x"), 19, 200), (Throttled("x"), 2, 0), (Throttled("x"), 10, 1245)],
)
def test_gives_up_after_nine_of_ten_requests_failed(error: SourceError, failures: int, until: int) -> None:
    """Or after a tenth of the requests and 500 more were throttled."""
    source = source_of(*[error] * failures, *[GOOD] * (20 - failures), policy=Policy(), attempts=100)
    assert ("SourceUnavailable" in outcomes(source, ["x"] * 700)) == bool(until)
    if until:
        assert source.requests == until
        with pytest.raises(SourceUnavailable, match=r"fails nearly every request|throttles too many requests"):
            source.get("x")


def test_errors_of_files_do_not_count_as_failures() -> None:
    clock = FakeClock()
    source = source_of(*(kind("x") for kind in PERMANENT), clock=clock, policy=Policy())
    assert outcomes(source, ["x"] * 400) == [kind.__name__ for kind in PERMANENT] * 100
    assert (source.requests, clock.waits) == (400, [])


def test_close_ends_waits() -> None:
    waiting = threading.Semaphore(0)
    inner = Answers(cycle([Throttled("x", retry_after=250)]))
    limiter = Limiter(COMMON_CRAWL, clock=Clock())
    source = PoliteSource(inner, limiter, notify=lambda _: waiting.release())
    with ThreadPoolExecutor(3) as executor:
        running = [executor.submit(source.get, "x") for _ in range(3)]
        for _ in range(3):
            assert waiting.acquire(timeout=10)
        source.close()
        for future in running:
            with pytest.raises(SourceUnavailable, match="closed"):
                future.result(timeout=5)
    assert inner.closed


@pytest.mark.parametrize(("policy", "requests"), [(Policy(), 2), (COMMON_CRAWL, 4), (S3_COMMON_CRAWL, 4)])
def test_limits_requests_for_a_file_whose_ranges_are_ignored(policy: Policy, requests: int) -> None:
    source = source_of(RangeIgnored("x"), policy=policy)
    for requested, most in ((SUFFIX, 1), (BOUNDED, requests)):
        before = source.requests
        with pytest.raises(RangeIgnored):
            source.get("x", requested)
        assert source.requests - before == most
    source = source_of(RangeIgnored("x"), WrongRange("x"), WrongLength("y"), GOOD, policy=policy)
    assert source.get("x", BOUNDED) is GOOD
    assert not source.honoured_suffixes
    assert source_of(GOOD).get("x", SUFFIX) is GOOD


def test_gives_up_a_host_that_honours_no_ranges() -> None:
    source = source_of(RangeIgnored("x"), policy=Policy())
    assert outcomes(source, "12345", BOUNDED) == ["RangeIgnored"] * 2 + ["SourceUnavailable"] * 3
    assert source.requests == 6
    with pytest.raises(SourceUnavailable, match="use a server that honours ranges"):
        source.get("6", BOUNDED)


def test_does_not_give_up_a_host_that_honoured_a_range() -> None:
    source = source_of(GOOD, *[RangeIgnored("x")] * 32, policy=Policy())
    assert outcomes(source, "012345678", BOUNDED) == ["", *["RangeIgnored"] * 8]
    assert source.requests == 1 + 8 * 4


def given_up(url: str, policy: Policy, error: type[CatalogueError], message: str) -> tuple[int, float, CatalogueError]:
    """Return the requests to a host without answers, the seconds of all waits, and the error."""
    clock = FakeClock()
    with closing(PoliteSource(open_http(url), Limiter(policy, clock=clock), jitter=lambda: 1.0)) as source:
        with pytest.raises(error, match=message) as raised:
            source.get(PATH, SUFFIX)
        return source.requests, sum(clock.waits), raised.value


@pytest.mark.parametrize(("policy", "requests"), [(Policy(), 5), (COMMON_CRAWL, ATTEMPTS), (S3_COMMON_CRAWL, ATTEMPTS)])
def test_gives_up_refused_connections_after_some_seconds(policy: Policy, requests: int) -> None:
    """More attempts for Common Crawl, as another of its machines may accept them."""
    with FaultServer(FILES) as server:
        url = server.url
    message = rf"nothing listens at {url} \(connection refused\)"
    sent, seconds, error = given_up(url, policy, ConnectionRefused, message)
    assert isinstance(error, ConnectionError)
    own = policy == Policy()
    assert (sent, seconds < 10, "is the server running?" in str(error)) == (requests, own, own)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_gives_up_a_refused_proxy_after_some_seconds(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "direct.example")
    monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:1")
    message = rf"^the proxy http://127\.0\.0\.1:1 that {scheme}_proxy names refuses .*\?$"
    sent, seconds, _ = given_up(f"{scheme}://data.example/", COMMON_CRAWL, ProxyRefused, message)
    assert (sent, seconds < 10) == (Policy().refused, True)


@pytest.mark.parametrize("policy", [Policy(), COMMON_CRAWL, S3_COMMON_CRAWL])
def test_gives_up_a_name_without_an_address_after_two_requests(policy: Policy) -> None:
    message = r"^the name name\.invalid cannot .*, or run: catalogue doctor$"
    sent, seconds, _ = given_up("http://name.invalid/", policy, SourceUnavailable, message)
    assert (sent, seconds < 5) == (2, True)


def test_waits_longer_for_a_name_that_had_an_address_before() -> None:
    source = source_of(GOOD, *[NameNotResolved("x")] * (ATTEMPTS - 1), GOOD, policy=Policy())
    assert outcomes(source, "12") == ["", ""]


def test_counts_requests_and_bytes_of_all_threads() -> None:
    inner = Answers(cycle([GOOD, Unreachable("x"), GOOD, Throttled("x"), NotFound("x")]))
    source = PoliteSource(inner, Limiter(Policy(), clock=FakeClock()))
    with ThreadPoolExecutor(16) as executor:
        outcomes_by_thread = executor.map(lambda number: outcomes(source, [str(number)]), range(1500))
        answers = sum(names == [""] for names in outcomes_by_thread)
    assert source.requests == inner.requests > 1500
    assert source.bytes == answers * len(GOOD.body)
