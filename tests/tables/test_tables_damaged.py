"""Tables that are missing, damaged, old or half written are made again, and no answer is wrong."""

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

import catalogue
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import StoreLocked
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.tables.stored_crawls import StoredCrawls
from catalogue.tables.table_file import TableDamaged, TableFile
from tests.support.commands import Command
from tests.support.footers import small_file
from tests.support.mirrors import raw_footer
from tests.support.processes import line
from tests.support.stores import path_of, run_script, stored_file


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "footers.sqlite", create=True) as store:
        for number in range(3):
            data = small_file(row_group_size=1 + number)
            store.put("files", [(path_of(number), stored_file(raw_footer(data), size=len(data)))])
        yield store


@pytest.fixture
def folder(store: Store) -> Path:
    folder = store.path.parent / "tables"
    StoredCrawls(folder, store, COMMON_CRAWL)
    return folder


def contents(folder: Path, store: Store) -> list[tuple[object, ...]]:
    stored = StoredCrawls(folder, store, COMMON_CRAWL)
    return [
        (file.path, file.least, group.ordinal, *group.chunks.items())
        for crawl in stored.crawls
        for file in stored.files(crawl)
        for group in file.footer.row_groups
    ]


def test_each_flipped_byte_is_found(folder: Path) -> None:
    """Or it makes no difference: only the first bytes of the file have no checksum."""
    (path,) = folder.glob("*.parquet")
    content, expected = path.read_bytes(), TableFile(path).read_all()
    for place in [*range(8), *range(8, len(content), 11), *range(len(content) - 200, len(content))]:
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        try:
            found = TableFile(path).read_all()
        except TableDamaged:
            continue
        assert place < len(b"PAR1")
        assert found == expected


@pytest.mark.parametrize("length", [0, 3, 8, 100, 5000, -1])
def test_shortened_tables_are_made_again(folder: Path, store: Store, length: int) -> None:
    (path,) = folder.glob("*.parquet")
    expected, content = contents(folder, store), path.read_bytes()
    path.write_bytes(content[:length])
    assert contents(folder, store) == expected
    assert path.read_bytes() == content


def _damage(path: Path, seed: int) -> int:
    content, rng = path.read_bytes(), Random(seed)
    start = rng.randrange(len(content) - 100)
    return path.write_bytes(content[:start] + rng.randbytes(100) + content[start + 100 :])


CHANGES: dict[str, Callable[[Path], object]] = {
    "no folder": shutil.rmtree,
    "no table": lambda folder: next(folder.glob("*.parquet")).unlink(),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "empty state": lambda folder: (folder / "state.json").write_bytes(b""),
    "damaged state": lambda folder: _damage(folder / "state.json", 1),
    "other layout": lambda folder: _with_layout(folder / "state.json", 0),
    "damaged table": lambda folder: [_damage(path, 2) for path in folder.glob("*.parquet")],
    "damaged in another place": lambda folder: [_damage(path, 5) for path in folder.glob("*.parquet")],
}


def _with_layout(path: Path, layout: int) -> None:
    packed, changes = re.subn(rb'"layout":\d+', b'"layout":%d' % layout, path.read_bytes().partition(b"\n")[2])
    assert changes == 1
    path.write_bytes(b"%d\n%b" % (crc32(packed), packed))


@pytest.mark.parametrize("change", [*CHANGES])
def test_tables_are_made_again(folder: Path, store: Store, change: str) -> None:
    expected = contents(folder, store)
    CHANGES[change](folder)
    assert contents(folder, store) == expected


