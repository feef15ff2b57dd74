"""Crawls that are stored, incomplete, missing, or harvested on demand."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from shutil import copytree, rmtree
from typing import Any
from urllib.parse import urlencode

import pytest

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO, SUBSETS
from catalogue.demo import LoopbackServer
from catalogue.errors import Busy
from catalogue.server.crawl_harvest import OnDemandHarvester
from catalogue.session import Session
from catalogue.settings import Settings
from tests.server.conftest import requests
from tests.support.amounts import EXAMPLES, in_part
from tests.support.crawls import crawl_of, table
from tests.support.faults import Fault, FaultServer, Kind, Request, only
from tests.support.serving import Failing, get, harvested_in_part, served_from, serving

READING_PATHS = (
    "/{}-index?url=example.com/*",
    "/api/query?url=example.com/*&crawl={}&subset=all",
    "/search?url=example.com/*&crawl={}&subset=all",
    "/{}/2022id_/http://no.example/",
)

PATHS = (*READING_PATHS, "/api/plan?url=example.com/*&crawl={}", "/api/row_groups?crawl={}")


def wait_for(text: str, messages: SimpleQueue[str]) -> list[str]:
    seen = [messages.get(timeout=60)]
    while text not in seen[-1]:
        seen.append(messages.get(timeout=60))
    return seen


@pytest.fixture(scope="module")
def without_cdx(mirror: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a source without CDX indexes, which would complete answers."""
    copy = copytree(mirror, tmp_path_factory.mktemp("columnar") / "mirror")
    rmtree(copy / "cc-index/collections", ignore_errors=True)
    return replace(settings, source=str(copy))


def test_missing_crawl_without_cdx_index_is_404(servers: tuple[str, str], crawl: str, whole_crawls: list[str]) -> None:
    address, other = servers[0], next(each for each in whole_crawls if each != crawl)
    why = f"{other} is not harvested, and the source has no CDX index of it"
    answer = get(address, f"/{other}-index?url=example.com/*")
    assert answer.status == 404
    assert answer.json["message"].startswith(f"No Captures found for: example.com/; {why}")
    assert answer.headers["catalogue-incomplete"].startswith(why)
    answer = get(address, f"/{other}-index?url=example.com/*&page=1")
    assert (answer.status, answer.json["message"]) == (400, "Page 1 invalid: First Page is 0, Last Page is 0")
    answer = get(address, f"/{other}-index?url=example.com/*&showNumPages=true")
    assert (answer.status, answer.text) == (200, '{"pages": 0, "pageSize": 5, "blocks": 0}')
    assert answer.headers["catalogue-incomplete"].startswith(why)
    answer = get(address, f"/{other}-index?url=example.com/*&to=2008")
    assert "catalogue-incomplete" not in answer.headers  # it was fetched later


STORED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "footers of warc": {"index": "columnar"},
    "all footers": {"subsets": "all", "index": "columnar"},
    "list of blocks": {"index": "cdx"},
    "footers of warc and list of blocks": {"index": "both"},
}


