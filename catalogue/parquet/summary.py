"""Summarize a footer: what the metadata database shows of an index file."""

from collections.abc import Iterator
from dataclasses import dataclass

from catalogue.commoncrawl.columns import KEY_COLUMN
from catalogue.errors import BadFooter
from catalogue.parquet.column_types import kind_of
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import Footer, Order, RowGroup


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
    footer_offset: int
    """Offset of the row group in the footer."""
    file_offset: int
    """Offset of its first page."""


@dataclass(frozen=True, slots=True)
class ChunkSummary:
    """What the metadata database shows of a column chunk."""

    row_group: int
    column_name: str
    physical_type: str
    codec: str
    num_values: int
    null_count: int | None
    file_offset: int
    total_compressed_size: int
    total_uncompressed_size: int
    min: str | None
    """Bounds as text; null for other types."""
    max: str | None
    has_page_index: bool


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
    footer_rest: int | None
    """See ``Footer.rest``."""
    row_groups: tuple[RowGroupSummary, ...]
    column_chunks: tuple[ChunkSummary, ...]
    """Empty unless requested: about 330 a file."""


def summarize_file(footer: Footer, key: str = KEY_COLUMN, *, column_chunks: bool = False) -> FileSummary:
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
        footer_rest=footer.rest,
        row_groups=tuple(_row_group_facts(group, key) for group in footer.row_groups),
        column_chunks=tuple(_chunk_facts(footer)) if column_chunks else (),
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
        bounds_from="missing" if not bounds else "footer (signed)" if bounds.order is Order.SIGNED else "footer",
        first_fetch=times[0] if times else None,
        last_fetch=times[1] if times else None,
        footer_offset=group.offset,
        file_offset=group.start,
    )


def _chunk_facts(footer: Footer) -> Iterator[ChunkSummary]:
    for group in footer.row_groups:
        for chunk in group.chunks.values():
            text = chunk.bounds if chunk.column.physical_type == "BYTE_ARRAY" else None
            yield ChunkSummary(
                row_group=group.ordinal,
                column_name=chunk.column.name,
                physical_type=chunk.column.physical_type,
                codec=chunk.codec_name,
                num_values=chunk.num_values,
                null_count=chunk.null_count,
                file_offset=chunk.range.start,
                total_compressed_size=len(chunk.range),
                total_uncompressed_size=chunk.total_uncompressed_size,
                min=text.min.decode() if text else None,
                max=text.max.decode() if text else None,
                has_page_index=bool(chunk.column_index and chunk.offset_index),
            )


def examine_footer(footer: bytes, file_size: int, key: str = KEY_COLUMN, *, column_chunks: bool = False) -> FileSummary:
    """Decode a footer from outside and summarize it.

    Raises:
        BadFooter: if it is invalid.
        Encrypted: if it or a column is encrypted.
    """
    return summarize_file(decode_footer(footer, file_size), key, column_chunks=column_chunks)
