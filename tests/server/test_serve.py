"""Transport, the queue of queries, and the command."""

import gzip
import json
import random
import re
import signal
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pyarrow as pa
import pytest

import catalogue
from catalogue.errors import Busy
from catalogue.reports import crawl_rows
from catalogue.server.service import Service
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.surt import url_surtkey
from tests.server.test_processes import started
from tests.support.amounts import in_part, in_soak
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of
from tests.support.metrics import samples
from tests.support.serving import get, harvested_in_part, running, serving, serving_harvested
from tests.support.web_pages import page

base = pytest.fixture(scope="module")(serving_harvested)


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({"Host": "cdx.example.org:8080"}, "http://cdx.example.org:8080"),
        ({"Host": "[::1]:8000"}, "http://[::1]:8000"),
        ({"Host": "x", "X-Forwarded-Host": "cdx.example.org", "X-Forwarded-Proto": "https"}, "https://cdx.example.org"),
        ({"Host": 'x"<script>'}, None),
    ],
)
def test_addresses_are_those_of_the_client(
    harvested_data: Path, settings: Settings, headers: dict[str, str], address: str | None
) -> None:
    with serving(harvested_data, settings, proxied=True) as base:
        assert_addresses(base, headers, address or base)
    direct = {name: value for name, value in headers.items() if name == "Host"}
    with serving(harvested_data, settings) as base:
        expected = address or base if headers == direct else f"http://{headers['Host']}"
        assert_addresses(base, headers, expected)


def assert_addresses(base: str, headers: dict[str, str], address: str) -> None:
    connection = HTTPConnection(urlsplit(base).netloc)
    connection.putrequest("GET", "/collinfo.json", skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    listed = json.loads(connection.getresponse().read())
    assert listed
    for each in listed:
        assert each["timegate"] == f"{address}/{each['id']}/"
    connection.close()


def test_answers_complete_addresses(base: str, crawl: str) -> None:
    for target in ("/", "/?a", f"/{crawl}-index?url=http://example.com/*&limit=2"):
        assert get(base, f"HTTP://example.com{target}").body == get(base, target).body
    assert get(base, "http://example.com?url=http://a.com/").status == 200


def test_compresses_large_answers_on_request(base: str, crawl: str) -> None:
    path = f"/{crawl}-index?url=*.example.com&output=json"
    plain = get(base, path)
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "gzip;q=0.1"):
        answer = get(base, path, Accept_Encoding=accepted)
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(answer.body) == plain.body
        assert len(answer.body) < len(plain.body) / 3
    for refused in ("gzip;q=0", "GZIP ; q=0.000, br"):
        assert "content-encoding" not in get(base, path, Accept_Encoding=refused).headers


@pytest.mark.parametrize("path", ["/collinfo.json", "/{}-index?url=example.com", "/api/query?url=example.com"])
def test_allows_other_origins_and_all_their_headers(base: str, crawl: str, path: str) -> None:
    origin = "https://example.org"
    assert get(base, path.format(crawl), Origin=origin).headers["access-control-allow-origin"] == "*"
    answer = get(
        base,
        path.format(crawl),
        method="OPTIONS",
        Origin=origin,
        Access_Control_Request_Method="HEAD",
        Access_Control_Request_Headers="x-requested-with,authorization",
    )
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    assert "HEAD" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "x-requested-with,authorization"


@in_part(3)
@pytest.mark.parametrize(
    "path",
    [
        *("/collinfo.json", "/{}-index?url=example.com/*", "/{}/2022id_/https://example.com/", "/api/nothing"),
        *("/api/plan?url=example.com", "/api/query?url=example.com", "/api/row_groups", "/api/status"),
        *("/api/openapi.json", "/", "/{}/", "/search?url=example.com", "/status", "/robots.txt", "/nothing"),
        *("/healthz", "/metrics"),
    ],
)
def test_answers_get_and_head_only(base: str, crawl: str, path: str) -> None:
    path = path.format(crawl)
    full, head = get(base, path), get(base, path, method="HEAD")
    varying = {"date": "", "content-length": "", "transfer-encoding": ""}  # seconds in plans differ
    assert (head.status, head.body, {**head.headers, **varying}) == (full.status, b"", {**full.headers, **varying})
    for method in ("POST", "PUT", "DELETE"):
        refused = get(base, path, method=method)
        allowed = {*refused.headers["allow"].split(", ")}
        assert (refused.status, allowed, [*refused.json]) == (405, {"GET", "HEAD"}, ["message"])


def test_limits_requests(base: str, crawl: str) -> None:
    assert get(base, f"/{crawl}-index?url=a.com" + "&x=1" * 300).status == 400
    assert get(base, f"/{crawl}-index?url=a.com" + "&filter=x" * 60).status == 400
    assert get(base, f"/{crawl}-index?url={'a' * 40_000}").status in {400, 404}
    assert get(base, f"/{crawl}-index?url=example.com/%E9").status in {200, 404}
    for target in (f"/{'x' * 5000}-index?url=a", "/%00-index?url=a", "/..%2f-index?url=a"):
        assert (get(base, target).status, bool(get(base, target).json["message"])) == (404, True)


def test_parallel_answers_equal_single_ones(base: str, crawl: str) -> None:
    rng = random.Random(7)
    urls = ["example.com/*", "*.example.com", "example.com", "*.org", "example.com/", "nosuch.example"]
    paths = [f"/{crawl}-index?{urlencode({'url': rng.choice(urls), 'limit': rng.randrange(4)})}" for _ in range(30)]
    alone = {path: get(base, path) for path in set(paths)}
    with ThreadPoolExecutor(24) as pool:
        for path, answer in zip(paths, pool.map(lambda path: get(base, path), paths), strict=True):
            assert (answer.status, answer.body) == (alone[path].status, alone[path].body)


