"""A million keys joined with two million captures in a folder: CPU, bytes and results, side by side with DuckDB.

The file has the size, pages and columns of Common Crawl's. Of the keys a half are there. In a second case the keys are
neighbours in one page of a hundred, so that few bytes are enough.
"""

import json
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.clients.join_duckdb import HOW
from benchmarks.peers import CACHE
from benchmarks.processes import Failed, Ran, run, wait_for_quiet
from benchmarks.real_size import CRAWL, INDEX_FILE, real_size
from benchmarks.report import Value, table

_ROWS = 666_667
"""Of a row group; the file has three."""
_KEYS = 1_000_000
_PAGE_ROWS = 20_000
_RUNS = 3
"""Of each join, in turns with the other; their CPU time is the mean."""
_SAME = {
    "inner": "id, url_surtkey, warc_filename, warc_record_offset",
    "semi": "id",
    "anti": "id",
    "crawls": "id, captures, crawls, first, last, list_sort(statuses)",
    "latest": "id, url_surtkey, warc_filename, warc_record_offset",
}
"""What is compared of the rows of both results."""


def main(*, full: bool) -> None:  # noqa: ARG001 - there is one size
    """Measure and print."""
    folder = real_size(CACHE, rows=_ROWS)
    keys = pc.unique(pq.read_table(folder / INDEX_FILE, columns=["url_surtkey"]).column(0).combine_chunks())
    chance = np.random.default_rng(1)
    there = keys.take(pa.array(chance.choice(len(keys), _KEYS // 2, replace=False)))
    absent = pc.binary_join_element_wise(keys.take(pa.array(chance.choice(len(keys), _KEYS // 2))), "~", "")
    dense = pa.concat_arrays([there, absent]).take(pa.array(chance.permutation(_KEYS)))
    _measure(folder, dense, f"{_KEYS:,} keys, half of them there, {3 * _ROWS:,} captures")
    neighbours = keys.slice(len(keys) // 2, _PAGE_ROWS // 2)
    _measure(folder, neighbours, f"{len(neighbours):,} neighbouring keys, in about 1 % of the pages")
    urls = pq.read_table(folder / INDEX_FILE, columns=["url"]).column(0).combine_chunks()
    some = [urls.take(pa.array(chance.choice(len(urls), _KEYS // 2))) for _ in range(2)]
    _measure_urls(folder, [*some[0].to_pylist(), *(f"{url}~" for url in some[1].to_pylist())])


def _measure(folder: Path, keys: pa.Array, title: str) -> None:
    rows: list[list[Value]] = []
    with TemporaryDirectory(prefix="benchmarks-") as temporary:
        home = Path(temporary)
        given = home / "keys.parquet"
        pq.write_table(pa.table({"id": pa.array(range(len(keys))), "url_surtkey": keys}), given)
        _harvest(home, folder)
        for how in HOW:
            mine, others = [], []
            for number in range(_RUNS):
                ours, theirs = home / f"{how}-{number}.parquet", home / f"{how}-{number}-duckdb.parquet"
                wait_for_quiet()
                mine.append(_join(home, folder, how, given, ours))
                wait_for_quiet()
                files = f"{folder}/**/*.parquet"
                others.append(run(["benchmarks.clients.join_duckdb", how, files, str(given), str(theirs)], home=home))
            about, bytes_read = json.loads(mine[-1].output), json.loads(others[-1].output)["bytes"]
            cpu, other_cpu = (fmean(each.cost.cpu_seconds for each in runs) for runs in (mine, others))
            peak = max(each.cost.peak_bytes for each in mine)
            costs = [about["requests"], cpu, other_cpu, cpu / other_cpu, about["bytes"] / 1e6, bytes_read / 1e6]
            rows.append([how, _equal_rows(how, ours, theirs), *costs, peak / 1e6, len(keys) / cpu])
    names = ["rows", "requests", "CPU s", "DuckDB: CPU s", "ratio", "MB", "DuckDB: MB", "peak MB", "keys per CPU s"]
    table(title, ["", *names], rows)


def _measure_urls(folder: Path, urls: list[str]) -> None:
    """Measure what a list of URLs, whose keys have to be made first, takes here alone."""
    with TemporaryDirectory(prefix="benchmarks-") as temporary:
        home = Path(temporary)
        given, found = home / "urls.txt", home / "found.parquet"
        given.write_text("\n".join(urls), encoding="utf-8")
        _harvest(home, folder)
        wait_for_quiet()
        mine = _join(home, folder, "semi", given, found)
        cpu, rows = mine.cost.cpu_seconds, pq.read_metadata(found).num_rows
        names = ["rows", "CPU s", "peak MB", "URLs per CPU s"]
        title = f"{len(urls):,} URLs as text, half of them there"
        table(title, ["", *names], [["semi", rows, cpu, mine.cost.peak_bytes / 1e6, len(urls) / cpu]])


def _harvest(home: Path, folder: Path) -> None:
    _command(home, folder, "harvest", "--pages")


def _join(home: Path, folder: Path, how: str, keys: Path, output: Path) -> Ran:
    return _command(home, folder, "join", str(keys), "--how", how, "--output", str(output), "--json")


def _command(home: Path, folder: Path, *arguments: str) -> Ran:
    settings = ["--crawl", CRAWL, "--source", str(folder), "--data", str(home / "data")]
    return run(["catalogue", *arguments, *settings], home=home)


def _equal_rows(how: str, ours: Path, theirs: Path) -> int:
    """Return the number of rows, which are the same.

    Raises:
        Failed: if they are not.
    """
    columns = _SAME[how]
    mine = (
        f"SELECT {columns.replace('id,', 'input_id AS id,', 1) if ',' in columns else 'input_id AS id'} FROM '{ours}'"
    )
    other = f"SELECT {columns} FROM '{theirs}'"
    with duckdb.connect() as connection:
        different = f"SELECT count(*) FROM (({mine} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {mine}))"
        (count,) = connection.execute(different).fetchone() or (1,)
        (rows,) = connection.execute(f"SELECT count(*) FROM ({mine})").fetchone() or (0,)
    if count:
        raise Failed(f"{count:,} rows of the results differ: {how}")
    return int(rows)
