"""The JSON API: answers agree with Python and with the OpenAPI document; invalid parameters are refused."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator, FormatChecker

import catalogue
from catalogue import Catalogue
from catalogue.demo import LoopbackServer, Miniature
from catalogue.server.application import application
from catalogue.settings import Settings, package_version
from tests.support.amounts import COMPLETE, EXAMPLES
from tests.support.catalogues import harvested_in
from tests.support.cdx_indexes import make_index, replace_index
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.miniatures import NEWEST
from tests.support.serving import Answer, get, serving, serving_harvested

DOCUMENT = application().openapi()
ROOT = Path(__file__).parents[2]
# A request with valid parameters can still be refused, and one with invalid ones because of its length.
SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "422"]
[checks.negative_data_rejection]
expected-statuses = ["4xx"]
"""
address = pytest.fixture(scope="module")(serving_harvested)


def request(address: str, name: str, **parameters: Any) -> Answer:
    given = {each.removesuffix("_"): text for each, text in parameters.items() if text is not None}
    return get(address, f"/api/{name}?{urlencode(given, doseq=True)}")


def answer(address: str, name: str, **parameters: Any) -> Any:
    """Return an answer that agrees with the document."""
    got = request(address, name, **parameters)
    assert got.status == 200, got.text
    assert got.headers["content-type"] == "application/json"
    responses = DOCUMENT["paths"][f"/api/{name}"]["get"]["responses"]
    schema = {**responses["200"]["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(got.json)
    return got.json


def as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value.hex() if isinstance(value, bytes) else value


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({"url": "*.example.com", "columns": "*"}, 1),
        ({"url": "*.example.com", "columns": "url"}, None),
        ({"url": "example.com/*", "status": ["2xx", "301,404"], "mime": ["text/*"], "lang": ["eng", "deu"]}, 1000),
        ({"url": "*.org", "from_": "20220101", "to": "2026", "columns": "fetch_time,WARC_RECORD_ID"}, 1000),
        ({"url": "example.com", "match": "domain", "latest": True, "columns": "crawl,subset,url_path"}, 3),
        ({"url": "https://example.com/", "exact_url": True}, 1000),
    ],
)
def test_captures_agree_with_python(address: str, harvested: Catalogue, asked: Any, limit: int | None) -> None:
    url, options = asked["url"], {name: value for name, value in asked.items() if name != "url"}
    rows = harvested.captures(url, **options).to_arrow().to_pylist()
    given = {name: str(value).lower() if value is True else value for name, value in asked.items()}
    got = answer(address, "query", **given, limit=limit)
    expected = [{name: as_json(value) for name, value in row.items()} for row in rows[: limit or 100]]
    assert (got["captures"], got["limited"]) == (expected, len(rows) > (limit or 100))
    assert (got["complete"], got["missing"]) == (True, [])
    assert rows


def test_counts_requests_of_a_query(server: LoopbackServer, crawl: str, tmp_path: Path) -> None:
    harvested = harvested_in(tmp_path, server.url, crawl)
    server.log.clear()
    with serving(*harvested) as address:
        got = answer(address, "query", url="*.example.com", crawl=crawl)
        assert got["requests"] == len(server.log) > 0
        assert got["bytes"] == sum(each.sent_bytes for each in server.log)
        again = answer(address, "query", url="*.example.com", crawl=crawl)
    assert (again["captures"], again["requests"]) == (got["captures"], 0)


def test_plans_agree_with_python(data: Path, settings: Settings) -> None:
    """Nothing is read, so that plans stay equal."""
    with catalogue.open(data, settings=settings) as cat, serving(data, settings) as address:
        for url in ("*.example.com", "*", "nowhere.example"):
            plan, got = cat.captures(url).plan, answer(address, "plan", url=url)
            assert got["plan"] == {**plan.summary(), "seconds": got["plan"]["seconds"]}
            assert got["files_left_out"] == 0
            assert [each["path"] for each in got["files"]] == list(plan.paths)
            fetched = {(each["path"], one["offset"], one["length"]) for each in got["files"] for one in each["fetches"]}
            planned = [each for wave in (plan.indexes, *plan.waves) for each in wave]
            assert fetched == {(each.path, each.range.start, len(each.range)) for each in planned}
            assert sum(len(each["row_groups"]) + len(each["awaited"]) for each in got["files"]) == plan.row_groups


