"""The JSON API: what Python would have said, typed; and every parameter within its bounds."""

import gzip
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

import catalogue
from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.errors import QueryError
from catalogue.server.json_api import OPERATIONS
from catalogue.server.openapi import document
from catalogue.server.parameters import BadParameter, Parameter, read_parameters
from catalogue.settings import Settings, package_version
from catalogue.surt import Match
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.serving import Answer, get, serving

BY_NAME = {each.name: each for each in OPERATIONS}


@pytest.fixture(scope="module")
def address(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(Path(copytree(untaught_data, tmp_path_factory.mktemp("served") / "data")), settings) as address:
        yield address


def ask(address: str, name: str, **parameters: Any) -> Answer:
    asked = {each.removesuffix("_"): text for each, text in parameters.items() if text is not None}
    return get(address, f"{BY_NAME[name].path}?{urlencode(asked, doseq=True)}")


def answered(address: str, name: str, **parameters: Any) -> Any:
    """An answer that is as the document says."""
    got = ask(address, name, **parameters)
    assert got.status == 200, got.text
    assert got.headers["content-type"] == "application/json"
    assert got.headers["access-control-allow-origin"] == "*"
    schema = document(OPERATIONS)["components"] | {"$ref": f"#/schemas/{BY_NAME[name].schema}"}
    text = json.dumps(schema).replace("#/components/schemas/", "#/schemas/")
    Draft202012Validator(json.loads(text), format_checker=FormatChecker()).validate(got.json)
    return got.json


def typed(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON has it, written anew here."""
    return {
        name: value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if isinstance(value, datetime)
        else value.hex()
        if isinstance(value, bytes)
        else value
        for name, value in row.items()
    }


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


# ---- captures ----

patterns = st.sampled_from(
    [
        "*.example.com",
        "example.com",
        "example.com/*",
        "*.org",
        "https://example.com/dir/page",
        "com.",
        "*.wikipedia.org",
    ]
)
questions = st.fixed_dictionaries(
    {"url": patterns},
    optional={
        "from_": st.sampled_from(["2018", "20220101", "2022-08-15", "202501"]),
        "to": st.sampled_from(["2026", "20221231", "2025-12-31T23:59:59"]),
        "status": st.lists(st.sampled_from(["200", "2xx", "301,404", "999"]), min_size=1, max_size=3),
        "mime": st.lists(
            st.sampled_from(["text/html", "text/*", "unk", "application/pdf,image/*"]), min_size=1, max_size=3
        ),
        "language": st.lists(st.sampled_from(["eng", "deu", "zzz"]), min_size=1, max_size=2),
        "columns": st.sampled_from(["url", "*", "fetch_time,WARC_RECORD_ID", "crawl,subset,url_path"]),
        "matchType": st.sampled_from(["exact", "prefix", "host", "domain"]),
    },
)


@settings(max_examples=6)
@given(questions)
def test_captures_are_those_that_python_finds(address: str, harvested: Catalogue, asked: dict[str, Any]) -> None:
    filters = [
        " OR ".join(spelt.format(each.replace("x", "_").replace("*", "%")) for each in ",".join(values).split(","))
        for name, spelt in {
            "status": "fetch_status::VARCHAR LIKE '{}'",
            "mime": "content_mime_detected LIKE '{}'",
            "language": "',' || content_languages || ',' LIKE '%,{},%'",
        }.items()
        if (values := asked.get(name))
    ]
    match = Match(asked["matchType"]) if "matchType" in asked else None
    columns = asked.get("columns")
    try:
        meant = harvested.captures(
            asked["url"],
            columns=columns.split(",") if columns and columns != "*" else columns,
            where=filters,
            from_=asked.get("from_"),
            to=asked.get("to"),
            match=match,
        )
    except QueryError:
        assert ask(address, "query", **asked).status == 422
        return
    rows = [typed(row) for row in meant.to_arrow().to_pylist()]
    got = answered(address, "query", **asked, limit=10_000)
    assert ordered(got["captures"]) == ordered(rows)
    assert (got["limited"], got["complete"], got["missing"]) == (False, True, [])


def test_what_an_answer_took(untaught_data: Path, mirror: Path, tmp_path: Path) -> None:
    data = Path(copytree(untaught_data, tmp_path / "data"))
    with LoopbackServer(mirror) as source, serving(data, Settings(source=source.url, cache=tmp_path)) as address:
        got = answered(address, "query", url="example.com/dir/*", limit=10_000)
        assert got["requests"] == len(source.log) > 0
        assert got["bytes"] == sum(each.sent_bytes for each in source.log)
        told = answered(address, "status")
        assert (told["requests"], told["bytes"]) == (got["requests"], got["bytes"])


def test_a_limit(address: str) -> None:
    got = answered(address, "query", url="*.example.com", limit=3)
    assert (len(got["captures"]), got["limited"]) == (3, True)


def test_a_hundred_unless_more_are_asked_for(address: str) -> None:
    assert len(answered(address, "query", url="*")["captures"]) == 100


@pytest.mark.filterwarnings("ignore::catalogue.errors.IncompleteAnswer")
def test_what_is_lacking_is_said(tmp_path: Path) -> None:
    crawl_of(tmp_path / "mirror", table([f"com,example)/{n}" for n in range(5)]))
    manifest = tmp_path / f"mirror/crawl-data/{CRAWL}/cc-index-table.paths.gz"
    path = gzip.decompress(manifest.read_bytes()).decode()
    manifest.write_bytes(gzip.compress(f"{path}\n{path.replace('00000', '00001')}\n".encode()))
    settings = Settings(source=str(tmp_path / "mirror"), cache=tmp_path)
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(CRAWL)
    with serving(tmp_path / "data", settings) as address:
        got = answered(address, "query", url="*.com", columns="url")
        assert (len(got["captures"]), got["complete"]) == (5, False)
        assert "catalogue harvest --crawl" in got["missing"][0]
        (held,) = answered(address, "status")["coverage"]
        assert (held["files_listed"], held["files_harvested"], held["files_failed"]) == (2, 1, 1)


# ---- plans ----


@pytest.fixture(scope="module")
def untaught(
    untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Catalogue, str]]:
    """A catalogue, and a server of it, of whom nothing but plans is asked: so both know the same."""
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("untaught") / "data"))
    with catalogue.open(data, settings=settings) as cat, serving(data, settings) as address:
        yield cat, address


@pytest.mark.parametrize("url", ["*.example.com", "example.com/dir/page", "*", "nowhere.example"])
def test_plans_are_those_of_python(untaught: tuple[Catalogue, str], url: str) -> None:
    cat, address = untaught
    plan = cat.captures(url).plan
    got = answered(address, "plan", url=url)
    assert got["plan"] == {**plan.summary(), "seconds": got["plan"]["seconds"]}
    assert got["files_left_out"] == 0
    assert [each["path"] for each in got["files"]] == list(plan.paths)
    fetched = {(each["path"], one["offset"], one["length"]) for each in got["files"] for one in each["fetches"]}
    planned = [fetch for wave in (plan.indexes, *plan.waves) for fetch in wave]
    assert fetched == {(fetch.path, fetch.range.start, len(fetch.range)) for fetch in planned}
    assert sum(len(each["row_groups"]) + len(each["awaited"]) for each in got["files"]) == plan.row_groups


# ---- row groups ----


@pytest.mark.parametrize("limit", [1000, 17])
def test_pages_of_row_groups_are_all_row_groups(address: str, harvested: Catalogue, limit: int) -> None:
    found: list[dict[str, Any]] = []
    got: dict[str, Any] = {"next": None}
    while not found or got["next"]:
        got = answered(address, "row_groups", limit=limit, after=got["next"])
        assert 0 < len(got["row_groups"]) <= limit
        found += got["row_groups"]
    there = harvested.sql("SELECT path, row_group, num_rows FROM row_groups ORDER BY path, row_group").fetchall()
    assert [(each["path"], each["row_group"], each["num_rows"]) for each in found] == there


def test_row_groups_of_a_crawl(address: str, harvested: Catalogue, whole_crawls: list[str]) -> None:
    for crawl in whole_crawls[:2]:
        found = answered(address, "row_groups", crawl=crawl, limit=1000)["row_groups"]
        assert len(found) == len(harvested.row_groups(crawl))
        assert {each["crawl"] for each in found} == {crawl}


@pytest.mark.parametrize("key", ["*.example.com", "https://example.com/dir/page", "zz.nowhere.example"])
def test_row_groups_of_a_key_are_those_that_a_question_reaches_into(
    address: str, harvested: Catalogue, key: str
) -> None:
    got = answered(address, "row_groups", key=key, limit=10_000)
    scope = harvested.captures(key).question.scope
    reached = {(each.path, ordinal) for each in scope.candidates for ordinal, _ in each.row_groups}
    assert {(each["path"], each["row_group"]) for each in got["row_groups"]} == reached


# ---- what is held ----


def test_status_is_the_coverage(address: str, harvested: Catalogue) -> None:
    got = answered(address, "status")
    held = harvested.coverage()
    assert [(each["crawl"], each["subset"], each["num_rows"]) for each in got["coverage"]] == [
        (row.crawl, row.subset, row.num_rows) for row in held.itertuples()
    ]
    assert got["version"] == package_version()


def test_where_nothing_is_harvested(tmp_path: Path) -> None:
    with serving(tmp_path / "data", Settings(source=str(tmp_path), cache=tmp_path)) as address:
        assert answered(address, "status")["coverage"] == []
        for name, parameters in (("query", {"url": "a.example"}), ("row_groups", {}), ("plan", {"url": "a.example"})):
            got = ask(address, name, **parameters)
            assert (got.status, "catalogue harvest" in got.json["message"]) == (404, True)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/api/query", 400, "url is needed"),
        ("/api/query?url=", 400, "url cannot be ''"),
        ("/api/query?url=" + "a" * 2001, 400, "url cannot be"),
        ("/api/query?url=a.example&url=b.example", 400, "url can be given once, and is given 2 times"),
        ("/api/query?url=*&limt=3", 400, "did you mean limit?"),
        ("/api/query?url=*&where=true", 400, "there is no parameter 'where'"),
        ("/api/query?url=*&limit=0", 400, "from 1 to 10,000, not '0'"),
        ("/api/query?url=*&limit=10001", 400, "from 1 to 10,000"),
        ("/api/query?url=*&limit=1e3", 400, "from 1 to 10,000"),
        ("/api/query?url=*&limit=" + "9" * 5000, 400, "from 1 to 10,000"),
        ("/api/query?url=*&limit=%D9%A3", 400, "from 1 to 10,000"),
        ("/api/query?url=*&matchType=any", 400, "exact, prefix, host, domain"),
        ("/api/query?url=*&mime=a'b", 400, "mime cannot be"),
        ("/api/query?url=*&language=english", 400, "one looks like eng"),
        ("/api/query?url=*" + "&status=200" * 21, 400, "20 times"),
        ("/api/query?url=*" + "&a=b" * 300, 400, "too many parts"),
        ("/api/query?url=%FF", 400, "no escaped UTF-8"),
        ("/api/query?url=" + "%41" * 14_000, 400, "may have 40,000"),
        ("/api/status?url=x", 400, "there are none here"),
        ("/api/row_groups?after=x", 400, "after cannot be"),
        ("/api/query?url=*&columns=a;b", 400, "columns cannot be"),
        ("/api/query?url=*&columns=fetch_tim", 422, "did you mean fetch_time?"),
        ("/api/query?url=a*b", 422, "%2A is a plain asterisk"),
        ("/api/query?url=*&from=2022&to=2021", 422, "lies behind"),
        ("/api/query?url=*&from=2022-13-01", 422, "is no time"),
        ("/api/query?url=*&crawl=CC-MAIN-1999-01", 404, "there is no crawl CC-MAIN-1999-01"),
        ("/api/plan?url=*&crawl=CC-MAIN-1990..CC-MAIN-1991", 404, "there is no crawl"),
        ("/api/row_groups?crawl=CC-MAIN-1999-01", 404, "there is no crawl CC-MAIN-1999-01"),
        ("/api/nothing", 404, "/api/status"),
        ("/api/", 404, "/api/status"),
    ],
)
def test_mistakes_are_a_sentence(address: str, target: str, status: int, said: str) -> None:
    got = get(address, target)
    assert got.status == status
    assert said in got.json["message"]
    assert len(got.json["message"]) < 600
    assert got.headers["access-control-allow-origin"] == "*"


def test_what_would_take_long_is_refused(tmp_path: Path) -> None:
    keys = [f"com,example)/{number:04}" for number in range(2001)]
    crawl_of(tmp_path / "mirror", table(keys).select(["url_surtkey", "fetch_status"]), row_group_size=1)
    settings = Settings(source=str(tmp_path / "mirror"), cache=tmp_path)
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(CRAWL)
    with serving(tmp_path / "data", settings) as address:
        for name in ("plan", "query"):
            got = ask(address, name, url="*.com")
            assert (got.status, "2,001 row groups" in got.json["message"]) == (422, True)
        assert len(answered(address, "query", url="example.com/0*", limit=5, columns="url_surtkey")["captures"]) == 5


@pytest.mark.parametrize("path", [*(each.path for each in OPERATIONS), "/api/openapi.json", "/api/nothing"])
def test_methods(address: str, path: str) -> None:
    target = f"{path}?url=example.com" if path in {"/api/plan", "/api/query"} else path
    there, head = get(address, target), get(address, target, method="HEAD")
    dated = {"date": "", "content-length": ""}  # a plan's seconds differ
    assert (head.status, head.body, {**head.headers, **dated}) == (there.status, b"", {**there.headers, **dated})
    posted, asked = get(address, target, method="DELETE"), get(address, target, method="OPTIONS")
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert (asked.status, asked.body, asked.headers["access-control-allow-origin"]) == (204, b"", "*")


# ---- parameters ----

PARAMETERS = (
    Parameter("word", "A word.", "abc", "[a-c]{1,5}"),
    Parameter("number", "A number.", 1, between=(-3, 20), default=7),
    Parameter("choice", "Some.", "x", choices=("x", "y"), most=3),
)


@given(
    st.dictionaries(
        st.sampled_from(["word", "number", "choice"]), st.lists(st.text(max_size=7) | st.sampled_from("abxy17"))
    )
)
def test_what_is_read_is_what_the_schema_takes(texts: dict[str, list[str]]) -> None:
    fields = [(name, text) for name, each in texts.items() for text in each if text.isprintable()]
    values: dict[str, Any] = {}
    for parameter in PARAMETERS:
        given = [text for name, text in fields if name == parameter.name]
        if given:
            those = [int(text) if parameter.between and re.fullmatch("-?[0-9]+", text) else text for text in given]
            values[parameter.name] = those if len(given) > 1 or parameter.most > 1 else those[0]
    schema = {"properties": {parameter.name: parameter.schema for parameter in PARAMETERS}}
    valid = Draft202012Validator(schema).is_valid(values)
    try:
        read = read_parameters(urlencode(fields).encode(), PARAMETERS)
    except BadParameter:
        assert not valid
    else:
        assert valid
        assert {name: list(value) if isinstance(value, tuple) else value for name, value in read.items()} == {
            "word": None,
            "number": 7,
            "choice": [],
            **values,
        }


def test_the_document_is_served(address: str) -> None:
    got = get(address, "/api/openapi.json")
    assert (got.status, got.json) == (200, document(OPERATIONS))
    for operation in OPERATIONS:
        for parameter in operation.parameters:
            example = parameter.documented["example"]
            Draft202012Validator(parameter.schema).validate(example)
            assert parameter.read([str(each) for each in (example if isinstance(example, list) else [example])])
