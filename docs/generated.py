"""Write the parts of the reference that help texts, SQL, docstrings and the OpenAPI document already contain.

Such a part is between two comments of a page, ``<!-- generated: commands -->`` and ``<!-- end -->``. ``make docs`` runs
this file, and a test compares the pages with it. It is also an extension of Sphinx, for docstrings of attributes.
"""

import builtins
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click
import duckdb
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from catalogue import errors
from catalogue.cli.app import entry
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.metadata_db.connection import queries_folder, statement
from catalogue.server.application import application
from catalogue.settings import Limits, Settings

_PAGES = Path(__file__).parent / "reference"
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$^])")


def commands() -> str:
    """Every command with all its options, as ``--help`` has them."""
    return "\n".join(_command(*each) for each in all_commands())


def all_commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command and where it stands, groups before what is in them."""
    waiting: list[tuple[click.Context | None, str, click.Command]] = [(None, "catalogue", entry)]
    while waiting:
        parent, name, command = waiting.pop(0)
        context = click.Context(command, parent, name, **command.context_settings)
        yield context, command
        if isinstance(command, click.Group):
            inner = ((each, command.get_command(context, each)) for each in command.list_commands(context))
            waiting = [*((context, each, found) for each, found in inner if found), *waiting]


def _command(context: click.Context, command: click.Command) -> str:
    lines = [f"## {context.command_path}", ""]
    for paragraph in re.split(r"\n{2,}", inspect.cleandoc(command.help or "")):
        as_it_is = paragraph.removeprefix("\b\n")
        lines += [_block(as_it_is) if as_it_is != paragraph else _plain(paragraph), ""]
    lines += [_block(command.get_usage(context).removeprefix("Usage: ")), ""]
    common = set() if command is entry else {each.name for each in entry.params} | {"help"}
    for parameter in command.get_params(context):
        if parameter.name not in common and (record := parameter.get_help_record(context)) and record[1]:
            lines += [f"`{record[0]}`", f": {_plain(record[1])}", ""]
    return "\n".join(lines)


def views() -> str:
    """The views of a catalogue and their columns, as ``COMMENT ON`` describes them."""
    with duckdb.connect() as connection:
        connection.execute(statement("views/_tables.sql", COMMON_CRAWL))
        for view in sorted((queries_folder() / "views").glob("[a-z]*.sql")):
            sql = statement(f"views/{view.name}", COMMON_CRAWL)
            connection.execute(sql.replace("$lists", "derived.no_blocks").replace("$values", "derived.no_values"))
        told = connection.execute(
            "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal AND schema_name = 'main' ORDER BY 1"
        )
        found = []
        for name, comment in told.fetchall():
            columns = connection.execute(
                "SELECT column_name, data_type, comment FROM duckdb_columns() "
                "WHERE schema_name = 'main' AND table_name = ? ORDER BY column_index",
                [name],
            ).fetchall()
            rows = ([f"`{column}`", f"`{kind}`", _plain(about)] for column, kind, about in columns)
            found.append(f"## {name}\n\n{_plain(comment)}\n\n{_table(('column', 'type', 'meaning'), rows)}")
    return "\n\n".join(found)


def queries() -> str:
    """The SQL that comes with the package."""
    found = []
    for kind in ("", "lake/"):
        for file in sorted((queries_folder() / kind).glob("*.sql")):
            lines = file.read_text(encoding="utf-8").splitlines()
            about = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
            sql = "\n".join(line for line in lines if not line.startswith("--"))
            found.append(f"## {file.stem}\n\n{_plain(' '.join(about))}\n\n{_block(sql, 'sql')}")
    return "\n\n".join(found)


def settings() -> str:
    """Every setting, and where it may be set."""
    told = ModuleAnalyzer.for_module("catalogue.settings").find_attr_docs()
    options = {name for parameter in entry.params for name in parameter.opts}
    found = []
    for kind, field in [(each, field) for each in (Settings, Limits) for field in fields(each)]:
        names = [field.name, f"CATALOGUE_{field.name.upper()}", *({f"--{field.name}"} & options)]
        value = f"{field.default:_}" if isinstance(field.default, int | float) else field.default
        default = "" if value is None else f" By default `{value}`."
        if value is MISSING:
            default = " See above for the default."
        if field.name == "hosts":  # only in the file
            names, default = ["[hosts.NAME]"], ""
        about = _plain(" ".join(told[kind.__name__, field.name]))
        found.append(f"{', '.join(f'`{name}`' for name in names)}\n: {about}{default}")
    return "\n\n".join(found)


def error_classes() -> str:
    """Every error, and the status that a command leaves with for it."""
    classes = ((name, each) for name, each in vars(errors).items() if isinstance(each, type))
    rows = [
        [
            f"[{each.__name__}](#{each.__module__}.{each.__qualname__})",
            _plain(each.__doc__ or ""),
            str(each.exit_status),
        ]
        for name, each in classes
        if issubclass(each, errors.CatalogueError)
    ]
    return _table(("error", "means", "status"), rows)


def operations() -> str:
    """The JSON API: paths, parameters and answers, as its OpenAPI document has them."""
    document = application().openapi()
    found = []
    for path, methods in document["paths"].items():
        operation = methods["get"]
        found += [f"## {path}", _plain(operation["summary"])]
        if parameters := operation.get("parameters"):
            rows = (
                [f"`{each['name']}`", _form(each["schema"]), _plain((each["schema"] | each)["description"])]
                for each in parameters
            )
            found.append(_table(("parameter", "form", "meaning"), rows))
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
        found.append(f"Answers with {_form(answer)}.")
    for name, schema in document["components"]["schemas"].items():
        found += [f"## {name}", _plain(schema.get("description", ""))]
        rows = (
            [f"`{key}`", _form(each), _plain(each.get("description", ""))] for key, each in schema["properties"].items()
        )
        found.append(_table(("field", "form", "meaning"), rows))
    return "\n\n".join(filter(None, found))


def _form(schema: Mapping[str, Any]) -> str:
    """What a value looks like, in few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_form, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema["type"]
    named = f"list of {_form(schema['items'])}" if kind == "array" else schema.get("format", kind)
    if "maximum" in schema:
        named += f" {schema['minimum']:,} to {schema['maximum']:,}"
    if default := schema.get("default"):
        named += f", by default {default[0] if isinstance(default, list) else default}"
    return str(named)


