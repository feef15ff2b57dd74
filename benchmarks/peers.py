"""Other programs, each installed in its own environment."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir

from benchmarks.processes import Failed
from benchmarks.report import say

CACHE = Path(gettempdir()) / "catalogue-benchmarks"
"""Folder of environments and of inputs that take long to generate."""

_ARROW = "pyarrow==26.0.1"
_FSSPEC = ("aiohttp==3.14.5", "fsspec==2026.9.0")

DATAFUSION = "DataFusion"
POLARS = "polars"
DUCKDB = "DuckDB, httpfs"
PYARROW = "pyarrow over fsspec"
RECIPE = "recipe of 2022"
CDX_TOOLKIT = "cdx_toolkit; pywb reads its disk"
PYWB = "pywb"
SPARK = "Spark"

_CONSTRAINTS = {PYWB: Path(__file__).parent / "constraints-pywb.txt"}
"""Files of tested versions, which the tests install, too."""


def _pinned(name: str) -> str:
    """Return the requirement of a package in a file of tested versions."""
    lines = _CONSTRAINTS[name].read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


PEERS: dict[str, tuple[str, ...]] = {
    DATAFUSION: ("datafusion==55.0.0", _ARROW),
    POLARS: ("polars==2.1.0", _ARROW),
    # The latest version with wheels of the extensions.
    DUCKDB: ("duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5", _ARROW),
    PYARROW: (_ARROW, *_FSSPEC),
    RECIPE: (_ARROW, *_FSSPEC, "pandas==3.1.1", "sqlitedict==2.1.0"),
    CDX_TOOLKIT: ("cdx_toolkit==0.9.39",),
    PYWB: (_pinned("pywb"),),
    SPARK: ("pyspark==3.5.8",),
}
"""Requirements, by name in the tables."""


def python_of(peer: str) -> Path:
    """Return the Python of the environment of a program; create and fill it if necessary.

    Raises:
        Failed: if the environment or a package cannot be installed.
    """
    requirements, constraints = PEERS[peer], _CONSTRAINTS.get(peer)
    identity = [sys.version, *requirements, *([constraints.read_text(encoding="utf-8")] if constraints else [])]
    folder = CACHE / f"peers-{blake2b(repr(identity).encode(), digest_size=4).hexdigest()}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        say(f"installing {', '.join(requirements)}")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            message = f"cannot create an environment for {requirements[0]}: {error}"
            raise Failed(message) from error
        install = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        install += ["-c", str(constraints)] if constraints else []
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            message = f"cannot install {requirements[0]}: {lines[-1]}"
            raise Failed(message)
        complete.touch()
    return python


def available(peers: Sequence[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the Python of each installed program, and for the others the reason."""
    pythons, missing = {}, {}
    for peer in peers:
        try:
            pythons[peer] = python_of(peer)
        except Failed as error:
            missing[peer] = str(error)
    return pythons, missing
