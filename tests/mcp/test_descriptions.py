"""What assistants read of the project: the guide, llms.txt and SKILL.md name what there is."""

import json
import re
import tomllib
from pathlib import Path

from catalogue.cli.messages import COMMANDS
from catalogue.mcp_server.serve import INSTRUCTIONS, TOOLS
from catalogue.settings import Settings
from tests.support.commands import Command

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
