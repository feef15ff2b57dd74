"""Page indexes that are held → what the catalogue shows of the pages of the key column."""

from contextlib import suppress
from typing import Any

from catalogue.crawl import KEY_COLUMN
from catalogue.errors import BadPageIndex
from catalogue.footer import Footer
from catalogue.pages import ColumnIndex, Indexes, decode_column_index, decode_offset_index


def key_pages(footer: Footer, row_group: int, indexes: Indexes) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """What is known of the pages of the key column.

    Args:
        footer: of the file.
        row_group: its ordinal.
        indexes: what is held of its page indexes.

    Returns:
        A row for each page, and the bounds of the whole if the footer has none; nothing of an index that is wrong.
    """
    group = next((group for group in footer.row_groups if group.ordinal == row_group), None)
    key = group.chunks.get(KEY_COLUMN) if group else None
    located = indexes.offset_indexes.get(KEY_COLUMN)
    if group is None or key is None or located is None:
        return [], None
    source = "scan" if indexes.own else "page index"
    with suppress(BadPageIndex):
        offsets = decode_offset_index(located, key, group.num_rows)
        bounds = ColumnIndex((None,) * len(offsets), None)
        if indexes.column_index:
            bounds = decode_column_index(indexes.column_index, key, len(offsets))
        rows = [
            {
                "page": page,
                "first_row_index": offsets.first_rows[page],
                "num_rows": offsets.first_rows[page + 1] - offsets.first_rows[page],
                "null_count": bounds.null_counts[page] if bounds.null_counts else None,
                "min_url_surtkey": _text(known.min) if known else None,
                "max_url_surtkey": _text(known.max) if known else None,
                "file_offset": offsets.offsets[page],
                "compressed_page_size": offsets.offsets[page + 1] - offsets.offsets[page],
                "pages_from": source,
            }
            for page, known in enumerate(bounds.bounds)
        ]
        whole = bounds.overall() if key.bounds is None else None
        repaired = {"min_url_surtkey": _text(whole.min), "max_url_surtkey": _text(whole.max)} if whole else None
        return rows, {**repaired, "bounds_from": source} if repaired else None
    return [], None


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
