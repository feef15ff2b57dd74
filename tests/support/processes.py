"""Child processes."""

import os
import subprocess
from pathlib import Path


def children() -> set[int]:
    """The processes that this one started and that did not end yet."""
    if Path("/proc/self/status").exists():
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:  # ended meanwhile
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(folder.name))
        return found
    listed = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
    return set(map(int, listed.stdout.split()))
