"""Footers compared with pyarrow, ends of files, and positions of parts."""

import base64
import json
import struct
from io import BytesIO
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.errors import BadFooter, NotParquet
from catalogue.parquet.column_chunk import number
from catalogue.parquet.footer import decode_footer, examine_footer, footer_length, key_bounds
from catalogue.parquet.model import CODECS, ColumnChunk, Footer, Order
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Reader
from catalogue.settings import Limits
from catalogue.source.byte_ranges import ByteRange
from tests.support.amounts import EXAMPLES, part_of
from tests.support.footers import (
    KEY,
    TIME,
    Items,
    Struct,
    confused,
    decoded,
    field,
    made,
    put_together,
    small_file,
    take_apart,
)
from tests.support.mirrors import crawl_of, index_paths, one_of_each_crawl, raw_footer, read_footer
from tests.support.mutators import damage

# As pyarrow reads them


def test_footers_of_the_mirror_equal_pyarrow(mirror: Path) -> None:
    paths = index_paths(mirror)
    assert len({crawl_of(path) for path in paths}) >= 3
    for path in paths:
        check_file(path.read_bytes())


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_footers_written_by_pyarrow_equal_pyarrow(compression: str, version: str, *, dictionary: bool) -> None:
    footer = check_file(small_file(compression=compression, version=version, use_dictionary=dictionary))
    assert footer.codecs == ({"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}.get(compression, compression.upper()),)


def check_file(data: bytes) -> Footer:
    footer, expected = read_footer(data), pq.ParquetFile(pa.BufferReader(data))
    metadata = expected.metadata
    assert (footer.num_rows, footer.created_by) == (metadata.num_rows, metadata.created_by)
    assert list(footer.columns) == metadata.schema.names
    for position, column in enumerate(footer.columns.values()):
        schema = metadata.schema.column(position)
        assert (column.name, column.physical_type) == (schema.path, schema.physical_type)
        assert (column.optional, column.flat) == (schema.max_definition_level == 1, schema.max_repetition_level == 0)
        logical = json.loads(schema.logical_type.to_json())
        is_time = logical["Type"] == "Timestamp" and not logical["is_from_converted_type"]
        assert column.utc == (is_time and logical["isAdjustedToUTC"])
        assert column.timestamp_unit == (1 if is_time else None)
        types = {"UTF8": 0, "TIMESTAMP_MILLIS": 9, "INT_16": 16, "NONE": None}
        assert column.converted_type == types[schema.converted_type]
    assert len(footer.row_groups) == metadata.num_row_groups
    for ordinal, group in enumerate(footer.row_groups):
        stored = metadata.row_group(ordinal)
        numbers = (ordinal, stored.num_rows, stored.total_byte_size)
        assert (group.ordinal, group.num_rows, group.total_byte_size) == numbers
        assert list(group.chunks) == list(footer.columns)
        columns = [stored.column(position) for position in range(stored.num_columns)]
        for chunk, column in zip(group.chunks.values(), columns, strict=True):
            check_chunk(data, chunk, column)
        assert group.total_compressed_size == sum(column.total_compressed_size for column in columns)
    return footer


def check_chunk(data: bytes, chunk: ColumnChunk, expected: pq.ColumnChunkMetaData) -> None:
    assert (chunk.column.name, chunk.column.physical_type) == (expected.path_in_schema, expected.physical_type)
    assert chunk.codec_name == {"LZ4": "LZ4_RAW"}.get(expected.compression, expected.compression)
    for name in ("num_values", "total_uncompressed_size", "data_page_offset", "dictionary_page_offset"):
        assert getattr(chunk, name) == getattr(expected, name)
    assert len(chunk.range) == expected.total_compressed_size
    assert chunk.range.start == (expected.dictionary_page_offset or expected.data_page_offset)
    assert len(chunk.encodings) == len(expected.encodings)
    assert (chunk.column_index is not None) == expected.has_column_index
    assert (chunk.offset_index is not None) == expected.has_offset_index
    if chunk.column_index and chunk.offset_index:
        check_page_index(data, chunk, chunk.column_index, chunk.offset_index)
    check_statistics(chunk, expected.statistics)


def check_page_index(data: bytes, chunk: ColumnChunk, column_index: ByteRange, offset_index: ByteRange) -> None:
    """parquet.thrift: PageLocation of OffsetIndex, null_pages of ColumnIndex."""
    reader = Reader(data[offset_index.start : offset_index.end])
    pages = reader.struct()[1]
    assert reader.position == len(offset_index)
    assert pages[0][1] == chunk.data_page_offset
    assert pages[-1][1] + pages[-1][2] == chunk.range.end
    reader = Reader(data[column_index.start : column_index.end])
    index = reader.struct()
    assert [len(index[number]) for number in (1, 2, 3)] == [len(pages)] * 3  # null_pages, min_values, max_values
    assert reader.position == len(column_index)


def check_statistics(chunk: ColumnChunk, expected: pq.Statistics | None) -> None:
    if expected and expected.has_null_count:
        assert chunk.null_count == expected.null_count
    if chunk.bounds and chunk.bounds.order is Order.SIGNED:
        assert not expected
        return
    if not (expected and expected.has_min_max) or not is_text(expected.min_raw) or not is_text(expected.max_raw):
        assert chunk.bounds is None
        return
    assert chunk.bounds
    assert [plain(chunk, chunk.bounds.min), plain(chunk, chunk.bounds.max)] == [expected.min_raw, expected.max_raw]


def is_text(bound: int | bytes) -> bool:
    """Whether it is no binary, such as those of warc_record_id, which are left unread."""
    return isinstance(bound, int) or bound.decode("utf-8", "ignore").encode() == bound


def plain(chunk: ColumnChunk, bound: bytes) -> int | bytes | None:
    return bound if chunk.column.physical_type == "BYTE_ARRAY" else number(chunk.column.physical_type, bound)


def no_rows() -> bytes:
    file = BytesIO()
    pq.ParquetWriter(file, pa.schema([(KEY_COLUMN, pa.string())])).close()
    return file.getvalue()


def test_groups_without_columns_are_no_columns() -> None:
    footer = made(small_file())
    footer.fields[2][1].values.append({4: (BINARY, b"empty"), 3: (I32, 1), 5: (I32, 0)})
    footer.element(0)[5] = (I32, 4)
    assert list(decoded(footer).columns) == ["url_surtkey", "fetch_time", "fetch_status"]


# The end of a file


MAX_FOOTER = Limits().max_footer


def test_returns_lengths() -> None:
    for length in (1, 58_735, MAX_FOOTER - 1, MAX_FOOTER):
        assert footer_length(b"footer" + struct.pack("<I", length) + b"PAR1") == length


@pytest.mark.parametrize("length", [0, MAX_FOOTER + 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_rejects_other_lengths(length: int) -> None:
    with pytest.raises(BadFooter, match=f"the footer claims {length:,} bytes"):
        footer_length(b"footer" + struct.pack("<I", length) + b"PAR1")
    with pytest.raises(BadFooter, match="of the file's 100 bytes$" if length else "0 bytes$"):
        footer_length(struct.pack("<I", length) + b"PAR1", 100)


@pytest.mark.parametrize(
    "tail", [b"", b"PAR1", b"\0\0\0PAR1", b"\1\0\0\0PAR2", b"\1\0\0\0par1", b"<html>\n</html>\n", b"\1\0\0\0PAR1\n"]
)
def test_rejects_ends_that_are_not_parquet(tail: bytes) -> None:
    with pytest.raises(NotParquet, match="not a Parquet file"):
        footer_length(tail)


def test_rejects_footers_larger_than_their_file() -> None:
    footer = raw_footer(no_rows())
    assert decode_footer(footer, len(footer) + 12).num_rows == 0
    for missing in range(1, 13):
        with pytest.raises(BadFooter, match="does not fit into the file"):
            decode_footer(footer, len(footer) + 12 - missing)


# Encryption


class _NoSecrets(pe.KmsClient):  # type: ignore[misc]  # a class without types
    def __init__(self, _config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _name: str) -> bytes:
        return base64.b64encode(key_bytes)


def encrypted_file(*, plaintext_footer: bool) -> bytes:
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["url"]}, plaintext_footer=plaintext_footer, double_wrapping=False
    )
    table = pa.table({KEY_COLUMN: ["com,example)/"], "url": ["https://example.com/"]})
    properties = pe.CryptoFactory(_NoSecrets).file_encryption_properties(pe.KmsConnectionConfig(), config)
    file = BytesIO()
    with pq.ParquetWriter(file, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return file.getvalue()


def test_files_encrypted_by_pyarrow() -> None:
    with pytest.raises(BadFooter, match="the footer is encrypted"):
        footer_length(encrypted_file(plaintext_footer=False)[-8:])
    with pytest.raises(BadFooter, match="column url is encrypted"):
        read_footer(encrypted_file(plaintext_footer=True))


@pytest.mark.parametrize(
    ("number", "kind", "value"),
    [(8, STRUCT, {1: (STRUCT, {})}), (8, STRUCT, {2: (STRUCT, {})}), (9, BINARY, b"cipher")],
    ids=["with the footer's key", "with a key of its own", "metadata"],
)
def test_an_encrypted_column(number: int, kind: int, value: Any) -> None:
    footer = made(small_file())
    footer.chunk(1, TIME)[number] = (kind, value)
    del footer.chunk(1, TIME)[3]  # the metadata may be encrypted too
    with pytest.raises(BadFooter, match="column fetch_time is encrypted"):
        decoded(footer)
    footer = made(small_file())
    footer.fields[8] = (STRUCT, {1: (STRUCT, {})})
    with pytest.raises(BadFooter, match="columns are encrypted"):
        decoded(footer)


# Codecs


def test_codecs_by_number() -> None:
    footer = made(small_file(compression="gzip"))
    for codec in [-1, *range(10), 99, 255]:
        field(footer.meta(1, KEY), 4, codec)
        names = decoded(footer).codecs
        assert names == tuple(dict.fromkeys(["GZIP", CODECS[codec] if 0 <= codec < 8 else f"UNKNOWN({codec})"]))


# Where things are


@pytest.mark.parametrize("claimed", [None, 0, "after the data pages"])
def test_finds_dictionaries_that_the_footer_does_not_list(claimed: int | str | None) -> None:
    """parquet-mr before 1.13 lets data_page_offset point to the dictionary page."""
    footer = made(small_file())
    meta = footer.meta(0, KEY)
    start = meta[11][1]
    field(meta, 9, start)
    if claimed is None:
        del meta[11]
    else:
        field(meta, 11, 0 if claimed == 0 else start + 1)
    chunk = decoded(footer).row_groups[0].chunks[KEY_COLUMN]
    assert (chunk.dictionary_page_offset, chunk.data_page_offset, chunk.range.start) == (None, start, start)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("kind", [I32, I64], ids=["I32", "I64"])
@pytest.mark.parametrize("extra", [False, True], ids=["three fields", "more fields"])
def test_counts_data_pages_with_dictionary_indices(kind: int, *, extra: bool) -> None:
    """Whatever the length of the numbers: short structs are decoded in a way of their own."""
    footer = made(small_file())
    pages, encodings = [-1, 0, 1, 2, 3, 64, 1344], [-11, -2, 0, 2, 3, 8, 64, 1 << 20]
    for page, encoding, count in part_of(product(pages, encodings, [-64, -1, 0, 1, 63, 64, 1 << 30]), 4):
        stats: Struct = {number: (kind, value) for number, value in enumerate([page, encoding, count], 1)}
        if extra:
            stats[4] = (BINARY, b"more")
        plain = {number: (I32, value) for number, value in enumerate([0, 0, 5], 1)}
        footer.meta(0, KEY)[13] = (LIST, Items(STRUCT, [plain, stats, plain, stats]))
        coded = 2 * count if page in {0, 3} and encoding in {2, 8} else 0
        assert decoded(footer).row_groups[0].chunks[KEY_COLUMN].dictionary_coded == coded


@pytest.mark.parametrize(
    ("offset", "length"), [(3, 10), (4, 0), (4, -1), (-1, 10), (4, 1 << 40), (1 << 62, 1), (None, 10), (10, None)]
)
def test_ignores_wrong_page_indexes(offset: int | None, length: int | None) -> None:
    footer = made(small_file())
    for numbers in [(4, 5), (6, 7)]:
        for place, value in zip(numbers, (offset, length), strict=True):
            del footer.chunk(0, KEY)[place]
            if value is not None:
                footer.chunk(0, KEY)[place] = (I64 if place % 2 == 0 else I32, value)
    chunk = decoded(footer).row_groups[0].chunks[KEY_COLUMN]
    assert (chunk.column_index, chunk.offset_index) == (None, None)


# Chance


@pytest.mark.parametrize("gentle", [True, False])
def test_rejects_damaged_footers_or_returns_valid_ones(mirror: Path, *, gentle: bool) -> None:
    files = [small_file(), small_file(version="1.0", write_page_index=False)]
    files += [path.read_bytes() for path in one_of_each_crawl(mirror)]
    footers = [made(data, row_groups=2 if len(data) < 5_000 else 1) for data in files]
    seeds = [(each.footer, each.file_size) for each in footers]
    rng = Random(gentle)
    refused = 0
    for turn in range(30 * EXAMPLES):
        seed, file_size = seeds[turn // 20 % len(seeds)] if turn % 20 == 0 else seeds[turn % 2]
        data = confused(seed, rng) if gentle else damage(seed, rng, [seed])
        try:
            footer = decode_footer(data, file_size)
        except BadFooter:
            refused += 1
            continue
        if KEY_COLUMN in footer.columns:
            assert examine_footer(data, file_size) == footer
        json.dumps([footer.codecs, *map(key_bounds, footer.row_groups)])
        for group in footer.row_groups:
            assert all(4 <= chunk.range.start < chunk.range.end <= file_size for chunk in group.chunks.values())
            assert all(chunk.num_values == group.num_rows for chunk in group.chunks.values() if chunk.column.flat)
    assert 6 * EXAMPLES < refused < 30 * EXAMPLES


def test_decodes_complete_footers_with_reordered_fields() -> None:
    data = small_file()
    fields = take_apart(raw_footer(data))
    raw = put_together(fields, backwards=True)
    footer = decode_footer(raw, len(data) - len(raw_footer(data)) + len(raw))
    assert footer == read_footer(data)
