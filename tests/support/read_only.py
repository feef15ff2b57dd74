"""Folders and files that can only be read, even by root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WITHOUT_PRIVILEGES = () if os.geteuid() else ("setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override")
"""The start of a command that obeys permissions, even of root."""


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Have a folder, or a file, that cannot be written to."""
    if os.geteuid():
        mode = path.stat().st_mode
        path.chmod(mode & ~0o222)
        try:
            yield
        finally:
            path.chmod(mode)
        return
    if subprocess.run(["mount", "--bind", "-o", "ro", path, path], capture_output=True, check=False).returncode:
        pytest.skip("root may write everywhere, and may not mount a folder read-only here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Become a user who may read what all may read, since root may read all files."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)
