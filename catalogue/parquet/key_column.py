"""The key column in a footer: check its type, and say where the bounds of its row groups are from."""

from catalogue.commoncrawl.indexes import KEY_COLUMN
from catalogue.errors import BadFooter
from catalogue.parquet.column_types import kind_of
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import Footer, Order, RowGroup

SIGNED = "footer (signed)"
"""Origin of bounds in the order of signed bytes."""


def examine_footer(data: bytes, file_size: int, key: str = KEY_COLUMN) -> Footer:
    """Decode a footer from outside, and check its key column.

    Raises:
        BadFooter: if it is invalid, or the key column is not text.
        Encrypted: if it or a column is encrypted.
    """
    footer = decode_footer(data, file_size)
    # Keys of Common Crawl's index are text even where a file does not say so; numbers would break readers of bounds.
    texts = {"string", "binary"} if key == KEY_COLUMN else {"string"}
    if (column := footer.columns.get(key)) and kind_of(column) not in texts:
        message = f"the column {key} holds {kind_of(column)} and not text, which keys must be"
        raise BadFooter(message)
    return footer


def key_bounds(group: RowGroup, key: str = KEY_COLUMN) -> tuple[str | None, str | None, str]:
    """Return the least and greatest key of a row group by its footer, and ``footer``, ``SIGNED`` or ``missing``."""
    chunk = group.chunks.get(key)
    bounds = chunk.bounds if chunk else None
    if bounds is None:
        return None, None, "missing"
    return bounds.min.decode(), bounds.max.decode(), SIGNED if bounds.order is Order.SIGNED else "footer"


def has_page_index(footer: Footer, key: str = KEY_COLUMN) -> bool:
    """Return whether the key column has a page index in each row group."""
    keys = [group.chunks.get(key) for group in footer.row_groups]
    return bool(keys) and all(each and each.column_index and each.offset_index for each in keys)
