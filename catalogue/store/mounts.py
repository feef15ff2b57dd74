"""Detect network file systems, on which SQLite's locks are not safe."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_REMOTE = re.compile(
    r"nfs4?|cifs|smb[0-9]*|smbfs|afs|ceph|9p|lustre|gpfs|glusterfs|beegfs|davfs|ncpfs"
    r"|fuse\.(?:sshfs|s3fs|rclone|gcsfuse|goofys|glusterfs|ceph|juicefs|mount-s3|blobfuse2?|davfs2?|curlftpfs)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def _read_mounts() -> str:
    with suppress(OSError):
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    return ""


def remote_kind(folder: Path, read_mounts: Callable[[], str] = _read_mounts) -> str | None:
    """Return the type of a folder's file system, which need not exist, if it is a network file system."""
    resolved = folder.resolve()
    kind = None
    longest = -1
    for line in read_mounts().splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, mount point, type
            continue
        mount_point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[1]))
        if (
            resolved.is_relative_to(mount_point) and len(mount_point.parts) >= longest
        ):  # a later mount hides an earlier one
            longest, kind = len(mount_point.parts), fields[2]
    return kind if kind and _REMOTE.fullmatch(kind) else None
