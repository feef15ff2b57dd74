"""Datasets other than Common Crawl's index: queries, views, definitions and commands."""

import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalogue import QueryError
from catalogue.errors import BadManifest, NotHarvested, UnknownCrawl
from catalogue.selection import crawl_list
from catalogue.surt.interval import covers
from catalogue.surt.pattern import Keys, parse_key_pattern
from tests.support.amounts import EXAMPLES
from tests.support.archives import URL, warc
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.hosts import CRAWLS, host_keys, host_tables
from tests.support.own_tables import rows_of

hosts = pytest.fixture(scope="module")(host_tables)


@pytest.fixture(scope="module")
def stored(hosts: tuple[Path, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with all of the dataset; to be copied."""
    with catalogue_in(tmp_path_factory.mktemp("stored"), hosts[0], table="hosts") as cat:
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        cat.harvest()
        return cat.session.folder


def test_list_of_an_older_version_counts_as_not_stored(
    tmp_path: Path, hosts: tuple[Path, pa.Table], stored: Path
) -> None:
    """Older versions skipped lines for which a list is refused now."""
    copytree(stored, tmp_path / "data")
    with catalogue_in(tmp_path, hosts[0], table="hosts") as cat:
        document = cat.session.store.get("documents", "hosts.paths.gz")
        assert document
        odd = gzip.compress(gzip.decompress(document.data) + b"https://other.example/file\n")
        cat.session.store.put("documents", [("hosts.paths.gz", replace(document, data=odd))])
        assert not cat.captures("*.com").complete
        cat.harvest()
        assert cat.captures("*.com").complete


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


def test_pruned_query_equals_full_scan(tmp_path: Path, hosts: tuple[Path, pa.Table], stored: Path) -> None:
    """With and without backfill, by turns."""
    folder, every = hosts
    keys = every.column("surt_host_name").to_pylist()
    different = sorted(set(keys))
    chance = random.Random(7)
    with (
        catalogue_in(tmp_path, folder, data=copytree(stored, tmp_path / "data"), table="hosts") as plain,
        catalogue_in(tmp_path, folder, data=copytree(stored, tmp_path / "other"), table="hosts") as backfilled,
    ):
        backfilled.backfill().run()
        found_something = 0
        for number in range(EXAMPLES // 2):
            cat = (plain, backfilled)[number % 2]
            typed = patterns(chance, keys)
            intervals = [each for text in typed for each in parse_key_pattern(text, Keys.HOST).intervals]
            used = [key for key in different if any(covers([each], key.encode()) for each in intervals)]
            requested = every.filter(pc.field("surt_host_name").isin(pa.array(used, pa.string())))
            where = chance.choice([None, "hcrank10 > 3", "average < 4 AND crawl = 'CC-MAIN-2024-18'"])
            if where:
                requested = requested.filter(
                    pc.field("hcrank10") > 3
                    if "hcrank10" in where
                    else (pc.field("average") < 4) & (pc.field("crawl") == CRAWLS[1])
                )
            question = cat.captures(typed, where=where)
            found = question.to_arrow()
            assert found.schema.names == ["hcrank10", "surt_host_name", "average", "only_here", "crawl"]
            assert rows_of(found) == rows_of(requested.select(found.column_names)), typed
            assert cat.captures(typed, where=where).count() == len(requested)
            found_something += bool(len(requested))
        assert found_something > EXAMPLES / 6


def test_orders_by_key_and_crawl(tmp_path: Path, hosts: tuple[Path, pa.Table], stored: Path) -> None:
    folder, every = hosts
    copytree(stored, tmp_path / "data")
    with catalogue_in(tmp_path, folder, table="hosts") as cat:
        found = cat.captures("*", columns=["surt_host_name"], ordered=True).to_arrow()
        requested = every.sort_by([("surt_host_name", "ascending"), ("crawl", "ascending")])
        assert found.column("surt_host_name").to_pylist() == requested.column("surt_host_name").to_pylist()
        assert found.column("crawl").to_pylist() == requested.column("crawl").to_pylist()
        latest = cat.captures("*", crawls="latest").to_arrow()
        assert set(latest.column("crawl").to_pylist()) == {CRAWLS[1]}


def test_accepts_any_name_of_the_key_column(tmp_path: Path) -> None:
    rows = pa.table({'odd "key"': [f"{n:03}" for n in range(100)], "crawl": range(100)})
    (tmp_path / "source" / "deep").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "source" / "deep" / "a+b=c,d@e~f", row_group_size=10)
    with catalogue_in(tmp_path, tmp_path / "source", table="mine") as cat:
        cat.define('odd "key"', paths=["deep/a+b=c,d@e~f"])
        cat.harvest()
        assert cat.requests == 1
        assert cat.captures("05*").to_arrow().to_pydict() == {
            'odd "key"': [f"{n:03}" for n in range(50, 60)],
            "crawl": list(range(50, 60)),  # a column of the file and not of its path
        }
        assert cat.row_groups()['min_odd "key"'].tolist() == [f"{n:03}" for n in range(0, 100, 10)]
        assert cat.captures("05*").plan.row_groups == 1


def test_reads_a_dataset_of_urls_without_subsets(tmp_path: Path, mirror: Path, whole_crawls: list[str]) -> None:
    """As in the End of Term archive: Common Crawl's columns with other paths."""
    path = min(mirror.rglob(f"crawl={whole_crawls[0]}/subset=warc/*.parquet"))
    copy = tmp_path / "source" / "eot" / "crawl=EOT-2020" / "part-0.parquet"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    with catalogue_in(tmp_path, tmp_path / "source", table="eot") as cat:
        cat.define("url_surtkey", paths=["eot/crawl=EOT-2020/part-0.parquet"])
        cat.harvest("EOT-2020")
        every = pq.ParquetFile(path).read(columns=["url", "fetch_time"])
        middle = sorted(every.column("fetch_time").to_pylist())[len(every) // 2]
        question: dict[str, Any] = {
            "columns": ["url", "fetch_time"],
            "from_": f"{middle:%Y%m%d%H%M%S}",
            "crawls": "EOT-2020",
        }
        found = cat.captures("*", **question).to_arrow()
        requested = every.filter(pc.field("fetch_time") >= pa.scalar(middle.replace(microsecond=0)))
        assert 0 < len(requested) < len(every)
        assert sorted(found.column("url").to_pylist()) == sorted(requested.column("url").to_pylist())
        assert found.schema == pa.schema(
            [("url", pa.string()), ("fetch_time", pa.timestamp("ms", "UTC")), ("crawl", pa.string())]
        )
        one = every.column("url")[0].as_py()
        assert cat.captures(one, columns=["url"], exact_url=True).to_arrow().column("url")[0].as_py() == one


def test_invalid_use_is_one_sentence(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    folder, _ = hosts
    with catalogue_in(tmp_path, folder, table="hosts") as cat:
        with pytest.raises(NotHarvested, match="no dataset hosts in"):
            cat.captures("*")
        definitions: list[tuple[dict[str, Any], type[Exception], str]] = [
            *(({}, QueryError, "manifest or"), ({"manifest": "x", "paths": ["y"]}, QueryError, "manifest or")),
            ({"paths": "../x"}, BadManifest, r"'\.\./x' is not a path"),
            ({"keys": "no", "paths": "x"}, QueryError, "invalid keys 'no'; use url, host or text"),
        ]
        for given, error, says in definitions:
            with pytest.raises(error, match=says):
                cat.define("surt_host_name", **given)
        cat.define("wrong", manifest="hosts.paths.gz")
        failures = cat.harvest(CRAWLS[0])[0].failures
        assert len(failures) == 3
        assert all("no column wrong" in reason and "surt_host_name" in reason for reason in failures.values())
        cat.define("average", manifest="hosts.paths.gz")
        failures = cat.harvest(CRAWLS[0])[0].failures
        assert len(failures) == 3
        assert all("and not text" in reason for reason in failures.values())
        cat.define("surt_host_name", manifest="hosts.paths.gz")
        assert cat.harvest()[0].failures == {}
        assert cat.failures().empty
        with pytest.raises(QueryError, match="sorted by surt_host_name"):
            cat.define("hcrank10", manifest="hosts.paths.gz")
        questions: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"from_": "2022"}, QueryError, "no column of times"),
            ({"exact_url": True}, QueryError, "no column of URLs"),
            ({"crawls": "CC-MAIN-2025-10"}, UnknownCrawl, "hosts has no 'CC-MAIN-2025-10'; it has CC-MAIN-2024-10, CC"),
            ({"crawls": "1999"}, UnknownCrawl, "'1999' selects no crawl; there are CC-MAIN-2024-"),
        ]
        for given, error, says in questions:
            with pytest.raises(error, match=says):
                cat.captures("example.com", **given)
        with pytest.raises(QueryError, match="only Common Crawl's index"):
            crawl_list(cat.session)
        assert cat.forget(CRAWLS[0]) == 3
        assert cat.captures("*", crawls="all").plan.missing == ()
        cat.define("surt_host_name", paths=[f"hosts/crawl={CRAWLS[1]}/part-{n}.parquet" for n in (0, 1, 3)])
        assert "1 of the 3 files" in cat.captures("*", crawls="all").plan.missing[0]  # although 3 were stored
    with catalogue_in(tmp_path, folder) as index, pytest.raises(QueryError, match="another table"):
        index.define("surt_host_name", manifest="hosts.paths.gz")
    with pytest.raises(QueryError, match="not a valid name of a dataset"):
        catalogue_in(tmp_path, folder, table="../hosts")


def test_commands_take_a_dataset(tmp_path: Path, hosts: tuple[Path, pa.Table]) -> None:
    folder, every = hosts
    command = Command(tmp_path / "data", str(folder), tmp_path)
    made = command("harvest", "--table", "hosts", "--key", "surt_host_name", "--manifest", "hosts.paths.gz")
    assert made.status == 0, made.err
    again = command("harvest", "--table", "hosts", "--json")
    assert [line["taken"] for line in again.json_lines()] == [0, 0]
    host = every.column("surt_host_name")[0].as_py()
    requested = every.filter(pc.field("surt_host_name") == host)
    found = command("--table", "hosts", "query", ".".join(reversed(host.split(","))), "--columns", "average")
    assert sorted(line["average"] for line in found.json_lines()) == sorted(requested.column("average").to_pylist())
    rows = command("sql", "--table", "hosts", "--json", "SELECT count(*) AS n FROM row_groups")
    assert rows.json() == {"n": sum(-(-len(host_keys(n)) // 90) for n in range(3)) * 2}
    assert command("sql", "--table", "hosts", "find-key").status == 0
    assert command("status", "--table", "hosts").status == 0
    assert command("query", "*", "--table", "hosts", "--crawl", CRAWLS[0], "--harvest", "--count").status == 0
    (tmp_path / "list").write_text(f"# two\n{folder}/hosts/crawl={CRAWLS[0]}/part-0.parquet\n")
    named = command("harvest", "--table", "some", "--key", "surt_host_name", "--paths-file", str(tmp_path / "list"))
    assert named.status == 0, named.err
    one_file = every.slice(0, len(host_keys(0)))
    assert command("query", "--table", "some", "*", "--count").out == f"{len(one_file)}\n"
    for words, what in [
        (["harvest", "--key", "x"], "need --table"),
        (["harvest"], "no crawl; add one"),
        (["harvest", "--table", "new"], "no dataset new"),
        (["harvest", "--table", "hosts", "--subset", "warc"], "stores all its files; leave out the subsets"),
        (["harvest", "--table", "new", "x.parquet"], "add one with --key"),
        (["query", "x", "--table", "none"], "no dataset none"),
        (["sql", "find-url", "--table", "hosts"], "for others run: catalogue --table hosts sql find-key"),
        (["sql", "lake-history", "--table", "hosts"], "only Common Crawl's index can be exported"),
        (["query", "x:y", "--table", "hosts"], "invalid host"),
        (["query", "\udcff", "--table", "hosts"], "is not valid text"),
        (["harvest", "--key", "\udcff", "f", "--table", "new"], "is not a valid name of a column"),
        (["harvest", "--key", "k", "\udcff", "--table", "hosts"], "has footers of files sorted by surt_host_name"),
    ]:
        ran = command(*words)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert what in ran.err


def test_fetches_records_by_their_places_alone(tmp_path: Path) -> None:
    member = gzip.compress(warc())
    (tmp_path / "crawl-data").mkdir()
    (tmp_path / "crawl-data/x.warc.gz").write_bytes(member)
    place = {"warc_filename": "crawl-data/x.warc.gz", "warc_record_offset": 0, "warc_record_length": len(member)}
    pq.write_table(pa.Table.from_pylist([{"url_surtkey": "com,example)/"} | place]), tmp_path / "a.parquet")
    command = Command(tmp_path / "data", str(tmp_path), tmp_path)
    assert command("harvest", "--table", "t", "--key", "url_surtkey", "a.parquet").status == 0
    for words in (["--lang", "isl"], ["--latest"], ["--mime", "text/*"], ["--where", "url_host_tld = 'com'"]):
        ran = command("--table", "t", "query", "example.com", *words)
        assert (ran.status, "no column" in ran.err) == (2, True)
    for words in (["fetch", "example.com", "--format"], ["sample", "-n", "1", "--fetch"]):
        ran = command("--table", "t", *words, "text", "-o", "-")
        assert [(page["url"], page["text"]) for page in ran.json_lines()] == [(URL, "hello")], ran.err
