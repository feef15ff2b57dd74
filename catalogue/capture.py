"""One capture: a row of the index as the CDX index writes it.

Field names, their order and what is left out are those of Common Crawl's index server; a capture's WARC record is the
``length`` bytes at ``offset`` of ``filename``.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_CDX_FIELDS = (
    ("url", "url"),
    ("mime", "content_mime_type"),
    ("mime-detected", "content_mime_detected"),
    ("status", "fetch_status"),
    ("digest", "content_digest"),
    ("length", "warc_record_length"),
    ("offset", "warc_record_offset"),
    ("filename", "warc_filename"),
    ("languages", "content_languages"),
    ("encoding", "content_charset"),
    ("redirect", "fetch_redirect"),
    ("truncated", "content_truncated"),
)

_BREAK = re.compile(r"[\s\x00-\x1f\x7f]")
"""What would end a key, or its line, too early; keys as they are made have none of it."""


def timestamp(time: datetime | None) -> str:
    """A time in 14 digits, UTC; ``-`` for none."""
    if time is None:
        return "-"
    time = time if time.tzinfo is None else time.astimezone(UTC)
    return f"{time.year:04}{time:%m%d%H%M%S}"  # %Y has not everywhere four digits


def cdx_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """A row's CDX fields behind the key and the time, all of them text; what is null is left out."""
    return {name: str(value) for name, column in _CDX_FIELDS if (value := row.get(column)) is not None}


def cdxj_line(row: Mapping[str, Any]) -> str:
    """A row as a line of CDXJ, without its end."""
    return f"{_BREAK.sub(_escaped, row['url_surtkey'])} {timestamp(row['fetch_time'])} {json.dumps(cdx_fields(row))}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())
