"""Execute the notebooks on the miniature of the demo and save their outputs: ``make notebooks``."""

import os
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """Return a digest of the code, which shows whether outputs belong to it."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return sha256(code.encode()).hexdigest()[:16]


def execute(path: Path, folder: Path) -> None:
    """Execute a notebook in a folder and save it with its outputs, in which the folder of the cache is relative."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CATALOGUE_")}
    environment = kept | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder), "CATALOGUE_CACHE": "cache"}
    manager = KernelManager()
    manager.start_kernel(env=environment, cwd=str(folder))
    try:
        NotebookClient(notebook, km=manager, timeout=120).execute()
    finally:
        manager.shutdown_kernel(now=True)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran
    notebook.metadata["code_digest"] = code_digest(notebook)
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def main() -> None:
    """Execute all notebooks, or those that are named."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    with TemporaryDirectory() as temporary:
        for path in paths:
            folder = Path(temporary) / path.stem / "notebooks"
            folder.mkdir(parents=True)
            execute(path, folder)


if __name__ == "__main__":
    main()
