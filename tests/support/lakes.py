"""Lakes and their small index files, random queries over all rows of a mirror, and DuckDB's shell with extensions."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalogue.export.ducklake_sql import attach
from catalogue.metadata_db.lake_files import LakeFile

SHELL = Path(sys.executable).parent / "duckdb"


def export(path: Path, files: Sequence[LakeFile], location: str, missing: Sequence[str] = ()) -> Path:
    from catalogue.export import iceberg

    return iceberg.export(path, files, location, missing)


def plain(path: Path) -> Any:
    """Open a table by pyiceberg alone, by its metadata or its version hint."""
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(path))


def extension(name: str) -> str | None:
    """Return the file of an extension for the installed DuckDB; None if there is none."""
    found = find_spec(f"duckdb_extension_{name}")
    if not SHELL.exists() or found is None or found.origin is None:
        return None
    files = Path(found.origin).parent.glob(f"extensions/v{duckdb.__version__}/{name}.duckdb_extension")
    return next(map(str, files), None)


needs_extensions = pytest.mark.skipif(
    not all(map(extension, ["ducklake", "httpfs", "sqlite_scanner"])),
    reason="DuckDB's shell, and wheels of its extensions, are not installed: pip install '.[lake,shell]'",
)

SUMS = "count(*) AS n, sum(warc_record_offset)::VARCHAR AS offsets, sum(epoch_ms(fetch_time))::VARCHAR AS times"
"""Aggregates of the rows that a query finds, to compare engines."""
Truth: TypeAlias = Callable[[str], dict[str, Any]]
"""``SUMS`` of the rows that match a condition."""


def questions(rows: pa.Table, count: int, seed: int = 5) -> list[str]:
    """Make random conditions, in the common syntax of SQL and pyiceberg.

    They are equality, ranges and prefixes of keys, with and without crawl, subset and status.
    """
    rng = random.Random(seed)
    keys = [key for key in rows["url_surtkey"].to_pylist() if not set(key) & set("'\\%_")]
    crawls = sorted(set(rows["crawl"].to_pylist()))
    subsets = sorted(set(rows["subset"].to_pylist()))

    def about_keys() -> str:
        one, other = sorted([rng.choice(keys), rng.choice(keys)])
        kinds = [
            f"url_surtkey = '{one}'",
            f"url_surtkey >= '{one}' AND url_surtkey < '{one}zz'",
            f"url_surtkey > '{one}' AND url_surtkey <= '{other}'",
            f"url_surtkey LIKE '{one[: rng.randint(2, len(one))]}%'",
        ]
        return rng.choice(kinds)

    found = []
    for _ in range(count):
        parts = [about_keys()] if rng.random() < 0.8 else []
        parts += [f"crawl = '{rng.choice(crawls)}'"] if rng.random() < 0.4 else []
        parts += [f"subset <> '{rng.choice(subsets)}'"] if rng.random() < 0.2 else []
        parts += [f"fetch_status = {rng.choice([200, 301, 404])}"] if rng.random() < 0.2 or not parts else []
        found.append(" AND ".join(parts))
    return found


def sums(rows: pa.Table) -> dict[str, Any]:
    offsets, times = rows["warc_record_offset"], rows["fetch_time"].cast(pa.timestamp("ms", "UTC"))
    totals = [pc.sum(column.cast(pa.int64())).as_py() for column in (offsets, times)]
    return {"n": len(rows)} | {
        name: None if total is None else str(total) for name, total in zip(("offsets", "times"), totals, strict=True)
    }


def scanned(rows: pa.Table) -> Truth:
    """Return a function that computes ``SUMS`` of the rows that match a condition, once for each."""
    connection = duckdb.connect()
    connection.register("given", rows)
    connection.execute("CREATE TABLE rows AS FROM given")

    @cache
    def look(where: str) -> dict[str, Any]:
        found = connection.execute(f"SELECT {SUMS} FROM rows WHERE {where}")  # noqa: S608 - constants
        return dict(zip([name for name, *_ in found.description or ()], found.fetchall()[0], strict=True))

    return look


def in_order(rows: pa.Table) -> pa.Table:
    by = [("url_surtkey", "ascending"), ("warc_filename", "ascending"), ("warc_record_offset", "ascending")]
    return rows.combine_chunks().sort_by(by)


def write_file(folder: Path, crawl: str, name: object, keys: Sequence[str], **columns: list[Any]) -> LakeFile:
    path = f"cc-index/table/cc-main/warc/crawl={crawl}/subset=warc/part-{name}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"url_surtkey": list(keys), **columns}), folder / path)
    metadata = pq.read_metadata(folder / path)
    kinds = {int: "int64", float: "double", str: "string"}
    return LakeFile(
        path=path,
        crawl=crawl,
        subset="warc",
        file_size=(folder / path).stat().st_size,
        footer_size=metadata.serialized_size,
        num_rows=metadata.num_rows,
        column_names=("url_surtkey", *columns),
        column_kinds=("string", *(kinds[type(values[0])] for values in columns.values())),
        utc_times=True,
        min_key=min(keys),
        max_key=max(keys),
        ascending=True,
        row_group_offsets=(4,),
    )


def in_shell(statements: Sequence[str], *extensions: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each statement from one session of DuckDB's shell with extensions."""
    loads = [f"LOAD '{extension(name)}'" for name in extensions]
    script = "".join(f"{statement};\n" for statement in [*loads, *statements])
    done = subprocess.run(
        [SHELL, "-unsigned", "-bail", "-json"], input=script, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    decoder, found, rest = json.JSONDecoder(), [], done.stdout.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    return found


_spare: list[duckdb.DuckDBPyConnection] = []
"""Connections with loaded extensions; loading takes longer than most queries."""
_UNSIGNED: dict[str, str | bool | int | float | list[str]] = {"allow_unsigned_extensions": True}
"""Checking the signatures of extensions takes longer than most tests."""


@contextmanager
def spare() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = _spare.pop() if _spare else duckdb.connect(config=_UNSIGNED)
    connection.execute("SET enable_external_file_cache = false")  # tests replace files within its time resolution
    yield connection
    _spare.append(connection)


@contextmanager
def opened(lake: Path, source: str | Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with spare() as connection:
        assert attach(connection, lake, str(source)) is None
        yield connection
        connection.execute("DETACH cc")
