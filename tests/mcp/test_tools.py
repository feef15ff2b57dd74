"""What the tools answer: the same as the catalogue, in parts, with what is missing."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import catalogue
from catalogue.cli.messages import COMMANDS
from catalogue.demo import Miniature
from catalogue.mcp_server.serve import INSTRUCTIONS, RUNS, TOOLS, arguments_of
from catalogue.settings import Settings
from tests.support.amounts import in_part, in_soak
from tests.support.assistants import Assistant, assistant_of, without_index
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.miniatures import MODERN, NEWEST, OLD

pytestmark = pytest.mark.anyio
SITE = "*.example.com"


def captures(settings: Settings, pattern: str, crawls: str) -> list[tuple[str, str]]:
    with catalogue.open(settings=settings) as cat:
        rows = cat.captures(pattern, crawls=crawls, subsets="all").to_arrow().to_pylist()
    return sorted((row["url"], row["crawl"]) for row in rows)


async def parts(assistant: Assistant, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return the answers until there is no next offset."""
    answers = [await assistant.ask(tool, **arguments)]
    while offset := answers[-1]["next_offset"]:
        answers.append(await assistant.ask(tool, **arguments, offset=offset))
    return answers


async def test_tools_have_schemas_examples_and_hints(empty: Settings) -> None:
    async with assistant_of(empty) as assistant:
        listed = (await assistant.client.list_tools()).tools
        assert [tool.name for tool in listed] == ["crawls", "plan", "query", "get_page", "sample", "sql_metadata"]
        for tool, run in zip(listed, RUNS.values(), strict=True):
            assert tool.description
            assert len(tool.description) < 500
            examples = re.findall(r"\{.*?\}(?=[,.])", tool.description)
            assert examples
            for example in examples:
                jsonschema.validate(json.loads(example), tool.input_schema)
                arguments_of(run).model_validate_json(example)
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema
            assert tool.annotations
            assert tool.annotations.read_only_hint
            assert tool.annotations.destructive_hint is False
            assert tool.annotations.open_world_hint is (tool.name != "sql_metadata")
        assert assistant.client.instructions


@in_part(2)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_lists_crawls_in_parts(stored: Settings, mode: str) -> None:
    async with assistant_of(stored, mode=mode) as assistant:
        answers = await parts(assistant, "crawls", limit=2)
        found = [each["crawl"] for answer in answers for each in answer["crawls"]]
        assert found[:3] == [NEWEST, MODERN, OLD]
        assert len(found) == answers[-1]["total"]
        newest, modern = (await assistant.ask("crawls", stored_only=True))["crawls"]
        assert (newest["crawl"], newest["stored_files"], newest["stored_blocks"]) == (NEWEST, 0, True)
        assert (modern["crawl"], modern["stored_files"], modern["stored_subsets"]) == (MODERN, 7, ["warc"])
        assert (await assistant.ask("crawls", contains="2018"))["total"] == 1


async def test_price_of_a_plan_is_what_the_query_takes_and_values_may_be_numbers(stored: Settings) -> None:
    async with assistant_of(stored) as assistant:
        asked = {"url": [SITE], "crawl": [MODERN], "subset": "warc"}
        plan = await assistant.ask("plan", **asked)
        (price,) = plan["crawls"]
        assert plan["cost"]["requests"] == 0
        assert {price["chosen"]["index"], price["other"]["index"]} == {"columnar", "cdx"}
        assert plan["affordable"]
        columns = "url,fetch_time,fetch_status,content_mime_detected"  # the default of both tools
        of_files = [
            await assistant.ask("plan", **asked, index="columnar", **more) for more in ({}, {"columns": columns})
        ]
        assert of_files[0]["bytes"] == of_files[1]["bytes"]
        took = await assistant.ask("query", **asked, limit=200)
        assert 0 < took["cost"]["requests"] <= plan["requests"]
        assert took["cost"]["requests_left"] == plan["cost"]["requests_left"] - took["cost"]["requests"]
        texts = await assistant.ask("query", **asked, status=["200"], **{"from": "2020"})
        assert texts["captures"]
        for status in (200, [200]):
            numbers = await assistant.ask("query", **asked, status=status, **{"from": 2020})
            assert numbers["captures"] == texts["captures"]


