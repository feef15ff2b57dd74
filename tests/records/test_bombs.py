"""Small files that declare or decompress to far more: each is rejected, or read in small parts."""

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.commoncrawl.datasets import IndexFile
from catalogue.errors import BadFooter
from catalogue.parquet.footer import decode_footer, examine_footer
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, encode_list, encode_struct
from catalogue.plan.requests import Cost
from catalogue.query.key_intervals import ALL_KEYS
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.read.reader import read
from catalogue.read.streams import ReadEvents
from catalogue.settings import Limits
from catalogue.tables.crawl_table import FileMetadata
from tests.slow.mutations import small
from tests.support.answers import Memory
from tests.support.crawls import CRAWL
from tests.support.footers import Made, made, put_together, small_file
from tests.support.memory import arrow_below
from tests.support.mirrors import read_footer
from tests.support.plans import plan_reads

ONE_GROUP = {"row_group_size": 32, "write_page_index": False, "use_dictionary": False}


def batches(data: bytes, columns: tuple[str, ...], reported: ReadEvents | None = None) -> Iterator[pa.RecordBatch]:
    """Read all rows of a file by a plan."""
    footer = read_footer(data)
    existing = FileMetadata(IndexFile("x.parquet", CRAWL, "warc"), Memory(data).stored, footer)
    plan = plan_reads(ResolvedQuery(ALL_KEYS, ("*",), columns=columns), [existing], cost=Cost(), considered=1)
    with ThreadPoolExecutor(1) as executor:
        yield from read(plan, Memory(data), executor, reported)


def with_column(data: bytes, pages: bytes, column: int = 1) -> bytes:
    """Return a file of one row group in which a column has other pages, at the end of the file."""
    footer = made(data)
    meta = footer.meta(0, column)
    meta.pop(11, None)
    meta[9] = footer.chunk(0, column)[2] = (I64, len(footer.body))
    meta[7] = (I64, len(pages))
    return footer.file(pages)


def page(body: bytes, inflated: int, *, stored: int | None = None, rows: int = 32) -> bytes:
    """Return a page with its header, which may claim another number of stored bytes."""
    about = encode_struct([(number, I32, value) for number, value in enumerate((rows, 0, 3, 3), 1)])
    sizes = [(1, I32, 0), (2, I32, inflated), (3, I32, len(body) if stored is None else stored)]
    return encode_struct([*sizes, (5, STRUCT, about)]) + body