def _plain(text: str) -> str:
    """Text whose only markup is code between two backticks, as in docstrings."""
    parts = re.split("``(.+?)``", " ".join(text.split()))
    return "".join(f"`{part}`" if at % 2 else _MARKUP.sub(r"\\\1", part) for at, part in enumerate(parts))


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.strip()}\n```"


def _table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(names), ["---" for _ in names], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_MADE: Mapping[str, Callable[[], str]] = {
    made.__name__: made for made in (commands, views, queries, settings, error_classes, operations)
}


def filled(page: str) -> str:
    """Return a page with its generated parts."""
    return _PART.sub(lambda part: f"{part[1]}\n{_MADE[part[2]]().strip()}\n\n{part[3]}", page)


def write_pages() -> None:
    """Write the generated parts of all pages."""
    for path in _PAGES.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            path.write_text(new, encoding="utf-8")


def keep(_app: Sphinx, what: str, name: str, _it: object, _options: object, lines: list[str]) -> None:
    """Keep what is said of an attribute as it is: napoleon takes what stands before a colon in it for a type."""
    if what in {"attribute", "property"} and not any(line.endswith(":") for line in lines):
        _kept[name] = list(lines)


def put_back(_app: Sphinx, _what: str, name: str, _it: object, _options: object, lines: list[str]) -> None:
    """Put that in the place of what napoleon made of it."""
    lines[:] = _kept.pop(name, lines)


_kept: dict[str, list[str]] = {}


def unlink(_app: Sphinx, doctree: nodes.document) -> None:
    """Leave Python's own types alone: ``bytes`` and ``range`` would be taken for members of that name."""
    for reference in list(doctree.findall(pending_xref)):
        if hasattr(builtins, reference["reftarget"]) and reference["refdomain"] == "py":
            reference.replace_self(reference.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", keep, priority=400)
    app.connect("autodoc-process-docstring", put_back, priority=600)  # napoleon has 500
    app.connect("doctree-read", unlink)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    write_pages()
