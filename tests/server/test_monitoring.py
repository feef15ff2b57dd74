"""``/metrics``, ``/healthz`` and the status page."""

import re
import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from catalogue.demo import LoopbackServer
from catalogue.server.monitoring import BOUNDS, CLASSES, COUNTED, STATE, Figures, bound_of
from catalogue.server.service import Service
from catalogue.settings import STORE_NAME, Settings, package_version
from tests.support.metrics import ANSWERS, answers, counted, samples
from tests.support.serving import get, running, served_from, serving_harvested
from tests.support.web_pages import page

base = pytest.fixture(scope="module")(serving_harvested)
PRODUCTION = (Path(__file__).parents[2] / "docs/how-to/production.md").read_text(encoding="utf-8")


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("method", "target", "route", "status"),
    [
        ("GET", "/{}-index?url=example.com", "/{crawl}-index", "2xx"),
        ("GET", "/nothing-index?url=example.com", "/{crawl}-index", "4xx"),
        ("HEAD", "/collinfo.json", "/collinfo.json", "2xx"),
        ("GET", "/{}/2022id_/https://example.com/", "/{crawl}/{moment}/{url:path}", "2xx"),
        *(("GET", "/api/query?url=example.com", "/api/query", "2xx"), ("GET", "/api/status?x", "/api/status", "4xx")),
        ("GET", "/api/unknown/path", "/api/{rest:path}", "4xx"),
        ("GET", "/search.csv?url=example.com", "/search.csv", "2xx"),
        *(("GET", "/static/style.css", "/static", "2xx"), ("GET", "/healthz", "/healthz", "2xx")),
        *(("GET", "/{}", "/{crawl}/", "2xx"), ("GET", "/invented", "/{crawl}/", "4xx")),
        *(("GET", "/two/invented", "other", "4xx"), ("POST", "/{}-index", "/{crawl}-index", "4xx")),
        ("OPTIONS", "/search", "/search", "4xx"),
    ],
)
def test_counts_answers_by_route(base: str, crawl: str, method: str, target: str, route: str, status: str) -> None:
    headers = {"Accept_Encoding": "gzip;q=0"}  # the server changes the request's headers then
    assert counted(base, lambda: get(base, target.format(crawl), method=method, **headers)) == [(route, status)]


