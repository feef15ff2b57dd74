"""The rows of a result are in one order, whichever index answers."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalogue import Catalogue
from catalogue.cdx.lines import COLUMNS
from catalogue.commoncrawl.crawls import KEY_COLUMN, SUBSETS, newest_first
from catalogue.surt.pattern import parse_pattern
from tests.read.test_answers import Scan, random_patterns
from tests.support.amounts import COMPLETE, EXAMPLES
from tests.support.catalogues import catalogue_in
from tests.support.crawls import BARE, CRAWL, crawl_of, harvest_footers, table
from tests.support.memory import arrow_below
from tests.support.mirrors import whole_table

NAMES = [name for name in COLUMNS if name not in {"crawl", "subset"}]
CONDITIONS = [
    *["true"] * 4,
    "fetch_status >= 300",
    "warc_record_length < 900",
    "content_languages IS NULL OR fetch_redirect IS NOT NULL",
    "fetch_time >= TIMESTAMPTZ '2022-08-10 00:00:00+00'",
]

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def scan(whole_mirror: Path) -> Iterator[Scan]:
    made = Scan(whole_table(whole_mirror, [*NAMES, "url_host_name", "crawl", "subset"]))
    with made.connection:
        yield made


def inorder(rows: pa.Table, columns: Sequence[str]) -> list[Row]:
    """Sort rows as documented; return these columns, crawl and subset."""
    crawls = newest_first(rows["crawl"].to_pylist())
    others = sorted((name for name in columns if name != "url_surtkey"), key=lambda name: name != "fetch_time")

    def place(row: dict[str, Any]) -> Row:
        values = (value.encode() if isinstance(value := row[name], str) else value for name in others)
        known = tuple((value is None, value or 0) if value is None else (False, value) for value in values)
        return (crawls.index(row["crawl"]), SUBSETS.index(row["subset"]), row["url_surtkey"].encode(), *known)

    return [tuple(row[name] for name in (*columns, "crawl", "subset")) for row in sorted(rows.to_pylist(), key=place)]


def rows_of(rows: pa.Table) -> list[Row]:
    return [*zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def test_both_indexes_return_the_rows_of_a_scan_in_order(columnar: Catalogue, crawls: list[str], scan: Scan) -> None:
    chance = random.Random(1)
    found = ties = 0
    count = EXAMPLES if COMPLETE else 5
    there: dict[str, set[str]] = {crawl: set() for crawl in crawls}
    for row in scan.everything.group_by(["crawl", "subset"]).aggregate([]).to_pylist():
        there[row["crawl"]].add(row["subset"])
    texts = list(random_patterns(scan.everything, 2 * count, seed=1))
    for number in range(count):
        patterns = texts[number : number + chance.choice([1, 1, 1, 3])]
        subsets: Sequence[str] = ((), [*SUBSETS], ["robotstxt", "warc"], ["crawldiagnostics"])[number % 4]
        some = chance.choice([crawls, chance.sample(crawls, 2), [chance.choice(crawls)]])
        some = [crawl for crawl in some if not {*subsets}.isdisjoint(there[crawl])] if subsets else some
        some = some or [crawl for crawl in crawls if not {*subsets}.isdisjoint(there[crawl])]
        columns = chance.sample(NAMES, chance.randrange(1, len(NAMES)))
        condition = chance.choice(CONDITIONS)
        rows = scan([parse_pattern(text) for text in patterns], condition)
        kept = [
            crawl in some and (not subsets or subset in subsets)
            for crawl, subset in zip(rows["crawl"].to_pylist(), rows["subset"].to_pylist(), strict=True)
        ]
        expected = inorder(rows.filter(pa.array(kept, pa.bool_())), columns)
        words: dict[str, Any] = {"crawls": some, "subsets": subsets or "all", "columns": columns}
        words |= {"where": condition} if condition != "true" else {}
        limit = chance.randrange(chance.choice([10, len(expected) + 2]))
        schemas: list[pa.Schema] = []
        for index in ("columnar", "cdx"):
            every = columnar.captures(patterns, **words, index=index)
            schemas.append(every.schema)
            assert rows_of(every.to_arrow().cast(every.schema)) == expected, (patterns, words, index)
            assert every.count_by_crawl() == Counter(row[-2] for row in expected)
            first = columnar.captures(patterns, **words, index=index, limit=limit).to_arrow()
            assert rows_of(first) == expected[:limit], (patterns, words, index, limit)
        assert schemas[0] == schemas[1]
        found += len(expected)
        if "url_surtkey" in columns:
            ties += len(expected) - len({(row[columns.index("url_surtkey")], *row[-2:]) for row in expected})
    assert found > count
    assert ties


def part(keys: Sequence[str], **more: pa.Array) -> pa.Table:
    return table(keys, **more).select([KEY_COLUMN, "url"])


def place_of(row: Row) -> Row:
    key, url = row[:2]
    return key.encode(), url.encode()


def all_rows(*tables: pa.Table) -> list[Row]:
    return [(*row, CRAWL, "warc") for each in tables for row in rows_of(each)]


@contextmanager
def harvested(folder: Path, *tables: pa.Table, **options: Any) -> Iterator[Catalogue]:
    crawl_of(folder / "mirror", *tables, **options)
    with catalogue_in(folder, folder / "mirror", bandwidth=1e4) as cat:
        harvest_footers(cat)
        yield cat


def first_rows(cat: Catalogue, limit: int | None) -> list[Row]:
    return rows_of(cat.captures("*", columns=[KEY_COLUMN, "url"], index="columnar", limit=limit).to_arrow())


@pytest.mark.in_part(2)
@pytest.mark.parametrize("page_index", [False, True])
def test_streams_that_are_zipped_in_files(tmp_path: Path, *, page_index: bool) -> None:
    chance = random.Random(3)
    tables = []
    for number in range(4):
        streams = [[f"com,{letter}{number})/{at:04}" for at in range(300)] for letter in "bt"]
        tables.append(part([key for pair in zip(*streams, strict=True) for key in pair]))
    chance.shuffle(tables)
    expected = sorted(all_rows(*tables), key=place_of)
    with harvested(tmp_path, *tables, row_group_size=100, write_page_index=page_index, data_page_size=500) as cat:
        every = cat.captures("*", columns=[KEY_COLUMN, "url"], index="columnar").fetch_indexes()
        before = cat.requests
        assert first_rows(cat, 1) == expected[:1]
        assert cat.requests - before < every.requests
        for limit in (None, 1, 60, 1300):
            assert first_rows(cat, limit) == expected[:limit]


def test_files_that_overlap(tmp_path: Path) -> None:
    """Of rows with equal keys, those without a time come last."""
    times = pa.array([None, 1, 2] * 100, pa.timestamp("ms", "UTC"))
    rows = table([f"com,example)/{at // 3:03}" for at in range(300)], fetch_time=times)
    columns = [KEY_COLUMN, "fetch_time", "url"]
    tables = [rows.select(columns).slice(start, 200) for start in (0, 100)]
    expected = sorted(chain(*map(rows_of, tables)), key=lambda row: (row[0], row[1] is None, *row[1:]))
    with harvested(tmp_path, *tables, row_group_size=25) as cat:
        found = cat.captures("*", columns=columns, index="columnar").to_arrow()
        assert rows_of(found.select(columns)) == expected


def test_row_groups_without_bounds(tmp_path: Path) -> None:
    """Their rows may come before all others, until a backfill."""
    tables = [part([f"com,example{number})/{at:03}" for at in range(100)]) for number in (2, 0, 1)]
    expected = sorted(all_rows(*tables), key=place_of)
    with harvested(tmp_path, *tables, row_group_size=25, write_statistics=False, write_page_index=False) as cat:
        everything, first = (
            cat.captures("*", columns=[KEY_COLUMN, "url"], limit=limit).plan.requests for limit in (None, 1)
        )
        assert first == everything
        for limit in (None, 1, 110):
            assert first_rows(cat, limit) == expected[:limit]
        assert not cat.backfill().run().failures
        for limit in (None, 1, 110):
            assert first_rows(cat, limit) == expected[:limit]
        assert cat.captures("example1.com/*", columns=[KEY_COLUMN, "url"]).plan.requests < everything


def test_large_row_group_in_another_order(tmp_path: Path) -> None:
    """Its keys are decoded in several parts, after which the rows of an older crawl follow."""
    keys = [f"com,example)/{letter}{at:05}" for letter in "bac" for at in range(70_000)]
    crawl_of(tmp_path / "mirror", part(["com,older)/"]), crawl=BARE)
    with harvested(tmp_path, part(keys), write_statistics=False, write_page_index=False) as cat:
        harvest_footers(cat, BARE)
        for where in (None, "url <> ''"):
            for limit in (None, len(keys) + 1):
                captures = cat.captures("*", columns=[KEY_COLUMN], where=where, limit=limit, index="columnar")
                assert captures.to_arrow()[KEY_COLUMN].to_pylist() == [*sorted(keys), "com,older)/"]
                assert captures.count() == len(keys) + 1
            assert not cat.backfill().run().failures
        assert cat.captures("example.com/a*", index="columnar").count() == 70_000


def test_rows_that_wait_take_little_memory(tmp_path: Path) -> None:
    """Half of some 150 MB waits in a file for the end of all files; rows with equal keys are sorted by URL."""
    tables: list[pa.Table] = []
    expected: list[tuple[str, str]] = []
    for number in range(4):
        keys = [f"com,{letter}{number})/{at // 2:04}" for at in range(300) for letter in "bt"]
        urls = [f"https://example.com/{number}{999 - at:04}{'x' * 60_000}" for at in range(len(keys))]
        tables.append(part(keys, url=pa.array(urls)))
        expected += zip(keys, (url[:25] for url in urls), strict=True)
    with harvested(tmp_path, *tables, row_group_size=100, compression="zstd") as cat:
        found = cat.captures("*", columns=[KEY_COLUMN, "url"], index="columnar")
        rows = list[Row]()
        for batch in arrow_below(110 << 20, found.batches()):
            rows += zip(*(batch.column(name).to_pylist() for name in (KEY_COLUMN, "url")), strict=True)
        assert [(key, str(url)[:25]) for key, url in rows] == sorted(expected)


def test_rows_of_later_subsets_of_blocks_wait(columnar: Catalogue, crawls: list[str]) -> None:
    """The first rows come before the blocks of the crawl are read."""
    found = columnar.captures("*", crawls=crawls, subsets="all", index="cdx", columns=[KEY_COLUMN], limit=5)
    reads = found.fetch_indexes().block_count
    before = columnar.requests
    assert {row["subset"] for row in found} == {"warc"}
    assert columnar.requests - before <= 2
    assert reads > 2
