"""Page indexes and page headers → where the pages of a column chunk lie, which rows and keys they hold.

An index written with the file (apache/parquet-format, PageIndex.md: ``OffsetIndex`` and ``ColumnIndex``) and one of our
own making, from the headers of pages that were read anyway, have the same form here and in the store. What an index
says is checked against the footer when it is decoded and against each page when that is read; one that is wrong is no
worse than none.
"""

from catalogue.pages.clusters import clusters, covers, merged
from catalogue.pages.headers import MAX_PAGES, PageHeader, check_headers, check_pages, page_header, page_headers, walk
from catalogue.pages.indexes import (
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    page_bounds,
)
from catalogue.pages.values import LONGEST_BOUND, ColumnIndex, Indexes, OffsetIndex, cut_bounds, cut_indexes

__all__ = [
    "LONGEST_BOUND",
    "MAX_PAGES",
    "ColumnIndex",
    "Indexes",
    "OffsetIndex",
    "PageHeader",
    "check_headers",
    "check_pages",
    "clusters",
    "covers",
    "cut_bounds",
    "cut_indexes",
    "decode_column_index",
    "decode_offset_index",
    "encode_column_index",
    "encode_offset_index",
    "merged",
    "page_bounds",
    "page_header",
    "page_headers",
    "walk",
]
