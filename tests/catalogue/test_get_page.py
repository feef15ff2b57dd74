"""An archived page by its URL: costs of the search, forms of the page, the command."""

from pathlib import Path
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import NotArchived, TooExpensive
from catalogue.get_page import GetEstimate
from catalogue.settings import Settings
from tests.support.commands import Command
from tests.support.faults import FaultServer


@pytest.fixture
def row(harvested: Catalogue, mirror: Path, crawl: str) -> dict[str, Any]:
    """The latest capture of a page whose record is in the mirror."""
    columns = ["url", "warc_filename"]
    found = harvested.captures("*.example.com", crawls=crawl, status=200, latest=True, columns=columns)
    return next(row for row in found if row["url"].endswith("/") and (mirror / row["warc_filename"]).exists())


def test_search_asks_before_the_twenty_first_request(whole_mirror: Path, tmp_path: Path) -> None:
    estimates: list[GetEstimate] = []
    with (
        FaultServer(whole_mirror) as server,
        catalogue.open(tmp_path / "data", settings=Settings(source=server.url, cache=tmp_path / "cache")) as cat,
    ):
        with pytest.raises(NotArchived, match=r"no capture in the .* crawls CC-MAIN-.* to CC-MAIN-.* of nowhere"):
            cat.get("nowhere.example/", approve=estimates.append)
        spent = cat.requests
        with pytest.raises(TooExpensive, match="name crawls, or pass a larger max_requests"):
            cat.get("elsewhere.example/", max_requests=0)
        assert cat.requests == spent == server.requests
    assert all(each.requests > 20 >= each.spent for each in estimates[:1])
    assert estimates or spent <= 20


def test_page_has_text_markdown_html_headers_and_links(harvested: Catalogue, row: dict[str, Any], crawl: str) -> None:
    page = harvested.get(row["url"], crawls=crawl)
    assert page.status == 200
    assert page.html == page.content.decode()
    assert page.headers["Content-Type"].startswith("text/html")
    assert "<" in page.html
    assert page.text
    assert "<p>" not in page.text
    assert page.markdown
    assert page.markdown.startswith("# ")
    assert page.text.split()[-1] in page.markdown
    assert all(link["url"].startswith("http") for link in page.links if link["url"])
    assert page.crawl in str(page)


def test_command_prints_or_saves_a_page(command: Command, row: dict[str, Any], crawl: str, whole_mirror: Path) -> None:
    words = ("get", row["url"], "--crawl", crawl, "--source", str(whole_mirror), "--yes")
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
