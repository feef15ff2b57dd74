"""Requests over HTTP: connections, proxies, timeouts, and closing."""

import gc
import itertools
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest

from catalogue.errors import QueryError, SourceUnavailable, Unreachable
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.http import HttpSource, Timeouts
from tests.support.amounts import in_part
from tests.support.faults import Fault, FaultServer, Kind, always
from tests.support.sources import AGENT, BOUNDED, DATA, FILES, PATH, SUFFIX, open_http


@pytest.mark.parametrize("path", ["a b/ü=+,~.parquet", "a%2Fb", "a?b#c", "a&b;c:d@e", "x" * 1000])
def test_sends_paths_unchanged(path: str) -> None:
    with FaultServer({path: DATA}) as server, closing(open_http(server.url)) as source:
        assert source.get(path, BOUNDED).body == DATA[1000:6000]
        assert [exchange.path for exchange in server.log] == [path]


@pytest.mark.parametrize("kind", [Kind.DISCONNECT, Kind.CUT_RST])
def test_broken_connection_counts_as_one_request(kind: Kind) -> None:
    """aiohttp would repeat the request, also on connections that were used before."""
    with (
        FaultServer(FILES, script=lambda request: Fault(kind) if request.number else None) as server,
        closing(open_http(server.url, connections=1)) as source,
    ):
        source.get(PATH, SUFFIX)
        for requests in (2, 3):
            with pytest.raises(Unreachable):
                source.get(PATH, SUFFIX)
            assert len(server.settle()) == requests


@pytest.mark.parametrize(("scheme", "error"), [("socks5", QueryError), ("http", Unreachable)])
def test_errors_of_proxies_hide_their_password(
    scheme: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "direct.example")
    monkeypatch.setenv("http_proxy", f"{scheme}://me:canary@127.0.0.1:1")
    with pytest.raises(error, match=f"{scheme} proxy" if scheme == "socks5" else "data.example/x") as raised:
        open_http("http://data.example/").get("x", SUFFIX)
    assert "canary" not in f"{raised.value} {raised.value!r} {raised.value.__cause__}"


def test_close_ends_running_requests_at_any_moment() -> None:
    def read_until_closed(source: HttpSource, answered: threading.Semaphore) -> int:
        for count in itertools.count():
            try:
                assert source.get(PATH, SUFFIX).body == DATA[-5000:]
            except SourceUnavailable:
                return count
            answered.release()
        return -1

    with FaultServer(FILES) as server, ThreadPoolExecutor(4) as executor:
        for number in range(12):
            source, answered = open_http(server.url), threading.Semaphore(0)
            running: list[Future[int]] = [executor.submit(read_until_closed, source, answered) for _ in range(4)]
            for _ in range(number):
                assert answered.acquire(timeout=10)
            source.close()
            assert sum(future.result(timeout=10) for future in running) >= number
    gc.collect(1)


def test_default_timeouts() -> None:
    assert Timeouts() == Timeouts(connect=10.0, silence=20.0, total=60.0)


def test_timeout_grows_with_the_body() -> None:
    """A body above the minimum speed does not time out, even if it takes long."""
    timeouts = Timeouts(connect=5.0, silence=5.0, total=0.2)
    with (
        FaultServer(FILES, rate=800_000.0) as server,
        closing(open_http(server.url, timeouts=timeouts)) as source,
    ):
        assert source.get(PATH, ByteRange(0, 300_000)).body == DATA  # in 0.4 of 3.2 s
    with (
        FaultServer(FILES, script=always(Fault(Kind.DRIP_BODY, hold=30, interval=0.05))) as server,
        closing(open_http(server.url, timeouts=timeouts)) as source,
        pytest.raises(Unreachable, match="TimeoutError"),
    ):
        source.get(PATH, SUFFIX)


@in_part(2)
@pytest.mark.parametrize("ending", ["", "; del source; gc.collect()"])
def test_unclosed_source_prints_no_warning(ending: str) -> None:
    """As in the example of the README: a script ends, or a function returns."""
    with FaultServer(FILES) as server:
        script = (
            "import gc; from catalogue.source.http import HttpSource; "
            f"source = HttpSource({server.url!r}, user_agent={AGENT!r}, connections=1); "
            f"print(len(source.get({PATH!r}).body)){ending}"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{len(DATA)}\n", "")
