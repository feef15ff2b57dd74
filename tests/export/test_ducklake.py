"""DuckLakes equal those of the extension, change by snapshots, and replace no other file."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from filelock import FileLock

import catalogue
from catalogue.errors import DiskFailed, QueryError, StoreLocked
from catalogue.export.ducklake import crawls_in, export_lake
from catalogue.export.ducklake_sql import attach_statements
from catalogue.export.ducklake_tables import changing
from catalogue.metadata_db.lake_files import LakeFile
from tests.support.amounts import in_part
from tests.support.lakes import needs_extensions, opened, spare, write_file
from tests.support.mirrors import index_paths

KINDS = ["sqlite", "duckdb"]
ONE, TWO = "CC-MAIN-2022-27", "CC-MAIN-2022-33"

ALIKE = """
SELECT "key", scope, scope_id FROM ducklake_metadata ORDER BY 1;
SELECT "value" FROM ducklake_metadata WHERE "key" IN ('version', 'encrypted') ORDER BY 1;
SELECT schema_id, begin_snapshot, end_snapshot, schema_name, path_is_relative FROM ducklake_schema;
SELECT schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot WHERE snapshot_id = 0;
SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id = 0;
SELECT table_id, begin_snapshot, end_snapshot, schema_id, table_name, path_is_relative FROM ducklake_table;
SELECT column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, column_type, initial_default,
  default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect
