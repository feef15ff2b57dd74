"""Environments for programs that are compared with us, or that write what is read."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from benchmarks.processes import Failed
from benchmarks.report import say


def environment(cache: Path, requirements: Sequence[str]) -> Path:
    """The Python of an environment with these packages; made unless it is there.

    Raises:
        Failed: if it cannot be.
    """
    folder = cache / f"peers-{blake2b(repr((sys.version, *requirements)).encode(), digest_size=4).hexdigest()}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        say(f"installing {', '.join(requirements)}")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            message = f"{', '.join(requirements)} cannot be installed:\n{done.stderr}"
            raise Failed(message)
        complete.touch()
    return python
