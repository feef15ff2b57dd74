"""Check the built site: ``python docs/check_site.py FOLDER``.

Links have targets, nothing is loaded from elsewhere, and everything public is documented.
"""

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import click

import catalogue
from catalogue import errors
from catalogue.cli.app import entry
from catalogue.server.application import application
from catalogue.settings import Settings
from catalogue.source.open import _ENVIRONMENT

ROOT = Path(__file__).parents[1]
LINK = re.compile(r'<(\w+)[^>]*? (?:href|src)="([^"]*)"')
ID = re.compile(r' id="([^"]+)"')
ELSEWHERE = re.compile(r"(?:https?:)?//|data:|mailto:")
COMMENT = re.compile(r"COMMENT ON COLUMN (\w+)\.\"?(\w+)\"? IS\s+'(.*?)';", re.DOTALL)


@cache
def html(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def ids_of(path: Path) -> set[str]:
    return set(ID.findall(html(path)))


def text(part: str) -> str:
    """Return what a reader sees of a part."""
    return unescape(re.sub(r"<[^>]+>", "", part))


def check(found: object, missing: str) -> None:
    """Raise AssertionError that names what is missing, unless something was found."""
    if not found:
        raise AssertionError(missing)


def check_links(site: Path) -> None:
    """Check that links have targets, and that nothing is loaded from elsewhere."""
    pages = sorted(site.rglob("*.html"))
    followed = 0
    for page in pages:
        for element, link in LINK.findall(html(page)):
            if ELSEWHERE.match(link):
                check(element == "a" or link.startswith("data:"), f"{page.name} loads {link}")
                continue
            path, _, anchor = unescape(link).partition("#")
            there = page if not path else (page.parent / unquote(path.partition("?")[0])).resolve()
            check(there.is_file(), f"{page.name}: {link}")
            is_there = not anchor or there.suffix != ".html" or unquote(anchor) in ids_of(there)
            check(is_there, f"{page.name}: {link}")
            followed += 1
    check(followed > len(pages), "links of pages")
    styles = [*site.rglob("*.css")]
    check(styles, "styles")
    for style in styles:
        check(not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", html(style)), f"{style} loads a file")


def check_commands(site: Path) -> None:
    """Check that every command and option is documented."""
    reported = html(site / "reference/commands.html")
    for name, command in commands():
        start = f'id="{name.replace(" ", "-")}"'
        check(start in reported, name)
        shown = text(reported.partition(start)[2].partition("</dl>")[0])
        common = set() if command is entry else {each.name for each in entry.params}
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden and parameter.name not in common:
                check(all(option in shown for option in parameter.opts), f"{name} {parameter.opts}")
                check(" ".join((parameter.help or "").split()) in shown, f"{name}: {parameter.help}")


def commands() -> Iterator[tuple[str, click.Command]]:
    waiting: list[tuple[str, click.Command]] = [("catalogue", entry)]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            inner = {each: command.get_command(context, each) for each in command.list_commands(context)}
            waiting += [(f"{name} {each}", found) for each, found in inner.items() if found]


def check_names(site: Path) -> None:
    """Check that every public name and its members are documented."""
    ids = ids_of(site / "reference/python.html")
    for name in catalogue.__all__:
        thing = getattr(catalogue, name)
        home = f"catalogue.errors.{name}" if thing.__module__ == "catalogue.errors" else f"catalogue.{name}"
        check(home in ids, name)
        for member in dir(thing) if home == f"catalogue.{name}" and isinstance(thing, type) else ():
            check(member.startswith("_") or f"{home}.{member}" in ids, f"{name}.{member}")


def check_errors(site: Path) -> None:
    """Check that every error and its exit status are documented."""
    ids, statuses = ids_of(site / "reference/python.html"), html(site / "reference/exit-statuses.html")
    for name, each in vars(errors).items():
        if isinstance(each, type):
            check(f"catalogue.errors.{name}" in ids, name)
        if isinstance(each, type) and issubclass(each, errors.CatalogueError):
            row = statuses.partition(f'catalogue.errors.{name}"')[2].partition("</tr>")[0]
            check(f"<p>{each.exit_status}</p>" in row, f"{name} {each.exit_status}")
            explained = statuses.partition("CatalogueError")[0]
            check(re.search(rf"<td><p>{each.exit_status}</p></td>", explained), f"status {each.exit_status}")


def check_settings(site: Path) -> None:
    """Check that every setting and variable is documented."""
    reported = text(html(site / "reference/settings.html"))
    for name in Settings.__dataclass_fields__:
        shown = "[hosts.NAME]" if name == "hosts" else f"{name}, CATALOGUE_{name.upper()}"  # hosts: only in the file
        check(shown in reported, name)
    for name in _ENVIRONMENT:
        check(name.lower() in reported.lower(), name)


def check_views(site: Path) -> None:
    """Check that every view, its columns and every query are documented."""
    reported = html(site / "reference/views.html")
    views = [*(ROOT / "queries/views").glob("[a-z]*.sql")]
    comments = [found for view in views for found in COMMENT.findall(view.read_text())]
    check(len(comments) > len(views) > 0, "comments on columns")
    for view, column, about in comments:
        section = text(reported.partition(f'<section id="{view.replace("_", "-")}">')[2].partition("</section>")[0])
        check(re.search(rf"^{column}$", section, re.MULTILINE), f"{view}.{column}")
        check(about in section, f"{view}.{column}: {about}")
    queries = {path.stem for path in (ROOT / "queries").rglob("*.sql") if path.parent.name != "views"}
    missing = queries - ids_of(site / "reference/queries.html")
    check(not missing, ", ".join(sorted(missing)))


def check_paths(site: Path) -> None:
    """Check that every path of the HTTP API and every parameter are documented."""
    reported = text(html(site / "reference/http.html"))
    for name, path in application().openapi()["paths"].items():
        check(path["get"]["summary"] in reported, name)
        for parameter in path["get"].get("parameters", []):
            check(re.search(rf"^{parameter['name']}$", reported, re.MULTILINE), f"{name} {parameter['name']}")
            about = (parameter["schema"] | parameter)["description"]
            check(about in reported, f"{name}: {about}")


CHECKS: list[Callable[[Path], None]] = [
    *(check_links, check_commands, check_names, check_errors, check_settings),
    *(check_views, check_paths),
]


def main(site: Path) -> int:
    failed = False
    for each in CHECKS:
        try:
            each(site)
        except AssertionError as error:
            sys.stderr.write(f"{each.__name__}: the site lacks this, or should not have it: {error}\n")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
