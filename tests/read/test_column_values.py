"""Values of columns from dictionary pages: they rule out row groups and never rows."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import QueryError, UnknownColumn
from catalogue.harvest.snapshot import MANIFEST
from catalogue.parquet.page_index import Indexes
from catalogue.progress import Progress
from catalogue.settings import Settings
from catalogue.tables.table_file import TABLES_FOLDER
from tests.conftest import once
from tests.support.amounts import part_of
from tests.support.catalogues import catalogue_in
from tests.support.footers import edited, write
from tests.support.own_tables import KEY, dataset_of, rows_of, scan

CRAWL = "CC-MAIN-2022-33"
ROWS, GROUP = 2400, 60
COLUMNS = [KEY, "kind", "number", "long"]
NAMED = "kind,number,long"


def table(seed: int = 1) -> pa.Table:
    """Rows whose values differ from row group to row group; some row groups have nulls, and some nothing else."""
    chance = random.Random(seed)
    kinds: list[str | None] = []
    numbers: list[int | None] = []
    for group in range(ROWS // GROUP):
        some = [f"kind{chance.randrange(40):02}" for _ in range(3)]
        with_nulls, empty = group % 3 == 0, group % 11 == 5
        for _ in range(GROUP):
            is_null = empty or (with_nulls and chance.random() < 0.3)
            kinds.append(None if is_null else chance.choice(some))
            numbers.append(None if is_null else group // 2 - 5 + chance.randrange(2))
    kinds[700], kinds[1900] = "rare", "rare,æ"
    longs = [f"{chance.randrange(10**9):0200}" for _ in range(ROWS)]  # too long for a dictionary
    return pa.table(
        {
            KEY: [f"key{row:05}" for row in range(ROWS)],
            "kind": kinds,
            "number": pa.array(numbers, pa.int32()),
            "long": longs,
        }
    )


TABLE = table()


def by_pyarrow(**options: object) -> bytes:
    return write(TABLE, **{"row_group_size": GROUP, **options})


def by_polars() -> bytes:
    output = BytesIO()
    pl.from_arrow(TABLE).write_parquet(output, row_group_size=GROUP)  # type: ignore[union-attr]
    return output.getvalue()


def by_duckdb() -> bytes:
    with TemporaryDirectory() as folder, duckdb.connect() as db:
        db.register("written", TABLE)
        db.execute(f"COPY written TO '{folder}/a.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
        return Path(folder, "a.parquet").read_bytes()


WRITERS: dict[str, Callable[[], bytes]] = {
    "pyarrow": by_pyarrow,
    "pyarrow, pages of version 2": lambda: by_pyarrow(data_page_version="2.0", compression="zstd"),
    "pyarrow, version 1.0": lambda: by_pyarrow(version="1.0", compression="gzip"),
    "dictionaries that overflow": lambda: by_pyarrow(
        dictionary_pagesize_limit=40, data_page_size=20, write_batch_size=2
    ),
    "no dictionaries": lambda: by_pyarrow(use_dictionary=False),
    "no statistics": lambda: by_pyarrow(write_statistics=False),
    "checksums": lambda: by_pyarrow(write_page_checksum=True, compression="snappy"),
    "polars": by_polars,
    "duckdb": by_duckdb,
}
CONDITIONS = [
    *("kind = 'rare'", "kind IN ('kind03', 'nowhere')", "kind LIKE 'rare%'", "kind LIKE '%æ'", "kind IS NULL"),
    *("kind IS NOT NULL AND number < -3", "coalesce(kind, 'rare') = 'rare'", "NOT (kind >= 'kind05')"),
    *("number IN (3, 100)", "number = 7 OR number IS NULL", "kind = 'kind07' OR number = 3"),
    *("KIND > 'kind38' AND number % 2 = 0", "length(kind) = 4", "CAST(kind AS INTEGER) = 3 OR kind IS NOT NULL"),
    *("k < 'key00500' AND kind = 'kind11'", "random() < 2 AND kind = 'rare'"),
]


@pytest.fixture(scope="module", params=[*WRITERS])
def by_writer(request: pytest.FixtureRequest) -> Iterator[Catalogue]:
    with dataset_of({"a.parquet": WRITERS[request.param]()}) as cat:
        cat.harvest(values=NAMED)
        yield cat


@pytest.mark.in_part(7)
@pytest.mark.parametrize("where", CONDITIONS)
def test_rows_equal_a_scan(by_writer: Catalogue, where: str) -> None:
    found = by_writer.captures("*", where=where, columns=COLUMNS)
    if "CAST" in where:  # a value is no number, which the scan reports, too
        with pytest.raises(QueryError, match="kind"):
            found.to_arrow()
        return
    assert rows_of(found.to_arrow().select(COLUMNS)) == scan(TABLE, where)
    assert by_writer.captures("*", where=where).count() == len(scan(TABLE, where))


def test_view_has_the_values_of_dictionaries() -> None:
    data = by_pyarrow()
    with dataset_of({"b/a.parquet": data}) as cat:
        cat.harvest(values="kind,number")
        frame = cat.sql("SELECT path, row_group, column_name, value FROM column_values").fetchall()
        shown = {(group, name): set[object]() for _, group, name, _ in frame}
        for path, group, name, value in frame:
            assert path == "b/a.parquet"
            shown[group, name].add(value)
    for group in range(ROWS // GROUP):
        rows = TABLE.slice(group * GROUP, GROUP)
        for name in ("kind", "number"):
            values = {None if value is None else str(value) for value in rows.column(name).to_pylist()}
            assert shown[group, name] == values, (group, name)


def test_view_has_the_values_of_crawls_whose_names_begin_alike() -> None:
    with dataset_of({f"crawl={crawl}/a.parquet": by_pyarrow() for crawl in ("a", "ab")}) as cat:
        for crawl in ("ab", "a"):
            cat.harvest(crawl, values="kind")
        assert cat.sql("SELECT DISTINCT crawl FROM column_values ORDER BY crawl").fetchall() == [("a",), ("ab",)]


def test_values_that_are_nowhere_take_no_request() -> None:
    with dataset_of({"a.parquet": by_pyarrow()}) as cat:
        cat.harvest(values="kind")
        before = cat.requests
        found = cat.captures("*", where="kind = 'nowhere'")
        assert (found.to_arrow().num_rows, found.count(), cat.requests) == (0, 0, before)
        cat.harvest(values="number")
        for where in ("kind = 'nowhere'", "number = 1000"):  # the values of both harvests are used
            assert cat.captures("*", where=where).plan.ruled_out == ROWS // GROUP


@contextmanager
def expensive_bytes(data: bytes) -> Iterator[Catalogue]:
    """Have settings by which a chunk of 2 kB costs more than a request."""
    with dataset_of({"a.parquet": data}) as cat:
        costly = replace(cat.session.settings, latency=0.001, bandwidth=100_000, cache_size=0)
        with catalogue.open(cat.session.folder, table="t", settings=costly, progress=False) as other:
            yield other


@cache
def long_kinds() -> pa.Table:
    """Rows in whose row groups the dictionary takes a small part of the chunk."""
    count, group = 100, 1000
    chance = random.Random(5)
    kinds = [f"kind{chance.randrange(60)}" for _ in range(count * group)]
    kinds[55_500] = kinds[55_501] = kinds[91_000] = "rare"
    return pa.table({KEY: [f"key{row:06}" for row in range(count * group)], "kind": kinds})


def test_queries_read_dictionary_pages_where_they_cost_less_than_chunks() -> None:
    data = write(long_kinds(), row_group_size=1000)
    size = sum(
        pq.ParquetFile(BytesIO(data)).metadata.row_group(group).column(1).total_compressed_size for group in range(100)
    )
    with expensive_bytes(data) as cat:
        found = cat.captures("*", where="kind = 'rare'")
        assert not found.plan.is_ready
        assert sum(len(fetch.parts) for fetch in found.plan.indexes) == 16
        rows = found.to_arrow()
        assert rows.column(KEY).to_pylist() == ["key055500", "key055501", "key091000"]
        received = cat.bytes
        assert received < size
        assert found.plan.row_groups == 2
        again = cat.captures("*", where="kind = 'rare' AND k <> 'x'")
        assert again.plan.is_ready
        assert again.to_arrow() == rows
        few = cat.captures("*", where="kind = 'rare'", limit=1)
        assert few.plan.is_ready
        assert few.to_arrow().num_rows == 1


def test_frequent_values_are_read_after_a_sample() -> None:
    with expensive_bytes(write(long_kinds(), row_group_size=1000)) as cat:
        found = cat.captures("*", where="kind = 'kind7'")
        count = found.to_arrow().num_rows
        assert count == long_kinds().column("kind").to_pylist().count("kind7")
        parts = cat.session.store.count("indexes")
        assert parts == 16


def test_plan_names_a_harvest_of_values() -> None:
    with dataset_of({"a.parquet": write(long_kinds(), row_group_size=1000)}) as cat:
        (advice,) = [each for each in cat.captures("*", where="kind = 'rare'").plan.warnings if "--values" in each]
        assert advice.startswith("100 row groups may have matching values")
        assert advice.endswith("run: catalogue harvest --table t --values kind")
        cat.harvest(values="kind")
        plan = cat.captures("*", where="kind = 'rare'").plan
        assert (plan.row_groups, plan.ruled_out) == (2, 98)
        assert not [each for each in plan.warnings if "--values" in each]


def test_values_that_contradict_bounds_are_not_used() -> None:
    def edit(made: object) -> None:
        for group in range(ROWS // GROUP):
            statistics = made.statistics(group, 1)  # type: ignore[attr-defined]
            if 6 in statistics:
                statistics[6] = (statistics[6][0], b"aaaa")
            for deprecated in (1, 2):
                statistics.pop(deprecated, None)

    with dataset_of({"a.parquet": edited(by_pyarrow(), edit)}) as cat:
        cat.harvest(values="kind")
        assert cat.sql("SELECT count(value) FROM column_values").fetchall() == [(0,)]
        assert cat.captures("*", where="kind LIKE '%are%'").count() == 2


@pytest.fixture
def with_values(mirror: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")

    def make(folder: Path) -> Path:
        with catalogue.open(folder, settings=settings, progress=False) as cat:
            cat.harvest(CRAWL, subsets="all", values="all")
        return folder

    data = shutil.copytree(once(tmp_path_factory, "values of columns", make), tmp_path / "data")
    with catalogue.open(data, settings=settings, progress=False) as cat:
        yield cat


@pytest.mark.parametrize("damage", ["deleted", "cut", "flipped"])
def test_damaged_values_are_made_again(with_values: Catalogue, damage: str) -> None:
    (path,) = (with_values.session.data / TABLES_FOLDER).glob("*.values.parquet")
    before = path.read_bytes()
    with_values.close()
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(before[:-7] if damage == "cut" else before[:99] + bytes([before[99] ^ 8]) + before[100:])
    with catalogue.open(with_values.session.data, settings=with_values.session.settings) as cat:
        plan = cat.captures("*", mime="no/where", crawls=CRAWL, index="columnar").plan
        assert plan.row_groups == 0
        assert path.read_bytes() == before


def test_refresh_and_forget_remove_values(with_values: Catalogue) -> None:
    folder = with_values.session.data / TABLES_FOLDER
    assert [*folder.glob("*.values.parquet")]
    with_values.forget(CRAWL)
    assert not [*folder.glob("*.parquet")]
    with pytest.warns(catalogue.IncompleteAnswer, match="nothing is stored for the view column_values yet"):
        assert with_values.sql("SELECT count(*) FROM column_values").fetchall() == [(0,)]


def test_interrupted_harvest_continues(mirror: Path, tmp_path: Path) -> None:
    source = shutil.copytree(mirror, tmp_path / "source")
    with catalogue_in(tmp_path, source) as cat:
        cat.harvest(CRAWL)
        path = sorted(source.glob(f"cc-index/**/crawl={CRAWL}/subset=warc/*.parquet"))[1]
        path.rename(tmp_path / "away")
        _, first = cat.harvest(CRAWL, values="content_languages")
        assert [*first.failures] == [str(path.relative_to(source))]
        (tmp_path / "away").rename(path)
        _, second = cat.harvest(CRAWL, values="content_languages")
        assert not second.failures
        assert len(first.fetched) + len(second.fetched) == second.progress.listed == second.progress.done
        assert not {*first.fetched} & {*second.fetched}


def test_check_compares_dictionary_pages(with_values: Catalogue) -> None:
    assert with_values.check(read_subset="100%").complete
    store = with_values.session.store
    for file in with_values.session.metadata().files(CRAWL):
        assert file.stored
        found = store.indexes(file.path, file.ordinals, file.stored)
        pages = {
            ordinal: Indexes(dictionaries={name: data[:-1] + b"?" for name, data in each.dictionaries.items()})
            for ordinal, each in found.items()
        }
        store.add_indexes(file.path, pages, file.stored)
    checked = with_values.check(read_subset="100%")
    assert {finding.kind for finding in checked.findings} == {"indexes"}


def test_snapshots_contain_values(with_values: Catalogue, tmp_path: Path) -> None:
    with_values.export_snapshot(tmp_path / "snapshot")
    assert (tmp_path / "snapshot" / MANIFEST).exists()
    rows = "SELECT * FROM column_values ORDER BY ALL"
    expected = with_values.sql(rows).fetchall()
    assert expected
    settings = replace(with_values.session.settings, cache=tmp_path / "other-cache")

    def stop(progress: Progress) -> None:
        if progress.done:
            raise KeyboardInterrupt

    with catalogue.open(tmp_path / "other", settings=settings, progress=False) as cat:
        cat.harvest(CRAWL, subsets="all")
        with pytest.raises(KeyboardInterrupt):
            cat.pull(str(tmp_path / "snapshot"), report=stop)
        cat.pull(str(tmp_path / "snapshot"))
        assert cat.sql(rows).fetchall() == expected


def test_names_columns_without_values(with_values: Catalogue) -> None:
    assert with_values.harvest(CRAWL, values="url")[1].summary.endswith("in dictionary pages, so none are stored")
    with pytest.raises(UnknownColumn, match="did you mean content_languages"):
        with_values.harvest(CRAWL, values="content_language")
    with pytest.raises(QueryError, match="need not be stored"):
        with_values.harvest(CRAWL, values="url_surtkey")
    with pytest.raises(QueryError, match="values are in the columnar index"):
        with_values.harvest(CRAWL, values="all", index="cdx")


def test_reads_deciding_columns_before_keys_and_counts_without_keys() -> None:
    with expensive_bytes(write(long_kinds(), row_group_size=20_000, use_dictionary=["kind"])) as cat:
        found = cat.captures("*", where="kind = 'rare'")
        first, second = found.plan.waves
        assert {part.column for fetch in first for part in fetch.parts} == {"kind"}
        assert {part.column for fetch in second for part in fetch.parts} == {KEY}
        assert found.to_arrow().num_rows == 3
        (only,) = found.counting().plan.waves
        assert {part.column for fetch in only for part in fetch.parts} == {"kind"}
        assert found.count() == 3


def test_row_groups_with_a_rare_value_take_few_requests() -> None:
    groups, group = 16, 60_000
    kinds = [f"kind{row % 60}" for row in range(group)] * groups
    kinds[355_500] = kinds[355_501] = "rare"
    data = write(
        pa.table({KEY: [f"key{row:06}" for row in range(groups * group)], "kind": kinds}),
        row_group_size=group,
        data_page_size=10_000,
        write_batch_size=500,
        write_page_index=True,
    )
    sizes = pq.ParquetFile(BytesIO(data)).metadata.row_group(5)
    keys, deciding = (sizes.column(column).total_compressed_size for column in (0, 1))
    with expensive_bytes(data) as cat:
        cat.harvest(values="kind")
        found = cat.captures("*", where="kind = 'rare'")
        assert found.plan.ruled_out == groups - 1

        def cost(read: Callable[[], int]) -> tuple[int, int]:
            requests, received = cat.requests, cat.bytes
            assert read() == 2
            return cat.requests - requests, cat.bytes - received

        # Positions of pages without their bounds, all of the deciding column, the page of the keys and the end pages.
        requests, received = cost(lambda: found.to_arrow().num_rows)
        assert (requests, received < keys) == (1 + 1 + 2, True)
        # The plan expects one page with the value, and not that every second page has it.
        planned = cat.captures("*", where="kind = 'rare'").plan
        assert (planned.estimated, planned.exact) == (True, False)
        requests, received = cost(lambda: found.to_arrow().num_rows)
        assert (requests, 0.5 < planned.bytes / received < 2) == (planned.requests, True) == (1 + 2, True)
        requests, received = cost(found.count)
        assert (requests, received - deciding in range(20)) == (1, True)


@pytest.mark.in_part(3)  # each width first, once with statistics
@pytest.mark.parametrize("first", ["int32", "int64"])
@pytest.mark.parametrize("statistics", [False, True])
def test_files_may_have_integers_of_different_widths(first: str, statistics: bool) -> None:  # noqa: FBT001
    second = {"int32": "int64", "int64": "int32"}[first]
    numbers = {"a": [0, 1, 2] * 100, "b": [0, 9, 5, 7] * 75}
    files = {
        f"{name}.parquet": write(
            pa.table({KEY: [f"{name}{row:03}" for row in range(300)], "number": pa.array(numbers[name], kind)}),
            write_statistics=statistics,
        )
        for name, kind in (("a", first), ("b", second))
    }
    with dataset_of(files) as cat:
        cat.harvest(values="number")
        for value in part_of(range(11), 3):
            expected = sum(some.count(value) for some in numbers.values())
            assert cat.captures("*", where=f"number = {value}").count() == expected, value
