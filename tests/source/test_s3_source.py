"""Files in S3: against a real server of its protocol, and against one that misbehaves."""

import asyncio
import gc
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from catalogue.errors import (
    FileChanged,
    Forbidden,
    NameNotResolved,
    NotFound,
    NotParquet,
    SourceError,
    SourceUnavailable,
    Unreachable,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.http import Timeouts
from catalogue.source.s3 import S3Source
from tests.support import canaries
from tests.support.faults import ALL_KINDS, SLOW, UNDETECTABLE, Fault, FaultServer, Kind, Request
from tests.support.sources import BOUNDED, DATA, FILES, PATH, RIGHT, SUFFIX, WANTED, Arrivals, expected, quick

BUCKET = "a-bucket"
PREFIX = "a prefix"
URL = f"s3://{BUCKET}/{PREFIX}/"
PROMPT = sorted(set(ALL_KINDS) - SLOW, key=str)


def use(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """An environment with credentials and nothing of the user's own."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL_S3"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ENDPOINT_URL", endpoint.rstrip("/"))
    for name, secret in canaries.AWS.items():
        patch.setenv(name, secret)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_CONFIG_FILE", "/dev/null")
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("no_proxy", "*")


def open_s3(url: str = URL, timeouts: Timeouts | None = None) -> S3Source:
    return S3Source(url, user_agent="agent/1", connections=4, timeouts=timeouts)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        use(patch, f"http://{host}:{port}")
        with closing(boto3.client("s3", **canaries.OF_NOBODY)) as client:
            client.create_bucket(Bucket=BUCKET)
            for name, data in {PATH: DATA, "empty": b"", "one": b"1"}.items():
                client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=data)
    yield f"http://{host}:{port}"
    moto.stop()
    if moto._server:  # noqa: SLF001 - moto leaves its socket open
        moto._server.server_close()  # noqa: SLF001


@pytest.fixture
def source(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Source]:
    use(monkeypatch, endpoint)
    with closing(open_s3()) as source:
        yield source
    gc.collect()  # what was not closed would warn now, and warnings are errors


def test_name_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://name.invalid")
    with closing(open_s3()) as source, pytest.raises(NameNotResolved, match=r"^the name [a-z.-]*name\.invalid cannot"):
        source.get(PATH, SUFFIX)


class Seen:
    """The requests that moto's server logs."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "werkzeug")
        self._caplog = caplog

    def __call__(self) -> list[str]:
        found = (re.search(r"([A-Z]+) (\S+) HTTP", record.getMessage()) for record in self._caplog.records)
        return [f"{match[1]} {match[2]}" for match in found if match]


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Seen:
    return Seen(caplog)


@pytest.mark.parametrize(
    ("requested", "start", "end"),
    [
        (SuffixRange(1), 299_999, 300_000),
        (SuffixRange(5000), 295_000, 300_000),
        (SuffixRange(999_999), 0, 300_000),
        (ByteRange(0, 1), 0, 1),
        (ByteRange(12_345, 23_456), 12_345, 23_456),
        (None, 0, 300_000),
    ],
)
def test_reads_bytes_with_one_request(
    source: S3Source, seen: Seen, requested: ByteRange | SuffixRange | None, start: int, end: int
) -> None:
    answer = source.get(PATH, requested)
    assert (answer.body == DATA[start:end], answer.start, answer.total_size) == (True, start, 300_000)
    assert answer.etag
    assert answer.last_modified
    assert source.get(PATH, requested, pin=FileVersion(answer.total_size, answer.etag)) == answer
    path = f"/{BUCKET}/a%20prefix/cc-index/crawl=CC-MAIN-2022-05/part%200.parquet"
    assert [request.replace("%3D", "=") for request in seen()] == [f"GET {path}"] * 2


def test_missing_and_forbidden_files_raise(source: S3Source, seen: Seen) -> None:
    with pytest.raises(NotFound, match=r"s3://a-bucket/a prefix/none does not exist"):
        source.get("none", SUFFIX)
    with pytest.raises(NotParquet, match="empty"):
        source.get("empty", SUFFIX)
    assert source.get("empty").body == b""
    assert source.get("one", SUFFIX).body == b"1"
    with pytest.raises(FileChanged, match="shorter"):
        source.get(PATH, ByteRange(300_000, 300_001))
    assert len(seen()) == 5
    assert {request[:3] for request in seen()} == {"GET"}


def test_rejects_another_version_than_the_pinned_one(source: S3Source, seen: Seen) -> None:
    answer = source.get(PATH, SUFFIX)
    for requested in (SUFFIX, BOUNDED, None):
        with pytest.raises(FileChanged, match=r"part 0\.parquet"):
            source.get(PATH, requested, pin=FileVersion(300_000, '"another"'))
        with pytest.raises(FileChanged, match="300,000"):
            source.get(PATH, requested, pin=FileVersion(299_999, answer.etag))
    assert len(seen()) == 7


def test_missing_bucket_raises(source: S3Source) -> None:
    with closing(open_s3("s3://no-such-bucket/")) as other, pytest.raises(NotFound, match="s3://no-such-bucket/x"):
        other.get("x", SUFFIX)
    assert source.get("one").body == b"1"


@pytest.mark.parametrize("missing", ["both", "profile", "secret"])
def test_missing_credentials_error_names_the_next_step(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, seen: Seen, missing: str, tmp_path: Path
) -> None:
    use(monkeypatch, endpoint)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    if missing != "secret":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    if missing == "profile":
        (tmp_path / "config").write_text("[default]\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "another")
    with closing(open_s3()) as source, pytest.raises(Forbidden, match="needs AWS credentials") as raised:
        source.get(PATH, SUFFIX)
    assert "aws configure" in str(raised.value)
    assert "the default source, which needs none" in str(raised.value)
    assert seen() == []


def test_works_in_threads_and_inside_a_running_event_loop(source: S3Source, seen: Seen) -> None:
    async def in_a_notebook() -> bytes:
        return source.get(PATH, SUFFIX).body

    with ThreadPoolExecutor(8) as executor:  # which all want the first client
        assert {answer.body for answer in executor.map(lambda _: source.get(PATH, SUFFIX), range(24))} == {DATA[-5000:]}
    assert asyncio.run(in_a_notebook()) == DATA[-5000:]
    assert len(seen()) == 25


def test_closes_unused_source(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://127.0.0.1:9")
    source = open_s3()
    assert (source.url, source.connections) == (URL, 4)
    source.close()
    source.close()
    with pytest.raises(SourceUnavailable, match="was closed"):
        source.get(PATH, SUFFIX)


# ---- against a server that misbehaves ----


class Faulty:
    """A server with one source, used for many faults."""

    def __init__(self, server: FaultServer, source: S3Source, faults: dict[int, Fault]) -> None:
        self.server = server
        self.source = source
        self._faults = faults

    def script(self, *faults: Fault | None) -> None:
        """What the next requests meet."""
        self.server.settle()
        self.server.reset()
        self._faults.clear()
        self._faults |= {number: fault for number, fault in enumerate(faults) if fault}


@pytest.fixture(scope="module")
def faulty() -> Iterator[Faulty]:
    faults: dict[int, Fault] = {}

    def script(request: Request) -> Fault | None:
        return faults.get(request.number)

    files = {f"{BUCKET}/{path}": data for path, data in FILES.items()}
    with FaultServer(files, script=script, rate=1_000_000.0) as server, pytest.MonkeyPatch.context() as patch:
        use(patch, server.url)
        with closing(open_s3(f"s3://{BUCKET}/")) as source:
            yield Faulty(server, source, faults)


@pytest.mark.parametrize("requested", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("kind", PROMPT, ids=lambda kind: kind.value)
def test_every_fault_raises_its_error_and_passes(
    faulty: Faulty, kind: Kind, requested: ByteRange | SuffixRange
) -> None:
    error = expected(kind, requested)
    faulty.script(quick(kind))
    if error:
        with pytest.raises(error) as raised:
            faulty.source.get(PATH, requested)
        assert raised.type is error
        assert f"s3://{BUCKET}/{PATH}" in str(raised.value)
    else:
        assert len(faulty.source.get(PATH, requested).body) == len(RIGHT[requested])
    assert faulty.source.get(PATH, requested).body == RIGHT[requested]
    first, second = faulty.server.settle()  # one request each
    assert first.fault
    assert first.body_bytes_sent <= 5000 + (256 << 10)
    assert not second.fault


def test_slow_responses_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = Timeouts(connect=5.0, silence=1.5, total=5.0)  # the SDK takes some time to prepare
    files = {f"{BUCKET}/{kind.value}/{name}": DATA for kind in SLOW for name in WANTED}

    def script(request: Request) -> Fault | None:
        kind = request.path.split("/")[1]
        return quick(Kind(kind)) if kind != "first" and request.attempt < 1 else None

    with FaultServer(files, script=script) as server:
        use(monkeypatch, server.url)
        paths = [path.removeprefix(f"{BUCKET}/") for path in files]
        with closing(open_s3(f"s3://{BUCKET}/", impatient)) as source, ThreadPoolExecutor(len(files)) as executor:

            def twice(path: str) -> bytes:
                requested = WANTED[path.partition("/")[2]]
                with pytest.raises(Unreachable, match=f"{path}: no usable answer"):
                    source.get(path, requested)
                return source.get(path, requested).body

            with pytest.raises(NotFound):
                source.get("first", SUFFIX)  # preparing takes time, too
            bodies = list(executor.map(twice, paths))
            assert bodies == [RIGHT[WANTED[path.partition("/")[2]]] for path in paths]
        assert server.requests == 1 + 2 * len(files)


def test_never_follows_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would follow them, and bring the session's token along."""
    with FaultServer({}, host="127.0.0.2") as elsewhere:
        waiting = iter([quick(Kind.REDIRECT_AWAY, variant=variant, target=elsewhere.url) for variant in range(4)])
        with FaultServer({f"{BUCKET}/x": DATA}, script=lambda _: next(waiting, None)) as server:
            use(monkeypatch, server.url)
            with closing(open_s3(f"s3://{BUCKET}/")) as source:
                for _ in range(4):
                    with pytest.raises(SourceError, match=r"s3://a-bucket/x redirects to 'http://127\.0\.0\.2"):
                        source.get("x", SUFFIX)
            assert len(server.settle()) == 4
        assert not elsewhere.log


def test_request_headers(faulty: Faulty) -> None:
    faulty.script()
    answer = faulty.source.get(PATH, SUFFIX)
    faulty.source.get(PATH, BOUNDED, pin=FileVersion(answer.total_size, answer.etag))
    faulty.source.get(PATH, None, pin=FileVersion(answer.total_size, f"W/{answer.etag}"))
    log = faulty.server.settle()
    assert [exchange.range_header for exchange in log] == ["bytes=-5000", "bytes=1000-5999", None]
    assert [exchange.headers.get("if-match") for exchange in log] == [None, answer.etag, None]
    assert all("agent/1" in exchange.headers["user-agent"] for exchange in log)


def test_errors_contain_no_secrets(faulty: Faulty) -> None:
    messages = [repr(faulty.source), str(faulty.source), faulty.source.url]
    for kind in sorted(set(PROMPT) - UNDETECTABLE, key=str):
        faulty.script(quick(kind))
        with suppress(SourceError, ValueError):
            try:
                faulty.source.get(PATH, SUFFIX)
            except Exception as error:
                messages += [f"{error} {error!r} {error.__cause__} {error.__cause__!r}"]
                raise
    text = "\n".join(messages)
    assert "AccessDenied" in text
    assert canaries.MARK not in text
    assert "Signature" not in text
    assert canaries.AWS["AWS_SECRET_ACCESS_KEY"] not in repr([each.headers for each in faulty.server.settle()])


def test_close_ends_running_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals()
    with FaultServer({}, script=arrivals) as server, ThreadPoolExecutor(6) as executor:
        use(monkeypatch, server.url)
        source = open_s3()
        asking = [executor.submit(source.get, PATH, SUFFIX) for _ in range(6)]
        arrivals.wait(4)
        source.close()
        for future in asking:
            with pytest.raises(SourceUnavailable, match=f"{URL} was closed"):
                future.result(timeout=5)
    gc.collect()
