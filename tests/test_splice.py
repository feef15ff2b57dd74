"""What pyarrow reads in a file of one spliced chunk is what it reads of that chunk in the whole file."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.footer import ColumnChunk, Footer
from catalogue.splice import splice
from catalogue.thrift import Reader
from tests.footers import write
from tests.mirrors import one_of_each_crawl, read_footer

ROWS = 700


def columns() -> Iterator[tuple[str, pa.Array]]:
    """Values of each type that Common Crawl's columns have or had, few or many different ones, some null, or all."""
    few = [number * 7 % 10 for number in range(ROWS)]
    many = [(number * 7919 + 5) % 10_007 for number in range(ROWS)]
    types: dict[str, tuple[pa.DataType, Any]] = {
        "int16": (pa.int16(), lambda number: number - 5),
        "int32": (pa.int32(), lambda number: number - 5),
        "int64": (pa.int64(), lambda number: number << 40),
        "ms_utc": (pa.timestamp("ms", "UTC"), lambda number: 1_600_000_000_000 + number),
        "ms_naive": (pa.timestamp("ms"), lambda number: 1_600_000_000_000 + number),
        "binary": (pa.binary(), lambda number: b"\x00\xff" + number.to_bytes(4)),
        "string": (pa.string(), lambda number: f"com,example)/é-{number}" * (number % 3)),
        "bool": (pa.bool_(), lambda number: number % 3 == 0),
        "double": (pa.float64(), lambda number: number / 3),
        "date": (pa.date32(), lambda number: number),
        "decimal": (pa.decimal128(12, 2), Decimal),
        "fixed": (pa.binary(4), lambda number: number.to_bytes(4)),
    }
    for name, (kind, value) in types.items():
        for amount, numbers in [("few", few), ("many", many)]:
            yield f"{name}_{amount}", pa.array(map(value, numbers), kind)
        yield f"{name}_some", pa.array([None if number % 3 == 0 else value(number) for number in many], kind)
        yield f"{name}_null", pa.nulls(ROWS, kind)


@pytest.fixture(scope="module")
def wide() -> pa.Table:
    """Columns with and without nulls; those without are declared so."""
    made = dict(columns())
    schema = pa.schema([pa.field(name, array.type, nullable=array.null_count > 0) for name, array in made.items()])
    return pa.Table.from_arrays([*made.values()], schema=schema)


def spliced(data: bytes, footer: Footer, chunk: ColumnChunk, num_rows: int) -> bytes:
    pages = data[chunk.range.start : chunk.range.end]
    return splice(chunk, pages, num_rows=num_rows, created_by=footer.created_by)


def read(file: bytes, **options: Any) -> pa.ChunkedArray:
    """The one column of a spliced file, as ``catalogue.reader`` reads it."""
    parsed = pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True, pre_buffer=False, **options)
    assert parsed.metadata.num_row_groups == parsed.metadata.num_columns == 1
    table = parsed.read(use_threads=False)
    table.validate(full=True)
    return table.column(0)


def check_metadata(found: pq.FileMetaData, whole: pq.FileMetaData, row_group: int, name: str) -> None:
    """What pyarrow has no need of, or only for the files of some writers."""
    chunk = found.row_group(0).column(0)
    expected = whole.row_group(row_group).column(whole.schema.names.index(name))
    assert found.created_by == whole.created_by
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


@pytest.mark.parametrize("dictionary", ["on", "off", "overflows"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "snappy", "none"])
def test_every_kind_of_column(wide: pa.Table, codec: str, page: str, dictionary: str) -> None:
    data = write(
        wide,
        row_group_size=ROWS * 3 // 5,
        compression=codec,
        data_page_version=page,
        data_page_size=300,
        write_batch_size=50,
        use_dictionary=dictionary != "off",
        **({"dictionary_pagesize_limit": 400} if dictionary == "overflows" else {}),
    )
    encodings = {encoding for group in groups(data) for chunk in group for encoding in chunk.encodings}
    assert (8 in encodings) == (dictionary != "off")  # RLE_DICTIONARY
    assert check_file(data) == 2 * wide.num_columns


def groups(data: bytes) -> list[list[ColumnChunk]]:
    return [[*group.chunks.values()] for group in read_footer(data).row_groups]


def test_some_dictionaries_overflow_half_way(wide: pa.Table) -> None:
    """Otherwise the test above shows less than it says."""
    data = write(wide.select(["string_many"]), dictionary_pagesize_limit=400, data_page_size=300, write_batch_size=50)
    [[chunk]] = groups(data)
    kinds = [header[5][2] for header, _ in pages(data, chunk) if 5 in header]
    assert kinds[0] == 8
    assert kinds[-1] == 0  # PLAIN
    assert len(kinds) > 5


