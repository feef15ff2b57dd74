"""pyarrow reads the same rows from a spliced file as from the complete file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.parquet.model import ColumnChunk, Footer
from catalogue.parquet.page_headers import page_header
from catalogue.parquet.page_index import OffsetIndex, decode_offset_index
from catalogue.parquet.splice import ChunkPages, splice
from tests.support.footers import write
from tests.support.mirrors import index_paths, read_footer
from tests.support.page_indexes import located_by_headers
from tests.support.spliced import ROWS, groups, read, spliced, wide_table

wide = pytest.fixture(scope="module")(wide_table)


def check_metadata(found: pq.FileMetaData, whole: pq.FileMetaData, row_group: int, name: str) -> None:
    """What pyarrow has no need of, or only for the files of some writers."""
    chunk = found.row_group(0).column(0)
    expected = whole.row_group(row_group).column(whole.schema.names.index(name))
    assert found.created_by == (whole.created_by if whole.created_by.startswith("parquet-cpp") else "")
    assert (chunk.path_in_schema, chunk.encodings) == (name, expected.encodings)
    assert (chunk.num_values, found.num_rows) == (expected.num_values, expected.num_values)
    assert chunk.total_compressed_size == expected.total_compressed_size
    assert chunk.total_uncompressed_size == expected.total_uncompressed_size


def check_file(data: bytes) -> int:
    """Compare every chunk of a file; gives their number."""
    footer, whole = read_footer(data), pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    checked = 0
    for group in footer.row_groups:
        expected = whole.read_row_group(group.ordinal, use_threads=False)
        for name, chunk in group.chunks.items():
            file = spliced(data, footer, chunk, group.num_rows)
            found = read(file)
            assert found.type == expected[name].type
            assert found.equals(expected[name]), name
            check_metadata(pq.read_metadata(pa.BufferReader(file)), whole.metadata, group.ordinal, name)
            checked += 1
        assert pq.read_schema(pa.BufferReader(file)).field(0).equals(expected.schema.field(-1))
    return checked


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_versions_of_the_format(wide: pa.Table, version: str) -> None:
    assert check_file(write(wide, version=version, compression="gzip")) == wide.num_columns


def located(data: bytes, chunk: ColumnChunk, num_rows: int) -> OffsetIndex:
    """Where the pages of a chunk lie, by their own headers and, where there is one, by the file's index."""
    index = located_by_headers(data[chunk.range.start : chunk.range.end], chunk)
    if chunk.offset_index:
        written = data[chunk.offset_index.start : chunk.offset_index.end]
        assert index == decode_offset_index(written, chunk, num_rows)
    return index


def selections(count: int) -> Iterator[tuple[int, ...]]:
    """Every choice of pages of a chunk, those that are no neighbours too; of many pages a part of the choices."""
    if count <= 5:
        for size in range(1, count + 1):
            yield from combinations(range(count), size)
        return
    for first in range(count):
        yield from (tuple(range(first, last + 1)) for last in (first, first + 1, count - 1) if last < count)
        yield (first, *range(first + 2, count, 3))


def picked(
    data: bytes, footer: Footer, chunk: ColumnChunk, index: OffsetIndex, pages: Sequence[int], *, dictionary: bool
) -> bytes:
    before = data[chunk.range.start : index.offsets[0]] if dictionary else b""
    body = b"".join(data[index.offsets[page] : index.offsets[page + 1]] for page in pages)
    rows = sum(len(index.rows(range(page, page + 1))) for page in pages)
    piece = ChunkPages(chunk, [before, body], len(before) + len(body), len(before), rows, chunk.codec)
    file: bytes = splice([piece], created_by=footer.created_by).to_pybytes()
    return file


def check_selections(compared: Counter[str], data: bytes, footer: Footer, chunk: ColumnChunk, values: pa.Array) -> None:
    index, coded = located(data, chunk, len(values)), chunk.dictionary_coded
    for page in range(len(index)):
        needed = page_header(data, index.offsets[page]).needs_dictionary
        assert coded is None or needed == (page < coded)
    for pages in selections(len(index)):
        dictionary = chunk.range.start < index.offsets[0] and (coded is None or pages[0] < coded)
        found = read(picked(data, footer, chunk, index, pages, dictionary=dictionary))
        assert found.type == values.type
        runs = [index.rows(range(page, page + 1)) for page in pages]
        expected = pa.chunked_array([values.slice(run.start, len(run)) for run in runs], values.type)
        assert found.equals(expected), (chunk.column.name, pages)
        compared["in all"] += 1
        compared["with gaps"] += pages[-1] - pages[0] >= len(pages)
        compared["without the dictionary of their chunk"] += not dictionary and chunk.range.start < index.offsets[0]


def check_pages_of(data: bytes, row_groups: slice = slice(None)) -> Counter[str]:
    """Compare every choice of pages of every chunk of a file, or of some of its row groups."""
    compared, footer = Counter[str](), read_footer(data)
    whole = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    for group in footer.row_groups[row_groups]:
        expected = whole.read_row_group(group.ordinal, use_threads=False)
        for name, chunk in group.chunks.items():
            check_selections(compared, data, footer, chunk, expected[name].combine_chunks())
    return compared


