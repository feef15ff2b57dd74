"""HTTP and S3 sources return only bytes that were requested, and read no more than these."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from catalogue.errors import FileChanged, SourceError, Throttled, Unreachable
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from tests.support import canaries
from tests.support.faults import ALL_KINDS, SLOW, Fault, FaultServer, Kind, Request
from tests.support.memory import memory_below
from tests.support.sources import (
    BODIES,
    BUCKET,
    DATA,
    FILES,
    PATH,
    RANGES,
    SHORT_TIMEOUTS,
    SUFFIX,
    Served,
    expected,
    quick,
)

PROMPT = sorted(set(ALL_KINDS) - SLOW, key=str)
EASILY_READ = 64 << 10
"""Surplus bytes that a server may send before it detects that the client has closed the connection."""
OTHER_LENGTH = {Kind.LONG_BODY, Kind.SHORT_RANGE, Kind.CUT_FIN, Kind.CLOSE_DELIMITED}
both_protocols = pytest.mark.parametrize("protocol", ["http", "s3"])


@pytest.fixture(scope="module", params=["http", "s3"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """With a low rate, so that the server sends hardly more than the client reads."""
    with Served(request.param, FILES, rate=400_000.0).open() as opened:
        yield opened


@pytest.mark.parametrize("kind", PROMPT, ids=lambda kind: kind.value)
def test_every_fault_raises_its_error(served: Served, kind: Kind) -> None:
    for requested, variant in product(RANGES.values(), (0, 1, 2, 4999) if kind in OTHER_LENGTH else (0,)):
        error = expected(kind, requested)
        served.script(quick(kind, variant=variant))
        if error:
            with pytest.raises(error) as raised:
                served.source.get(PATH, requested)
            assert raised.type is error
            assert f"{served.source.url}{PATH}" in str(raised.value)
            assert len(str(raised.value)) < 1000
            texts = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__cause__}"
            assert not re.search(f"{canaries.MARK}|Signature", texts)
        else:
            assert len(served.source.get(PATH, requested).body) == len(BODIES[requested])
        assert served.source.get(PATH, requested).body == BODIES[requested]
        first, second = served.exchanges()  # one request each
        assert first.fault
        assert first.body_bytes_sent <= 5000 + EASILY_READ
        assert not second.fault


@pytest.mark.parametrize("requested", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("kind", [Kind.CHANGED_ETAG, Kind.OTHER_OBJECT, Kind.WEAK_ETAG, Kind.NO_ETAG])
def test_rejects_other_versions_and_sizes_without_a_strong_etag(
    served: Served, kind: Kind, requested: ByteRange | SuffixRange
) -> None:
    served.script(None, quick(kind), quick(kind))
    pin, message = served.source.get(PATH, requested).version, r"part 0\.parquet"
    if kind in {Kind.WEAK_ETAG, Kind.NO_ETAG}:
        assert served.source.get(PATH, requested, pin=pin).body == BODIES[requested]
        pin, message = FileVersion(299_999, None), "299,999"
    with pytest.raises(FileChanged, match=message):
        served.source.get(PATH, requested, pin=pin)


@pytest.mark.parametrize(("kind", "seconds"), [(Kind.RETRY_AFTER, 60), (Kind.TOO_MANY, 60), (Kind.SLOW_DOWN, None)])
def test_passes_on_retry_after(served: Served, kind: Kind, seconds: int | None) -> None:
    served.script(quick(kind, retry_after=60))
    with pytest.raises(Throttled) as raised:
        served.source.get(PATH, SUFFIX)
    assert raised.value.retry_after == (seconds and pytest.approx(seconds + 1, abs=1))


@both_protocols
def test_documents_are_checked_like_ranges(protocol: str) -> None:
    """A document has no Content-Range to check; the rest is checked."""
    kinds = [Kind.CUT_FIN, Kind.CUT_RST, Kind.CLOSE_DELIMITED, Kind.CHUNKED_CUT, Kind.GZIP_BOMB, Kind.HTML_200]
    kinds += [Kind.XML_IN_200, Kind.ENDLESS, Kind.SLOW_DOWN, Kind.BLOCKED, Kind.REDIRECT_HERE]
    with Served(protocol, FILES).open() as served:
        served.script(*(quick(kind) for kind in kinds))
        for _ in kinds:
            with pytest.raises(SourceError, match=r"part 0\.parquet"):
                served.source.get(PATH)
        assert served.source.get(PATH).body == DATA


@both_protocols
@pytest.mark.parametrize("kind", [Kind.REDIRECT_HERE, Kind.REDIRECT_AWAY])
def test_never_follows_redirects(protocol: str, kind: Kind) -> None:
    """The AWS SDK would follow them, with the session's token."""
    with FaultServer({}, host="127.0.0.2") as elsewhere, Served(protocol, FILES).open() as served:
        target = elsewhere.url + "landing?token=canary"
        served.script(*(quick(kind, variant=variant, target=target) for variant in range(4)))
        for _ in range(4):
            with pytest.raises(SourceError, match="redirects to") as raised:
                served.source.get(PATH, SUFFIX)
            assert ("127.0.0.2" in str(raised.value)) == (kind is Kind.REDIRECT_AWAY)
            assert "canary" not in str(raised.value)
        assert [exchange.status for exchange in served.exchanges()] == [301, 302, 307, 308]
        assert not elsewhere.log


@both_protocols
def test_slow_responses_time_out(protocol: str) -> None:
    slow = {f"{kind.value}/{name}": quick(kind, hold=30.0) for kind in SLOW for name in RANGES}
    files = dict.fromkeys(["prepare", *slow], DATA)

    def script(request: Request) -> Fault | None:
        return None if request.attempt else slow.get(request.path.removeprefix(f"{BUCKET}/"))

    served = Served(protocol, files, script)

    def read_twice(path: str) -> bytes:
        requested = RANGES[path.partition("/")[2]]
        began = time.monotonic()
        with pytest.raises(Unreachable, match=re.escape(f"{served.source.url}{path}: no usable response")):
            served.source.get(path, requested)
        assert time.monotonic() - began < 10
        return served.source.get(path, requested).body

    with served.open(connections=len(files), timeouts=SHORT_TIMEOUTS), ThreadPoolExecutor(len(slow)) as executor:
        served.source.get("prepare", SUFFIX)  # the first request of the AWS SDK takes longer
        bodies = executor.map(read_twice, slow)
        assert [*bodies] == [BODIES[RANGES[path.partition("/")[2]]] for path in slow]
        assert served.server.requests == 1 + 2 * len(slow)


def test_oversized_responses_use_little_memory() -> None:
    kinds = [Kind.LONG_BODY, Kind.ENDLESS, Kind.GZIP_BOMB, Kind.MANY_HEADERS, Kind.HUGE_HEADER, Kind.WHOLE_FILE]
    kinds += [Kind.NEGATIVE_CHUNK]
    faults = [quick(kind, excess=1 << 30, variant=variant) for kind in kinds for variant in range(3)]
    with Served("http", {"huge": bytes(64 << 20)}).open() as served:
        served.script(*faults)
        with memory_below(16 << 20):  # including the server's memory, such as a header of 1 MiB
            for _ in faults:
                with pytest.raises(SourceError):
                    served.source.get("huge", SUFFIX)
