"""The URL index of the crawl of 2012: one file, a prefix B-tree, from URLs to their records in ARC files.

Written anew from the published description, https://github.com/trivio/common_crawl_index (Scott Robertson), its test of
the index writer, and the URLs quoted in https://github.com/wiseman/common_crawl_index. What that leaves open: how ports
are written (taken for ``com.example:8080/``), and that URLs captured more than once may stand in it several times.
"""

from catalogue.prefix_index.blocks import (
    HEADER_SIZE,
    MAX_BLOCK,
    Entry,
    Header,
    IndexBlock,
    parse_data_block,
    parse_header,
    parse_index_block,
)
from catalogue.prefix_index.keys import KeyPattern, parse_key_prefix, url_of

__all__ = [
    "HEADER_SIZE",
    "MAX_BLOCK",
    "Entry",
    "Header",
    "IndexBlock",
    "KeyPattern",
    "parse_data_block",
    "parse_header",
    "parse_index_block",
    "parse_key_prefix",
    "url_of",
]
