"""The pages of a running server."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.demo import LoopbackServer
from catalogue.selection import crawl_list
from catalogue.server.web_pages import POLICY
from catalogue.settings import Settings
from tests.support.catalogues import harvested_in
from tests.support.crawls import CRAWL, crawl_of, index_path, table
from tests.support.serving import get, serving
from tests.support.web_pages import Node, page, rows, search, serving_site, terms

site = pytest.fixture(scope="module")(serving_site)


UNLINKED = [
    None,
    r"http:\\evil.example\x",
    "http:///evil.example",
    "http://:80/",
    "javascript:alert(1)//http://evil.example/",
    "//evil.example/",
    "https://evil.example/a/%2E%2e/../b",
]
"""URLs without a path to their record."""
HOSTILE = "http://evil.example/<script>alert('1')</script>?a=\"b\"&c=%41#frag"
DATA = "https://data.commoncrawl.org"
NOTHING = "\N{EN DASH}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    key = "example,evil)/<script>alert('1')</script>?a=\"b\"&c=a"
    urls, rest = [HOSTILE, *UNLINKED, HOSTILE], [None] * (len(UNLINKED) + 1)
    times = [datetime(2022, 8, 9, 1, 2, second, tzinfo=UTC) for second, _ in enumerate(urls[:-1])]
    made = {
        "url": pa.array(urls, pa.string()),
        "fetch_time": pa.array([*times, None], pa.timestamp("ms", "UTC")),
        "content_mime_detected": pa.array(["text/<b>", *rest], pa.string()),
        "content_languages": pa.array(["<i>,eng", *rest], pa.string()),
    }
    source = crawl_of(folder / "mirror", table([key] * len(urls), **made))
    (source / COLLINFO).write_text(f'[{{"id": "{CRAWL}", "name": "<script>alert(2)</script>"}}]', encoding="utf-8")
    with serving(*harvested_in(folder, source)) as address:
        yield address


def test_home_lists_crawls_and_status_their_subsets(site: str, harvested: Catalogue) -> None:
    root = page(get(site))
    listed = [row.all()[0].text for row in root.one("table").one("tbody").all("tr")]
    assert listed == [*crawl_list(harvested.session).crawls]
    for row in root.one("table").one("tbody").all("tr"):
        name = row.one("th").text
        links = [link.attrs["href"] for link in row.all("a")]
        assert links == [f"/{name}/", f"/{name}-index", f"{DATA}/crawl-data/{name}/cc-index.paths.gz"]
        count = harvested.crawls().set_index("crawl").loc[name]["files_harvested"]
        assert (f"all {count} file" if count else "has no columnar index") in row.text
    assert "/collinfo.json" in [link.attrs["href"] for link in root.all("a")]
    coverage = harvested.coverage()
    shown = page(get(site, "/status")).one("table", class_="coverage").one("tbody").all("tr")
    assert len(shown) == len(coverage)
    for row, (_, known) in zip(shown, coverage.iterrows(), strict=True):
        cells = [child.text for child in row.children if isinstance(child, Node)]
        assert cells[:3] == [known["crawl"], known["subset"], f"{known['files_harvested']:,}"]
        assert cells[5] == f"{known['row_groups']:,}"
        assert cells[8] == ("complete" if cells[6] == "0" else "complete, some bounds unknown")


def test_pages_without_a_list_of_crawls_and_unknown_pages(site: str, tmp_path: Path) -> None:
    mirror = crawl_of(tmp_path / "mirror", table(["com,example)/"]))
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with serving(tmp_path / "nothing", settings) as address:
        assert "No crawls are known" in page(get(address)).one("main").text
        assert "nothing is stored" in page(search(address, url="example.com", crawl="stored"), 404).one("main").text
        assert "Nothing is harvested yet" in page(get(address, "/status")).one("main").text
    with serving(*harvested_in(tmp_path, mirror)) as address:
        assert page(get(address)).one("tbody").one("th").text == CRAWL
    for path in ("/CC-MAIN-1999-01/", "/favicon.ico", "/%3Cscript%3E"):
        assert "Not found" in page(get(site, path), 404).one("main").text


def test_escapes_hostile_values(hostile: str) -> None:
    for address in ("/", f"/{CRAWL}/", "/status"):
        page(get(hostile, address))
    answer = search(hostile, url="evil.example/*", crawl="stored")
    root = page(answer)
    assert "<script" not in answer.text
    first, *others, untimed = rows(root)
    assert [row[1] for row in (untimed, first, *others)] == [HOSTILE, HOSTILE, *(url or "" for url in UNLINKED)]
    assert first[3:5] == ["text/ <b>", "<i>, eng"]
    assert all(row[3:5] == [NOTHING, NOTHING] for row in (untimed, *others))
    escaped = HOSTILE.replace("<", "%3C").replace(">", "%3E").replace('"', "%22").replace("#", "%23")
    links = [node.attrs["href"] for node in root.one("tbody").all("a")]
    assert links == [f"/{CRAWL}/20220809010200{form}/{escaped}" for form in ("id_", "text_", "meta_", "warc_")]
    assert "<scri" in root.one("svg", role="img").text
    evil = f"/search?url={quote(HOSTILE)}&crawl=%3Cscript%3E&status=%22%3E%3Cscript%3E"
    assert "<script" not in get(hostile, evil).text
    name = page(get(hostile, f"/{CRAWL}/")).one("h1").text
    assert name == "<script>alert(2)</ script>"  # with a <wbr>


def test_marks_incomplete_answers(tmp_path: Path) -> None:
    mirror = crawl_of(tmp_path / "mirror", table(["com,example)/a"]), table(["com,example)/b"]))
    index_path(mirror, 1).write_bytes(b"torn")
    with serving(*harvested_in(tmp_path, mirror)) as address:
        notice = page(search(address, url="example.com/*", crawl="stored")).one("div", class_="notice")
        status = page(get(address, "/status")).one("table", class_="coverage").text
    assert "This answer may be incomplete" in notice.text
    assert "1 of the 2 files" in notice.text
    assert notice.one("code").text == f"catalogue harvest --crawl {CRAWL}"
    assert "some files failed" in status


def test_waits_for_a_harvest_with_and_without_scripts(tmp_path: Path) -> None:
    mirror = crawl_of(tmp_path / "mirror", table(["com,example)/"]))
    (mirror / COLLINFO).write_text(json.dumps([{"id": CRAWL}]))
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with serving(tmp_path / "data", settings, on_demand=True) as address:
        offered = page(get(address)).one("select", id="crawl").all("option")
        answer = search(address, url="example.com", crawl=CRAWL)
    assert offered[-1].text == f"{CRAWL} (not harvested)"
    script = re.search("<script>(.*)</script>", answer.text, re.DOTALL)
    assert script
    digest = base64.b64encode(sha256(script[1].encode()).digest()).decode()
    root = page(answer, 503, policy=f"{POLICY}; connect-src 'self'; script-src 'sha256-{digest}'")
    refresh = {"http-equiv": "refresh", "content": answer.headers["retry-after"]}
    assert root.one("noscript").one("meta").attrs == refresh
    assert CRAWL in root.one(id=root.one("progress").attrs["aria-labelledby"]).text
    assert not root.all(class_="notice")


def test_plans_but_does_not_read_expensive_queries(harvested_data: Path, settings: Settings, crawl: str) -> None:
    with serving(harvested_data, replace(settings, bandwidth=1.0)) as address:
        root = page(search(address, url="*.com", crawl=crawl, status="299"))
        spent = page(get(address, "/status")).one("dl", class_="figures").text
    assert root.one("h2", id="found").text == f"*.com in {crawl}: not read"
    assert not root.all("table")
    command = f"catalogue query '*.com' --crawl {crawl} --status 299"
    assert root.one("div", class_="notice").one("code").text == command
    assert root.one("svg", role="img").all("rect", class_="read")
    assert "Received from the source 0 B" in spent


@pytest.mark.in_soak
def test_repeated_queries_use_the_cache(server: LoopbackServer, tmp_path: Path, crawl: str) -> None:
    with serving(*harvested_in(tmp_path, server.url, crawl)) as address:
        first, again = (page(search(address, url="example.com", crawl=crawl)) for _ in range(2))
        cached = terms(page(get(address, "/status")), "figures")
    assert rows(first) == rows(again)
    assert "From the cache" not in terms(first, "plan")
    assert terms(again, "plan")["Requests"] == "0"
    assert {terms(again, "plan")["From the cache"], cached["Pages cached"]}.isdisjoint({"0 B"})
    assert int(cached["Requests to the source since start"]) > 0
    assert (cached["Queries running"], cached["Queries waiting"], cached["Processes running"]) == ("0", "0", "1 of 1")


def test_assets_can_be_cached(site: str) -> None:
    root = page(get(site))
    kinds = {"stylesheet": "text/css; charset=utf-8", "icon": "image/svg+xml"}
    links = root.all("link")
    assert len(links) == 3
    for link in links:
        answer = get(site, link.attrs["href"])
        assert (answer.status, answer.headers["content-type"]) == (200, kinds[link.attrs["rel"]])
        assert "immutable" in answer.headers["cache-control"]
    style = get(site, "/static/style.css")
    assert get(site, "/static/style.css", If_None_Match=style.headers["etag"]).status == 304
    assert not re.search(r"url\(|@import|https?:", style.text)
    for missing in ("../web.py", "style.css/", ""):
        assert get(site, f"/static/{missing}").status == 404


def test_reports_a_site(site: str, crawl: str) -> None:
    links = page(get(site, f"/search?url=*.example.com&crawl={crawl}")).all("a")
    (address,) = (each.attrs["href"] for each in links if each.text == "Report of the site")
    report = page(get(site, address))
    assert re.search(r"Pages [1-9]", report.text)
    (through,) = (each for each in report.all("a") if each.text == "Count its pages in all stored crawls")
    assert re.search(r"stored crawls : \d+ requests?, ", report.text)
    counts = page(get(site, through.attrs["href"]))
    assert re.search(rf"Pages through time .*{crawl} [1-9]", counts.text)
    assert page(get(site, "/site?url=a*"), 400).text
