"""Messages about unknown names suggest similar ones, and name the next call."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from catalogue.commoncrawl.crawls import check_crawl_name, closest_crawl, select_crawls, select_subsets
from catalogue.demo import Miniature
from catalogue.errors import NotHarvested, QueryError, UnknownCrawl
from catalogue.query.filters import languages, media_types
from catalogue.query.resolved_query import check_columns
from catalogue.selection import crawl_list, select_stored
from catalogue.settings import Settings
from catalogue.surt.pattern import Match
from tests.cli.test_cli import sentence
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.miniatures import OLD

KNOWN = ["CC-MAIN-2022-21", "CC-MAIN-2022-05", "CC-MAIN-2021-49", "CC-MAIN-2018-05", "CC-MAIN-2012"]


@pytest.mark.parametrize(
    ("text", "like"),
    [
        *(("CC-MAIN-2022-5", "CC-MAIN-2022-05"), ("cc-main-2022-05", "CC-MAIN-2022-05")),
        *(("2022-05", "CC-MAIN-2022-05"), ("202205", "CC-MAIN-2022-05"), ("CC-MAIN-2022-05-index", "CC-MAIN-2022-05")),
        *(("CC-MAIN-2022-06", "CC-MAIN-2022-05"), ("CC-MAIN-2021-52", "CC-MAIN-2021-49")),
        *(("CC-MAIN-2022-01", "CC-MAIN-2022-05"), ("CC-MAIN-2016-01", None), ("CC-MAIN-2022-05", None)),
        *(("CC-MAIN-2022", "2022"), ("Jan 2018", "2018"), ("CC-MAIN-2016", "CC-MAIN-2012")),
        *(("2021", "CC-MAIN-2021-49"), ("latst", "latest"), ("ALL", "all"), ("", None), ("nonsense", None)),
    ],
)
def test_suggests_crawls(text: str, like: str | None) -> None:
    assert closest_crawl(text, KNOWN) == like


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_crawl_name("2022-5"), r"'2022-5' is not the name of a crawl; did you mean CC-MAIN-2022-05\?"),
        (lambda: select_crawls(["CC-MAIN-2018-05..2021w49"], KNOWN), r"did you mean CC-MAIN-2021-49\?"),
        (lambda: select_crawls(["nonsense"], KNOWN), "one looks like CC-MAIN-2022-05"),
        (lambda: select_crawls(["cc-news"], KNOWN), "CC-NEWS has no index; crawl-data/CC-NEWS/2024/05/warc.paths.gz"),
        (lambda: check_columns(["status"]), "did you mean fetch_status"),
        (lambda: check_columns(["language"]), "did you mean content_languages"),
        (lambda: check_columns(["redirect"]), "did you mean fetch_redirect"),
        (lambda: select_subsets(["crawldiag"]), r"unknown subset 'crawldiag'; did you mean crawldiagnostics\?"),
        (lambda: languages("de-AT"), r"mean deu\?"),
        (lambda: languages("english"), "such as eng"),
        (lambda: languages(""), "such as eng"),
        (lambda: media_types("html"), "did you mean text/html"),
        (lambda: media_types("JPG"), "did you mean image/jpe?g"),
    ],
)
def test_messages_suggest_similar_names(call: Callable[[], object], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        call()


def test_accepts_languages_and_media_types() -> None:
    assert languages(["ISL", "isl,eng"]) == ("isl", "eng")
    for text in ("text/html", "application/x-never-heard-of", "unk", "image/*"):
        assert media_types(text) == (text,)


@pytest.fixture
def some(mirror: Path, untaught_data: Path, tmp_path: Path) -> Iterator[catalogue.Catalogue]:
    """All crawls are listed, and all but the oldest stored."""
    data = copytree(untaught_data, tmp_path / "data")
    with catalogue_in(tmp_path, mirror, data=data) as cat:
        cat.forget(OLD)
        yield cat


def test_names_subsets_that_are_not_harvested(mirror: Path, crawl: str, tmp_path: Path) -> None:
    with catalogue_in(tmp_path, mirror) as cat:
        cat.harvest(crawl)
        rest = f"not all files of {crawl}, %s, are harvested yet; run: catalogue harvest --crawl {crawl} --subset %s"
        with pytest.raises(NotHarvested, match=f"(?m)^{rest % ('robotstxt', 'robotstxt')}$"):
            cat.captures("example.com", crawls=crawl, subsets="robotstxt", index="columnar")
        for subset, names in (("robotstxt", "robotstxt"), ("all", "crawldiagnostics and robotstxt")):
            message = f"the CDX index has no column url_host_name, and {rest % (names, subset)}"
            with pytest.raises(NotHarvested, match=f"(?m)^{message}$"):
                cat.captures("example.com", crawls=crawl, subsets=subset, columns="url_host_name")
        assert not cat.captures("example.com", crawls=crawl, index="columnar").plan.missing


def test_suggests_stored_and_listed_crawls(some: catalogue.Catalogue) -> None:
    newest = some.session.stored_crawls()[0]
    year, week = newest.split("-")[2:]
    never, soon = f"CC-MAIN-{year}-{int(week) - 1:02}", f"CC-MAIN-{int(year) + 1}-{week}"
    ask, select = partial(some.captures, "example.com", index="columnar"), partial(select_stored, some.session)
    run = "run: catalogue harvest --crawl"
    unknown = f"^there is no crawl CC-MAIN-2099-01; the newest is {newest}$"
    cases: list[tuple[type[Exception], Callable[[], object], str]] = [
        (UnknownCrawl, lambda: ask(crawls=never), rf"^there is no crawl {never}; did you mean {newest}\?$"),
        (NotHarvested, lambda: ask(crawls=OLD), f"(?m)^{OLD} is not harvested yet; {run} {OLD}$"),
        (NotHarvested, lambda: ask(crawls=soon), f"{soon} is not harvested yet"),  # it may be newer than the list
        *((UnknownCrawl, partial(each, "CC-MAIN-2099-01"), unknown) for each in (some.plot, some.row_groups)),
        *((UnknownCrawl, partial(each, "CC-MAIN-2099-01"), unknown) for each in (select, some.backfill)),
        (UnknownCrawl, lambda: ask(crawls="CC-MAIN-2099-01"), unknown),
        (UnknownCrawl, lambda: some.harvest(never), rf"has no columnar index of {never}; did you mean {newest}\?$"),
        (UnknownCrawl, lambda: some.harvest(f"{newest}x"), rf"did you mean {newest}\?$"),
        (QueryError, lambda: ask(crawls=[]), "^no crawl is named"),
        (QueryError, lambda: ask(match="site"), "^invalid match 'site'; use exact, prefix, host or domain$"),
        (QueryError, lambda: ask(crawls="latest").space(OLD), f"^{OLD} is not among the crawls of the query: {newest}"),
    ]
    for error, call, message in cases:
        with pytest.raises(error, match=message):
            call()
    assert select(f"{year}-{week}") == select(year) == [newest]
    assert ask(match="host").plan.query == ask(match=Match.HOST).plan.query


@pytest.mark.in_soak
def test_python_errors_name_calls(some: catalogue.Catalogue, mirror: Path, tmp_path: Path) -> None:
    def next_step(ask: Callable[[], object]) -> str:
        with pytest.raises(QueryError) as reported:
            ask()
        (note,) = reported.value.__notes__
        return str(note).removeprefix("from Python: cat.")

    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    assert next_step(partial(some.plot, OLD)) == f"harvest('{OLD}')"
    assert next_step(partial(some.plot, "nonsense")) == "crawls()"
    assert next_step(partial(some.sql, "FROM cc.captures")) == "export_ducklake()"
    with catalogue.open(tmp_path / "new", settings=settings) as cat:
        assert next_step(cat.crawls) == "harvest('latest')"
        captures, words = partial(cat.captures, "x", index="columnar"), ["latest", OLD, "2022"]
        for ask in (partial(cat.plot, OLD), partial(select_stored, cat.session, OLD), partial(captures, crawls=OLD)):
            assert next_step(ask) == f"harvest('{OLD}')"
        every = ",".join(select_crawls(words, crawl_list(cat.session).crawls))
        assert next_step(partial(captures, crawls=words)) == f"harvest('{every}')"
        with pytest.raises(UnknownCrawl, match="there is no crawl CC-MAIN-2099-01"):  # also if nothing is stored
            cat.plot("CC-MAIN-2099-01")
        cat.harvest("latest")
        (stored,) = cat.session.stored_crawls()
        step = next_step(partial(captures, subsets="robotstxt", crawls="latest"))
        assert step == f"harvest('{stored}', subsets=['robotstxt'])"
    with catalogue.open(tmp_path / "new", settings=settings, table="hosts") as hosts:
        assert next_step(hosts.files) == "define('COLUMN', manifest='PATH'), then cat.harvest()"


def test_advice_about_stored_footers_names_no_option_that_fails(tmp_path: Path, miniature: Miniature) -> None:
    command = Command(tmp_path / "data", str(miniature.folder), tmp_path)
    assert command("harvest", "--crawl", "latest", "--index", "cdx").status == 0
    for words in (["export", "ducklake"], ["export", "iceberg", "index.iceberg"], ["backfill"]):
        reported = sentence(command(*words))
        assert "no footers are stored in" in reported
        assert reported.endswith("yet; run: catalogue harvest --crawl latest")
    ran = command("sql", "find-url", "--json")
    assert (ran.status, ran.out) == (0, "")
    assert ran.err.startswith("no footers are stored, so only the views crawls and blocks can have rows; run: ")
    assert ran.err.endswith(" harvest --crawl latest\n")


def test_suggests_datasets_and_names_crawls_that_are_not_listed(command: Command) -> None:
    assert command("harvest", "--table", "hosts", "--key", "host", "nowhere.parquet").status == 1
    reported = sentence(command("query", "x", "--table", "hsts"))
    assert "there is no dataset hsts in" in reported
    assert "did you mean hosts? if not, run: catalogue harvest --table hsts" in reported
    assert command("crawls").status == 0  # stores the list
    assert command("status").out.startswith("store ")  # no table without rows
    ran = command("plan", "example.com", "--crawl", "CC-MAIN-2020-10")
    assert ran.status == 0
    assert "the list of crawls does not have CC-MAIN-2020-10; " in ran.err
