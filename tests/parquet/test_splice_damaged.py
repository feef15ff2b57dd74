"""Damaged or truncated pages and page headers are detected."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from catalogue.errors import BadFooter
from catalogue.parquet.splice import ChunkPages, splice
from tests.support.catalogues import catalogue_in
from tests.support.crawls import crawl_of, harvest_footers, index_path, table
from tests.support.footers import write
from tests.support.mirrors import raw_footer, read_footer
from tests.support.spliced import ROWS, groups, headers_of, read, spliced, wide_table

wide = pytest.fixture(scope="module")(wide_table)


def check_flips(data: bytes, rng: Random, *, a_page: int) -> int:
    """Flip bits in pages that have a checksum, each of which must be noticed; gives how many."""
    footer, flips = read_footer(data), 0
    for group in footer.row_groups:
        for chunk in group.chunks.values():
            file = spliced(data, footer, chunk, group.num_rows)
            for header, place in headers_of(data, chunk):
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
def test_rejects_flipped_bits(wide: pa.Table, codec: str, page: str) -> None:
    names = ["string_some", "int16_few", "ms_utc_many", "bool_some"]
    data = write(wide.select(names), compression=codec, data_page_version=page, data_page_size=300, write_batch_size=50)
    assert check_flips(data, Random(codec + page), a_page=6) > 50


def test_truncated_pages_never_look_complete(wide: pa.Table) -> None:
    """At the end of a page pyarrow says nothing; whoever reads must count."""
    data = write(wide.select(["string_many"]), data_page_size=300, write_batch_size=50, use_dictionary=False)
    footer = read_footer(data)
    [[chunk]] = groups(data)
    whole = data[chunk.range.start : chunk.range.end]
    refused = 0
    for end in (1, 20, len(whole) // 2, len(whole) - 1, *(place.stop for _, place in headers_of(data, chunk)[:-1])):
        try:
            found = read(
                splice([ChunkPages(chunk, [whole[:end]], end, 0, ROWS, chunk.codec)], created_by=footer.created_by)
            )
        except (OSError, pa.ArrowInvalid):
            refused += 1
        else:
            assert len(found) < ROWS
    assert refused > 0


def change(old: str, new: str) -> Callable[[bytes], bytes]:
    """Change some bytes of a page header, given as hexadecimal digits."""

    def changed(header: bytes) -> bytes:
        before, found, after = header.rpartition(bytes.fromhex(old))
        assert found
        return before + bytes.fromhex(new) + after

    return changed


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("column", "page", "damage", "flip", "sign"),
    [
        ("url", 1, change("1c1514", "1c1516"), 0, "its page headers count 41 values, not 40"),
        ("warc_record_offset", 0, change("15141500", "15141512"), 0, "encoding 9, which the footer does not list"),
        ("content_languages", 1, change("151015061506", "151015081506"), 0, "encoding of definition levels"),
        ("url", 0, change("15bed2ab970e3c", "35bed2ab970e1c"), 1, "has no checksum, although other pages"),
        ("url", 0, change("15bed2ab970e3c", "16bed2ab970e3c"), 1, "no page starts there"),
    ],
    ids=["count", "encoding", "levels", "number of the checksum's field", "kind of the checksum's field"],
)
def test_rejects_damaged_page_headers(
    tmp_path: Path, column: str, page: int, damage: Callable[[bytes], bytes], flip: int, sign: str
) -> None:
    """Page checksums do not cover page headers; each of these used to give wrong rows without an error."""
    rows = table([f"com,example)/{number:03}" for number in range(40)]).drop_columns("url")
    numbers = range(40)
    columns = {
        "url": pa.array([f"https://example.com/{number % 7}" for number in numbers]),
        "warc_record_offset": pa.array([number * 1000 for number in numbers], pa.int32()),
        "content_languages": pa.array([None if number % 3 == 0 else f"l{number % 7}" for number in numbers]),
    }
    for name, values in columns.items():
        rows = rows.append_column(pa.field(name, values.type, nullable=values.null_count > 0), values)
    dictionary = ["url", "content_languages"]
    pages: dict[str, Any] = {"write_page_checksum": True, "data_page_size": 1, "write_batch_size": 10}
    crawl_of(tmp_path, rows, use_dictionary=dictionary, compression="none", write_page_index=False, **pages)
    file = index_path(tmp_path)
    data = bytearray(file.read_bytes())
    chunk = next(chunk for [*group] in groups(bytes(data)) for chunk in group if chunk.column.name == column)
    places = [place for _, place in headers_of(bytes(data), chunk)]
    start = chunk.range.start + (places[page - 1].stop if page else 0)
    end = chunk.range.start + places[page].start
    data[start:end] = damage(bytes(data[start:end]))
    data[end + 10] ^= flip
    file.write_bytes(data)
    with catalogue_in(tmp_path, tmp_path) as cat:
        harvest_footers(cat)
        with pytest.raises(BadFooter, match=sign):
            cat.captures("*", columns=[column]).to_arrow()


@pytest.mark.parametrize("write_page_index", [True, False])
def test_rejects_keys_outside_the_bounds_of_the_footer(tmp_path: Path, *, write_page_index: bool) -> None:
    crawl_of(
        tmp_path,
        table([f"com,example)/{number:03}" for number in range(40)]),
        write_page_index=write_page_index,
        change=_with_smaller_greatest_key,
    )
    with catalogue_in(tmp_path, tmp_path) as cat:
        harvest_footers(cat)
        with pytest.raises(BadFooter, match="row group 0: it holds keys outside the bounds in the file's footer"):
            cat.captures("example.com/*").to_arrow()


def _with_smaller_greatest_key(data: bytes) -> bytes:
    footer = raw_footer(data)
    changed = footer.replace(b"com,example)/039", b"com,example)/030")
    assert changed != footer
    return data.replace(footer, changed)


def test_rejects_a_column_whose_type_has_the_wrong_kind(tmp_path: Path) -> None:
    """Decoders skip such a type, and take the column for a group without columns."""

    def damage(data: bytes) -> bytes:
        wrong = data.replace(b"\x15\x02\x25\x02\x18\x12warc", b"\x14\x02\x25\x02\x18\x12warc")
        assert wrong != data
        return wrong

    rows = table(["com,example)/"], warc_record_offset=pa.array([7], pa.int32()))
    crawl_of(tmp_path, rows, write_page_index=False, change=damage)
    with catalogue_in(tmp_path, tmp_path) as cat:
        harvest_footers(cat)
        with pytest.raises(BadFooter, match="column warc_record_offset: index out of bounds"):
            cat.captures("*", columns=["warc_record_offset"]).to_arrow()
