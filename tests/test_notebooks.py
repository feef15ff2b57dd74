"""The notebooks run as they stand, with outputs stripped, in a kernel whose event loop is running."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.commands import Command

FOLDER = Path(__file__).parent.parent / "notebooks"


@pytest.fixture(autouse=True)
def _surroundings(command: Command, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in command.environment().items():
        if name != "PYTHONWARNINGS":  # the kernel's own, which are not ours to mend
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("NOTEBOOK_CRAWL", max(path.name for path in (mirror / "crawl-data").iterdir()))
    monkeypatch.setenv("NOTEBOOK_SITE", "*.example.com")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
# jupyter_client leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code), "strip the outputs"
    assert not any(
        line.startswith(("from catalogue.", "import catalogue.")) for c in code for line in c.source.splitlines()
    )
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [output for cell in code for output in cell.outputs if output.output_type == "execute_result"]
    assert len(shown) >= 8
    assert not [output for cell in code for output in cell.outputs if output.get("name") == "stderr"]
    assert os.environ["CATALOGUE_SOURCE"]
