"""Tests of all sources: HTTP, S3 and folders."""

import asyncio
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from catalogue.errors import (
    ConnectionRefused,
    FileChanged,
    Forbidden,
    NameNotResolved,
    NotFound,
    NotParquet,
    QueryError,
    SourceUnavailable,
    Unreachable,
    WrongLength,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.http import HttpSource
from catalogue.source.open import FolderSource
from catalogue.source.s3 import S3Source
from tests.support.faults import FaultServer
from tests.support.read_only import as_nobody
from tests.support.sources import (
    AGENT,
    BOUNDED,
    DATA,
    FILES,
    PATH,
    SUFFIX,
    Arrivals,
    Served,
    open_http,
    open_s3,
    use_s3,
)

Source = FolderSource | HttpSource | S3Source
ALL = FILES | {"empty": b"", "one": b"1"}


@pytest.fixture(params=["http", "s3"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with Served(request.param, ALL).open() as opened:
        yield opened
    gc.collect(1)  # new objects: unclosed sources warn now, and warnings are errors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    for path, data in ALL.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture(params=["folder", "http", "s3"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    if request.param == "folder":
        with closing(FolderSource(request.getfixturevalue("folder"), connections=4)) as source:
            yield source
    else:
        with Served(request.param, ALL).open() as opened:
            yield opened.source


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("requested", "start", "end"),
    [
        (SuffixRange(1), 299_999, 300_000),
        (SuffixRange(300_000), 0, 300_000),
        (SuffixRange(999_999), 0, 300_000),
        (ByteRange(0, 1), 0, 1),
        (ByteRange(12_345, 23_456), 12_345, 23_456),
        (ByteRange(299_999, 300_000), 299_999, 300_000),
        (None, 0, 300_000),
    ],
)
def test_reads_ranges_suffixes_and_documents(
    source: Source, requested: ByteRange | SuffixRange | None, start: int, end: int
) -> None:
    answer = source.get(PATH, requested)
    assert (answer.body == DATA[start:end], answer.start, answer.total_size) == (True, start, 300_000)
    assert answer.etag
    assert isinstance(source, FolderSource) or (answer.last_modified or "").endswith("GMT")
    assert source.get(PATH, requested, pin=FileVersion(answer.total_size, answer.etag)) == answer
    assert source.get("one").body == b"1"


def test_errors_name_the_file(source: Source) -> None:
    with pytest.raises(NotFound, match=r"none\.parquet does not exist") as missing:
        source.get("none.parquet", SUFFIX)
    assert isinstance(missing.value, FileNotFoundError)
    for requested in (SUFFIX, ByteRange(0, 1)):
        with pytest.raises(NotParquet, match="empty"):
            source.get("empty", requested)
    assert source.get("empty").body == b""
    for start in (299_999, 300_000):
        with pytest.raises(FileChanged, match=r"part 0\.parquet is shorter"):
            source.get(PATH, ByteRange(start, 300_001))


def test_closed_source_raises(source: Source) -> None:
    assert source.connections == 4
    source.close()
    source.close()
    with pytest.raises(SourceUnavailable, match=f"{source.url} was closed"):
        source.get(PATH, SUFFIX)


def test_request_headers(served: Served) -> None:
    source = served.source
    etag = source.get(PATH, SUFFIX).etag
    source.get(PATH, BOUNDED, pin=FileVersion(300_000, etag))
    source.get(PATH, pin=FileVersion(300_000, f"W/{etag}"))
    log = served.exchanges()
    assert [exchange.range_header for exchange in log] == ["bytes=-5000", "bytes=1000-5999", None]
    assert [exchange.headers.get("if-match") for exchange in log] == [None, etag, None]
    for exchange in log:
        assert exchange.method == "GET"
        assert exchange.headers["accept-encoding"] == "identity"
        assert not {"cookie", "referer", "x-amz-checksum-mode"} & set(exchange.headers)
        assert AGENT in exchange.headers["user-agent"]
        assert ("authorization" in exchange.headers) == isinstance(source, S3Source)
    assert {exchange.connection for exchange in log} == {0}  # the connection is reused


@pytest.mark.in_part(2)
def test_works_in_threads_and_inside_a_running_event_loop(served: Served) -> None:
    async def in_a_notebook() -> bytes:
        return served.source.get(PATH, SUFFIX).body

    with ThreadPoolExecutor(16) as executor:  # all need the first connection
        answers = executor.map(lambda _: served.source.get(PATH, SUFFIX), range(100))
        assert {answer.body for answer in answers} == {DATA[-5000:]}
    assert asyncio.run(in_a_notebook()) == DATA[-5000:]
    assert served.server.requests == 101
    assert {exchange.connection for exchange in served.exchanges()} <= {0, 1, 2, 3}


@pytest.mark.parametrize("protocol", ["http", "s3"])
def test_close_ends_running_requests(protocol: str) -> None:
    arrivals = Arrivals()
    with Served(protocol, {}, arrivals).open() as served, ThreadPoolExecutor(6) as executor:
        running = [executor.submit(served.source.get, PATH, SUFFIX) for _ in range(6)]
        arrivals.wait(4)
        served.source.close()
        for future in running:
            with pytest.raises(SourceUnavailable, match="was closed"):
                future.result(timeout=5)
    gc.collect(1)


@pytest.mark.parametrize("protocol", ["http", "s3"])
@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("http://name.invalid/", NameNotResolved, r"^the name [a-z.-]*name\.invalid cannot be resolved"),
        ("http://127.0.0.1:1/", ConnectionRefused, "^nothing listens at http://127.0.0.1:1/ "),
    ],
)
def test_names_the_host_without_a_connection(
    protocol: str, url: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_s3(monkeypatch, url)
    with closing(open_s3() if protocol == "s3" else open_http(url)) as source, pytest.raises(error, match=message):
        source.get(PATH, SUFFIX)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(("AWS_ENDPOINT_URL", "nowhere"), ("AWS_DEFAULT_REGION", "a b"), ("AWS_CONFIG_FILE", __file__)),
        *(("AWS_CA_BUNDLE", "/no/such/file"), ("AWS_CA_BUNDLE", __file__)),
    ],
)
def test_invalid_settings_of_aws_are_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    use_s3(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    with closing(open_s3()) as source, pytest.raises(QueryError, match=f"invalid settings of AWS.*{variable[-6:]}"):
        source.get(PATH, SUFFIX)


@pytest.mark.parametrize("missing", ["both", "profile", "secret"])
def test_missing_credentials_error_names_the_next_step(
    monkeypatch: pytest.MonkeyPatch, missing: str, tmp_path: Path
) -> None:
    with FaultServer({}) as server:
        use_s3(monkeypatch, server.url)
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        if missing != "secret":
            monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        if missing == "profile":
            (tmp_path / "config").write_text("[default]\n")
            monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
            monkeypatch.setenv("AWS_PROFILE", "another")
        with closing(open_s3()) as source, pytest.raises(Forbidden, match="needs AWS credentials") as raised:
            source.get(PATH, SUFFIX)
        assert server.requests == 0
    assert "aws configure" in str(raised.value)
    assert "the default source, which needs none" in str(raised.value)


def test_rejects_files_that_changed(folder: Path) -> None:
    source = FolderSource(folder)
    seen = source.get(PATH, SUFFIX)
    pin = FileVersion(seen.total_size, seen.etag)
    os.utime(folder / PATH, ns=(1, 1))
    for requested in (SUFFIX, BOUNDED, None):
        with pytest.raises(FileChanged, match="ETag"):
            source.get(PATH, requested, pin=pin)
        assert source.get(PATH, requested, pin=FileVersion(seen.total_size, None)).total_size == 300_000
    (folder / PATH).write_bytes(b"")
    for requested in (SUFFIX, BOUNDED, None):
        with pytest.raises(FileChanged, match=r"part 0\.parquet"):
            source.get(PATH, requested, pin=pin)


PATHS = ["../secret", "cc-index/../../secret", "cc-index/../empty", "cc-index", "", "empty/x", "a\0b", "/etc/hostname"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_outside_of_the_folder_are_not_found(folder: Path, path: str) -> None:
    with pytest.raises(NotFound):
        FolderSource(folder).get(path)


def test_unreadable_files_are_errors(folder: Path) -> None:
    source = FolderSource(folder)
    os.mkfifo(folder / "pipe")
    with pytest.raises(NotFound):
        source.get("pipe", SUFFIX)
    (folder / "loop").symlink_to("loop")
    with pytest.raises(Unreachable, match="loop cannot be read: Too many levels"):
        source.get("loop", SUFFIX)
    (folder / PATH).chmod(0)
    with as_nobody(), pytest.raises(Forbidden, match=r"part 0\.parquet cannot be read") as raised:
        source.get(PATH, SUFFIX)
    assert isinstance(raised.value, PermissionError)


def test_follows_links_to_other_disks(folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    assert FolderSource(folder).get("link").body == b"secret"


def test_rejects_documents_over_the_maximum_size(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(MAX_DOCUMENT + 1)
    with pytest.raises(WrongLength, match="large has 16,777,217 bytes"):
        FolderSource(folder).get("large")
    assert FolderSource(folder).get("large", SuffixRange(4)).body == bytes(4)
