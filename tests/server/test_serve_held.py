"""Crawls that a server holds, holds in part, or harvests when they are asked for."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from shutil import copytree

import pytest

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.errors import Busy
from catalogue.server.crawl_harvest import Harvests
from catalogue.settings import Settings
from tests.support.crawls import crawl_of, table
from tests.support.faults import Fault, FaultServer, Kind
from tests.support.serving import get
from tests.support.serving_held import Failing, harvested_in_part, served

READING = (
    "/{}-index?url=example.com/*",
    "/api/query?url=example.com/*&crawl={}",
    "/search?url=example.com/*&crawl={}",
    "/{}/2022id_/http://no.example/",
)

ASKING = (*READING, "/api/plan?url=example.com/*&crawl={}", "/api/row_groups?crawl={}")


def test_a_crawl_that_is_not_harvested_has_no_captures_and_the_answer_says_why(
    settings: Settings, whole_crawls: list[str], tmp_path: Path
) -> None:
    held, other = whole_crawls[:2]
    harvested_in_part(tmp_path, settings, held, "all")
    with served(tmp_path, settings) as address:
        answer = get(address, f"/{other}-index?url=example.com/*")
        command = f"{other} is not harvested yet; run: catalogue harvest --crawl {other} --subset all"
        assert (answer.status, answer.json) == (404, {"message": f"No Captures found for: example.com/; {command}"})
        assert answer.headers["catalogue-incomplete"] == command
        answer = get(address, f"/{other}-index?url=example.com/*&page=1")
        assert (answer.status, answer.json["message"]) == (400, "Page 1 invalid: First Page is 0, Last Page is 0")
        answer = get(address, f"/{other}-index?url=example.com/*&showNumPages=true")
        assert (answer.status, answer.text) == (200, '{"pages": 0, "pageSize": 5, "blocks": 0}')
        assert answer.headers["catalogue-incomplete"] == command
        answer = get(address, f"/{other}-index?url=example.com/*&to=2008")
        assert "catalogue-incomplete" not in answer.headers  # for it was fetched later
        assert get(address, f"/{held}-index?url=example.com/*").status == 200
    with served(tmp_path, settings, strict=True) as address:
        assert get(address, f"/{other}-index?url=example.com/*").status == 422
        assert get(address, f"/{held}-index?url=example.com/*").status == 200


def test_the_latest_index_is_that_of_the_newest_harvested_crawl(
    settings: Settings, whole_crawls: list[str], tmp_path: Path
) -> None:
    with served(tmp_path, settings) as address:
        newest = get(address, "/collinfo.json").json[0]["id"]
        assert f"harvest --crawl {newest}" in get(address, "/latest-index?url=example.com/*").json["message"]
    for crawl in whole_crawls[-2:]:
        harvested_in_part(tmp_path, settings, crawl, "all")
        with served(tmp_path, settings) as address:
            answer = get(address, "/latest-index?url=example.com/*")
            assert (answer.status, answer.body) == (200, get(address, f"/{crawl}-index?url=example.com/*").body)
            said = get(address, "/all-index?url=example.com").json["message"]
            assert said == "there is no crawl all; see /collinfo.json"


def test_an_answer_that_may_lack_captures_says_so(settings: Settings, crawl: str, tmp_path: Path) -> None:
    harvested_in_part(tmp_path, settings, crawl)
    with served(tmp_path, settings) as address:
        for more in ("", "&showNumPages=true", "&filter==status:299"):
            answer = get(address, f"/{crawl}-index?url=example.com/*{more}")
            assert f"files of {crawl}, crawldiagnostics, are not harvested" in answer.headers["catalogue-incomplete"]
    with served(tmp_path, settings, strict=True) as address:
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert answer.status == 422
        assert "catalogue harvest --crawl" in answer.json["message"]


def test_without_any_catalogue_all_crawls_are_listed(settings: Settings, crawl: str, tmp_path: Path) -> None:
    with served(tmp_path / "data", settings) as address:
        assert len(get(address, "/collinfo.json").json) > 1
        answer = get(address, f"/{crawl}-index?url=example.com")
        assert answer.status == 404
        assert f"catalogue harvest --crawl {crawl}" in answer.json["message"]
        assert get(address, "/CC-MAIN-1999-01-index?url=example.com").json == {
            "message": "there is no crawl CC-MAIN-1999-01; see /collinfo.json"
        }


def test_a_crawl_is_harvested_when_it_is_asked_for(
    settings: Settings, harvested: Catalogue, crawl: str, tmp_path: Path
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    with served(tmp_path / "data", settings, on_demand=True, notify=said.put) as address:
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert crawl in answer.json["message"]
        while "files are held" not in said.get(timeout=60):
            pass
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert answer.status == 200
        assert "catalogue-incomplete" not in answer.headers
        of_each = [harvested.captures("example.com/*", crawls=crawl, subsets=each).count() for each in SUBSETS]
        assert sum(map(bool, of_each)) > 1  # so that it is seen whether more than one was harvested
        assert len(answer.text.splitlines()) == sum(of_each)


ASKED = {path: f"CC-MAIN-2022-{week:02}" for week, path in enumerate(ASKING, 5)}
"""A crawl for each way of asking."""


@pytest.fixture(scope="module")
def on_demand(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, SimpleQueue[str]]]:
    """A server that holds nothing of them yet, and what it says."""
    folder, said = tmp_path_factory.mktemp("demand"), SimpleQueue[str]()
    for crawl in ASKED.values():
        crawl_of(folder / "mirror", table(["com,example)/"]), crawl=crawl)
    (folder / "mirror" / "collinfo.json").write_text(json.dumps([{"id": crawl} for crawl in ASKED.values()]))
    reading = replace(settings, source=str(folder / "mirror"))
    with served(folder / "data", reading, on_demand=True, notify=said.put) as address:
        yield address, said


@pytest.mark.parametrize(("path", "crawl"), ASKED.items())
def test_however_a_crawl_is_named_it_is_harvested_and_one_that_is_not_listed_never(
    on_demand: tuple[str, SimpleQueue[str]], path: str, crawl: str
) -> None:
    address, said = on_demand
    unknown = get(address, path.format("CC-MAIN-1999-01"))
    assert unknown.status == 404
    assert "there is no crawl CC-MAIN-1999-01" in unknown.text
    answer = get(address, path.format(crawl))
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert crawl in answer.text
    told = [said.get(timeout=60)]
    while "files are held" not in told[-1]:
        told.append(said.get(timeout=60))
    assert not any("1999" in sentence for sentence in told)
    assert get(address, path.format(crawl)).status in {200, 404}


@pytest.fixture(scope="module")
def lacking(mirror: Path, settings: Settings, crawl: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a source one of whose files is torn, and in the folder of their cache what is held all the same."""
    copy, folder = tmp_path_factory.mktemp("torn") / "mirror", tmp_path_factory.mktemp("lacking")
    copytree(mirror, copy)
    manifest = copy / f"crawl-data/{crawl}/cc-index-table.paths.gz"
    paths = gzip.decompress(manifest.read_bytes()).decode().splitlines()
    torn = next(each for each in paths if "crawldiagnostics" in each)
    (copy / torn).write_bytes(b"torn")
    chosen = replace(settings, source=str(copy), cache=folder / "cache")
    harvested_in_part(folder, chosen, crawl, "all")
    return chosen