@pytest.mark.parametrize("unit", [None, "ms"])
@pytest.mark.parametrize("codec", ["gzip", "none"])
def test_times_of_twelve_bytes(wide: pa.Table, codec: str, unit: str | None) -> None:
    names = [name for name in wide.column_names if name.startswith("ms_")]
    data = write(wide.select(names), use_deprecated_int96_timestamps=True, compression=codec, row_group_size=500)
    footer = read_footer(data)
    whole = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit=unit)
    for group in footer.row_groups:
        for name, chunk in group.chunks.items():
            assert chunk.column.physical_type == "INT96"
            found = read(spliced(data, footer, chunk, group.num_rows), coerce_int96_timestamp_unit=unit)
            assert found.equals(whole.read_row_group(group.ordinal, [name])[name])
            if unit:
                original = wide[name].slice(500 * group.ordinal, group.num_rows)
                assert found.cast(pa.int64()).equals(original.cast(pa.int64()))


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_versions_of_the_format(wide: pa.Table, version: str) -> None:
    assert check_file(write(wide, version=version, compression="gzip")) == wide.num_columns


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("DELTA_BINARY_PACKED", "int64_some"),
        ("DELTA_LENGTH_BYTE_ARRAY", "binary_some"),
        ("DELTA_BYTE_ARRAY", "string_some"),
        ("BYTE_STREAM_SPLIT", "double_some"),
    ],
)
def test_encodings_that_may_come(wide: pa.Table, encoding: str, name: str) -> None:
    assert check_file(write(wide.select([name]), use_dictionary=False, column_encoding=encoding)) == 1


def test_every_column_of_a_file_of_each_crawl(mirror: Path) -> None:
    paths = one_of_each_crawl(mirror)
    assert len(paths) >= 3
    for path in paths:
        data = path.read_bytes()
        assert check_file(data) == sum(map(len, groups(data))) >= 50


def test_another_chunk_reads_as_something_else(wide: pa.Table) -> None:
    """Else the comparisons above would prove nothing."""
    data = write(wide.select(["int64_many", "int64_few"]), row_group_size=350)
    footer = read_footer(data)
    first, second = footer.row_groups
    names = ("int64_many", "int64_few")
    found = [read(spliced(data, footer, group.chunks[name], 350)) for group in (first, second) for name in names]
    assert [found[0].equals(other) for other in found] == [True, False, False, False]


# Damage


def pages(data: bytes, chunk: ColumnChunk) -> list[tuple[dict[int, Any], range]]:
    """The header of each page of a chunk, and where in the chunk its data are (parquet.thrift, PageHeader)."""
    reader, found = Reader(data[chunk.range.start : chunk.range.end]), []
    while reader.position < len(reader.data):
        header = reader.struct()
        found.append((header, range(reader.position, reader.position + header[3])))
        reader.position += header[3]
    return found


def check_flips(data: bytes, rng: Random, *, a_page: int) -> int:
    """Flip bits in pages that have a checksum, each of which must be noticed; gives how many."""
    footer, flips = read_footer(data), 0
    for group in footer.row_groups:
        for chunk in group.chunks.values():
            file = spliced(data, footer, chunk, group.num_rows)
            for header, place in pages(data, chunk):
                assert 4 in header  # crc
                for at in rng.sample(place, min(a_page, len(place))):
                    damaged = bytearray(file)
                    damaged[4 + at] ^= 1 << rng.randrange(8)
                    with pytest.raises(OSError, match="CRC checksum verification failed"):
                        read(bytes(damaged))
                    flips += 1
    return flips


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "snappy", "none"])
def test_a_flipped_bit_is_noticed(wide: pa.Table, codec: str, page: str) -> None:
    names = ["string_some", "int16_few", "ms_utc_many", "bool_some"]
    data = write(wide.select(names), compression=codec, data_page_version=page, data_page_size=300, write_batch_size=50)
    assert check_flips(data, Random(codec + page), a_page=6) > 50


def test_a_flipped_bit_is_noticed_in_files_that_have_checksums(mirror: Path) -> None:
    checked = 0
    for path in one_of_each_crawl(mirror):
        data = path.read_bytes()
        chunk = next(iter(read_footer(data).row_groups[0].chunks.values()))
        if 4 in pages(data, chunk)[0][0]:
            checked += check_flips(data, Random(path.name), a_page=1)
    assert checked > 50


def test_pages_cut_short_never_look_whole(wide: pa.Table) -> None:
    """At the end of a page pyarrow says nothing; whoever reads must count."""
    data = write(wide.select(["string_many"]), data_page_size=300, write_batch_size=50, use_dictionary=False)
    footer = read_footer(data)
    [[chunk]] = groups(data)
    whole = data[chunk.range.start : chunk.range.end]
    refused = 0
    for end in (1, 20, len(whole) // 2, len(whole) - 1, *(place.stop for _, place in pages(data, chunk)[:-1])):
        try:
            found = read(splice(chunk, whole[:end], num_rows=ROWS, created_by=footer.created_by))
        except (OSError, pa.ArrowInvalid):
            refused += 1
        else:
            assert len(found) < ROWS
    assert refused > 0
