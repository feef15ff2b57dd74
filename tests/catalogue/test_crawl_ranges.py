"""Words for crawls: which crawls they select, whether something is stored of them or not."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import NotHarvested, UnknownCrawl
from catalogue.find_captures import select
from catalogue.query.query import Query
from catalogue.reports import crawl_rows
from catalogue.selection import select_stored
from catalogue.settings import Settings


@pytest.fixture(scope="module")
def all_but_one(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("ranges") / "data"))
    with catalogue.open(data, settings=settings) as opened:
        opened.forget(opened.session.stored_crawls()[1])
    return data


@pytest.fixture
def cat(all_but_one: Path, settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    """All crawls are listed, and all but the second are stored."""
    with catalogue.open(copytree(all_but_one, tmp_path / "data"), settings=settings) as opened:
        yield opened


def listed(cat: Catalogue) -> list[str]:
    """Newest first; one has no columnar index."""
    return [row["crawl"] for row in crawl_rows(cat.session) if row["has_table"]]


def selected(cat: Catalogue, *words: str) -> list[str]:
    return [*select(cat.session, Query.of("*", crawls=words or None)).crawls]


def test_words_select_rows_of_views(cat: Catalogue) -> None:
    newest, *others = cat.crawls().query("files_harvested > 0").crawl
    for view in (cat.files, cat.row_groups):
        every = view().crawl.value_counts().to_dict()
        assert {*every} == {newest, *others}
        for word, crawls in (("latest", [newest]), (newest[8:], [newest]), ("2000..", [newest, *others])):
            assert view(word).crawl.value_counts().to_dict() == {crawl: every[crawl] for crawl in crawls}
    for chunks in (cat.column_chunks(newest[8:]), cat.column_chunks(iter([newest]))):
        assert {*chunks.crawl} == {newest}
    assert newest in repr(cat.plot([newest]))


def test_words_select_listed_crawls(cat: Catalogue) -> None:
    newest, removed, *_, oldest = every = listed(cat)
    for words in ("all", "..", f"{oldest}..{newest}", f"{oldest}..", f"..{newest}", f"{oldest[8:]}..LATEST"):
        assert selected(cat, words) == every
    assert selected(cat, "latest") == selected(cat, newest[8:12]) == [newest]
    assert selected(cat, f"{removed}..") == [newest, removed]
    assert selected(cat, oldest, newest) == [newest, oldest]
    unlisted = f"CC-MAIN-{int(newest[8:12]) + 1}-01"
    assert selected(cat, unlisted, "latest") == selected(cat, "1", unlisted) == [unlisted, newest]
    assert selected(cat) == selected(cat, "stored") == [crawl for crawl in every if crawl != removed]
    assert selected(cat, "stored", removed) == every
    cat.forget(newest)
    assert selected(cat, "latest") == [newest]
    with pytest.raises(UnknownCrawl, match=f"^'.{newest}' is not the name of a crawl; did you mean {newest}"):
        selected(cat, f"{oldest}...{newest}")


def test_words_of_commands_about_what_is_stored_select_stored_crawls(cat: Catalogue) -> None:
    newest, removed, *_, oldest = listed(cat)
    there = [crawl for crawl in listed(cat) if crawl != removed]
    for words in ("all", "stored", "..", f"{oldest}..{newest}"):
        assert select_stored(cat.session, words) == there
    assert select_stored(cat.session, newest[8:12]) == select_stored(cat.session, "latest") == [newest]
    cat.forget(newest)
    for words in ("latest", newest, removed):
        with pytest.raises(NotHarvested, match=r"is not harvested yet; run: catalogue harvest --crawl CC-MAIN-\d"):
            select_stored(cat.session, words)


def test_rejects_crawls_without_footers_of_the_columnar_index(cat: Catalogue) -> None:
    newest, removed, *_, oldest = listed(cat)
    for words in (f"{oldest}..{newest}", removed, removed[8:12], "all", ".."):
        with pytest.raises(
            NotHarvested, match=f"^{removed} is not harvested yet; run: catalogue harvest --crawl {removed}\n"
        ):
            cat.captures("example.com", crawls=words, index="columnar")
    cat.forget(newest)
    with pytest.raises(NotHarvested, match=f"^2 of . crawls are not harvested yet; .* --crawl {newest},{removed}\n"):
        cat.captures("example.com", crawls="all", index="columnar")


def test_advice_to_harvest_names_crawls_and_subsets(cat: Catalogue, settings: Settings, tmp_path: Path) -> None:
    removed = listed(cat)[1]
    message = rf"--crawl {removed} --subset warc --subset robotstxt\n.*subsets=\['warc', 'robotstxt'\]"
    with catalogue.open(tmp_path / "new", settings=settings) as new:
        for opened in (cat, new):
            with pytest.raises(NotHarvested, match=message):
                opened.captures("example.com", crawls=removed, subsets=["robotstxt", "warc"], index="columnar")
        with pytest.raises(NotHarvested, match=r"^nothing is stored in .*new yet; add crawls='latest', or run: "):
            new.captures("example.com")


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("status", "subsets"),
    [
        (None, ["warc"]),
        (200, ["warc", "robotstxt"]),
        ("2xx", ["warc", "crawldiagnostics", "robotstxt"]),
        (["301", "404"], ["crawldiagnostics", "robotstxt"]),
        (["200", "404"], ["warc", "crawldiagnostics", "robotstxt"]),
        ("5xx", ["crawldiagnostics", "robotstxt"]),
    ],
)
def test_statuses_select_the_subsets_that_can_have_them(
    cat: Catalogue, status: str | int | list[str] | None, subsets: list[str]
) -> None:
    assert [*select(cat.session, Query.of("*", status=status)).subsets] == subsets
    assert select(cat.session, Query.of("*", status=status, subsets="robotstxt")).subsets == ("robotstxt",)


def test_url_of_a_robots_file_selects_their_subset(cat: Catalogue) -> None:
    for patterns in ("https://example.com/robots.txt", ["example.org/*", "EXAMPLE.com/Robots.txt"]):
        assert select(cat.session, Query.of(patterns)).subsets == ("warc", "robotstxt")
    assert select(cat.session, Query.of("example.com/robots.txt", subsets="warc")).subsets == ("warc",)
