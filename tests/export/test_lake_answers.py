"""DuckDB's shell over a DuckLake returns what full scans find, and opens few files."""

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.commoncrawl.columns import SCHEMA
from catalogue.demo import LoopbackServer
from catalogue.export.ducklake_sql import lake_path
from catalogue.metadata_db.export_rows import lake_files
from catalogue.metadata_db.file_stats import LakeFile
from catalogue.query.where import literal
from catalogue.settings import Settings
from catalogue.stored import stored_crawls
from catalogue.surt import parse_pattern
from tests.support.ducklakes import ask_shell, needs_extensions, opened

pytestmark = needs_extensions

QUESTIONS = 20
ZONES = ["UTC", "Asia/Tokyo", "America/New_York"]
COLUMNS = ", ".join(SCHEMA.names)
SHAPES = [
    COLUMNS,
    COLUMNS,
    "count(*) AS n",
    "crawl, subset, count(*) AS n, min(fetch_time) AS least, max(fetch_time) AS last, sum(warc_record_length) AS bytes",
    "count(DISTINCT url_host_name) AS hosts, min(url_surtkey) AS least, max(url) AS greatest",
]


@pytest.fixture(scope="module")
def server(mirror: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(mirror) as running:
        yield running


@pytest.fixture(scope="module")
def files(harvested: catalogue.Catalogue) -> list[LakeFile]:
    with harvested.connect() as connection:
        return lake_files(connection, stored_crawls(harvested.session))


@pytest.fixture(scope="module")
def lakes(harvested: catalogue.Catalogue, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("lakes")
    made = {kind: folder / f"{kind}.ducklake" for kind in ("sqlite", "duckdb")}
    for kind, path in made.items():
        done = harvested.export_ducklake(path, backend=kind)
        assert done.complete
        assert done.files == len(harvested.files())
    return made


@pytest.fixture(scope="module")
def everything(all_rows: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """All rows in a table without pruning."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("scanned", all_rows)
        connection.execute("CREATE TABLE captures AS FROM scanned")
        yield connection


class Asker:
    """Makes random conditions from values of the rows: for a lake, and as plain SQL."""

    def __init__(self, everything: duckdb.DuckDBPyConnection, seed: int) -> None:
        self.chance = random.Random(seed)
        keys = everything.execute("SELECT DISTINCT url_surtkey FROM captures ORDER BY 1").fetchall()
        self.keys = [key for (key,) in keys]
        self.hosts = [
            host for (host,) in everything.execute("SELECT DISTINCT url_host_name FROM captures ORDER BY 1").fetchall()
        ]
        self.crawls = [
            crawl for (crawl,) in everything.execute("SELECT DISTINCT crawl FROM captures ORDER BY 1").fetchall()
        ]

    def on_keys(self) -> tuple[str, str]:
        key = self.chance.choice(self.keys)
        low, high = sorted([key, self.keys[min(len(self.keys) - 1, self.keys.index(key) + 300)]])
        plain = [
            f"url_surtkey = {literal(key)}",
            f"url_surtkey BETWEEN {literal(low)} AND {literal(high)}",
            f"url_surtkey >= {literal(low)} AND url_surtkey < {literal(high)}",
            f"url_surtkey LIKE {literal(key[: self.chance.randint(2, 9)] + '%')}",
            f"starts_with(url_surtkey, {literal(key.partition(')')[0])})",
            f"url_surtkey IN ({literal(key)}, {literal(high)})",
        ]
        if self.chance.random() < 0.6:
            condition = self.chance.choice(plain)
            return condition, condition
        return self.by_pattern()

    def by_pattern(self) -> tuple[str, str]:
        while not re.fullmatch(r"[a-z][a-z0-9.-]*[a-z]", host := self.chance.choice(self.hosts) or ""):
            pass
        pattern = self.chance.choice(
            [f"*.{host}", f"{host}/*", host, f"https://{host}/a*", f"*.{host.rpartition('.')[2]}"]
        )
        either = []
        for interval in parse_pattern(pattern).intervals:
            start, end = interval.start.decode(), interval.end.decode()
            exact = end == f"{start}\0"  # SQL text cannot contain NUL
            either.append(
                f"url_surtkey = {literal(start)}"
                if exact
                else f"(url_surtkey >= {literal(start)} AND url_surtkey < {literal(end)})"
            )
        return f"cc.surt_match(url_surtkey, {literal(pattern)})", f"({' OR '.join(either)})"

    def on_others(self) -> str:
        crawl = self.chance.choice(self.crawls)
        year = crawl.split("-")[2]
        kinds: list[Callable[[], str]] = [
            lambda: f"crawl = {literal(crawl)}",
            lambda: f"crawl >= {literal(crawl)}",
            lambda: f"crawl IN ({literal(crawl)}, {literal(self.crawls[0])})",
            lambda: f"subset = {literal(self.chance.choice(['warc', 'crawldiagnostics', 'robotstxt']))}",
            lambda: f"fetch_status = {self.chance.choice([200, 301, 404])}",
            lambda: f"fetch_time >= TIMESTAMPTZ '{year}-02-03 04:05:06+00'",
            lambda: "content_languages IS NULL",
            lambda: f"url_host_name = {literal(self.chance.choice(self.hosts) or '')}",
        ]
        return self.chance.choice(kinds)()

    def question(self) -> tuple[str, str]:
        shape = self.chance.choice(SHAPES)
        others = [self.on_others() for _ in range(self.chance.randint(0, 2))]
        pairs = [
            *([self.on_keys()] if not others or self.chance.random() < 0.95 else []),
            *zip(others, others, strict=True),
        ]
        grouped = " GROUP BY crawl, subset" if shape.startswith("crawl, subset") else ""
        ours, plain = (" AND ".join(pair[at] for pair in pairs) for at in (0, 1))
        return (
            f"SELECT {shape} FROM cc.captures WHERE {ours}{grouped}",  # noqa: S608 - constants
            f"SELECT {shape} FROM captures WHERE {plain}{grouped}",  # noqa: S608 - constants
        )


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows, to compare them."""
    table = table.cast(
        pa.schema(
            [
                (field.name, pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type)
                for field in table.schema
            ]
        )
    )
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def test_duckdb_shell_equals_a_full_scan(
    lakes: dict[str, Path], server: LoopbackServer, everything: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    asker = Asker(everything, seed=1)
    questions = [asker.question() for _ in range(QUESTIONS)]
    for kind, path in lakes.items():
        mine = [at for at in range(QUESTIONS) if (at % 3 == 0) == (kind == "duckdb")]
        script = [
            f"SET TimeZone = '{ZONES[at % 3]}'; COPY ({questions[at][0]}) TO {literal(f'{tmp_path}/{at}.parquet')}"
            for at in mine
        ]
        ask_shell(path, server.url, ";\n".join(script) + ";")
    matching = 0
    for at, (requested, plain) in enumerate(questions):
        found, expected = pq.read_table(tmp_path / f"{at}.parquet"), everything.sql(plain).to_arrow_table()
        assert found.num_rows == expected.num_rows, requested
        assert in_order(found).equals(in_order(expected.cast(found.schema))), requested
        matching += found.num_rows > 0
    assert matching > QUESTIONS / 2


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def test_opens_only_files_with_matching_bounds(
    lakes: dict[str, Path],
    server: LoopbackServer,
    everything: duckdb.DuckDBPyConnection,
    files: list[LakeFile],
    stack: ExitStack,
) -> None:
    asker = Asker(everything, seed=2)
    sizes = {file.path: (file.file_size, file.footer_size) for file in files}
    opened_files, there_are = 0, 0
    connections = [stack.enter_context(opened(lakes[kind], server.url)) for kind in ("sqlite", "duckdb")]
    for at in range(12):
        key, crawl = asker.chance.choice(asker.keys), asker.chance.choice(asker.crawls)
        prefix = key.partition(")")[0]
        where, low, high = [
            (f"url_surtkey = {literal(key)}", key, key),
            (f"url_surtkey LIKE {literal(prefix.replace('_', '') + '%')}", prefix, prefix + "\U0010ffff"),
            (f"url_surtkey BETWEEN {literal(prefix)} AND {literal(key)}", prefix, key),
        ][at % 3]
        may = {
            file.path
            for file in files
            if file.crawl == crawl
            and (file.min_key is None or file.min_key <= high)
            and (file.max_key is None or file.max_key >= low)
        }
        server.log.clear()
        sql = f"SELECT url, fetch_time FROM cc.captures WHERE crawl = {literal(crawl)} AND {where}"  # noqa: S608
        connections[at % 2].execute(sql).fetchall()
        requested = {each.path for each in server.log}
        assert requested <= may, sql
        assert {each.method for each in server.log} <= {"GET"}
        ends = [each for each in server.log if each.range and each.range.endswith(f"-{sizes[each.path][0] - 1}")]
        assert [each.range for each in ends] == [
            f"bytes={size - footer - 8}-{size - 1}" for size, footer in (sizes[each.path] for each in ends)
        ]
        assert len({each.path for each in ends}) == len(ends) == len(requested)
        opened_files, there_are = opened_files + len(requested), there_are + sum(file.crawl == crawl for file in files)
    assert 0 < opened_files < there_are


def test_counts_open_no_file(
    lakes: dict[str, Path], server: LoopbackServer, everything: duckdb.DuckDBPyConnection
) -> None:
    server.log.clear()
    for path in lakes.values():
        with opened(path, server.url) as connection:
            found = connection.execute("SELECT count(*) FROM cc.captures").fetchall()
        assert found == everything.execute("SELECT count(*) FROM captures").fetchall()
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


def test_times_are_the_same_in_every_time_zone(
    lakes: dict[str, Path], mirror: Path, everything: duckdb.DuckDBPyConnection
) -> None:
    sums = (
        "SELECT crawl, sum(epoch_ms(fetch_time)) AS total, count(fetch_time) AS n FROM {} GROUP BY crawl ORDER BY crawl"
    )
    expected = everything.execute(sums.format("captures")).fetchall()
    script = "".join(f"SET TimeZone = '{zone}'; {sums.format('cc.captures')};\n" for zone in ZONES)
    answers = ask_shell(lakes["sqlite"], str(mirror), script).replace("]\n[", "]\0[").split("\0")
    for zone, answer in zip(ZONES, answers, strict=True):
        found = [(row["crawl"], int(row["total"]), row["n"]) for row in json.loads(answer)]
        assert found == expected, zone
    assert len(expected) > 2


def test_backfill_lets_fewer_files_be_opened(
    untaught_data: Path, settings: Settings, mirror: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "footers.sqlite").write_bytes((untaught_data / "footers.sqlite").read_bytes())
    with catalogue.open(data, settings=settings) as cat:
        cat.export_ducklake()
        sql = "EXPLAIN ANALYZE SELECT url FROM cc.captures WHERE url_surtkey = ?"
        keys = [file.max_key for file in lake_files(cat.connect(), stored_crawls(cat.session)) if file.max_key][::5]

        def requested() -> tuple[int, list[tuple[object, ...]]]:
            """Return files read for these keys, and snapshots."""
            with opened(lake_path(cat.session), mirror) as connection:
                plans = [connection.execute(sql, [key]).fetchall()[0][1] for key in keys]
                read = sum(int(re.findall(r"Total Files Read: (\d+)", plan)[0]) for plan in plans)
                return read, connection.execute("FROM cc.snapshots()").fetchall()

        before, history = requested()
        cat.backfill().run()
        cat.export_ducklake()
        after, same = requested()
        assert after < before
        assert same == history
