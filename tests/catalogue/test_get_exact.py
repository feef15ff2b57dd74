"""The page of the requested URL, where other URLs have the same key."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import NotArchived
from catalogue.get_page import GetEstimate
from catalogue.settings import Settings
from tests.support.commands import Command
from tests.support.page_crawls import NEWER, OLD, write_crawl

WWW, WWW2 = "https://www.city.example/", "https://www2.city.example/"
Opened = Callable[..., AbstractContextManager[Catalogue]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Write crawls, and open a catalogue of them."""

    @contextmanager
    def opened(**crawls: tuple[tuple[str, str, str], ...]) -> Iterator[Catalogue]:
        for name, captures in crawls.items():
            write_crawl(tmp_path / "source", {"old": OLD, "newer": NEWER}[name], *captures)
        settings = Settings(source=str(tmp_path / "source"), cache=tmp_path / "cache")
        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            yield cat

    return opened


def test_prefers_the_requested_url_to_newer_captures_of_its_key(opened: Opened) -> None:
    pages = [
        WWW2,
        WWW,
        "https://www3288.com/",
        "https://www1355544.com/",
        "https://a.example/AbC",
        "https://a.example/aBc",
    ]
    captures = tuple((url, f"202201{20 + number}000000", "") for number, url in enumerate(pages))
    spelled = {"http://WWW2.city.example:80": WWW2, "www2.city.example/#top": WWW2, "a.example/%41bC": pages[4]}
    with opened(old=captures) as cat:
        for url, expected in [*zip(pages, pages, strict=True), *spelled.items()]:
            page = cat.get(url, crawls=OLD)
            assert (page.url, page.exact, page.substitutions) == (expected, True, ())


def test_uses_another_url_only_if_there_is_none(opened: Opened) -> None:
    captures = ((WWW, "20220120000000", ""), ("https://www5.city.example/", "20220121000000", ""))
    with opened(old=captures) as cat:
        page = cat.get(WWW2, crawls=OLD)
    assert (page.url, page.exact) == ("https://www5.city.example/", False)
    (sentence,) = page.substitutions
    assert sentence == f"no capture of {WWW2}; this is https://www5.city.example/, which has the same key"
    assert page.notes == ()


def test_finds_the_newest_and_the_nearest_of_the_requested_url(opened: Opened) -> None:
    times = ("20220118000000", "20220120000000", "20220122000000")
    captures = tuple((url, time[:-1] + end, "") for url, end in ((WWW2, "0"), (WWW, "1")) for time in times)
    with opened(old=captures) as cat:
        assert cat.get(WWW2, crawls=OLD).capture.time == cat.get(WWW2, crawls=OLD, at="20220130").capture.time
        for at, expected in (("20220117", times[0]), ("20220120000001", times[1]), ("20220121180000", times[2])):
            page = cat.get(WWW2, crawls=OLD, at=at)
            assert (page.url, f"{page.time:%Y%m%d%H%M%S}") == (WWW2, expected)


@pytest.mark.parametrize("at", [None, "2024-06"])
def test_searches_older_crawls_for_the_requested_url(opened: Opened, at: str | None) -> None:
    captures = {"old": ((WWW2, "20220120000000", ""),), "newer": ((WWW, "20240601000000", ""),)}
    with opened(**captures) as cat:
        page = cat.get(WWW2, crawls=[NEWER, OLD], at=at)
        assert (page.url, page.crawl, page.exact) == (WWW2, OLD, True)
        other = cat.get("https://www7.city.example/", crawls=[NEWER, OLD], at=at)
        assert (other.url, other.crawl, other.exact) == (WWW, NEWER, False)


@pytest.mark.parametrize("url", ["city.example", "https://city.example", "www.city.example/#x"])
def test_page_with_www_or_a_last_slash_ends_the_search(opened: Opened, url: str) -> None:
    captures = {
        "old": (("https://city.example/", "20220120000000", ""),),
        "newer": ((WWW, "20240601000000", ""), (WWW2, "20240602000000", "")),
    }
    with opened(**captures) as cat:
        page = cat.get(url, crawls=[NEWER, OLD])
        assert (page.url, page.exact) == (WWW, url.startswith("www"))
        exact, again = (cat.get(asked, crawls=[NEWER, OLD]).requests for asked in (WWW, url))
        assert again == exact


def test_exact_capture_takes_no_more_requests(opened: Opened) -> None:
    captures = {
        "old": ((WWW2, "20220120000000", ""),),
        "newer": ((WWW, "20240602000000", ""), (WWW2, "20240601000000", "")),
    }
    with opened(**captures) as cat:
        cat.harvest([OLD, NEWER], index="cdx")
        assert cat.get(WWW2, crawls=[NEWER, OLD]).requests == cat.get(WWW2, crawls=NEWER).requests == 2


