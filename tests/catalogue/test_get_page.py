"""An archived page by its URL: the capture that is chosen, the cost of the search, the command."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.errors import NotArchived, NotFound, TooExpensive
from catalogue.get_page import GetEstimate
from tests.support.catalogues import catalogue_in
from tests.support.cdx_sources import NEWER, OLD, write_crawl
from tests.support.commands import Command
from tests.support.faults import FaultServer

WWW, WWW2 = "https://www.city.example/", "https://www2.city.example/"
Opened = Callable[..., AbstractContextManager[Catalogue]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Write crawls, and open a catalogue of them."""

    @contextmanager
    def opened(**crawls: tuple[tuple[str, str, str], ...]) -> Iterator[Catalogue]:
        for name, captures in crawls.items():
            write_crawl(tmp_path / "source", {"old": OLD, "newer": NEWER}[name], *captures)
        with catalogue_in(tmp_path, tmp_path / "source") as cat:
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


CITY, WWW7, START, THERE = (
    "https://city.example/",
    "https://www7.city.example/",
    "https://a.example/",
    "https://b.example/",
)
TIMES = ("20220118000000", "20220120000000", "20220122000000")
LATER = "20240601000000"
SPACES = {
    "https://r.example/my page": "https://r.example/my%20page",
    " /my page": "https://r.example/my%20page",
    r"\my page": "https://r.example/my%20page",
    "HTTP://R.example/Up": "http://r.example/Up",
}
Captures = tuple[tuple[str, str, str], ...]
Choice = tuple[Captures, Captures, list[tuple[str, str | None, str, str, bool]]]
"""Captures of an old and of a newer crawl; URL and time of each question; URL, time and exactness of its page."""
CHOICES: dict[str, Choice] = {
    "the nearest time of the requested URL": (
        tuple((url, time[:-1] + end, "") for url, end in ((WWW2, "0"), (WWW, "1")) for time in TIMES),
        (),
        [
            *((WWW2, at, WWW2, TIMES[2], True) for at in (None, "20220130", "20220121180000")),
            *((WWW2, at, WWW2, time, True) for at, time in (("20220117", TIMES[0]), ("20220120000001", TIMES[1]))),
        ],
    ),
    "an older crawl has the requested URL": (
        ((WWW2, TIMES[1], ""),),
        ((WWW, LATER, ""),),
        [
            *((WWW2, at, WWW2, TIMES[1], True) for at in (None, "2024-06")),
            *((WWW7, at, WWW, LATER, False) for at in (None, "2024-06")),
        ],
    ),
    "another status before another URL": (
        ((WWW2, TIMES[0], "404"), (WWW, TIMES[1], "")),
        (),
        [(WWW2, None, WWW2, TIMES[0], True)],
    ),
    "another status does not end the search": (
        ((CITY, TIMES[1], ""),),
        ((CITY, LATER, "500"), (WWW, "20240601000001", "")),
        [(CITY, None, CITY, TIMES[1], True)],
    ),
    "another status alone": ((), ((CITY, LATER, "500"), (WWW, LATER, "")), [(CITY, None, CITY, LATER, True)]),
    "targets of redirects are requested URLs": (
        ((START, TIMES[0], WWW2), (WWW2, TIMES[1], ""), (WWW, TIMES[0], ""), (THERE, TIMES[0], WWW7)),
        (),
        [
            (START, None, WWW2, TIMES[1], True),
            (THERE, None, WWW, TIMES[0], False),
            ("http://www.a.example/", None, WWW2, TIMES[1], False),
        ],
    ),
    "the nearest capture, and without a time the newest": (
        ((CITY, TIMES[0], ""),),
        ((CITY, LATER, ""),),
        [(CITY, at, CITY, time, True) for at, time in ((None, LATER), ("2022-06", TIMES[0]), ("2023-12", LATER))],
    ),
    "a page before a nearer redirect of its crawl": (
        ((CITY, TIMES[0], ""), (CITY, TIMES[2], THERE)),
        (),
        [(CITY, at, CITY, TIMES[0], True) for at in (None, "20220122")],
    ),
    "a redirect of the nearest crawl": (
        ((CITY, TIMES[0], THERE), (THERE, TIMES[1], "")),
        ((CITY, LATER, ""),),
        [(CITY, "20220118", THERE, TIMES[1], True), (CITY, None, CITY, LATER, True)],
    ),
    # Also where the list of crawls, which has their times, is not stored.
    "redirects stay in their own crawl": (
        ((START, TIMES[0], THERE), (THERE, TIMES[1], "")),
        ((THERE, LATER, ""),),
        [(START, None, THERE, TIMES[1], True)],
    ),
    **{
        f"redirect to {location!r}": (
            (("https://r.example/", TIMES[0], location), (target, TIMES[1], "")),
            (),
            [("https://r.example/", None, target, TIMES[1], True)],
        )
        for location, target in SPACES.items()
    },
}


