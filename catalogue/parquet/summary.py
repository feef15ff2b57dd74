"""Summarize a footer: what the metadata database shows of an index file."""

from dataclasses import dataclass

from catalogue.commoncrawl.columns import KEY_COLUMN
from catalogue.errors import BadFooter
from catalogue.parquet.column_types import kind_of
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import Footer, Order, RowGroup

SIGNED = "footer (signed)"
"""Origin of bounds in the order of signed bytes."""


@dataclass(slots=True, unsafe_hash=True)
class RowGroupSummary:
    """What the metadata database shows of a row group. It is not changed; see ``ByteRange``."""

    ordinal: int
    num_rows: int
    total_byte_size: int
    total_compressed_size: int
    min_key: str | None
    max_key: str | None
    bounds_from: str
    """``footer``, ``footer (signed)`` or ``missing``."""
    first_fetch: int | None
    """Lower bound of fetch times in milliseconds since 1970; None if unknown."""
    last_fetch: int | None
    file_offset: int
    """Offset of its first page."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What the metadata database shows of an index file."""

    num_rows: int
    created_by: str
    codec: str
    column_names: tuple[str, ...]
    column_kinds: tuple[str, ...]
    """Types, see ``catalogue.parquet.column_types``."""
    utc_times: bool
    """Whether ``fetch_time`` is declared an instant; older writers do not state the zone, which is UTC."""
    has_page_index: bool
    row_groups: tuple[RowGroupSummary, ...]


def summarize_file(footer: Footer, key: str = KEY_COLUMN) -> FileSummary:
    """Summarize a footer.

    Raises:
        BadFooter: if the key column is not text.
    """
    # Keys of Common Crawl's index are text even where a file does not say so; numbers would break whoever reads bounds.
    texts = {"string", "binary"} if key == KEY_COLUMN else {"string"}
    if (column := footer.columns.get(key)) and kind_of(column) not in texts:
        message = f"the column {key} holds {kind_of(column)} and not text, which keys must be"
        raise BadFooter(message)
    keys = [group.chunks.get(key) for group in footer.row_groups]
    return FileSummary(
        num_rows=footer.num_rows,
        created_by=footer.created_by,
        codec="+".join(footer.codecs),
        column_names=tuple(footer.columns),
        column_kinds=tuple(map(kind_of, footer.columns.values())),
        utc_times="fetch_time" in footer.columns and footer.columns["fetch_time"].utc,
        has_page_index=bool(keys) and all(each and each.column_index and each.offset_index for each in keys),
        row_groups=tuple(_row_group_facts(group, key) for group in footer.row_groups),
    )


def _row_group_facts(group: RowGroup, key: str) -> RowGroupSummary:
    chunk = group.chunks.get(key)
    bounds = chunk.bounds if chunk else None
    times = group.chunks["fetch_time"].milliseconds if "fetch_time" in group.chunks else None
    return RowGroupSummary(
        ordinal=group.ordinal,
        num_rows=group.num_rows,
        total_byte_size=group.total_byte_size,
        total_compressed_size=group.total_compressed_size,
        min_key=bounds.min.decode() if bounds else None,
        max_key=bounds.max.decode() if bounds else None,
        bounds_from="missing" if not bounds else SIGNED if bounds.order is Order.SIGNED else "footer",
        first_fetch=times[0] if times else None,
        last_fetch=times[1] if times else None,
        file_offset=group.start,
    )


def examine_footer(footer: bytes, file_size: int, key: str = KEY_COLUMN) -> FileSummary:
    """Decode a footer from outside and summarize it.

    Raises:
        BadFooter: if it is invalid.
        Encrypted: if it or a column is encrypted.
    """
    return summarize_file(decode_footer(footer, file_size), key)
