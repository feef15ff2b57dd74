"""Pages without compression have the same values, and damaged ones are left to pyarrow."""

from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.parquet.model import ColumnChunk, Footer
from catalogue.parquet.page_headers import PageHeader, page_headers
from catalogue.parquet.splice import PART_BYTES, ChunkPages, NotInflatedError, inflated, parts, splice
from tests.support.footers import write
from tests.support.mirrors import read_footer
from tests.support.spliced import groups, read, spliced, whole, wide_table

wide = pytest.fixture(scope="module")(wide_table)


def headers_of(piece: ChunkPages) -> list[PageHeader]:
    return list(page_headers(b"".join(piece.pages), piece.num_rows))


def read_inflated(footer: Footer, piece: ChunkPages, headers: list[PageHeader]) -> pa.ChunkedArray:
    file = splice([inflated(piece, headers)], created_by=footer.created_by)
    assert pq.read_metadata(pa.BufferReader(file)).row_group(0).column(0).compression == "UNCOMPRESSED"
    return read(file.to_pybytes())


def check_chunk(data: bytes, footer: Footer, chunk: ColumnChunk, num_rows: int) -> None:
    piece = whole(data, chunk, num_rows)
    assert read_inflated(footer, piece, headers_of(piece)).equals(read(spliced(data, footer, chunk, num_rows)))


@pytest.mark.parametrize("dictionary", [True, False])
def test_every_type(wide: pa.Table, *, dictionary: bool) -> None:
    data = write(wide, compression="gzip", data_page_size=300, write_batch_size=50, use_dictionary=dictionary)
    footer = read_footer(data)
    for chunk in groups(data)[0]:
        check_chunk(data, footer, chunk, wide.num_rows)


@pytest.mark.in_soak
@pytest.mark.parametrize("dictionary", [True, False])
def test_parts_of_a_large_chunk(*, dictionary: bool) -> None:
    rng = Random(1)
    few = [rng.randbytes(20_000).hex() for _ in range(10)]  # the writer's dictionary is full after the first 26
    values = pa.array([rng.choice(few) if n < 150 else rng.randbytes(20_000).hex() for n in range(500)], pa.string())
    data = write(pa.table({"v": values}), compression="gzip", write_batch_size=10, use_dictionary=dictionary)
    footer = read_footer(data)
    [[chunk]] = groups(data)
    piece = whole(data, chunk, len(values))
    divided = list(parts(piece, headers_of(piece)))
    assert len(divided) > 2
    for part, headers, size in divided:
        assert headers == headers_of(part)
        assert size == sum(header.inflated for header in headers)
        assert part.size == len(b"".join(part.pages)) == sum(header.size for header in headers)
        assert sum(header.inflated for header in headers if header.data_page) <= PART_BYTES
        assert (part.dictionary_size > 0) == any(header.needs_dictionary for header in headers)
    assert {part.dictionary_size > 0 for part, _, _ in divided} == ({True, False} if dictionary else {False})
    found = [chunk for part, headers, _ in divided for chunk in read_inflated(footer, part, list(headers)).chunks]
    assert pa.chunked_array(found).combine_chunks() == values


def test_a_page_larger_than_a_part_is_a_part() -> None:
    values = pa.array(["x" * 3_000_000] * 4, pa.string())
    data = write(pa.table({"v": values}), compression="gzip", write_batch_size=2, use_dictionary=False)
    [[chunk]] = groups(data)
    piece = whole(data, chunk, 4)
    assert [part.num_rows for part, _, _ in parts(piece, headers_of(piece))] == [2, 2]


@pytest.mark.parametrize(("codec", "version"), [("snappy", "1.0"), ("zstd", "1.0"), ("none", "1.0"), ("gzip", "2.0")])
def test_leaves_other_codecs_and_versions_to_pyarrow(wide: pa.Table, codec: str, version: str) -> None:
    data = write(wide.select(["string_many"]), compression=codec, data_page_version=version)
    [[chunk]] = groups(data)
    piece = whole(data, chunk, wide.num_rows)
    with pytest.raises(NotInflatedError):
        inflated(piece, headers_of(piece))


@pytest.mark.parametrize("checksums", [True, False])
def test_leaves_damaged_pages_to_pyarrow(wide: pa.Table, *, checksums: bool) -> None:
    """Every flipped bit is noticed: by the checksum of the page, if it has one, or else by that of gzip."""
    data = write(wide.select(["string_many"]), compression="gzip", write_page_checksum=checksums)
    footer, rng = read_footer(data), Random(2)
    [[chunk]] = groups(data)
    piece = whole(data, chunk, wide.num_rows)
    headers, pages = headers_of(piece), b"".join(piece.pages)
    first_body = pages.index(b"\x1f\x8b")
    for _ in range(200):
        damaged = bytearray(pages)
        # Of the header of gzip, time, level and system say nothing about the contents.
        at = rng.choice([*range(first_body, first_body + 4), *range(first_body + 10, headers[0].size)])
        damaged[at] ^= 1 << rng.randrange(8)
        with pytest.raises(NotInflatedError):
            splice([inflated(piece._replace(pages=[bytes(damaged)]), headers)], created_by=footer.created_by)


@pytest.mark.parametrize("change", [-1, 1])
def test_leaves_pages_of_another_size_to_pyarrow(wide: pa.Table, change: int) -> None:
    data = write(wide.select(["string_many"]), compression="gzip")
    [[chunk]] = groups(data)
    piece = whole(data, chunk, wide.num_rows)
    headers = [header._replace(inflated=header.inflated + change) for header in headers_of(piece)]
    with pytest.raises(NotInflatedError):
        splice([inflated(piece, headers)], created_by="")
