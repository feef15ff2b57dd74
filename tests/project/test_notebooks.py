"""The notebooks run as they stand, in a kernel whose event loop is running; they show outputs of the miniature."""

import ast
import json
import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

import catalogue
from catalogue.demo import Miniature
from tests.support.amounts import in_part
from tests.support.lakes import needs_extensions
from tests.support.miniatures import keep_in

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> tuple[Any, list[Any]]:
    """A notebook, and those of its cells that are code."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


# ---- as they stand ----


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebooks_name_no_machine(path: Path) -> None:
    _, code = read(path)
    nodes = [node for cell in code for node in ast.walk(ast.parse(cell.source))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.startswith("catalogue")} == {"catalogue"}
    names = {(ast.unparse(node.value), node.attr) for node in nodes if isinstance(node, ast.Attribute)}
    assert {name for of, name in names if of == "catalogue"} <= {*catalogue.__all__}
    assert not [name for _, name in names if name.startswith("_")]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not [text for text in texts if re.match(r"/\w|[A-Za-z]:[\\/]|~", text)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_outputs_match_the_code(path: Path) -> None:
    notebook, code = read(path)
    digest: str = runpy.run_path(str(FOLDER / "execute.py"))["code_digest"](notebook)
    assert notebook.metadata.get("code_digest") == digest, "run: make notebooks"
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert not re.findall(r"/(?:home|root|tmp|work|Users|var)/\w+", json.dumps(outputs))


# ---- executed ----


@pytest.fixture(scope="module")
def kernel(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One for all notebooks, because its start and imports take longer than most of them. It has no setting."""
    home = tmp_path_factory.mktemp("home")
    keep_in(home / ".cache/catalogue", miniature)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(FOLDER.parent)}
    manager = KernelManager()
    manager.start_kernel(env=environment, cwd=str(home))
    yield manager
    manager.shutdown_kernel(now=True)


def execute(notebook: Any, kernel: KernelManager, folder: Path, *, allow_errors: bool = False) -> None:
    begin = f"%reset -f\nimport os\nos.chdir({str(folder)!r})\ndel os"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(begin))  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, km=kernel, timeout=120, allow_errors=allow_errors)
    try:
        client.execute()
    finally:
        if client.kc:
            client.kc.stop_channels()


@in_part(9)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[needs_extensions] if "ducklake" in path.stem else []) for path in PATHS],
    ids=lambda path: path.stem,
)
def test_notebooks_run(path: Path, kernel: KernelManager, tmp_path: Path) -> None:
    notebook, code = read(path)
    execute(notebook, kernel, tmp_path)
    outputs = [output for cell in code for output in cell.outputs]
    shown = [output for output in outputs if output.output_type == "execute_result"]
    assert len(shown) >= 4
    images = [output for output in outputs if {"image/png", "image/svg+xml"} & {*output.get("data", ())}]
    assert images or path.stem.startswith("01")
    assert not [output for output in outputs if output.get("name") == "stderr"]


CELLS = """
import catalogue
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
int(_["captures"][0]), found.count(), cat.captures("*.example.com", subsets="warc", status=200).count()
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


def test_cells_of_sql_run(kernel: KernelManager, tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(cell.strip("\n")) for cell in CELLS.split("---\n")]  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=[*cells])  # type: ignore[no-untyped-call]
    execute(notebook, kernel, tmp_path, allow_errors=True)
    results = [
        output.data["text/plain"] for cell in cells for output in cell.outputs if output.output_type == "execute_result"
    ]
    assert "CC-MAIN-2022-05" in results[0]
    good, captures, expected = ast.literal_eval(results[3])
    assert 0 < good == expected <= captures
    assert [result.split()[-1] for result in results[1:3]] == [str(captures), str(good)]
    errors = [output.evalue for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert errors == [
        "there is no catalogue nothing; write cat = catalogue.open(), then %%catalogue",
        "no SQL; write some after %catalogue, or below %%catalogue, such as: from crawls",
        errors[2],
        "there are several catalogues: cat, other; name one, such as: %%catalogue cat",
        "there is no catalogue; write cat = catalogue.open(), then %%catalogue",
    ]
    assert 'Referenced column "nothing" not found' in errors[2]
