"""Refuse to work in one folder with the package ``catalogue`` of PyPI, a dependency of spaCy."""

import sys
from pathlib import Path
from typing import NoReturn

OTHER = "catalogue"
"""The name of the other distribution, and of the import package of both."""
WAY_OUT = "install commoncrawl-catalogue into an environment of its own, by venv, pipx or uvx"
_COMMANDS = {"catalogue", "commoncrawl-catalogue"}


def refuse() -> NoReturn:
    """End a command with a sentence, and an import with an error.

    Raises:
        ImportError: if the package is imported by another program.
    """
    what = (
        f"the package {OTHER}, a dependency of spaCy, is or was installed in the folder of commoncrawl-catalogue, and "
        f"each replaces files of the other; {WAY_OUT}"
    )
    if Path(sys.argv[0]).stem in _COMMANDS or sys.orig_argv[1:3] == ["-m", "catalogue"]:
        sys.exit(f"catalogue: {what}")
    raise ImportError(what)
