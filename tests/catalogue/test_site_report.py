"""The report of a site: its counts are those of a scan, whatever is stored."""

import gzip
import re
from pathlib import Path

import duckdb
import pytest

from catalogue import Catalogue, QueryError
from catalogue.plan.plan import ReadPlan
from tests.support.archives import HEAD, warc
from tests.support.catalogues import catalogue_in
from tests.support.cdx_sources import NEWER, Archived, write_crawl, write_source
from tests.support.commands import Command
from tests.support.crawls import CRAWL


@pytest.mark.in_soak
def test_counts_are_those_of_a_scan_whatever_is_stored(whole_mirror: Path, crawl: str, tmp_path: Path) -> None:
    files = f"'{whole_mirror}/cc-index/table/*/*/crawl={crawl}/*/*.parquet', hive_partitioning = true"
    kind = """CASE WHEN subset = 'warc' THEN 'pages' WHEN subset = 'robotstxt' THEN 'robots'
        WHEN fetch_status = 304 THEN 'not_modified' WHEN fetch_status // 100 = 3 THEN 'redirects' ELSE 'errors' END"""
    of_site = r"regexp_matches(url_host_name, '(^|\.)example\.com$')"
    sql = f"SELECT {kind}, count(*) FROM read_parquet({files}) WHERE {of_site} GROUP BY 1"  # noqa: S608 - of this test
    with duckdb.connect(config={"threads": 1}) as connection:
        scanned = dict(connection.execute(sql).fetchall())
    summaries = []
    for subsets in ((), "warc", "all"):
        with catalogue_in(tmp_path, whole_mirror, data=tmp_path / "-".join(["data", *subsets])) as cat:
            if subsets:
                cat.harvest(crawl, subsets=subsets)
            summaries.append(cat.site("https://www.example.com/page", crawl=crawl).summary())
    first, *others = summaries
    assert others == [first, first]
    assert first["complete"]
    assert first["robots_txt"]["text"].startswith("User-agent:")
    same = {name: first[name] for name in ("pages", "redirects", "not_modified", "errors")}
    assert same | {"robots": sum(first["robots"].values())} == {
        name: scanned.get(name, 0) for name in (*same, "robots")
    }
    assert sum(first["types"].values()) == first["pages"]
    assert first["first_fetch"] <= first["robots_txt"]["time"] <= first["last_fetch"]


def test_redirects_of_robots_txt_are_followed_to_robots_txt_alone(tmp_path: Path) -> None:
    robots, www, time = "https://{}.example/robots.txt", "https://www.{}.example/robots.txt", "20240520000000"
    write_crawl(
        tmp_path,
        NEWER,
        (robots.format("one"), time, www.format("one")),
        (www.format("one"), time, ""),
        (robots.format("two"), time, "https://www.two.example/"),
        ("https://www.two.example/", time, ""),
        (robots.format("three"), time, www.format("three").replace("robots", "gone")),
    )
    with catalogue_in(tmp_path, tmp_path) as cat:
        reports = [cat.site(f"{name}.example", crawl=NEWER) for name in ("one", "two", "three")]
    assert [report.robots.get("301") for report in reports] == [1, 1, 1]
    assert [report.robots_txt and report.robots_txt.url for report in reports] == [www.format("one"), None, None]


@pytest.mark.parametrize(
    ("head", "digest", "problem"),
    [
        (HEAD, "AA", r"robots\.warc\.gz at 0: its payload does not have the digest"),
        (HEAD.replace("\r\n", "\r\nContent-Encoding: compress\r\n", 1), "", "the content coding 'compress'"),
    ],
)
def test_a_robots_txt_that_cannot_be_read_leaves_the_counts(
    head: str, digest: str, problem: str, tmp_path: Path
) -> None:
    url, path = "https://one.example/robots.txt", f"crawl-data/{CRAWL}/segments/1/robotstxt/robots.warc.gz"
    member = gzip.compress(warc(head=head, WARC_Target_URI=url, WARC_Payload_Digest=digest))
    write_source(tmp_path, [Archived(member, url, path)])
    with catalogue_in(tmp_path, tmp_path) as cat:
        report = cat.site("one.example", crawl=CRAWL)
    assert (report.robots, report.robots_txt, report.complete) == ({"200": 1}, None, False)
    assert re.search(problem, "".join(report.missing))


def test_cost_is_approved_before_anything_is_read(harvested: Catalogue, crawl: str) -> None:
    plans: list[ReadPlan] = []

    def refuse(plan: ReadPlan) -> None:
        plans.append(plan)
        raise QueryError("too much")

    before = harvested.requests
    with pytest.raises(QueryError, match="too much"):
        harvested.site("example.com", crawl=crawl, approve=refuse)
    assert harvested.requests == before
    assert len(plans) == 1


def test_prints_a_report(asking: Command, crawl: str) -> None:
    shown = asking("site", "example.com", "--crawl", crawl)
    assert shown.status == 0
    assert shown.out.startswith(f"example.com in {crawl}\n  pages ")
    assert "this takes " in shown.err
    ran = asking("site", "https://user:secret@example.com/x@y", "--crawl", crawl, "--json")
    assert (ran.json()["crawl"], ran.json()["site"]) == (crawl, "example.com")
