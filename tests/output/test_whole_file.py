"""Complete files: one process at a time writes a name, and what a killed process left is replaced."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalogue.atomic_files import whole_file
from catalogue.errors import QueryError, StoreLocked

SIZES = (1, 10, 3000)
_WRITER = """
import random, sys
from pathlib import Path
from catalogue.atomic_files import whole_file
from catalogue.errors import StoreLocked

path, line, refused = Path(sys.argv[1]), sys.argv[2].encode(), 0
chance = random.Random(line)
print("started", flush=True)
for _ in range(int(sys.argv[3])):
    try:
        with whole_file(path) as file:
            for _ in range(chance.choice([1, 10, 3000])):
                file.write(line + b"\\n")
            if chance.random() < 0.2:
                raise KeyError
    except KeyError:
        pass
    except StoreLocked as error:
        assert str(error) == f"another process writes to {path}; wait for it, or choose another name"
        refused += 1
print(refused)
"""


def start(path: Path, line: str, rounds: int) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", _WRITER, str(path), line, str(rounds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def is_complete(path: Path) -> bool:
    lines = path.read_text().splitlines()
    return len(set(lines)) == 1 and len(lines) in SIZES


def test_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    with whole_file(path) as file:
        file.write(b"first")
        with pytest.raises(StoreLocked, match=f"another process writes to {path}; wait for it"), whole_file(path):
            pass
        file.close()  # its lock lasts until it has its name
        with pytest.raises(StoreLocked), whole_file(path):
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]
    assert path.read_bytes() == b"first"
    with whole_file(path) as file:
        file.write(b"second")
    assert path.read_bytes() == b"second"


def test_writers_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    with start(path, "one", 100) as one, start(path, "two", 100) as two:
        assert one.stdout
        assert two.stdout
        for writer in (one, two):
            while writer.poll() is None:
                assert not path.exists() or is_complete(path)
            assert writer.returncode == 0
    assert is_complete(path)
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]


def test_killed_writers_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    for number in range(5):
        with start(path, f"line{number}", 10_000) as writer:
            assert writer.stdout
            assert writer.stdout.readline() == "started\n"
            while not path.exists() and writer.poll() is None:
                pass
            writer.kill()
        assert is_complete(path)
    with whole_file(path) as file:
        file.write(b"short\n")
    assert path.read_bytes() == b"short\n"
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_files_that_processes_of_other_users_left_are_replaced(tmp_path: Path) -> None:
    path, left = tmp_path / "found.csv", tmp_path / ".found.csv.part"
    left.write_bytes(b"from another user")
    os.chown(left, 65534, 65534)
    with left.open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        with pytest.raises(QueryError, match="belongs to another user"), whole_file(path):
            pass
    assert left.read_bytes() == b"from another user"
    with whole_file(path) as file:
        file.write(b"short")
    assert path.read_bytes() == b"short"
    assert path.stat().st_uid == os.geteuid()
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]
