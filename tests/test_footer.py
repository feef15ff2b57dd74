"""Footers, compared with what pyarrow reads in the same files, and wrong ones, each in one way."""

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from catalogue.crawl import KEY_COLUMN
from catalogue.errors import BadFooter, Encrypted, NotParquet
from catalogue.examine import file_facts
from catalogue.footer import (
    CODECS,
    MAX_FOOTER,
    PHYSICAL_TYPES,
    TRAILER,
    Bounds,
    ColumnChunk,
    Footer,
    Order,
    decode_footer,
    decode_row_groups,
    footer_length,
    number,
)
from catalogue.ranges import ByteRange
from catalogue.thrift import BINARY, BOOLEAN_TRUE, I32, I64, LIST, STRUCT, Reader
from tests.footers import Items, Made, Struct, confused, made, put_together, scrambled, small_file, take_apart, write
from tests.mirrors import crawl_of, index_paths, one_of_each_crawl, raw_footer, read_footer

KEY, TIME, STATUS = range(3)
"""The columns of ``small_file``."""


def decoded(footer: Made) -> Footer:
    return decode_footer(footer.footer, footer.file_size)


def field(struct: Struct, number: int, value: Any, kind: int | None = None) -> None:
    """Give a field another value, or a value if it had none."""
    struct[number] = (struct[number][0] if kind is None else kind, value)


# As pyarrow reads them


def test_every_footer_says_what_pyarrow_says(mirror: Path) -> None:
    paths = index_paths(mirror)
    assert len({crawl_of(path) for path in paths}) >= 3
    for path in paths:
        check_file(path.read_bytes())


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_footers_of_pyarrow(compression: str, version: str, *, dictionary: bool) -> None:
    footer = check_file(small_file(compression=compression, version=version, use_dictionary=dictionary))
    assert footer.codecs == ("UNCOMPRESSED" if compression == "none" else pyarrow_codec(compression),)


def pyarrow_codec(name: str) -> str:
    return {"lz4": "LZ4_RAW"}.get(name, name.upper())


def check_file(data: bytes) -> Footer:
    footer, expected = read_footer(data), pq.ParquetFile(pa.BufferReader(data))
    metadata = expected.metadata
    assert footer.num_rows == metadata.num_rows
    assert footer.created_by == metadata.created_by
    assert list(footer.columns) == metadata.schema.names
    for position, column in enumerate(footer.columns.values()):
        schema = metadata.schema.column(position)
        assert column.name == schema.path
        assert column.physical_type == schema.physical_type
        assert (column.optional, column.flat) == (schema.max_definition_level == 1, schema.max_repetition_level == 0)
        logical = json.loads(schema.logical_type.to_json())
        is_time = logical["Type"] == "Timestamp" and not logical["is_from_converted_type"]
        assert column.utc == (is_time and logical["isAdjustedToUTC"])
        assert column.timestamp_unit == (1 if is_time else None)
        assert (
            column.converted_type
            == {"UTF8": 0, "TIMESTAMP_MILLIS": 9, "INT_16": 16, "NONE": None}[schema.converted_type]
        )
    assert len(footer.row_groups) == metadata.num_row_groups
    for ordinal, group in enumerate(footer.row_groups):
        held = metadata.row_group(ordinal)
        assert group.ordinal == ordinal
        assert group.num_rows == held.num_rows
        assert group.total_byte_size == held.total_byte_size
        assert len(group.chunks) == held.num_columns
        assert list(group.chunks) == list(footer.columns)
        for position, chunk in enumerate(group.chunks.values()):
            check_chunk(data, chunk, held.column(position))
        sizes = [held.column(position).total_compressed_size for position in range(held.num_columns)]
        assert group.total_compressed_size == sum(sizes)
    return footer


