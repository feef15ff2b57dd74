"""Write a DuckLake over index files: each new or changed crawl is a snapshot."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from catalogue.commoncrawl.crawls import KEY_COLUMN, PATH_COLUMNS, newest_first
from catalogue.commoncrawl.datasets import index_file
from catalogue.export.ducklake_tables import (
    AUTHOR,
    NAIVE,
    PARTITION,
    TABLE,
    VIEW,
    Database,
    add_columns,
    begin,
    changing,
    reading,
    type_name,
    update_macros,
)
from catalogue.metadata_db.lake_files import LakeFile, lake_schema

_Fields = frozenset[tuple[str, int, bool]]
"""Name in the file, number in the table, and whether the value is part of the path."""
_Described = tuple[int, int, int, _Fields | None]
_Bounds = tuple[str | None, str | None]


def export_lake(
    path: Path, files: Sequence[LakeFile], missing: Iterable[str], *, data_path: str, backend: str | None
) -> int:
    """Write a lake of these files, or update an existing one; return the number of new snapshots.

    ``missing`` says what was not harvested; ``data_path`` is the prefix of the paths, with a slash at its end.

    Raises:
        QueryError: if the path has another file, or its folder does not exist.
        StoreLocked: if another process writes to it.
        DiskFailed: if it cannot be written; the existing lake is unchanged.
    """
    with changing(path, backend) as database:
        lake = _Lake(database, files, data_path)
        before = lake.snapshot
        lake.update_files(files)
        lake.comment(tuple(missing))
        lake.finish()
        return lake.snapshot - before


def crawls_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Return files, rows, bytes and bytes of footers of each crawl in a lake."""
    with reading(path) as database:
        found = database.rows(
            """
            SELECT partition_value, count(*), sum(record_count), sum(file_size_bytes), sum(footer_size)
            FROM ducklake_data_file AS f JOIN ducklake_file_partition_value AS p ON p.data_file_id = f.data_file_id
            WHERE partition_key_index = 0 AND end_snapshot IS NULL GROUP BY partition_value
            """
        )
        return {crawl: tuple(map(int, sizes)) for crawl, *sizes in found}


def _columns(files: Sequence[LakeFile]) -> list[tuple[str, str]]:
    """Return names and types of columns, those of Common Crawl's index first.

    DuckDB ignores case: of names that differ only in case, the first has a column.
    """
    schema = [(field.name, type_name(field.type)) for field in lake_schema(files)]
    columns = [*schema[: (known := len(lake_schema(())))], (NAIVE, "timestamp"), *schema[known:]]
    first = {column[0].lower(): column for column in reversed(columns) if column[0]}
    return [column for column in columns if first.get(column[0].lower()) is column]


