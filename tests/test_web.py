"""The pages of a running server."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pyarrow as pa
import pytest

import catalogue
from catalogue.capture import timestamp
from catalogue.catalogue import Catalogue
from catalogue.crawl import COLLINFO
from catalogue.demo import LoopbackServer
from catalogue.server.web import POLICY
from catalogue.serving import Service
from catalogue.settings import Settings
from tests.crawls import CRAWL, crawl_of, table
from tests.serving import Answer, get, running, serving

UNLINKED = [
    None,
    r"http:\\evil.example\x",
    "http:///evil.example",
    "http://:80/",
    "javascript:alert(1)//http://evil.example/",
    "//evil.example/",
    "https://evil.example/a/%2E%2e/../b",
]
"""URLs of which no path of ours leads to the record."""
HOSTILE = "http://evil.example/<script>alert('1')</script>?a=\"b\"&c=%41#frag"
NOTHING = "\N{EN DASH}"
VOID = {"input", "link", "meta", "wbr"}


@dataclass
class Node:
    tag: str
    attrs: dict[str, str]
    children: "list[Node | str]" = field(default_factory=list)

    @property
    def text(self) -> str:
        joined = "".join(child if isinstance(child, str) else f" {child.text} " for child in self.children)
        return " ".join(joined.split())

    def all(self, tag: str = "", **attrs: str) -> "list[Node]":
        """The nodes below of a kind, with these words among those of these attributes."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                fits = tag in {"", child.tag} and all(
                    text in child.attrs.get(name.strip("_"), "").split() for name, text in attrs.items()
                )
                found += ([child] if fits else []) + child.all(tag, **attrs)
        return found

    def one(self, tag: str = "", **attrs: str) -> "Node":
        (found,) = self.all(tag, **attrs)
        return found


class Parsed(HTMLParser):
    """A page as a tree; it fails where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Node("", {})
        self._open = [self.root]
        self.feed(text)
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        assert len(node.attrs) == len(attrs)
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def page(answer: Answer, status: int = 200) -> Node:
    """The page of an answer, of which is seen to what must be so of all."""
    assert answer.status == status, answer.text[-2000:]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    root = Parsed(answer.text).root
    every = root.all()
    assert root.one("html").attrs["lang"] == "en"
    assert not root.all("script")
    assert not root.all("style")
    assert not [node for node in every for name in node.attrs if name == "style" or name.startswith("on")]
    ids = Counter(node.attrs["id"] for node in every if "id" in node.attrs)
    assert set(ids.values()) <= {1}
    assert len(root.all("h1")) == len(root.all("main")) == 1
    labelled = {node.attrs["for"] for node in root.all("label")}
    fields = [node for node in root.all("input") + root.all("select") if node.attrs.get("type") != "hidden"]
    assert {node.attrs["id"] for node in fields} == labelled
    for name in ("aria-describedby", "aria-labelledby"):
        assert {word for node in every for word in node.attrs.get(name, "").split()} <= set(ids)
    assert all(node.attrs.get("scope") in {"row", "col"} for node in root.all("th"))
    assert root.one("a", class_="skip").attrs["href"].removeprefix("#") in ids
    own = [node.attrs[name] for node in every for name in ("src", "action") if name in node.attrs]
    assert all(address.startswith("/") for address in own + [node.attrs["href"] for node in root.all("link")])
    return root


def asked(address: str, **params: Any) -> Answer:
    given = {name.strip("_"): value for name, value in params.items()}
    return get(address, f"/search?{urlencode(given, doseq=True)}")


def rows(root: Node) -> list[list[str]]:
    """Time, URL, status, type, language and length of the captures on a page."""
    found = []
    for row in root.one("table", class_="captures").one("tbody").all("tr"):
        cells = [child.text for child in row.children if isinstance(child, Node)]
        found.append([cells[0], row.one("bdi").text, *cells[2:]])
    return found


def terms(root: Node, kind: str) -> dict[str, str]:
    """What a list of terms on a page says."""
    return {row.one("dt").text: row.one("dd").text for row in root.one("dl", class_=kind).all("div")}


@pytest.fixture(scope="module")
def site(harvested_data: Path, settings: Settings) -> Iterator[str]:
    with serving(harvested_data, settings) as address:
        yield address


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A crawl in which whoever is archived has written what they like."""
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
    settings = Settings(source=str(source), cache=folder / "cache")
    with catalogue.open(folder / "data", settings=settings) as cat:
        cat.harvest(CRAWL)
    with serving(folder / "data", settings) as address:
        yield address


