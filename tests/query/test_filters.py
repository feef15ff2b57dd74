"""One grammar for status, media type and language: command line, Python, web form and JSON API."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.errors import IncompleteAnswer, QueryError
from tests.cli.test_cli import sentence
from tests.support.commands import Command
from tests.support.serving import get
from tests.support.web_pages import page, rows, search, serving_site

site = pytest.fixture(scope="module")(serving_site)

SITE = "*.example.com"


def urls(captures: catalogue.Captures) -> list[str]:
    return sorted(captures.to_arrow().column("url").to_pylist())


@pytest.mark.in_part(5)
@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ({"status": 200}, "fetch_status = 200"),
        ({"status": "3XX"}, "fetch_status BETWEEN 300 AND 399"),
        ({"status": "40x"}, "fetch_status BETWEEN 400 AND 409"),
        ({"status": [404, "301, 302"]}, "fetch_status IN (301, 302, 404)"),
        ({"status": "404,3xx"}, "fetch_status = 404 OR fetch_status BETWEEN 300 AND 399"),
        ({"mime": "Text/HTML"}, "content_mime_detected = 'text/html'"),
        ({"mime": "text/"}, "content_mime_detected LIKE 'text/%'"),
        ({"mime": ["text/*"]}, "content_mime_detected LIKE 'text/%'"),
        ({"mime": "image/*,application/x*"}, "regexp_matches(content_mime_detected, '^(image/|application/x)')"),
        ({"mime": ["text/html", "image/jpeg"]}, "content_mime_detected IN ('text/html', 'image/jpeg')"),
        ({"lang": "ENG"}, "list_contains(string_split(content_languages, ','), 'eng')"),
        ({"lang": ["eng", "deu"]}, "list_has_any(string_split(content_languages, ','), ['eng', 'deu'])"),
        ({"status": 200, "mime": "text/*"}, ["fetch_status = 200", "content_mime_detected LIKE 'text/%'"]),
        ({"where": ["fetch_status = 200 OR true", "url LIKE 'https:%'"]}, "url LIKE 'https:%'"),
    ],
)
def test_parses_filters(harvested: Catalogue, filters: dict[str, Any], where: str) -> None:
    found = urls(harvested.captures(SITE, columns="url", subsets="all", **filters))
    assert found == urls(harvested.captures(SITE, columns="url", subsets="all", where=where))
    assert 0 < len(found) < harvested.captures(SITE, subsets="all").count()


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "filters",
    [{"status": "3xx,404", "mime": "text/*"}, {"status": "200", "mime": "text/html,image/", "lang": "eng,deu"}],
)
def test_all_interfaces_return_the_same(
    site: str, asking: Command, harvested: Catalogue, crawl: str, filters: dict[str, str]
) -> None:
    expected = urls(harvested.captures(SITE, crawls=crawl, columns="url", subsets="all", **dict[str, Any](filters)))
    assert expected
    options = [word for name, value in filters.items() for each in value.split(",") for word in (f"--{name}", each)]
    ran = asking("query", SITE, "--crawl", crawl, *options, "--columns", "url", "--format", "jsonl")
    assert sorted(row["url"] for row in ran.json_lines()) == expected
    answer = get(site, f"/api/query?{urlencode({'url': SITE, 'crawl': crawl, 'limit': 10_000} | filters)}")
    assert sorted(row["url"] for row in answer.json["captures"]) == expected
    assert sorted(row[1] for row in rows(page(search(site, url=SITE, crawl=crawl, limit=1000, **filters)))) == expected


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("status", "9999999", "invalid status '9999999'; use 200, 40x, 2xx or 200,404"),
        ("status", "2x0", "invalid status '2x0'"),
        ("status", "200,", "invalid status ''"),
        ("mime", "pdf", "did you mean application/pdf?"),
        ("mime", "*/*", "use text/html, text/* or application/vnd*"),
        ("lang", "en", "did you mean eng?"),
        ("lang", "eng'", "invalid language"),
    ],
)
def test_rejects_invalid_filters(
    site: str, asking: Command, harvested: Catalogue, name: str, value: str, says: str
) -> None:
    ran = asking("plan", SITE, f"--{name}", value)
    assert ran.status == 2
    assert says in sentence(ran)
    with pytest.raises(QueryError) as raised:
        harvested.captures(SITE, **dict[str, Any]({name: value}))
    assert says in str(raised.value)
    assert says in page(search(site, url=SITE, **{name: value}), 400).one("p", class_="problem").text
    answer = get(site, f"/api/plan?{urlencode({'url': SITE, name: value})}")
    assert answer.status == 422
    assert says in answer.json["message"]


def test_all_interfaces_report_columns_that_old_crawls_lack(
    site: str, asking: Command, harvested: Catalogue, tmp_path: Path
) -> None:
    old, note = min(harvested.files()["crawl"]), "crawls before CC-MAIN-2018-39 have no content_languages"
    (tmp_path / "urls.txt").write_text("example.com\n")
    commands = (["query", SITE], ["plan", SITE], ["fetch", SITE, "--dry-run"], ["sample", "-n", "1", SITE])
    for words in (*commands, ["join", "urls.txt", "-o", "found.parquet"]):
        ran = asking(*words, "--crawl", old, "--lang", "isl")
        assert f"note: {note}" in ran.out + ran.err, words
    with pytest.warns(IncompleteAnswer, match=note):
        assert harvested.captures(SITE, crawls=old, lang="isl").count() == 0
    assert note in page(search(site, url=SITE, crawl=old, lang="isl")).one("section").text
    answer = get(site, f"/api/query?{urlencode({'url': SITE, 'crawl': old, 'lang': 'isl'})}")
    assert note in " ".join(answer.json["plan"]["warnings"])


@pytest.mark.parametrize("columns", ["url", None])
def test_plans_equal_those_of_where(harvested: Catalogue, columns: str | None) -> None:
    asked: dict[str, Any] = {"columns": columns, "subsets": "all"}
    where = ["fetch_status = 404", "content_mime_detected = 'text/html'"]
    plan = harvested.captures("*.com", **asked, where=where).plan
    assert plan.summary() == harvested.captures("*.com", **asked, status=404, mime="text/html").plan.summary()


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["--status", "200", "--status", "404"], ["--subset", "all", "--where", "fetch_status IN (200, 404)"]),
        (["--where", "fetch_status = 200 OR true", "--where", "url LIKE 'https:%'"], ["--where", "url LIKE 'https:%'"]),
        (["--subset", "warc,robotstxt"], ["--subset", "warc", "--subset", "robotstxt"]),
    ],
)
def test_repeated_options_are_alternatives(asking: Command, words: list[str], same: list[str]) -> None:
    ran = asking("query", SITE, "--columns", "url", "--columns", "fetch_status", *words)
    assert ran.status == 0, ran.err
    assert ran.out == asking("query", SITE, "--columns", "url,fetch_status", *same).out != ""
    assert ran.out != asking("query", SITE, "--columns", "url,fetch_status").out


@pytest.mark.parametrize(
    ("words", "option"),
    [(["query", SITE, "--limit", "1", "--limit", "2"], "--limit"), (["sample", "-n", "1", "--size", "2"], "-n")],
)
def test_rejects_repeated_single_options(asking: Command, words: list[str], option: str) -> None:
    ran = asking(*words)
    assert ran.status == 2
    assert f"{option} takes one value, but is given 2 times" in sentence(ran)