def test_search_for_the_requested_url_asks_for_nothing(opened: Opened) -> None:
    """A capture of another URL is used before the search would need approval."""
    captures = {"old": ((WWW2, "20220120000000", ""),), "newer": ((WWW, "20240601000000", ""),)}
    estimates: list[GetEstimate] = []
    with opened(**captures) as cat:
        cat.harvest([OLD, NEWER], index="cdx")
        page = cat.get(WWW2, crawls=[NEWER, OLD], max_requests=2, approve=estimates.append)
    assert (page.url, page.requests, estimates) == (WWW, 2, [])
    assert page.substitutions == (
        f"no capture of {WWW2} in the 1 crawl searched; this is {WWW}, which has the same key",
    )


def test_another_status_of_the_requested_url_is_better_than_a_page_of_another(opened: Opened) -> None:
    captures = ((WWW2, "20220120000000", "404"), (WWW, "20220121000000", ""))
    with opened(old=captures) as cat:
        page = cat.get(WWW2, crawls=OLD)
        assert (page.url, page.status, page.exact) == (WWW2, 404, True)


def test_another_status_of_the_requested_url_does_not_end_the_search(opened: Opened) -> None:
    url = "https://city.example/"
    old, newer = ((url, "20220120000000", ""),), ((url, "20240601000000", "500"), (WWW, "20240601000001", ""))
    with opened(old=old, newer=newer) as cat:
        page = cat.get(url, crawls=[NEWER, OLD])
        assert (page.url, page.status, page.crawl, page.exact) == (url, 200, OLD, True)
        page = cat.get(url, crawls=NEWER)
        assert (page.url, page.status, page.exact) == (url, 500, True)


def test_targets_of_redirects_are_requested_urls(opened: Opened) -> None:
    start, there = "https://start.example/a", "https://start.example/b"
    captures = (
        (start, "20220120000000", WWW2),
        (WWW2, "20220120000001", ""),
        (WWW, "20220120000000", ""),
        (there, "20220120000000", "https://www7.city.example/"),
    )
    with opened(old=captures) as cat:
        page = cat.get(start, crawls=OLD)
        assert (page.url, page.exact) == (WWW2, True)
        page = cat.get(there, crawls=OLD)
        assert (page.url, page.exact) == (WWW, False)
        assert page.substitutions[0].startswith("no capture of https://www7.city.example/; this is ")
        page = cat.get("http://www.start.example/a", crawls=OLD)
        assert (page.url, page.exact) == (WWW2, False)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://r.example/my page", "https://r.example/my%20page"),
        (" /my page", "https://r.example/my%20page"),
        (r"\my page", "https://r.example/my%20page"),
        ("HTTP://R.example/Up", "http://r.example/Up"),
    ],
)
def test_follows_redirects_to_urls_with_spaces(opened: Opened, location: str, target: str) -> None:
    captures = (("https://r.example/", "20220120000000", location), (target, "20220120000001", ""))
    with opened(old=captures) as cat:
        page = cat.get("https://r.example/", crawls=OLD)
    assert (page.url, page.exact, page.status) == (target, True, 200)


@pytest.mark.parametrize("location", ["http:///r.example/page", "https://r.example:abc/", "https://", "mailto:a@b"])
def test_says_that_a_redirect_is_not_valid(opened: Opened, location: str) -> None:
    url = "https://r.example/"
    with opened(old=((url, "20220120000000", location),)) as cat:
        with pytest.raises(NotArchived) as raised:
            cat.get(url, crawls=OLD)
        assert cat.get(url, crawls=OLD, follow=False).status == 301
    assert raised.value.exit_status == 1
    message = f"{url} redirects to {location!r}, which is not a valid URL; to get the redirect itself, use follow=False"
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "url", ["https:////sites.example/robots.txt", "HTTP://Sites.example/A b", "https://sites.example/a\tb c\x01é"]
)
def test_gets_odd_urls_of_the_index(opened: Opened, url: str) -> None:
    with opened(old=((url, "20220120000000", ""),)) as cat:
        assert cat.captures(url, crawls=OLD, exact_url=True).to_arrow()["url"].to_pylist() == [url]
        assert cat.get(url, crawls=OLD).exact


def test_command_says_that_the_page_is_of_another_url(command: Command, tmp_path: Path) -> None:
    write_crawl(tmp_path / "source", OLD, (WWW, "20220120000000", ""))
    words = ("--crawl", OLD, "--source", str(tmp_path / "source"), "--json")
    other, exact = command("get", WWW2, *words), command("get", WWW, *words)
    assert (other.status, exact.status) == (0, 0)
    assert (other.json()["exact"], exact.json()["exact"]) == (False, True)
    sentence = f"no capture of {WWW2}; this is {WWW}, which has the same key"
    assert sentence in other.err
    assert "same key" not in exact.err
    assert sentence in command("get", WWW2, "-q", *words).err
