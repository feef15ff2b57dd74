"""A page that was changed or cut short is noticed by whoever reads what was spliced."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from catalogue.splice import splice
from tests.footers import write
from tests.mirrors import one_of_each_crawl, read_footer
from tests.spliced import ROWS, groups, headers_of, read, spliced, wide_table

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
def test_a_flipped_bit_is_noticed(wide: pa.Table, codec: str, page: str) -> None:
    names = ["string_some", "int16_few", "ms_utc_many", "bool_some"]
    data = write(wide.select(names), compression=codec, data_page_version=page, data_page_size=300, write_batch_size=50)
    assert check_flips(data, Random(codec + page), a_page=6) > 50


def test_a_flipped_bit_is_noticed_in_files_that_have_checksums(mirror: Path) -> None:
    checked = 0
    for path in one_of_each_crawl(mirror):
        data = path.read_bytes()
        chunk = next(iter(read_footer(data).row_groups[0].chunks.values()))
        if 4 in headers_of(data, chunk)[0][0]:
            checked += check_flips(data, Random(path.name), a_page=1)
    assert checked > 50


def test_pages_cut_short_never_look_whole(wide: pa.Table) -> None:
    """At the end of a page pyarrow says nothing; whoever reads must count."""
    data = write(wide.select(["string_many"]), data_page_size=300, write_batch_size=50, use_dictionary=False)
    footer = read_footer(data)
    [[chunk]] = groups(data)
    whole = data[chunk.range.start : chunk.range.end]
    refused = 0
    for end in (1, 20, len(whole) // 2, len(whole) - 1, *(place.stop for _, place in headers_of(data, chunk)[:-1])):
        try:
            found = read(splice(chunk, whole[:end], dictionary_size=0, num_rows=ROWS, created_by=footer.created_by))
        except (OSError, pa.ArrowInvalid):
            refused += 1
        else:
            assert len(found) < ROWS
    assert refused > 0
