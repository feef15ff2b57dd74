"""Describe a record and its document like Common Crawl's metadata files of 2012.

``attempt_time`` (milliseconds since 1970, UTC), ``disposition`` (``SUCCESS`` or ``FAILURE`` with ``failure_reason`` and
``failure_detail``), ``server_ip``, ``http_result``, ``http_headers``, ``redirect_from``, ``content_len`` (bytes of the
payload), ``mime_type``, ``download_size`` (archived bytes), ``md5`` of the payload, ``text_simhash`` (see
``catalogue.records.extract``), ``charset_detected``, ``charset_detector`` (such as ``http header``), ``parsed_as``, and
``content``: ``type`` is ``html-doc`` with ``title``, ``base``, ``meta_tags`` and ``links`` as written, or ``rss-feed``
or ``atom-feed`` with ``items``; ``links_omitted`` or ``items_omitted`` counts those after the first 10,000. Added are
``mime_detected``, ``truncated`` (why the payload is not complete) and ``coding_error`` (why it cannot be decoded).
Unknown values are left out.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from catalogue.errors import BadDocument, BadRecord
from catalogue.formatting import to_json
from catalogue.records.charsets import UTF_8
from catalogue.records.extract import MAX_ITEMS
from catalogue.records.head import joined
from catalogue.records.record import Record
from catalogue.records.references import resolve
from catalogue.surt.key import without_surplus_slashes

_LED_TO = ("http:", "https:")
_WITH_HOST = re.compile(
    r"https?://(?:[^/?#]*@)?(?:\[[0-9a-f:.]+\]|[^\x00-\x20\x7f#/:<>?@\[\]^|]+)(?::[0-9]{0,5})?(?:[/?#]|\Z)",
    re.IGNORECASE,
)
_NO_BASE = ("data:", "javascript:")
"""Schemes that browsers do not accept for a base."""
_LONGEST_BASE = 10_000
"""Characters; each of thousands of links repeats the base."""


def metadata_of(record: Record, extract: Callable[[Record], dict[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a record; ``extract`` is that of ``Documents``."""
    time, payload = record.time, record.body if record.coding_error else record.payload
    found: dict[str, Any] = {
        "url": record.url,
        "attempt_time": int(time.timestamp() * 1000) if time else None,
        "disposition": "SUCCESS",
        "server_ip": record.header("WARC-IP-Address") or record.header("ip-address"),
        "http_result": record.status,
        "http_headers": {name.lower(): value for name, value in joined(record.http_headers).items()},
        "redirect_from": record.header("WARC-Redirected-From"),
        "content_len": len(payload),
        "mime_type": (record.http_header("content-type") or "").partition(";")[0].strip().lower() or None,
        "mime_detected": record.mime,
        "truncated": record.truncated,
        "coding_error": record.coding_error,
        "download_size": record.capture.length,
        "md5": hashlib.md5(payload, usedforsecurity=False).hexdigest(),
    }
    inside, failure = _extracted(record, extract)
    if failure:
        found |= {"disposition": "FAILURE", "failure_reason": "PARSE", "failure_detail": failure}
    else:
        found |= {
            "text_simhash": inside["simhash"],
            "charset_detected": inside["charset"],
            "charset_detector": inside["charset_detector"],
            "parsed_as": inside["parsed_as"],
            "content": inside["content"],
        }
    return {name: value for name, value in found.items() if value is not None}


def text_of(record: Record, extract: Callable[[Record], dict[str, Any]]) -> dict[str, Any]:
    """Return a record's text and what identifies it; ``text`` is None if there is none or it cannot be decoded."""
    inside = {} if record.coding_error else extract(record)
    return {
        "url": record.url,
        "time": to_json(record.time),
        "status": record.status,
        "mime": record.mime,
        "charset": inside.get("charset"),
        "charset_source": inside.get("charset_detector"),
        "truncated": record.truncated,
        "coding_error": record.coding_error,
        "title": (inside.get("content") or {}).get("title"),
        "text": inside.get("text"),
    }


def row_of(record: Record, extract: Callable[[Record], dict[str, Any]]) -> dict[str, Any]:
    """Return a record as a row of a table of pages; its time is in milliseconds since 1970, UTC."""
    inside, failure = _extracted(record, extract)
    content = inside.get("content") or {}
    time, status = record.time, record.status
    return text_of(record, lambda _: inside) | {
        "time": int(time.timestamp() * 1000) if time else None,
        "status": status if status is not None and status < 1 << 15 else None,
        "headers": [{"name": name, "value": value} for name, value in record.http_headers],
        "links": list(absolute_links(content, record.url, inside["charset"]))
        if content.get("type") == "html-doc"
        else None,
        "failure": failure or omitted_links(content),
        "warc_filename": record.capture.filename,
        "warc_record_offset": record.capture.offset,
        "warc_record_length": record.capture.length,
    }


def _extracted(record: Record, extract: Callable[[Record], dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """Return what is extracted, or why nothing is; a failure that another attempt may not have is raised."""
    try:
        return extract(record), None
    except (BadDocument, BadRecord) as error:
        if isinstance(error, BadDocument) and not error.permanent:
            raise
        return {}, str(error)


def failure_of(row: Mapping[str, Any]) -> str | None:
    """Return why a row of this module has no text or content, although its document may have some."""
    failure: str | None = row.get("coding_error") or row.get("failure_detail")
    return failure or (row.get("failure") if row.get("text") is None else None)


def omitted_links(content: Mapping[str, Any]) -> str | None:
    omitted = content.get("links_omitted")
    return f"links after the first {MAX_ITEMS:,} are left out: {omitted:,}" if omitted else None


def absolute_links(content: Mapping[str, Any], page: str, charset: str = UTF_8) -> Iterator[dict[str, str | None]]:
    """Yield the links of the metadata with absolute URLs, as a browser resolves them in a page of a charset."""
    page = without_surplus_slashes(page)
    base = resolve(page, content.get("base", ""), charset)
    if base.lower().startswith(_NO_BASE) or (base.lower().startswith(_LED_TO) and not _WITH_HOST.match(base)):
        base = page
    base = base if len(base) <= _LONGEST_BASE else ""
    for link in content["links"]:
        url = resolve(base, link["href"], charset)
        if _WITH_HOST.match(url):
            yield {"type": link["type"], "url": url, "text": link.get("text")}