@pytest.mark.parametrize("condition", CHOICES)
def test_chooses_a_capture(opened: Opened, condition: str) -> None:
    old, newer, answers = CHOICES[condition]
    crawls = {OLD: old} if not newer else {NEWER: newer} if not old else {NEWER: newer, OLD: old}
    with opened(**({"old": old} if old else {}), **({"newer": newer} if newer else {})) as cat:
        for asked, at, url, time, exact in answers:
            page = cat.get(asked, crawls=[*crawls], at=at)
            assert (page.url, f"{page.time:%Y%m%d%H%M%S}", page.exact) == (url, time, exact)
            assert [each.partition(" of ")[0] for each in page.substitutions] == ["no capture"] * (not exact)


@pytest.mark.parametrize("is_listed", [False, True])
def test_choice_does_not_depend_on_the_stored_list_of_crawls(tmp_path: Path, *, is_listed: bool) -> None:
    """The list has times of crawls, which overlap here."""
    between = "CC-MAIN-2022-33"
    crawls = {
        NEWER: ((CITY, "20220119000000", ""), (THERE, "20240601000000", "")),
        between: ((START, "20220121000000", THERE),),
        OLD: ((CITY, "20220122000000", ""), (THERE, "20220122000000", "")),
    }
    times = {
        NEWER: ("2022-01-19", "2024-06-02"),
        between: ("2022-01-20", "2022-08-20"),
        OLD: ("2022-01-16", "2022-01-30"),
    }
    for crawl, captures in crawls.items():
        write_crawl(tmp_path / "source", crawl, *captures)
    listed = [
        {"id": crawl, "from": f"{first}T00:00:00", "to": f"{last}T00:00:00"} for crawl, (first, last) in times.items()
    ]
    (tmp_path / "source" / COLLINFO).write_text(json.dumps(listed), encoding="utf-8")
    with catalogue_in(tmp_path, tmp_path / "source") as cat:
        if is_listed:
            cat.crawls(fetch=True)
        pages = [cat.get(CITY, at="2022-01", crawls=[*crawls]), cat.get(START, crawls=[*crawls])]
    assert [page.crawl for page in pages] == [NEWER, OLD]


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
        before = cat.requests
        assert cat.get(WWW2, crawls=[NEWER, OLD]).requests == cat.get(WWW2, crawls=NEWER).requests == 2
        assert cat.requests - before == 4


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


def test_says_which_crawl_has_a_capture_whose_archive_is_missing(opened: Opened, tmp_path: Path) -> None:
    with opened(old=((WWW, "20220120000000", ""),)) as cat:
        (archive,) = (tmp_path / "source").rglob("*.warc.gz")
        archive.unlink()
        with pytest.raises(NotFound, match=f"does not exist; this archive has the capture of {OLD}; choose") as raised:
            cat.get(WWW, crawls=OLD)
    assert raised.value.exit_status == 1


@pytest.mark.parametrize("location", ["http:///r.example/page", "https://r.example:abc/", "https://", "mailto:a@b"])
def test_says_that_a_redirect_is_not_valid(opened: Opened, location: str) -> None:
    url = "https://r.example/"
    with opened(old=((url, "20220120000000", location),)) as cat:
        with pytest.raises(NotArchived) as raised:
            cat.get(url, crawls=OLD)
        assert cat.get(url, crawls=OLD, follow=False).status == 301
    assert (raised.value.exit_status, raised.value.target) == (1, location)  # the URL itself is archived
    message = f"{url} redirects to {location!r}, which is not a valid URL; to get the redirect itself, use follow=False"
    assert str(raised.value) == message


def test_says_that_the_target_of_a_redirect_is_not_archived(opened: Opened) -> None:
    gone, urls = "https://gone.example/", [f"https://r.example/{number}" for number in range(12)]
    chain = ((url, TIMES[0], target) for url, target in pairwise(urls))
    with opened(old=((START, TIMES[0], THERE), (THERE, TIMES[1], ""), (CITY, TIMES[0], gone), *chain)) as cat:
        assert [each.url for each in cat.get(START, crawls=OLD).redirects] == [START]
        message = "the target of an archived redirect; to get the redirect itself, use follow=False"
        with pytest.raises(NotArchived, match=message):
            cat.get(CITY, crawls=OLD)
        assert cat.get(CITY, crawls=OLD, follow=False).status == 301
        with pytest.raises(NotArchived, match="more than 10 redirects") as raised:
            cat.get(urls[0], crawls=OLD)
        assert raised.value.target == urls[-1]


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
        catalogue_in(tmp_path, server.url) as cat,
    ):
        with pytest.raises(NotArchived, match=r"no capture of nowhere\S* in the .* crawls CC-MAIN-.* to CC-MAIN-"):
            cat.get("nowhere.example/", approve=estimates.append)
        spent = cat.requests
        with pytest.raises(TooExpensive, match="name crawls, or pass a larger max_requests"):
            cat.get("elsewhere.example/", max_requests=0)
        assert cat.requests == spent == server.requests
    assert all(each.requests > 20 >= each.spent for each in estimates[:1])
    assert estimates or spent <= 20


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
