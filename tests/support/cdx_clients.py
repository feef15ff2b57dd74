"""Clients of CDX servers, reimplemented: their requests with their defaults, and what they make of the answers.

- cdx-index-client: https://github.com/ikreymer/cdx-index-client
- comcrawl: https://github.com/michaelharms/comcrawl
- waymore: https://github.com/xnl-h4ck3r/waymore
- gau: https://github.com/lc/gau

What they do after errors is left out: any unexpected answer raises. cdx_toolkit itself is run by
``tests.support.cdx_toolkit_runs``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import requests

_TIMEOUT = 30


def _crawls(base: str) -> list[dict[str, str]]:
    crawls: list[dict[str, str]] = requests.get(f"{base}/collinfo.json", timeout=_TIMEOUT).json()
    return crawls


# ---- cdx-index-client ----


def cdx_index_client(base: str, url: str, *, crawl: str, options: Mapping[str, str]) -> list[dict[int, bytes]]:
    """Download all pages of a crawl, or of ``all``; return the content of the pages with results, by number."""
    found = []
    for each in _crawls(base):
        if crawl in {each["id"], "all"}:
            endpoint, given = each["cdx-api"], {"url": url, **options}
            counted = requests.get(endpoint, params=given | {"showNumPages": "True"}, timeout=_TIMEOUT).json()
            pages = {}
            for page in range(counted["pages"]):
                answer = requests.get(endpoint, params=given | {"page": str(page)}, timeout=_TIMEOUT)
                if answer.status_code != HTTPStatus.NOT_FOUND:
                    answer.raise_for_status()
                    pages[page] = answer.content
            assert len(pages) == counted["pages"]
            found.append(pages)
    return found


# ---- comcrawl ----


def comcrawl(base: str, url: str, *, threads: int) -> list[dict[str, Any]]:
    """Find captures in all crawls; answers other than 200 count as empty, and the URL is not escaped."""

    def search(each: Mapping[str, str]) -> list[dict[str, Any]]:
        index = each["id"].replace("CC-MAIN-", "")
        answer = requests.get(f"{base}/CC-MAIN-{index}-index?url={url}&output=json", timeout=_TIMEOUT)
        return [json.loads(line) for line in answer.content.splitlines()] if answer.ok else []

    with ThreadPoolExecutor(threads) as pool:
        return [row for rows in pool.map(search, _crawls(base)) for row in rows]


# ---- waymore ----

_MEDIA = {
    "image": ("jpeg", "jpg", "png", "svg+xml", "gif", "tiff", "webp", "bmp", "vnd", "x-icon", "pjpeg", "x-png", "avif"),
    "font": ("ttf", "woff", "woff2", "x-woff", "x-woff2", "otf", "opentype"),
    "audio": ("mpeg", "wav", "webm", "aac", "ogg", "mp3", "x-wav", "basic", "aiff", "wma"),
    "video": ("mp4", "mpeg", "webm", "ogg", "mp2t", "x-msvideo", "x-flv", "3gpp", "quicktime", "x-ms-asf"),
    "application": ("font-woff", "x-font-ttf", "vnd.ms-fontobject", "octet-stream", "x-mplayer2"),
}
WAYMORE_MIMES = ",".join(["text/css", *(f"{kind}/{each}" for kind, all_of in _MEDIA.items() for each in all_of)])
"""Media types excluded by default, and some more."""
WAYMORE_CODES = "404,301,302"


def waymore(base: str, domain: str) -> set[str]:
    """Find the links of a domain and its subdomains in all crawls, without some media types and statuses."""
    query = f"?output=json&fl=timestamp,url,mime,status,digest&url=*.{quote(domain)}/*"
    query += f"&filter=!~mime:(warc/revisit|{_either(WAYMORE_MIMES)})&filter=!~status:({_either(WAYMORE_CODES)})"
    endpoints = [each["cdx-api"] for each in _crawls(base)]
    assert all(int(endpoint.split("CC-MAIN-")[1][:4]) for endpoint in endpoints)  # as it finds the year

    def links(endpoint: str) -> set[str]:
        answer = requests.get(endpoint + query, timeout=_TIMEOUT)
        if answer.text.lower().find("no captures found") > 0 or not answer.text:
            return set()
        answer.raise_for_status()
        return {json.loads(line)["url"] for line in answer.iter_lines()}

    with ThreadPoolExecutor(2) as pool:
        return set[str]().union(*pool.map(links, endpoints))


def _either(words: str) -> str:
    """Return an expression for any of some words; its plus signs are not percent-encoded."""
    return re.escape(words).replace(",", "|")


# ---- gau ----

_MAX_LINE = 64 * 1024
"""Bytes of a line at which gau stops to read an answer."""


def gau(base: str, domain: str, *, filters: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Find URLs of a domain and its subdomains in the newest crawl, page by page."""
    endpoint = f"{_crawls(base)[0]['cdx-api']}?url=*.{domain}/*&output=json&fl=url&page="
    more = f"&{urlencode(sorted(filters))}" if filters else ""

    def get(page: int, end: str = "") -> bytes:
        answer = requests.get(f"{endpoint}{page}{more}{end}", headers={"Accept-Encoding": ""}, timeout=_TIMEOUT)
        answer.raise_for_status()
        return answer.content

    found: list[str] = []
    for page in range(json.loads(get(0, "&showNumPages=true"))["pages"]):
        lines = get(page).splitlines()
        assert all(len(line) < _MAX_LINE for line in lines)
        found += [json.loads(line)["url"] for line in lines]
    return found
