"""The server as a whole: crawls that are not held, transport, many clients at once, a source that fails."""

import gzip
import json
import random
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from queue import SimpleQueue
from shutil import copytree
from threading import Event
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.crawl import SUBSETS
from catalogue.errors import Busy
from catalogue.serving import Service
from catalogue.serving.crawls import Harvests
from catalogue.settings import Settings
from tests.commands import Command
from tests.crawls import CRAWL, crawl_of, table
from tests.faults import Fault, FaultServer, Kind, Request
from tests.serving import get, running, serving

READING = (
    "/{}-index?url=example.com/*",
    "/api/query?url=example.com/*&crawl={}",
    "/search?url=example.com/*&crawl={}",
    "/{}/2022id_/http://no.example/",
)
ASKING = (*READING, "/api/plan?url=example.com/*&crawl={}", "/api/row_groups?crawl={}")


@pytest.fixture(scope="module")
def base(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("served") / "data"))
    with serving(data, settings) as address:
        yield address


@contextmanager
def served(data: Path, settings: Settings, **more: Any) -> Iterator[str]:
    service = Service(data, settings, **more)
    try:
        with running(service) as address:
            yield address
    finally:
        service.close()


def harvested_in_part(data: Path, settings: Settings, crawl: str, subsets: str = "warc") -> Path:
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest(crawl, subsets=subsets)
    return data


# ---- what is held ----