def test_pages_of_row_groups_are_complete(address: str, harvested: Catalogue) -> None:
    found: list[dict[str, Any]] = []
    got: dict[str, Any] = {"next": None}
    while not found or got["next"]:
        got = answer(address, "row_groups", limit=17, after=got["next"])
        assert 0 < len(got["row_groups"]) <= 17
        found += got["row_groups"]
    expected = harvested.sql("SELECT path, row_group, num_rows FROM row_groups ORDER BY path, row_group").fetchall()
    assert [(each["path"], each["row_group"], each["num_rows"]) for each in found] == expected


@pytest.mark.parametrize("key", ["*.example.com", "https://example.com/dir/page", "zz.nowhere.example"])
def test_row_groups_of_a_key_are_candidates_of_its_query(address: str, harvested: Catalogue, key: str) -> None:
    crawl = harvested.session.stored_crawls()[0]
    got = answer(address, "row_groups", key=key, crawl=crawl, limit=10_000)
    found = harvested.captures(key, crawls=crawl, subsets="all").question.columnar() or []
    files = [file for each in found for file in each.candidates]
    expected = {(file.path, ordinal) for file in files for ordinal in file.ordinals}
    assert {(each["path"], each["row_group"]) for each in got["row_groups"]} == expected


def test_status_is_the_coverage(address: str, harvested: Catalogue) -> None:
    got = answer(address, "status")
    assert [(each["crawl"], each["subset"], each["num_rows"]) for each in got["coverage"]] == [
        (row.crawl, row.subset, row.num_rows) for row in harvested.coverage().itertuples()
    ]
    assert got["version"] == package_version()


def test_without_harvest(tmp_path: Path) -> None:
    with serving(tmp_path / "data", Settings(source=str(tmp_path), cache=tmp_path)) as address:
        assert answer(address, "status")["coverage"] == []
        run = "run: catalogue harvest --crawl latest"
        of_query = f"nothing is stored yet; add crawl=latest, or {run}"
        for name, message in (
            *(("query?url=*", of_query), ("plan?url=*", of_query)),
            ("row_groups", f"no footers are stored yet; {run}"),
        ):
            got = get(address, f"/api/{name}")
            assert (got.status, got.json["message"]) == (404, message)


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        ("/api/query", 400, "url is required"),
        ("/api/query?url=", 400, "invalid url ''; example: *.example.com"),
        ("/api/query?url=" + "a" * 2001, 400, "'; it has more than 2,000 characters"),
        ("/api/query?url=*&subset=warc,robots", 400, "invalid subset 'robots'; did you mean robotstxt?"),
        ("/api/query?url=*&columns=*,fetch_tim", 422, "did you mean fetch_time?"),
        ("/api/query?url=*&from=2021&from=2022", 400, "from is given 2 times"),
        ("/api/query?url=*&latest=perhaps", 400, "use true or false"),
        ("/api/query?url=*&limt=3", 400, "unknown parameter 'limt'; did you mean limit?"),
        ("/api/query?url=*&where=true", 400, "unknown parameter 'where'"),
        ("/api/query?url=*&limit=0", 400, "invalid limit '0'; use a number from 1 to 10,000"),
        ("/api/%71uery?url=*&limit=1_000", 400, "invalid limit '1_000'"),
        ("/api/query?url=*&limit=" + "9" * 5000, 400, "invalid limit"),
        ("/api/query?url=*&limit=%D9%A3", 400, "invalid limit"),
        ("/api/query?url=*&match=any", 400, "use exact, prefix, host or domain"),
        ("/api/query?url=*" + "&status=200" * 101, 400, "status can be given 1 to 100 times"),
        ("/api/query?url=*" + "&a=b" * 300, 400, "more than 300 parameters"),
        ("/api/query?url=%FF", 400, "not percent-encoded UTF-8"),
        ("/api/query?url=" + "%41" * 14_000, 400, "the limit is 40,000"),
        ("/api/status?url=x", 400, "unknown parameter 'url'; use none"),
        ("/api/row_groups?after=x", 400, "invalid after 'x'"),
        ("/api/query?url=*&columns=url;b", 422, "did you mean url"),
        ("/api/query?url=a*b", 422, "%2A"),
        ("/api/query?url=*&from=2022&to=2021", 422, "2022"),
        ("/api/query?url=*&from=2022-13-01", 422, "2022-13-01"),
        ("/api/query?url=*&crawl=CC-MAIN-1999-01", 404, "there is no crawl CC-MAIN-1999-01"),
        ("/api/plan?url=*&crawl=CC-MAIN-1990..CC-MAIN-1991", 404, "selects no crawl"),
        ("/api/row_groups?crawl=CC-MAIN-1999-01", 404, "there is no crawl CC-MAIN-1999-01"),
        ("/api/nothing", 404, "/api/status"),
        ("/api/", 404, "/api/status"),
    ],
)
def test_errors_have_a_status_and_a_message(address: str, target: str, status: int, message: str) -> None:
    got = get(address, target, Origin="https://example.org")
    assert got.status == status
    assert [*got.json] == ["message"]
    assert message in got.json["message"]
    assert len(got.json["message"]) < 600
    assert got.headers["access-control-allow-origin"] == "*"


