"""A data folder, or the folder of an output, without write permission: a shared folder, or a read-only volume."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import copyfile, copytree, which

import pytest

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.errors import DiskFailed
from catalogue.server.service import Service
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.support.commands import Command
from tests.support.fetched import check
from tests.support.mirrors import files_in
from tests.support.read_only import WITHOUT_PRIVILEGES, read_only
from tests.support.stores import batch

CANNOT = "cannot be written to, only read; choose another data folder, or run this as its owner"
READERS = [
    *("query *.example.com --crawl {0} --count --yes", "plan *.example.com --crawl {0} --json"),
    *("sample *.com --crawl {0} -n 2 --seed 1", "fetch *.example.com --crawl {0} --limit 1 -o found.warc.gz"),
    *("status --json", "crawls --json", "sql coverage --json", "sql bytes-by-column --column-chunks {0} --json"),
    "check",
]


@pytest.fixture(scope="module")
def one_crawl(settings: Settings, crawl: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("one") / "data"
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest([crawl])
    return data


@pytest.fixture
def data(one_crawl: Path, tmp_path: Path) -> Path:
    return Path(copytree(one_crawl, tmp_path / "data"))


@pytest.fixture
def shut(data: Path) -> Iterator[Path]:
    with read_only(data):
        yield data


def test_reading_commands_write_nothing(data: Path, mirror: Path, tmp_path: Path, crawl: str) -> None:
    command = Command(data, str(mirror), tmp_path)
    before = files_in(data)
    with read_only(data):
        answers = {words: command(*words.format(crawl).split()) for words in READERS}
    assert {words: ran.err for words, ran in answers.items() if ran.status} == {}
    assert files_in(data) == before
    check(tmp_path / "found.warc.gz")
    ran = command(*READERS[0].format(crawl).split())
    assert (ran.status, ran.out) == (0, answers[READERS[0]].out)


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "words",
    [
        "harvest --crawl latest",
        "harvest --crawl CC-MAIN-2022-05 --refresh",
        "forget --crawl latest --yes",
        "check --repair",
        "pull {0}",
        "serve --harvest-on-demand --port 0",
    ],
)
def test_writing_commands_fail_before_any_request(shut: Path, tmp_path: Path, words: str) -> None:
    command = Command(shut, "http://127.0.0.1:9/", tmp_path)
    ran = command(*words.format(tmp_path).split(), "--quiet")
    assert (ran.status, ran.out, ran.err) == (74, "", f"catalogue: {shut} {CANNOT}\n")


def test_empty_read_only_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with read_only(tmp_path / "empty"):
        ran = Command(tmp_path / "empty", "http://127.0.0.1:9/", tmp_path)("harvest", "--crawl", "CC-MAIN-2022-05")
    assert (ran.status, ran.err) == (74, f"catalogue: {tmp_path / 'empty'} {CANNOT}\n")


@pytest.mark.in_part(2)
@pytest.mark.parametrize("left", ["old", "none"])
def test_missing_parts_of_the_database_go_into_a_copy(
    data: Path, settings: Settings, tmp_path: Path, crawl: str, left: str
) -> None:
    with catalogue.open(data, settings=settings) as cat:
        copyfile(cat.path, tmp_path / "old")
        cat.harvest([crawl], subsets="robotstxt")
        known = cat.captures("*.example.com", crawls=crawl).count()
        files = len(cat.files())
        cat.path.unlink()
    if left == "old":
        copyfile(tmp_path / "old", cat.path)
    before = files_in(data)
    notes: list[str] = []
    with read_only(data), catalogue.Catalogue(Session(data, settings, notify=notes.append)) as cat:
        assert len(cat.files()) == files
        assert cat.captures("*.example.com", crawls=crawl).count() == known
        assert len(cat.column_chunks(crawl))
        assert not cat.check().findings
        assert not cat.path.is_relative_to(data)
        with Catalogue(cat.session.share()) as other:
            assert other.path == cat.path
    assert notes == [f"{data} is read-only; catalogue.duckdb is updated in a temporary copy"]
    assert files_in(data) == before


@pytest.mark.parametrize("damage", ["deleted", "changed"])
def test_damaged_tables_are_made_again_in_a_copy(
    data: Path, mirror: Path, tmp_path: Path, crawl: str, damage: str
) -> None:
    command = Command(data, str(mirror), tmp_path)
    expected = {words: command(*words.format(crawl).split()).out for words in READERS[:6]}
    path = data / "tables" / f"{crawl}.parquet"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.unlink() if damage == "deleted" else path.write_bytes(content)
    before = files_in(data)
    with read_only(data):
        assert {words: command(*words.format(crawl).split()).out for words in expected} == expected
    assert files_in(data) == before


@pytest.mark.skipif(not which("setpriv") and bool(WITHOUT_PRIVILEGES), reason="root obeys no permissions here")
def test_old_tables_without_write_permission_are_updated_in_a_copy(
    data: Path, mirror: Path, tmp_path: Path, crawl: str
) -> None:
    command = Command(data, str(mirror), tmp_path)
    words = READERS[0].format(crawl).split()
    expected = command(*words).out
    (data / "tables" / "state.json").unlink()
    for path in [*data.rglob("*"), data]:
        path.chmod(path.stat().st_mode & ~0o222)
    ran = subprocess.run(
        [*WITHOUT_PRIVILEGES, sys.executable, "-m", "catalogue", *words],
        env=command.environment(),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr


def test_serves_from_a_read_only_folder(shut: Path, settings: Settings, crawl: str) -> None:
    with closing(Service(shut, settings, at_once=2)) as service:
        assert (
            service.submit(lambda session: Catalogue(session).captures("*.example.com", crawls=crawl).count()).result()
            > 0
        )


def test_reads_a_leftover_log(tmp_path: Path) -> None:
    path, folder = tmp_path / "footers.sqlite", tmp_path / "left"
    folder.mkdir()
    with Store(path, create=True) as store:
        store.put("files", batch(0, 3))
        for end in ("", "-wal"):  # as a killed process leaves them, but without shared memory
            copyfile(f"{path}{end}", folder / f"footers.sqlite{end}")
    before = files_in(folder)
    assert before["footers.sqlite-wal"]
    with read_only(folder), Store(folder / "footers.sqlite") as store:
        assert dict(batch(0, 3)) == {key: store.get("files", key) for key in store.keys("files")}
        assert files_in(folder) == before


def test_reads_a_store_while_others_write(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = folder / "footers.sqlite"
    with Store(path, create=True) as store:
        store.put("files", batch(0, 3))
    with read_only(folder):
        reader = Store(path)
        assert reader.count("files") == 3
    with reader:
        with Store(path) as store:
            store.put("files", batch(3, 2))
            assert reader.count("files") == 5
        assert reader.count("files") == 5


def test_reads_a_read_only_file_in_a_writable_folder(tmp_path: Path) -> None:
    path = tmp_path / "footers.sqlite"
    with Store(path, create=True) as store:
        store.put("files", batch(0, 3))
    before = {file.name for file in tmp_path.iterdir()}
    with read_only(path), Store(path) as store:
        assert store.count("files") == 3
        with pytest.raises(DiskFailed, match="cannot be written to, only read"):
            store.put("files", batch(3, 1))
        assert {file.name for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("query *.example.com -o shut/a.jsonl", "shut/a.jsonl"),
        ("query *.example.com -o a.jsonl --receipt shut/r", "shut/r"),
        ("plan *.example.com -o shut/plan.csv", "shut/plan.csv"),
        ("fetch *.example.com --limit 1 -o shut/a.warc.gz", "shut/a.warc.gz"),
        ("export ducklake shut/lake.ducklake", "shut/lake.ducklake"),
        ("export iceberg shut/table", "shut/table"),
    ],
)
def test_outputs_in_shut_folders_are_named(
    one_crawl: Path, mirror: Path, tmp_path: Path, words: str, output: str
) -> None:
    (tmp_path / "shut").mkdir()
    with read_only(tmp_path / "shut"):
        ran = Command(one_crawl, str(mirror), tmp_path)(*words.split())
    message = f"{output} cannot be written: no permission for the folder {tmp_path / 'shut'}; choose another name\n"
    assert (ran.status, ran.err[-len(message) :]) == (74, message)
    assert ".part" not in ran.err
