"""Detection of network file systems."""

from pathlib import Path

import pytest

from catalogue.store.locks import remote_kind

MOUNTS = r"""/dev/sda1 / ext4 rw,relatime 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
//server/share /mnt/with\040blank cifs rw 0 0
/dev/sdb1 /home/local xfs rw 0 0
me@host:/ /mnt/ssh fuse.sshfs rw,user_id=0 0 0
portal /run/doc fuse.portal rw 0 0
bucket /mnt/bucket fuse.mount-s3 rw 0 0
host /mnt/host 9p rw 0 0
first /mnt/over nfs rw 0 0
second /mnt/over tmpfs rw 0 0

odd
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/data", None),
        ("/home/me/data", "nfs4"),
        ("/home", "nfs4"),
        ("/homes/data", None),
        ("/home/local/data", None),
        ("/mnt/with blank/data", "cifs"),
        ("/mnt/ssh/a/b", "fuse.sshfs"),
        ("/run/doc/data", None),
        ("/mnt/bucket", "fuse.mount-s3"),
        ("/mnt/host/data", "9p"),
        ("/mnt/over/data", None),
    ],
)
def test_detects_network_mounts(folder: str, kind: str | None) -> None:
    assert remote_kind(Path(folder), lambda: MOUNTS) == kind


def test_returns_none_without_a_list_of_mounts() -> None:
    assert remote_kind(Path("/home"), lambda: "") is None
    assert remote_kind(Path("/proc")) is None
