"""Requests over HTTP as they are made, in any thread, until the source is closed."""

import asyncio
import gc
import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from catalogue.errors import (
    ConnectionRefused,
    FileChanged,
    NameNotResolved,
    NotFound,
    QueryError,
    SourceUnavailable,
    Unreachable,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import Response
from catalogue.source.http import HttpSource, Timeouts
from tests.support.faults import Fault, FaultServer, Kind, always
from tests.support.sources import BOUNDED, DATA, FILES, PATH, SUFFIX

AGENT = "commoncrawl-catalogue/1 (me@example.org)"


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(FILES) as server:
        yield server


@pytest.fixture
def source(server: FaultServer) -> Iterator[HttpSource]:
    with closing(HttpSource(server.url, user_agent=AGENT, connections=2)) as source:
        yield source


@pytest.mark.parametrize(
    ("requested", "start", "end"),
    [
        (SuffixRange(1), 299_999, 300_000),
        (SuffixRange(8), 299_992, 300_000),
        (SuffixRange(300_000), 0, 300_000),
        (SuffixRange(999_999), 0, 300_000),
        (ByteRange(0, 1), 0, 1),
        (ByteRange(0, 300_000), 0, 300_000),
        (ByteRange(12_345, 23_456), 12_345, 23_456),
        (ByteRange(299_999, 300_000), 299_999, 300_000),
        (None, 0, 300_000),
    ],
)
def test_reads_ranges_suffixes_and_documents(
    source: HttpSource, requested: ByteRange | SuffixRange | None, start: int, end: int
) -> None:
    answer = source.get(PATH, requested)
    assert (answer.body == DATA[start:end], answer.start, answer.total_size) == (True, start, 300_000)
    assert answer.etag
    assert answer.last_modified
    assert answer.last_modified.endswith("GMT")


def test_request_headers(server: FaultServer, source: HttpSource) -> None:
    seen = source.get(PATH, SUFFIX)
    source.get(PATH, BOUNDED, pin=FileVersion(300_000, seen.etag))
    source.get(PATH, BOUNDED, pin=FileVersion(300_000, f"W/{seen.etag}"))
    source.get(PATH)
    assert [exchange.range_header for exchange in server.log] == [
        "bytes=-5000",
        "bytes=1000-5999",
        "bytes=1000-5999",
        None,
    ]
    assert [exchange.headers.get("if-match") for exchange in server.log] == [None, seen.etag, None, None]
    for exchange in server.log:
        assert exchange.method == "GET"
        assert exchange.headers["user-agent"] == AGENT
        assert exchange.headers["accept-encoding"] == "identity"
        assert not {"cookie", "authorization", "referer"} & set(exchange.headers)
    assert {exchange.connection for exchange in server.log} == {0}  # kept open, and used again


def test_missing_and_forbidden_files_raise(source: HttpSource, server: FaultServer) -> None:
    with pytest.raises(NotFound, match="does not exist") as missing:
        source.get("none.parquet", SUFFIX)
    assert isinstance(missing.value, FileNotFoundError)
    with pytest.raises(FileChanged, match="is shorter"):
        source.get(PATH, ByteRange(300_000, 300_001))
    with pytest.raises(FileChanged, match="not the file"):
        source.get(PATH, BOUNDED, pin=FileVersion(300_000, '"another"'))
    assert server.requests == 3


@pytest.mark.parametrize("path", ["a b/ü=+,~.parquet", "a%2Fb", "a?b#c", "a&b;c:d@e", "x" * 1000])
def test_sends_paths_unchanged(path: str) -> None:
    with (
        FaultServer({path: DATA}) as server,
        closing(HttpSource(server.url, user_agent=AGENT, connections=1)) as source,
    ):
        assert source.get(path, BOUNDED).body == DATA[1000:6000]
        assert [exchange.path for exchange in server.log] == [path]


def test_connection_refused() -> None:
    with FaultServer(FILES) as server:
        url = server.url
    with (
        closing(HttpSource(url, user_agent=AGENT, connections=1)) as source,
        pytest.raises(ConnectionRefused, match=rf"nobody listens at {url} \(connection refused\)") as raised,
    ):
        source.get("x", SUFFIX)
    assert isinstance(raised.value, ConnectionError)


def test_name_not_resolved() -> None:
    with (
        closing(HttpSource("http://name.invalid/", user_agent=AGENT, connections=1)) as source,
        pytest.raises(NameNotResolved, match=r"^the name name\.invalid cannot be resolved; check whether"),
    ):
        source.get("x", SUFFIX)


@pytest.mark.parametrize("kind", [Kind.DISCONNECT, Kind.CUT_RST])
def test_broken_connection_counts_as_one_request(kind: Kind) -> None:
    """aiohttp would ask again by itself, also on connections that were used before."""
    with (
        FaultServer(FILES, script=lambda request: Fault(kind) if request.number else None) as server,
        closing(HttpSource(server.url, user_agent=AGENT, connections=1)) as source,
    ):
        source.get(PATH, SUFFIX)
        for requests in (2, 3):
            with pytest.raises(Unreachable):
                source.get(PATH, SUFFIX)
            assert len(server.settle()) == requests


def test_sends_no_credentials_of_netrc(
    source: HttpSource, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password canary\ndefault login me password canary\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    source.get(PATH, SUFFIX)
    with closing(HttpSource(server.url, user_agent=AGENT, connections=1)) as another:
        another.get(PATH, SUFFIX)
    assert all("authorization" not in exchange.headers for exchange in server.log)
    assert "canary" not in repr(server.log)


def test_proxy_password_is_sent_to_the_proxy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("no_proxy", "direct.example")
    with FaultServer({}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://me:canary@"))
        with closing(HttpSource("http://data.example/", user_agent=AGENT, connections=1)) as source:
            with pytest.raises(NotFound, match=r"http://data\.example/x\.parquet") as raised:
                source.get("x.parquet", SUFFIX)
            assert "canary" not in f"{raised.value} {raised.value!r} {source!r} {source.url}"
        (exchange,) = proxy.log
        assert exchange.headers["host"] == "data.example"
        assert exchange.headers["proxy-authorization"].startswith("Basic ")
        assert exchange.path == "http://data.example/x.parquet"  # as requests to proxies have it
    with (
        closing(HttpSource("http://data.example/", user_agent=AGENT, connections=1)) as source,
        pytest.raises(Unreachable) as raised_too,
    ):
        source.get("x.parquet", SUFFIX)
    assert "canary" not in f"{raised_too.value} {raised_too.value.__cause__}"


def test_rejects_invalid_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "socks5://me:canary@127.0.0.1:1")
    with pytest.raises(QueryError, match="socks5 proxy") as raised:
        HttpSource("http://data.example/", user_agent=AGENT, connections=1)
    assert "canary" not in str(raised.value)


def test_many_threads_share_few_connections() -> None:
    files = {f"{number}.parquet": DATA[number : number + 10_000] for number in range(40)}
    with (
        FaultServer(files, latency=0.002) as server,
        closing(HttpSource(server.url, user_agent=AGENT, connections=3)) as source,
        ThreadPoolExecutor(16) as executor,
    ):
        for _ in range(5):
            answers = executor.map(lambda path: source.get(path, SUFFIX), files)
            assert [answer.body for answer in answers] == [data[-5000:] for data in files.values()]
        assert {exchange.connection for exchange in server.log} == {0, 1, 2}
        assert server.requests == 200


def test_works_inside_a_running_event_loop(source: HttpSource) -> None:
    async def in_a_notebook() -> bytes:
        return source.get(PATH, SUFFIX).body

    assert asyncio.run(in_a_notebook()) == DATA[-5000:]


def test_close_ends_running_requests_at_any_moment() -> None:
    with FaultServer(FILES) as server, ThreadPoolExecutor(4) as executor:
        for answered in range(12):
            source = HttpSource(server.url, user_agent=AGENT, connections=2)
            question = threading.Semaphore(0)

            def ask(source: HttpSource = source, question: threading.Semaphore = question) -> int:
                for count in itertools.count():
                    try:
                        assert source.get(PATH, SUFFIX).body == DATA[-5000:]
                    except SourceUnavailable:
                        return count
                    question.release()
                return -1

            asking: list[Future[int]] = [executor.submit(ask) for _ in range(4)]
            for _ in range(answered):
                assert question.acquire(timeout=10)
            source.close()
            assert sum(future.result(timeout=10) for future in asking) >= answered
    gc.collect()


def test_default_timeouts() -> None:
    assert Timeouts() == Timeouts(connect=10.0, silence=20.0, total=60.0)


def test_timeout_grows_with_the_body() -> None:
    """A body that comes at a fair speed is not given up, however long all of it takes."""
    size = 300_000
    patience = Timeouts(connect=5.0, silence=5.0, total=0.2)
    with (
        FaultServer(FILES, rate=400_000.0) as server,
        closing(HttpSource(server.url, user_agent=AGENT, connections=1, timeouts=patience)) as source,
    ):
        answer: Response = source.get(PATH, ByteRange(0, size))  # in 0.75 s of 3.2
        assert len(answer.body) == size
    with (
        FaultServer(FILES, script=always(Fault(Kind.DRIP_BODY, hold=30, interval=0.05))) as server,
        closing(HttpSource(server.url, user_agent=AGENT, connections=1, timeouts=patience)) as source,
        pytest.raises(Unreachable, match="TimeoutError"),
    ):
        source.get(PATH, SUFFIX)


@pytest.mark.parametrize("ending", ["", "; del source; gc.collect()"])
def test_unclosed_source_prints_no_warning(server: FaultServer, ending: str) -> None:
    """As README's own example, which is a script that ends or a function that returns."""
    script = (
        "import gc; from catalogue.source.http import HttpSource; "
        f"source = HttpSource({server.url!r}, user_agent={AGENT!r}, connections=1); "
        f"print(len(source.get({PATH!r}).body)){ending}"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{len(DATA)}\n", "")