def test_the_first_page_lists_the_crawls(site: str, harvested: Catalogue) -> None:
    root = page(get(site))
    listed = [row.all()[0].text for row in root.one("table").one("tbody").all("tr")]
    assert listed == [crawl.id for crawl in harvested.crawl_list()]
    for row in root.one("table").one("tbody").all("tr"):
        name = row.one("th").text
        links = [link.attrs["href"] for link in row.all("a")]
        assert links == [
            f"/{name}/",
            f"/{name}-index",
            f"https://data.commoncrawl.org/crawl-data/{name}/cc-index.paths.gz",
        ]
        held = harvested.crawls().set_index("crawl").loc[name]
        count = held["files_harvested"]
        words = f"all {count} file" if count else "has no columnar index"
        assert words in row.text
    assert "/collinfo.json" in [link.attrs["href"] for link in root.all("a")]


def test_a_source_that_does_not_say_which_crawls_there_are(tmp_path: Path) -> None:
    mirror = crawl_of(tmp_path / "mirror", table(["com,example)/"]))
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with serving(tmp_path / "nothing", settings) as address:
        assert "No crawl is known yet" in page(get(address)).one("main").text
        assert "nothing is harvested" in page(asked(address, url="example.com", crawl="all"), 404).one("main").text
        assert "Nothing is harvested yet" in page(get(address, "/status")).one("main").text
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(CRAWL)
    with serving(tmp_path / "data", settings) as address:
        assert page(get(address)).one("tbody").one("th").text == CRAWL


@pytest.mark.parametrize("slash", ["", "/"])
def test_each_crawl_has_a_page(site: str, crawl: str, slash: str) -> None:
    root = page(get(site, f"/{crawl}{slash}"))
    assert root.one("input", id="crawl").attrs["value"] == crawl
    old = root.one("form", class_="plain")
    assert (old.attrs["action"], old.attrs["method"]) == (f"/{crawl}-index", "get")
    sent = {node.attrs["name"]: node.attrs.get("value") for node in old.all("input")}
    assert sent == {"url": None, "output": "json", "showNumPages": "true"}


@pytest.mark.parametrize("path", ["/CC-MAIN-1999-01/", "/favicon.ico", "/%3Cscript%3E"])
def test_what_is_not_there(site: str, path: str) -> None:
    assert "Not found" in page(get(site, path), 404).one("main").text


def test_a_search_finds_what_the_catalogue_finds(site: str, harvested: Catalogue, crawl: str) -> None:
    table = harvested.captures("example.com/*", crawls=crawl, ordered=True).to_arrow().to_pylist()
    root = page(asked(site, url="example.com/*", crawl=crawl, limit=1000))
    found = rows(root)
    assert [row[1] for row in found] == [row["url"] for row in table]
    assert [row[0].split(" CC")[0] for row in found] == [f"{row['fetch_time']:%Y-%m-%d %H:%M:%S}" for row in table]
    assert [row[2] for row in found] == [str(row["fetch_status"]) for row in table]
    assert root.one("h2", id="found").text == f"{len(table)} captures of example.com/* in {crawl}"
    assert root.one("input", id="url").attrs["value"] == "example.com/*"
    links = [link.attrs["href"] for link in root.one("table").all("a")]
    first = f"/{crawl}/{timestamp(table[0]['fetch_time'])}"
    assert links[:3] == [f"{first}{form}_/{table[0]['url']}" for form in ("id", "text", "meta")]


def test_the_page_says_how_it_was_found(site: str, harvested: Catalogue, crawl: str) -> None:
    there = harvested.row_groups(crawl)
    root = page(asked(site, url="example.com/*", crawl=crawl, limit=1000))
    facts = terms(root, "plan")
    groups, files = (int(facts[name].split()[0]) for name in ("Row groups", "Files"))
    assert facts["Row groups"] == f"{groups} of {len(there)}"
    assert facts["Files"] == f"{files} of {there['path'].nunique()}"
    assert groups >= files > 0
    assert facts["Requests"].startswith("at most ")
    svg = root.one("svg", role="img")
    told = svg.one("desc").text
    assert told == " ".join(sentence.text for sentence in root.one("figcaption").all("p"))
    assert f"Of {len(there)} row groups {groups} " in told
    assert len(svg.all("rect", class_="read")) >= files + groups
    assert svg.all("line", class_="mark")


