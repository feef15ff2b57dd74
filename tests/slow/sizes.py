"""What a process takes."""

import os
import resource
from pathlib import Path


def resident() -> int:
    """Bytes of memory of this process; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") if statm.exists() else 0


def peak() -> int:
    """The most there were."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
