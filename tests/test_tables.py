"""Tables other than Common Crawl's index: the same promises, by another key."""

import gzip
import random
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from shutil import copytree
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue, Match, QueryError
from catalogue.demo import LoopbackServer
from catalogue.errors import BadManifest, FormatError, NotHarvested, UnknownCrawl
from catalogue.settings import Settings
from catalogue.surt import Keys, covers, parse_key_pattern
from catalogue.table import INDEX, Table, define_table, parse_paths, path_columns, unpack_table
from tests.commands import Command

CRAWLS = ["CC-MAIN-2024-10", "CC-MAIN-2024-18"]


def host_keys(seed: int) -> list[str]:
    """Names of hosts turned round, sorted, a smattering of them out of order, as in the real one."""
    chance = random.Random(seed)
    names = {f"{chance.choice(['com', 'is', 'org'])},{''.join(chance.choices('abc', k=4))}" for _ in range(400)}
    names |= {f"{name},{chance.choice(['www', 'blog', 'a-b'])}" for name in sorted(names)[::3]}
    ordered = sorted(names)
    for _ in range(len(ordered) // 50):
        ordered.insert(chance.randrange(len(ordered)), ordered.pop(chance.randrange(len(ordered))))
    return ordered


def write_hosts(folder: Path) -> pa.Table:
    """A host index of two crawls, whose schemas differ; returns what is in it."""
    folder.mkdir(parents=True)
    every, paths = [], []
    for crawl in CRAWLS:
        for number in range(3):
            keys = host_keys(number)
            path = folder / "hosts" / f"crawl={crawl}" / f"part-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            rank = pa.int8() if crawl == CRAWLS[0] else pa.int64()
            rows = pa.table(
                {
                    "hcrank10": pa.array([len(key) % 7 + number for key in keys], rank),
                    "surt_host_name": keys,
                    "average": pa.array([len(key) / 2 for key in keys], pa.float32() if number else pa.float64()),
                }
            )
            if number == 2:
                rows = rows.append_column("only_here", pa.array([key.encode() for key in keys]))
            pq.write_table(rows, path, row_group_size=90, data_page_size=300, write_page_index=number != 1)
            paths.append(path.relative_to(folder))
            columns = {"only_here": pa.nulls(len(rows), pa.binary())} if number != 2 else {}
            every.append(
                pa.table(
                    {
                        "hcrank10": rows["hcrank10"].cast(pa.int64()),
                        "surt_host_name": rows["surt_host_name"],
                        "average": rows["average"].cast(pa.float64()),
                        "only_here": rows["only_here"] if number == 2 else columns["only_here"],
                        "crawl": pa.array([crawl] * len(rows)),
                    }
                )
            )
    (folder / "hosts.paths.gz").write_bytes(gzip.compress("\n".join(map(str, paths)).encode()))
    return pa.concat_tables(every)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    folder = tmp_path_factory.mktemp("hosts") / "source"
    return folder, write_hosts(folder)


def opened(data: Path, source: Path, table: str | None = "hosts") -> Catalogue:
    return catalogue.open(data, table=table, settings=Settings(source=str(source), cache=data / "cache"))


def rows_of(rows: pa.Table) -> Counter[tuple[object, ...]]:
    names = sorted(rows.column_names)
    return Counter(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def patterns(chance: random.Random, keys: list[str]) -> list[str]:
    def host() -> str:
        return ".".join(reversed(chance.choice(keys).split(",")))

    kinds: list[Callable[[], str]] = [
        host,
        lambda: f"*.{host()}",
        lambda: f"*.{chance.choice(['com', 'is', 'net'])}",
        lambda: chance.choice(keys),
        lambda: chance.choice(keys)[: chance.randint(4, 8)] + "*",
        lambda: f"https://www.{host()}/",
    ]
    return [chance.choice(kinds)() for _ in range(chance.randint(1, 3))]


@pytest.mark.parametrize("backfilled", [False, True])
def test_pruned_and_filtered_is_scanned_and_filtered(
    tmp_path: Path, hosts: tuple[Path, pa.Table], *, backfilled: bool
) -> None:
    folder, every = hosts
    keys = every.column("surt_host_name").to_pylist()
    chance = random.Random(7)
    with opened(tmp_path, folder) as cat:
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        cat.harvest()
        if backfilled:
            cat.backfill().run()
        found_something = 0
        for _ in range(10):
            typed = patterns(chance, keys)
            intervals = [each for text in typed for each in parse_key_pattern(text, Keys.HOST).intervals]
            mask = [any(covers([each], key.encode()) for each in intervals) for key in keys]
            wanted = every.filter(pa.array(mask))
            where = chance.choice([None, "hcrank10 > 3", "average < 4 AND crawl = 'CC-MAIN-2024-18'"])
            if where:
                wanted = wanted.filter(
                    pc.field("hcrank10") > 3
                    if "hcrank10" in where
                    else (pc.field("average") < 4) & (pc.field("crawl") == CRAWLS[1])
                )
            asked = cat.captures(typed, where=where)
            found = asked.to_arrow()
            assert found.schema.names == ["hcrank10", "surt_host_name", "average", "only_here", "crawl"]
            assert rows_of(found) == rows_of(wanted), typed
            assert cat.captures(typed, where=where).count() == len(wanted)
            found_something += bool(len(wanted))
        assert found_something > 5


def test_a_question_reads_little_of_it(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    folder, _ = hosts
    with LoopbackServer(folder) as server:
        settings = Settings(source=server.url, cache=tmp_path / "cache", cache_size=0)
        with catalogue.open(tmp_path / "data", table="hosts", settings=settings) as cat:
            cat.define("surt_host_name", manifest="hosts.paths.gz")
            cat.harvest(CRAWLS[0])
            assert cat.requests == 4  # the list, and a tail a file
            plan = cat.captures("*.aaaa.com", columns=["average"]).fetch_indexes()
            before = cat.requests
            cat.captures("*.aaaa.com", columns=["average"]).to_arrow()
            assert cat.requests - before == plan.requests
            assert plan.row_groups < plan.considered / 2


def test_order_is_by_key_and_crawl(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    folder, every = hosts
    with opened(tmp_path, folder) as cat:
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        cat.harvest()
        found = cat.captures("*", columns=["surt_host_name"], ordered=True).to_arrow()
        wanted = every.sort_by([("surt_host_name", "ascending"), ("crawl", "ascending")])
        assert found.column("surt_host_name").to_pylist() == wanted.column("surt_host_name").to_pylist()
        assert found.column("crawl").to_pylist() == wanted.column("crawl").to_pylist()
        latest = cat.captures("*", crawls="latest").to_arrow()
        assert set(latest.column("crawl").to_pylist()) == {CRAWLS[1]}


def test_views_speak_of_the_tables_own_key(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    with opened(tmp_path, hosts[0]) as cat:
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        cat.harvest(pages=True)
        least = cat.sql("SELECT min(min_surt_host_name) FROM row_groups").fetchall()
        assert least == [(min(hosts[1].column("surt_host_name").to_pylist()),)]
        assert "max_surt_host_name" in cat.pages().columns
        assert set(cat.pages(CRAWLS[0]).path.str[-9:]) == {"0.parquet", "2.parquet"}
        assert cat.coverage()[["crawl", "files_harvested"]].to_dict("list") == {
            "crawl": CRAWLS[::-1],
            "files_harvested": [3, 3],
        }


def test_a_key_of_any_name(tmp_path: Path) -> None:
    rows = pa.table({'odd "key"': [f"{n:03}" for n in range(100)], "crawl": range(100)})
    (tmp_path / "source" / "deep").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "source" / "deep" / "a+b=c,d@e~f", row_group_size=10)
    with opened(tmp_path / "data", tmp_path / "source", "mine") as cat:
        cat.define('odd "key"', paths=["deep/a+b=c,d@e~f"])
        cat.harvest()
        assert cat.captures("05*").to_arrow().to_pydict() == {
            'odd "key"': [f"{n:03}" for n in range(50, 60)],
            "crawl": list(range(50, 60)),  # a column of the file and not of its path
        }
        assert cat.row_groups()['min_odd "key"'].tolist() == [f"{n:03}" for n in range(0, 100, 10)]
        assert cat.captures("05*").plan.row_groups == 1


def test_a_table_of_urls_without_subsets(tmp_path: Path, mirror: Path, whole_crawls: list[str]) -> None:
    """As the index of the End of Term archive: the columns are Common Crawl's, the paths are not."""
    path = min(mirror.rglob(f"crawl={whole_crawls[0]}/subset=warc/*.parquet"))
    copy = tmp_path / "source" / "eot" / "crawl=EOT-2020" / "part-0.parquet"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    with opened(tmp_path / "data", tmp_path / "source", "eot") as cat:
        cat.define("url_surtkey", paths=["eot/crawl=EOT-2020/part-0.parquet"])
        cat.harvest("EOT-2020")
        every = pq.ParquetFile(path).read(columns=["url", "fetch_time"])
        middle = sorted(every.column("fetch_time").to_pylist())[len(every) // 2]
        asked: dict[str, Any] = {
            "columns": ["url", "fetch_time"],
            "from_": f"{middle:%Y%m%d%H%M%S}",
            "crawls": "EOT-2020",
        }
        found = cat.captures("*", **asked).to_arrow()
        wanted = every.filter(pc.field("fetch_time") >= pa.scalar(middle.replace(microsecond=0)))
        assert 0 < len(wanted) < len(every)
        assert sorted(found.column("url").to_pylist()) == sorted(wanted.column("url").to_pylist())
        assert found.schema == pa.schema(
            [("url", pa.string()), ("fetch_time", pa.timestamp("ms", "UTC")), ("crawl", pa.string())]
        )
        one = every.column("url")[0].as_py()
        assert cat.captures(one, columns=["url"], exact_url=True).to_arrow().column("url")[0].as_py() == one


# ---- what a user may get wrong ----


def test_mistakes_are_explained(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    folder, _ = hosts
    with opened(tmp_path, folder) as cat:
        with pytest.raises(NotHarvested, match="no table hosts in"):
            cat.captures("*")
        with pytest.raises(QueryError, match="either a manifest or their paths"):
            cat.define("surt_host_name")
        with pytest.raises(QueryError, match="either a manifest or their paths"):
            cat.define("surt_host_name", manifest="x", paths=["y"])
        with pytest.raises(BadManifest, match=r"'\.\./x' is no path"):
            cat.define("surt_host_name", paths=["../x"])
        cat.define("wrong", manifest="hosts.paths.gz")
        failures = cat.harvest(CRAWLS[0])[0].failures
        assert all("no column wrong" in reason and "surt_host_name" in reason for reason in failures.values())
        cat.define("average", manifest="hosts.paths.gz")
        failures = cat.harvest(CRAWLS[0])[0].failures
        assert all("and not text" in reason for reason in failures.values())
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        assert cat.harvest()[0].failures == {}
        assert cat.failures().empty
        with pytest.raises(QueryError, match="sorted by surt_host_name"):
            cat.define("hcrank10", manifest="hosts.paths.gz")
        with pytest.raises(QueryError, match="no column of times"):
            cat.captures("*", from_="2022")
        with pytest.raises(QueryError, match="no column of URLs"):
            cat.captures("example.com", exact_url=True)
        with pytest.raises(QueryError, match="only Common Crawl's index"):
            cat.crawl_list()
        with pytest.raises(NotHarvested, match="catalogue harvest --table hosts --crawl CC-MAIN-2025-10"):
            cat.captures("*", crawls="CC-MAIN-2025-10")
        assert cat.forget(CRAWLS[0]) == 3
        missing = cat.captures("*", crawls="all").plan.missing
        assert missing == ()  # what was asked about is what is held
    with opened(tmp_path, folder, None) as index, pytest.raises(QueryError, match="another table"):
        index.define("surt_host_name", manifest="hosts.paths.gz")
    with pytest.raises(QueryError, match="no name for a table"):
        opened(tmp_path, folder, "../hosts")


def test_a_file_that_failed_makes_answers_incomplete(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    lost = f"hosts/crawl={CRAWLS[0]}/part-1.parquet"
    copytree(hosts[0], tmp_path / "source")
    (tmp_path / "source" / lost).unlink()
    with opened(tmp_path / "data", tmp_path / "source") as cat:
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        assert [list(outcome.failures) for outcome in cat.harvest()] == [[], [lost]]
        (lack,) = cat.captures("*").plan.missing
        assert lack == (
            f"1 of the 3 files of {CRAWLS[0]}, all, are not harvested; "
            f"run: catalogue harvest --table hosts --crawl {CRAWLS[0]}"
        )


def test_command_line(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    folder, every = hosts
    command = Command(tmp_path / "data", str(folder), tmp_path)
    made = command("harvest", "--table", "hosts", "--key", "surt_host_name", "--manifest", "hosts.paths.gz")
    assert made.status == 0, made.err
    again = command("harvest", "--table", "hosts", "--json")
    assert [line["taken"] for line in again.json_lines()] == [0, 0]
    host = every.column("surt_host_name")[0].as_py()
    wanted = every.filter(pc.field("surt_host_name") == host)
    found = command("--table", "hosts", "query", ".".join(reversed(host.split(","))), "--columns", "average")
    assert sorted(line["average"] for line in found.json_lines()) == sorted(wanted.column("average").to_pylist())
    rows = command("sql", "--table", "hosts", "--json", "SELECT count(*) AS n FROM row_groups")
    assert rows.json() == {"n": sum(-(-len(host_keys(n)) // 90) for n in range(3)) * 2}
    assert command("sql", "--table", "hosts", "find-key").status == 0
    assert command("status", "--table", "hosts").status == 0
    (tmp_path / "list").write_text(f"# two\n{folder}/hosts/crawl={CRAWLS[0]}/part-0.parquet\n")
    named = command("harvest", "--table", "some", "--key", "surt_host_name", "--paths-file", str(tmp_path / "list"))
    assert named.status == 0, named.err
    one_file = every.slice(0, len(host_keys(0)))
    assert command("query", "--table", "some", "*", "--count").out == f"{len(one_file)}\n"
    for words, what in [
        (["harvest", "--key", "x"], "name one with --table"),
        (["harvest"], "which crawl"),
        (["harvest", "--table", "new"], "no table new"),
        (["harvest", "--table", "new", "x.parquet"], "say it with --key"),
        (["query", "x", "--table", "none"], "no table none"),
        (["query", "x:y", "--table", "hosts"], "is no host"),
    ]:
        ran = command(*words)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert what in ran.err


# ---- the pure part ----


def test_patterns_of_hosts() -> None:
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
        with pytest.raises(QueryError, match="patterns look like"):
            keys(text)
    for match in (Match.EXACT, Match.HOST):  # not one host for all that was typed
        with pytest.raises(QueryError, match="patterns look like"):
            keys("*.example.com", match)
    with pytest.raises(QueryError, match="to be matched as exact or prefix"):
        keys("com,example", Match.DOMAIN)


def test_patterns_of_text() -> None:
    def keys(text: str, match: Match | None = None) -> list[tuple[bytes, bytes]]:
        return [(each.start, each.end) for each in parse_key_pattern(text, Keys.TEXT, match).intervals]

    assert keys("a b") == [(b"a b", b"a b\0")]
    assert keys("a*b*") == [(b"a*b", b"a*c")]
    assert keys("a*", Match.EXACT) == [(b"a*", b"a*\0")]
    assert keys("é*") == [("é".encode(), b"\xc3\xaa")]
    with pytest.raises(QueryError, match="names of hosts"):
        keys("a", Match.HOST)


def test_lists_of_paths() -> None:
    assert parse_paths(b"a/b.parquet\r\n\n# more\nc/\na/b.parquet\n/d\n") == ("a/b.parquet", "d")
    assert parse_paths(gzip.compress(b"s3://b/x/a\n"), source="s3://b/x") == ("a",)
    for bad in (b"", b"# none", b"a/../b", b"a b", b"https://other/a", b"a\x00", b"\x1f\x8bno", b"a//b", b"-/./x"):
        with pytest.raises(BadManifest):
            parse_paths(bad)
    assert path_columns(["x/crawl=A/subset=b/c", "crawl=B/d"]) == ("crawl",)
    assert path_columns(["x/crawl=/c"]) == path_columns(["crawl=A"]) == path_columns([]) == ()


def test_files_of_a_table() -> None:
    table = define_table("mine", "name")
    assert table.keys is Keys.TEXT
    file = table.file("x/crawl=A/subset=b/c")
    assert file
    assert (file.crawl, file.subset) == ("A", "b")
    file = table.file("x/c")
    assert file
    assert (file.crawl, file.subset) == ("mine", "all")
    assert table.file("x/../c") is None
    assert INDEX.file("x/c") is None


def test_what_is_kept_of_a_table() -> None:
    table = Table("mine", "name", Keys.HOST, ("crawl",), "list.gz")
    assert unpack_table(table.packed()) == table
    assert unpack_table(table.packed()) != INDEX
    for bad in (
        b"",
        b"[]",
        b"{}",
        b'{"name": "../x", "key": "k", "keys": "url", "manifest": null, "path_columns": []}',
    ):
        with pytest.raises(FormatError):
            unpack_table(bad)


# ---- types ----


def types_of(folder: Path, name: str, **columns: pa.Array) -> None:
    length = len(next(iter(columns.values())))
    rows = pa.table({"k": [f"{name}{n:02}" for n in range(length)], **columns})
    (folder / "t").mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "t" / name)


def test_columns_have_their_own_types_and_compare_by_them(tmp_path: Path) -> None:
    times = [datetime(2022, 1, day, 3, 4, 5, 678901) for day in (1, 2, 10)]  # noqa: DTZ001 - naive on purpose
    columns: dict[str, pa.Array] = {
        "price": pa.array([Decimal("1.40"), Decimal("1.44"), Decimal("12.00")], pa.decimal128(7, 2)),
        "small": pa.array([9, 10, 200], pa.uint8()),
        "huge": pa.array([1, 2, 2**64 - 1], pa.uint64()),
        "day": pa.array([time.date() for time in times]),
        "moment": pa.array(times, pa.timestamp("us")),
        "instant": pa.array(times, pa.timestamp("ns", "UTC")),
        "yes": pa.array([True, False, None]),
        "half": pa.array([0.5, 1.5, float("nan")], pa.float16()),
        "raw": pa.array([b"\xff", b"", None]),
    }
    types_of(tmp_path / "source", "a", **columns)
    with opened(tmp_path / "data", tmp_path / "source", "t") as cat:
        cat.define("k", paths=["t/a"])
        cat.harvest()
        found = cat.captures("*").to_arrow()
        kinds = {"small": pa.int64(), "half": pa.float64()}
        for name, column in columns.items():
            assert found.schema.field(name).type == kinds.get(name, column.type), name
        for where, expected in [
            ("price = 1.4", 1),
            ("price < 2", 2),
            ("small > 9", 2),
            ("huge > 5", 1),
            ("day < DATE '2022-01-09'", 2),
            ("moment > TIMESTAMP '2022-01-02 03:04:05.6'", 2),
            ("instant >= '2022-01-10'", 1),
            ("yes", 1),
            ("half < 1", 1),
        ]:
            assert cat.captures("*", where=where).count() == expected, where
            assert len(duckdb.from_arrow(found).filter(where).fetchall()) == expected, where


def test_types_are_those_of_all_files_whatever_is_asked(tmp_path: Path) -> None:
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
    with opened(tmp_path / "data", source, "t") as cat:
        cat.define("k", paths=["t/a", "t/b"])
        cat.harvest()
        schemas = {str(cat.captures(text).to_arrow().schema) for text in ("*", "a*", "b*", "none")}
        assert len(schemas) == 1
        assert cat.captures("*").to_arrow().schema.field("d").type == pa.decimal128(5, 2)
        assert cat.captures("a*", where="n = '1'").count() == cat.captures("*", where="n = '1'").count() == 1
        assert cat.captures("a*", columns=["u"]).to_arrow().column("u").null_count == 2


def test_nested_columns_are_left_out_of_all(tmp_path: Path) -> None:
    types_of(tmp_path / "source", "a", many=pa.array([[1], [2, 3]]), one=pa.array([1, 2]))
    types_of(tmp_path / "source", "b", **{"many.more": pa.array([5, 6])})
    with opened(tmp_path / "data", tmp_path / "source", "t") as cat:
        cat.define("k", paths=["t/a", "t/b"])
        cat.harvest()
        found = cat.captures("*").to_arrow()
        assert found.schema.names == ["k", "one", "many.more"]
        assert found.column("many.more").to_pylist() == [None, None, 5, 6]


def test_columns_that_differ_in_capitals(tmp_path: Path) -> None:
    types_of(tmp_path / "source", "a", Status=pa.array([200, 404]))
    types_of(tmp_path / "source", "b", status=pa.array([200, 404]))
    with opened(tmp_path / "data", tmp_path / "source", "t") as cat:
        cat.define("k", paths=["t/a", "t/b"])
        cat.harvest()
        assert cat.captures("*").to_arrow().schema.names == ["k", "Status", "status"]
        with pytest.raises(QueryError, match="cannot tell Status and status apart"):
            cat.captures("*", where="status = 200")


def test_lines_hold_what_json_has_no_form_for(tmp_path: Path) -> None:
    moment = pa.array([datetime(2022, 1, 2, 3, 4, 5, 600000)], pa.timestamp("us"))  # noqa: DTZ001 - likewise
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


# ---- paths ----


def test_every_subset_and_every_crawl_is_harvested(tmp_path: Path) -> None:
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
        with pytest.raises(UnknownCrawl, match="t has no 'Q'; there are"):
            cat.harvest("Q")
        cat.define("k", paths=paths[:1])
        cat.harvest()
        assert cat.captures("*").count() == 1  # what is not listed any more is not held


def test_columns_named_as_parts_of_paths(tmp_path: Path) -> None:
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


def test_keys_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"k": pa.array([b"\xff", b"a"])}), tmp_path / "source" / "f")
    with opened(tmp_path / "data", tmp_path / "source", "t") as cat:
        cat.define("k", paths=["f"])
        (reason,) = cat.harvest()[0].failures.values()
        assert "holds binary and not text" in reason


@pytest.mark.parametrize(
    "words", [["query", "\udcff"], ["harvest", "--key", "\udcff", "f"], ["harvest", "--key", "k", "\udcff"]]
)
def test_words_that_are_no_text(tmp_path: Path, hosts: tuple[Path, pa.Table], words: list[str]) -> None:
    command = Command(tmp_path / "data", str(hosts[0]), tmp_path)
    command("harvest", "--table", "hosts", "--key", "surt_host_name", "--manifest", "hosts.paths.gz")
    ran = command(words[0], "--table", "hosts", *words[1:])
    assert (ran.status, ran.err.count("\n")) in {(2, 1), (1, 1)}
