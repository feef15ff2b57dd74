"""The files of the miniature are in every respect that matters here as those of data.commoncrawl.org."""

import gzip
import json
import re
from collections import Counter
from dataclasses import FrozenInstanceError
from datetime import UTC, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.commoncrawl.columns import SCHEMA
from catalogue.commoncrawl.crawls import has_columnar_index
from catalogue.commoncrawl.manifests import index_file, manifest_path, parse_collinfo, parse_manifest
from catalogue.demo import Miniature, write_miniature
from catalogue.demo.miniature import FEWEST_PAGES
from catalogue.parquet.thrift import Reader
from tests.support.miniatures import MODERN, NEWEST, OLD, SUBSETS, every_file, every_row, keys, parts, rows, subsets

ADDED_LATER = {
    "url_host_name_reversed",
    "fetch_redirect",
    "content_charset",
    "content_languages",
    "content_truncated",
    "warc_record_id",
}


def key_groups(path: Path) -> list[list[str]]:
    """The keys of each row group."""
    file = pq.ParquetFile(path)
    return [file.read_row_group(n, ["url_surtkey"])["url_surtkey"].to_pylist() for n in range(file.num_row_groups)]


def data_pages(path: Path, row_group: int, column: str) -> list[tuple[int, bool]]:
    """The number of values of each data page of a chunk, and whether it has a checksum (parquet.thrift, PageHeader)."""
    metadata = pq.ParquetFile(path).metadata
    chunk = metadata.row_group(row_group).column(metadata.schema.names.index(column))
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    reader = Reader(path.read_bytes()[start : start + chunk.total_compressed_size])
    pages = []
    while reader.position < len(reader.data):
        header = reader.struct()
        reader.position += header[3]
        if header[1] == 0:  # else the dictionary
            pages.append((header[5][1], 4 in header))
    return pages


# What is where


def test_says_what_was_written(miniature: Miniature) -> None:
    assert miniature.crawls == (NEWEST, MODERN, OLD)
    assert miniature.crawl_with_records == MODERN
    assert not has_columnar_index(miniature.crawl_without_table)
    on_disk = {path.relative_to(miniature.folder).as_posix() for path in miniature.folder.rglob("*") if path.is_file()}
    assert list(miniature.files) == sorted(on_disk)
    assert miniature.rows == sum(len(every_row(miniature, crawl)) for crawl in miniature.crawls)
    with pytest.raises(FrozenInstanceError):
        miniature.rows = 0  # type: ignore[misc]


def test_is_small(miniature: Miniature) -> None:
    assert sum((miniature.folder / path).stat().st_size for path in miniature.files) < 6_000_000
    assert {crawl: len(every_row(miniature, crawl)) for crawl in miniature.crawls} == {
        NEWEST: 1500,
        MODERN: 6000,
        OLD: 6000,
    }


def test_list_of_crawls_is_as_published(miniature: Miniature) -> None:
    data = (miniature.folder / "collinfo.json").read_bytes()
    items = json.loads(data)
    assert [item["id"] for item in items] == [NEWEST, MODERN, OLD, "CC-MAIN-2012"]
    for item in items:
        assert list(item) == ["id", "name", "timegate", "cdx-api", "from", "to"]
        assert item["timegate"] == f"https://index.commoncrawl.org/{item['id']}/"
        assert item["cdx-api"] == f"https://index.commoncrawl.org/{item['id']}-index"
    assert items[1]["name"] == "January 2022 Index"
    for crawl in parse_collinfo(data):
        if has_columnar_index(crawl.id):
            times = [row["fetch_time"].replace(tzinfo=UTC) for row in every_row(miniature, crawl.id)]
            assert (crawl.first_fetch, crawl.last_fetch) == (min(times), max(times))
            assert timedelta(days=7) < max(times) - min(times) < timedelta(days=21)


@pytest.mark.parametrize(
    ("crawl", "codec", "counts"), [(OLD, "gz", (5,)), (MODERN, "gz", (7, 2, 2)), (NEWEST, "zstd", (3, 1, 1))]
)
def test_manifest_names_the_index_files(miniature: Miniature, crawl: str, codec: str, counts: tuple[int, ...]) -> None:
    data = (miniature.folder / manifest_path(crawl)).read_bytes()
    lines = gzip.decompress(data).decode("ascii").splitlines()
    directory = f"cc-index/table/cc-main/warc/crawl={crawl}/"
    assert [line for line in lines if not line.endswith(".parquet")] == ([directory] if crawl == NEWEST else [])
    named = [file.path for file in parse_manifest(crawl, data)]
    assert len(named) == sum(counts)
    assert sorted(named) == [path for path in miniature.files if path.startswith(directory)]
    jobs = set()
    for path in named:
        file = index_file(path)
        assert file is not None
        found = re.fullmatch(rf".*/part-([0-9]{{5}})-([0-9a-f-]{{36}})\.c000\.{codec}\.parquet", path)
        assert found
        jobs.add(found[2])
    assert len(jobs) == 1
    for subset, count in zip(subsets(crawl), counts, strict=True):
        numbers = [int(path.name[5:10]) for path in parts(miniature, crawl, subset)]
        assert sorted(numbers) == [*range(count)]
        assert count == 1 or numbers != sorted(numbers)
        assert count < 5 or numbers != sorted(numbers, reverse=True)


