"""An archived page by its URL: which capture is chosen, redirects, costs."""

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import NotArchived, NotFound, TooExpensive
from catalogue.get_page import GetEstimate
from catalogue.settings import Settings
from catalogue.surt import url_surtkey
from tests.support.amounts import COMPLETE
from tests.support.commands import Command
from tests.support.faults import FaultServer
from tests.support.mirrors import whole_table

REDIRECTS = {301, 302, 303, 307, 308}
COLUMNS = ("url", "url_surtkey", "fetch_time", "fetch_status", "fetch_redirect", "crawl")
PLACE = ("warc_filename", "warc_record_offset")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def every_key(whole_mirror: Path) -> dict[str, list[Row]]:
    """All captures by key."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in whole_table(whole_mirror, (*COLUMNS, *PLACE)).to_pylist():
        time = row["fetch_time"]
        found[row["url_surtkey"]].append(row | {"time": time if time.tzinfo else time.replace(tzinfo=UTC)})
    return found


@pytest.fixture(scope="module")
def by_key(every_key: dict[str, list[Row]], whole_mirror: Path) -> dict[str, list[Row]]:
    """The captures of keys all of whose records are in the mirror."""
    there = {row["warc_filename"]: True for rows in every_key.values() for row in rows}
    there = {name: (whole_mirror / name).exists() for name in there}
    return {key: rows for key, rows in every_key.items() if all(there[row["warc_filename"]] for row in rows)}


@pytest.fixture(scope="module")
def cat(whole_mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    folder = tmp_path_factory.mktemp("get")
    with catalogue.open(folder / "data", settings=Settings(source=str(whole_mirror), cache=folder / "cache")) as opened:
        yield opened


def opened(server: FaultServer, folder: Path) -> Catalogue:
    return catalogue.open(folder / "data", settings=Settings(source=server.url, cache=folder / "cache"))


def best(rows: list[Row], at: datetime | None) -> Row:
    """The nearest crawl's nearest page, else its nearest redirect; without a time the newest of the newest crawl."""

    def nearness(row: Row) -> tuple[float, float]:
        distance = abs((row["time"] - at).total_seconds()) if at else 0.0
        return max(0.0, distance - 1), -row["time"].timestamp()

    usable = [row for row in rows if row["fetch_status"] // 100 == 2 or row["fetch_status"] in REDIRECTS]
    if not usable:
        return min(rows, key=nearness)
    crawls = newest_first({row["crawl"] for row in usable})
    candidates = []
    for crawl in crawls if at else crawls[:1]:
        of_crawl = [row for row in usable if row["crawl"] == crawl]
        candidates.append(min(of_crawl, key=lambda row: (row["fetch_status"] // 100 != 2, nearness(row))))
    return min(candidates, key=nearness)


def newest(rows: list[Row]) -> Row:
    return best(rows, None)


def place(row: Row) -> tuple[str, int]:
    return row["warc_filename"], row["warc_record_offset"]


def test_gets_the_nearest_and_the_newest_capture(cat: Catalogue, by_key: dict[str, list[Row]]) -> None:
    drawn = random.Random(3)
    keys = sorted(by_key)
    several = [key for key in keys if len({(row["crawl"], row["fetch_status"]) for row in by_key[key]}) > 1]
    for key in [*drawn.sample(keys, 1), *drawn.sample(several, 3 if COMPLETE else 2)]:
        rows = by_key[key]
        times = sorted(row["time"] for row in rows)
        between = times[0] + (times[-1] - times[0]) * drawn.random()
        for at in (None, between.replace(microsecond=0)):
            page = cat.get(
                rows[0]["url"],
                at=at and f"{at:%Y%m%d%H%M%S}",
                crawls=sorted({row["crawl"] for row in rows}),
                follow=False,
                max_requests=1000,
            )
            assert (page.capture.filename, page.capture.offset) == place(best(rows, at)), (key, at)
            assert page.crawl == best(rows, at)["crawl"]


def test_follows_redirects_that_are_archived(
    cat: Catalogue, by_key: dict[str, list[Row]], every_key: dict[str, list[Row]]
) -> None:
    followed = []
    redirects = (row for row in map(newest, by_key.values()) if row["fetch_status"] in REDIRECTS)
    for row in redirects:
        with suppress(NotArchived, NotFound):  # some targets, and some of their records, are not in the mirror
            followed.append((row, cat.get(row["url"], crawls=row["crawl"], max_requests=1000)))
        if len(followed) == 2:
            break
    for row, page in followed:
        assert page.redirects[0].url == row["url"]
        assert page.status not in REDIRECTS
    assert followed
    lone = next(
        row
        for key, (row, *others) in by_key.items()
        if not others and row["fetch_redirect"] and url_surtkey(row["fetch_redirect"]) not in every_key.keys() - {key}
    )
    with pytest.raises(
        NotArchived, match="the target of an archived redirect; to get the redirect itself, use follow=False"
    ):
        cat.get(lone["url"], crawls=lone["crawl"], max_requests=1000)
    assert cat.get(lone["url"], crawls=lone["crawl"], follow=False, max_requests=1000).status == lone["fetch_status"]


def test_search_asks_before_the_twenty_first_request(whole_mirror: Path, tmp_path: Path) -> None:
    estimates: list[GetEstimate] = []
    with FaultServer(whole_mirror) as server, opened(server, tmp_path) as cat:
        with pytest.raises(NotArchived, match=r"no capture in the .* crawls CC-MAIN-.* to CC-MAIN-.* of nowhere"):
            cat.get("nowhere.example/", approve=estimates.append)
        spent = cat.requests
        with pytest.raises(TooExpensive, match="name crawls, or pass a larger max_requests"):
            cat.get("elsewhere.example/", max_requests=0)
        assert cat.requests == spent == server.requests
    assert all(each.requests > 20 >= each.spent for each in estimates[:1])
    assert estimates or spent <= 20


def test_page_has_text_markdown_html_headers_and_links(cat: Catalogue, by_key: dict[str, list[Row]]) -> None:
    row = next(
        row
        for rows in by_key.values()
        for row in rows
        if len(rows) == 1 and row["fetch_status"] == 200 and row["url"].endswith("/")
    )
    page = cat.get(row["url"], crawls=row["crawl"], max_requests=1000)
    assert page.status == 200
    assert page.html == page.content.decode()
    assert page.headers["Content-Type"].startswith("text/html")
    assert "<" in page.html
    assert page.text
    assert "<p>" not in page.text
    assert page.markdown
    assert page.markdown.startswith("# ")
    words = page.text.split()[-1]
    assert words in page.markdown
    assert all(link["url"].startswith("http") for link in page.links if link["url"])
    assert page.crawl in str(page)


def test_command_prints_or_saves_a_page(command: Command, by_key: dict[str, list[Row]], whole_mirror: Path) -> None:
    row = next(row for rows in by_key.values() for row in rows if len(rows) == 1 and row["fetch_status"] == 200)
    words = ("get", row["url"], "--crawl", row["crawl"], "--source", str(whole_mirror), "--yes")
    printed = command(*words)
    assert printed.status == 0
    assert printed.err.splitlines()[-3].startswith("200")
    assert row["warc_filename"] in printed.err.splitlines()[-2]
    assert "request" in printed.err.splitlines()[-1]
    saved = command(*words, "--save", "page.html")
    assert (saved.status, saved.out) == (0, "")
    assert (command.home / "page.html").read_bytes().decode(errors="replace") == printed.out
    described = command(*words, "--json", "--text").json()
    assert described["status"] == 200
    assert described["url"] == row["url"]
    assert described["text"]
    assert command(*words, "--headers").out.startswith("HTTP/1.1 200")


def test_names_a_crawl_that_the_source_lacks(command: Command) -> None:
    ran = command("get", "example.com", "--crawl", "2093-01", "--quiet")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("catalogue: there is no crawl CC-MAIN-2093-01; ")