@pytest.fixture(scope="module")
def both(lacking: Settings) -> Iterator[tuple[str, str]]:
    """A server of it, and a strict one."""
    folder = lacking.cache.parent
    with served(folder, lacking) as lenient, served(folder, lacking, strict=True) as strict:
        yield lenient, strict


@pytest.mark.parametrize("path", ASKING)
def test_however_it_is_asked_a_strict_server_gives_no_answer_that_may_lack_something(
    both: tuple[str, str], crawl: str, whole_crawls: list[str], path: str
) -> None:
    lenient, strict = both
    held, other = crawl, next(each for each in whole_crawls if each != crawl)
    answer = get(lenient, path.format(held))
    assert answer.status in {200, 404}
    if path in READING:
        assert f"catalogue harvest --crawl {held} --subset crawldiagnostics" in answer.text + answer.headers.get(
            "catalogue-incomplete", ""
        )
    assert get(lenient, path.format(other)).status == 404
    refused = [get(strict, path.format(each)) for each in (held, other)]
    assert [each.status for each in refused] == [422 if path in READING else answer.status, 422]
    assert f"catalogue harvest --crawl {other}" in refused[1].text


def test_a_crawl_that_cannot_be_harvested_is_no_reason_to_ask_again(settings: Settings, tmp_path: Path) -> None:
    crawl = "CC-MAIN-2024-10"
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "collinfo.json").write_text(json.dumps([{"id": crawl}, {"id": "CC-MAIN-2012"}]))
    said: SimpleQueue[str] = SimpleQueue()
    reading = replace(settings, source=str(mirror))
    with served(tmp_path / "data", reading, on_demand=True, notify=said.put) as address:
        assert get(address, f"/{crawl}-index?url=example.com").status == 503
        while "could not be harvested" not in said.get(timeout=60):
            pass
        answer = get(address, f"/{crawl}-index?url=example.com")
        assert answer.status == 404
        assert f"{crawl} could not be harvested" in answer.json["message"]
        answer = get(address, "/CC-MAIN-2012-index?url=example.com")
        assert answer.status == 404
        assert "CC-MAIN-2012 has no columnar index" in answer.json["message"]


def test_a_harvest_that_waits_for_its_source_ends_with_the_server(
    mirror: Path, settings: Settings, crawl: str, tmp_path: Path
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    failing = Failing(Fault(Kind.RETRY_AFTER, retry_after=600))
    failing.begun.set()
    with FaultServer(mirror, script=failing) as source:
        reading = replace(settings, source=source.url, cache=tmp_path / "cache")
        with served(tmp_path / "data", reading, on_demand=True, notify=said.put) as address:
            assert get(address, f"/{crawl}-index?url=example.com").status == 503
            while "waiting" not in said.get(timeout=30):
                pass
        while "could not be harvested" not in said.get(timeout=30):
            pass


def test_whatever_ends_a_harvest_is_told() -> None:
    said: SimpleQueue[str] = SimpleQueue()

    def opened() -> Catalogue:
        message = "no space left on device"
        raise OSError(message)

    harvests = Harvests(opened, said.put)
    with pytest.raises(Busy):
        harvests.want("CC-MAIN-2022-05")
    while "OSError: no space left" not in said.get(timeout=30):
        pass
    harvests.close()