def test_crawls_are_those_of_the_source(base: str, mirror: Path) -> None:
    answer = get(base, "/collinfo.json")
    assert answer.headers["content-type"] == "application/json"
    listed = json.loads((mirror / "collinfo.json").read_bytes())
    assert [each["id"] for each in answer.json] == sorted((each["id"] for each in listed), reverse=True)
    assert all([*each][:4] == ["id", "name", "timegate", "cdx-api"] for each in answer.json)
    assert all(each["cdx-api"] == f"{base}/{each['id']}-index" for each in answer.json)
    assert answer.text.startswith('[\n  {\n    "id": ')


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({"Host": "cdx.example.org:8080"}, "http://cdx.example.org:8080"),
        ({"Host": "[::1]:8000"}, "http://[::1]:8000"),
        (
            {"Host": "inside", "X-Forwarded-Host": "cdx.example.org", "X-Forwarded-Proto": "https"},
            "https://cdx.example.org",
        ),
        ({"Host": 'x"<script>'}, None),
    ],
)
def test_crawls_are_at_the_address_that_the_client_knows(
    base: str, headers: dict[str, str], address: str | None
) -> None:
    connection = HTTPConnection(urlsplit(base).netloc)
    connection.putrequest("GET", "/collinfo.json", skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    for each in json.loads(connection.getresponse().read()):
        assert each["timegate"] == f"{address or base}/{each['id']}/"
    connection.close()


def test_a_crawl_that_is_not_harvested_has_no_captures_and_the_answer_says_why(
    settings: Settings, whole_crawls: list[str], tmp_path: Path
) -> None:
    held, other = whole_crawls[:2]
    harvested_in_part(tmp_path, settings, held, "all")
    with served(tmp_path, settings) as address:
        answer = get(address, f"/{other}-index?url=example.com/*")
        command = f"{other} is not harvested yet; run: catalogue harvest --crawl {other}"
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
        for subset in SUBSETS:
            assert harvested.captures("example.com/*", crawls=crawl, subsets=subset).count() >= 0
        answer = get(address, f"/{crawl}-index?url=example.com/*")
        assert answer.status == 200
        assert "catalogue-incomplete" not in answer.headers
        assert len(answer.text.splitlines()) == harvested.captures("example.com/*", crawls=crawl).count()


@pytest.mark.parametrize("path", ASKING)
def test_however_a_crawl_is_named_it_is_harvested_and_one_that_is_not_listed_never(
    settings: Settings, tmp_path: Path, path: str
) -> None:
    crawl, said = CRAWL, SimpleQueue[str]()
    mirror = crawl_of(tmp_path / "mirror", table(["com,example)/"]))
    (mirror / "collinfo.json").write_text(json.dumps([{"id": crawl}]))
    reading = replace(settings, source=str(mirror))
    with served(tmp_path / "data", reading, on_demand=True, notify=said.put) as address:
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


@pytest.mark.parametrize("path", ASKING)
def test_however_it_is_asked_a_strict_server_gives_no_answer_that_may_lack_something(
    lacking: Settings, crawl: str, whole_crawls: list[str], path: str
) -> None:
    folder, settings = lacking.cache.parent, lacking
    held, other = crawl, next(each for each in whole_crawls if each != crawl)
    with served(folder, settings) as address:
        answer = get(address, path.format(held))
        assert answer.status in {200, 404}
        if path in READING:
            assert f"catalogue harvest --crawl {held} --subset crawldiagnostics" in answer.text + answer.headers.get(
                "catalogue-incomplete", ""
            )
        assert get(address, path.format(other)).status == 404
    with served(folder, settings, strict=True) as address:
        refused = [get(address, path.format(each)) for each in (held, other)]
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


# ---- transport ----


def test_what_is_large_is_compressed_where_that_is_asked_for(base: str, crawl: str) -> None:
    path = f"/{crawl}-index?url=*.com&output=json"
    plain = get(base, path)
    answer = get(base, path, Accept_Encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == plain.body
    assert len(answer.body) < len(plain.body) / 3


def test_pages_of_other_origins_may_ask(base: str, crawl: str) -> None:
    for path in ("/collinfo.json", f"/{crawl}-index?url=example.com", f"/{crawl}-index"):
        assert get(base, path, Origin="https://example.org").headers["access-control-allow-origin"] == "*"


def test_head_is_answered_and_nothing_is_changed(base: str, crawl: str) -> None:
    answer = get(base, f"/{crawl}-index?url=example.com/*", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    for method in ("POST", "PUT", "DELETE"):
        answer = get(base, f"/{crawl}-index?url=example.com", method=method)
        assert answer.status == 405
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("target", [f"/{'x' * 5000}-index?url=a", "/%00-index?url=a", "/..%2f-index?url=a"])
def test_paths_that_there_are_not(base: str, target: str) -> None:
    answer = get(base, target)
    assert answer.status == 404
    assert answer.json["message"]


def test_questions_have_limits(base: str, crawl: str) -> None:
    assert get(base, f"/{crawl}-index?url=a.com" + "&x=1" * 300).status == 400
    assert get(base, f"/{crawl}-index?url=a.com" + "&filter=x" * 60).status == 400
    assert get(base, f"/{crawl}-index?url={'a' * 40_000}").status in {400, 404}
    with socket.create_connection(("127.0.0.1", urlsplit(base).port or 0)) as connection:
        connection.sendall(b"GET /" + b"a" * 100_000)
        assert b" 400 " in connection.recv(1000)


def test_an_address_may_be_of_any_bytes(base: str, crawl: str) -> None:
    for url in ("example.com/%E9", "example.com/%C3%A9", "example.com/é", "example.com/a b"):
        answer = get(base, f"/{crawl}-index?url={quote(url, encoding='latin-1', safe='/%')}")
        assert answer.status in {200, 404}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A source of a crawl that has more captures than a page, and the keys of these in order; each has one."""
    keys = [f"com,example)/{number:05}" for number in range(24_000)]
    of_files = (table(keys[:9000]), table(keys[9000:]))
    return crawl_of(tmp_path_factory.mktemp("large"), *of_files, row_group_size=1500), keys


def test_an_answer_of_several_parts_comes_part_by_part(
    large: tuple[Path, list[str]], settings: Settings, tmp_path: Path
) -> None:
    mirror, keys = large
    reading = replace(settings, source=str(mirror))
    path = f"/{CRAWL}-index?url=*&pageSize=1000&fl=urlkey&output=text"
    with served(harvested_in_part(tmp_path, reading, CRAWL), reading) as address:
        told = get(address, f"{path}&showNumPages=true").json
        assert told["pages"] == 1
        assert told["blocks"] > 5
        answer = get(address, path)
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.text.splitlines() == keys
        assert get(address, f"{path}&sort=reverse").text.splitlines() == keys[::-1]
        assert get(address, f"{path}&limit=23000").text.splitlines() == keys[:23_000]


# ---- many at once ----


def test_many_at_once_get_what_one_gets(base: str, crawl: str) -> None:
    rng = random.Random(7)
    urls = ["example.com/*", "*.example.com", "example.com", "*.org", "example.com/", "nosuch.example"]
    paths = [f"/{crawl}-index?{urlencode({'url': rng.choice(urls), 'limit': rng.randrange(4)})}" for _ in range(30)]
    alone = {path: get(base, path) for path in set(paths)}
    with ThreadPoolExecutor(24) as pool:
        for path, answer in zip(paths, pool.map(lambda path: get(base, path), paths), strict=True):
            assert (answer.status, answer.body) == (alone[path].status, alone[path].body)


def test_who_comes_when_too_many_wait_is_told_when_to_come_back(harvested_data: Path, settings: Settings) -> None:
    service = Service(harvested_data, settings, at_once=1, waiting=1)
    try:
        begun, go_on = Event(), Event()

        def slow(_: Catalogue) -> bool:
            begun.set()
            return go_on.wait(30)

        first = service.ask(slow)
        assert begun.wait(30)
        second = service.ask(lambda cat: cat.table.name)
        with pytest.raises(Busy) as caught:
            service.ask(lambda cat: cat.table.name)
        assert caught.value.retry_after > 0
        with running(service) as address:
            answer = get(address, "/collinfo.json")
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        go_on.set()
        assert (first.result(30), second.result(30)) == (True, "index")
    finally:
        service.close()


def test_who_asks_the_same_at_once_gets_the_same_answer(harvested_data: Path, settings: Settings) -> None:
    service = Service(harvested_data, settings, at_once=2)
    try:
        go_on = Event()
        asked = Counter[str]()

        def slow(_: Catalogue) -> int:
            asked["slow"] += 1
            assert go_on.wait(30)
            return asked["slow"]

        answers = [service.ask(slow, key="same") for _ in range(5)]
        go_on.set()
        assert [answer.result(30) for answer in answers] == [1] * 5
        assert service.ask(slow, key="same").result(30) == 2
    finally:
        service.close()


def test_who_leaves_takes_the_answer_from_nobody(harvested_data: Path, settings: Settings) -> None:
    service = Service(harvested_data, settings, at_once=1)
    try:
        go_on, asked = Event(), Counter[str]()

        def name(catalogue: Catalogue) -> str:
            asked[catalogue.table.name] += 1
            return catalogue.table.name

        before = service.ask(lambda _: go_on.wait(30))
        first, second = service.ask(name, key="same"), service.ask(name, key="same")
        service.leave(first)
        others = [service.ask(name, key="others") for _ in range(2)]
        for answer in others:
            service.leave(answer)
        again = service.ask(name, key="others")
        go_on.set()
        assert (before.result(30), second.result(30), again.result(30)) == (True, "index", "index")
        assert all(answer.cancelled() for answer in others)
        assert asked["index"] == 2
        service.leave(second)
    finally:
        service.close()


def test_who_stops_it_waits_for_questions_that_are_being_answered(harvested_data: Path, settings: Settings) -> None:
    """Else DuckDB takes the process down."""
    service = Service(harvested_data, settings, at_once=2)
    begun, stopping = Event(), Event()

    def slow(cat: Catalogue) -> list[dict[str, Any]]:
        begun.set()
        assert stopping.wait(30)
        return cat.crawl_rows()

    answer = service.ask(slow)
    assert begun.wait(30)
    stopping.set()
    service.close()
    assert answer.done()
    with catalogue.open(harvested_data, settings=settings) as cat:
        assert answer.result() == cat.crawl_rows()


# ---- a source that fails ----


@contextmanager
def beside(
    source: FaultServer, crawl: str, settings: Settings, tmp_path: Path, *, subsets: str = "all", **more: Any
) -> Iterator[str]:
    """A server that reads from a source over HTTP, and holds the footers of a crawl and nothing else."""
    reading = replace(settings, source=source.url, cache=tmp_path / "cache")
    harvested_in_part(tmp_path / "data", reading, crawl, subsets)
    source.reset()
    with served(tmp_path / "data", reading, **more) as address:
        yield address


class Failing:
    """A script that does no harm until it is told to."""

    def __init__(self, fault: Fault) -> None:
        self.begun = Event()
        self._fault = fault

    def __call__(self, request: Request) -> Fault | None:
        return self._fault if self.begun.is_set() and request.path.endswith(".parquet") else None


@pytest.mark.parametrize(
    ("fault", "least"),
    [(Fault(Kind.BLOCKED), 200), (Fault(Kind.RETRY_AFTER, retry_after=90), 60), (Fault(Kind.DISCONNECT), 1)],
    ids=lambda value: value.kind.value if isinstance(value, Fault) else "",
)
def test_whoever_asks_while_the_source_refuses_is_told_when_to_come_back(
    fault: Fault, least: int, mirror: Path, settings: Settings, crawl: str, tmp_path: Path
) -> None:
    failing = Failing(fault)
    with (
        FaultServer(mirror, script=failing) as source,
        beside(source, crawl, settings, tmp_path, patience=0.5) as address,
    ):
        failing.begun.set()
        for _ in range(2):
            answer = get(address, f"/{crawl}-index?url=example.com/*")
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) >= least
            assert answer.json["message"]
        assert source.requests < 40
        if fault.kind is Kind.BLOCKED:
            assert source.requests < 10
        assert get(address, f"/{crawl}-index?url=example.com/*&page=x").status == 400  # which needs no source
        assert get(address, f"/{crawl}-index?url=example.com&from=2050").status == 404


def test_lines_that_cannot_be_completed_are_broken_off(
    large: tuple[Path, list[str]], settings: Settings, tmp_path: Path
) -> None:
    mirror, keys = large
    failing = Failing(Fault(Kind.DISCONNECT))
    with (
        FaultServer(mirror, script=failing) as source,
        beside(source, CRAWL, settings, tmp_path, subsets="warc", patience=0.5) as address,
    ):
        path = f"/{CRAWL}-index?url=*&fl=urlkey&output=text"
        first = get(address, path)  # which is kept from now on
        assert first.text.splitlines() == keys[: first.text.count("\n")] != keys
        failing.begun.set()
        assert get(address, path).body == first.body
        assert get(address, f"{path}&page=1").status == 503
        with pytest.raises(IncompleteRead) as caught:
            get(address, f"{path}&pageSize=1000")
        assert caught.value.partial == first.body


def test_the_same_question_of_many_is_asked_of_the_source_once(
    mirror: Path, settings: Settings, crawl: str, tmp_path: Path
) -> None:
    path = f"/{crawl}-index?url=*.example.com&output=json"
    with FaultServer(mirror) as source:
        with beside(source, crawl, settings, tmp_path / "one") as address:
            alone = get(address, path)
            requests, size = source.requests, source.body_bytes_sent
        with beside(source, crawl, settings, tmp_path / "many", at_once=8) as address:
            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda at: get(address, f"{path}&nosuch={at}"), range(16)))
            assert {answer.body for answer in answers} == {alone.body}
            assert {answer.status for answer in answers} == {200}
            assert source.body_bytes_sent == size
            assert source.requests == requests


# ---- the command ----


def test_the_command_serves_until_ctrl_c(asking: Command, crawl: str) -> None:
    with asking.start("serve", "--port", "0") as process:
        assert process.stderr
        line = process.stderr.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        assert get(found[0], f"/{crawl}-index?url=example.com/*").status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Traceback" not in process.stderr.read()


def test_a_port_that_is_taken(asking: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = asking("serve", "--port", str(taken.getsockname()[1]))
    assert ran.status == 2
    assert ran.err.count("127.0.0.1") == 1
    assert "(Address already in use); choose another --port" in ran.err


def test_only_the_index_is_served(asking: Command) -> None:
    assert "leave out --table" in asking("serve", "--port", "0", "--table", "hosts").err
