"""Clients of CDX servers: their requests in order, and how they handle errors.

Each function sends the requests of one client as its published source does, with its defaults, but to another server
and without waiting between attempts:

- cdx-index-client: https://github.com/ikreymer/cdx-index-client
- comcrawl: https://github.com/michaelharms/comcrawl
- waymore: https://github.com/xnl-h4ck3r/waymore
- gau: https://github.com/lc/gau

cdx_toolkit itself is run by ``tests.support.cdx_toolkit_runs``.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from os import cpu_count
from queue import Empty, SimpleQueue
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urljoin
from urllib.request import ProxyHandler, Request, build_opener

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError
from urllib3.util.retry import Retry

OK, NOT_FOUND, TOO_MANY = 200, 404, 429

# ---- cdx-index-client ----

_MAX_RETRIES = 5
_TIMEOUT = 30


@dataclass(slots=True)
class Downloaded:
    """Files and results of cdx-index-client."""

    pages: int
    """Reported by the server."""
    files: dict[int, bytes] = field(default_factory=dict)
    """Content by page number."""
    compressed: set[int] = field(default_factory=set)
    """Pages whose files end with ``.gz``."""
    without_results: list[int] = field(default_factory=list)
    retried: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)


def cdx_index_client(
    base: str,
    url: str,
    *,
    crawl: str | None = None,
    options: Mapping[str, str] | None = None,
    page_size: int | None = None,
    gzipped: bool = False,
) -> list[Downloaded]:
    """Download all pages in parallel, in random order.

    Args:
        base: the server.
        url: with or without wildcards.
        crawl: its name, or ``all``; by default the newest.
        options: ``output`` and ``fl`` as ``--json`` and ``--fl`` set them.
        page_size: of ``--page-size``.
        gzipped: ``-z``.

    Returns:
        One for each crawl.
    """
    listed = requests.get(urljoin(f"{base}/", "collinfo.json"), timeout=_TIMEOUT).json()
    if crawl is None:
        listed = listed[:1]
    elif crawl != "all":
        listed = [each for each in listed if each["id"] == crawl]
    query = {"url": url} | ({"pageSize": str(page_size)} if page_size else {})
    found = []
    for each in listed:
        endpoint = each["cdx-api"]
        answer = requests.Session().get(endpoint, params=query | {"showNumPages": "True"}, timeout=_TIMEOUT).json()
        pages = answer["pages"] if isinstance(answer, dict) else int(answer)
        done = Downloaded(pages)
        _download_all(done, endpoint, query | {**(options or {})}, gzipped=gzipped)
        found.append(done)
    return found


def _download_all(done: Downloaded, endpoint: str, query: dict[str, str], *, gzipped: bool) -> None:
    if done.pages == 1:  # without retries
        _download(done, endpoint, query, 0, gzipped=gzipped)
        return
    jobs: SimpleQueue[tuple[int, int]] = SimpleQueue()
    for page in random.sample(range(done.pages), done.pages):
        jobs.put((page, 0))

    def work() -> None:
        while True:
            try:
                page, retries = jobs.get_nowait()
            except Empty:
                return
            try:
                _download(done, endpoint, query, page, gzipped=gzipped)
            except (requests.RequestException, ProtocolError):
                if retries < _MAX_RETRIES:
                    done.retried.append(page)
                    jobs.put((page, retries + 1))
                else:
                    done.given_up.append(page)

    workers = min(2 * (cpu_count() or 2), done.pages)
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for ended in [pool.submit(work) for _ in range(workers)]:
            ended.result()


def _download(done: Downloaded, endpoint: str, query: dict[str, str], page: int, *, gzipped: bool) -> None:
    given = query | {"page": str(page)}
    answer = requests.Session().get(endpoint, params=given, stream=True, timeout=_TIMEOUT)
    if answer.status_code == NOT_FOUND:
        answer.close()
        done.without_results.append(page)
        return
    answer.raise_for_status()
    if gzipped:
        if answer.headers.get("content-encoding") == "gzip":
            done.compressed.add(page)
        done.files[page] = answer.raw.read()
    else:
        done.files[page] = b"".join(answer.iter_content(1024))


# ---- comcrawl ----


def comcrawl(
    base: str, url: str, *, indexes: Sequence[str] | None = None, threads: int | None = None
) -> list[dict[str, Any]]:
    """Find captures in some crawls, or all; answers other than 200 count as empty.

    Args:
        base: the server.
        url: with or without wildcards; not escaped.
        indexes: names without ``CC-MAIN-``.
        threads: crawls requested in parallel.
    """
    if indexes is None:
        listed = requests.get(f"{base}/collinfo.json", timeout=_TIMEOUT).json()
        indexes = [each["id"].replace("CC-MAIN-", "") for each in listed]

    def search(index: str) -> list[dict[str, Any]]:
        answer = requests.get(f"{base}/CC-MAIN-{index}-index?url={url}&output=json", timeout=_TIMEOUT)
        return [json.loads(line) for line in answer.content.splitlines()] if answer.status_code == OK else []

    if threads is None:
        return [*chain.from_iterable(map(search, indexes))]
    with ThreadPoolExecutor(threads) as pool:
        return [*chain.from_iterable(pool.map(search, indexes))]


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
_NOTHING = "no captures found"


@dataclass(slots=True)
class Links:
    """Results of waymore."""

    links: set[str] = field(default_factory=set)
    requested: int = 0
    """Crawls."""
    stopped: bool = False
    """By status 429."""
    failed: list[int] = field(default_factory=list)
    """Statuses of other answers than captures or none."""
    unread: int = 0
    """Lines that could not be parsed."""


def waymore(base: str, domain: str) -> Links:
    """Find the links of a domain and its subdomains in all crawls, without some media types and statuses."""
    found = Links()
    session = requests.Session()
    adapter = HTTPAdapter(max_retries=Retry(4, status_forcelist=[503], raise_on_status=False, backoff_factor=0))
    session.mount("http://", adapter)
    listed = session.get(f"{base}/collinfo.json", timeout=_TIMEOUT)
    if listed.status_code != OK:
        found.failed.append(listed.status_code)
        return found
    query = f"?output=json&fl=timestamp,url,mime,status,digest&url=*.{quote(domain)}/*"
    query += f"&filter=!~mime:(warc/revisit|{_either(WAYMORE_MIMES)})&filter=!~status:({_either(WAYMORE_CODES)})"
    endpoints = [each["cdx-api"] for each in listed.json()]
    assert all(int(endpoint.split("CC-MAIN-")[1][:4]) for endpoint in endpoints)  # as it finds the year
    with ThreadPoolExecutor(2) as pool:
        for ended in [pool.submit(_process, found, session, f"{endpoint}{query}") for endpoint in endpoints]:
            ended.result()
    return found


def _process(found: Links, session: requests.Session, url: str) -> None:
    if found.stopped:
        return
    found.requested += 1
    answer = session.get(url, stream=True, timeout=_TIMEOUT)
    if answer.status_code == TOO_MANY:
        found.stopped = True
    elif answer.text.lower().find(_NOTHING) > 0 or not answer.text:
        return
    elif answer.status_code != OK:
        found.failed.append(answer.status_code)
    else:
        for line in answer.iter_lines():
            try:
                found.links.add(json.loads(line)["url"])
            except (ValueError, KeyError):
                found.unread += 1


def _either(words: str) -> str:
    """Return an expression for any of some words; its plus signs are not percent-encoded."""
    return re.escape(words).replace(",", "|")


# ---- gau ----

_LONGEST = 64 * 1024
"""Bytes of a line at which gau stops to read an answer."""


class Aborted(Exception):
    """gau stopped its search."""


def gau(base: str, domain: str, *, subdomains: bool = True, filters: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Find URLs of a domain in the newest crawl, page by page.

    Args:
        base: the server.
        domain: a host.
        subdomains: ``--subs``.
        filters: more parameters: ``from``, ``to``, ``filter``.

    Raises:
        Aborted: if an answer is not 200, or not as expected.
    """
    listed = json.loads(_go_get(f"{base}/collinfo.json"))
    if not listed:
        message = "no crawl is listed"
        raise Aborted(message)
    query = f"?url={'*.' if subdomains else ''}{domain}/*&output=json&fl=url&page="
    more = f"&{urlencode(sorted(filters, key=lambda each: each[0]))}" if filters else ""
    endpoint = listed[0]["cdx-api"] + query
    pages = json.loads(_go_get(f"{endpoint}0{more}&showNumPages=true"))["pages"]
    found: list[str] = []
    for page in range(pages):
        for line in _go_get(f"{endpoint}{page}{more}").splitlines():
            if len(line) >= _LONGEST:
                break
            row = json.loads(line)
            if row.get("error"):
                raise Aborted(row["error"])
            found.append(row.get("url", ""))
    return found


def _go_get(url: str) -> bytes:
    """Send a request without compression; redirects are not followed."""
    request = Request(url, headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept": "*/*"})
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=45) as answer:
            if answer.status != OK or answer.url != url:
                message = f"{url} answers {answer.status} at {answer.url}"
                raise Aborted(message)
            body: bytes = answer.read()
            return body
    except HTTPError as error:
        message = f"{url} answers {error.code}"
        raise Aborted(message) from error