def check_chunk(data: bytes, chunk: ColumnChunk, expected: pq.ColumnChunkMetaData) -> None:
    assert chunk.column.name == expected.path_in_schema
    assert chunk.column.physical_type == expected.physical_type
    assert chunk.codec_name == {"LZ4": "LZ4_RAW"}.get(expected.compression, expected.compression)
    assert chunk.num_values == expected.num_values
    assert len(chunk.range) == expected.total_compressed_size
    assert chunk.total_uncompressed_size == expected.total_uncompressed_size
    assert chunk.data_page_offset == expected.data_page_offset
    assert chunk.dictionary_page_offset == expected.dictionary_page_offset
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


def test_no_value_lies_outside_its_bounds(mirror: Path) -> None:
    signed = unsigned = 0
    for path in one_of_each_crawl(mirror):
        file = pq.ParquetFile(path)
        for group in read_footer(path.read_bytes()).row_groups:
            for name, chunk in group.chunks.items():
                values = file.read_row_group(group.ordinal, [name])[name]
                if chunk.null_count is not None:
                    assert chunk.null_count == values.null_count
                if not chunk.bounds:
                    continue
                if chunk.column.physical_type == "BYTE_ARRAY":
                    least, greatest = (bound.decode() for bound in (chunk.bounds.min, chunk.bounds.max))
                    held = [value for value in values.to_pylist() if value is not None]
                    assert least <= min(held) <= max(held) <= greatest
                else:
                    low, high = (plain(chunk, bound) for bound in (chunk.bounds.min, chunk.bounds.max))
                    held = values.cast(pa.int64()).drop_null().to_pylist()
                    assert low <= min(held) <= max(held) <= high
                signed += chunk.bounds.order is Order.SIGNED
                unsigned += chunk.bounds.order is Order.UNSIGNED
    assert unsigned > 100
    assert signed == 0 or signed > 100  # there are some where the files are of the real writers


def test_footers_taken_apart_and_put_together_are_the_same(mirror: Path) -> None:
    """So that what is changed in one below is all that is wrong with it."""
    for path in one_of_each_crawl(mirror):
        footer = raw_footer(path.read_bytes())
        assert put_together(take_apart(footer)) == footer


def no_rows() -> bytes:
    file = BytesIO()
    pq.ParquetWriter(file, pa.schema([(KEY_COLUMN, pa.string())])).close()
    return file.getvalue()


def test_files_without_rows() -> None:
    footer = check_file(no_rows())
    assert (footer.num_rows, footer.row_groups, footer.codecs) == (0, (), ())


# The end of a file


@pytest.mark.parametrize(
    ("length", "limit", "error"),
    [
        (1, MAX_FOOTER, None),
        (58_735, MAX_FOOTER, None),
        (MAX_FOOTER - 1, MAX_FOOTER, None),
        (MAX_FOOTER, MAX_FOOTER, None),
        (100, 100, None),
        (0, MAX_FOOTER, BadFooter),
        (MAX_FOOTER + 1, MAX_FOOTER, BadFooter),
        (101, 100, BadFooter),
        (1 << 30, MAX_FOOTER, BadFooter),
        ((1 << 31) - 1, MAX_FOOTER, BadFooter),
        (1 << 31, MAX_FOOTER, BadFooter),
        ((1 << 32) - 1, MAX_FOOTER, BadFooter),
    ],
)
def test_lengths(length: int, limit: int, error: type[Exception] | None) -> None:
    tail = b"footer" + struct.pack("<I", length) + b"PAR1"
    if error is None:
        assert footer_length(tail, limit=limit) == length
        return
    with pytest.raises(error, match=f"the footer claims {length:,} bytes; at most {limit:,} are believed"):
        footer_length(tail, limit=limit)


@pytest.mark.parametrize(
    "tail", [b"", b"PAR1", b"\0\0\0PAR1", b"\1\0\0\0PAR2", b"\1\0\0\0par1", b"<html>\n</html>\n", b"\1\0\0\0PAR1\n"]
)
def test_ends_that_are_not_parquet(tail: bytes) -> None:
    with pytest.raises(NotParquet, match="not a Parquet file"):
        footer_length(tail)


