"""The notebooks run as they stand, while an event loop is running; they show outputs of the miniature."""

import ast
import asyncio
import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from traitlets.config import Config

import catalogue
from catalogue.demo import Miniature
from tests.support.lakes import needs_extensions
from tests.support.miniatures import keep_in

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> tuple[Any, list[Any]]:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebooks_name_no_machine_and_have_the_outputs_of_their_code(path: Path) -> None:
    notebook, code = read(path)
    nodes = [node for cell in code for node in ast.walk(ast.parse(cell.source))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.startswith("catalogue")} == {"catalogue"}
    names = {(ast.unparse(node.value), node.attr) for node in nodes if isinstance(node, ast.Attribute)}
    assert {name for of, name in names if of == "catalogue"} <= {*catalogue.__all__}
    assert not [name for _, name in names if name.startswith("_")]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not [text for text in texts if re.match(r"/\w|[A-Za-z]:[\\/]|~", text)]
    digest: str = runpy.run_path(str(FOLDER / "execute.py"))["code_digest"](notebook)
    assert notebook.metadata.get("code_digest") == digest, "run: make notebooks"
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert not re.findall(r"/(?:home|root|tmp|work|Users|var)/\w+", json.dumps(outputs))


@pytest.fixture
def run_cells(
    miniature: Miniature, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[list[str]], list[Any]]]:
    """Run cells in IPython, while an event loop runs as in a kernel; return their values and errors."""
    from IPython.core.interactiveshell import InteractiveShell

    keep_in(tmp_path / "cache", miniature)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOGUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell replaces it
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))

    async def run(sources: list[str]) -> list[Any]:
        done = [shell.run_cell(source) for source in sources]
        return [each.error_before_exec or each.error_in_exec or each.result for each in done]

    yield lambda sources: asyncio.run(run(sources))
    for each in [*shell.user_ns.values()]:
        if isinstance(each, catalogue.Catalogue):
            each.close()
    shell.reset()


@pytest.mark.in_part(len(PATHS))
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[needs_extensions] if "ducklake" in path.stem else []) for path in PATHS],
    ids=lambda path: path.stem,
)
def test_notebooks_run(
    path: Path, run_cells: Callable[[list[str]], list[Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    values = run_cells([cell.source for cell in read(path)[1]])
    assert not [each for each in values if isinstance(each, BaseException)]
    assert len([each for each in values if each is not None]) >= 4
    assert capfd.readouterr().err == ""


CELLS = """import catalogue
cat = catalogue.open("magic", source="demo")
cat.harvest("CC-MAIN-2022-05")
%load_ext catalogue
found = cat.captures("*.example.com", columns="url")
lazy = cat.scan("*.example.com")
---
%catalogue select crawl, files_harvested > 0 as stored from crawls where files_harvested > 0
---
%%catalogue
select count(*) as captures from found
---
%%catalogue cat
select count(*) as captures from lazy join crawls using (crawl)
where fetch_status = 200
---
found.count(), cat.captures("*.example.com", subsets="warc", status=200).count()
---
url = found.to_pandas()["url"]  # no table, but a column of the SQL
same = cat
%catalogue select any_value(url) as url, count(*) as captures from found
---
del same
---
%%catalogue nothing
from crawls
---
%catalogue
---
%catalogue select nothing from crawls
---
other = catalogue.open("other", source="demo")
%catalogue from crawls
---
del cat, other
%catalogue from crawls
"""


def test_cells_of_sql_run(run_cells: Callable[[list[str]], list[Any]]) -> None:
    _, crawls, counts, few, (captures, good), named, _, *errors = run_cells(CELLS.split("---\n"))
    assert crawls["crawl"].tolist() == ["CC-MAIN-2022-05"]
    assert 0 < good <= captures
    assert (counts["captures"].tolist(), few["captures"].tolist()) == ([captures], [good])
    assert named["captures"].tolist() == [captures]
    assert [str(error) for error in errors] == [
        "there is no catalogue nothing; write cat = catalogue.open(), then %%catalogue",
        "no SQL; write some after %catalogue, or below %%catalogue, such as: from crawls",
        str(errors[2]),
        "there are several catalogues: cat, other; name one, such as: %%catalogue cat",
        "there is no catalogue; write cat = catalogue.open(), then %%catalogue",
    ]
    assert 'Referenced column "nothing" not found' in str(errors[2])
