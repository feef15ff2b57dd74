"""DuckDB's shell over a DuckLake returns what full scans find, and opens few files."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import LoopbackServer
from catalogue.export.ducklake_sql import attach_statements
from catalogue.metadata_db.lake_files import LakeFile
from catalogue.query.literals import literal
from catalogue.surt.pattern import parse_pattern
from tests.support.lakes import SUMS, Truth, in_order, in_shell, needs_extensions, opened, questions

pytestmark = needs_extensions

ZONES = ["UTC", "Asia/Tokyo", "America/New_York"]


@pytest.fixture(scope="module")
def server(mirror: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(mirror) as running:
        yield running


@pytest.fixture(scope="module")
def lakes(harvested: catalogue.Catalogue, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("lakes")
    made = {kind: folder / f"{kind}.ducklake" for kind in ("sqlite", "duckdb")}
    for kind, path in made.items():
        done = harvested.export_ducklake(path, backend=kind)
        assert done.complete
        assert done.files == len(harvested.files())
    return made


def patterns(rows: pa.Table, count: int) -> Iterator[tuple[str, str]]:
    """Yield random patterns, as condition of a lake and as intervals of keys."""
    rng = random.Random(3)
    hosts = sorted(
        filter(re.compile(r"[a-z][a-z0-9.-]*[a-z]").fullmatch, set(rows["url_host_name"].to_pylist()) - {None})
    )
    for _ in range(count):
        host = rng.choice(hosts)
        pattern = rng.choice([f"*.{host}", f"{host}/*", host, f"https://{host}/a*", f"*.{host.rpartition('.')[2]}"])
        either = []
        for interval in parse_pattern(pattern).intervals:
            start, end = interval.start.decode(), interval.end.decode()
            if end == f"{start}\0":  # SQL text cannot contain NUL
                either.append(f"url_surtkey = {literal(start)}")
            else:
                either.append(f"(url_surtkey >= {literal(start)} AND url_surtkey < {literal(end)})")
        yield f"cc.surt_match(url_surtkey, {literal(pattern)})", f"({' OR '.join(either)})"


def test_duckdb_shell_equals_a_full_scan(
    lakes: dict[str, Path], server: LoopbackServer, all_rows: pa.Table, truth: Truth, tmp_path: Path
) -> None:
    conditions = [(each, each) for each in questions(all_rows, 4)] + [*patterns(all_rows, 3)]
    copied = tmp_path / "all.parquet"
    for at, path in enumerate(lakes.values()):
        mine = conditions[at::2]
        statements = [f"SET TimeZone = 'UTC'; COPY (FROM cc.captures) TO '{copied}'"] if at == 0 else []
        for number, (ours, _) in enumerate(mine):
            statements.append(f"SET TimeZone = '{ZONES[number % 3]}'; SELECT {SUMS} FROM cc.captures WHERE {ours}")  # noqa: S608
        assert in_shell([*attach_statements(path, server.url), *statements]) == [[truth(plain)] for _, plain in mine]
    assert in_order(pq.read_table(copied).select(SCHEMA.names).cast(SCHEMA)).equals(in_order(all_rows))
    assert sum(truth(plain)["n"] > 0 for _, plain in conditions) > len(conditions) / 2


@pytest.mark.in_soak
def test_opens_only_files_with_matching_bounds(
    lakes: dict[str, Path], server: LoopbackServer, all_rows: pa.Table, files: list[LakeFile]
) -> None:
    key = random.Random(2).choice(sorted(set(all_rows["url_surtkey"].to_pylist())))
    may = {file.path: file for file in files if (file.min_key or "") <= key and (file.max_key or key) >= key}
    for path in lakes.values():
        server.log.clear()
        with opened(path, server.url) as connection:
            sql = f"SELECT url, fetch_time FROM cc.captures WHERE url_surtkey = {literal(key)}"  # noqa: S608 - a constant
            connection.execute(sql).fetchall()
        requested = {each.path for each in server.log}
        assert requested <= may.keys()
        assert 0 < len(requested) < len(files)
        assert {each.method for each in server.log} <= {"GET"}
        ends = [each for each in server.log if (each.range or "").endswith(f"-{may[each.path].file_size - 1}")]
        starts = (may[each.path].file_size - may[each.path].footer_size - 8 for each in ends)
        assert [each.range for each in ends] == [
            f"bytes={start}-{may[each.path].file_size - 1}" for start, each in zip(starts, ends, strict=True)
        ]
        assert len({each.path for each in ends}) == len(ends) == len(requested)


def test_counts_open_no_file(lakes: dict[str, Path], server: LoopbackServer, all_rows: pa.Table) -> None:
    server.log.clear()
    for path in lakes.values():
        with opened(path, server.url) as connection:
            found = connection.execute("SELECT count(*) FROM cc.captures").fetchall()
        assert found == [(all_rows.num_rows,)]
    assert server.log == []


def test_constant_patterns_prune_files(lakes: dict[str, Path], mirror: Path, files: list[LakeFile]) -> None:
    crawl = files[-1].crawl
    key = next(file.min_key for file in files if file.crawl == crawl and file.min_key)
    host = ".".join(reversed(key.partition(")")[0].split(",")))
    with opened(lakes["sqlite"], mirror) as connection:
        for pattern in (f"{host}/*", f"*.{host}", host):
            condition = f"crawl = {literal(crawl)} AND cc.surt_match(url_surtkey, {literal(pattern)})"
            sql = f"EXPLAIN ANALYZE SELECT url FROM cc.captures WHERE {condition}"  # noqa: S608 - constants
            plan = connection.execute(sql).fetchall()[0][1]
            read = int(re.findall(r"Total Files Read: (\d+)", plan)[0])
            intervals = parse_pattern(pattern).intervals
            low, high = intervals[0].start.decode(), intervals[-1].end.decode()
            may = [
                file
                for file in files
                if file.crawl == crawl
                and (not (file.min_key and file.max_key) or (file.min_key < high and file.max_key >= low))
            ]
            assert read <= len(may)
            assert len(may) < sum(file.crawl == crawl for file in files)
