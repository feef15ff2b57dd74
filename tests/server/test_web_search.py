"""The search form, and its results."""

import csv
import re
from collections import Counter
from io import BytesIO, StringIO
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.formatting import to_json
from tests.support.serving import get
from tests.support.web_pages import page, rows, search, serving_site, terms

site = pytest.fixture(scope="module")(serving_site)


def test_finds_the_same_as_python_also_as_csv(site: str, harvested: Catalogue, crawl: str) -> None:
    table = harvested.captures("example.com/*", crawls=crawl, ordered=True).to_arrow().to_pylist()
    root = page(search(site, url="example.com/*", crawl=crawl, limit=1000, order="key"))
    found = rows(root)
    assert [row[1] for row in found] == [row["url"] for row in table]
    assert [row[0] for row in found] == [f"{row['fetch_time']:%Y-%m-%d %H:%M:%S} {row['subset']}" for row in table]
    assert [row[2] for row in found] == [str(row["fetch_status"]) for row in table]
    assert root.one("h2", id="found").text == f"{len(table)} captures of example.com/* in {crawl}"
    assert root.one("input", id="url").attrs["value"] == "example.com/*"
    links = [link.attrs["href"] for link in root.all("table")[0].all("a")]
    first = f"/{crawl}/{format_timestamp(table[0]['fetch_time'])}"
    assert links[:4] == [f"{first}{form}_/{table[0]['url']}" for form in ("id", "text", "meta", "warc")]
    (member,) = ArchiveIterator(BytesIO(get(site, links[3]).body))
    assert member.rec_headers["WARC-Target-URI"] == table[0]["url"]
    more = page(search(site, url="example.com/*", crawl=crawl, limit=3, order="key")).one("main").all("a")
    answer = get(site, next(link.attrs["href"] for link in more if link.text == "As CSV, up to 1,000"))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="captures.csv"'
    names = harvested.captures("example.com/*", crawls=crawl).columns
    texts = [{name: "" if value is None else f"{value}" for name, value in to_json(row).items()} for row in table]
    assert list(csv.DictReader(StringIO(answer.text))) == texts
    assert answer.text.splitlines()[0] == ",".join(names)
    start = get(site, f"/search.csv?url=example.com/*&crawl={crawl}&limit=3&order=key")
    following = get(site, start.headers["link"].removeprefix("<").partition(">")[0])
    assert [*csv.DictReader(StringIO(start.text)), *csv.DictReader(StringIO(following.text))] == texts[:6]
    for given in (f"?url=foo*bar&crawl={crawl}", ""):
        page(get(site, f"/search.csv{given}"), 400).one("p", class_="problem")


def test_shows_the_plan_and_its_map(site: str, harvested: Catalogue, crawl: str) -> None:
    row_groups = harvested.row_groups(crawl)
    root = page(search(site, url="example.com/*", crawl=crawl, subset="all", limit=1000))
    facts = terms(root, "plan")
    groups, files = (int(facts[name].split()[0]) for name in ("Row groups", "Files"))
    assert facts["Row groups"] == f"{groups} of {len(row_groups)}"
    assert facts["Files"] == f"{files} of {row_groups['path'].nunique()}"
    assert groups >= files > 0
    assert facts["Requests"].startswith("at most ")
    svg = root.one("svg", role="img")
    described = svg.one("desc").text
    assert described == " ".join(sentence.text for sentence in root.one("figcaption").all("p"))
    assert f"reads {groups} of {len(row_groups)} row groups" in described
    assert len(svg.all("rect", class_="read")) >= files + groups
    assert svg.all("line", class_="mark")


def test_shows_pages_before_redirects_and_the_newest_crawl_first(site: str, harvested: Catalogue) -> None:
    stored = harvested.session.stored_crawls()
    table = harvested.captures("example.com", columns=["fetch_status"]).to_arrow()
    counts = Counter(zip(table.column("subset").to_pylist(), table.column("crawl").to_pylist(), strict=True))
    root = page(search(site, url="example.com", crawl=[f"{stored[-1]}..{stored[1]}", "latest"], limit=1000))
    found = [row[0].split()[-2:] for row in rows(root)]
    assert found == [[crawl, subset] for (subset, crawl), count in counts.items() for _ in range(count)]
    assert len(counts) > 2
    links = [link.attrs["href"] for link in root.one("aside").all("a")]
    shown, *others = dict.fromkeys(crawl for _, crawl in counts)
    assert [dict(parse_qsl(urlsplit(address).query))["crawl"] for address in links] == others
    assert root.one("title", id="key-map-title").text.endswith(shown)