def test_counts_what_is_not_http_and_histograms_agree_with_the_counters(base: str) -> None:
    def send() -> None:
        with socket.create_connection(("127.0.0.1", urlsplit(base).port or 0)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 400 ")

    assert counted(base, send) == [("other", "4xx")]  # refused in no time
    assert counted(base, lambda: get(base, "/two/invented")) == [("other", "4xx")]
    assert counted(base, lambda: get(base, "/collinfo.json")) == [("/collinfo.json", "2xx")]
    found = samples(base)
    name = "catalogue_http_request_duration_seconds"
    for route in {key[1] for key in found if key[0] == ANSWERS}:
        buckets = [found[f"{name}_bucket", each, route] for each in (*map(str, BOUNDS), "+Inf")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == found[f"{name}_count", route]
        assert buckets[-1] == sum(found[ANSWERS, route, f"{status}xx"] for status in range(2, 6))
        assert (found[f"{name}_sum", route] > 0) == (buckets[-1] > 0)


def test_openmetrics_on_request_and_documented_metrics(base: str) -> None:
    answer = get(base, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.headers["cache-control"] == "no-store"
    families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
    builds = [each for each in families if each.name == "catalogue_build"]
    assert builds[0].samples[0].labels["version"] == package_version()
    reported = {key[0] for key in samples(base)} | {"catalogue_source_rate_limit"}  # folders have no limit
    reported = {re.sub(r"(_seconds)_(bucket|sum|count)$", r"\1", name) for name in reported}
    table = {name for row in re.findall(r"^\| (`.*?) \|", PRODUCTION, re.MULTILINE) for name in re.findall(r"\w+", row)}
    assert table == reported
    assert {name.removesuffix("_bucket") for name in re.findall(r"\bcatalogue_\w+", PRODUCTION)} == reported


def test_queries_are_shown_while_all_are_busy(harvested_data: Path, settings: Settings) -> None:
    with closing(Service(harvested_data, settings, at_once=1)) as service, running(service) as address:
        go_on = Event()
        pending = [service.submit(lambda _: go_on.wait(60)) for _ in range(3)]
        found = samples(address)
        assert (found["catalogue_queries", "running"], found["catalogue_queries", "waiting"]) == (1, 2)
        assert get(address, "/healthz").status == 200
        go_on.set()
        assert all(each.result(60) for each in pending)
        while samples(address)["catalogue_queries", "running"]:
            pass


def test_limit_and_cost_of_the_source(untaught_data: Path, server: LoopbackServer, crawl: str, tmp_path: Path) -> None:
    with served_from(server.url, untaught_data, Settings(rate=50.0), tmp_path) as address:
        before = samples(address)
        assert not server.log
        assert get(address, f"/{crawl}-index?url=example.com/*").status == 200
        found = samples(address)
        status = get(address, "/api/status").json
    requests = len(server.log)
    assert before["catalogue_source_requests_total",] == 0
    assert before["catalogue_source_rate_limit",] == 50
    assert found["catalogue_source_requests_total",] == requests > 0
    assert found["catalogue_source_received_bytes_total",] > 0
    assert (found["catalogue_source_pause_seconds",], found["catalogue_source_blocks",]) == (0, 0)
    assert found["catalogue_memory_bytes",] > 0
    assert (status["requests"], status["bytes"]) == (requests, found["catalogue_source_received_bytes_total",])


def test_process_that_replaces_another_continues_its_counters() -> None:
    first = Figures(2)
    second = first.of_process(1)
    first.publish((1, 10), [1, 0, 100, 5.0, 1])
    second.count("/search", 200, 0.02)
    second.publish((2, 20), [1, 3, 100, 7.0, 1])
    assert first.totals() == second.totals()
    assert [first.totals()[name] for name in STATE] == [2, 3, 200, 7.0, 2]
    second.clear()
    ended = first.totals()
    assert [ended[name] for name in ("requests", "bytes", *STATE)] == [3, 30, 1, 0, 100, 5.0, 1]
    third = first.of_process(1)
    third.publish((4, 40), [0, 0, 0, 0.0, 1])
    third.count("/search", 503, 100.0)
    totals = first.totals()
    assert [totals[name] for name in ("requests", "bytes", "processes")] == [7, 70, 2]
    assert [totals["/search", each] for each in CLASSES] == [1, 0, 0, 1]
    assert [bound_of(totals, "/search", share) for share in (0.5, 0.95)] == [0.025, None]


def test_health_is_503_without_a_readable_store(harvested_data: Path, server: LoopbackServer, tmp_path: Path) -> None:
    with served_from(server.url, harvested_data, Settings(), tmp_path) as address:
        answer = get(address, "/healthz")
        assert (answer.status, answer.json) == (200, {"status": "ok", "version": package_version()})
        store = tmp_path / "data" / STORE_NAME
        store.rename(tmp_path / "moved")
        answer = get(address, "/healthz")
        assert (answer.status, STORE_NAME in answer.json["message"]) == (503, True)
        for path in ("/api/query?url=a.com", "/search?url=a.com", "/search.csv?url=a.com", "/latest-index?url=a.com"):
            answer = get(address, path)
            assert (answer.status, "cannot read its data" in answer.text) == (503, True), path
        (tmp_path / "moved").rename(store)
        assert get(address, "/healthz").status == 200
        store.write_bytes(b"damaged" * 1000)
        answer = get(address, "/healthz")
        assert (answer.status, "not a usable store" in answer.json["message"]) == (503, True)
    assert server.log == []


def test_status_page_has_the_same_figures(base: str) -> None:
    for path in ("/collinfo.json", "/two/invented"):
        assert counted(base, partial(get, base, path))
    shown = page(get(base, "/status")).one("table", class_="answers")
    cells = {row.one("th").text: [each.text for each in row.all("td")] for row in shown.one("tbody").all("tr")}
    known = answers(base)
    assert {"/collinfo.json", "other"} <= cells.keys() <= {*COUNTED}
    for route, (*counts, half, most) in cells.items():
        if route not in {"/status", "/metrics"}:
            numbers = [known[route, each] for each in CLASSES]
            assert counts == [str(sum(numbers)), *map(str, numbers[2:])]
        for time in (half, most):
            assert re.fullmatch(r"[\d.]+ m?s|over 30 s", time)
