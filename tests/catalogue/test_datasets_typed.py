"""Datasets other than Common Crawl's index: patterns, path lists, definitions and column types."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue, Match, QueryError
from catalogue.commoncrawl.datasets import Dataset, dataset_from_json, define_dataset, parse_path_list, path_columns
from catalogue.errors import BadManifest, FormatError, UnknownCrawl
from catalogue.surt.pattern import Keys, parse_key_pattern
from tests.support.commands import Command
from tests.support.hosts import opened


def test_parses_patterns_of_hosts() -> None:
    def keys(text: str, match: Match | None = None) -> list[tuple[bytes, bytes]]:
        return [(each.start, each.end) for each in parse_key_pattern(text, Keys.HOST, match).intervals]

    exact = [(b"com,example", b"com,example\0")]
    assert keys("example.com") == keys("http://EXAMPLE.com/") == keys(" example.com ") == exact
    assert keys("com,example") == exact
    assert keys("www.example.com") == [*exact, (b"com,example,www", b"com,example,www\0")]
    below = [(b"com,example", b"com,example\0"), (b"com,example,", b"com,example-")]
    assert keys("*.example.com") == keys("example.com", Match.DOMAIN) == below
    assert keys("*.is") == [(b"is", b"is\0"), (b"is,", b"is-")]
    assert keys("com,ex*") == keys("com,ex", Match.PREFIX) == [(b"com,ex", b"com,ey")]
    assert keys("*") == [(b"", b"\xff")]
    for text in ("", "  ", "example.com/page", "exa*mple.com", "example.com:80", "*.*", "*."):
        with pytest.raises(QueryError, match=r"invalid (pattern|host)|not a pattern|is not valid"):
            keys(text)
    for match in (Match.EXACT, Match.HOST):
        with pytest.raises(QueryError, match=r"invalid (pattern|host)|not a pattern|is not valid"):
            keys("*.example.com", match)
    with pytest.raises(QueryError, match="use exact or prefix for"):
        keys("com,example", Match.DOMAIN)


def test_parses_patterns_of_text() -> None:
    def keys(text: str, match: Match | None = None) -> list[tuple[bytes, bytes]]:
        return [(each.start, each.end) for each in parse_key_pattern(text, Keys.TEXT, match).intervals]

    assert keys("a b") == [(b"a b", b"a b\0")]
    assert keys("a*b*") == [(b"a*b", b"a*c")]
    assert keys("a*", Match.EXACT) == [(b"a*", b"a*\0")]
    assert keys("é*") == [("é".encode(), b"\xc3\xaa")]
    with pytest.raises(QueryError, match="names of hosts"):
        keys("a", Match.HOST)


def test_parses_path_lists() -> None:
    assert parse_path_list(b"a/b.parquet\r\n\n# more\nc/\na/b.parquet\n/d\n") == ("a/b.parquet", "d")
    assert parse_path_list(gzip.compress(b"s3://b/x/a\n"), source="s3://b/x") == ("a",)
    assert parse_path_list(gzip.compress(b"a\n") + gzip.compress(b"b\n")) == ("a", "b")  # two lists, by cat
    for bad in (b"", b"# none", b"a/../b", b"https://other/a", b"a\x00", b"\x1f\x8bno", b"a//b", b"-/./x", b"a\n\xff"):
        with pytest.raises(BadManifest):
            parse_path_list(bad)
    names = ("a b", " c ", "t=2024-01-01 00%3A00", "a&b:(1)#?'\"", "é", "x y/z")
    assert parse_path_list("\n".join(names).encode()) == names
    address = "http://host/files/"
    assert parse_path_list(f"{address}a%20b%253A\n".encode(), source=address) == ("a b%3A",)
    assert parse_path_list(b"\xef\xbb\xbfa\nd") == ("a", "d")
    assert path_columns(["x/crawl=A/subset=b/c", "crawl=B/d"]) == ("crawl",)
    assert path_columns(["x/crawl=/c"]) == path_columns(["crawl=A"]) == path_columns([]) == ()


def test_derives_crawl_and_subset_from_paths() -> None:
    table = define_dataset("mine", "name")
    assert table.keys is Keys.TEXT
    file = table.file("x/crawl=A/subset=b/c")
    assert file
    assert (file.crawl, file.subset) == ("A", "b")
    file = table.file("x/c")
    assert file
    assert (file.crawl, file.subset) == ("mine", "all")
    assert table.file("x/../c") is None


def test_definition_json_roundtrip() -> None:
    table = Dataset("mine", "name", Keys.HOST, ("crawl",), "list.gz")
    assert dataset_from_json(table.to_json()) == table
    for bad in (
        b"",
        b"[]",
        b"{}",
        b'{"name": "../x", "key": "k", "keys": "url", "manifest": null, "path_columns": []}',
        b'{"name": "x", "key": "k", "keys": "%s", "manifest": null, "path_columns": []}' % (b"{" * 5000),
    ):
        with pytest.raises(FormatError, match=r"is invalid \(.{0,300}\)\Z"):
            dataset_from_json(bad)


def types_of(folder: Path, name: str, **columns: pa.Array) -> None:
    length = len(next(iter(columns.values())))
    rows = pa.table({"k": [f"{name}{n:02}" for n in range(length)], **columns})
    (folder / "t").mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "t" / name)


@contextmanager
def harvested(folder: Path, *paths: str) -> Iterator[Catalogue]:
    with opened(folder / "data", folder / "source", "t") as cat:
        cat.define("k", paths=paths)
        cat.harvest()
        yield cat


def test_filters_compare_by_column_type(tmp_path: Path) -> None:
    times = [datetime(2022, 1, day, 3, 4, 5, 678901) for day in (1, 2, 10)]  # noqa: DTZ001 - naive on purpose
    columns: dict[str, pa.Array] = {
        "price": pa.array([Decimal("1.40"), Decimal("1.44"), Decimal("12.00")], pa.decimal128(7, 2)),
        "small": pa.array([9, 10, 200], pa.uint8()),
        "huge": pa.array([1, 2, 2**64 - 1], pa.uint64()),
        "known": pa.array([1, None, 2**64 - 1], pa.uint64()),
        "day": pa.array([time.date() for time in times]),
        "moment": pa.array(times, pa.timestamp("us")),
        "instant": pa.array(times, pa.timestamp("ns", "UTC")),
        "yes": pa.array([True, False, None]),
        "half": pa.array([0.5, 1.5, float("nan")], pa.float16()),
        "raw": pa.array([b"\xff", b"", None]),
    }
    types_of(tmp_path / "source", "a", **columns)
    with harvested(tmp_path, "t/a") as cat:
        found = cat.captures("*").to_arrow()
        assert int(cat.captures("*").to_pandas()["known"][2]) == 2**64 - 1
        kinds = {"small": pa.int64(), "half": pa.float32()}
        for name, column in columns.items():
            assert found.schema.field(name).type == kinds.get(name, column.type), name
        for where, expected in [
            *(("price = 1.4", 1), ("price < 2", 2), ("small > 9", 2), ("huge > 5", 1)),
            *(("day < DATE '2022-01-09'", 2), ("moment > TIMESTAMP '2022-01-02 03:04:05.6'", 2)),
            *(("instant >= '2022-01-10'", 1), ("yes", 1), ("half < 1", 1)),
        ]:
            assert cat.captures("*", where=where).count() == expected, where
            assert len(duckdb.from_arrow(found).filter(where).fetchall()) == expected, where


def test_schema_is_the_same_for_every_query(tmp_path: Path) -> None:
    source = tmp_path / "source"
    types_of(
        source, "a", n=pa.array([1, 2]), d=pa.array([Decimal("1.5"), None], pa.decimal128(3, 1)), t=pa.array(["x", "y"])
    )
    types_of(
        source,
        "b",
        n=pa.array(["01", "2"]),
        d=pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
        u=pa.array([1, 2]),
    )
    with harvested(tmp_path, "t/a", "t/b") as cat:
        schemas = {str(cat.captures(text).to_arrow().schema) for text in ("*", "a*", "b*", "none")}
        assert len(schemas) == 1
        assert cat.captures("*").to_arrow().schema.field("d").type == pa.decimal128(5, 2)
        assert cat.captures("a*", where="n = '1'").count() == cat.captures("*", where="n = '1'").count() == 1
        assert cat.captures("a*", columns=["u"]).to_arrow().column("u").null_count == 2


def test_null_columns_take_the_type_of_other_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    none = pa.nulls(2)
    times = pa.array([datetime(2022, 1, day) for day in (1, 2)], pa.timestamp("us", "UTC"))  # noqa: DTZ001 - of Arrow's zone
    types_of(source, "a", t=none, n=pa.array([1, 2]), d=none, empty=none)
    types_of(source, "b", t=times, n=none, d=pa.array([Decimal("1.5"), None]), empty=none)
    with harvested(tmp_path, "t/a", "t/b") as cat:
        found = cat.captures("*").to_arrow()
        kinds = {"k": pa.string(), "t": times.type, "n": pa.int64(), "d": pa.decimal128(2, 1), "empty": pa.string()}
        assert {field.name: field.type for field in found.schema} == kinds
        assert found.column("t").to_pylist() == [None, None, *times.to_pylist()]
        assert found.column("n").to_pylist() == [1, 2, None, None]
        for where, count in (("t > '2022-01-01'", 1), ("t IS NULL", 2), ("n = 2", 1), ("empty IS NULL", 4)):
            assert cat.captures("*", where=where).count() == count, where


def test_rejects_filters_on_columns_that_differ_in_case(tmp_path: Path) -> None:
    types_of(tmp_path / "source", "a", Status=pa.array([200, 404]))
    types_of(tmp_path / "source", "b", status=pa.array([200, 404]))
    with harvested(tmp_path, "t/a", "t/b") as cat:
        assert cat.captures("*").to_arrow().schema.names == ["k", "Status", "status"]
        with pytest.raises(QueryError, match="the columns Status and status differ only in letter case"):
            cat.captures("*", where="status = 200")
        with pytest.raises(QueryError, match=r"^unknown subset 'warc'; use all$"):
            cat.captures("*", subsets="warc")


def test_writes_dates_decimals_and_nan_as_json(tmp_path: Path) -> None:
    moment = pa.array([datetime(2022, 1, 2, 3, 4, 5, 600000)], pa.timestamp("us"))  # noqa: DTZ001 - naive on purpose
    price = pa.array([Decimal("1.40")], pa.decimal128(7, 2))
    none = pa.array([float("nan")])
    types_of(tmp_path / "source", "a", moment=moment, price=price, none=none, day=pa.array([date(2022, 1, 2)]))
    command = Command(tmp_path / "data", str(tmp_path / "source"), tmp_path)
    assert command("harvest", "--table", "t", "--key", "k", "t/a").status == 0
    (row,) = command("query", "*", "--table", "t").json_lines()
    assert row == {
        "k": "a00",
        "moment": "2022-01-02T03:04:05.600000",
        "price": "1.40",
        "none": None,
        "day": "2022-01-02",
    }
    assert command("query", "*", "--table", "t", "--format", "csv").status == 0


def test_harvests_crawls_and_subsets_of_paths(tmp_path: Path) -> None:
    source = tmp_path / "source"
    paths = ["a/crawl=CC-MAIN-2012/subset=train/f", "a/crawl=X/subset=warc/f", "a/mycrawl=X/crawl=Y/subset=b/f"]
    for number, path in enumerate(paths):
        (source / path).parent.mkdir(parents=True)
        pq.write_table(pa.table({"k": [f"k{number}"]}), source / path)
    with opened(tmp_path / "data", source, "t") as cat:
        cat.define("k", paths=paths)
        cat.harvest()
        found = cat.captures("*").to_arrow().to_pylist()
        assert sorted((row["k"], row["crawl"], row["subset"]) for row in found) == [
            ("k0", "CC-MAIN-2012", "train"),
            ("k1", "X", "warc"),
            ("k2", "Y", "b"),
        ]
        cat.harvest("X")
        assert cat.captures("*").count() == 3
        assert cat.captures("*", subsets="train").count() == 1
        assert cat.captures("*", subsets=["train, b"]).count() == 2
        assert cat.captures("*", subsets="all").count() == 3
        with pytest.raises(QueryError, match="unknown subset 'crawldiagnostics'; use b, train, warc or all"):
            cat.captures("*", subsets="crawldiagnostics")
        with pytest.raises(QueryError, match=r"^there is no column 'fetch_status'; there are k, crawl, subset$"):
            cat.captures("*", status=200)
        for call in (cat.harvest, lambda crawl: cat.captures("*", crawls=crawl)):
            with pytest.raises(UnknownCrawl, match="t has no 'Q'; it has"):
                call("Q")
        with pytest.raises(QueryError, match="only Common Crawl's index has a list of crawls"):
            cat.get("example.com", crawls="X")
        cat.define("k", paths=paths[:1])
        cat.harvest()
        assert cat.captures("*").count() == 1  # unlisted files are forgotten


def test_file_columns_and_path_columns_may_share_names(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for path, columns in [
        ("e/f", {"k": ["a", "b"], "crawl": [1, 2]}),
        ("e/g", {"k": ["c", "d"]}),
        ("c/crawl=Z/f", {"crawl": ["p", "q"], "n": [1, 2]}),
    ]:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), source / path)
    with opened(tmp_path / "data", source, "e") as cat:
        cat.define("k", paths=["e/f", "e/g"])
        cat.harvest()
        assert cat.captures("*").to_arrow().column("crawl").to_pylist() == [1, 2, None, None]
        assert cat.captures("*", where="crawl IS NULL").count() == 2
    with opened(tmp_path / "data", source, "c") as cat:
        cat.define("crawl", paths=["c/crawl=Z/f"])
        cat.harvest()
        assert cat.captures("*").to_arrow().to_pydict() == {"crawl": ["p", "q"], "n": [1, 2]}
        assert cat.captures("*").count() == 2
