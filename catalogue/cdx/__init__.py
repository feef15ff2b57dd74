"""The CDX API as Common Crawl's index server answers it, without a server.

That server is pywb, which describes what it takes and gives: https://github.com/webrecorder/pywb/wiki/CDX-Server-API.
"""

from catalogue.cdx.lines import Output, cdx_table, write_lines
from catalogue.cdx.paging import BLOCK_ROWS, Block, Mark, cut, marks, pages_of
from catalogue.cdx.request import CdxRequest, parse_request
from catalogue.cdx.rows import arranged, candidates_of, chosen_of

__all__ = [
    "BLOCK_ROWS",
    "Block",
    "CdxRequest",
    "Mark",
    "Output",
    "arranged",
    "candidates_of",
    "cdx_table",
    "chosen_of",
    "cut",
    "marks",
    "pages_of",
    "parse_request",
    "write_lines",
]
