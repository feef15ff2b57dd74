"""What commands write, in forms that are equal for equal output."""

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from catalogue.harvest.snapshot import MANIFEST, unpack_manifest
from catalogue.store.layout import TABLES, decode
from tests.support.snapshots import read_rows
from tests.support.stores import raw

Items = Mapping[str, object]
Look = Callable[[Path], Items]
VIEWS = ("files", "row_groups", "pages", "crawls")


def _rows(data: bytes) -> object:
    return sorted(map(repr, pq.read_table(BytesIO(data)).to_pylist()))


def _content(path: Path) -> object:
    data = path.read_bytes()
    if path.suffix == ".parquet":
        return _rows(data)
    if path.suffix == ".jsonl":
        assert data.endswith(b"\n")
        return sorted(data.splitlines())
    if path.suffix == ".gz":
        members = []
        while data:
            inflating = zlib.decompressobj(31)
            members.append(inflating.decompress(data))
            assert inflating.eof, "the last member is cut off"
            data = inflating.unused_data
        return sorted(members[1:])  # the first one has a random name and the time
    return data


def files(pattern: str) -> Look:
    return lambda folder: {str(path.relative_to(folder)): _content(path) for path in folder.glob(pattern)}


def lake(folder: Path) -> Items:
    path = folder / "data/captures.ducklake"
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as lake:
        assert lake.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        query = "SELECT path, record_count, file_size_bytes FROM ducklake_data_file WHERE end_snapshot IS NULL"
        return {"lake": sorted(lake.execute(query).fetchall())}


def iceberg(folder: Path) -> Items:
    from pyiceberg.table import StaticTable

    versions = sorted(folder.glob("ice/metadata/v*.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    if not versions:
        return {}
    tasks = StaticTable.from_metadata(f"file://{versions[-1]}").scan().plan_files()
    return {"table": sorted((task.file.file_path, task.file.record_count) for task in tasks)}


def snapshot(folder: Path) -> Items:
    place = folder / "snapshot"
    if not (place / MANIFEST).exists():
        return {}
    files = unpack_manifest((place / MANIFEST).read_bytes(), str(place)).values()
    for file in files:
        assert hashlib.sha256((place / file.name).read_bytes()).hexdigest() == file.sha256, file.name
    return {file.crawl: len(read_rows(place / file.name)) for file in files}


def stored(path: Path) -> dict[Any, Any]:
    """Return all values of a store, without the times at which they were fetched."""
    with raw(path) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not store.execute("SELECT name FROM sqlite_schema").fetchall():
            return {}
        rows = [
            (table, key, value)
            for table in TABLES
            for key, value in store.execute(f'SELECT key, value FROM "{table}"')  # noqa: S608 - one of these
        ]
    values = {}
    for table, key, value in rows:
        found = decode(value)
        values[table, key] = replace(found, taken="")
    return values


def shown(path: Path) -> dict[Any, Any]:
    """Return what the metadata database shows, without the times at which it was fetched."""
    with duckdb.connect(path, read_only=True) as database:
        views = {view: database.execute(f"SELECT * FROM {view}").to_arrow_table() for view in VIEWS}  # noqa: S608
    return {
        view: sorted(repr(row | {"harvested_at": ""}) for row in rows.to_pylist())
        if "harvested_at" in rows.schema.names
        else sorted(map(repr, rows.to_pylist()))
        for view, rows in views.items()
    }
