"""Complete files: one process at a time writes a name, and what a killed process left is replaced."""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from catalogue.atomic_files import whole_file
from catalogue.errors import StoreLocked
from tests.support.processes import line, run_script

REFUSED = "another process writes to {}; wait for it, or choose another name"
WRITER = """
import random, sys
from contextlib import suppress
from pathlib import Path
from catalogue.atomic_files import whole_file
from catalogue.errors import StoreLocked

path, chance = Path(sys.argv[1]), random.Random({line})
print("started", flush=True)
for _ in range({rounds}):
    try:
        with suppress(KeyError), whole_file(path) as file:
            for _ in range(chance.choice([1, 10, 3000])):
                file.write({line} + b"\\n")
            if chance.random() < 0.2:
                raise KeyError
    except StoreLocked as error:
        assert str(error) == {refused!r}.format(path)
"""


def start(path: Path, line: bytes, rounds: int) -> AbstractContextManager["subprocess.Popen[str]"]:
    return run_script(path, WRITER.format(line=line, rounds=rounds, refused=REFUSED))


def check(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert (len(set(lines)), len(lines) in {1, 10, 3000}) == (1, True)


def test_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    for content in (b"first", b"second"):
        with whole_file(path) as file:
            file.write(content)
            with pytest.raises(StoreLocked, match=REFUSED.format(path)), whole_file(path):
                pass
            file.close()  # its lock lasts until it has its name
            with pytest.raises(StoreLocked), whole_file(path):
                pass
        assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]
        assert path.read_bytes() == content


def test_writers_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    with start(path, b"one", 100) as one, start(path, b"two", 100) as two:
        for writer in (one, two):
            while writer.poll() is None:
                if path.exists():
                    check(path)
            assert writer.returncode == 0
    check(path)
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]


def test_killed_writers_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    for number in range(5):
        with start(path, b"line%d" % number, 10_000) as writer:  # it is killed at the end
            assert line(writer) == "started"
            while not path.exists() and writer.poll() is None:
                pass
        check(path)
    with whole_file(path) as file:
        file.write(b"short\n")
    assert path.read_bytes() == b"short\n"
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]
