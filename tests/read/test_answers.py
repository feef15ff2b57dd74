"""Pruned and filtered queries equal full scans, for every era of the index."""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import catalogue
from catalogue import Catalogue, Match
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.settings import Settings
from catalogue.surt.interval import covers
from catalogue.surt.pattern import Pattern, parse_pattern
from tests.support.amounts import EXAMPLES
from tests.support.mirrors import whole_table

PATTERNS = EXAMPLES // 2
IDENTITY = ["url_surtkey", "url", "fetch_time", "warc_filename", "warc_record_offset", "crawl", "subset"]
LEAST = ["url_surtkey", "warc_record_offset", "crawl", "subset"]
"""What tells rows apart where many chunks are read, and the test is of which rows are found."""
SOME = ["*.example.com", "*.net"]
"""They are in a quarter of the row groups, of every era: of more there would be more of the same."""

Row = tuple[object, ...]


def rows_of(table: pa.Table, names: list[str] = IDENTITY) -> Counter[Row]:
    columns = (table.column(name) for name in names)
    # Times as the numbers they are: Python's take longer to make than many an answer.
    plain = (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in columns)
    return Counter(zip(*(each.to_pylist() for each in plain), strict=True))


def in_order(table: pa.Table, names: list[str] = IDENTITY) -> pa.Table:
    """Some columns of all rows, so that two tables with the same rows are equal; faster than ``rows_of`` for many."""
    numbers_first = sorted(names, key=lambda name: name != "warc_record_offset")  # hardly any row is another's equal
    return table.select(names).sort_by([(name, "ascending") for name in numbers_first]).combine_chunks()


def scanned(everything: pa.Table, patterns: list[Pattern]) -> pa.Table:
    """The rows whose keys the patterns take, found by looking at every one."""
    keys = everything.column("url_surtkey").to_pylist()
    mask = [any(covers(pattern.intervals, key.encode()) for pattern in patterns) for key in keys]
    return everything.filter(pa.array(mask))


class Scan:
    """``scanned``, for many patterns or questions: keys are compared by Python, and conditions judged by DuckDB."""

    def __init__(self, everything: pa.Table) -> None:
        self.everything = everything.combine_chunks()
        self.schema = everything.schema
        keys = everything.column("url_surtkey").to_pylist()
        by_key = sorted((key.encode(), row) for row, key in enumerate(keys))
        self.keys, self.rows = [key for key, _ in by_key], [row for _, row in by_key]
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'; SET threads = 1")

    def __call__(self, patterns: list[Pattern], condition: str = "true", columns: list[str] | None = None) -> pa.Table:
        rows: set[int] = set()
        for interval in (interval for pattern in patterns for interval in pattern.intervals):
            first, stop = (bisect_left(self.keys, key) for key in (interval.start, interval.end))
            rows.update(self.rows[first:stop])
        everything = self.everything.select(columns) if columns else self.everything
        found = everything.take(pa.array(sorted(rows), pa.int64()))
        if condition == "true":
            return found
        return self.connection.from_arrow(found).filter(condition).to_arrow_table().cast(self.schema)


def random_patterns(everything: pa.Table, count: int, seed: int) -> Iterator[str]:
    """Patterns of every kind, most of which match something."""
    chance = random.Random(seed)
    urls = everything.column("url").to_pylist()
    hosts = sorted(set(everything.column("url_host_name").to_pylist()))
    kinds: list[Callable[[], str]] = [
        lambda: chance.choice(urls),
        lambda: chance.choice(urls).upper().replace("HTTP://", "http://").replace("HTTPS://", "https://"),
        lambda: chance.choice(urls).partition("://")[2] or "example.com",
        lambda: chance.choice(urls).split("?")[0].split("#")[0].rpartition("/")[0] + "/*",
        lambda: chance.choice(urls).split("?")[0].split("#")[0][: chance.randint(20, 60)].rstrip("%") + "*",
        lambda: chance.choice(hosts) + "/*",
        lambda: "*." + chance.choice(hosts),
        lambda: "*." + ".".join(chance.choice(hosts).split(".")[-2:]),
        lambda: "*." + chance.choice(["com", "org", "is", "de", "uk", "co.uk", "net", "museum"]),
        lambda: "*." + chance.choice(["example.com", "example-shop.com", "example0.com", "com"]),
        lambda: f"no-such-{chance.randrange(10**6)}.example.net/*",
    ]
    made = 0
    while made < count:
        text = kinds[made % len(kinds)]()
        try:
            parse_pattern(text)
        except ValueError:  # an IPv6 host with a *. before it, for one, is no pattern
            text = "*.example.com"
        yield text
        made += 1


@pytest.fixture(scope="module")
def scan(all_rows: pa.Table) -> Iterator[Scan]:
    made = Scan(all_rows)
    with made.connection:
        yield made


@pytest.fixture(scope="module")
def two(
    whole_data: Path, whole_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Catalogue, Catalogue]]:
    """Return catalogues of all files: one with footers, and one after a backfill."""
    data, other = (copytree(whole_data, tmp_path_factory.mktemp(name) / "data") for name in ("plain", "backfilled"))
    with (
        catalogue.open(data, settings=whole_settings) as plain,
        catalogue.open(other, settings=whole_settings) as backfilled,
    ):
        assert not backfilled.backfill().run().failures
        yield plain, backfilled


@pytest.fixture(scope="module")
def whole_scan(whole_mirror: Path) -> Iterator[Scan]:
    made = Scan(whole_table(whole_mirror, [*LEAST, "url", "url_host_name"]))
    with made.connection:
        yield made


