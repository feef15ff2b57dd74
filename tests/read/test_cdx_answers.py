"""Queries of the CDX index and of the columnar index have the same rows, for every era."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.cdx.cluster import index_folder, list_path, shards_path
from catalogue.cdx.lines import COLUMNS
from catalogue.errors import BadCdx, FileChanged, NotFound, NotHarvested, QueryError, UnknownCrawl
from tests.support.block_lists import CRAWL, write_list
from tests.support.catalogues import catalogue_in
from tests.support.cdx_indexes import make_index, read_index, replace_index
from tests.support.cdx_sources import Archived, write_source
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request

READ = [*COLUMNS, "crawl", "subset"]


@pytest.fixture
def small_mirror(whole_mirror: Path, newest: str, tmp_path: Path) -> Path:
    replace_index(tmp_path / "mirror", read_index(whole_mirror, newest))
    return tmp_path / "mirror"


def test_many_urls_read_each_block_once(columnar: Catalogue, newest: str) -> None:
    rows = columnar.captures("*", crawls=newest, columns=["url"], subsets="all").to_arrow().column("url").to_pylist()
    urls = random.Random(6).sample(sorted({url for url in rows if "*" not in url}), 300)
    words: dict[str, Any] = {"crawls": newest, "columns": READ, "subsets": "all"}
    one, other = (columnar.captures(urls, **words, index=index) for index in ("columnar", "cdx"))
    assert other.to_arrow().equals(one.to_arrow())
    read = [(read.path, read.range) for planned in other.plan.blocks for read in planned.reads]
    ends: dict[str, int] = {}
    for path, extent in read:
        assert extent.start >= ends.get(path, 0)
        ends[path] = extent.end
    assert len(read) == other.plan.requests


def test_first_question_needs_nothing_stored(small_mirror: Path, newest: str, tmp_path: Path) -> None:
    with FaultServer(small_mirror) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        words = ["query", "https://example.com/", "--crawl", newest]
        for stored in ([], ["--crawl", "stored"]):
            refused = asks(*words[:2], *stored)
            assert refused.status == 2
            assert refused.err.endswith("add --crawl latest, or run: catalogue harvest --crawl latest\n")
        plan = asks("plan", *words[1:], "--json").json()
        assert (plan["searches"], plan["exact"]) == (1, False)
        assert [(each["index"], each["why"]) for each in plan["crawls"]] == [("cdx", "no footers are stored")]
        assert not server.log
        ran = asks(*words)
        assert ran.status == 0
        assert {row["url_surtkey"] for row in ran.json_lines()} == {"com,example)/"}
        assert len(server.log) <= plan["requests"]
        assert server.body_bytes_sent <= plan["bytes"]
        server.reset()  # what was searched and read is stored
        assert asks("plan", *words[1:], "--json").json()["requests"] == 0
        assert asks(*words).out == ran.out
        assert not server.log
        assert asks(*words, "--no-cache").out == ran.out
        assert [request.path.rpartition("/")[2][:4] for request in server.log] == ["cdx-"]


def test_cost_of_blocks_is_checked_after_the_search(small_mirror: Path, newest: str, tmp_path: Path) -> None:
    with FaultServer(small_mirror) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        words = ["query", "*", "--crawl", newest, "--index", "cdx", "--count"]
        estimate = asks("plan", *words[1:-1], "--json").json()
        exact = asks("plan", *words[1:-1], "--indexes", "--json").json()
        assert exact["exact"]
        shards = sorted((small_mirror / index_folder(newest)).glob("*.gz"))
        listed = asks("plan", *words[1:-1], "--indexes", "--paths").out.split()
        assert listed == [str(shard.relative_to(small_mirror)) for shard in shards]
        assert exact["bytes"] == sum(shard.stat().st_size for shard in shards)
        for plan, data in ((estimate, "unsearched"), (exact, "data")):
            server.reset()
            asks = Command(tmp_path / data, server.url, tmp_path)
            ran = asks(*words, "--max-bytes", str(plan["bytes"] - 1))
            assert ran.status == 2
            assert f"this takes {plan['requests']} requests" in ran.err
            assert not server.log
        assert asks(*words, "--max-bytes", str(max(estimate["bytes"], exact["bytes"]))).status == 0


def without_last_shard(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    last = lines[-1].split(b"\t")[1]
    return b"".join(line for line in lines if line.split(b"\t")[1] != last)


LIST, LAST_SHARD = "cc-index/collections/*/indexes/cluster.idx", "cc-index/collections/*/indexes/cdx-00000.gz"


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "list ends within a line": (LIST, lambda data: data[:-7]),
    "list lacks a shard": (LIST, without_last_shard),
    "list is empty": (LIST, lambda _: b""),
    "numbers of blocks are wrong": (LIST, lambda data: data.replace(b"\t1\n", b"\t2\n", 1)),
    "shard is longer": (LAST_SHARD, lambda data: data + b"\0"),
    "shard is not gzip": (LAST_SHARD, lambda data: b"\0" * len(data)),
    "block has other lines": (LAST_SHARD, lambda data: gzip.compress(b"x 1 {}\n").ljust(len(data), b"\0")),
    "list of files is truncated": ("crawl-data/*/cc-index.paths.gz", lambda data: data[:-3]),
    "list of files has no shard": ("crawl-data/*/cc-index.paths.gz", lambda _: gzip.compress(b"nothing\n")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_an_error(small_mirror: Path, newest: str, tmp_path: Path, damage: str) -> None:
    pattern, change = DAMAGE[damage]
    (file,) = small_mirror.glob(pattern)
    file.write_bytes(change(file.read_bytes()))
    with catalogue_in(tmp_path, small_mirror) as cat:
        with pytest.raises(BadCdx) as raised:
            cat.captures("*", crawls=newest, index="cdx", subsets="all").to_arrow()
        assert newest in str(raised.value)


def test_changed_list_is_an_error_once(tmp_path: Path) -> None:
    lines = make_list(20_000)
    write_list(tmp_path / "mirror", lines)
    with catalogue_in(tmp_path, tmp_path / "mirror") as cat:
        assert cat.captures("nowhere.de/", crawls=CRAWL, index="cdx", subsets="all").fetch_indexes().exact
        (tmp_path / "mirror" / list_path(CRAWL)).write_bytes(lines[: lines.rindex(b"\n", 0, -1) + 1])
        again = cat.captures("nowhere.br/", crawls=CRAWL, index="cdx", subsets="all")
        with pytest.raises(FileChanged):
            again.fetch_indexes()
        assert again.fetch_indexes().exact


@pytest.mark.parametrize("known", ["stored list", "searches"])
@pytest.mark.parametrize("replaced", [{"lines_a_block": 40}, {"blocks_a_shard": 1000}], ids=["blocks", "fewer shards"])
def test_replaced_index_is_an_error_once(
    small_mirror: Path, newest: str, tmp_path: Path, known: str, replaced: dict[str, int]
) -> None:
    lines = [line.decode().rstrip("\n") for line in read_index(small_mirror, newest).lines]
    replace_index(small_mirror, make_index(newest, lines))
    url = json.loads(lines[len(lines) * 3 // 4].split(" ", 2)[2])["url"]
    with catalogue_in(tmp_path, small_mirror, cache_size=0) as cat:

        def rows() -> pa.Table:
            return cat.captures(url, crawls=newest, subsets="all").to_arrow()

        if known == "stored list":
            cat.harvest(newest, index="cdx")
        expected = rows()
        assert expected.num_rows
        replace_index(small_mirror, make_index(newest, lines, **replaced))
        with pytest.raises((BadCdx, FileChanged, NotFound)):
            rows()
        assert rows() == expected
        assert cat.session.block_lists.stored == []


def test_stored_list_outlives_a_missing_shard(small_mirror: Path, newest: str, tmp_path: Path) -> None:
    shards = sorted((small_mirror / index_folder(newest)).glob("cdx-*.gz"))
    with catalogue_in(tmp_path, small_mirror, cache_size=0) as cat:
        cat.harvest(newest, index="cdx")
        for shard in shards:
            shard.rename(shard.with_suffix(".away"))
        with pytest.raises(NotFound):
            cat.captures("*", crawls=newest, limit=1).to_arrow()
        assert cat.session.block_lists.stored == [newest]


def test_missing_indexes_are_named(small_mirror: Path, tmp_path: Path) -> None:
    with (
        catalogue_in(tmp_path, small_mirror) as cat,
        pytest.raises(NotHarvested, match="the source has no CDX index of it"),
    ):
        cat.captures("example.com/", crawls="2014-10", index="cdx", subsets="all").to_arrow()


def test_wrong_questions_say_what_to_do(columnar: Catalogue, small_mirror: Path, tmp_path: Path) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "the CDX index has no column url_host_name; use index='columnar'": {"columns": ["url_host_name"]},
        "invalid index 'both'; use auto, columnar or cdx": {"index": "both"},
        "the CDX index has no column url_path": {"where": "url_path = '/'"},
    }
    for message, words in wrong.items():
        with pytest.raises(QueryError, match=message):
            columnar.captures("example.com", **{"index": "cdx", **words})
    found = columnar.captures("example.com", index="cdx", subsets="all")
    with pytest.raises(QueryError, match="index='columnar', which names crawls to harvest"):
        columnar.sample(found, 3)
    with pytest.raises(QueryError, match="use index='columnar'"):
        found.plot()
    with (
        catalogue_in(tmp_path, small_mirror) as cat,
        pytest.raises(QueryError, match=r"nothing is stored in .*; add crawls='latest', or run: catalogue harvest"),
    ):
        cat.captures("example.com", index="cdx", subsets="all")


@pytest.mark.parametrize("index", ["cdx", "auto"])
def test_rows_of_two_versions_of_a_file_are_an_error(
    whole_mirror: Path, newest: str, index: str, tmp_path: Path
) -> None:
    """Nothing is stored, so no request names a version."""
    lines = [line.decode().rstrip("\n") for line in read_index(whole_mirror, newest).lines]
    made = make_index(newest, lines, blocks_a_shard=len(lines))
    (shard,) = made.shards
    served = made.files | {shards_path(newest): gzip.compress(shard.encode())}
    urls = [json.loads(line.split(" ", 2)[2])["url"] for line in (lines[0], lines[-1])]

    def replaced(request: Request) -> Fault | None:
        return Fault(Kind.CHANGED_ETAG) if request.path == shard and request.attempt else None

    for script in (None, replaced):
        with FaultServer(served, script=script) as server:
            with catalogue_in(tmp_path / f"{script}", server.url) as cat:
                found = cat.captures(urls, crawls=newest, subsets="all", index=index)
                if script:
                    with pytest.raises(FileChanged, match="was replaced while it was read"):
                        found.to_arrow()
                else:
                    assert found.to_arrow().num_rows >= len(urls)
            assert sum(exchange.path == shard for exchange in server.settle()) > 1


@pytest.mark.parametrize("crawl", ["CC-MAIN-2012", "CC-MAIN-2013-20"])
def test_only_crawls_before_2013_may_lack_the_list_of_files(tmp_path: Path, crawl: str) -> None:
    archived = Archived(b"x", filename=f"crawl-data/{crawl}/segments/1/warc/x.gz")
    source = write_source(tmp_path, [archived], crawl)
    (tmp_path / shards_path(crawl)).unlink()
    for harvests in (False, True):
        with catalogue_in(tmp_path / f"{harvests}", source) as cat:
            if crawl == "CC-MAIN-2012":
                assert not harvests or cat.harvest(crawl, index="cdx")[0].fetched
                assert cat.captures("*", crawls=crawl).count() == 1
            else:
                with pytest.raises(UnknownCrawl if harvests else NotHarvested, match="has no CDX index of"):
                    _ = cat.harvest(crawl, index="cdx") if harvests else cat.captures("*", crawls=crawl).count()
    (tmp_path / shards_path(crawl)).touch()
    with (
        catalogue_in(tmp_path / "other", source) as cat,
        pytest.raises(BadCdx, match="does not list the shards"),
    ):
        cat.captures("*", crawls=crawl).count()
