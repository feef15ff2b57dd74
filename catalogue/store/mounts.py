"""Whether a folder is on a disk of this machine, where a store is safe."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
"""Where Linux tells of them (proc(5)); elsewhere there is no such file."""
_REMOTE = re.compile(
    r"nfs4?|cifs|smb[0-9]*|smbfs|afs|ceph|9p|lustre|gpfs|glusterfs|beegfs|davfs|ncpfs"
    r"|fuse\.(?:sshfs|s3fs|rclone|gcsfuse|goofys|glusterfs|ceph|juicefs|mount-s3|blobfuse2?|davfs2?|curlftpfs)"
)
"""Kinds of file systems whose files are on other machines."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def _told() -> str:
    with suppress(OSError):
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    return ""


def remote_kind(folder: Path, told: Callable[[], str] = _told) -> str | None:
    """The kind of the file system that a folder is, or will be, on, if its files are on another machine; else None.

    Args:
        folder: need not be there.
        told: the lines of all mounts, as Linux writes them.
    """
    there = folder.resolve()
    kind = None
    longest = -1
    for line in told().splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, place, kind
            continue
        place = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[1]))
        if there.is_relative_to(place) and len(place.parts) >= longest:  # a later one lies over an earlier
            longest, kind = len(place.parts), fields[2]
    return kind if kind and _REMOTE.fullmatch(kind) else None
