"""What is tested is what was asked for: the compiled wheel or the sources, and which DuckDB."""

import os
import tomllib
from importlib import import_module
from pathlib import Path

import duckdb
import pytest

from tests.support.catalogues import catalogue_in

COMPILED = os.environ.get("CATALOGUE_TEST_COMPILED") == "1"
DUCKDB = os.environ.get("CATALOGUE_TEST_DUCKDB")
ROOT = Path(__file__).parents[1]
HOOKS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]


@pytest.mark.parametrize("path", HOOKS["mypyc"]["include"])
def test_listed_modules_are_compiled_in_the_wheel(path: str) -> None:
    assert (ROOT / path.lstrip("/")).is_file()
    file = import_module(path.strip("/").removesuffix(".py").replace("/", ".")).__file__
    assert file
    assert file.endswith(".py") is not COMPILED


def test_doctor_reports_compiled_code(mirror: Path, tmp_path: Path) -> None:
    with catalogue_in(tmp_path, mirror) as cat:
        seen = {each.about: each for each in cat.doctor().here}["compiled code"]
    assert seen.seen == ("footers, pages, plans, keys" if COMPILED else "none")
    assert bool(seen.means) is not COMPILED


def test_duckdb_has_the_expected_version() -> None:
    pinned = (ROOT / "constraints.txt").read_text()
    assert duckdb.__version__ == DUCKDB or (DUCKDB is None and f"duckdb=={duckdb.__version__}\n" in pinned)
