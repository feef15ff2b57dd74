"""Sources of addresses, with the policy of their host."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalogue.errors import QueryError, Throttled, Unreachable
from catalogue.settings import COLLINFO_SOURCE, DEFAULT_SOURCE, Settings
from catalogue.source.http import HttpSource
from catalogue.source.open import FolderSource, open_source
from catalogue.source.rate_limit import COMMON_CRAWL, S3_COMMON_CRAWL, Clock, Policy
from catalogue.source.retry import ATTEMPTS
from catalogue.source.s3 import S3Source
from tests.support.clocks import FakeClock
from tests.support.faults import FaultServer, Kind, always
from tests.support.sources import DATA, FILES, PATH, SUFFIX


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("address", "url", "policy", "kind"),
    [
        (DEFAULT_SOURCE, DEFAULT_SOURCE, COMMON_CRAWL, HttpSource),
        (COLLINFO_SOURCE, COLLINFO_SOURCE, COMMON_CRAWL, HttpSource),
        ("https://data.commoncrawl.org", DEFAULT_SOURCE, COMMON_CRAWL, HttpSource),
        ("HTTPS://Data.CommonCrawl.Org/a", "https://Data.CommonCrawl.Org/a/", COMMON_CRAWL, HttpSource),
        ("https://data.commoncrawl.org./", "https://data.commoncrawl.org./", COMMON_CRAWL, HttpSource),
        ("https://data.commoncrawl.org:443/", "https://data.commoncrawl.org:443/", COMMON_CRAWL, HttpSource),
        ("https://commoncrawl.org/", "https://commoncrawl.org/", COMMON_CRAWL, HttpSource),
        ("https://ds5q9oxwqwsfj.cloudfront.net", "https://ds5q9oxwqwsfj.cloudfront.net/", COMMON_CRAWL, HttpSource),
        ("http://data.commoncrawl.org.example/", "http://data.commoncrawl.org.example/", Policy(), HttpSource),
        ("http://notcommoncrawl.org/", "http://notcommoncrawl.org/", Policy(), HttpSource),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", Policy(), HttpSource),
        ("http://[::1]:8080/a", "http://[::1]:8080/a/", Policy(), HttpSource),
        ("s3://commoncrawl", "s3://commoncrawl/", S3_COMMON_CRAWL, S3Source),
        ("S3://commoncrawl/a/", "s3://commoncrawl/a/", S3_COMMON_CRAWL, S3Source),
        ("s3://commoncrawl-copy/a", "s3://commoncrawl-copy/a/", Policy(connections=32), S3Source),
    ],
)
def test_policy_of_each_address(settings: Settings, address: str, url: str, policy: Policy, kind: type[object]) -> None:
    with closing(open_source(address, settings)) as source:
        assert source.url == url
        assert source.limiter.policy == policy
        assert source.limiter.rate == policy.rate
        assert source.connections == policy.connections
        assert type(source.inner) is kind
        assert isinstance(source.limiter.clock, Clock)


def test_common_crawl_policy() -> None:
    """The numbers are explained in ``rate_limit``."""
    pauses = (300.0, 900.0)
    assert Policy() == Policy(
        rate=None, burst=10, connections=32, slow_down=1.0, pauses=pauses, refused=5, never_honoured=2
    )
    many = Policy(pauses=pauses, refused=12, never_honoured=4)
    assert replace(many, rate=5.0, burst=10, connections=4, slow_down=10.0) == COMMON_CRAWL
    assert replace(many, rate=100.0, burst=100, connections=32, slow_down=2.0) == S3_COMMON_CRAWL


def test_rejects_unknown_sources(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    folders = ["no/such/folder", str(tmp_path / "file"), "x" * 300, "data.commoncrawl.org"]
    for address in ["", "file:///etc", "gs://bucket/", "ftp://data.commoncrawl.org/", *folders]:
        with pytest.raises(QueryError, match="no folder" if address in folders else "invalid source") as raised:
            open_source(address, settings)
        assert repr(address[:200]) in str(raised.value)
        assert DEFAULT_SOURCE in str(raised.value)


def test_settings_override_the_policy(tmp_path: Path) -> None:
    settings = Settings(rate=0.5, connections=2, patience=0.0, cache=tmp_path)
    for address in (DEFAULT_SOURCE, "s3://commoncrawl/", "http://127.0.0.1/"):
        with closing(open_source(address, settings)) as source:
            policy = source.limiter.policy
            assert (policy.rate, policy.connections, policy.slow_down) == (0.5, 2, 0.0)
            assert source.connections == 2


def test_opens_a_folder(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "with ? and # and @"
    folder.mkdir()
    (folder / "x").write_bytes(DATA)
    with closing(open_source(str(folder), settings)) as source:
        assert isinstance(source.inner, FolderSource)
        assert source.get("x", SUFFIX).body == DATA[-5000:]
        assert source.url.startswith("file:///")
    with closing(open_source(str(folder), Settings(rate=5.0, cache=tmp_path / "cache"))) as source:
        source.get("x", SUFFIX)
        assert not (tmp_path / "cache").exists()  # a folder has no shared state


def test_one_state_file_per_host(tmp_path: Path) -> None:
    settings = Settings(rate=1000.0, cache=tmp_path)
    for address in ("http://LocalHost:1/", "http://localhost.:2/x/", "https://localhost/"):
        with closing(open_source(address, settings)) as source:
            source.limiter.acquire()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["localhost.json"]


@pytest.mark.parametrize(
    ("kind", "options", "requests", "message"),
    [
        (Kind.SLOW_DOWN, {"attempts": 2}, 2, "SlowDown"),
        (Kind.SLOW_DOWN, {"max_wait": 59.0}, 1, "SlowDown.*; try again in"),
        (Kind.DISCONNECT, {}, ATTEMPTS, "RemoteDisconnected"),
    ],
    ids=["attempts", "max_wait", "defaults"],
)
def test_passes_options_to_the_source(
    settings: Settings, kind: Kind, options: dict[str, Any], requests: int, message: str
) -> None:
    clock, messages = FakeClock(), list[str]()
    options = {"clock": clock, "notify": messages.append, **options}
    with (
        FaultServer(FILES, script=always(kind)) as server,
        closing(open_source(server.url, replace(settings, patience=60.0), **options)) as source,
    ):
        with pytest.raises((Throttled, Unreachable), match=message):
            source.get(PATH, SUFFIX)
        assert server.requests == requests
    if kind is Kind.SLOW_DOWN:
        assert len(clock.waits) == len(messages) == requests - 1
        assert all(60 <= wait <= 75 for wait in clock.waits)