# What the files are like


@pytest.mark.parametrize(("crawl", "columns"), [(OLD, 25), (MODERN, 30), (NEWEST, 31)])
def test_schema_of_the_era(miniature: Miniature, crawl: str, columns: int) -> None:
    lacking = {OLD: ADDED_LATER, MODERN: {"warc_record_id"}, NEWEST: set()}[crawl]
    expected = [name for name in SCHEMA.names if name not in {*lacking, "crawl", "subset"}]
    assert len(expected) == columns
    for path in every_file(miniature, crawl):
        file = pq.ParquetFile(path)
        assert file.schema_arrow.names == expected
        assert file.metadata.format_version == "1.0"
        assert file.metadata.metadata is None
        types = {column.name: (column.physical_type, column.max_definition_level) for column in file.schema}
        for required in ("url_surtkey", "url", "url_host_name", "url_path", "url_protocol", "warc_filename"):
            assert types.pop(required) == ("BYTE_ARRAY", 0)
        assert types.pop("fetch_time") == ("INT96" if crawl == OLD else "INT64", 0)
        for required in ("fetch_status", "warc_record_offset", "warc_record_length"):
            assert types.pop(required) == ("INT32", 0)
        assert types.pop("warc_segment") == ("BYTE_ARRAY", 0)
        assert types.pop("url_port") == ("INT32", 1)
        assert set(types.values()) == {("BYTE_ARRAY", 1)}
        assert file.schema_arrow.field("fetch_status").type == pa.int16()
        time = pa.timestamp("ns") if crawl == OLD else pa.timestamp("ms", "UTC")
        assert file.schema_arrow.field("fetch_time").type == time


@pytest.mark.parametrize(("crawl", "codec"), [(OLD, "GZIP"), (MODERN, "GZIP"), (NEWEST, "ZSTD")])
def test_chunks_of_the_era(miniature: Miniature, crawl: str, codec: str) -> None:
    indexed = crawl != OLD
    given_up = set()
    for path in every_file(miniature, crawl):
        metadata = pq.ParquetFile(path).metadata
        assert metadata.num_row_groups >= 2
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            assert group.sorting_columns in (None, ())
            for place in range(group.num_columns):
                chunk = group.column(place)
                assert chunk.compression == codec
                assert (chunk.has_column_index, chunk.has_offset_index) == (indexed, indexed), chunk.path_in_schema
                if chunk.path_in_schema in {"url_surtkey", "url", "content_digest", "warc_record_id", "fetch_time"}:
                    assert not chunk.has_dictionary_page
                if chunk.path_in_schema in {"url_host_name", "url_host_tld", "content_mime_type", "warc_filename"}:
                    assert chunk.has_dictionary_page
                    given_up.add((chunk.path_in_schema, "PLAIN" in chunk.encodings))
    # Some dictionaries are given up half-way, others suffice.
    assert {("warc_filename", True), ("url_host_name", False), ("url_host_tld", False)} <= given_up
    assert ("url_host_tld", True) not in given_up


@pytest.mark.parametrize("crawl", [OLD, MODERN, NEWEST])
def test_row_groups_have_many_pages(miniature: Miniature, crawl: str) -> None:
    aligned = Counter[bool]()
    for path in parts(miniature, crawl):
        found = {
            name: data_pages(path, 0, name) for name in ("url_surtkey", "url", "warc_record_offset", "url_host_tld")
        }
        sizes = {name: [size for size, _ in pages] for name, pages in found.items()}
        assert len(sizes["url_surtkey"]) >= 3
        assert len({sum(of_column) for of_column in sizes.values()}) == 1
        assert {checked for pages in found.values() for _, checked in pages} == {crawl != OLD}
        aligned[sizes["url_surtkey"] == sizes["warc_record_offset"] == sizes["url_host_tld"]] += 1
    assert set(aligned) == {True, False}


