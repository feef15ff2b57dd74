"""Programs that are compared with us, or that write what is read, in environments of their own."""

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
"""Of what takes long to make."""

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

PEERS: dict[str, tuple[str, ...]] = {
    DATAFUSION: ("datafusion==55.0.0", _ARROW),
    POLARS: ("polars==2.1.0", _ARROW),
    # The last that the wheels of its extensions have been made for.
    DUCKDB: ("duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5", _ARROW),
    PYARROW: (_ARROW, *_FSSPEC),
    RECIPE: (_ARROW, *_FSSPEC, "pandas==3.1.1", "sqlitedict==2.1.0"),
    CDX_TOOLKIT: ("cdx_toolkit==0.9.39",),
    PYWB: ("pywb==2.10.0",),
    SPARK: ("pyspark==3.5.8",),
}
"""What is installed for each, by its name in the tables."""


def python_of(peer: str) -> Path:
    """The Python of an environment that a peer is installed in, made unless it is there.

    Raises:
        Failed: if it cannot be.
    """
    requirements = PEERS[peer]
    folder = CACHE / f"peers-{blake2b(repr((sys.version, *requirements)).encode(), digest_size=4).hexdigest()}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        say(f"installing {', '.join(requirements)}")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            message = f"no environment can be made for {requirements[0]}: {error}"
            raise Failed(message) from error
        install = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            message = f"{requirements[0]} cannot be installed: {said[-1]}"
            raise Failed(message)
        complete.touch()
    return python


def available(peers: Sequence[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """The Python of each that can be had, and why the others cannot."""
    pythons, lacking = {}, {}
    for peer in peers:
        try:
            pythons[peer] = python_of(peer)
        except Failed as why:
            lacking[peer] = str(why)
    return pythons, lacking
