"""What pages of the documentation list is complete; ``docs/check_site.py`` checks the built site."""

import json
import re
import runpy
from pathlib import Path

from catalogue.commoncrawl.schema import SCHEMA
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.settings import Limits, Settings

ROOT = Path(__file__).parents[2]


def test_documents_every_setting() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    for name in [*Settings.__dataclass_fields__, *Limits.__dataclass_fields__]:
        assert (f"`CATALOGUE_{name.upper()}`" in page) == (name != "hosts")  # which has no variable


def test_generated_parts_are_up_to_date() -> None:
    filled = runpy.run_path(str(ROOT / "docs/generated.py"))["filled"]
    pages = [path for path in (ROOT / "docs/reference").glob("*.md") if "<!-- generated: " in path.read_text()]
    assert len(pages) == 6
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert filled(text) == text, "run: python docs/generated.py"


def test_documents_every_column_of_the_index_in_order() -> None:
    page = (ROOT / "docs/reference/columns.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`( •)? \|", page, re.MULTILINE)
    assert [name for name, _ in rows] == SCHEMA.names
    assert {name for name, marked in rows if marked} == set(CDX_COLUMNS)


def test_documents_every_json_field() -> None:
    page = (ROOT / "docs/reference/outputs.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("| of | field |")[2]))
    shown = [json.loads(line) for line in page.splitlines() if line.startswith("{")]
    assert len(shown) >= 3
    assert {key for each in shown for key in each} <= named
