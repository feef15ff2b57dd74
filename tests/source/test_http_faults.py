"""No answer over HTTP is believed that is not the right one, and none is read further than that takes."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from catalogue.errors import FileChanged, SourceError, Throttled, Unreachable, WrongRange
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.http import HttpSource
from tests.support.faults import (
    ALL_KINDS,
    HARMLESS,
    MALFORMED_CONTENT_RANGES,
    SLOW,
    Fault,
    FaultServer,
    Kind,
    Request,
    first,
)
from tests.support.sources import DATA, FILES, IMPATIENT, OTHER, PATH, RIGHT, SUFFIX, WANTED, expected, quick

PROMPT = sorted(set(ALL_KINDS) - SLOW, key=str)
EASILY_READ = 64 << 10
"""Bytes that a server may have sent more than was wanted before it saw the client hang up."""


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


class Faulty:
    """A server with one source, used for many faults: what one leaves behind must not trouble the next."""

    def __init__(self, server: FaultServer, source: HttpSource, faults: dict[int, Fault]) -> None:
        self.server = server
        self.source = source
        self._faults = faults

    def script(self, *faults: Fault | None) -> None:
        """What the next requests meet."""
        self.server.settle()
        self.server.reset()
        self._faults.clear()
        self._faults |= {number: fault for number, fault in enumerate(faults) if fault}


def _faulty(rate: float | None) -> Iterator[Faulty]:
    faults: dict[int, Fault] = {}

    def script(request: Request) -> Fault | None:
        return faults.get(request.number)

    with FaultServer(FILES, script=script, rate=rate) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        with closing(HttpSource(server.url, user_agent="test", connections=2)) as source:
            yield Faulty(server, source, faults)


@pytest.fixture(scope="module")
def faulty() -> Iterator[Faulty]:
    yield from _faulty(None)


@pytest.fixture(scope="module")
def measured() -> Iterator[Faulty]:
    """On a slow line, so that what the server has sent is hardly more than what was read."""
    yield from _faulty(200_000.0)


@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("kind", PROMPT, ids=lambda kind: kind.value)
def test_every_fault_raises_its_error(measured: Faulty, kind: Kind, requested: ByteRange | SuffixRange) -> None:
    error = expected(kind, requested)
    measured.script(quick(kind))
    if error:
        with pytest.raises(error) as raised:
            measured.source.get(PATH, requested)
        assert raised.type is error
        assert f"{measured.server.url}{PATH}" in str(raised.value)
        assert len(str(raised.value)) < 1000
    else:
        assert len(measured.source.get(PATH, requested).body) == len(RIGHT[requested])
    (exchange,) = measured.server.settle()
    assert exchange.fault
    assert exchange.body_bytes_sent <= 5000 + EASILY_READ


def test_slow_responses_time_out() -> None:
    files = {f"{kind.value}/{name}": DATA for kind in SLOW for name in WANTED}

    def script(request: Request) -> Fault | None:
        return quick(Kind(request.path.partition("/")[0])) if request.attempt < 2 else None

    def ask(path: str) -> Callable[[], bytes]:
        requested = WANTED[path.partition("/")[2]]
        return lambda: source.get(path, requested).body

    def three_times(path: str) -> tuple[list[float], bytes]:
        took = []
        for _ in range(2):
            before = time.monotonic()
            with pytest.raises(Unreachable, match="TimeoutError") as raised:
                ask(path)()
            took.append(time.monotonic() - before)
            assert f"{server.url}{path}" in str(raised.value)
        return took, ask(path)()

    with (
        FaultServer(files, script=script) as server,
        closing(HttpSource(server.url, user_agent="test", connections=len(files), timeouts=IMPATIENT)) as source,
        ThreadPoolExecutor(len(files)) as executor,
    ):
        for path, (took, body) in zip(files, executor.map(three_times, files), strict=True):
            assert body == RIGHT[WANTED[path.partition("/")[2]]]
            assert max(took) < 2, path
        assert server.requests == 3 * len(files)


@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("variant", range(len(MALFORMED_CONTENT_RANGES)))
def test_rejects_malformed_content_ranges(faulty: Faulty, variant: int, requested: ByteRange | SuffixRange) -> None:
    faulty.script(quick(Kind.MALFORMED_CONTENT_RANGE, variant=variant))
    with pytest.raises(WrongRange, match=r"part 0\.parquet"):
        faulty.source.get(PATH, requested)


@pytest.mark.parametrize("kind", [Kind.LONG_BODY, Kind.SHORT_RANGE, Kind.CUT_FIN, Kind.CLOSE_DELIMITED])
@pytest.mark.parametrize("variant", [0, 1, 2, 4999])
@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
def test_rejects_bodies_that_are_too_short_or_too_long(
    measured: Faulty, kind: Kind, variant: int, requested: ByteRange | SuffixRange
) -> None:
    measured.script(quick(kind, variant=variant))
    with pytest.raises(SourceError, match=r"part 0\.parquet"):
        measured.source.get(PATH, requested)
    (exchange,) = measured.server.settle()
    assert exchange.body_bytes_sent <= 5000 + EASILY_READ


def test_internal_error_in_200_is_unreachable(faulty: Faulty) -> None:
    faulty.script(quick(Kind.XML_IN_200, variant=1))
    with pytest.raises(Unreachable, match="InternalError"):
        faulty.source.get(PATH, SUFFIX)


@pytest.mark.parametrize("kind", [Kind.CHANGED_ETAG, Kind.OTHER_OBJECT])
@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
def test_rejects_versions_other_than_the_pinned_one(
    faulty: Faulty, kind: Kind, requested: ByteRange | SuffixRange
) -> None:
    faulty.script(None, quick(kind))
    seen = faulty.source.get(PATH, requested)
    with pytest.raises(FileChanged, match=r"part 0\.parquet"):
        faulty.source.get(PATH, requested, pin=FileVersion(seen.total_size, seen.etag))


@pytest.mark.parametrize("kind", sorted(HARMLESS, key=str), ids=lambda kind: kind.value)
@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
def test_compares_sizes_where_there_is_no_strong_etag(
    faulty: Faulty, kind: Kind, requested: ByteRange | SuffixRange
) -> None:
    faulty.script(None, quick(kind), quick(kind))
    seen = faulty.source.get(PATH, requested)
    assert faulty.source.get(PATH, requested, pin=FileVersion(seen.total_size, seen.etag)).body == RIGHT[requested]
    with pytest.raises(FileChanged, match="299,999"):
        faulty.source.get(PATH, requested, pin=FileVersion(299_999, None))


@pytest.mark.parametrize(("kind", "least"), [(Kind.RETRY_AFTER, 60.0), (Kind.TOO_MANY, 60.0), (Kind.SLOW_DOWN, None)])
def test_passes_on_retry_after(faulty: Faulty, kind: Kind, least: float | None) -> None:
    faulty.script(quick(kind, retry_after=60))
    with pytest.raises(Throttled) as raised:
        faulty.source.get(PATH, SUFFIX)
    given = raised.value.retry_after
    assert given is None if least is None else given is not None and least <= given <= least + 2


@pytest.mark.parametrize("kind", [Kind.REDIRECT_HERE, Kind.REDIRECT_AWAY])
@pytest.mark.parametrize("variant", range(4))
def test_never_follows_redirects(variant: int, kind: Kind) -> None:
    with FaultServer(FILES, host="127.0.0.2") as elsewhere:
        fault = quick(kind, variant=variant, target=elsewhere.url + "landing?token=canary")
        with (
            FaultServer(FILES, script=first(1, fault)) as server,
            closing(HttpSource(server.url, user_agent="test", connections=2)) as source,
        ):
            with pytest.raises(SourceError, match="redirects to") as raised:
                source.get(PATH, SUFFIX)
            assert [exchange.status for exchange in server.settle()] == [(301, 302, 307, 308)[variant]]
        assert not elsewhere.log
    if kind is Kind.REDIRECT_AWAY:
        assert "127.0.0.2" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_oversized_responses_use_little_memory() -> None:
    kinds = [Kind.LONG_BODY, Kind.ENDLESS, Kind.GZIP_BOMB, Kind.MANY_HEADERS, Kind.HUGE_HEADER, Kind.WHOLE_FILE]
    faults = iter([quick(kind, excess=1 << 30, variant=variant) for kind in kinds for variant in range(3)])
    huge = {"huge": bytes(64 << 20)}
    with (
        FaultServer(huge, script=lambda _: next(faults)) as server,
        closing(HttpSource(server.url, user_agent="test", connections=1)) as source,
    ):
        tracemalloc.start()
        try:
            for _ in range(3 * len(kinds)):
                with pytest.raises(SourceError):
                    source.get("huge", SUFFIX)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20  # the server's own memory, such as a header of 1 MiB, included


def test_documents_are_checked_as_ranges_are() -> None:
    """A whole file has no Content-Range to check; what there is to check is checked."""
    bad = [
        Kind.CUT_FIN,
        Kind.CUT_RST,
        Kind.CLOSE_DELIMITED,
        Kind.CHUNKED_CUT,
        Kind.GZIP_BOMB,
        Kind.HTML_200,
        Kind.XML_IN_200,
        Kind.ENDLESS,
        Kind.SLOW_DOWN,
        Kind.BLOCKED,
        Kind.REDIRECT_HERE,
    ]
    faults = [quick(kind) for kind in bad] + [quick(Kind.XML_IN_200, variant=1)]
    waiting = iter(faults)
    with (
        FaultServer(FILES, script=lambda _: next(waiting, None)) as server,
        closing(HttpSource(server.url, user_agent="test", connections=1)) as source,
    ):
        for _ in faults:
            with pytest.raises(SourceError, match=r"part 0\.parquet"):
                source.get(PATH)
        answer = source.get(PATH)
        assert (answer.body, answer.start, answer.total_size) == (DATA, 0, len(DATA))
        assert source.get(PATH, pin=FileVersion(answer.total_size, answer.etag)).body == DATA
        with pytest.raises(FileChanged):
            source.get(PATH, pin=FileVersion(len(OTHER) + 1, None))
