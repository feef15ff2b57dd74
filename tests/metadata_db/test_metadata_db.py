"""The metadata database: derived, replaced atomically, readable by DuckDB's shell."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.errors import DiskFailed, QueryError
from catalogue.export.ducklake_sql import add_column_chunks
from catalogue.metadata_db.connection import connect, queries_folder
from catalogue.metadata_db.refresh import is_fresh, refresh
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from tests.support.commands import Command
from tests.support.processes import line, run_script

_VIEWS = "select {} from duckdb_views() where not internal and schema_name = 'main'"
VIEWS = {"column_values", "blocks", "crawls", "files", "row_groups", "pages", "column_chunks"}
QUESTIONS = sorted(queries_folder().glob("*.sql"))


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    with Store(data / "footers.sqlite") as opened:
        yield opened


def shell(path: Path, sql: str) -> list[dict[str, object]]:
    program = Path(sys.executable).with_name("duckdb")
    done = subprocess.run([program, "-readonly", "-json", path, "-c", sql], capture_output=True, check=True, timeout=60)
    rows: list[dict[str, object]] = json.loads(done.stdout or "[]")
    return rows


def test_old_shells_read_it_and_find_a_comment_of_every_view_and_column(harvested: catalogue.Catalogue) -> None:
    rows = shell(harvested.path, "select path, row_group, min_url_surtkey, num_rows from row_groups order by all")
    ours = harvested.row_groups().sort_values(["path", "row_group"])
    assert [row["path"] for row in rows] == list(ours["path"])
    assert [row["num_rows"] for row in rows] == list(ours["num_rows"])
    views = shell(harvested.path, _VIEWS.format("view_name, comment"))
    sql = "select table_name, column_name, comment from duckdb_columns() where schema_name = 'main' and not internal"
    columns = shell(harvested.path, sql)
    assert {row["view_name"] for row in views} == {row["table_name"] for row in columns} == VIEWS
    assert [row for row in (*views, *columns) if not row["comment"]] == []
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{harvested.path}' AS it (READ_ONLY)")
        (tags,) = connection.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'it'").fetchall()[0]
    assert tags["storage_version"].startswith(("v1.0", "v1.1"))


def test_views_of_a_copy_in_another_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a plain connection, from any folder, without the original."""
    copy = Path(shutil.copytree(data, tmp_path / "other" / "copy"))
    views = sorted(VIEWS - {"blocks"})
    with connect(data / "catalogue.duckdb") as connection:
        expected = [connection.sql(f"FROM {view} ORDER BY ALL").to_arrow_table() for view in views]
    shutil.rmtree(data)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with duckdb.connect(copy / "catalogue.duckdb", read_only=True) as connection:
        assert [connection.sql(f"FROM {view} ORDER BY ALL").to_arrow_table() for view in views] == expected
        assert connection.sql("FROM blocks").fetchall() == []


def test_row_groups_equal_the_files(mirror: Path, harvested: catalogue.Catalogue) -> None:
    rows = harvested.row_groups()
    assert list(rows.columns) == [
        "path", "crawl", "subset", "row_group", "num_rows", "total_byte_size", "file_offset", "total_compressed_size",
        "min_url_surtkey", "max_url_surtkey", "bounds_from", "first_fetch", "last_fetch",
    ]  # fmt: skip
    assert len(rows) == sum(pq.ParquetFile(path).metadata.num_row_groups for path in mirror.rglob("*.parquet"))
    for path, groups in rows.groupby("path"):
        file = pq.ParquetFile(mirror / str(path))
        for _, row in groups.iterrows():
            keys = file.read_row_group(row["row_group"], ["url_surtkey"])["url_surtkey"].to_pylist()
            assert len(keys) == row["num_rows"]
            assert file.metadata.row_group(row["row_group"]).total_byte_size == row["total_byte_size"]
            if row["bounds_from"] == "missing":
                assert row["min_url_surtkey"] is None or row["min_url_surtkey"] != row["min_url_surtkey"]
            else:
                assert row["min_url_surtkey"] <= min(keys)
                assert row["max_url_surtkey"] >= max(keys)


