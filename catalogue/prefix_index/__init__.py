"""The URL index of the crawl of 2012: one file, a prefix B-tree, from URLs to their records in ARC files.

Written anew from the published description, https://github.com/trivio/common_crawl_index (Scott Robertson), its test of
the index writer, and the URLs quoted in https://github.com/wiseman/common_crawl_index; how large the one file is says
https://github.com/centic9/CommonCrawlDocumentDownload. URLs captured more than once stand in it as often. How ports are
written is nowhere said; they are taken to follow the host, ``com.example:8080/``.
"""

from catalogue.prefix_index.blocks import (
    HEADER_SIZE,
    Header,
    IndexBlock,
    parse_data_block,
    parse_header,
    parse_index_block,
)
from catalogue.prefix_index.keys import KeyPattern, parse_key_prefix, url_of

__all__ = [
    "HEADER_SIZE",
    "Header",
    "IndexBlock",
    "KeyPattern",
    "parse_data_block",
    "parse_header",
    "parse_index_block",
    "parse_key_prefix",
    "url_of",
]
