"""What it means that a parser accepts some bytes, or refuses them with an error that may be shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from catalogue.parquet.model import ColumnChunk
from tests.support.footers import small_file
from tests.support.mirrors import read_footer

CRAWL = "CC-MAIN-2022-33"

_LONGEST = 2000
"""Characters of a message."""


@dataclass(frozen=True)
class Target:
    """A parser, and bytes to begin with."""

    accepts: Callable[[bytes], bool]
    seeds: Callable[[Path], Sequence[bytes]]
    """Of a mirror."""


def is_accepted(parse: Callable[[], object], *errors: type[Exception], shown: bool = True) -> bool:
    """Whether it raises none of these errors, which are told in a line if they are shown as they are."""
    try:
        parse()
    except errors as error:
        _check_message(str(error), shown=shown)
        return False
    return True


def _check_message(message: str, *, shown: bool) -> None:
    assert 0 < len(message) < _LONGEST, message[:300]
    assert not shown or message.isprintable(), message[:300]


def as_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


@cache
def chunks_of_pages() -> tuple[tuple[ColumnChunk, int, bytes], ...]:
    """Column chunks of several pages of keys, the rows in them, and their bytes."""
    found = []
    for options in ({}, {"use_dictionary": False, "compression": "zstd"}, {"data_page_version": "2.0"}):
        data = small_file(row_group_size=4, data_page_size=1, write_batch_size=1, **options)
        group = read_footer(data).row_groups[0]
        for name in ("url_surtkey", "fetch_status"):
            chunk = group.chunks[name]
            found.append((chunk, group.num_rows, data[chunk.range.start : chunk.range.end]))
    return tuple(found)
