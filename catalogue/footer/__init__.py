"""A Parquet footer's bytes → what it says, checked against itself and against the file's size."""

from catalogue.footer.decoding import (
    MAGIC,
    MAX_FOOTER,
    MAX_ROWS,
    TRAILER,
    decode_footer,
    decode_row_groups,
    footer_length,
    with_trailer,
)
from catalogue.footer.kinds import NESTED, arrow_type, kind_of, wider
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
    "MAX_ROWS",
    "NESTED",
    "PHYSICAL_TYPES",
    "TRAILER",
    "Bounds",
    "Column",
    "ColumnChunk",
    "Footer",
    "Order",
    "RowGroup",
    "arrow_type",
    "decode_footer",
    "decode_row_groups",
    "footer_length",
    "kind_of",
    "number",
    "wider",
    "with_trailer",
]