async def test_parts_of_a_query_are_the_result(empty: Settings) -> None:
    asked = {"url": [SITE], "subset": "all", "crawl": [MODERN, OLD], "limit": 100, "max_requests": 200}
    async with assistant_of(empty) as assistant:
        answers = await parts(assistant, "query", **asked)
    for answer in answers:
        assert answer["complete"] is (answer["next_offset"] is None)
        assert bool(answer["crawls_not_read"]) is not answer["complete"]
    assert answers[-1]["crawls_read"] == [MODERN, OLD]
    found = [row for answer in answers for row in answer["captures"]]
    assert len(found) > 120
    assert sorted((row["url"], row["crawl"]) for row in found) == captures(empty, SITE, f"{MODERN},{OLD}")


async def test_says_which_crawls_have_no_match(empty: Settings) -> None:
    """With ``latest`` or ``unique`` the result does not say which crawls have none."""
    both = {url for url, crawl in captures(empty, SITE, OLD)} & {url for url, crawl in captures(empty, SITE, MODERN)}
    async with assistant_of(empty) as assistant:
        options = {"url": [min(both)], "crawl": [MODERN, OLD], "limit": 200, "max_requests": 200}
        for only in ({"latest": True}, {"unique": "url"}):
            answer = await assistant.ask("query", **options, **only)
            assert answer["complete"]
            assert {row["crawl"] for row in answer["captures"]} == {MODERN}
            assert answer["crawls_without_match"] == []
            assert "not known which crawls have no match" in " ".join(answer["notes"])
        for latest in (False, True):
            nothing = await assistant.ask("query", **options | {"url": ["nowhere.example"]}, latest=latest)
            assert (nothing["captures"], nothing["complete"]) == ([], True)
            assert nothing["crawls_without_match"] == [MODERN, OLD]


async def test_says_what_to_do_where_offsets_end(tmp_path: Path) -> None:
    source = crawl_of(tmp_path / "source", table([f"com,example)/{n:05}" for n in range(10_100)]))
    settings = Settings(data=tmp_path / "data", source=str(source))
    with catalogue.open(settings.data, settings=settings) as cat:
        cat.harvest(CRAWL)
    async with assistant_of(settings) as assistant:
        asked = {"url": ["example.com/*"], "crawl": [CRAWL], "subset": "warc", "columns": ["url"]}
        last = await assistant.ask("query", **asked, offset=10_000, limit=50)
        assert (len(last["captures"]), last["next_offset"]) == (50, None)
        assert not last["complete"]
        assert "the largest offset is 10,000; narrow the patterns" in last["crawls_not_read"][0]["reason"]
        before = await assistant.ask("query", **asked, offset=9_990, limit=10)
        assert before["next_offset"] == 10_000


async def test_says_which_crawls_are_not_read_completely(stored: Settings, miniature: Miniature) -> None:
    """Of the stored crawl, redirects and errors are not stored, and it has no CDX index."""
    with without_index(miniature.folder, MODERN) as server:
        async with assistant_of(replace(stored, source=server.url)) as assistant:
            answer = await assistant.ask("query", url=["nowhere.example"], subset="all", crawl=[MODERN])
            part = await assistant.ask("query", url=[SITE], subset="all", crawl=[MODERN], limit=1)
            assert part["crawls_not_read"][1:] == answer["crawls_not_read"]
    assert not answer["complete"]
    assert answer["crawls_without_match"] == []
    assert [each["crawls"] for each in answer["crawls_not_read"]] == [[MODERN], [MODERN]]
    assert "run: catalogue harvest" in answer["crawls_not_read"][0]["reason"]


@in_soak
async def test_pages_of_a_sample_and_of_sql_are_bounded(stored: Settings) -> None:
    async with assistant_of(stored) as assistant:
        drawn = await assistant.ask("sample", size=5, seed=3, crawl=[MODERN])
        again = await assistant.ask("sample", size=5, seed=3, crawl=[MODERN])
        assert len(drawn["captures"]) == 5
        assert drawn["captures"] == again["captures"]
        assert drawn["complete"]
        rows = await assistant.ask("sql_metadata", sql="select crawl, num_rows from files", limit=3)
        assert rows["columns"] == ["crawl", "num_rows"]
        assert (len(rows["rows"]), rows["more"]) == (3, True)
        long = await assistant.ask("sql_metadata", sql="select repeat('x', 100000) from range(100)", limit=1000)
        assert len(json.dumps(long)) < 60_000
        assert long["more"]
        assert "long texts are cut" in long["notes"]