@pytest.fixture(scope="module")
def with_chunks(
    untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[catalogue.Catalogue]:
    folder = shutil.copytree(untaught_data, tmp_path_factory.mktemp("chunks") / "data")
    with catalogue.open(folder, settings=settings) as cat:
        add_column_chunks(cat.session, [str(crawl) for crawl in cat.files()["crawl"].unique()])
        yield cat


@pytest.mark.in_part(3)
@pytest.mark.parametrize("file", QUESTIONS, ids=lambda file: file.stem)
def test_every_named_query_runs_and_has_a_description(with_chunks: catalogue.Catalogue, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("-- ")
    rows = with_chunks.sql(text).df()
    assert len(rows) > 0
    assert not rows.columns.empty


def test_named_queries_are_correct(harvested: catalogue.Catalogue, mirror: Path) -> None:
    def answer(name: str) -> list[dict[Hashable, object]]:
        sql = (queries_folder() / f"{name}.sql").read_text(encoding="utf-8")
        return list(harvested.sql(sql).df().to_dict("records"))

    coverage = answer("coverage")
    assert sum(int(str(row["files_harvested"])) for row in coverage) == len(list(mirror.rglob("*.parquet")))
    overlap = {row["crawl"]: row for row in answer("row-group-overlap") if row["subset"] == "warc"}
    oldest, newest = min(overlap, key=str), max(overlap, key=str)
    assert overlap[oldest]["row_groups_holding_a_key"] > 1.6  # type: ignore[operator]  # two streams zipped
    assert overlap[newest]["row_groups_holding_a_key"] <= 1.5  # type: ignore[operator]  # sorted
    with harvested.connect() as connection:
        connection.execute("SET VARIABLE key = 'com,example)/'")
        found = connection.execute((queries_folder() / "find-key.sql").read_text(encoding="utf-8")).fetchall()
    planned = harvested.captures("example.com").plan
    expected = {(file.file.path, group.ordinal) for file in planned.files for group in file.row_groups}
    assert {(row[2], row[3]) for row in found} >= expected


def test_changes_when_files_change(data: Path, store: Store) -> None:
    path = data / "catalogue.duckdb"
    before = path.stat()
    refresh(path, store)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    removed = store.keys("files")[:2]
    saved = [(key, value) for key in removed if (value := store.get("files", key))]
    store.delete("files", removed)
    refresh(path, store)
    assert path.stat().st_mtime_ns > before.st_mtime_ns
    store.put("files", saved)
    refresh(path, store)
    with connect(path) as connection:
        assert connection.execute("select count(*) from files").fetchall() == [(len(store.keys("files")),)]
        doubled = "select path, row_group from row_groups group by all having count(*) > 1"
        assert connection.execute(doubled).fetchall() == []


class _Forgotten(Store):
    """A store of which another process forgets a file, while the database is built from it."""

    forgets = True

    def state(self) -> str:
        if self.forgets and self.path.with_name("catalogue.duckdb.new").joinpath("catalogue.duckdb").exists():
            self.forgets = False
            with Store(self.path) as other:
                other.delete("files", other.keys("files")[:1])
        return super().state()


def test_shows_the_rest_if_another_process_forgets_a_file(data: Path) -> None:
    path = data / "catalogue.duckdb"
    path.unlink()
    for table in (data / "tables").glob("*.parquet"):
        table.unlink()
    with _Forgotten(data / "footers.sqlite") as store:
        before = len(store.keys("files"))
        refresh(path, store)
        assert len(store.keys("files")) == before - 1
    with connect(path) as connection:
        assert connection.execute("select count(*) from files").fetchall() == [(before - 1,)]


def test_is_rebuilt_after_deletion(data: Path, settings: Settings) -> None:
    with catalogue.open(data, settings=settings) as cat:
        before = cat.row_groups()
        cat.path.unlink()
        assert cat.row_groups().equals(before)


def test_ignores_leftovers_of_a_crash(data: Path, store: Store) -> None:
    path = data / "catalogue.duckdb"
    (data / "catalogue.duckdb.new").mkdir()
    (data / "catalogue.duckdb.new/catalogue.duckdb").write_bytes(b"half a database")
    (data / "catalogue.duckdb.new/catalogue.duckdb.wal").write_bytes(b"and its log")
    path.with_name("catalogue.duckdb.wal").write_bytes(b"somebody's log")
    store.delete("files", store.keys("files")[:1])
    refresh(path, store)
    assert is_fresh(path, store)
    assert sorted(p.name for p in data.glob("catalogue.duckdb*")) == ["catalogue.duckdb", "catalogue.duckdb.lock"]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("content", [b"", b"no database", b"\0" * 20000])
def test_replaces_other_files_in_its_place(data: Path, store: Store, content: bytes) -> None:
    path = data / "catalogue.duckdb"
    path.write_bytes(content)
    refresh(path, store)
    assert is_fresh(path, store)


def test_unwritable_folder_is_an_error(data: Path, store: Store) -> None:
    store.delete("files", store.keys("files")[:1])
    nowhere = data / "footers.sqlite" / "catalogue.duckdb"
    with pytest.raises(DiskFailed, match="cannot be written"):
        refresh(nowhere, store)


@pytest.mark.parametrize("name", ['it\'s a "folder" [x]*', "a?b", "crawl=other", "$values", "a\nb"])
def test_accepts_unusual_folder_names(untaught_data: Path, tmp_path: Path, settings: Settings, name: str) -> None:
    """A folder next to it matches the name as a pattern, and views read it as little as a value in the name."""
    odd, matching = tmp_path / name, tmp_path / name.replace("?", "x").replace("[x]*", "x")
    for folder in {odd, matching}:
        shutil.copytree(untaught_data, folder)
    with catalogue.open(untaught_data, settings=settings) as cat:
        expected = cat.row_groups(), cat.files()
        crawl = cat.crawls()["crawl"][0]
    for folder in (odd, matching):
        (folder / "catalogue.duckdb").unlink()
        with catalogue.open(folder, settings=settings) as cat:
            assert cat.row_groups().equals(expected[0])
            assert cat.files().equals(expected[1])
            assert {*cat.column_chunks(crawl)["crawl"]} == {crawl}
            cat.harvest(crawl, values="fetch_status")
            found = cat.sql("FROM column_values ORDER BY ALL").fetchall()
            assert {row[0] for row in found} == {crawl}
            assert len(found) == len({*found})


ZONED = """
import os, sys
from pathlib import Path
os.environ["TZ"] = "America/New_York"
from catalogue.metadata_db.connection import connect
with connect(Path(sys.argv[1])) as connection:
    print(*connection.execute("SELECT to_timestamp(0)::VARCHAR, min(harvested_at)::VARCHAR FROM files").fetchone())
"""


def test_times_are_utc_in_every_time_zone(harvested: catalogue.Catalogue) -> None:
    """In a process of its own, since DuckDB asks once in which zone it is."""
    with harvested.connect() as connection:
        ((first,),) = connection.execute("SELECT min(harvested_at)::VARCHAR FROM files").fetchall()
    with run_script(harvested.path, ZONED) as process:
        assert line(process) == f"1970-01-01 00:00:00+00 {first}"


SHOWN = ["FROM files", "FROM row_groups", "FROM pages", "FROM crawls", "FROM derived.listed"]
SHOWN += ["SELECT path, crawl, subset, reason FROM derived.failures"]  # when is not said twice alike


def all_of_it(path: Path) -> list[pa.Table]:
    with connect(path) as connection:
        return [connection.sql(f"{sql} ORDER BY ALL").to_arrow_table() for sql in SHOWN]


@pytest.mark.in_soak
def test_updated_database_equals_a_rebuilt_one(settings: Settings, whole_crawls: list[str], tmp_path: Path) -> None:
    """Of two crawls, of one with page indexes."""
    data, rebuilt = tmp_path / "data", tmp_path / "rebuilt.duckdb"
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest(whole_crawls[0], subsets="all", pages=True)
        cat.harvest(whole_crawls[-1], subsets="all")
    with Store(data / "footers.sqlite") as store:
        for step in random_changes(store, random.Random(0)):
            step()
            refresh(data / "catalogue.duckdb", store)
            rebuilt.unlink(missing_ok=True)
            refresh(rebuilt, store)
            assert all_of_it(data / "catalogue.duckdb") == all_of_it(rebuilt)


def random_changes(store: Store, chance: random.Random) -> Iterator[Callable[[], None]]:
    """Yield steps, each of several changes of a store."""
    files = {key: value for key in store.keys("files") if (value := store.get("files", key))}
    lists = {key: value for key in store.keys("documents") if (value := store.get("documents", key))}
    indexes = {key: (file, store.indexes(key, range(20), file)) for key, file in files.items() if store.index_keys(key)}
    rotten = StoredFile(b"no footer", 99, None, None, "", "2026-11-21T12:00:00+00:00")
    failed = StoredFile(b"", 0, None, None, "", "2026-11-21T12:00:00+00:00", note="Missing: it was not there")

    def some(of: Iterable[str]) -> list[str]:
        there = sorted(of)
        return chance.sample(there, min(len(there), chance.randint(1, 4)))

    def add_indexes() -> None:
        for key in some(indexes):
            store.add_indexes(key, indexes[key][1], indexes[key][0])

    changes: list[Callable[[], None]] = [
        lambda: store.delete("files", some(store.keys("files"))),
        lambda: store.put("files", [(key, files[key]) for key in some(files)]),
        lambda: store.put("files", [(key, rotten) for key in some(files)[:1]]),
        lambda: store.put("failures", [(key, failed) for key in some(files)]),
        lambda: store.delete("failures", some(store.keys("failures"))),
        lambda: store.delete("documents", some(key for key in lists if "paths" in key)[:1]),
        lambda: store.put("documents", [(key, lists[key]) for key in some(lists)]),
        add_indexes,
    ]
    for _ in range(3):
        chosen = chance.choices(changes, k=chance.randint(2, 6))
        yield lambda chosen=chosen: [change() for change in chosen] and None  # type: ignore[misc]


@pytest.mark.in_soak
def test_follows_a_replaced_store(data: Path, store: Store, tmp_path: Path) -> None:
    """Another's, or a backup of the same that went on from there, with the same number of changes or more."""
    path = data / "catalogue.duckdb"
    backup = tmp_path / "backup"
    store.close()
    shutil.copytree(data, backup)
    with Store(data / "footers.sqlite") as opened:
        opened.delete("files", opened.keys("files")[:2])
        opened.delete("files", opened.keys("files")[:1])
        refresh(path, opened)
    for changes in range(1, 4):
        for file in data.glob("footers.sqlite*"):
            file.unlink()
        shutil.copy(backup / "footers.sqlite", data / "footers.sqlite")
        with Store(data / "footers.sqlite") as other:
            for _ in range(changes):
                other.delete("files", other.keys("files")[-1:])
            refresh(path, other)
            with connect(path) as connection:
                shown = connection.execute("SELECT path FROM files ORDER BY path").fetchall()
            assert [name for (name,) in shown] == other.keys("files")
    with Store(tmp_path / "else.sqlite", create=True) as stranger:
        refresh(path, stranger)
        with connect(path) as connection:
            assert connection.execute("SELECT count(*) FROM files").fetchall() == [(0,)]


@pytest.mark.parametrize("name", [b"a\0b", b"caf\xe9"])
def test_rejects_names_that_duckdb_rejects(name: bytes) -> None:
    with pytest.raises(QueryError, match="cannot be the name of a file that DuckDB opens"):
        connect(Path(os.fsdecode(name)))


def test_reports_damage_anywhere(asking: Command, untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    places, folder = 4, Path(shutil.copytree(untaught_data, tmp_path / "copy"))
    path = folder / "catalogue.duckdb"

    def reported() -> str:
        with catalogue.open(folder, settings=settings) as cat:
            try:
                return cat.row_groups().to_csv()
            except DiskFailed as error:
                return str(error)

    expected, content = reported(), path.read_bytes()
    length = min(20_000, len(content) // places)
    failing = []
    for place in range(places):
        start = len(content) // (places + 1) * (place + 1)
        path.write_bytes(content[:start] + random.Random(place).randbytes(length) + content[start + length :])
        damaged = path.read_bytes()
        if (found := reported()) != expected:
            assert found.endswith("; run: catalogue check --repair")
            assert "\n" not in found
            failing.append(damaged)
    # A small database is one block: if that is damaged, it cannot be opened and is built again.
    for damaged in failing[:1]:
        command = Command(folder, asking.source, tmp_path)
        words = ("sql", "select * from row_groups")
        path.write_bytes(damaged)
        assert command("check").status == 1
        ran = command(*words)
        assert ran.status == 74
        assert "run: catalogue check --repair" in ran.err
        assert command("check", "--repair").status == 0
        assert command(*words).status == 0