def test_what_is_stored_changes_no_answer(
    whole_mirror: Path, crawl_and_urls: tuple[str, list[str]], tmp_path: Path
) -> None:
    (crawl, urls), answers = crawl_and_urls, dict[str, list[tuple[int, list[str]]]]()
    hosts = sorted({url.split("/")[2] for url in urls})
    patterns = [
        *urls[:: len(urls) // 4],
        *(f"{host}/*" for host in hosts[:: -(-len(hosts) // EXAMPLES)]),
        f"*.{hosts[1]}",
        "*.nowhere.example",
    ]
    chosen_by_chance = [urlencode(words | {"pageSize": "1000"}) for words in requests(urls, 2 * EXAMPLES)]
    for name, words in STORED.items():
        chosen = Settings(source=str(whole_mirror), cache=tmp_path / name / "cache")
        with catalogue.open(tmp_path / name / "data", settings=chosen) as cat:
            if words:
                cat.harvest(crawl, **words)
        found = answers[name] = []
        with serving(tmp_path / name / "data", chosen, strict=True) as address:
            for pattern in patterns:
                path = f"/{crawl}-index?{urlencode({'url': pattern})}&pageSize=100"
                for more in ("", "&filter==status:404", "&limit=3&sort=reverse"):
                    answer = get(address, path + more)
                    assert "catalogue-incomplete" not in answer.headers
                    found.append((answer.status, answer.lines))
                pages = get(address, path + "&showNumPages=true").json["pages"]
                assert (pages > 0) is (found[-3][0] == 200)
                for times in ("&from=2099", "&from=2022090100&to=2022090101"):  # of no capture
                    counted = get(address, f"{path}{times}&showNumPages=true").json["pages"]
                    statuses = [get(address, f"{path}{times}&page={page}").status for page in range(counted + 1)]
                    assert statuses == [404] * max(1, counted) + [400] * (counted > 0)
            for answer in (get(address, f"/{crawl}-index?{query}") for query in chosen_by_chance):
                assert answer.status in {200, 400, 404}  # some hosts have a port next to a wildcard
                found.append((answer.status, answer.lines if answer.status == 200 else []))
            answer = get(address, "/search?url=example.com/*&to=2008&crawl=latest")  # no block is planned
            found.append((answer.status, re.findall("No capture matches", answer.text)))
            path = f"/{crawl}-index?url=*.com&pageSize=1"
            pages = [
                get(address, f"{path}&page={page}")
                for page in range(get(address, f"{path}&showNumPages=true").json["pages"])
            ]
            found += [(page.status, page.lines) for page in pages]
            assert [line for page in pages for line in page.lines] == get(address, f"{path}000").lines
    assert any(status == 200 for status, _ in answers["nothing"])
    assert (200, ["No capture matches"]) in answers["nothing"]
    for name in STORED:
        assert answers[name] == answers["nothing"], name


def test_crawls_that_are_not_listed_answer_and_are_not_the_latest(
    whole_mirror: Path, crawl_and_urls: tuple[str, list[str]], tmp_path: Path
) -> None:
    crawl, source = crawl_and_urls[0], copytree(whole_mirror, tmp_path / "source")
    (source / COLLINFO).write_bytes(b'[{"id": "CC-MAIN-2013-20"}]')
    settings = Settings(source=str(source))
    with serving(tmp_path / "empty", settings) as address:
        expected = get(address, f"/{crawl}-index?url=example.com/*")
        assert get(address, "/CC-MAIN-2012-05-index?url=example.com/*").status == 404
    harvested_in_part(tmp_path / "data", settings, crawl, "all")
    with serving(tmp_path / "data", settings) as address:
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert (answer.status, answer.lines) == (expected.status, expected.lines)
        assert answer.status == 200
        assert "CC-MAIN-2013-20" in get(address, "/latest-index?url=example.com/*").json["message"]


def test_latest_is_the_newest_listed_crawl(settings: Settings, whole_crawls: list[str], tmp_path: Path) -> None:
    stored, source = whole_crawls[0], copytree(settings.source, tmp_path / "source")
    reading = replace(settings, source=str(source))
    for listed in (json.loads((source / COLLINFO).read_bytes())[0]["id"], "CC-MAIN-2013-20", stored):
        (source / COLLINFO).write_text(json.dumps([{"id": listed}]))
        with serving(harvested_in_part(tmp_path / listed, reading, stored, "all"), reading) as address:
            answer, named = (get(address, f"/{name}-index?url=example.com/*") for name in ("latest", stored))
            assert named.status == 200
            assert answer.body == named.body if listed == stored else listed in answer.json["message"]
            message = get(address, "/all-index?url=example.com").json["message"]
            assert message == "there is no crawl all; see /collinfo.json"


@pytest.fixture(scope="module")
def servers(without_cdx: Settings, crawl: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A lenient and a strict server where one of the subsets of a crawl is stored."""
    data = harvested_in_part(tmp_path_factory.mktemp("pages") / "data", without_cdx, crawl)
    with serving(data, without_cdx) as lenient, serving(data, without_cdx, strict=True) as strict:
        yield lenient, strict


def test_incomplete_answers_have_a_header(servers: tuple[str, str], crawl: str) -> None:
    for more in ("", "&showNumPages=true", "&filter==status:299"):
        answer = get(servers[0], f"/{crawl}-index?url=example.com/*{more}")
        assert f"files of {crawl}, crawldiagnostics, are not harvested" in answer.headers["catalogue-incomplete"]


@in_part(2)
@pytest.mark.parametrize("path", [path for path in PATHS if "/plan" not in path])
def test_every_api_of_a_strict_server_refuses_incomplete_answers(
    servers: tuple[str, str], crawl: str, whole_crawls: list[str], path: str
) -> None:
    lenient, strict = servers
    stored, other = crawl, next(each for each in whole_crawls if each != crawl)
    answer = get(lenient, path.format(stored))
    assert answer.status in {200, 404}
    if path in READING_PATHS:
        told = answer.text + answer.headers.get("catalogue-incomplete", "")
        assert f"catalogue harvest --crawl {stored} --subset " in told
    assert get(lenient, path.format(other)).status == 404
    refused = [get(strict, path.format(each)) for each in (stored, other)]
    assert [each.status for each in refused] == [422 if path in READING_PATHS else answer.status, 422]
    assert f"catalogue harvest --crawl {other}" in refused[1].text


def test_stored_lists_need_no_list_of_crawls(
    by_index: Path, whole_mirror: Path, whole_settings: Settings, crawl_and_urls: tuple[str, list[str]], tmp_path: Path
) -> None:
    crawl, urls = crawl_and_urls
    with (
        FaultServer(whole_mirror, script=only("collinfo.json", Kind.NOT_FOUND)) as source,
        served_from(source.url, by_index / "cdx", whole_settings, tmp_path) as address,
    ):
        named, latest = (get(address, f"/{name}-index?{urlencode({'url': urls[0]})}") for name in (crawl, "latest"))
        assert (named.status, latest.status) == (200, 503)  # which crawl is the latest one is not known
        listed = get(address, "/collinfo.json")
        assert crawl in {each["id"] for each in listed.json}
        for told in (latest.json["message"], listed.headers["catalogue-incomplete"]):
            assert "cannot fetch the list of crawls" in told
        shown = get(address, f"/search?{urlencode({'url': urls[0], 'crawl': crawl})}")
        assert (shown.status, "Blocks of the CDX index" in shown.text) == (200, True)


def test_first_search_page_offers_listed_crawls(settings: Settings, whole_crawls: list[str], tmp_path: Path) -> None:
    with serving(tmp_path / "data", settings) as address:
        assert f'value="{whole_crawls[0]}"' in get(address, "/search").text


def test_latest_of_an_old_list_is_incomplete(whole_mirror: Path, whole_settings: Settings, tmp_path: Path) -> None:
    away: bool = False

    def script(request: Request) -> Fault | None:
        return Fault(Kind.DISCONNECT) if away and request.path == COLLINFO else None

    with FaultServer(whole_mirror, script=script) as source:
        settings = replace(whole_settings, source=source.url)
        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            crawl = cat.captures("example.com", crawls="latest").question.crawls[0]
            known = cat.session.store.get("documents", COLLINFO)
            assert known
            old = replace(known, taken="2020-01-01T00:00:00+00:00")
            cat.session.store.put("documents", [(COLLINFO, old)])
        away = True
        for strict in (False, True):
            with serving(tmp_path / "data", settings, strict=strict) as address:
                source.reset()
                named = get(address, f"/{crawl}-index?url=example.com/*")  # a listed crawl does not need the list
                assert (named.status, COLLINFO in {each.path for each in source.log}) == (200, False)
                answer = get(address, "/latest-index?url=example.com/*")
            assert answer.status == (422 if strict else 200)
            assert "other crawls may exist" in answer.headers.get("catalogue-incomplete", answer.text)


@pytest.mark.parametrize(("damaged", "statuses"), [(1, [200]), (2, [409, 200])])
def test_damaged_blocks_are_requested_again(
    by_index: Path,
    whole_mirror: Path,
    whole_settings: Settings,
    crawl_and_urls: tuple[str, list[str]],
    tmp_path: Path,
    damaged: int,
    statuses: list[int],
) -> None:
    path = f"/{crawl_and_urls[0]}-index?{urlencode({'url': crawl_and_urls[1][0]})}"

    def script(request: Request) -> Fault | None:
        is_damaged = "/cdx-0" in request.path and request.attempt < damaged
        return Fault(Kind.FLIPPED_BIT) if is_damaged else None

    with (
        FaultServer(whole_mirror, script=script) as source,
        served_from(source.url, by_index / "cdx", whole_settings, tmp_path) as address,
        serving(by_index / "columnar", whole_settings) as other,
    ):
        answers = [get(address, path) for _ in statuses]
        assert [answer.status for answer in answers] == statuses
        assert answers[-1].text == get(other, path).text
        assert get(other, "/api/openapi.json").json["paths"]["/api/query"]["get"]["responses"].keys() >= {
            *map(str, statuses)
        }


def test_harvests_requested_crawl(
    server: LoopbackServer, settings: Settings, harvested: Catalogue, crawl: str, tmp_path: Path
) -> None:
    messages: SimpleQueue[str] = SimpleQueue()
    wanted: dict[str, Any] = {"on_demand": True, "values": ["content_languages"], "notify": messages.put}
    reading = replace(settings, source=server.url, cache=tmp_path / "cache", rate=1000)
    with serving(tmp_path / "data", reading, **wanted) as address:
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True)
        assert crawl in answer.json["message"]
        wait_for("dictionary pages stored", messages)
        assert get(address, "/api/status").json["requests"] == len(server.log)
    with serving(tmp_path / "data", settings, **wanted) as address:
        plan = get(address, f"/api/plan?url=*&lang=zza&crawl={crawl}").json["plan"]
        assert (plan["row_groups"], plan["row_groups_ruled_out"] > 0) == (0, True)
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert (answer.status, "catalogue-incomplete" in answer.headers) == (200, False)
        of_each = [harvested.captures("example.com/*", crawls=crawl, subsets=each).count() for each in SUBSETS]
        assert sum(map(bool, of_each)) > 1  # so that several subsets are needed
        assert len(answer.text.splitlines()) == sum(of_each)
        with catalogue.open(tmp_path / "data", settings=settings) as other:
            other.forget(crawl)
        assert get(address, f"/{crawl}-index?url=example.com/*").status == 503
        wait_for("dictionary pages stored", messages)
        assert get(address, f"/{crawl}-index?url=example.com/*").body == answer.body


OF_PART = (
    *("/search?url=*.example.com&subset=all&crawl={}", "/site?url=example.com&crawl={}"),
    "/api/query?url=*.com&subset=all&crawl={}",
)


@pytest.mark.parametrize("path", OF_PART)
def test_incomplete_answers_are_refused_or_harvested_by_short_names(
    without_cdx: Settings, crawl: str, path: str, tmp_path: Path
) -> None:
    harvested_in_part(tmp_path, without_cdx, crawl)
    for status, option in ((422, "strict"), (503, "on_demand")):
        with serving(tmp_path, without_cdx, **{option: True}) as address:
            answer = get(address, path.format(crawl.removeprefix("CC-MAIN-")))
        assert (answer.status, crawl in answer.text) == (status, True)


def test_knows_crawls_whose_harvest_stored_no_file(settings: Settings, crawl: str, tmp_path: Path) -> None:
    source = copytree(settings.source, tmp_path / "source")
    (source / COLLINFO).write_bytes(b'[{"id": "CC-MAIN-2013-20"}]')
    rmtree(source / "cc-index" / "table")
    reading = replace(settings, source=str(source))
    with serving(harvested_in_part(tmp_path / "data", reading, crawl), reading) as address:
        assert [each["id"] for each in get(address, "/collinfo.json").json] == [crawl, "CC-MAIN-2013-20"]


CRAWL_OF_PATH = {path: f"CC-MAIN-2022-{week:02}" for week, path in enumerate(PATHS, 5)}
"""A crawl for each API."""


@pytest.fixture(scope="module")
def on_demand(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, SimpleQueue[str]]]:
    folder, messages = tmp_path_factory.mktemp("demand"), SimpleQueue[str]()
    for crawl in CRAWL_OF_PATH.values():
        crawl_of(folder / "mirror", table(["com,example)/"]), crawl=crawl)
    (folder / "mirror" / "collinfo.json").write_text(json.dumps([{"id": crawl} for crawl in CRAWL_OF_PATH.values()]))
    reading = replace(settings, source=str(folder / "mirror"))
    with serving(folder / "data", reading, on_demand=True, notify=messages.put) as address:
        yield address, messages


@in_part(2)
@pytest.mark.parametrize(("path", "crawl"), [each for each in CRAWL_OF_PATH.items() if "/plan" not in each[0]])
def test_every_api_harvests_listed_crawls_only(on_demand: tuple[str, SimpleQueue[str]], path: str, crawl: str) -> None:
    address, messages = on_demand
    unknown = get(address, path.format("CC-MAIN-1999-01"))
    assert unknown.status == 404
    assert "there is no crawl CC-MAIN-1999-01" in unknown.text
    answer = get(address, path.format(crawl))
    assert (answer.status, int(answer.headers["retry-after"]) >= 1, crawl in answer.text) == (503, True, True)
    assert not any("1999" in sentence for sentence in wait_for(" stored, ", messages))
    assert get(address, path.format(crawl)).status in {200, 404}


def test_failed_harvest_is_404(settings: Settings, tmp_path: Path) -> None:
    crawl = "CC-MAIN-2024-10"
    (tmp_path / "collinfo.json").write_text(json.dumps([{"id": crawl}, {"id": "CC-MAIN-2012"}]))
    messages: SimpleQueue[str] = SimpleQueue()
    reading = replace(settings, source=str(tmp_path))
    with serving(tmp_path / "data", reading, on_demand=True, notify=messages.put) as address:
        assert get(address, f"/{crawl}-index?url=example.com").status == 503
        wait_for("could not be harvested", messages)
        for name, why in ((crawl, "could not be harvested"), ("CC-MAIN-2012", "has no columnar index")):
            answer = get(address, f"/{name}-index?url=example.com")
            assert (answer.status, f"{name} {why}" in answer.json["message"]) == (404, True)
        assert "its CDX index answers, if the source has one" in get(address, "/CC-MAIN-2012/").text


def test_close_ends_a_waiting_harvest(mirror: Path, settings: Settings, crawl: str, tmp_path: Path) -> None:
    messages: SimpleQueue[str] = SimpleQueue()
    failing = Failing(Fault(Kind.RETRY_AFTER, retry_after=600))
    failing.begun.set()
    with FaultServer(mirror, script=failing) as source:
        reading = replace(settings, source=source.url, cache=tmp_path / "cache")
        with serving(tmp_path / "data", reading, on_demand=True, notify=messages.put) as address:
            assert get(address, f"/{crawl}-index?url=example.com").status == 503
            wait_for("waiting", messages)
        wait_for("could not be harvested", messages)


def test_reports_any_failure_of_a_harvest() -> None:
    messages: SimpleQueue[str] = SimpleQueue()

    def opened() -> Session:
        raise OSError(28, "no space left")

    harvester = OnDemandHarvester(opened, messages.put)
    with pytest.raises(Busy):
        harvester.request("CC-MAIN-2022-05")
    wait_for("no space left", messages)
    harvester.close()
