"""Trying again, but never more than a host can bear."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle

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
    RangeIgnored,
    Redirected,
    SourceUnavailable,
    Throttled,
    Unreachable,
    WrongLength,
    WrongRange,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response
from catalogue.source.http import HttpSource
from catalogue.source.rate_limit import COMMON_CRAWL, S3_COMMON_CRAWL, Limiter, Policy, SystemClock
from catalogue.source.retry import ATTEMPTS, PoliteSource
from tests.support.clocks import FakeClock
from tests.support.faults import (
    ALL_KINDS,
    BLOCKING,
    HARMLESS,
    PERMANENT,
    SLOW,
    THROTTLING,
    UNDETECTABLE,
    FaultServer,
    Kind,
    Script,
    always,
    first,
)
from tests.support.sources import BOUNDED, FILES, IMPATIENT, PATH, RIGHT, SUFFIX, WANTED, expected, quick

POLICY = COMMON_CRAWL
GOOD = Response(b"12345", 0, 5, '"a"', None)


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


class Answers:
    """A source that answers what it is told to."""

    url = "test:/"
    connections = 4

    def __init__(self, answers: Iterable[Response | CatalogueError]) -> None:
        self._answers = iter(answers)
        self._lock = threading.Lock()
        self.asked = 0
        self.closed = False

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:  # noqa: ARG002 - whatever
        with self._lock:
            self.asked += 1
            answer = next(self._answers)
        if isinstance(answer, CatalogueError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def polite(
    *answers: Response | CatalogueError,
    clock: FakeClock | None = None,
    policy: Policy = POLICY,
    jitter: float = 0.0,
    notify: Callable[[str], None] = lambda _: None,
) -> PoliteSource:
    limiter = Limiter(policy, clock=clock or FakeClock())
    return PoliteSource(Answers(cycle(answers)), limiter, notify=notify, jitter=lambda: jitter)


def over(server: FaultServer, clock: FakeClock, *, impatient: bool = False) -> PoliteSource:
    inner = HttpSource(server.url, user_agent="test", connections=8, timeouts=IMPATIENT if impatient else None)
    return PoliteSource(inner, Limiter(POLICY, clock=clock), jitter=lambda: 0.5)


def run_script(script: Script, requested: ByteRange | SuffixRange) -> tuple[bytes | Exception, int, list[float]]:
    """What came of a read through a server with a script, how many requests it took, and the waits."""
    clock = FakeClock()
    with FaultServer(FILES, script=script) as server, closing(over(server, clock)) as source:
        outcome: bytes | Exception
        try:
            outcome = source.get(PATH, requested).body
        except CatalogueError as error:
            outcome = error
        assert source.requests == server.requests
        assert source.bytes == (len(outcome) if isinstance(outcome, bytes) else 0)
        return outcome, server.requests, [wait for wait in clock.waits if wait > 1e-6]


@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("kind", sorted(set(ALL_KINDS) - SLOW - UNDETECTABLE, key=str), ids=lambda kind: kind.value)
def test_retries_faults_that_pass(kind: Kind, requested: ByteRange | SuffixRange) -> None:
    outcome, requests, waits = run_script(first(2, quick(kind, retry_after=30)), requested)
    error = expected(kind, requested)
    if kind in PERMANENT or (kind is Kind.WHOLE_FILE and requested == SUFFIX):
        assert type(outcome) is error
        assert (requests, waits) == (1, [])
        return
    assert outcome == RIGHT[requested]
    assert requests == (3 if error else 1)
    if kind in BLOCKING:
        assert waits == [300.0, 900.0]
    elif kind in {Kind.RETRY_AFTER, Kind.TOO_MANY}:
        assert 30 <= waits[0] <= 32
        assert 30 <= waits[1] <= 32
    elif kind in THROTTLING:
        assert waits == pytest.approx([11.25, 22.5])
    else:
        assert waits == ([0.5] if error else [])  # the first time at once


@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("kind", sorted(set(ALL_KINDS) - SLOW - UNDETECTABLE, key=str), ids=lambda kind: kind.value)
def test_gives_up_faults_that_do_not_pass(kind: Kind, requested: ByteRange | SuffixRange) -> None:
    outcome, requests, waits = run_script(always(quick(kind, retry_after=9999)), requested)
    error = expected(kind, requested)
    if not error:
        assert outcome == RIGHT[requested]
        assert kind in HARMLESS | {Kind.CHANGED_ETAG}
        return
    assert type(outcome) is error
    if kind in PERMANENT:
        assert requests == 1
    elif kind is Kind.WHOLE_FILE:
        assert requests == (1 if requested == SUFFIX else 4)
    elif kind in BLOCKING:
        assert (requests, waits) == (3, [300.0, 900.0])
        assert getattr(outcome, "exit_status", None) == 75
    else:
        assert requests == ATTEMPTS == 12
    if kind in {Kind.RETRY_AFTER, Kind.TOO_MANY}:
        assert waits == [300.0] * 11
    elif kind in THROTTLING:
        assert waits == pytest.approx([11.25, 22.5, 45.0, 90.0, 180.0, 300, 300, 300, 300, 300, 300])
    elif requests == ATTEMPTS:
        # 0.5, 1, 2, … times the jitter; and between them turns have to be waited for
        assert [wait for wait in waits if wait >= 0.5] == [0.5, 1.0, 2.0, 4.0, 8.0] + [10.0] * 5


def test_retries_slow_responses() -> None:
    files = {f"{kind.value}/{name}": FILES[PATH] for kind in SLOW for name in WANTED}

    def ask(path: str) -> bytes:
        return source.get(path, WANTED[path.partition("/")[2]]).body

    with (
        FaultServer(
            files, script=lambda request: quick(Kind(request.path.split("/")[0])) if request.attempt < 2 else None
        ) as server,
        closing(over(server, FakeClock(), impatient=True)) as source,
        ThreadPoolExecutor(len(files)) as executor,
    ):
        assert list(executor.map(ask, files)) == [RIGHT[WANTED[path.partition("/")[2]]] for path in files]
        assert server.requests == source.requests == 3 * len(files)


# ---- being asked to slow down ----


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.999])
def test_waits_double_with_jitter(jitter: float) -> None:
    clock = FakeClock()
    source = polite(*[Throttled("x")] * 4, GOOD, clock=clock, jitter=jitter)
    assert source.get("x") is GOOD
    assert clock.waits == pytest.approx([base * (1 + jitter / 4) for base in (10, 20, 40, 80)])
    assert source.limiter.rate == 1.5  # halved to the floor, and then there were ten clean seconds


@pytest.mark.parametrize(
    ("asked_for", "waited"), [(None, 10.0), (0.0, 10.0), (9.0, 10.0), (120.0, 120.0), (86400.0, 300.0)]
)
def test_honours_retry_after_up_to_five_minutes(asked_for: float | None, waited: float) -> None:
    clock = FakeClock()
    assert polite(Throttled("x", retry_after=asked_for), GOOD, clock=clock).get("x") is GOOD
    assert clock.waits == [waited]


def test_does_not_wait_after_the_last_attempt() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    for error in (Throttled("x"), Unreachable("x"), Blocked("x")):
        with pytest.raises(type(error)):
            PoliteSource(Answers([error]), limiter, attempts=1).get("x")
    assert clock.waits == []


def test_reports_the_reason_of_waits() -> None:
    messages: list[str] = []
    source = polite(Throttled("slow down"), Unreachable("broken"), Blocked("blocked"), GOOD, notify=messages.append)
    assert source.get("x") is GOOD
    assert messages == ["slow down; waiting 10 s", "blocked; waiting 300 s before one more try"]


# ---- knowing when to stop ----


def test_gives_up_a_host_that_only_throttles() -> None:
    files = {f"{number}": b"x" for number in range(1000)}
    clock = FakeClock()

    def ask(path: str) -> type[Exception] | None:
        try:
            source.get(path, SUFFIX)
        except CatalogueError as error:
            return type(error)
        return None

    with (
        FaultServer(files, script=always(Kind.SLOW_DOWN)) as server,
        closing(over(server, clock)) as source,
        ThreadPoolExecutor(8) as executor,
    ):
        outcomes = list(executor.map(ask, files))
        assert set(outcomes) == {Throttled, SourceUnavailable}
        assert outcomes[-1] is SourceUnavailable
        assert source.requests == server.requests <= 200 + 8  # the bound is 1.1 x 1000 + 500
        with pytest.raises(SourceUnavailable, match="Run the same command again in an hour") as raised:
            source.get("0", SUFFIX)
        assert raised.value.exit_status == 75
        assert source.requests == server.requests <= 200 + 8


def test_gives_up_after_too_many_throttling_answers() -> None:
    inner = Answers(cycle([GOOD, Throttled("x")]))
    source = PoliteSource(inner, Limiter(Policy(), clock=FakeClock()))
    read = (source.get("x") for _ in range(5000))
    with pytest.raises(SourceUnavailable, match="keeps asking to slow down"):
        list(read)
    complaints = inner.asked // 2
    assert complaints - 1 <= 0.1 * inner.asked + 500 < complaints + 1
    assert inner.asked <= 1.1 * 1000 + 500


@pytest.mark.parametrize(("failures", "given_up"), [(18, False), (19, True)])
def test_gives_up_after_nine_of_ten_requests_failed(failures: int, *, given_up: bool) -> None:
    # As failures: what is not retried cannot be told from what is by the host.
    answers = Answers(cycle([Unreachable("x")] * failures + [GOOD] * (20 - failures)))
    source = PoliteSource(answers, Limiter(Policy(), clock=FakeClock()), attempts=100)
    outcomes = set()
    for _ in range(400):
        try:
            source.get("x")
        except SourceUnavailable as error:
            outcomes.add(str(error))
    assert bool(outcomes) == given_up
    if given_up:
        assert "answers hardly anything any more" in outcomes.pop()
        assert answers.asked == 200


def test_errors_of_files_do_not_count_as_failures() -> None:
    answers = [NotFound("x"), Forbidden("x"), FileChanged("x"), Redirected("x"), NotParquet("x")]
    source = polite(*answers, policy=Policy())
    for number in range(400):
        with pytest.raises(type(answers[number % 5])):
            source.get("x")
    assert source.requests == 400


def test_close_ends_waits() -> None:
    waiting = threading.Semaphore(0)
    inner = Answers(cycle([Throttled("x", retry_after=250)]))
    limiter = Limiter(POLICY, clock=SystemClock())
    source = PoliteSource(inner, limiter, notify=lambda _: waiting.release())
    with ThreadPoolExecutor(3) as executor:
        asking = [executor.submit(source.get, "x") for _ in range(3)]
        for _ in range(3):
            assert waiting.acquire(timeout=10)
        source.close()
        for future in asking:
            with pytest.raises(SourceUnavailable, match="closed"):
                future.result(timeout=5)
    assert inner.closed


# ---- ranges that are ignored, and counting ----


@pytest.mark.parametrize(("policy", "requests"), [(Policy(), 2), (COMMON_CRAWL, 4), (S3_COMMON_CRAWL, 4)])
def test_requests_few_times_a_file_whose_ranges_are_ignored(policy: Policy, requests: int) -> None:
    source = polite(RangeIgnored("x"), policy=policy)
    for requested, most in ((SUFFIX, 1), (BOUNDED, requests)):
        before = source.requests
        with pytest.raises(RangeIgnored):
            source.get("x", requested)
        assert source.requests - before == most
    source = polite(RangeIgnored("x"), WrongRange("x"), WrongLength("x"), GOOD, policy=policy)
    assert source.get("x", BOUNDED) is GOOD
    assert not source.honoured_suffixes
    assert polite(GOOD).get("x", SUFFIX) is GOOD


def test_gives_up_a_host_that_honours_no_ranges() -> None:
    clock = FakeClock()
    with FaultServer(dict.fromkeys("12345", FILES[PATH]), script=always(Kind.WHOLE_FILE)) as server:
        inner = HttpSource(server.url, user_agent="test", connections=1)
        with closing(PoliteSource(inner, Limiter(Policy(), clock=clock))) as source:
            for path in ("1", "2"):
                with pytest.raises(RangeIgnored):
                    source.get(path, BOUNDED)
            for path in ("3", "4", "5"):
                with pytest.raises(SourceUnavailable, match="use a server that honours ranges"):
                    source.get(path, BOUNDED)
            assert server.requests == 6


def test_keeps_a_host_that_honoured_a_range() -> None:
    source = polite(GOOD, *[RangeIgnored("x")] * 32, policy=Policy())
    assert source.get("good", BOUNDED) is GOOD
    for number in range(8):
        with pytest.raises(RangeIgnored):
            source.get(f"{number}", BOUNDED)
    assert source.requests == 1 + 8 * 4


@pytest.mark.parametrize(("policy", "requests"), [(Policy(), 5), (COMMON_CRAWL, ATTEMPTS), (S3_COMMON_CRAWL, ATTEMPTS)])
def test_gives_up_refused_connections_after_some_seconds(policy: Policy, requests: int) -> None:
    """But of Common Crawl's machines others will listen."""
    clock = FakeClock()
    with FaultServer(FILES) as server:
        url = server.url
    inner = HttpSource(url, user_agent="test", connections=1)
    with closing(PoliteSource(inner, Limiter(policy, clock=clock), jitter=lambda: 1.0)) as source:
        with pytest.raises(ConnectionRefused, match=f"nobody listens at {url}") as raised:
            source.get(PATH, SUFFIX)
        assert source.requests == requests
    own = policy == Policy()
    assert own == ("is the server running?" in str(raised.value))
    assert own == (sum(clock.waits) < 10)