def test_encrypted_footer() -> None:
    with pytest.raises(Encrypted, match="the footer is encrypted"):
        footer_length(b"\1\0\0\0PARE")


@pytest.mark.parametrize("more", range(-12, 0))
def test_a_footer_must_fit_into_its_file(more: int) -> None:
    footer = raw_footer(no_rows())
    assert decode_footer(footer, len(footer) + 12).num_rows == 0
    with pytest.raises(BadFooter, match="does not fit into the file"):
        decode_footer(footer, len(footer) + 12 + more)


# Encryption


class _NoSecrets(pe.KmsClient):  # type: ignore[misc]  # a class without types
    """A key management that keeps nothing secret."""

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
    with pytest.raises(Encrypted, match="the footer is encrypted"):
        footer_length(encrypted_file(plaintext_footer=False)[-8:])
    with pytest.raises(Encrypted, match="columns are encrypted"):
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
    with pytest.raises(Encrypted, match="column fetch_time is encrypted"):
        decoded(footer)


# Codecs


@pytest.mark.parametrize("codec", range(256))
def test_codecs_by_number(codec: int) -> None:
    footer = made(small_file(compression="gzip"))
    field(footer.meta(1, KEY), 4, codec)
    names = decoded(footer).codecs
    assert names == tuple(dict.fromkeys(["GZIP", CODECS[codec] if codec < 8 else f"UNKNOWN({codec})"]))


def test_a_negative_codec_is_unknown_too() -> None:
    footer = made(small_file())
    field(footer.meta(0, KEY), 4, -1)
    assert decoded(footer).row_groups[0].chunks[KEY_COLUMN].codec_name == "UNKNOWN(-1)"


# Bounds


def key_bounds(change: Callable[[Struct], object], *, created_by: str = "parquet-mr version 1.13.1") -> Bounds | None:
    """The bounds of the keys of the first row group, when something about their statistics is different."""
    footer = made(small_file())
    field(footer.fields, 6, created_by.encode())
    change(footer.statistics(0, KEY))
    return decoded(footer).row_groups[0].chunks[KEY_COLUMN].bounds


def set_bounds(low: bytes, high: bytes) -> Callable[[Struct], None]:
    def change(statistics: Struct) -> None:
        statistics[6], statistics[5] = (BINARY, low), (BINARY, high)

    return change


def deprecated(low: bytes | None, high: bytes | None) -> Callable[[Struct], None]:
    """Only the bounds of the old kind: field 1 is max, 2 is min."""

    def change(statistics: Struct) -> None:
        for place, value in {1: high, 2: low, 5: None, 6: None}.items():
            statistics.pop(place, None)
            if value is not None:
                statistics[place] = (BINARY, value)

    return change


def test_bounds_as_written() -> None:
    assert key_bounds(lambda _: None) == Bounds(b"com,example)/", b"com,example)/a")
    assert key_bounds(set_bounds(b"", b"")) == Bounds(b"", b"")
    assert key_bounds(set_bounds("é".encode(), "é".encode())) == Bounds(b"\xc3\xa9", b"\xc3\xa9")


@pytest.mark.parametrize(
    ("low", "high"),
    [(b"b", b"a"), (b"a\xff", b"b"), (b"a", b"\xff"), (b"a", b"b\xc3")],
    ids=["least above greatest", "least not UTF-8", "greatest not UTF-8", "cut within a character"],
)
def test_bounds_that_cannot_be_believed_are_none(low: bytes, high: bytes) -> None:
    assert key_bounds(set_bounds(low, high)) is None
    assert key_bounds(deprecated(low, high)) is None


@pytest.mark.parametrize("missing", [5, 6])
def test_one_bound_is_none(missing: int) -> None:
    assert key_bounds(lambda statistics: statistics.pop(missing)) is None


