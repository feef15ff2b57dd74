"""A Parquet footer's bytes → what it says, checked against itself and against the file's size."""

from catalogue.footer.decoding import (
    MAGIC,
    MAX_FOOTER,
    TRAILER,
    decode_footer,
    decode_row_groups,
    footer_length,
)
from catalogue.footer.values import (
    CODECS,
    DATA_PAGES,
    DICTIONARY_ENCODINGS,
    PHYSICAL_TYPES,
    Bounds,
    Column,
    ColumnChunk,
    Footer,
    Order,
    RowGroup,
    number,
)

__all__ = [
    "CODECS",
    "DATA_PAGES",
    "DICTIONARY_ENCODINGS",
    "MAGIC",
    "MAX_FOOTER",
    "PHYSICAL_TYPES",
    "TRAILER",
    "Bounds",
    "Column",
    "ColumnChunk",
    "Footer",
    "Order",
    "RowGroup",
    "decode_footer",
    "decode_row_groups",
    "footer_length",
    "number",
]
