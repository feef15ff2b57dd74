"""Random queries over all rows of a mirror, and DuckDB's shell with its extensions."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

SHELL = Path(sys.executable).parent / "duckdb"
SUMS = "count(*) AS n, sum(warc_record_offset)::VARCHAR AS offsets, sum(epoch_ms(fetch_time))::VARCHAR AS times"
"""Aggregates of the rows that a query finds, to compare engines."""

Truth: TypeAlias = Callable[[str], dict[str, Any]]
"""``SUMS`` of the rows that match a condition."""


@dataclass(frozen=True)
class Asked:
    """A condition in the common syntax of SQL and pyiceberg."""

    where: str
    by_key: bool


def questions(rows: pa.Table, count: int, seed: int = 5) -> list[Asked]:
    """Make random conditions: equality, ranges and prefixes of keys, with and without crawl, subset and status."""
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
        by_key = rng.random() < 0.8
        parts = [about_keys()] if by_key else []
        parts += [f"crawl = '{rng.choice(crawls)}'"] if rng.random() < 0.4 else []
        parts += [f"subset <> '{rng.choice(subsets)}'"] if rng.random() < 0.2 else []
        parts += [f"fetch_status = {rng.choice([200, 301, 404])}"] if rng.random() < 0.2 or not parts else []
        found.append(Asked(" AND ".join(parts), by_key))
    return found


def sums(rows: pa.Table) -> dict[str, Any]:
    """Return ``SUMS`` of rows."""
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


def extension(name: str) -> str | None:
    """Return the file of an extension for the installed DuckDB; None if there is none."""
    found = find_spec(f"duckdb_extension_{name}")
    if not SHELL.exists() or found is None or found.origin is None:
        return None
    files = Path(found.origin).parent.glob(f"extensions/v{duckdb.__version__}/{name}.duckdb_extension")
    return next(map(str, files), None)


def in_shell(statements: list[str], *extensions: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each statement from one session of DuckDB's shell with extensions."""
    loads = [f"LOAD '{extension(name)}'" for name in extensions]
    script = "".join(f"{statement};\n" for statement in [*loads, *statements])
    done = subprocess.run([SHELL, "-json"], input=script, capture_output=True, text=True, check=True, timeout=60)
    assert not done.stderr, done.stderr
    decoder, found, rest = json.JSONDecoder(), [], done.stdout.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    return found