def test_inexact_bounds_are_bounds() -> None:
    def change(statistics: Struct) -> None:
        set_bounds(b"com,ex", b"com,ey")(statistics)
        statistics[7] = statistics[8] = (2, False)  # is_max_value_exact, is_min_value_exact

    assert key_bounds(change) == Bounds(b"com,ex", b"com,ey", cut=True)


def test_without_column_orders_bounds_mean_nothing() -> None:
    footer = made(small_file())
    del footer.fields[7]
    chunks = decoded(footer).row_groups[0].chunks
    assert chunks[KEY_COLUMN].bounds is None
    assert chunks["fetch_status"].bounds == Bounds(
        struct.pack("<i", 200), struct.pack("<i", 404)
    )  # the deprecated ones
    for place in (1, 2):
        del footer.statistics(0, STATUS)[place]
    assert decoded(footer).row_groups[0].chunks["fetch_status"].bounds is None


@pytest.mark.parametrize(
    ("writer", "is_believed"),
    [
        ("parquet-mr version 1.8.0 (build 0fda28af84b9746396014ad6a415b90592a98b3b)", True),
        ("parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3ff11f16c)", True),
        ("parquet-mr version 1.10.1 (build a89df8f9932b6ef6633d06069e50c9b7970bebd1)", True),
        ("parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)", True),
        ("parquet-mr version 1.7.0", False),
        ("parquet-mr version 1.6.0rc3", False),
        ("parquet-mr version 1.0.0", False),
        ("parquet-mr version 1.80", False),
        ("parquet-mr version 1.8", False),
        ("parquet-mr", False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False),
        ("impala version 2.2.0", False),
        (" parquet-mr version 1.8.2", False),
        ("", False),
    ],
)
def test_deprecated_bounds_of_text_are_believed_from_where_they_were_right(writer: str, *, is_believed: bool) -> None:
    """PARQUET-251: parquet-mr before 1.8.0 wrote wrong ones."""
    found = key_bounds(deprecated(b"com,a)/", b"com,b)/"), created_by=writer)
    assert found == (Bounds(b"com,a)/", b"com,b)/", Order.SIGNED) if is_believed else None)


def test_deprecated_bounds_that_are_not_ascii_are_none() -> None:
    assert key_bounds(deprecated(b"a", "é".encode())) is None
    assert key_bounds(deprecated("é".encode(), "ê".encode())) is None


@pytest.mark.parametrize("pair", [(b"a", None), (None, b"b"), (None, None)])
def test_one_deprecated_bound_is_none(pair: tuple[bytes | None, bytes | None]) -> None:
    assert key_bounds(deprecated(*pair)) is None


def test_deprecated_bounds_of_numbers_are_bounds_from_any_writer() -> None:
    footer = made(small_file())
    field(footer.fields, 6, b"somebody")
    low, high = struct.pack("<q", -5), struct.pack("<q", 5)
    deprecated(low, high)(footer.statistics(0, TIME))
    assert decoded(footer).row_groups[0].chunks["fetch_time"].bounds == Bounds(low, high)


@pytest.mark.parametrize(
    ("low", "high"),
    [(b"12345678", b"1234"), (b"1234", b"12345678"), (b"", b""), (struct.pack("<q", 3), struct.pack("<q", 2))],
    ids=["greatest too short", "least too short", "empty", "least above greatest"],
)
def test_bounds_of_numbers_that_cannot_be_believed_are_none(low: bytes, high: bytes) -> None:
    footer = made(small_file())
    set_bounds(low, high)(footer.statistics(0, TIME))
    assert decoded(footer).row_groups[0].chunks["fetch_time"].bounds is None


def test_numbers() -> None:
    assert number("INT32", struct.pack("<i", -2)) == -2
    assert number("INT64", struct.pack("<q", 1 << 40)) == 1 << 40
    assert number("INT32", bytes(8)) is number("INT64", bytes(4)) is number("INT96", bytes(12)) is None
    assert number("BYTE_ARRAY", bytes(4)) is number("FLOAT", bytes(4)) is None