def test_refuses_expensive_queries(tmp_path: Path) -> None:
    keys = [f"com,example)/{number:04}" for number in range(2001)]
    rows = table(keys, content_languages=pa.array(["eng"] * 2000 + ["isl"]))
    names = ["url_surtkey", "fetch_status", "content_languages"]
    crawl_of(tmp_path / "mirror", rows.select(names), row_group_size=1, use_dictionary=True)
    data, settings = harvested_in(tmp_path, tmp_path / "mirror")
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest(CRAWL, values="content_languages")
    with serving(data, settings) as address:
        got = request(address, "query", url="*.com", status="200")
        assert (got.status, "more than 2,000 row groups" in got.json["message"]) == (422, True)
        for pattern in ("example.com/0*", "*.com"):  # the first keys are enough
            assert len(answer(address, "query", url=pattern, limit=5, columns="url_surtkey")["captures"]) == 5
        (found,) = answer(address, "query", url="*.com", lang="isl", columns="url_surtkey")["captures"]
        assert found["url_surtkey"] == keys[-1]
        name = f"crawl-data/{CRAWL}/segments/1.1/warc/a.warc.gz"
        lines = [
            f'{key} 20220807000000 {{"url": "http://a.com/", "status": "200", "filename": "{name}"}}' for key in keys
        ]
        replace_index(tmp_path / "mirror", make_index(CRAWL, lines))
        # The CDX index answers, as without footers; but not for a column that it lacks.
        assert answer(address, "plan", url="*.com", status="200")["plan"]["crawls"][0]["index"] == "cdx"
        assert len(answer(address, "query", url="*.com", status="200", limit=3000)["captures"]) == len(keys)
        assert request(address, "plan", url="*.com", status="200", columns="url_path").status == 422


def test_serves_its_document(address: str) -> None:
    assert get(address, "/api/openapi.json").json == DOCUMENT
    for path in DOCUMENT["paths"].values():
        for parameter in path["get"].get("parameters", []):
            (example,) = parameter["schema"]["examples"]
            Draft202012Validator(parameter["schema"]).validate(example)


@pytest.mark.in_soak
@pytest.mark.timeout(3600)  # with many requests
def test_answers_agree_with_the_document(miniature: Miniature, tmp_path: Path) -> None:
    """Schemathesis sends what the document allows and forbids; see https://schemathesis.readthedocs.io/."""
    config = tmp_path / "schemathesis.toml"
    config.write_text(SETTINGS)
    program = Path(sys.executable).with_name("schemathesis")
    options = [f"--phases=examples,{'coverage,' if COMPLETE else ''}fuzzing", f"--max-examples={EXAMPLES // 5}"]
    options += ["--checks=all", "--seed=1", "--no-color", "--generation-database=none"]
    with serving(*harvested_in(tmp_path, miniature.folder, NEWEST, "all")) as address:
        done = subprocess.run(
            [program, "--config-file", config, "run", *options, f"{address}/api/openapi.json"],
            cwd=tmp_path,
            env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")},  # of what is slow to compute
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Operations:       4 selected / 4 total" in done.stdout
