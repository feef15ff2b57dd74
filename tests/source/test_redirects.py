"""Redirects of a host are followed to the hosts that its rules name, and signed addresses stay secret."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from catalogue.errors import CatalogueError, FileChanged, NotFound, Redirected
from catalogue.settings import Host, Settings
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.observe import RequestEvent
from catalogue.source.open import open_source
from catalogue.source.retry import PoliteSource
from tests.support import canaries
from tests.support.clocks import FakeClock
from tests.support.faults import Fault, FaultServer, Kind, Request, always, first
from tests.support.second_hosts import SIGNED, SecondHost, second_host
from tests.support.sources import DATA, FILES, PATH, SUFFIX, quick

REST = [ByteRange(start, start + 1000) for start in range(0, 20_000, 1000)]


@contextmanager
def opened(host: SecondHost, folder: Path, **options: Any) -> Iterator[PoliteSource]:
    settings = Settings(source=host.rules.address, hosts=(host.rules,), cache=folder, patience=0.01, contact="me@x.org")
    with closing(open_source(host.rules.address, settings, **options)) as source:
        yield source


def test_follows_a_redirect_with_the_range_and_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (canaries.ENVIRONMENT | {"HF_TOKEN": canaries.MARK}).items():
        monkeypatch.setenv(name, value)
    with second_host(FILES) as host, opened(host, tmp_path) as source:
        response = source.get(PATH, SUFFIX)
        assert (response.body, response.total_size) == (DATA[-5000:], len(DATA))
        pinned = source.get(PATH, ByteRange(5, 50), pin=response.version)
        assert pinned.body == DATA[5:50]
        resolve, suffix, bounded = host.log()
        assert resolve.range_header == suffix.range_header == "bytes=-5000"
        assert bounded.range_header == "bytes=5-49"
        assert "if-match" not in resolve.headers
        assert bounded.headers["if-match"] == response.etag
        assert response.etag
        assert response.etag.startswith('"xet-')
        for each in (resolve, suffix, bounded):
            assert not {"authorization", "cookie", "referer", "proxy-authorization"} & each.headers.keys()
        assert source.requests == 3
        assert source.bytes == 5045
        source.get("other.parquet", SUFFIX)
        assert {each.connection for each in host.log()} == {0}  # of each server


def test_threads_share_the_address_of_a_file_until_it_expires(tmp_path: Path) -> None:
    with second_host(FILES) as host, opened(host, tmp_path) as source, ThreadPoolExecutor(8) as threads:
        for redirects in (1, 2):
            bodies = threads.map(lambda part: source.get(PATH, part).body, REST)
            assert [*bodies] == [DATA[part.start : part.end] for part in REST]
            assert len(host.redirecting.settle()) == redirects
            host.expired.add(PATH)


def test_expired_address_costs_two_requests(tmp_path: Path) -> None:
    with second_host(FILES) as host, opened(host, tmp_path) as source:
        source.get(PATH, SUFFIX)
        host.expired.add(PATH)
        assert source.get(PATH, SUFFIX).body == DATA[-5000:]
        assert [each.status for each in host.log()] == [*[(302, 307)[n] for n in (0, 1)], 206, 403, 206]


def test_answers_without_a_redirect_are_checked_as_ever(tmp_path: Path) -> None:
    with second_host({}) as host, FaultServer(FILES) as server:
        rules = Host("direct", server.url, redirects=(SIGNED,))
        direct = SecondHost(server, host.signed, rules)
        with opened(direct, tmp_path) as source:
            version = source.get(PATH, SUFFIX).version
            assert source.get(PATH, SUFFIX, pin=version).body == DATA[-5000:]
            with pytest.raises(FileChanged, match="ETag"):
                source.get(PATH, SUFFIX, pin=version._replace(etag='"other"'))
            with pytest.raises(NotFound):
                source.get("none", SUFFIX)


def test_addresses_are_relative_to_that_of_the_file(tmp_path: Path) -> None:
    """RFC 9110, section 10.2.2."""

    def redirect(request: Request) -> Fault | None:
        return Fault(Kind.REDIRECT_AWAY, target="../b.parquet?x=1") if request.path == "of/c%/a.parquet" else None

    with FaultServer({"of/b.parquet": DATA}, script=redirect, host="127.0.0.2") as server, second_host({}) as host:
        rules = Host("relative", server.url, redirects=("127.0.0.2",))
        with opened(SecondHost(server, host.signed, rules), tmp_path) as source:
            assert source.get("of/c%/a.parquet", SUFFIX).body == DATA[-5000:]


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.4/{{path}}",  # another host than the rules name
        "http://localhost/{{path}}",
        "http://127.0.0.3.example/{{path}}",
        "https://127.0.0.3/{{path}}",  # from http
        "http://me:secret@127.0.0.3/{{path}}",
        "http://me@127.0.0.3/{{path}}",
        "ftp://127.0.0.3/{{path}}",
        "//127.0.0.4/{{path}}",
        "/elsewhere/{{path}}",
        "http://127.0.0.3:99999/{{path}}",
        "http://[127.0.0.3/{{path}}",
        "http://127.0.0.3/\t{{path}}",
        "http://127.0.0.3/ {{path}}",
    ],
)
def test_follows_no_other_redirects(target: str, tmp_path: Path) -> None:
    with second_host(FILES, target=target) as host, opened(host, tmp_path) as source:
        with pytest.raises(Redirected, match=r"which is not followed; use its address as the source, or .*redirects"):
            source.get(PATH, SUFFIX)
        assert host.requests == 1


def test_follows_one_redirect_only(tmp_path: Path) -> None:
    again = always(Fault(Kind.REDIRECT_AWAY, target=f"http://{SIGNED}/"))
    with second_host(FILES, faults=again) as host, opened(host, tmp_path) as source:
        with pytest.raises(Redirected, match="which is not followed"):
            source.get(PATH, SUFFIX)
        assert host.requests == 2


@pytest.mark.parametrize("pattern", ["127.0.0.3", "*.0.0.3"])
def test_rules_name_hosts_or_their_ends(pattern: str, tmp_path: Path) -> None:
    with second_host(FILES, redirects=(pattern,)) as host, opened(host, tmp_path) as source:
        assert source.get(PATH, SUFFIX).body == DATA[-5000:]


def test_addresses_are_in_no_message(tmp_path: Path) -> None:
    """Logs are searched by a fixture of all tests."""
    events: list[RequestEvent] = []
    texts: list[str] = []
    for kind in [*Kind]:
        with (
            second_host(FILES, faults=first(1, quick(kind, hold=0.05, interval=0.01))) as host,
            opened(host, tmp_path, observer=events.append, attempts=1, notify=texts.append) as source,
        ):
            try:
                source.get(PATH, SUFFIX)
            except CatalogueError as error:
                chain: BaseException | None = error
                while chain:
                    texts.append(f"{chain!r} {chain}")
                    chain = chain.__cause__ or chain.__context__
            texts.append(repr(source))
    texts += [f"{event} {event!r} {json.dumps(str(event))}" for event in events]
    assert any("redirected" in text for text in texts)
    assert any(PATH in text and "5.0 kB" in text for text in texts)
    assert not [text for text in texts if canaries.MARK in text or "Signature" in text]


def test_repetition_after_the_address_was_dropped_returns_the_bytes(tmp_path: Path) -> None:
    """Another thread drops the address and gets no new one, while a request that had the old address waits."""

    class Dropping(FakeClock):
        def sleep(self, seconds: float) -> None:
            if not host.expired:
                host.expired.add(PATH)
                with pytest.raises(NotFound):
                    source.get(PATH, ByteRange(0, 10))
            super().sleep(seconds)

    fails, gone = {1: Fault(Kind.SLOW_DOWN)}, {1: Fault(Kind.NOT_FOUND)}
    with (
        second_host(
            FILES, faults=lambda each: fails.get(each.number), redirect_faults=lambda each: gone.get(each.number)
        ) as host,
        opened(host, tmp_path, clock=Dropping()) as source,
    ):
        source.get(PATH, SUFFIX)
        assert source.get(PATH, ByteRange(5, 50)).body == DATA[5:50]
        assert [each.status for each in host.redirecting.settle()] == [302, 404, 302]
