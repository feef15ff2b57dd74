"""The miniature has the properties of data.commoncrawl.org that other tests need, and its server is safe."""

import re
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.commoncrawl.crawls import has_columnar_index, parse_collinfo
from catalogue.commoncrawl.datasets import manifest_path, parse_manifest
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import LoopbackServer, Miniature, write_miniature
from catalogue.surt import url_surtkey
from tests.support.miniatures import MODERN, NEWEST, OLD, SUBSETS, every_file, every_row, keys, parts, rows

ADDED_LATER = {"url_host_name_reversed", "fetch_redirect", "content_charset", "content_languages", "content_truncated"}


def key_groups(path: Path) -> list[list[str]]:
    file = pq.ParquetFile(path)
    return [file.read_row_group(n, ["url_surtkey"])["url_surtkey"].to_pylist() for n in range(file.num_row_groups)]


def test_lists_crawls_and_index_files(miniature: Miniature) -> None:
    assert miniature.crawls == (NEWEST, MODERN, OLD)
    listed = parse_collinfo((miniature.folder / "collinfo.json").read_bytes())
    assert [*listed] == [*miniature.crawls, "CC-MAIN-2012"]
    for crawl in [*listed.values()][:-1]:
        assert has_columnar_index(crawl.id)
        times = [row["fetch_time"].replace(tzinfo=UTC) for row in every_row(miniature, crawl.id)]
        assert (crawl.first_fetch, crawl.last_fetch) == (min(times), max(times))
        manifest = parse_manifest(crawl.id, (miniature.folder / manifest_path(crawl.id)).read_bytes())
        there = sorted(str(path.relative_to(miniature.folder)) for path in every_file(miniature, crawl.id))
        assert sorted(file.path for file in manifest) == there


@pytest.mark.parametrize(("crawl", "columns", "codec"), [(OLD, 25, "GZIP"), (MODERN, 30, "GZIP"), (NEWEST, 31, "ZSTD")])
def test_files_have_the_format_of_their_era(miniature: Miniature, crawl: str, columns: int, codec: str) -> None:
    missing = {OLD: ADDED_LATER | {"warc_record_id"}, MODERN: {"warc_record_id"}, NEWEST: set()}[crawl]
    expected = [name for name in SCHEMA.names if name not in {*missing, "crawl", "subset"}]
    assert len(expected) == columns
    for path in every_file(miniature, crawl):
        file = pq.ParquetFile(path)
        assert file.schema_arrow.names == expected
        time = pa.timestamp("ns") if crawl == OLD else pa.timestamp("ms", "UTC")  # nanoseconds are INT96
        assert file.schema_arrow.field("fetch_time").type == time
        assert file.num_row_groups >= 2
        chunk = file.metadata.row_group(0).column(0)
        assert (chunk.compression, chunk.has_column_index) == (codec, crawl != OLD)


def test_older_files_are_two_sorted_streams_with_few_statistics(miniature: Miniature) -> None:
    """Every second file has no statistics of keys, and a row group of the last file has a key that is too long."""
    bounded = []
    for path in parts(miniature, OLD):
        found = keys(path)
        assert found[::2] == sorted(found[::2])
        assert found[1::2] == sorted(found[1::2])
        groups = key_groups(path)
        assert max(map(min, groups)) <= min(map(max, groups))  # all overlap
        metadata = pq.ParquetFile(path).metadata
        statistics = [metadata.row_group(number).column(0).statistics for number in range(len(groups))]
        bounded.append([bool(each and each.has_min_max) for each in statistics])
    complete, without = [True] * 6, [False] * 6
    assert bounded == [complete, without, complete, without, [*[True] * 5, False]]


def test_equal_keys_cross_files_and_row_groups(miniature: Miniature) -> None:
    files = parts(miniature, MODERN)
    assert any(keys(before)[-1] == keys(after)[0] for before, after in pairwise(files))
    groups = [pairwise(key_groups(path)) for path in files]
    assert {one[-1] == other[0] for file in groups for one, other in file} == {True, False}


@pytest.mark.parametrize("crawl", [OLD, MODERN, NEWEST])
def test_keys_are_those_of_the_urls(miniature: Miniature, crawl: str) -> None:
    """Until 2025 what is not UTF-8 was escaped twice."""
    for row in every_row(miniature, crawl)[::5]:
        key = url_surtkey(row["url"])
        assert row["url_surtkey"] == key or (crawl != NEWEST and row["url_surtkey"].replace("%25", "%") == key)
    traps = {"http://www.test/": "test)/", "http://192.0.2.10:8000/directory": "10,2,0,192:8000)/directory"}
    found = {row["url"]: row["url_surtkey"] for row in rows(miniature, crawl)}
    assert traps.items() <= found.items()


def test_hosts_are_reserved_or_made_up(miniature: Miniature) -> None:
    reserved = r"(^|\.)example\.(com|net|org)$|\.(test|example)$|-madeup(-[a-z0-9]+)?\.[a-z.]+$|^192\.0\.2\."
    allowed = {"example-shop.com", "example0.com", "examples.com", "notexample.com"}
    hosts = {row["url_host_name"] for crawl in miniature.crawls for row in every_row(miniature, crawl)}
    assert [host for host in hosts - allowed if not re.search(reserved, host)] == []


def test_rows_fit_their_subset(miniature: Miniature) -> None:
    pages, failures, robots = (rows(miniature, MODERN, subset) for subset in SUBSETS)
    assert {row["fetch_status"] for row in pages} == {200}
    assert {"eng", "isl", "deu,eng", None} <= {row["content_languages"] for row in pages}
    assert {301, 302, 304, 404} <= {row["fetch_status"] for row in failures}
    assert {row["url_path"] for row in robots} == {"/robots.txt"}


@pytest.mark.in_soak
def test_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    one, other = (write_miniature(tmp_path / name, seed=7, pages_per_crawl=1000) for name in ("one", "other"))
    assert one.files == other.files
    assert all((one.folder / path).read_bytes() == (other.folder / path).read_bytes() for path in one.files)
    with pytest.raises(ValueError, match="1000 pages or more, not 999"):
        write_miniature(tmp_path / "new", pages_per_crawl=999)


def test_server_sends_ranges_of_its_folder_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/data").write_bytes(bytes(range(100)))
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    with LoopbackServer(tmp_path / "root") as server:
        with urlopen(Request(f"{server.url}data", headers={"Range": "bytes=-10"})) as answer:
            assert (answer.status, answer.read()) == (206, bytes(range(90, 100)))
            assert answer.headers["Content-Range"] == "bytes 90-99/100"
        for path in ("link", "../secret", "%2e%2e/secret", "/etc/passwd", "a%00b", "data/"):
            with pytest.raises(HTTPError, match="404") as refused:
                urlopen(server.url + path)
            refused.value.close()
        assert [each.status for each in server.log] == [206, *[404] * 6]