FROM ducklake_column ORDER BY 1;
SELECT begin_snapshot, schema_version, table_id FROM ducklake_schema_versions WHERE begin_snapshot = 1;
SELECT partition_key_index, column_id, transform FROM ducklake_partition_column ORDER BY 1;
SELECT sort_key_index, expression, dialect, sort_direction, null_order FROM ducklake_sort_expression;
SELECT view_name, dialect, column_aliases, end_snapshot FROM ducklake_view;
SELECT "key", end_snapshot FROM ducklake_tag WHERE object_id IN (SELECT view_id FROM ducklake_view);
SELECT macro_name, schema_id, end_snapshot FROM ducklake_macro WHERE macro_name = 'surt_match';
SELECT impl_id, dialect, type, column_id, parameter_name, parameter_type, default_value, default_value_type
FROM ducklake_macro JOIN ducklake_macro_impl USING (macro_id) JOIN ducklake_macro_parameters USING (macro_id, impl_id)
WHERE macro_name = 'surt_match' ORDER BY column_id;
SELECT file_order, file_format, record_count, file_size_bytes, footer_size, encryption_key, partial_max
FROM ducklake_data_file WHERE path LIKE ?;
SELECT DISTINCT type FROM ducklake_column_mapping;
SELECT source_name, target_field_id, parent_column, is_partition
FROM ducklake_name_mapping JOIN ducklake_data_file USING (mapping_id) WHERE path LIKE ? ORDER BY 2;
SELECT partition_key_index, partition_value
FROM ducklake_file_partition_value JOIN ducklake_data_file USING (data_file_id) WHERE path LIKE ? ORDER BY 1;
SELECT column_id, value_count, null_count, min_value, max_value
FROM ducklake_file_column_stats JOIN ducklake_data_file USING (data_file_id) JOIN ducklake_column USING (column_id)
WHERE path LIKE ? AND column_name IN ('crawl', 'subset') ORDER BY 1
"""
"""Queries with equal results in our lake and in one of the extension; the parameter is a file."""


def in_lakes(
    paths: Sequence[Path], questions: Sequence[tuple[str, Sequence[str]]]
) -> list[list[list[tuple[Any, ...]]]]:
    """Return the rows of queries (SQL and parameters) over the tables of lakes."""
    if paths[0].read_bytes().startswith(b"SQLite"):
        found = []
        for path in paths:
            with closing(sqlite3.connect(path)) as connection:
                found.append([connection.execute(*question).fetchall() for question in questions])
        return found
    with spare() as db:
        found = []
        for path in paths:
            db.execute(f"ATTACH '{path}' AS l (READ_ONLY)")
            db.execute("USE l")
            found.append([db.execute(*question).fetchall() for question in questions])
            db.execute("USE memory")
            db.execute("DETACH l")
        return found


class Places:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = folder / "captures.ducklake"

    def file(self, crawl: str, number: int, keys: Sequence[str], **columns: list[Any]) -> LakeFile:
        return write_file(self.folder, crawl, number, keys, **columns)

    def export(self, *files: LakeFile, missing: Sequence[str] = (), backend: str | None = None) -> int:
        return export_lake(self.lake, files, missing, data_path=f"{self.folder}/", backend=backend)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.answers(sql)[0]

    def answers(self, *questions: str) -> list[list[tuple[Any, ...]]]:
        with opened(self.lake, self.folder) as connection:
            return [connection.execute(sql).fetchall() for sql in questions]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def comparable(definitions: list[tuple[Any, ...]]) -> set[str]:
    return {sql.rstrip(";") for (sql,) in definitions if sql and "inlined_data_1" not in sql}


@in_part(2)
@needs_extensions
def test_tables_equal_those_of_the_extension(
    kind: str, harvested: catalogue.Catalogue, mirror: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    harvested.export_ducklake(ours, backend=kind)
    newest = next(path for path in reversed(index_paths(mirror)) if path.parent.name == "subset=warc")
    with opened(ours, mirror) as connection:
        place = f"ducklake:{'sqlite:' if kind == 'sqlite' else ''}{theirs}"
        for sql in [
            f"ATTACH '{place}' AS l (DATA_PATH '{mirror}/')",
            "CREATE TABLE l.captures_raw AS FROM cc.captures_raw LIMIT 0",
            "ALTER TABLE l.captures_raw SET PARTITIONED BY (crawl, subset)",
            "ALTER TABLE l.captures_raw SET SORTED BY (url_surtkey)",
            "CREATE VIEW l.captures AS FROM l.captures_raw",
            "COMMENT ON VIEW l.captures IS 'it'",
            "CREATE MACRO l.surt_match(surtkey, pattern) AS surtkey = pattern",
        ]:
            connection.execute(sql)
        more = "allow_missing => true, hive_partitioning => true"
        connection.execute(f"CALL ducklake_add_data_files('l', 'captures_raw', '{newest}', {more})")
        connection.execute("DETACH l")
    if kind == "sqlite":
        tables = "SELECT sql FROM sqlite_master WHERE type = 'table'"
    else:
        tables = "SELECT sql FROM duckdb_tables() WHERE database_name = 'l'"
    name = f"%{newest.relative_to(mirror)}"
    questions: list[tuple[str, list[str]]] = [(tables, [])]
    questions += [(sql, [name] * sql.count("?")) for sql in ALIKE.strip().split(";\n")]
    (made, *of_ours), (expected, *of_theirs) = in_lakes([ours, theirs], questions)
    assert comparable(made) == comparable(expected)
    assert len(comparable(made)) == 28
    for (sql, _), one, other in zip(questions[1:], of_ours, of_theirs, strict=True):
        assert one == other, sql


@in_part(2)
@needs_extensions
def test_each_changed_crawl_is_a_snapshot(kind: str, places: Places) -> None:
    one, two = places.file(ONE, 0, ["a", "b"]), places.file(TWO, 0, ["c"])
    assert places.export(one, backend=kind) == 1
    written = places.lake.stat()
    assert places.export(one) == 0
    assert (places.lake.stat().st_ino, places.lake.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert places.export(one, two) == 1
    history = "SELECT commit_message FROM cc.snapshots() WHERE commit_message IS NOT NULL ORDER BY snapshot_id"
    keys = "SELECT url_surtkey FROM cc.captures ORDER BY 1"
    assert places.answers(history, keys) == [[(ONE,), (TWO,)], [("a",), ("b",), ("c",)]]
    added = places.file(TWO, 1, ["d"])
    replaced = places.file(ONE, 0, ["a", "b", "bb"])
    assert places.export(replaced, two, added) == 2
    assert places.rows(keys) == [("a",), ("b",), ("bb",), ("c",), ("d",)]
    assert places.export(added) == 2
    before = "SELECT count(*) FROM cc.captures_raw AT (VERSION => 5)"
    count = "SELECT file_count FROM ducklake_table_info('cc')"
    assert places.answers(keys, before, count) == [[("d",)], [(5,)], [(1,)]]
    sizes = (added.num_rows, added.file_size, added.footer_size)
    assert crawls_in(places.lake) == {TWO: (1, *sizes)}


@in_part(2)
@needs_extensions
def test_keys_compare_by_bytes(kind: str, places: Places) -> None:
    keys = ["", "'", '"', "%_", "a\\", "Z", "a", "ab", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000"]
    keys += ["\U0010ffff"]
    assert keys[5:] == sorted(keys[5:], key=str.encode)
    files = [places.file(ONE, number, [key]) for number, key in enumerate(keys)]
    places.export(*files, backend=kind)
    with opened(places.lake, places.folder) as connection:
        in_order = sorted(keys, key=str.encode)
        for at, key in enumerate(in_order):  # all neighbours in order: all in order
            sql = "SELECT url_surtkey FROM cc.captures WHERE url_surtkey = ?"
            assert connection.execute(sql, [key]).fetchall() == [(key,)]
            if at + 2 < len(keys):
                sql = "SELECT url_surtkey FROM cc.captures WHERE url_surtkey >= ? AND url_surtkey < ? ORDER BY ALL"
                found = connection.execute(sql, [key, in_order[at + 2]]).fetchall()
                assert found == [(key,), (in_order[at + 1],)]


@needs_extensions
def test_columns_with_clashing_names(places: Places) -> None:
    """Columns can be added, and can change their type."""
    ours: dict[str, list[Any]] = {"URL": [1], "subset": [2], "fetch_time_naive": [3], "": [4], "Score": [5]}
    one = places.file(ONE, 0, ["a"], url=["http://a/"], mark=[7], **ours)
    two = places.file(TWO, 0, ["b"], score=[6], mark=["high"], extra=[5])
    places.export(one)
    requested = (
        "SELECT url_surtkey, url, subset, fetch_time, score, mark FROM cc.captures WHERE subset = 'warc' ORDER BY 1"
    )
    assert places.rows(requested) == [("a", "http://a/", "warc", None, 5, 7)]
    places.export(one, two)
    later = "SELECT extra FROM cc.captures ORDER BY url_surtkey"
    newest = "SELECT max(schema_version) FROM cc.snapshots()"
    both, extra, version = places.answers(requested, later, newest)
    assert both == [("a", "http://a/", "warc", None, 5, "7"), ("b", None, "warc", None, None, "high")]
    assert extra == [(None,), (5,)]
    places.export(one, two)
    assert places.rows(newest) == version
    places.export(two)
    assert places.rows(requested) == [("b", None, "warc", None, None, "high")]


@in_part(2)
@needs_extensions
def test_bounds_macros_and_comments_make_no_snapshot(kind: str, places: Places) -> None:
    """New or removed bounds, updated macros, and unchanged comments."""
    whole = places.file(ONE, 0, ["com,example)/", "com,example)/b"])
    unbounded = LakeFile(
        **{**{name: getattr(whole, name) for name in whole.__slots__}, "min_key": None, "max_key": None}
    )
    missing = ["3 of 4 files are not harvested"]
    comment = (
        "SELECT comment FROM duckdb_views() WHERE database_name = 'cc' AND view_name = 'captures' "
        "UNION ALL SELECT comment FROM duckdb_tables() WHERE database_name = 'cc'"
    )
    read = "EXPLAIN ANALYZE SELECT url_surtkey FROM cc.captures WHERE url_surtkey = 'com,example)/c'"
    ask = "SELECT cc.surt_key('http://www.example.com/')"
    assert places.export(unbounded, missing=missing, backend=kind) == 1
    (((_, plan),), comments, key) = places.answers(read, comment, ask)
    assert "Total Files Read: 1" in plan
    assert all("3 of 4 files" in text for (text,) in comments)
    assert (len(comments), key) == (2, [("com,example)/",)])
    assert places.export(whole, missing=missing) == 0
    assert "Total Files Read: 1" not in places.rows(read)[0][1]
    with changing(places.lake, None) as database:
        database.rows('UPDATE ducklake_macro_impl SET "sql" = ?', ["'wrong'"])
        database.changed = True
    assert places.rows(ask) == [("wrong",)]
    assert places.export(whole, missing=missing) == 0
    assert places.rows(ask) == key
    assert places.export(unbounded, missing=missing) == 0
    assert "Total Files Read: 1" in places.rows(read)[0][1]
    assert places.export(unbounded) == 1
    comments = places.rows(comment)
    assert not any("incomplete" in text for (text,) in comments)
    assert len(comments) == 2


@in_part(2)
@needs_extensions
def test_open_readers_are_not_disturbed_and_tables_of_others_kept(kind: str, places: Places) -> None:
    one, two = places.file(ONE, 0, ["a"]), places.file(TWO, 0, ["b"])
    places.export(one, backend=kind)
    with spare() as connection:
        *loads, attach = attach_statements(places.lake, str(places.folder))
        for sql in [*loads, attach.partition(" AS cc")[0] + " AS w"]:
            connection.execute(sql)
        connection.execute("CREATE TABLE w.mine AS SELECT 'a' AS url_surtkey, 'good' AS note")
        connection.execute("DETACH w")
    with opened(places.lake, places.folder) as reader:
        count = "SELECT count(*) FROM cc.captures"
        assert reader.execute(count).fetchall() == [(1,)]
        under_way = reader.cursor().execute("SELECT url_surtkey FROM cc.captures")
        assert places.export(one, two) == 1
        assert under_way.fetchall() == [("a",)]
        # DuckDB opens SQLite files again for each query.
        assert reader.execute(count).fetchall() == [(2 if kind == "sqlite" else 1,)]
        assert crawls_in(places.lake).keys() == {ONE, TWO}
    mine = "SELECT note FROM cc.captures JOIN cc.mine USING (url_surtkey)"
    assert places.answers(count, mine) == [[(2,)], [("good",)]]


FOREIGN: dict[str, list[str]] = {
    "sqlite": ["CREATE TABLE t (a)"],
    "lake": [
        'CREATE TABLE ducklake_metadata ("key", "value", scope, scope_id)',
        "INSERT INTO ducklake_metadata VALUES ('created_by', 'DuckDB', NULL, NULL)",
    ],
}
"""Tables in SQLite files."""


@pytest.mark.parametrize("kind", ["text", "empty", "duckdb", *FOREIGN])
def test_refuses_files_that_are_not_its_lakes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    if kind == "duckdb":
        duckdb.connect(path).close()
    else:
        path.write_text("other text" if kind == "text" else "")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in FOREIGN.get(kind, ()):
            connection.execute(statement)
    before, names = path.read_bytes(), {each.name for each in tmp_path.iterdir()}
    with pytest.raises(QueryError, match="was not made by this tool"):
        export_lake(path, [], [], data_path="/", backend=None)
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == names


def test_refuses_invalid_paths_backends_versions_and_tables(places: Places, tmp_path: Path) -> None:
    for folder in (tmp_path, Path(), Path("/")):
        with pytest.raises(QueryError, match="is a folder"):
            export_lake(folder, [], [], data_path="/", backend=None)
    (tmp_path / "other.lock").mkdir()
    with pytest.raises(DiskFailed, match="cannot be written"):
        export_lake(tmp_path / "other", [], [], data_path="/", backend=None)
    with pytest.raises(QueryError, match="there is no folder"):
        export_lake(tmp_path / "no" / "lake", [], [], data_path="/", backend=None)
    with FileLock(f"{places.lake}.lock"), pytest.raises(StoreLocked, match="another process writes to"):
        places.export()
    places.export(backend="sqlite")
    with pytest.raises(QueryError, match="of the backend sqlite"):
        places.export(backend="duckdb")
    with closing(sqlite3.connect(places.lake, isolation_level=None)) as other:
        other.execute("DROP TABLE ducklake_file_partition_value")
        with pytest.raises(DiskFailed, match=f"{places.lake.name} cannot be read: no such table"):
            crawls_in(places.lake)
        other.execute("UPDATE ducklake_metadata SET \"value\" = '1.1' WHERE \"key\" = 'version'")
    with pytest.raises(QueryError, match=r"version 1\.1"):
        places.export()


def test_damaged_lake_is_an_error(kind: str, places: Places) -> None:
    places.export(*(places.file(ONE, number, [f"a{number}"]) for number in range(20)), backend=kind)
    whole = places.lake.read_bytes()
    places.lake.write_bytes(whole[: len(whole) // 4])
    with pytest.raises((DiskFailed, QueryError), match=str(places.lake)):
        places.export()
    assert places.lake.read_bytes() == whole[: len(whole) // 4]


@needs_extensions
def test_accepts_question_marks_in_the_path(kind: str, places: Places) -> None:
    places.lake = places.folder / "a?b" / "lake?.ducklake"
    places.lake.parent.mkdir()
    places.export(places.file(ONE, 0, ["a"]), backend=kind)
    places.export(places.file(ONE, 0, ["a"]), places.file(TWO, 0, ["b"]))
    assert places.rows("SELECT url_surtkey FROM cc.captures ORDER BY ALL") == [("a",), ("b",)]


@in_part(2)
def test_ignores_files_of_a_crashed_export(kind: str, places: Places) -> None:
    one = places.file(ONE, 0, ["a"])
    places.export(one, backend=kind)
    left = places.lake.with_name(f"{places.lake.name}.new")
    left.mkdir()
    for end in ("", ".wal", "-journal"):
        (left / f"{places.lake.name}{end}").write_bytes(b"half a lake")
    assert places.export(one, places.file(TWO, 0, ["b"])) == 1
    assert {path.name for path in places.folder.glob("captures*")} == {"captures.ducklake"}