def test_conditions_are_those_of_the_catalogue(site: str, harvested: Catalogue, crawl: str) -> None:
    def urls(**conditions: Any) -> list[str]:
        return sorted(row[1] for row in rows(page(asked(site, url="*.example.com", limit=1000, **conditions))))

    def expected(**conditions: Any) -> list[str]:
        return sorted(row["url"] for row in harvested.captures("*.example.com", **conditions).to_arrow().to_pylist())

    assert urls(crawl=crawl, status="404") == expected(crawls=crawl, where="fetch_status = 404")
    assert urls(crawl=crawl, status="3xx") == expected(crawls=crawl, where="fetch_status // 100 = 3")
    assert urls(crawl=crawl, mime="Text/") == expected(crawls=crawl, where="content_mime_detected LIKE 'text/%'")
    html = expected(crawls=crawl, where="content_mime_detected = 'text/html'")
    assert urls(crawl=crawl, mime="text/html") == html
    assert html
    known = harvested.captures("*.example.com", crawls=crawl, columns="content_languages").to_arrow().to_pylist()
    language = next(row["content_languages"] for row in known if row["content_languages"]).split(",")[0]
    where = f"list_contains(string_split(content_languages, ','), '{language}')"
    assert urls(crawl=crawl, language=language) == expected(crawls=crawl, where=where)
    times = sorted(
        row["fetch_time"] for row in harvested.captures("*.example.com", crawls=crawl).to_arrow().to_pylist()
    )
    day = f"{times[len(times) // 2]:%Y%m%d}"
    assert urls(crawl=crawl, from_=day, to=day) == expected(crawls=crawl, from_=day, to=day)
    host = sorted(row["url"] for row in harvested.captures("example.com/*", crawls=crawl).to_arrow().to_pylist())
    found = rows(page(asked(site, url="example.com/", matchType="prefix", crawl=crawl, limit=1000)))
    assert sorted(row[1] for row in found) == host


def test_several_crawls(site: str, harvested: Catalogue) -> None:
    held = harvested.held()
    root = page(asked(site, url="example.com", crawl=[f"{held[-1]}..{held[1]}", "latest"], limit=1000))
    counts = harvested.captures("example.com").count_by_crawl()
    assert Counter(row[0].split()[-1] for row in rows(root)) == counts
    others = [link.attrs["href"] for link in root.one("aside").all("a")]
    assert [dict(parse_qsl(urlsplit(address).query))["crawl"] for address in others] == list(counts)[1:]
    assert root.one("title", id="map-title").text.endswith(next(iter(counts)))
    assert not [link for link in root.all("a") if "-index?" in link.attrs["href"]]


def test_more_and_in_another_order_and_elsewhere(site: str, crawl: str) -> None:
    given = {"order": "newest", "status": "2xx", "mime": "text/", "from_": "2001", "to": "2030-02"}
    root = page(asked(site, url="*.example.com", crawl=crawl, limit=7, **given))
    found = rows(root)
    assert len(found) == 7
    assert [row[0] for row in found] == sorted((row[0] for row in found), reverse=True)
    assert root.one("h2", id="found").text.endswith("; there are more")
    assert "there may be newer ones" in root.one("main").text
    links = {link.text: link.attrs["href"] for link in root.one("main").all("a")}
    more = page(get(site, links["Show up to 1,000"]))
    assert len(rows(more)) > 7
    path, query = links["As JSON lines"].split("?")
    assert path == f"/{crawl}-index"
    assert parse_qsl(query) == [
        ("url", "*.example.com"),
        ("output", "json"),
        ("from", "20010101000000"),
        ("to", "20300228235959"),
        ("filter", "~status:2.."),
        ("filter", "~mime-detected:text/.*"),
        ("limit", "7"),
    ]


def test_nothing_is_found(site: str, crawl: str) -> None:
    root = page(asked(site, url="nobody.example", crawl=crawl))
    assert root.one("h2", id="found").text == f"No captures of nobody.example in {crawl}"
    wider = [link.attrs["href"] for link in root.one("p", class_="empty").all("a")]
    assert [dict(parse_qsl(urlsplit(address).query))["url"] for address in wider] == [
        "nobody.example/*",
        "*.nobody.example",
    ]
    assert "Nothing in what is harvested matches" in page(asked(site, url="nobody.example/a/*")).one("main").text


