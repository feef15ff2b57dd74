"""The architecture, enforced: imports point one way, each dependency has one home, files stay readable."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "catalogue"

ORDER = re.findall(r"^\| `(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE)
PURE = ["errors", "formatting", "surt", "commoncrawl", "parquet"]
IMPURE_MODULES = {
    *("asyncio", "os", "pathlib", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib"),
}

OF_FOLDERS = {
    "api": "duckdb pandas polars",
    "captures": "dask pandas",
    "cli": "click rich",
    "commoncrawl": "isal",
    "export": "duckdb pyiceberg sqlite3",
    "harvest": "backports",
    "join": "duckdb pandas",
    "mcp_server": "anyio mcp mcp_types pydantic starlette uvicorn",
    "metadata_db": "duckdb filelock",
    "output": "fsspec pandas warcio",
    "progress": "IPython rich",
    "query": "duckdb pydantic",
    "read": "dask distributed duckdb pandas polars",
    "records": "backports brotli chardetng_py feedparser resiliparse warcio webencodings",
    "reports": "pandas",
    "sample": "pandas",
    "scan": "polars",
    "server": "fastapi h11 jinja2 prometheus_client pydantic starlette uvicorn warcio",
    "session": "duckdb",
    "settings": "platformdirs",
    "source": "aiohttp botocore filelock fsspec s3fs urllib3",
    "sql_magic": "duckdb pandas",
    "store": "filelock sqlite3",
}
"""The libraries that a folder or module may import; pandas is read only by ``read``, the others name its types."""
HOMES = {
    library: {folder for folder, libraries in OF_FOLDERS.items() if library in libraries.split()}
    for library in " ".join(OF_FOLDERS.values()).split()
}

FORBIDDEN_NAMES = {"base", "common", "core", "helpers", "manager", "misc", "types", "utils"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST, *, types: bool) -> Iterator[ast.AST]:
    """Yield the statements below a node at all depths; without ``types`` not those for type checkers."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        inside = getattr(node, part, ())
        for each in inside if isinstance(inside, list) else ():
            if types or not (isinstance(each, ast.If) and "TYPE_" in ast.unparse(each.test)):
                yield each
                yield from statements(each, types=types)


@cache
def imports(path: Path, *, types: bool = True) -> list[str]:
    found: list[str] = []
    for node in statements(parsed(path), types=types):
        match node:
            case ast.Import(names=names):
                found += (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found += (f"{module}.{name.name}" for name in names)
    return found


def wrongly_imported(path: Path) -> Iterator[str]:
    here = layer(path)
    if here in {"__init__", "__main__"}:
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "catalogue":
            continue
        there = parts[1] if len(parts) > 1 else ""
        # `import catalogue`, the public face, is for faces alone.
        below = ORDER.index("catalogue" if there not in ORDER else there)
        if there != here and below >= ORDER.index(here):
            yield f"{here} imports {name}"


def test_imports_follow_the_list() -> None:
    assert {layer(path) for path in modules()} - {"__init__", "__main__"} == set(ORDER)
    assert [wrong for path in modules() for wrong in wrongly_imported(path)] == []


def test_each_dependency_has_one_folder() -> None:
    found = [(layer(path), name.split(".")[0]) for path in modules() for name in imports(path, types=False)]
    assert [(here, top) for here, top in found if here not in HOMES.get(top, {here})] == []
    assert {top for _, top in found} >= HOMES.keys()


@pytest.mark.parametrize("name", PURE)
def test_decision_modules_do_no_io(name: str) -> None:
    for path in modules():
        if layer(path) == name:
            used = {imported.split(".")[0] for imported in imports(path) if not imported.startswith("urllib.parse")}
            elsewhere = {library for library, homes in HOMES.items() if name not in homes}
            assert not used & (IMPURE_MODULES | elsewhere), f"{path.name} imports {used}"


def test_files_are_short_and_range_headers_made_in_one_module() -> None:
    for path in [*modules(), *sorted((ROOT / "tests").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 420, f"{path} is too long"  # about 400
        assert path.stem not in FORBIDDEN_NAMES
        if PACKAGE in path.parents and layer(path) not in {"source", "demo"}:  # a server writes the other half of it
            assert not re.search(r"\"bytes(=| \{)", text), path


def test_views_are_defined_in_queries_only() -> None:
    for path in modules():
        assert "CREATE OR REPLACE VIEW" not in path.read_text(encoding="utf-8").upper()