def paged(table: pa.Table, **options: Any) -> bytes:
    """Two row groups of four and of three pages a column."""
    settings = {"row_group_size": ROWS * 3 // 5, "data_page_size": 1, "write_batch_size": 110} | options
    return write(table, **settings)


@pytest.mark.in_part(7)
@pytest.mark.parametrize(
    ("codec", "page", "dictionary", "third"),
    [
        (codec, ("1.0", "2.0")[(number + other) % 2], dictionary, (number + other) % 3)
        for number, codec in enumerate(["gzip", "zstd", "snappy", "none", "lz4", "brotli"])
        for other, dictionary in enumerate(["on", "off", "overflows"])
    ],
)
def test_every_kind_of_column(wide: pa.Table, codec: str, page: str, dictionary: str, third: int) -> None:
    """Each with each use of a dictionary, and all of these with each codec."""
    wide = wide.select(wide.column_names[third::3])
    limit = {"dictionary_pagesize_limit": 400} if dictionary == "overflows" else {}
    data = paged(wide, compression=codec, data_page_version=page, use_dictionary=dictionary != "off", **limit)
    encodings = {encoding for group in groups(data) for chunk in group for encoding in chunk.encodings}
    assert (8 in encodings) == (dictionary != "off")  # RLE_DICTIONARY
    assert check_file(data) == 2 * wide.num_columns
    compared = check_pages_of(data)
    assert compared["in all"] > 270
    assert compared["with gaps"] > 70
    assert (compared["without the dictionary of their chunk"] > 30) == (dictionary == "overflows")


@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_finds_dictionaries_that_the_footer_does_not_list(wide: pa.Table, page: str) -> None:
    """parquet-mr before 1.13 lets data_page_offset point to the dictionary page."""
    data = paged(wide, version="1.0", data_page_version=page, dictionary_pagesize_limit=400, row_group_size=ROWS // 2)
    footer, whole, compared = read_footer(data), pq.ParquetFile(pa.BufferReader(data)), Counter[str]()
    for group in footer.row_groups:
        expected = whole.read_row_group(group.ordinal, use_threads=False)
        for name, reported in group.chunks.items():
            if reported.dictionary_page_offset is not None:
                start = reported.dictionary_page_offset
                chunk = replace(reported, dictionary_page_offset=None, data_page_offset=start, dictionary_coded=None)
                assert read(spliced(data, footer, chunk, group.num_rows)).equals(expected[name])
                check_selections(compared, data, footer, chunk, expected[name].combine_chunks())
    assert compared["in all"] > 600
    assert not compared["without the dictionary of their chunk"]


ENCODINGS = {
    "DELTA_BINARY_PACKED": ("int16", "int32", "int64", "ms_utc", "ms_naive", "date"),
    "DELTA_LENGTH_BYTE_ARRAY": ("binary", "string"),
    "DELTA_BYTE_ARRAY": ("binary", "string", "fixed", "decimal"),
    "BYTE_STREAM_SPLIT": ("int32", "int64", "double", "fixed", "decimal"),
    "RLE": ("bool",),
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("encoding", "codec", "page"),
    [
        (encoding, codec, ("1.0", "2.0")[(number + other) % 2])
        for number, encoding in enumerate(ENCODINGS)
        for other, codec in enumerate(["gzip", "zstd", "snappy", "none", "lz4", "brotli"])
        if (number + other) // 2 % 2
    ],
)
def test_every_encoding(wide: pa.Table, encoding: str, codec: str, page: str) -> None:
    table = wide.select([name for name in wide.column_names if name.rsplit("_", 1)[0] in ENCODINGS[encoding]])
    data = paged(table, use_dictionary=False, column_encoding=encoding, compression=codec, data_page_version=page)
    metadata = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    assert all(encoding in metadata.column(at).encodings for at in range(table.num_columns))
    assert check_file(data) == 2 * table.num_columns
    compared = check_pages_of(data)
    assert compared["in all"] > 16 * table.num_columns


@pytest.mark.in_soak
def test_pages_of_every_file_of_the_mirror(mirror: Path) -> None:
    compared = Counter[str]()
    some = slice(None, None, 12)
    for path in index_paths(mirror):
        data = path.read_bytes()
        found = check_pages_of(data, some)
        assert found["in all"] >= sum(len(group.chunks) for group in read_footer(data).row_groups[some])
        compared.update(found)
    assert compared["with gaps"] > 25
    assert compared["without the dictionary of their chunk"] > 10


@pytest.mark.in_part(4)
@pytest.mark.parametrize(
    ("codec", "version", "half"),
    [
        (codec, version, (number + other) % 2)
        for number, codec in enumerate(["gzip", "zstd", "snappy", "uncompressed", "lz4_raw", "brotli"])
        for other, version in enumerate(["V1", "V2"])
    ],
)
def test_files_of_duckdb(wide: pa.Table, tmp_path: Path, codec: str, version: str, half: int) -> None:
    """It writes a page a chunk, no page index, and data_page_offset as the others do.

    Each column comes with each codec, and with each version.
    """
    path = tmp_path / "of.parquet"
    wide = wide.select(wide.column_names[half::2])
    with duckdb.connect() as connection:
        connection.register("wide", wide)
        connection.execute(f"CREATE TABLE longer AS {' UNION ALL '.join(['FROM wide'] * 7)}")
        settings = f"FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION {codec}, PARQUET_VERSION {version}"
        connection.execute(f"COPY longer TO '{path}' ({settings})")
    data = path.read_bytes()
    footer = read_footer(data)
    assert footer.created_by.startswith("DuckDB")
    assert len(footer.row_groups) > 1
    chunks = len(footer.row_groups) * wide.num_columns
    assert check_file(data) == check_pages_of(data)["in all"] == chunks
    reported = {chunk.dictionary_coded for group in groups(data) for chunk in group}
    assert reported <= {0, 1} or reported == {None}  # before 2.0 it does not say