@in_part(2)
@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "message"),
    [
        ("query", {}, "invalid", "url is required"),
        ("query", {"url": ["a.example"], "crawls": ["latest"]}, "invalid", "'crawls'; did you mean crawl?"),
        ("query", {"url": ["a.example"], "limit": 1000}, "invalid", "use a number from 1 to 200"),
        ("query", {"url": []}, "invalid", "url can be given 1 to 100 times"),
        ("sample", {"crawl": [{}]}, "invalid", "invalid crawl '{}'; example: latest"),
        ("plan", {"url": ["a.example"], "subset": ["nosuch"]}, "invalid", "invalid subset 'nosuch'; use warc, "),
        ("query", {"url": ["a.example"], "columns": ["password"]}, "invalid", "password"),
        ("query", {"url": ["a.example"], "status": ["none"]}, "invalid", "invalid status 'none'"),
        ("query", {"url": ["a.example"], "crawl": ["CC-MAIN-2093-01"]}, "invalid", "CC-MAIN-2093-01"),
        ("plan", {"url": ["a.example"], "from": "yesterday"}, "invalid", "invalid time 'yesterday'"),
        ("get_page", {"url": "*.example.com"}, "invalid", "not the URL of one page"),
        ("sample", {"crawl": [OLD]}, "not_stored", "run: catalogue harvest"),
        ("sql_metadata", {"sql": "from read_csv('/etc/passwd')"}, "invalid", "SQL reads the metadata database alone"),
        ("sql_metadata", {"sql": "select"}, "invalid", "SELECT clause without selection list"),
    ],
)
async def test_errors_are_one_sentence(
    stored: Settings, tool: str, arguments: dict[str, Any], kind: str, message: str
) -> None:
    async with assistant_of(stored) as assistant:
        error = await assistant.refused(tool, **arguments)
        assert error["kind"] == kind
        assert message in error["error"]
        assert not re.search(r"\n|function|<", error["error"])
        assert error["cost"]["requests_left"] >= 990


# What assistants read of the project: the guide, llms.txt and SKILL.md name what there is


ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/how-to/assistants.md").read_text(encoding="utf-8")
LLMS = (ROOT / "docs/llms.txt").read_text(encoding="utf-8")
SKILL = (ROOT / "skills/catalogue/SKILL.md").read_text(encoding="utf-8")


def test_guide_names_every_tool_and_its_snippet_starts_the_server(stored: Settings, tmp_path: Path) -> None:
    for tool in TOOLS:
        assert f"`{tool.name}`" in GUIDE
        assert tool.name in INSTRUCTIONS or tool.name in {"sample", "sql_metadata"}
    (snippet,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    entry = json.loads(snippet)["mcpServers"]["catalogue"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert entry["command"] in scripts
    ran = Command(stored.data, stored.source, tmp_path)(*entry["args"])
    assert (ran.status, ran.out) == (0, "")


def test_llms_txt_has_the_parts_of_its_convention_and_links_every_page() -> None:
    title, blank, summary, *rest = LLMS.splitlines()
    assert title == "# catalogue"
    assert blank == ""
    assert summary.startswith("> ")
    sections = [line for line in rest if line.startswith("## ")]
    assert sections[-1] == "## Optional"
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S.*$", LLMS, re.MULTILINE)
    assert len(links) == LLMS.count("](")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("*/*.md")} | {"tutorial.md"}
    assert sorted(links) == sorted(pages)


def test_skill_has_a_name_a_description_and_known_commands() -> None:
    _, front, text = SKILL.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields["name"] == "catalogue" == (ROOT / "skills/catalogue/SKILL.md").parent.name
    assert 100 < len(fields["description"]) < 1024
    code = "\n".join(block or word for block, word in re.findall(r"```sh\n(.*?)```|`([^`\n]*)`", text, re.DOTALL))
    named = re.findall(r"\bcatalogue ([a-z-]+)", code)
    assert len(named) > 10
    assert {*named} <= {*COMMANDS}
    statuses = (ROOT / "docs/reference/exit-statuses.md").read_text(encoding="utf-8")
    for status in re.findall(r"^\| (\d+) \|", text, re.MULTILINE):
        assert f"| {status} |" in statuses
