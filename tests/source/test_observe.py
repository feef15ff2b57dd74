"""Every request is observed, with its purpose, and limits of requests hold."""

from pathlib import Path

import pytest

from catalogue.errors import LimitReached, SourceUnavailable, TooExpensive
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.observe import RequestEvent, RequestLimit
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, first
from tests.support.sources import FILES, PATH


def test_observes_each_request_of_a_harvest_and_a_query(mirror: Path, tmp_path: Path, crawl: str) -> None:
    events: list[RequestEvent] = []
    with FaultServer(mirror) as server:
        with catalogue_in(tmp_path, server.url, trace=events.append) as cat:
            cat.harvest(crawl)
            harvest = events.copy()
            events.clear()
            sent = server.requests
            cat.captures("*.com", crawls=crawl, index="columnar", columns="url").to_arrow()
            reads = events.copy()
            events.clear()
            cat.captures("*.com", crawls=crawl, index="columnar", columns="url").to_arrow()
            assert (cat.requests, cat.bytes) == (len(harvest) + len(reads), sum(each.bytes for each in harvest + reads))
        assert server.requests == len(harvest) + len(reads)
        assert {each.reason for each in harvest} == {"list of crawls", "list of files", "footer"}
        assert sorted(each.path for each in reads) == sorted(each.path for each in server.log[sent:])
    assert {each.path for each in harvest if each.reason == "footer"} >= {each.path for each in reads}
    assert (
        {"url", "url_surtkey"}
        >= {name for each in reads for name in each.reason.partition(" of ")[2].split(", ")}
        > set()
    )
    assert all(each.cached and each.seconds > 0 and not each.error for each in events)
    ranges = [[(each.path, each.requested, each.bytes) for each in some] for some in (reads, events)]
    assert sorted(ranges[0], key=str) == sorted(ranges[1], key=str)


def test_observes_failed_attempts(mirror: Path, tmp_path: Path) -> None:
    events: list[RequestEvent] = []
    with (
        FaultServer(mirror, script=first(2, Kind.CUT_FIN)) as server,
        catalogue_in(tmp_path, server.url, trace=events.append, patience=0.01) as cat,
    ):
        cat.crawls(fetch=True)
    assert [bool(each.error) for each in events] == [True, True, False]
    assert "failed: " in str(events[0])
    assert str(events[2]).endswith("list of crawls")


def test_traces_requests_on_the_error_stream(command: Command, crawl: str) -> None:
    ran = command("crawls", "--trace", "--quiet")
    assert ran.status == 0
    assert "request: collinfo.json, complete: " in ran.err
    assert len(ran.err.splitlines()) == 1
    assert crawl in ran.out


def test_limit_stops_before_the_next_request(tmp_path: Path) -> None:
    with FaultServer(FILES, script=lambda request: Fault(Kind.CUT_FIN) if request.number == 1 else None) as server:
        settings = Settings(source=server.url, cache=tmp_path / "cache", patience=0.01)
        limit = RequestLimit(3)
        session = Session(tmp_path / "data", settings, limit=limit)
        other = session.share()
        session.source.get(PATH, ByteRange(0, 10))  # the second attempt succeeds
        other.source.get(PATH, ByteRange(0, 10))
        assert limit.used == limit.most
        with pytest.raises(TooExpensive, match="limit of 3 requests is reached"):
            session.open_source(server.url).get(PATH, ByteRange(10, 20))
        session.close()
        other.close()
        assert server.requests == 3


def test_limit_can_be_lowered_for_a_block_and_refused_requests_are_not_counted(tmp_path: Path) -> None:
    limit = RequestLimit(3)
    with FaultServer(FILES) as server:
        session = Session(tmp_path / "data", Settings(source=server.url, cache=tmp_path / "cache"), limit=limit)
        with limit.within(1):
            session.source.get(PATH, ByteRange(0, 10))
            with pytest.raises(LimitReached):
                session.source.get(PATH, ByteRange(0, 10))
        assert limit.most - limit.used == 2
        with limit.within(100):
            assert limit.most - limit.used == 2
        session.source.get(PATH, ByteRange(0, 10))
        assert session.requests == limit.used == server.requests == 2
        session.close()


def test_abort_closes_other_sources_too(mirror: Path, tmp_path: Path) -> None:
    with FaultServer(mirror) as server:
        session = Session(tmp_path / "data", Settings(source=server.url, cache=tmp_path / "cache"))
        before = session.open_source(server.url)
        session.abort()
        for source in (before, session.open_source(server.url), session.source):
            with pytest.raises(SourceUnavailable):
                source.get("collinfo.json")
        assert not server.requests
        session.close()