@pytest.mark.parametrize(("claimed", "believed"), [(0, 0), (1, 1), (2, 2), (3, None), (-1, None)])
def test_counts_of_nulls(claimed: int, believed: int | None) -> None:
    footer = made(small_file())
    field(footer.statistics(0, STATUS), 3, claimed)
    assert decoded(footer).row_groups[0].chunks["fetch_status"].null_count == believed


def test_what_is_no_number_of_nulls_counts_none() -> None:
    """A boolean would pass for one, until somebody makes a column of numbers of it."""
    footer = made(small_file())
    footer.statistics(0, STATUS)[3] = (BOOLEAN_TRUE, True)
    assert decoded(footer).row_groups[0].chunks["fetch_status"].null_count is None


@pytest.mark.parametrize("wrong", [(LIST, Items(I32, [9])), (BOOLEAN_TRUE, True)])
def test_what_is_no_number_of_a_type_says_nothing(wrong: tuple[int, Any]) -> None:
    """As with pyarrow; and chunks can be told apart, which a list in them would not allow."""
    footer = made(small_file())
    footer.element(1 + TIME)[6] = wrong
    chunk = decoded(footer).row_groups[0].chunks["fetch_time"]
    assert chunk.column.converted_type is None
    assert hash(chunk) == hash(replace(chunk))


@pytest.mark.parametrize(
    ("first", "last", "known"),
    [
        (0, 5, True),
        (-62_135_596_800_000, 253_402_300_799_999, True),
        (0, 253_402_300_800_000, False),
        (-62_135_596_800_001, 0, False),
        (0, (1 << 63) - 1, False),
    ],
)
def test_times_of_no_calendar_are_not_known(first: int, last: int, *, known: bool) -> None:
    """One such file would keep a view over all of them from being read, because DuckDB cannot multiply them."""
    footer = made(small_file())
    set_bounds(struct.pack("<q", first), struct.pack("<q", last))(footer.statistics(0, TIME))
    assert decoded(footer).row_groups[0].chunks["fetch_time"].milliseconds == ((first, last) if known else None)


def test_chunks_without_statistics() -> None:
    footer = made(small_file())
    del footer.meta(0, KEY)[12]
    chunk = decoded(footer).row_groups[0].chunks[KEY_COLUMN]
    assert (chunk.bounds, chunk.null_count) == (None, None)


# Where things are


@pytest.mark.parametrize("claimed", [None, 0, "after the data pages"])
def test_dictionaries_that_old_writers_do_not_tell_of(claimed: int | str | None) -> None:
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


@pytest.mark.parametrize(
    ("offset", "length"), [(3, 10), (4, 0), (4, -1), (-1, 10), (4, 1 << 40), (1 << 62, 1), (None, 10), (10, None)]
)
def test_a_wrong_page_index_is_as_good_as_none(offset: int | None, length: int | None) -> None:
    footer = made(small_file())
    for numbers in [(4, 5), (6, 7)]:
        for place, value in zip(numbers, (offset, length), strict=True):
            del footer.chunk(0, KEY)[place]
            if value is not None:
                footer.chunk(0, KEY)[place] = (I64 if place % 2 == 0 else I32, value)
    chunk = decoded(footer).row_groups[0].chunks[KEY_COLUMN]
    assert (chunk.column_index, chunk.offset_index) == (None, None)


# One thing wrong at a time


def no_schema(footer: Made) -> None:
    del footer.fields[2]


def two_trees(footer: Made) -> None:
    elements = footer.fields[2][1].values
    elements.append({**elements[-1], 4: (BINARY, b"another")})


def nested_column(footer: Made) -> None:
    """The last column becomes a group that holds nothing."""
    field(footer.element(3), 5, 1, I32)


def overlap(footer: Made) -> None:
    meta = footer.meta(1, TIME)
    field(meta, 7, meta[7][1] + 1)