@pytest.mark.parametrize(
    ("field", "text", "status", "message"),
    [
        ("url", "", 400, "type a URL"),
        ("url", "foo*bar", 400, "has a *"),
        ("url", "' OR 1=1", 400, "has a blank in it"),
        ("url", "<script>/*", 400, "where a host should be"),
        ("crawl", "CC-MAIN-1999-01", 404, "there is no crawl CC-MAIN-1999-01"),
        ("crawl", "nonsense", 404, "is not the name of a crawl"),
        ("crawl", "CC-MAIN-1999-01..CC-MAIN-1999-02", 404, "there is no crawl in"),
        ("matchType", "regex", 400, "exact, prefix, host and domain"),
        ("from", "yesterday", 400, "is no time"),
        ("to", "2001", 400, "lies before"),
        ("status", "2x0", 400, "is no status"),
        ("status", "200 OR 1=1", 400, "is no status"),
        ("mime", "text/html' OR 'a'='a", 400, "is no MIME type"),
        ("language", "e'g", 400, "is no language"),
        ("order", "random", 400, "is no order"),
        ("limit", "0", 400, "is no number from 1 to 1,000"),
        ("limit", "1001", 400, "is no number from 1 to 1,000"),
        ("limit", "²", 400, "is no number from 1 to 1,000"),
    ],
)
def test_what_cannot_be_asked_is_said_at_its_field(site: str, field: str, text: str, status: int, message: str) -> None:
    given = {"url": "example.com", "crawl": "latest", **({"from": "2002"} if field == "to" else {}), field: text}
    root = page(asked(site, **given), status)
    wrong = root.one(id=field)
    assert wrong.attrs["aria-invalid"] == "true"
    problem = root.one("p", class_="problem")
    assert problem.attrs["id"] in wrong.attrs["aria-describedby"].split()
    assert message in problem.text
    if wrong.tag == "input":
        assert wrong.attrs["value"] == text
    assert root.one(role="alert").one("a").attrs["href"] == f"#{field}"
    assert "open" in root.one("details").attrs or field in {"url", "crawl"}


def test_an_empty_form_asks_nothing(site: str) -> None:
    root = page(get(site, "/search"))
    assert not root.all("p", class_="problem")
    assert not root.all("table")


def test_what_strangers_wrote_stays_text(hostile: str) -> None:
    for address in ("/", f"/{CRAWL}/", "/status"):
        page(get(hostile, address))
    answer = asked(hostile, url="evil.example/*", crawl="all")
    root = page(answer)
    assert "<script" not in answer.text
    untimed, first, *others = rows(root)
    assert [row[1] for row in (untimed, first, *others)] == [HOSTILE, HOSTILE, *(url or "" for url in UNLINKED)]
    assert first[3:5] == ["text/ <b>", "<i>, eng"]
    assert all(row[3:5] == [NOTHING, NOTHING] for row in (untimed, *others))
    escaped = HOSTILE.replace("<", "%3C").replace(">", "%3E").replace('"', "%22").replace("#", "%23")
    links = [node.attrs["href"] for node in root.one("tbody").all("a")]
    assert links == [f"/{CRAWL}/20220809010200{form}/{escaped}" for form in ("id_", "text_", "meta_")]
    assert "<script" in root.one("svg", role="img").text
    evil = f"/search?url={quote(HOSTILE)}&crawl=%3Cscript%3E&status=%22%3E%3Cscript%3E"
    assert "<script" not in get(hostile, evil).text
    name = page(get(hostile, f"/{CRAWL}/")).one("h1").text
    assert name == "<script>alert(2)</script>"


def test_an_answer_that_may_be_incomplete_says_so(tmp_path: Path) -> None:
    def cut(path: Path) -> None:
        if "part-00001" in path.name:
            path.write_bytes(path.read_bytes()[:-4] + b"torn")

    mirror = crawl_of(tmp_path / "mirror", table(["com,example)/a"]), table(["com,example)/b"]), change=cut)
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(CRAWL)
    with serving(tmp_path / "data", settings) as address:
        notice = page(asked(address, url="example.com/*", crawl="all")).one("div", class_="notice")
        status = page(get(address, "/status")).one("tbody").text
    assert "This answer may be incomplete" in notice.text
    assert "1 of the 2 files" in notice.text
    assert notice.one("code").text == f"catalogue harvest --crawl {CRAWL} --subset warc"
    assert "some files failed" in status


