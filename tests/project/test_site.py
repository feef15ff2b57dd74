"""The documentation builds without a warning, has everything in it, and needs nothing from elsewhere."""

import json
import re
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

import catalogue
from catalogue import errors
from catalogue.cli.app import entry
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.server import application
from catalogue.settings import Settings
from catalogue.source.open import _ENVIRONMENT

ROOT = Path(__file__).parents[2]
LINK = re.compile(r'<(\w+)[^>]*? (?:href|src)="([^"]*)"')
ID = re.compile(r' id="([^"]+)"')
ELSEWHERE = re.compile(r"(?:https?:)?//|data:|mailto:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "--keep-going", ROOT / "docs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@cache
def html(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def text(part: str) -> str:
    """What a reader sees of it."""
    return unescape(re.sub(r"<[^>]+>", "", part))


def test_links_have_targets_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    ids = {page: set(ID.findall(html(page))) for page in pages}
    followed = 0
    for page in pages:
        for element, link in LINK.findall(html(page)):
            if ELSEWHERE.match(link):
                assert element == "a" or link.startswith("data:"), f"{page.name} loads {link}"
                continue
            path, _, anchor = unescape(link).partition("#")
            there = page if not path else (page.parent / unquote(path.partition("?")[0])).resolve()
            assert there.is_file(), f"{page.name}: {link}"
            assert not anchor or there.suffix != ".html" or unquote(anchor) in ids[there], f"{page.name}: {link}"
            followed += 1
    assert followed > 1000
    styles = [*site.rglob("*.css")]
    assert styles
    for style in styles:
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", html(style)), style


def test_documents_every_command_and_option(site: Path) -> None:
    reported = html(site / "reference/commands.html")
    waiting: list[tuple[str, click.Command]] = [("catalogue", entry)]
    while waiting:
        name, command = waiting.pop()
        assert f'id="{name.replace(" ", "-")}"' in reported
        section = reported.partition(f'id="{name.replace(" ", "-")}"')[2].partition("</dl>")[0]
        context = click.Context(command)
        shown = text(section)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(option in shown for option in parameter.opts), f"{name} {parameter.opts}"
                assert " ".join((parameter.help or "").split()) in shown
        if isinstance(command, click.Group):
            inner = {each: command.get_command(context, each) for each in command.list_commands(context)}
            waiting += [(f"{name} {each}", found) for each, found in inner.items() if found]


def test_documents_every_public_name(site: Path) -> None:
    ids = set(ID.findall(html(site / "reference/python.html")))
    for name in catalogue.__all__:
        thing = getattr(catalogue, name)
        home = f"catalogue.errors.{name}" if thing.__module__ == "catalogue.errors" else f"catalogue.{name}"
        assert home in ids, name
        for member in dir(thing) if home == f"catalogue.{name}" and isinstance(thing, type) else ():
            assert member.startswith("_") or f"{home}.{member}" in ids, f"{name}.{member}"


def test_documents_every_error_and_status(site: Path) -> None:
    ids, statuses = set(ID.findall(html(site / "reference/python.html"))), html(site / "reference/exit-statuses.html")
    for name, each in vars(errors).items():
        if isinstance(each, type):
            assert f"catalogue.errors.{name}" in ids
        if isinstance(each, type) and issubclass(each, errors.CatalogueError):
            row = statuses.partition(f'catalogue.errors.{name}"')[2].partition("</tr>")[0]
            assert f"<p>{each.exit_status}</p>" in row, name
            assert re.search(rf"<td><p>{each.exit_status}</p></td>", statuses.partition("CatalogueError")[0]), name


def test_documents_every_setting_and_variable(site: Path) -> None:
    reported = text(html(site / "reference/settings.html"))
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    for name in Settings.__dataclass_fields__:
        assert f"{name}, CATALOGUE_{name.upper()}" in reported
        assert f"`CATALOGUE_{name.upper()}`" in page
    for name in _ENVIRONMENT:
        assert name.lower() in reported.lower()


def test_notices_about_generated_parts_are_not_in_the_site(site: Path) -> None:
    pages = [path for path in (ROOT / "docs/reference").glob("*.md") if "<!-- generated: " in path.read_text()]
    assert len(pages) == 6
    for page in pages:
        assert "This part is filled in when the site is built: `make docs`." in page.read_text(encoding="utf-8")
        assert "filled in when" not in text(html(site / f"reference/{page.stem}.html"))


def test_documents_every_view_column_and_query(site: Path) -> None:
    reported = html(site / "reference/views.html")
    comments = [
        found
        for view in (ROOT / "queries/views").glob("[a-z]*.sql")
        for found in re.findall(r"COMMENT ON COLUMN (\w+)\.\"?(\w+)\"? IS\s+'(.*?)';", view.read_text(), re.DOTALL)
    ]
    assert len(comments) > 50
    for view, column, about in comments:
        section = text(reported.partition(f'<section id="{view.replace("_", "-")}">')[2].partition("</section>")[0])
        assert re.search(rf"^{column}$", section, re.MULTILINE), f"{view}.{column}"
        assert about in section
    shown = ID.findall(html(site / "reference/queries.html"))
    assert {path.stem for path in (ROOT / "queries").rglob("*.sql") if path.parent.name != "views"} <= set(shown)


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


def test_documents_every_path_and_parameter(site: Path) -> None:
    reported = text(html(site / "reference/http.html"))
    for path in application().openapi()["paths"].values():
        assert path["get"]["summary"] in reported
        for parameter in path["get"].get("parameters", []):
            assert re.search(rf"^{parameter['name']}$", reported, re.MULTILINE)
            assert parameter["description"] in reported