def zeros(size: int) -> bytes:
    """Return gzipped zeros."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)), packer.flush()])


def test_rejects_a_page_above_the_limit() -> None:
    """2 GiB of zeros are about two megabytes; the declared size is enough to reject them."""
    data = with_column(small(compression="gzip", **ONE_GROUP), page(zeros(1 << 20), (1 << 31) - 1))
    before = pa.total_allocated_bytes()
    with pytest.raises(BadFooter, match=r"column url: a page of it would have 2,147,483,647 bytes decompressed"):
        list(batches(data, ("url",)))
    assert pa.total_allocated_bytes() - before < 1 << 20


WRONG_SIZES: dict[str, tuple[str, Callable[[], bytes]]] = {
    # A page that inflates to more than declared is not inflated further.
    **{f"{n} bytes inflated": ("gzip", partial(page, zeros(4 << 20), n)) for n in (-1, 0, 1, 1000, 100 << 20)},
    **{f"{n} bytes stored": ("none", partial(page, bytes(500), 500, stored=n)) for n in (-1, 0, 5, (1 << 31) - 1)},
    "as many values as a header can declare": ("none", partial(page, b"", 0, rows=(1 << 31) - 1)),
}


@pytest.mark.parametrize("claim", WRONG_SIZES)
def test_rejects_pages_with_wrong_sizes(claim: str) -> None:
    codec, pages = WRONG_SIZES[claim]
    data = with_column(small(compression=codec, **ONE_GROUP), pages())
    with pytest.raises(BadFooter, match="column url"):
        list(batches(data, ("url",)))


def repeated(value: str, rows: int, **columns: pa.Array) -> bytes:
    """Return a file whose rows all have one long text, which is stored once."""
    table = pa.table(
        {**columns, "url": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))}
    )
    file = BytesIO()
    pq.write_table(table, file, compression="zstd", use_dictionary=["url"], store_schema=False)
    return file.getvalue()


def check_equal_urls(data: bytes, rows: int, most: int) -> None:
    """Read a file with equal URLs in at most so many bytes."""
    found = 0
    for batch in arrow_below(most, batches(data, ("url",))):
        found += batch.num_rows
        assert batch.column(0)[0].as_py() == "x" * 100_000
    assert found == rows


@pytest.mark.in_part(2)
@pytest.mark.parametrize("rows", [4000, 2500])
def test_decodes_repeated_long_values_in_small_batches(rows: int) -> None:
    """400 MB and 250 MB of texts in a few kilobytes."""
    keys = pa.array([f"com,example)/{number:05}" for number in range(rows)])
    data = repeated("x" * 100_000, rows, url_surtkey=keys)
    assert len(data) < 100_000
    check_equal_urls(data, rows, 200 << 20)


@pytest.mark.in_soak
def test_decodes_shared_prefixes_in_small_batches() -> None:
    """With this encoding a value shares a prefix with the value before it."""
    keys = pa.array([f"com,example)/{number:05}" for number in range(6000)])
    table = pa.table({"url_surtkey": keys, "url": pa.chunked_array([pa.array(["x" * 100_000] * 100)] * 60)})
    file = BytesIO()
    options = {"column_encoding": {"url": "DELTA_BYTE_ARRAY"}, "use_dictionary": False, "store_schema": False}
    pq.write_table(table, file, **options)
    assert len(file.getvalue()) < 1 << 20
    check_equal_urls(file.getvalue(), 6000, 400 << 20)


MAX_ROWS = Limits().max_rows


def claiming(rows: int) -> Made:
    """Return a footer that declares a number of rows in its only row group."""
    footer = made(small_file(row_group_size=4))
    footer.fields[3] = footer.group(0)[3] = (I64, rows)
    for column in range(3):
        footer.meta(0, column)[5] = (I64, rows)
    return footer


def test_bounds_memory_of_claimed_rows() -> None:
    assert decode_footer(claiming(MAX_ROWS).footer, 1 << 30).num_rows == MAX_ROWS
    for rows in (MAX_ROWS + 1, 1 << 33, (1 << 63) - 1):
        with pytest.raises(BadFooter, match=f"row group 0 has {rows:,} rows"):
            decode_footer(claiming(rows).footer, 1 << 30)


def with_copies(number: int, struct: bytes, count: int) -> bytes:
    """Return the footer of a small file with many copies of a struct in a field."""
    footer = made(small_file())
    footer.fields.pop(number, None)
    head = encode_list(STRUCT, [b""] * count)
    return footer.footer[:-1] + bytes([LIST, 2 * number]) + head + struct * count + b"\0"


def key_value(size: int) -> bytes:
    return encode_struct([(1, BINARY, b"k"), (2, BINARY, b"v" * size)])


ROW_GROUP = put_together(made(small_file()).group(0))
BOMBS = {
    "key-values beyond the limit": with_copies(5, key_value(0), 100_001),
    "key-values at the limit": with_copies(5, key_value(30), 100_000),
    "a text of 3 MiB": with_copies(5, key_value(3 << 20), 1),
    "row groups beyond the limit": with_copies(4, ROW_GROUP, 100_001),
    "row groups that are all the same": with_copies(4, ROW_GROUP, 9000),
}


def test_bounds_memory_of_footers() -> None:
    accepted = []
    for name, footer in BOMBS.items():
        with suppress(BadFooter):
            examine_footer(footer, 1 << 30)
            accepted.append(name)
    assert accepted == ["key-values at the limit", "a text of 3 MiB"]


def test_rejects_pages_of_another_codec_than_declared() -> None:
    footer = made(small_file(compression="none"))
    for codec in (*range(1, 32), *range(47, 256, 16)):  # all codecs with names, and some without
        footer.meta(0, 0)[4] = footer.meta(1, 0)[4] = (I32, codec)
        with pytest.raises(BadFooter, match="column url_surtkey"):
            list(batches(footer.file(), ("url_surtkey",)))
