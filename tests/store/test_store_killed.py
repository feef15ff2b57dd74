"""Committed values survive kills and full disks completely."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue.errors import DiskFailed, NotFound
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from tests.support.processes import line
from tests.support.stores import batch, empty_store, integrity, path_of, raw, run_script, store_path, stored_file

path = pytest.fixture(store_path)
store = pytest.fixture(empty_store)


WRITE = """
with Store(path) as store:
    for number in range(10_000):
        store.put("files", batch(20 * number, 20))
        print(number, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [0, 11])
def test_kill_loses_no_committed_value(path: Path, acknowledged: int) -> None:
    Store(path, create=True).close()
    with run_script(path, WRITE) as process:
        for number in range(acknowledged):
            assert line(process) == str(number)
        process.send_signal(signal.SIGKILL)
    with Store(path) as store:
        keys = store.keys("files")
        assert len(keys) >= 20 * acknowledged
        assert len(keys) % 20 == 0  # only complete transactions
        assert keys == [path_of(number) for number in range(len(keys))]
        assert all(store.get("files", key) == value for key, value in batch(0, len(keys)))
        store.put("files", batch(len(keys), 1))
    assert integrity(path) == "ok"


FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with Store(path) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    number = 0
    try:
        while True:
            store.put("files", batch(20 * number, 20))
            number += 1
    except CatalogueError as error:
        print(number, type(error).__name__, "committed data is not lost" in str(error), flush=True)
    print(len(store.keys("files")), all(store.get("files", k) == v for k, v in batch(0, 20 * number)), flush=True)
    try:
        store.put("files", batch(20 * number, 20))
    except CatalogueError as error:
        print(type(error).__name__, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.put("files", batch(20 * number, 20))
    print(len(store.keys("files")), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
try:
    Store(path)
except CatalogueError as error:
    print(type(error).__name__, "GB free there" in str(error), flush=True)
"""


def test_full_disk_loses_nothing(path: Path) -> None:
    """Files have a size limit in this test, since only root can fill a disk."""
    Store(path, create=True).close()
    with run_script(path, FULL) as process:
        number, error, promised = line(process).split()
        assert (int(number) > 3, error, promised) == (True, "DiskFailed", "True")
        stored, more = 20 * int(number), 20 * int(number) + 20
        assert [line(process) for _ in range(4)] == [f"{stored} True", "DiskFailed", f"{more}", "DiskFailed True"]
    assert integrity(path) == "ok"
    with Store(path) as store:
        assert len(store.keys("files")) == more


@pytest.mark.parametrize("error", [DiskFailed("another disk is full"), NotFound("no such file")])
def test_reports_an_error_once(store: Store, error: OSError) -> None:
    """An error of the iterator, as of another disk or of the source, is raised unchanged."""

    def failing() -> Iterator[tuple[str, StoredFile]]:
        yield path_of(0), stored_file()
        raise error

    with pytest.raises(type(error), match=f"^{error}$"):
        store.add_facts(failing())
    assert store.keys("facts") == []


def test_missing_disk_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "footers.sqlite", tmp_path / "folder"):
        with pytest.raises(DiskFailed, match=rf"{path.name} cannot be written or read"):
            Store(path, create=True)


READ_ONLY = """
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
def attempt(use):
    try:
        print(use(), flush=True)
    except CatalogueError as error:
        hint = f"{path.parent} cannot be written to, only read; choose another data folder" in str(error)
        print(type(error).__name__, hint, "Traceback" in str(error), flush=True)
attempt(lambda: len(Store(path).keys("files")))
store = Store(path.with_name("published.sqlite"))
attempt(lambda: len(store.keys("files")))
attempt(lambda: store.get("files", path_of(1)) == stored_file(batch(1, 1)[0][1].data))
attempt(lambda: store.put("files", batch(5, 1)))
attempt(lambda: store.harvesting("CC-MAIN-2022-05").__enter__())
attempt(lambda: len(store.keys("files")))
attempt(lambda: Store(path.with_name("new.sqlite"), create=True))
"""


def test_reads_from_read_only_media() -> None:
    """Reading creates no files; writing raises an error that names the folder."""
    with tempfile.TemporaryDirectory() as name:  # readable for all users, unlike pytest's folder
        folder = Path(name) / "data"
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in Path(name).parents):
            pytest.skip("other users cannot read the folder of temporary files")
        path, published = folder / "footers.sqlite", folder / "published.sqlite"
        for file in (path, published):
            with Store(file, create=True) as store:
                store.put("files", batch(0, 4))
        with raw(published) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        Path(name).chmod(0o755)
        try:
            with run_script(path, READ_ONLY) as process:
                failed = "DiskFailed True False"
                assert [line(process) for _ in range(7)] == ["4", "4", "True", failed, failed, "4", failed]
        finally:
            folder.chmod(0o755)