def test_damage_to_a_page_is_found_by_its_checksum(miniature: Miniature, tmp_path: Path) -> None:
    path = parts(miniature, MODERN)[0]
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= (
        1  # of gzip's own trailer, which pyarrow reads over
    )
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(data)
    with pytest.raises(OSError, match=r"(?i)crc"):
        pq.ParquetFile(damaged, page_checksum_verification=True).read(["url_surtkey"])
    pq.ParquetFile(path, page_checksum_verification=True).read()


# Keys, their order and their statistics


@pytest.mark.parametrize("crawl", [MODERN, NEWEST])
@pytest.mark.parametrize("subset", SUBSETS)
def test_newer_files_are_sorted_and_follow_each_other(miniature: Miniature, crawl: str, subset: str) -> None:
    in_order = [key for path in parts(miniature, crawl, subset) for key in keys(path)]
    assert in_order == sorted(in_order, key=str.encode)


def test_older_files_are_two_sorted_streams_zipped(miniature: Miniature) -> None:
    for path in parts(miniature, OLD):
        found = keys(path)
        assert found[::2] == sorted(found[::2])
        assert found[1::2] == sorted(found[1::2])
        assert max(found[::2]) <= min(found[1::2])
        bounds = [(min(group), max(group)) for group in key_groups(path)]
        assert len(bounds) >= 5
        assert max(low for low, _ in bounds) <= min(high for _, high in bounds)  # all overlap
    for before, after in pairwise(parts(miniature, OLD)):
        assert max(keys(before)) <= min(keys(after))


def test_equal_keys_lie_across_every_kind_of_boundary(miniature: Miniature) -> None:
    files, groups, pages, whole = (Counter[bool]() for _ in range(4))
    for before, after in pairwise(parts(miniature, MODERN)):
        files[keys(before)[-1] == keys(after)[0]] += 1
    for path in parts(miniature, MODERN):
        found = key_groups(path)
        for one, next_one in pairwise(found):
            groups[one[-1] == next_one[0]] += 1
        for number, group in enumerate(found):
            at = 0
            for size, _ in data_pages(path, number, "url_surtkey"):
                at += size
                if at < len(group):
                    pages[group[at - 1] == group[at]] += 1
                whole[len(set(group[at - size : at])) == 1] += 1
    assert set(files) == set(groups) == set(pages) == {True, False}
    assert max(Counter(row["url"] for row in rows(miniature, MODERN)).values()) > 30


@pytest.mark.parametrize("crawl", [MODERN, NEWEST])
def test_newer_statistics_of_keys_are_right(miniature: Miniature, crawl: str) -> None:
    for path in every_file(miniature, crawl):
        for number, found in enumerate(key_groups(path)):
            statistics = pq.ParquetFile(path).metadata.row_group(number).column(0).statistics
            assert (statistics.min, statistics.max) == (min(found), max(found))


def test_older_statistics_of_keys_have_gaps(miniature: Miniature) -> None:
    having = []
    for path in parts(miniature, OLD):
        metadata = pq.ParquetFile(path).metadata
        of_file = []
        for number, found in enumerate(key_groups(path)):
            statistics = metadata.row_group(number).column(0).statistics
            of_file.append(statistics is not None and statistics.has_min_max)
            if of_file[-1]:
                assert (statistics.min, statistics.max) == (min(found), max(found))
            others = [metadata.row_group(number).column(place).statistics for place in (1, 2, 17)]
            assert all(other.has_min_max for other in others[:2] if max(map(len, found)) < 4096)
            assert others[2].has_min_max  # fetch_status
        having.append(of_file)
    complete, without, alone = [True] * 6, [False] * 6, [True] * 5 + [False]
    assert having == [complete, without, complete, without, alone]
    assert max(map(len, key_groups(parts(miniature, OLD)[-1])[-1])) > 4096


# Determinism


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Miniature:
    return write_miniature(tmp_path_factory.mktemp("smallest"), seed=7, pages_per_crawl=FEWEST_PAGES)


def test_seed_decides(smallest: Miniature, tmp_path: Path) -> None:
    first, other = smallest, write_miniature(tmp_path, seed=8, pages_per_crawl=FEWEST_PAGES)
    assert first.files != other.files
    again = write_miniature(other.folder, seed=7, pages_per_crawl=FEWEST_PAGES)  # over the other
    assert first.files == again.files
    for path in first.files:
        assert (first.folder / path).read_bytes() == (again.folder / path).read_bytes(), path


def test_smallest_still_has_several_row_groups(smallest: Miniature) -> None:
    assert smallest.rows == 3 * FEWEST_PAGES
    for path in smallest.files:
        if path.endswith(".parquet"):
            assert pq.ParquetFile(smallest.folder / path).num_row_groups >= 2


def test_too_few_pages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1000 pages or more, not 999"):
        write_miniature(tmp_path / "new", pages_per_crawl=999)
    assert not (tmp_path / "new").exists()
