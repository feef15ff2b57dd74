"""Tables have what the footers have, and find the row groups that comparing each one finds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.commoncrawl.datasets import COMMON_CRAWL, index_file
from catalogue.errors import FormatError
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import TRAILER, Bounds, Footer, Order
from catalogue.query.key_intervals import Intervals
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from catalogue.surt.interval import KeyInterval, merge
from catalogue.tables.crawl_table import FileMetadata
from catalogue.tables.stored_crawls import StoredCrawls
from tests.support.footers import confused, made, small_file
from tests.support.mirrors import crawl_of, index_paths, raw_footer
from tests.support.stores import path_of, stored_file


def footers_of(tables: StoredCrawls) -> dict[str, Footer]:
    return {each.path: each.footer for each in files_of(tables)}


def files_of(tables: StoredCrawls) -> list[FileMetadata]:
    return [each for crawl in tables.crawls for each in tables.files(crawl)]


def stored_footers(folder: Path, values: Mapping[str, StoredFile]) -> Store:
    store = Store(folder / "footers.sqlite", create=True)
    store.put("files", values.items())
    return store


def values_of(files: Sequence[bytes]) -> dict[str, StoredFile]:
    return {path_of(n): stored_file(raw_footer(data), size=len(data)) for n, data in enumerate(files)}


@pytest.fixture(scope="module")
def mirrored(mirror: Path) -> dict[str, StoredFile]:
    data = {str(path.relative_to(mirror)): path.read_bytes() for path in index_paths(mirror)}
    return {path: stored_file(raw_footer(each), size=len(each)) for path, each in data.items()}


@pytest.mark.parametrize("of", ["every era", "any writer"])
def test_tables_have_what_the_footers_have(tmp_path: Path, mirrored: dict[str, StoredFile], of: str) -> None:
    values = mirrored if of == "every era" else values_of([small_file(**options) for options in OPTIONS])
    with stored_footers(tmp_path, values) as store:
        tables = StoredCrawls(tmp_path / "tables", store, COMMON_CRAWL)
        assert footers_of(tables) == {path: decode_footer(each.data, each.size) for path, each in values.items()}
        stored = {each.path: each.stored for each in files_of(tables)}
        assert stored == {path: replace(each, data=b"") for path, each in values.items()}
        for crawl, state in tables.tables.crawls.items():
            for subset in state.files:
                of_crawl = tables.table(crawl)
                assert of_crawl
                columns = of_crawl.table.columns(subset, ["path", "version"]).columns
                paths, versions = (each.to_pylist() for each in columns)
                assert dict(zip(paths, versions, strict=True)) == store.versions(paths)


OPTIONS: list[dict[str, Any]] = [
    *({"compression": "snappy", "version": "1.0"}, {"compression": "zstd", "use_dictionary": False}),
    *({"compression": "none", "write_statistics": False}, {"compression": "brotli", "write_page_index": False}),
    *({"compression": "lz4", "data_page_version": "2.0"}, {"row_group_size": 1}),
]


def test_tables_of_strange_footers_have_what_the_footers_have(tmp_path: Path) -> None:
    """Footers with wrong fields are in the table as they are decoded, or are failures."""
    original = made(small_file())
    footers = {confused(original.footer, Random(seed)) for seed in range(200)}
    rest = len(original.body) + TRAILER
    values = {path_of(n): stored_file(each, size=rest + len(each)) for n, each in enumerate(sorted(footers))}
    expected = {}
    for path, each in values.items():
        try:
            expected[path] = decode_footer(each.data, each.size)
        except FormatError:
            continue
    with stored_footers(tmp_path, values) as store:
        tables = StoredCrawls(tmp_path / "tables", store, COMMON_CRAWL)
        found = footers_of(tables)
        undecodable = {path for state in tables.tables.crawls.values() for path in state.undecodable}
        present = {path: each for path, each in expected.items() if path not in undecodable and each.row_groups}
        assert {**found} == present
    assert len(expected) > 20
    assert undecodable >= values.keys() - expected.keys()
    assert sum(sum(state.failures.values()) for state in tables.tables.crawls.values()) == len(undecodable)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, mirrored: dict[str, StoredFile]) -> Iterator[StoredCrawls]:
    folder = tmp_path_factory.mktemp("opened")
    with stored_footers(folder, mirrored) as store:
        yield StoredCrawls(folder / "tables", store, COMMON_CRAWL)


KEYS = st.text("abcdeghmnoprtwz,)/é", max_size=6)


@pytest.fixture(scope="module")
def bounds_of(mirrored: dict[str, StoredFile]) -> dict[tuple[str, int], Bounds | None]:
    return {
        (path, group.ordinal): group.chunks["url_surtkey"].bounds
        for path, each in mirrored.items()
        for group in decode_footer(each.data, each.size).row_groups
    }


@given(keys=st.lists(KEYS, min_size=2, max_size=12, unique=True), prefix=st.sampled_from(["", "com,"]))
def test_finds_the_row_groups_that_may_match(
    opened: StoredCrawls, bounds_of: dict[tuple[str, int], Bounds | None], keys: list[str], prefix: str
) -> None:
    chosen = sorted((prefix + key).encode() for key in keys)
    intervals = merge(KeyInterval(start, end) for start, end in zip(chosen[::2], chosen[1::2], strict=False))
    ascii_only = all(each.start.isascii() and each.end.isascii() for each in intervals)
    expected = {
        place
        for place, bounds in bounds_of.items()
        if bounds is None
        or (bounds.order is Order.SIGNED and not ascii_only)
        or any(bounds.min < one.end and bounds.max >= one.start for one in intervals)
    }
    found = [
        (file.path, ordinal)
        for crawl, state in opened.tables.crawls.items()
        for subset in state.files
        for file in opened.table(crawl).files({subset}, Intervals(intervals))  # type: ignore[union-attr]
        for ordinal in file.ordinals
    ]
    assert len(found) == len({*found})
    assert {*found} == expected


def test_a_crawl_without_a_valid_footer_has_no_table(tmp_path: Path) -> None:
    good = values_of([small_file()])
    with stored_footers(tmp_path, {path_of(0): stored_file(b"no footer")}) as store:
        tables = StoredCrawls(tmp_path / "tables", store, COMMON_CRAWL)
        (state,) = tables.tables.crawls.values()
        assert (footers_of(tables), state.failures) == ({}, {"warc": 1})
        store.put("files", good.items())
        tables = StoredCrawls(tmp_path / "tables", store, COMMON_CRAWL)
        (state,) = tables.tables.crawls.values()
        assert ([*footers_of(tables)], state.failures) == ([path_of(0)], {})
        store.put("files", [(path_of(0), stored_file(b"no footer"))])
        assert footers_of(StoredCrawls(tmp_path / "tables", store, COMMON_CRAWL)) == {}
        assert [*(tmp_path / "tables").glob("*.parquet")] == []


def test_changes_of_the_store_change_one_table(tmp_path: Path, mirrored: dict[str, StoredFile]) -> None:
    folder = tmp_path / "tables"
    first, *others = mirrored
    with stored_footers(tmp_path, {path: mirrored[path] for path in others}) as store:
        StoredCrawls(folder, store, COMMON_CRAWL)
        before = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
        store.put("files", [(first, mirrored[first])])
        file = index_file(first)
        assert file
        tables = StoredCrawls(folder, store, COMMON_CRAWL)
        assert first in footers_of(tables)
        after = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
        assert {name for name in after if before.get(name) != after[name]} == {f"{file.crawl}.parquet"}
        store.delete("files", [path for path in mirrored if f"crawl={file.crawl}/" in path])
        assert file.crawl not in StoredCrawls(folder, store, COMMON_CRAWL).crawls
        assert not (folder / f"{file.crawl}.parquet").exists()


def test_tables_are_parquet_files(mirrored: dict[str, StoredFile], tmp_path: Path) -> None:
    with stored_footers(tmp_path, mirrored) as store:
        StoredCrawls(tmp_path / "tables", store, COMMON_CRAWL)
    for path in (tmp_path / "tables").glob("*.parquet"):
        table = pq.read_table(path)
        groups = list(zip(table["path"].to_pylist(), table["row_group"].to_pylist(), strict=True))
        expected = [
            (each, group.ordinal)
            for each, value in mirrored.items()
            if crawl_of(Path(each)) == path.stem
            for group in decode_footer(value.data, value.size).row_groups
        ]
        assert sorted(groups) == sorted(expected)
        subsets = table["subset"].to_pylist()
        assert subsets == sorted(subsets)