def test_pruned_query_equals_full_scan(whole_scan: Scan, two: tuple[Catalogue, Catalogue]) -> None:
    """Of all crawls as one table, with and without backfill, which saves bytes."""
    plain, backfilled = two
    before, after = Counter[str](), Counter[str]()
    found_something = 0
    columns = [*LEAST, "url"]  # the last tells whether columns' pages go together
    texts = list(random_patterns(whole_scan.everything, PATTERNS, seed=7))
    for text in texts[::2]:
        plan = plain.captures(text, columns=columns, subsets="all").fetch_indexes()
        before.update(row_groups=plan.row_groups, requests=plan.requests, bytes=plan.bytes)
    for number, text in enumerate(texts):
        expected = in_order(whole_scan([parse_pattern(text)], columns=columns), columns)
        found_something += bool(expected.num_rows)
        found = backfilled.captures(text, columns=columns, subsets="all")
        answer = found.to_arrow()
        assert in_order(answer, columns).equals(expected), text
        if number % 2:
            assert plain.captures(text, columns=columns, subsets="all").to_arrow() == answer, f"the order of {text}"
        else:
            plan = found.plan
            after.update(row_groups=plan.row_groups, requests=plan.requests, bytes=plan.bytes)
    assert found_something > PATTERNS / 2
    assert after["row_groups"] < before["row_groups"]
    assert after["bytes"] < before["bytes"]


@pytest.mark.in_part(4)
@pytest.mark.parametrize("match", list(Match))
def test_explicit_matches_equal_full_scans(harvested: Catalogue, scan: Scan, match: Match) -> None:
    for text in ("example.com", "http://www.example.com/dir/", "https://shop.example.com/a?b=1", "192.168.1.1"):
        expected = rows_of(scan([parse_pattern(text, match)], columns=IDENTITY))
        assert rows_of(harvested.captures(text, match=match, columns=IDENTITY, subsets="all").to_arrow()) == expected


def test_returns_every_column_of_every_era(harvested: Catalogue, all_rows: pa.Table, scan: Scan) -> None:
    """All columns have values here that have any."""
    found = harvested.captures(SOME, columns=SCHEMA.names, subsets="all").to_arrow()
    assert found.schema == SCHEMA
    assert in_order(found, SCHEMA.names).equals(in_order(scan([*map(parse_pattern, SOME)]), SCHEMA.names))
    eras = ["crawl", "subset"]
    assert found.group_by(eras).aggregate([]).num_rows == all_rows.group_by(eras).aggregate([]).num_rows
    empty = [{name for name in SCHEMA.names if not pc.count(each.column(name)).as_py()} for each in (found, all_rows)]
    assert empty[0] == empty[1]


CONDITIONS = [
    "fetch_status >= 400 AND content_mime_detected = 'text/html'",
    "fetch_status IN (301, 302) OR content_languages LIKE '%deu%'",
    *("NOT (fetch_status = 200)", "content_languages IS NULL", "starts_with(url_host_name, 'shop.')"),
    "url_surtkey BETWEEN 'com,example)/a' AND 'com,example)/n'",
    *("warc_record_length BETWEEN 100 AND 900", "url_port = 8080", "crawl < 'CC-MAIN-2020' AND subset = 'warc'"),
    "fetch_time >= TIMESTAMPTZ '2022-01-20 00:00:00+00'",
    "url_host_registered_domain IN ('example.com', 'example.org', 'nowhere.example')",
    "content_digest < 'C' AND content_digest >= 'A'",
]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_where_equals_full_scans(harvested: Catalogue, scan: Scan, condition: str) -> None:
    """Of patterns that take turns, unless nothing of one is so."""
    turns = sorted(SOME, reverse=CONDITIONS.index(condition) % 2 == 1)
    each = ((text, scan([parse_pattern(text)], condition)) for text in turns)
    text, expected = next((text, expected) for text, expected in each if expected.num_rows)
    found = harvested.captures(text, where=condition, columns=LEAST, subsets="all")
    assert in_order(found.to_arrow(), LEAST).equals(in_order(expected, LEAST))


def test_orders_by_key_time_and_crawl(harvested: Catalogue) -> None:
    found = harvested.captures("*.example.com", ordered=True, columns=["url"], subsets="all").to_arrow()
    full = harvested.captures(
        "*.example.com", ordered=True, columns=["url_surtkey", "fetch_time"], subsets="all"
    ).to_arrow()
    order = list(zip(*(full.column(name).to_pylist() for name in ("url_surtkey", "fetch_time", "crawl")), strict=True))
    assert order == sorted(order, key=lambda row: (row[0].encode(), row[1], row[2]))
    assert found.schema.names == ["url", "crawl", "subset"]
    assert found.num_rows == full.num_rows > 100
    first = harvested.captures(
        "*.example.com", ordered=True, limit=9, columns=["url_surtkey", "fetch_time"], subsets="all"
    )
    assert first.plan.exact
    assert first.to_arrow() == full.slice(0, 9)


def test_exact_url_matches_the_typed_url(harvested: Catalogue, all_rows: pa.Table) -> None:
    urls = [url for url in all_rows.column("url").to_pylist() if url.startswith("http")]
    for url in random.Random(2).sample(urls, 5):
        found = (
            harvested.captures(url, exact_url=True, columns=["url"], subsets="all").to_arrow().column("url").to_pylist()
        )
        assert found == [url] * urls.count(url)