# Each line of the input is a number; a forked process is killed before so many operations on files of the folder.
KILLED = """
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.tables.stored_crawls import StoredCrawls
import catalogue.tables.update_tables, catalogue.tables.crawl_table, pyarrow.parquet

count = 0

def hook(event, arguments):
    global count
    if event in {"open", "os.rename", "os.remove", "os.mkdir"} and "tables" in str(arguments[0]):
        count += 1
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)

for text in sys.stdin:
    limit = int(text)
    if not (child := os.fork()):
        with Store(path) as store:
            sys.addaudithook(hook)
            StoredCrawls(path.parent / "tables", store, COMMON_CRAWL)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_kill_at_any_step_loses_nothing(folder: Path, store: Store, tmp_path: Path) -> None:
    data = small_file(row_group_size=3)
    store.put("files", [(path_of(7), stored_file(raw_footer(data), size=len(data)))])
    expected = contents(tmp_path / "other" / "tables", store)
    assert len({path for path, *_ in expected}) == 4
    with run_script(tmp_path / "copy" / "footers.sqlite", KILLED) as process:
        assert process.stdin
        for limit in range(1, 100):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(folder, tmp_path / "copy" / "tables")
            with Store(tmp_path / "copy" / "footers.sqlite", create=True):
                pass
            for name in ("footers.sqlite", "footers.sqlite-wal"):
                shutil.copyfile(store.path.with_name(name), tmp_path / "copy" / name)
            process.stdin.write(f"{limit}\n")
            process.stdin.flush()
            status = int(line(process))
            with Store(tmp_path / "copy" / "footers.sqlite") as copied:
                assert contents(tmp_path / "copy" / "tables", copied) == expected
            if not status:
                break
            assert status == -signal.SIGKILL
        assert limit > 5


def test_tables_that_another_process_has_changed(folder: Path, store: Store) -> None:
    (path,) = folder.glob("*.parquet")
    opened = StoredCrawls(folder, store, COMMON_CRAWL)
    store.put("files", [(path_of(8), stored_file(raw_footer(small_file()), size=5000))])
    expected = contents(folder, store)
    content = path.read_bytes()
    with pytest.raises(StoreLocked, match=r"has changed what is stored of .*; run the same command again"):
        opened.table(path.stem)
    assert path.read_bytes() == content
    assert contents(folder, store) == expected


def test_a_backup_of_the_store_is_another_state(folder: Path, store: Store, tmp_path: Path) -> None:
    """Row numbers and numbers of files are those of the newer store."""
    copy = tmp_path / "copy" / "footers.sqlite"
    copy.parent.mkdir()
    store.close()
    shutil.copyfile(store.path, copy)
    footers = [raw_footer(small_file(compression=compression)) for compression in ("zstd", "none")]
    for path, footer in zip((store.path, copy), footers, strict=True):
        with Store(path) as written:
            written.put("files", [(path_of(7), stored_file(footer, size=5000))])
            found = contents(folder, written)
            assert found == contents(tmp_path / "new" / path.parent.name, written)
    assert len({path for path, *_ in found}) == 4


def test_queries_and_checks_of_damaged_tables(
    untaught_data: Path, settings: Settings, asking: Command, tmp_path: Path, crawl: str
) -> None:
    folder = Path(shutil.copytree(untaught_data, tmp_path / "copy"))
    path = folder / "tables" / f"{crawl}.parquet"

    def planned() -> str:
        with catalogue.open(folder, settings=settings) as cat:
            return repr(cat.captures("*.com").plan.paths)

    expected, command = planned(), Command(folder, asking.source, tmp_path)
    # A killed command leaves a table that is newer than the state, or none:
    state = (folder / "tables" / "state.json").read_bytes()
    path.unlink()
    assert command("check").status == 0
    assert planned() == expected
    (folder / "tables" / "state.json").write_bytes(state)
    assert command("check").status == 0
    assert planned() == expected
    rows = TableFile(path).read_all()
    for seed in range(2):
        _damage(path, seed)
        assert planned() == expected
    _damage(path, 9)
    ran = command("check")
    assert (ran.status, f"tables/{crawl}.parquet is damaged" in ran.out + ran.err) == (1, True)
    assert [command("check", *words).status for words in (("--repair",), ())] == [0, 0]
    assert TableFile(path).read_all() == rows


def test_view_has_values_whose_file_was_deleted(mirror: Path, tmp_path: Path) -> None:
    command, count = Command(tmp_path / "data", str(mirror), tmp_path), "select count(*) as n from column_values"
    assert command("harvest", "--crawl", "latest", "--values", "content_languages", "--yes").status == 0
    before = command("sql", "--json", count)
    assert before.json()["n"] > 0, before
    for path in (*command.data.glob("tables/*.values.parquet"), command.data / "catalogue.duckdb"):
        path.unlink()
    assert command("sql", "--json", count).out == before.out