@pytest.mark.parametrize("policy", [Policy(), COMMON_CRAWL, S3_COMMON_CRAWL])
def test_gives_up_a_name_without_an_address_after_two_requests(policy: Policy) -> None:
    clock = FakeClock()
    inner = HttpSource("http://name.invalid/", user_agent="test", connections=1)
    with closing(PoliteSource(inner, Limiter(policy, clock=clock), jitter=lambda: 1.0)) as source:
        with pytest.raises(SourceUnavailable, match=r"^the name name\.invalid cannot .*, or run: catalogue doctor$"):
            source.get(PATH, SUFFIX)
        assert source.requests == 2
    assert sum(clock.waits) < 5


def test_waits_longer_for_a_name_that_had_an_address_before() -> None:
    removed = [NameNotResolved("x")] * (ATTEMPTS - 1)
    source = PoliteSource(Answers([GOOD, *removed, GOOD]), Limiter(Policy(), clock=FakeClock()))
    assert [source.get("x").body, source.get("x").body] == [GOOD.body] * 2


def test_counts_requests_and_bytes_of_all_threads() -> None:
    inner = Answers(cycle([GOOD, Unreachable("x"), GOOD, Throttled("x"), NotFound("x")]))
    source = PoliteSource(inner, Limiter(Policy(), clock=FakeClock()))

    def ask(_: int) -> int:
        try:
            return len(source.get("x").body)
        except NotFound:
            return 0

    with ThreadPoolExecutor(16) as executor:
        received = sum(executor.map(ask, range(1500)))
    assert source.requests == inner.asked > 1500
    assert source.bytes == received