def chunks_at(number: int, value: int, *, group: int = 0, column: int = TIME) -> Callable[[Made], None]:
    def change(footer: Made) -> None:
        meta = footer.meta(group, column)
        meta.pop(11, None)
        field(meta, number, value)

    return change


def behind_the_data(footer: Made) -> None:
    """The last chunk ends a byte after what is before the footer."""
    meta = footer.meta(1, STATUS)
    field(meta, 7, footer.rest - TRAILER - min(meta[9][1], meta[11][1]) + 1)


def deep(footer: Made) -> None:
    group = {4: (BINARY, b"g"), 5: (I32, 1)}
    footer.fields[2][1].values[1:1] = [group] * 2_000


def long_names(footer: Made) -> None:
    """A million bytes for each of thousands of columns, if each were told in full."""
    leaf = {1: (I32, 1), 4: (BINARY, b"x")}
    group = {4: (BINARY, b"n" * (1 << 20)), 5: (I32, 15_000)}
    footer.fields[2][1].values[1:] = [group, *[leaf] * 15_000]
    field(footer.element(0), 5, 1)


WRONG: dict[str, tuple[Callable[[Made], object], str]] = {
    "rows do not add up": (lambda f: field(f.fields, 3, 5), "rows do not add up"),
    "negative rows": (lambda f: field(f.group(0), 3, -2), "row group 0 has -2 rows"),
    "another count of values": (lambda f: field(f.meta(1, TIME), 5, 3), "column fetch_time has 3 values in 2 rows"),
    "no rows": (lambda f: f.fields.pop(3), "KeyError: 3"),
    "no row groups": (lambda f: f.fields.pop(4), "KeyError: 4"),
    "no schema": (no_schema, "row group 0 has 2 rows and 3 of 0 columns"),
    "an empty schema": (lambda f: f.fields[2][1].values.clear(), "the schema is no tree"),
    "a schema of numbers": (lambda f: field(f.fields, 2, Items(I32, [1])), "the schema is no tree"),
    "a schema without leaves": (lambda f: field(f.element(0), 5, 0), "the schema is no tree"),
    "a schema with more leaves": (lambda f: field(f.element(0), 5, 4), "KeyError"),
    "a schema with fewer leaves": (lambda f: field(f.element(0), 5, 2), "the schema is no tree"),
    "endless leaves": (lambda f: field(f.element(0), 5, 1 << 31, I64), "KeyError"),
    "two trees": (two_trees, "the schema is no tree"),
    "an empty group": (nested_column, "KeyError"),
    "groups within each other": (deep, "a column's name is too long: g.g.g."),
    "names of gigabytes": (long_names, "a column's name is too long: nnnn"),
    "a name that is not text": (lambda f: field(f.element(1), 4, b"\xff"), "UnicodeDecodeError"),
    "two columns of a name": (lambda f: field(f.element(2), 4, b"url_surtkey"), "two columns are named 'url_surtkey'"),
    "no type": (lambda f: f.element(1).pop(1), "KeyError: 1"),
    "an unknown type": (lambda f: field(f.element(1), 1, 8), "IndexError"),
    "a negative type": (lambda f: field(f.element(1), 1, -2), "IndexError: -2"),
    "a column too few": (lambda f: f.group(1)[1][1].values.pop(), "row group 1 has 2 rows and 2 of 3 columns"),
    "a column too many": (lambda f: f.group(1)[1][1].values.append({}), "row group 1 has 2 rows and 4 of 3 columns"),
    "columns in another order": (lambda f: f.group(0)[1][1].values.reverse(), "where one of 'url_surtkey' should"),
    "a chunk of another name": (
        lambda f: field(f.meta(0, KEY), 3, Items(BINARY, [b"url"])),
        "a column chunk of b'url'",
    ),
    "a chunk of another type": (lambda f: field(f.meta(0, KEY), 1, 2), "where one of 'url_surtkey' should"),
    "a chunk in another file": (lambda f: field(f.chunk(0, KEY), 1, b"x", BINARY), "where one of 'url_surtkey' should"),
    "a chunk without metadata": (lambda f: f.chunk(0, KEY).pop(3), "KeyError: 3"),
    "two chunks overlap": (overlap, "two column chunks overlap at byte"),
    "the same chunk twice": (
        lambda f: f.group(1)[1][1].values.__setitem__(KEY, f.chunk(0, KEY)),
        "two column chunks overlap at byte 4",
    ),
    "a chunk in the magic": (chunks_at(9, 3), "column fetch_time claims .* bytes at 3 of a file"),
    "a chunk before the file": (chunks_at(9, -1), "column fetch_time claims .* bytes at -1 of a file"),
    "a chunk behind the file": (chunks_at(9, 1 << 40), "column fetch_time claims .* bytes at 1099511627776 of a file"),
    "an empty chunk": (chunks_at(7, 0), "column fetch_time claims 0 bytes"),
    "a chunk of negative length": (chunks_at(7, -10), "column fetch_time claims -10 bytes"),
    "a chunk longer than the file": (chunks_at(7, (1 << 63) - 1), "column fetch_time claims 9223372036854775807 bytes"),
    "a chunk that ends in the footer": (behind_the_data, "column fetch_status claims"),
    "a codec that is text": (lambda f: field(f.meta(0, KEY), 4, b"GZIP", BINARY), "bytes instead of a number"),
    "a codec that is true": (lambda f: f.meta(0, KEY).update({4: (BOOLEAN_TRUE, True)}), "bool instead of a number"),
    "a size that is text": (lambda f: field(f.meta(0, KEY), 6, b"1", BINARY), "bytes instead of a number"),
    "a size that is a list": (lambda f: field(f.group(0), 2, Items(I32, []), LIST), "list instead of a number"),
    "rows that are a struct": (lambda f: field(f.group(0), 3, {}, STRUCT), "dict instead of a number"),
    "encodings that are text": (lambda f: field(f.meta(0, KEY), 2, Items(BINARY, [b"PLAIN"])), "instead of a number"),
    "a writer that is a number": (lambda f: field(f.fields, 6, 5, I32), "TypeError|AttributeError"),
    "statistics that are a number": (lambda f: field(f.meta(0, KEY), 12, 5, I32), "AttributeError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_contradicts_itself_is_refused(name: str) -> None:
    change, reason = WRONG[name]
    footer = made(small_file())
    assert decoded(footer)
    change(footer)
    with pytest.raises(BadFooter, match=reason) as caught:
        decoded(footer)
    assert len(str(caught.value)) < 400


def test_messages_stay_short_however_long_the_names() -> None:
    footer = made(small_file())
    field(footer.meta(0, KEY), 3, Items(BINARY, [b"x" * (1 << 20)]))
    with pytest.raises(BadFooter) as caught:
        decoded(footer)
    assert len(str(caught.value)) < 400


def test_what_the_format_adds_later_is_passed_over() -> None:
    footer = made(small_file())
    expected = decoded(footer)
    footer.fields[1] = (BOOLEAN_TRUE, True)  # instead of the version, which is passed over too
    for struct_ in (footer.fields, footer.element(1), footer.group(0), footer.chunk(0, KEY), footer.statistics(0, KEY)):
        struct_[100] = (BOOLEAN_TRUE, True)
        struct_[101] = (STRUCT, {1: (LIST, Items(STRUCT, [{1: (BINARY, b"x")}]))})
        struct_[102] = (2, False)
    found = decoded(footer)
    assert found.num_rows == expected.num_rows
    assert found.row_groups[1] == replace(
        expected.row_groups[1],
        chunks={
            name: replace(chunk, column=found.columns[name]) for name, chunk in expected.row_groups[1].chunks.items()
        },
    )


def test_nested_columns_are_known_by_their_paths() -> None:
    """There are none so far; a list has as many values as it likes."""
    table = pa.table({"list": [[1, 2], [], [3]], "struct": [{"x": 1}, None, {"x": 2}], "flat": [1, 2, 3]})
    footer = read_footer(write(table))
    assert {name: column.flat for name, column in footer.columns.items()} == {
        "list.list.element": False,
        "struct.x": False,
        "flat": True,
    }
    assert footer.row_groups[0].chunks["list.list.element"].num_values == 4


def test_repeated_columns_have_as_many_values_as_they_like() -> None:
    footer = made(small_file())
    field(footer.element(1 + TIME), 3, 2)
    field(footer.meta(0, TIME), 5, 7)
    found = decoded(footer)
    assert not found.columns["fetch_time"].flat
    assert found.row_groups[0].chunks["fetch_time"].num_values == 7


def test_types_by_number() -> None:
    assert [PHYSICAL_TYPES.index(name) for name in ("INT32", "INT96", "BYTE_ARRAY")] == [1, 3, 6]
    assert CODECS.index("ZSTD") == 6


# Chance


def seeds(mirror: Path) -> list[tuple[bytes, int]]:
    """Footers, and the sizes of their files."""
    files = [small_file(), small_file(version="1.0", write_page_index=False)]
    files += [path.read_bytes() for path in one_of_each_crawl(mirror)]
    footers = [made(data, row_groups=2 if len(data) < 5_000 else 1) for data in files]
    return [(each.footer, each.file_size) for each in footers]


@pytest.mark.parametrize("damage", [scrambled, confused])
def test_damaged_footers_are_refused_or_make_sense(mirror: Path, damage: Callable[[bytes, Random], bytes]) -> None:
    rng = Random(damage.__name__)
    footers = seeds(mirror)
    refused = 0
    for round_ in range(1000):
        seed, file_size = footers[round_ // 20 % len(footers)] if round_ % 20 == 0 else footers[round_ % 2]
        try:
            footer = decode_footer(damage(seed, rng), file_size)
        except (BadFooter, Encrypted):
            refused += 1
            continue
        json.dumps([vars_of(group) for group in file_facts(footer, column_chunks=True).column_chunks])
        for group in footer.row_groups:
            assert all(4 <= chunk.range.start < chunk.range.end <= file_size for chunk in group.chunks.values())
            assert all(chunk.num_values == group.num_rows for chunk in group.chunks.values() if chunk.column.flat)
    assert 200 < refused < 1000


def vars_of(value: Any) -> list[Any]:
    return [getattr(value, name) for name in value.__slots__]


def test_some_row_groups_are_decoded_as_all_are(mirror: Path) -> None:
    """What the catalogue remembers of where they stand saves the time that the others would take."""
    rng = Random(8)
    for path in index_paths(mirror):
        data = path.read_bytes()
        footer, raw = read_footer(data), raw_footer(data)
        assert footer.rest is not None
        every = {group.ordinal: group for group in footer.row_groups}
        for count in {0, 1, len(every)}:
            chosen = sorted(rng.sample(sorted(every), count))
            some = decode_row_groups(raw, len(data), {n: every[n].offset for n in chosen}, footer.rest)
            assert some == replace(footer, row_groups=tuple(every[n] for n in chosen))
            assert [group.offset for group in some.row_groups] == [every[n].offset for n in chosen]


def test_row_groups_are_not_found_where_they_are_not() -> None:
    data = small_file()
    footer, raw = read_footer(data), raw_footer(data)
    assert footer.rest is not None
    for wrong in {*range(len(raw) + 2)} - {group.offset for group in footer.row_groups}:
        with pytest.raises(BadFooter):
            decode_row_groups(raw, len(data), {0: wrong}, footer.rest)


def test_top_level_fields_in_another_order_are_decoded_whole() -> None:
    data = small_file()
    fields = take_apart(raw_footer(data))
    raw = put_together(fields, backwards=True)
    footer = decode_footer(raw, len(data) - len(raw_footer(data)) + len(raw))
    assert footer.rest is None
    assert footer == read_footer(data)
