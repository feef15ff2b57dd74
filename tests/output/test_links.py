"""Temporary files: links under their names are neither written to nor replaced, and one process has a name."""

import fcntl
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import catalogue
from catalogue.atomic_files import whole_file
from catalogue.errors import QueryError, StoreLocked
from catalogue.records.record import Record
from tests.support.crawls import crawl_of, table
from tests.support.forms import FORMS, fill, sixty_records, urls_in, urls_of
from tests.support.processes import line, run_script
from tests.support.served_records import harvest

Link = Callable[[Path, Path], None]
records = pytest.fixture(scope="module")(sixty_records)
SECRET = b"a file of the user"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.fixture(params=[os.symlink, os.link])
def link(request: pytest.FixtureRequest) -> Link:
    found: Link = request.param
    return found


@pytest.mark.parametrize("name", [".out.warc.gz.part", "out.warc.gz.ledger"])
def test_output_rejects_links(records: list[Record], tmp_path: Path, secret: Path, link: Link, name: str) -> None:
    output = tmp_path / FORMS["warc"]
    planted = output.with_name(name.replace("out.warc.gz", output.name))
    link(secret, planted)
    with pytest.raises(QueryError, match=f"{planted} is a symbolic link"):
        fill(output, "warc", records[:5], tmp_path / "cache")
    assert secret.read_bytes() == SECRET
    planted.unlink()
    names = fill(output, "warc", records[:5], tmp_path / "cache")
    assert urls_in(tmp_path, "warc", names) == urls_of(records[:5])


def test_finished_output_that_became_a_link_is_refused(records: list[Record], tmp_path: Path, link: Link) -> None:
    output, elsewhere = tmp_path / FORMS["warc"], tmp_path / "elsewhere"
    fill(output, "warc", records[:5], tmp_path / "cache")
    before = output.read_bytes()
    output.rename(elsewhere)
    link(elsewhere, output)
    with pytest.raises(QueryError, match=f"{output} is a symbolic link"):
        fill(output, "warc", records[:9], tmp_path / "cache")
    assert elsewhere.read_bytes() == output.read_bytes() == before


def test_tables_of_records_replace_links(records: list[Record], tmp_path: Path, secret: Path, link: Link) -> None:
    output = tmp_path / FORMS["parquet"]
    for count in (5, 9):  # the second time finished files grow again
        link(secret, output.with_name(f".{output.name}.part.whole"))
        names = fill(output, "parquet", records[:count], tmp_path / "cache")
        assert urls_in(tmp_path, "parquet", names) == urls_of(records[:count])
    assert secret.read_bytes() == SECRET


def test_payloads_do_not_follow_links(records: list[Record], tmp_path: Path) -> None:
    output, elsewhere = tmp_path / FORMS["payload"], tmp_path / "elsewhere"
    fill(output, "payload", records[:5], tmp_path / "cache")
    elsewhere.mkdir()
    (output / ".payloads").symlink_to(elsewhere)
    before = elsewhere.stat().st_mtime_ns
    names = fill(output, "payload", records[:9], tmp_path / "cache")
    assert urls_in(tmp_path, "payload", names) == urls_of(records[:9])
    assert elsewhere.stat().st_mtime_ns == before


def test_complete_files_reject_links(tmp_path: Path, secret: Path, link: Link) -> None:
    output, planted = tmp_path / "found.csv", tmp_path / ".found.csv.part"
    link(secret, planted)
    with pytest.raises(QueryError, match=f"{planted} is a symbolic link"), whole_file(output):
        pass
    assert (secret.read_bytes(), output.exists()) == (SECRET, False)


def test_data_folder_follows_no_links(tmp_path: Path, secret: Path, link: Link) -> None:
    data, settings = harvest(crawl_of(tmp_path / "mirror", table(["com,example)/"])), tmp_path)
    place, ours = tmp_path / "snapshot", tmp_path / "ours"
    (data / "catalogue.duckdb").unlink()
    ours.mkdir()
    for path in (data / "captures.ducklake.new", data / "catalogue.duckdb.new", ours / "catalogue.duckdb.new"):
        link(secret, path)
    with catalogue.open(data, settings=settings) as cat:
        cat.export_snapshot(place)
        cat.export_ducklake()
    with catalogue.open(ours, settings=settings) as cat:
        assert cat.pull(str(place)).files
    assert secret.read_bytes() == SECRET
    assert {path.name for path in data.iterdir() if path.is_file()} >= {"catalogue.duckdb", "captures.ducklake"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_output_rejects_files_of_other_users(records: list[Record], tmp_path: Path) -> None:
    output = tmp_path / FORMS["warc"]
    planted = output.with_name(f".{output.name}.part")
    planted.touch()
    os.chown(planted, 65534, 65534)
    with pytest.raises(QueryError, match="belongs to another user"):
        fill(output, "warc", records[:5], tmp_path / "cache")
    assert planted.read_bytes() == b""


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
    assert (path.read_bytes(), path.stat().st_uid) == (b"short", os.geteuid())
    assert [each.name for each in tmp_path.iterdir()] == ["found.csv"]