def test_what_takes_too_long_is_planned_but_not_read(harvested_data: Path, settings: Settings, crawl: str) -> None:
    with serving(harvested_data, replace(settings, bandwidth=1.0)) as address:
        root = page(asked(address, url="*.com", crawl=crawl, status="299"))
        spent = page(get(address, "/status")).one("dl", class_="figures").text
    assert root.one("h2", id="found").text == f"*.com in {crawl}: not read"
    assert not root.all("table")
    command = root.one("div", class_="notice").one("code").text
    assert command == f"catalogue query '*.com' --crawl {crawl} --where 'fetch_status = 299'"
    assert root.one("svg", role="img").all("rect", class_="read")
    assert "Received from it 0 B" in spent


def test_overload_is_told_with_a_time_to_come_back(harvested_data: Path, settings: Settings) -> None:
    service = Service(harvested_data, settings, at_once=1, waiting=0)
    done = threading.Event()
    try:
        service.ask(lambda _: done.wait(60))
        with running(service) as address:
            for path in ("/", "/search?url=example.com", "/status", f"/{CRAWL}/"):
                answer = get(address, path)
                root = page(answer, 503)
                assert answer.headers["retry-after"] == "5"
                assert "too many questions wait already" in root.one("main").text
            done.set()
    finally:
        done.set()
        service.close()


def test_status_counts_what_was_asked(untaught_data: Path, settings: Settings, crawl: str) -> None:
    with serving(untaught_data, settings) as address:
        before = figures(address)
        page(asked(address, url="*.example.com", crawl=crawl))
        after = figures(address)
    assert before["Requests to the source since start"] == "0"
    assert int(after["Requests to the source since start"]) > 0
    assert after["Answered side by side"] == "2"
    assert after["Questions under way or waiting"] == "0"


def test_what_was_fetched_before_comes_from_the_cache(mirror: Path, tmp_path: Path, crawl: str) -> None:
    with LoopbackServer(mirror) as source:
        settings = Settings(source=source.url, cache=tmp_path / "cache")
        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            cat.harvest(crawl)
        with serving(tmp_path / "data", settings) as address:
            first, again = (page(asked(address, url="example.com", crawl=crawl)) for _ in range(2))
            kept = figures(address)
    assert rows(first) == rows(again)
    assert "From the cache" not in terms(first, "plan")
    assert terms(again, "plan")["Requests"] == "0"
    assert terms(again, "plan")["From the cache"] != "0 B"
    assert kept["Pages cached"] != "0 B"


def figures(address: str) -> dict[str, str]:
    return terms(page(get(address, "/status")), "figures")


def test_status_shows_each_subset(site: str, harvested: Catalogue) -> None:
    coverage = harvested.coverage()
    shown = page(get(site, "/status")).one("tbody").all("tr")
    assert len(shown) == len(coverage)
    for row, (_, known) in zip(shown, coverage.iterrows(), strict=True):
        cells = [child.text for child in row.children if isinstance(child, Node)]
        assert cells[:3] == [known["crawl"], known["subset"], f"{known['files_harvested']:,}"]
        assert cells[5] == f"{known['row_groups']:,}"
        assert cells[8] == ("complete" if cells[6] == "0" else "complete but for bounds")


def test_styles_and_pictures_may_be_kept(site: str) -> None:
    root = page(get(site))
    kinds = {"stylesheet": "text/css; charset=utf-8", "icon": "image/svg+xml"}
    for relation, kind in kinds.items():
        answer = get(site, root.one("link", rel=relation).attrs["href"])
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert "immutable" in answer.headers["cache-control"]
    style = get(site, "/static/style.css")
    assert get(site, "/static/style.css", If_None_Match=style.headers["etag"]).status == 304
    assert not re.search(r"url\(|@import|https?:", style.text)
    assert get(site, "/static/../web.py").status == 404


def test_heads_are_answered_alike(site: str) -> None:
    whole, head = (get(site, "/status", method=method) for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert get(site, "/search", method="POST").status == 405


def test_crawlers_are_asked_to_stay_away(site: str) -> None:
    answer = get(site, "/robots.txt")
    assert (answer.status, answer.text) == (200, "User-agent: *\nDisallow: /\n")