def test_full_queue_is_503_with_retry_after(harvested_data: Path, settings: Settings) -> None:
    with closing(Service(harvested_data, settings, at_once=1, max_queued=1)) as service:
        started, go_on = Event(), Event()

        def slow(_: Session) -> bool:
            started.set()
            return go_on.wait(30)

        first = service.submit(slow)
        assert started.wait(30)
        second = service.submit(lambda session: session.dataset.name)
        with pytest.raises(Busy) as caught:
            service.submit(lambda session: session.dataset.name)
        assert caught.value.retry_after > 0
        with running(service) as address:
            for path in ("/collinfo.json", "/", "/search?url=example.com", "/status", f"/{CRAWL}/"):
                answer = get(address, path)
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
                text = answer.text if answer.type.startswith("application/json") else page(answer, 503).one("main").text
                assert "too many queries are waiting" in text
        go_on.set()
        assert (first.result(30), second.result(30)) == (True, "index")


def test_queries_end_with_503_when_the_server_ends(
    harvested_data: Path, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(Service(harvested_data, settings, at_once=1)) as service, ThreadPoolExecutor() as pool:
        go_on = Event()
        try:
            service.submit(lambda _: go_on.wait(60))
            with running(service) as address:
                pending = pool.submit(get, address, "/collinfo.json")
                while not samples(address)["catalogue_queries", "waiting"]:
                    pass
            answer = pending.result()
        finally:
            go_on.set()
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert "being stopped" in answer.json["message"]
    assert "Traceback" not in capfd.readouterr().err


def test_abandoned_queries_are_cancelled_unless_shared(harvested_data: Path, settings: Settings) -> None:
    with closing(Service(harvested_data, settings, at_once=1)) as service:
        go_on, runs = Event(), Counter[str]()

        def name(session: Session) -> str:
            runs[session.dataset.name] += 1
            return session.dataset.name

        before = service.submit(lambda _: go_on.wait(30))
        first, second = service.submit(name, key="same"), service.submit(name, key="same")
        service.abandon(first)
        others = [service.submit(name, key="others") for _ in range(2)]
        for answer in others:
            service.abandon(answer)
        again = service.submit(name, key="others")
        go_on.set()
        assert (before.result(30), second.result(30), again.result(30)) == (True, "index", "index")
        assert all(answer.cancelled() for answer in others)
        assert runs["index"] == 2
        assert (service.submit(name, key="same").result(30), runs["index"]) == ("index", 3)
        service.abandon(second)


def test_close_waits_for_running_queries_that_equal_ones_share(harvested_data: Path, settings: Settings) -> None:
    """Otherwise DuckDB crashes."""
    service = Service(harvested_data, settings, at_once=2)
    started, stopping = Event(), Event()

    def slow(session: Session) -> list[dict[str, Any]]:
        started.set()
        assert stopping.wait(30)
        return crawl_rows(session)

    answer = service.submit(slow, key="same")
    assert started.wait(30)
    equal = service.submit(slow, key="same")
    stopping.set()
    service.close()
    assert answer.done()
    assert equal.result() is answer.result()
    with catalogue.open(harvested_data, settings=settings) as cat:
        assert answer.result() == crawl_rows(cat.session)


@in_soak
def test_limit_bounds_memory_for_half_a_million_captures(settings: Settings, tmp_path: Path) -> None:
    count, url = 510_000, f"https://example.com/{'x' * 50}"
    same = pa.array(np.zeros(count, np.int32))
    seconds = np.random.default_rng(7).permutation(count) + 1_660_000_000
    rows = pa.table(
        {
            "url_surtkey": pa.DictionaryArray.from_arrays(same, [url_surtkey(url)]),
            "url": pa.DictionaryArray.from_arrays(same, [url]),
            "fetch_time": pa.array(seconds * 1000, pa.timestamp("ms")),
        }
    )
    mirror = crawl_of(tmp_path / "mirror", rows, use_dictionary=["url_surtkey", "url"], store_schema=False)
    harvested_in_part(tmp_path / "data", replace(settings, source=str(mirror)), CRAWL)
    with started(Command(tmp_path / "data", str(mirror), tmp_path).start, workers=1) as (process, address):
        answer = get(address, f"/{CRAWL}-index?output=text&fl=timestamp&limit=4&url={url}")
        status = Path(f"/proc/{process.pid}/status")
        peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) << 10 if status.exists() else 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr
        assert process.stderr.read() == b"stopped\n"
    first = ["20220808230640", "20220808230641", "20220808230642", "20220808230643"]
    assert answer.text.splitlines() == first
    assert peak < 600 << 20


def test_refuses_used_port(asking: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        ran = asking("serve", "--port", str(used.getsockname()[1]))
    assert ran.status == 2
    assert ran.err.count("127.0.0.1") == 1
    assert "(Address already in use); choose another --port" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", "--host", "nosuch.invalid"], "; choose another --host\n"),
        (["mcp", "--http", "--allow-host", "a.example", "--host", "nosuch.invalid"], "; choose another --host\n"),
        (["serve", "--harvest-on-demand", "--values", "nosuch", "--workers", "1"], "there is no column 'nosuch'"),
        (["serve", "--values", "fetch_status"], "catalogue: --values needs --harvest-on-demand\n"),
        (["serve", "--table", "hosts"], "leave out --table"),
    ],
)
def test_refuses_invalid_options_before_it_listens(asking: Command, words: list[str], message: str) -> None:
    ran = asking(*words, "--port", "0")
    assert (ran.status, message in ran.err, "serving" in ran.err) == (2, True, False)