class _Lake:
    def __init__(self, database: Database, files: Sequence[LakeFile], data_path: str) -> None:
        self._database = database
        self._rows = database.rows
        self._now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")
        columns = _columns(files)
        if database.empty:
            begin(database, columns, data_path=data_path, now=self._now)
            database.changed = True
        elif self._rows('SELECT "value" FROM ducklake_metadata WHERE "key" = \'data_path\'') != [(data_path,)]:
            self._rows('UPDATE ducklake_metadata SET "value" = ? WHERE "key" = \'data_path\'', (data_path,))
            database.changed = True
        update_macros(database)
        self.snapshot: int
        (newest,) = self._rows(
            "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot "
            "ORDER BY snapshot_id DESC LIMIT 1"
        )
        self.snapshot, self._schema_version, self._next_object, self._next_file = newest
        ((self._next_row,),) = self._rows("SELECT next_row_id FROM ducklake_table_stats WHERE table_id = ?", (TABLE,))
        self._numbers, self._pending_columns = self._columns(columns)
        self._mappings = self._mapped()
        self._kinds: dict[tuple[tuple[str, ...], bool], _Fields] = {}

    def _columns(self, columns: Sequence[tuple[str, str]]) -> tuple[dict[str, int], list[tuple[int, str, str]]]:
        """Return numbers by name, and the columns that the next snapshot adds or changes."""
        every = self._rows(
            "SELECT column_name, column_id, column_type, end_snapshot FROM ducklake_column WHERE table_id = ?", (TABLE,)
        )
        live = {name: (number, kind) for name, number, kind, end in every if end is None}
        names = {name.lower() for name in live}
        new = [(name, kind) for name, kind in columns if name.lower() not in names]
        first = max(number for _, number, _, _ in every) + 1
        added = [(number, name, kind) for number, (name, kind) in enumerate(new, first)]
        other = [(live[name][0], name, kind) for name, kind in columns if name in live and live[name][1] != kind]
        numbers = {name: number for name, (number, _) in live.items()} | {name: number for number, name, _ in added}
        return {name: numbers[name] for name, _ in columns if name in numbers}, added + other

    def _mapped(self) -> dict[_Fields, int]:
        found: dict[int, set[tuple[str, int, bool]]] = {}
        for number, name, column, in_path in self._rows(
            "SELECT mapping_id, source_name, target_field_id, is_partition FROM ducklake_name_mapping "
            "WHERE mapping_id IN (SELECT mapping_id FROM ducklake_column_mapping WHERE table_id = ?)",
            (TABLE,),
        ):
            found.setdefault(number, set()).add((name, column, bool(in_path)))
        return {frozenset(fields): number for number, fields in found.items()}

    def update_files(self, files: Iterable[LakeFile]) -> None:
        there = self._live_files()
        added: dict[str, list[LakeFile]] = {}
        paths: set[str] = set()
        bounds: list[tuple[int, _Bounds, int]] = []
        for file in files:
            paths.add(file.path)
            number, described, before = there.get(file.path, (0, None, None))
            if described != (file.num_rows, file.file_size, file.footer_size, self._fields(file)):
                added.setdefault(file.crawl, []).append(file)
            elif before != (file.min_key, file.max_key):
                bounds.append((number, (file.min_key, file.max_key), file.num_rows))
        replaced = paths.intersection(file.path for each in added.values() for file in each)
        removed: dict[str, list[int]] = {}
        for path, (number, _, _) in there.items():
            if (at := index_file(path)) and (path in replaced or path not in paths):
                removed.setdefault(at.crawl, []).append(number)
        if self._pending_columns and not (added or removed):
            self._commit([], None)
        for crawl in reversed(newest_first([*added, *removed])):
            self._crawl(crawl, added.get(crawl, []), removed.get(crawl, []))
        self._update_bounds(bounds)

    def _live_files(self) -> dict[str, tuple[int, _Described, _Bounds]]:
        of = {number: fields for fields, number in self._mappings.items()}
        return {
            path: (number, (rows, size, footer, of.get(mapping)), (least, greatest))
            for number, path, rows, size, footer, mapping, least, greatest in self._rows(
                """
                SELECT
                  f.data_file_id, path, record_count, file_size_bytes, footer_size, mapping_id, min_value, max_value
                FROM ducklake_data_file AS f
                LEFT JOIN (SELECT * FROM ducklake_file_column_stats WHERE column_id = ? AND table_id = ?) AS s
                ON s.data_file_id = f.data_file_id
                WHERE f.table_id = ? AND end_snapshot IS NULL
                """,
                (self._numbers[KEY_COLUMN], TABLE, TABLE),
            )
        }

    def _fields(self, file: LakeFile) -> _Fields:
        kind = (file.column_names, file.utc_times)
        if kind not in self._kinds:
            named = {name: name if file.utc_times or name != "fetch_time" else NAIVE for name in file.column_names}
            in_file = {
                (name, self._numbers[column], False)
                for name, column in named.items()
                if column in self._numbers and name not in {*PATH_COLUMNS, NAIVE}
            }
            self._kinds[kind] = frozenset(in_file | {(name, self._numbers[name], True) for name in PATH_COLUMNS})
        return self._kinds[kind]

    def _mapping(self, fields: _Fields) -> int:
        if fields not in self._mappings:
            number = self._mappings[fields] = self._next_file
            self._next_file += 1
            self._database.insert("ducklake_column_mapping", [(number, TABLE, "map_by_name")])
            self._database.insert(
                "ducklake_name_mapping",
                [
                    (number, at, name, column, None, in_path)
                    for at, (name, column, in_path) in enumerate(sorted(fields, key=lambda field: field[1]))
                ],
            )
        return self._mappings[fields]

    def _crawl(self, crawl: str, new: Sequence[LakeFile], removed: Sequence[int]) -> None:
        snapshot = self.snapshot + 1
        if removed:
            end = f"UPDATE ducklake_data_file SET end_snapshot = ? WHERE data_file_id IN {_listed(removed)}"  # noqa: S608
            self._rows(end, (snapshot,))
        rows, statistics, parts = [], [], []
        for file in new:
            mapping = self._mapping(self._fields(file))
            number, row = self._next_file, self._next_row
            self._next_file, self._next_row = number + 1, row + file.num_rows
            sizes = (file.num_rows, file.file_size, file.footer_size)
            described = ("parquet", *sizes, row, PARTITION, None, mapping, None)
            rows.append((number, TABLE, snapshot, None, None, file.path, True, *described))
            statistics += self._bounds(number, (file.min_key, file.max_key), file.num_rows)
            for at, (name, value) in enumerate(zip(PATH_COLUMNS, (file.crawl, file.subset), strict=True)):
                parts.append((number, TABLE, at, value))
                column = (number, TABLE, self._numbers[name])
                statistics.append((*column, 0, file.num_rows, 0, value, value, None, None))
        self._database.insert("ducklake_data_file", rows)
        self._database.insert("ducklake_file_column_stats", statistics)
        self._database.insert("ducklake_file_partition_value", parts)
        changes = [f"inserted_into_table:{TABLE}"] * bool(new) + [f"deleted_from_table:{TABLE}"] * bool(removed)
        self._commit(changes, crawl)

    def _bounds(self, number: int, bounds: _Bounds, rows: int) -> list[tuple[object, ...]]:
        if None in bounds:
            return []
        return [(number, TABLE, self._numbers[KEY_COLUMN], None, rows, None, *bounds, None, None)]

    def _update_bounds(self, changed: Sequence[tuple[int, _Bounds, int]]) -> None:
        """Replace bounds in all snapshots: they were valid before, too."""
        if not changed:
            return
        numbers = _listed([number for number, _, _ in changed])
        delete = "DELETE FROM ducklake_file_column_stats WHERE column_id = ? AND table_id = ? AND data_file_id IN "
        self._rows(delete + numbers, (self._numbers[KEY_COLUMN], TABLE))
        rows = [row for number, bounds, count in changed for row in self._bounds(number, bounds, count)]
        self._database.insert("ducklake_file_column_stats", rows)
        self._database.changed = True

    def comment(self, missing: tuple[str, ...]) -> None:
        incomplete = f" It is incomplete: {'; '.join(missing)}." if missing else ""
        whole = "Common Crawl's index; rows of few files are read where crawl, subset and url_surtkey are given."
        raw = f"What the view captures is made of, which has one fetch_time: here it is in {NAIVE} until 2021-43."
        comments = {VIEW: whole + incomplete, TABLE: raw + incomplete}
        there = dict(
            self._rows('SELECT object_id, "value" FROM ducklake_tag WHERE end_snapshot IS NULL AND "key" = \'comment\'')
        )
        other = {number: text for number, text in comments.items() if there.get(number) != text}
        if not other:
            return
        snapshot = self.snapshot + bool(there)  # the first comments belong to the first snapshot
        for number, text in other.items():
            self._rows(
                "UPDATE ducklake_tag SET end_snapshot = ? "
                "WHERE object_id = ? AND end_snapshot IS NULL AND \"key\" = 'comment'",
                (snapshot, number),
            )
            self._database.insert("ducklake_tag", [(number, snapshot, None, "comment", text)])
        if not there:
            return
        self._schema_version += 1
        kinds = {VIEW: f"altered_view:{VIEW}", TABLE: f"altered_table:{TABLE}"}
        self._commit([kinds[number] for number in other], "what is missing" if missing else "nothing is missing")

    def _commit(self, changes: list[str], message: str | None) -> None:
        self.snapshot += 1
        self._database.changed = True
        if self._pending_columns:
            self._schema_version += 1
            for number, _, _ in self._pending_columns:
                self._rows(
                    "UPDATE ducklake_column SET end_snapshot = ? "
                    "WHERE table_id = ? AND column_id = ? AND end_snapshot IS NULL",
                    (self.snapshot, TABLE, number),
                )
            add_columns(self._database, self._pending_columns, self.snapshot)
            self._database.insert("ducklake_schema_versions", [(self.snapshot, self._schema_version, TABLE)])
            changes = [f"altered_table:{TABLE}", *changes]
            self._pending_columns = []
        versions = (self._schema_version, self._next_object, self._next_file)
        self._database.insert("ducklake_snapshot", [(self.snapshot, self._now, *versions)])
        self._database.insert("ducklake_snapshot_changes", [(self.snapshot, ",".join(changes), AUTHOR, message, None)])

    def finish(self) -> None:
        if self._database.changed:
            rows, size = self._rows(
                "SELECT coalesce(sum(record_count), 0), coalesce(sum(file_size_bytes), 0) "
                "FROM ducklake_data_file WHERE table_id = ? AND end_snapshot IS NULL",
                (TABLE,),
            )[0]
            self._rows(
                "UPDATE ducklake_table_stats SET record_count = ?, next_row_id = ?, file_size_bytes = ? "
                "WHERE table_id = ?",
                (rows, self._next_row, size, TABLE),
            )


def _listed(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"