def test_shows_more_in_another_order_and_as_json(site: str, crawl: str) -> None:
    given = {"order": "newest", "status": "2xx", "mime": "text/", "from_": "2001", "to": "2030-02"}
    root = page(search(site, url="*.example.com", crawl=crawl, limit=7, **given))
    found = rows(root)
    assert len(found) == 7
    assert [row[0] for row in found] == sorted((row[0] for row in found), reverse=True)
    assert root.one("h2", id="found").text.endswith("; there are more")
    assert "there may be newer ones" in root.one("main").text
    links = {link.text: link.attrs["href"] for link in root.one("main").all("a")}
    more = page(get(site, links["Show up to 1,000"]))
    assert len(rows(more)) > 7
    answer = get(site, links["As JSON"]).json
    assert {capture["url"] for capture in answer["captures"]} == {row[1] for row in rows(more)}


@pytest.mark.parametrize(
    "given",
    [
        *({}, {"subset": "all"}, {"subset": "crawldiagnostics"}, {"status": "404"}, {"mime": "unk,text/*"}),
        *({"exact_url": "on", "url": "http://www.example.com/"}, {"latest": "true"}, {"url": "*.com", "status": "404"}),
    ],
)
def test_json_has_the_captures_of_the_page(given: dict[str, str], site: str, crawl: str) -> None:
    """Also for words that the CDX API does not have, and where it would return a page of the answer alone."""
    root = page(search(site, crawl=crawl, limit=1000, **{"url": "*.example.com"} | given))
    links = {link.text: link.attrs["href"] for link in root.one("main").all("a")}
    found = get(site, links["As JSON"]).json["captures"]
    assert [capture["url"] for capture in found] == [row[1] for row in rows(root)] != []


@pytest.mark.in_soak
def test_pages_are_complete(site: str, crawl: str) -> None:
    every = rows(page(search(site, url="example.com/*", crawl=crawl, limit=36)))
    assert len(every) == 36
    root, found = page(search(site, url="example.com/*", crawl=crawl, limit=12, page=1)), []
    for number in (1, 2, 3):
        found += rows(root)
        links = {link.text: link.attrs["href"] for link in root.one("main").all("a")}
        assert ("Previous page" in links) == (number > 1)
        assert "page=" not in links["Show up to 1,000"]
        root = page(get(site, links["Next page"]))
    assert sorted(found) == sorted(every)
    beyond = page(search(site, url="example.com/*", crawl=crawl, limit=1000, page=100))
    assert beyond.one("h2", id="found").text == f"No more captures of example.com/* in {crawl}"
    assert [link.text for link in beyond.all("a") if "page=" in link.attrs["href"]] == ["Previous page"]


@pytest.mark.in_soak
def test_lists_crawls_to_choose_from(site: str, harvested: Catalogue) -> None:
    stored = harvested.session.stored_crawls()
    listed = [each.attrs["value"] for each in page(get(site)).one("select", id="crawl").all("option")]
    assert listed == ["latest", "stored", "all", *stored]
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "stored"),
        ({"crawl": stored[1]}, stored[1]),
        ({"crawl": stored[:2]}, f"{stored[0]} {stored[1]}"),
        ({"crawl": "latest", "crawls": f" {stored[-1]}..{stored[1]} "}, f"{stored[-1]}..{stored[1]}"),
        ({"crawl": stored[1], "crawls": " "}, stored[1]),
    ]
    for given, chosen in cases:
        root = page(search(site, url="example.com", limit=5, **given))
        (option,) = (each for each in root.one(id="crawl").all("option") if "selected" in each.attrs)
        assert option.attrs["value"] == chosen
        again = page(search(site, url="example.com", limit=5, crawl=chosen))
        assert rows(again) == rows(root) != []


