"""Bounds of row groups whose footers have none, from what is stored of their pages and keys."""

from collections.abc import Collection, Mapping
from itertools import groupby
from sys import maxunicode
from typing import NamedTuple

from catalogue.errors import FormatError, StoreDamaged
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import page_bounds
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.surt import text_after, text_from


class FoundBounds(NamedTuple):
    """The bounds of the keys of a row group."""

    min_key: str
    max_key: str
    bounds_from: str
    """``page index``, or ``scan`` of keys that were read."""


def found_bounds(store: Store, key: str, index_keys: Collection[str]) -> Mapping[tuple[str, int], FoundBounds | None]:
    """Return the bounds of row groups whose footers have none, by path and row group; None if they are not known.

    Args:
        store: the store.
        key: the key column.
        index_keys: of the page indexes of the row groups.
    """
    found: dict[tuple[str, int], FoundBounds | None] = {}
    for path, places in groupby(sorted(filter(None, map(row_group_of, index_keys))), key=lambda place: place[0]):
        try:
            file = store.get("files", path)
            footer = decode_footer(file.data, file.size) if file else None
        except (FormatError, StoreDamaged):
            continue
        if file is None or footer is None:
            continue
        requested = {ordinal for _, ordinal in places}
        unknown = {
            group.ordinal: (chunk, group.num_rows)
            for group in footer.row_groups
            if group.ordinal in requested and (chunk := group.chunks.get(key)) and not chunk.bounds
        }
        stored = store.indexes(path, unknown, file)
        for ordinal, (chunk, num_rows) in unknown.items():
            found[path, ordinal] = None
            if indexes := stored.get(ordinal):
                pages = [bounds for bounds, _ in page_bounds(indexes, chunk, num_rows)]
                if indexes.bounds:
                    found[path, ordinal] = _found([indexes.bounds], "scan")
                elif pages:
                    found[path, ordinal] = _found(pages, "page index")
    return found


def _found(parts: Collection[Bounds], origin: str) -> FoundBounds:
    least, greatest = min(part.min for part in parts), max(part.max for part in parts)
    return FoundBounds(text_from(least), greatest_text(greatest), origin)


def greatest_text(key: bytes) -> str:
    """Return a text that is not less than a bound, which may have been cut within a character."""
    return text_after(key) or chr(maxunicode)
