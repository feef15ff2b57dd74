"""The columns that follow from lines of the CDX index, and their names in lines."""

from catalogue.commoncrawl.schema import SCHEMA

TEXTS = {
    "url": "url",
    "fetch_redirect": "redirect",
    "content_digest": "digest",
    "content_mime_type": "mime",
    "content_mime_detected": "mime-detected",
    "content_charset": "charset",
    "content_languages": "languages",
    "content_truncated": "truncated",
    "warc_filename": "filename",
}
NUMBERS = {"warc_record_offset": "offset", "warc_record_length": "length"}

COLUMNS = tuple(
    name
    for name in SCHEMA.names
    if name in {*TEXTS, *NUMBERS, "url_surtkey", "fetch_time", "fetch_status", "warc_segment", "crawl", "subset"}
)
"""In the order of the columnar index."""