def test_suggests_wider_patterns_without_captures(site: str, crawl: str) -> None:
    root = page(search(site, url="nobody.example", crawl=crawl))
    assert root.one("h2", id="found").text == f"No captures of nobody.example in {crawl}"
    wider = [link.attrs["href"] for link in root.one("p", class_="empty").all("a")]
    assert [dict(parse_qsl(urlsplit(address).query))["url"] for address in wider] == [
        "nobody.example/*",
        "*.nobody.example",
    ]
    assert "No capture matches" in page(search(site, url="nobody.example/a/*")).one("main").text


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("field", "text", "status", "message"),
    [
        *(("url", "", 400, "enter a URL"), ("url", "foo*bar", 400, "foo*bar"), ("url", "<script>/*", 400, "<script>")),
        ("crawl", "CC-MAIN-1999-01", 404, "there is no crawl CC-MAIN-1999-01"),
        ("crawl", "nonsense", 404, "nonsense"),
        ("crawl", "CC-MAIN-1999-01..CC-MAIN-1999-02", 404, "selects no crawl"),
        *(("match", "regex", 400, "exact, prefix, host or domain"), ("from", "yesterday", 400, "yesterday")),
        *(("to", "2001", 400, "2001 is before 2002"), ("status", "2x0", 400, "invalid status")),
        *(("mime", "text/html' OR 'a'='a", 400, "invalid media type"), ("lang", "e'g", 400, "invalid language")),
        *(("unique", "nosuch", 400, "there is no column 'nosuch'"), ("order", "random", 400, "use key or newest")),
        *(("limit", "0", 400, "use 1 to 1,000"), ("limit", "²", 400, "use 1 to 1,000")),
        *(("page", "101", 400, "use 1 to 100"), ("latest", "perhaps", 400, "invalid latest 'perhaps'")),
    ],
)
def test_shows_errors_at_their_fields(site: str, field: str, text: str, status: int, message: str) -> None:
    given = {"url": "example.com", "crawl": "latest", **({"from": "2002"} if field == "to" else {}), field: text}
    root = page(search(site, **given), status)
    invalid = root.one(id="limit" if field == "page" else field)
    assert invalid.attrs["aria-invalid"] == "true"
    problem = root.one("p", class_="problem")
    assert problem.attrs["id"] in invalid.attrs["aria-describedby"].split()
    assert message in problem.text
    if invalid.attrs.get("type") == "text" and field != "page":
        assert invalid.attrs["value"] == text
    assert root.one(role="alert").one("a").attrs["href"] == f"#{invalid.attrs['id']}"
    assert "open" in root.one("details").attrs or field in {"url", "crawl"}


def test_shows_conflicts_at_the_field_that_has_to_change_and_an_empty_form(site: str) -> None:
    root = page(get(site, "/search"))
    assert not root.all("p", class_="problem") + root.all("table")
    root = page(search(site, url="example.com", exact_url="false", latest="0"))
    assert not any("checked" in each.attrs for each in root.all("input"))
    for given, field in (
        ({"exact_url": "true"}, "url"),
        ({"exact_url": "true", "match": "host"}, "url"),
        ({"unique": "url_host_name", "index": "cdx"}, "unique"),
    ):
        root = page(search(site, url="example.com", **given), 400)
        assert root.one(id=field).attrs["aria-invalid"] == "true"
        assert not re.search("='|True", root.one("p", class_="problem").text)


def test_refuses_parameters_that_would_be_ignored(site: str, crawl: str) -> None:
    for name, value, message in (
        ("matchType", "domain", "unknown parameter 'matchType'; did you mean match?"),
        ("language", "isl", "unknown parameter 'language'; did you mean lang?"),
        ("filter", "=status:404", "unknown parameter 'filter'; use url, crawl, crawls, "),
        ("url", "example.com", "url is given 2 times; give it once"),
    ):
        given = [("url", "example.com"), ("crawl", crawl), (name, value)]
        for path in ("/search", "/search.csv"):
            root = page(get(site, f"{path}?{urlencode(given)}"), 400)
            assert message in root.one(role="alert").text
            assert root.one("input", id="url").attrs["value"] == "example.com"
            assert not root.all("table")
    page(search(site, url="example.com", crawl=crawl, matchType=""))
