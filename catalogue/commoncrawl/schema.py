"""The types of the columns of Common Crawl's index over the years (commoncrawl/cc-index-table)."""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("url_surtkey", pa.string()),
        ("url", pa.string()),
        ("url_host_name", pa.string()),
        ("url_host_tld", pa.string()),
        ("url_host_2nd_last_part", pa.string()),
        ("url_host_3rd_last_part", pa.string()),
        ("url_host_4th_last_part", pa.string()),
        ("url_host_5th_last_part", pa.string()),
        ("url_host_registry_suffix", pa.string()),
        ("url_host_registered_domain", pa.string()),
        ("url_host_private_suffix", pa.string()),
        ("url_host_private_domain", pa.string()),
        ("url_host_name_reversed", pa.string()),
        ("url_protocol", pa.string()),
        ("url_port", pa.int32()),
        ("url_path", pa.string()),
        ("url_query", pa.string()),
        ("fetch_time", pa.timestamp("ms", "UTC")),  # INT96, naive or UTC milliseconds in the files, by era
        ("fetch_status", pa.int16()),
        ("fetch_redirect", pa.string()),
        ("content_digest", pa.string()),
        ("content_mime_type", pa.string()),
        ("content_mime_detected", pa.string()),
        ("content_charset", pa.string()),
        ("content_languages", pa.string()),
        ("content_truncated", pa.string()),
        ("warc_record_id", pa.binary()),
        ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int64()),  # int32 in most files
        ("warc_record_length", pa.int64()),  # int32 in most files
        ("warc_segment", pa.string()),
        ("crawl", pa.string()),  # in the path only
        ("subset", pa.string()),  # in the path only
    ]
)
"""The schema of all crawls: columns that a file lacks are null, and each column is nullable.

Other columns, such as those of future crawls, keep the type of the files.
"""

SINCE = {
    **dict.fromkeys(["content_charset", "content_languages"], "CC-MAIN-2018-39"),
    **dict.fromkeys(["fetch_redirect", "content_truncated"], "CC-MAIN-2019-47"),
    "url_host_name_reversed": "CC-MAIN-2021-49",
    "warc_record_id": "CC-MAIN-2026-30",
}
"""The first crawl that has a column."""
