"""Intervals that contain all keys of a row group, from its stored page indexes."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from sys import maxunicode

from catalogue.errors import BadPageIndex
from catalogue.parquet.key_ranges import merged
from catalogue.parquet.model import Bounds, ColumnChunk
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes, OffsetIndex
from catalogue.surt import text_after, text_from


@dataclass(frozen=True, slots=True)
class KeyPages:
    """The pages of the key column of a row group."""

    offsets: OffsetIndex
    index: ColumnIndex
    origin: str
    """``page index``, or ``scan`` if it was derived from pages."""
    intervals: list[tuple[str, str]] = field(default_factory=list)
    """Inclusive; empty where the footer has bounds, unless several are known."""


def key_pages(key: ColumnChunk, num_rows: int, indexes: Indexes) -> KeyPages | None:
    """Return the pages of a row group; None without a valid index.

    Args:
        key: the chunk of the key column.
        num_rows: rows of the row group.
        indexes: the stored page indexes.
    """
    located = indexes.offset_indexes.get(key.column.name)
    if located is None:
        return None
    with suppress(BadPageIndex):
        offsets = decode_offset_index(located, key, num_rows)
        known = ColumnIndex((None,) * len(offsets), None)
        if indexes.column_index:
            known = decode_column_index(indexes.column_index, key, len(offsets), indexes.clusters)
        intervals: Iterable[Bounds] = ()
        if indexes.own or not key.bounds:
            intervals = merged(chain.from_iterable(known.filled(page) for page in range(len(offsets))))
        texts = [(text_from(each.min), greatest_text(each.max)) for each in intervals]
        if key.bounds and len(texts) == 1:
            texts = []
        return KeyPages(offsets, known, "scan" if indexes.own else "page index", texts)
    return None


def greatest_text(key: bytes) -> str:
    """Return a text that is not less than a bound, which may have been cut within a character."""
    return text_after(key) or chr(maxunicode)
