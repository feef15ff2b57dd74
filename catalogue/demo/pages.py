"""Made-up URLs, responses, captures as rows, and their WARC files.

Hosts are names reserved for documentation and tests (RFC 2606, RFC 5737), or names that end in ``-madeup``. Rows follow
from URLs as in Common Crawl's converter (commoncrawl/cc-index-table, ``HostName`` and ``WarcUri``).
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from http import HTTPStatus
from itertools import product
from random import Random
from typing import Any
from urllib.parse import unquote_to_bytes, urljoin, urlsplit
from uuid import UUID

from catalogue.surt import url_surtkey

Row = dict[str, Any]

_AMBER = ("amber", "brook", "cinder", "dapple", "ember", "fable", "glimmer", "harbor", "ivory", "juniper", "kettle")
_LANTERN = ("lantern", "meadow", "nimbus", "otter", "pebble", "quill", "ripple", "saffron", "thimble", "umber")
_BARN = ("barn", "cove", "dell", "elm", "fern", "gate", "hill", "inn", "jetty", "kiln", "lane", "mill", "nook", "pond")
_WORDS = (*_AMBER, *_LANTERN, *_BARN)
_MADE_UP = ("com", "org", "net", "de", "co.uk", "fr", "co.jp", "is")
_ENDINGS = dict(zip((f"-madeup.{name}" for name in _MADE_UP), (30, 12, 8, 8, 8, 5, 4, 4), strict=True))
_ENDINGS |= {".example": 8, ".example.net": 6, ".test": 4}

_TRAP_HOSTS = (
    *("example.com", "www.example.com", "www2.example.com", "example.com:8080", "shop.example.com"),
    *("shop.example.com:81", "a.b.c.d.example.com", "wwww.example.com", "example-shop.com", "example0.com"),
    *("examples.com", "notexample.com", "example.com.example-madeup.co.uk", "example.org", "xn--mller-kva.example"),
    *("192.0.2.10", "192.0.2.10:8000"),
)
_TRAP_PATHS = (
    *("/", "/a?", "/a?q=1", "/dir", "/dir/", "/dir/page"),
    *("/Dir/Page?B=2&a=1", "/directory", "/caf%C3%A9", "/caf%E9/x", "/~user/%7Ex"),
)
TRAPS = (
    *(f"{scheme}://{host}{path}" for host, path, scheme in product(_TRAP_HOSTS, _TRAP_PATHS, ("http", "https"))),
    *("http://example.com", "http://example.com:443/", "https://example.com:443/", "http://example.com:80/"),
    *("http://www.test/", "https://www.example/"),
)
"""URLs that are easily looked up wrongly; the subset ``warc`` of each crawl has all of them."""

_TEXTS = {
    "eng": (
        ("UTF-8", "UTF-8", "ISO-8859-1"),
        ("The lanterns are lit at dusk.", "A ferry leaves when it is full.", "Café tables line the quay."),
    ),
    "deu": (
        ("UTF-8", "ISO-8859-1", "windows-1252"),
        ("Die Mühle steht am Sonntag still.", "Niemand zählt die Otter.", "Über dem Hafen hängen Laternen."),
    ),
    "fra": (
        ("UTF-8", "ISO-8859-1"),
        ("Le café ouvre à l'aube.", "Personne ne compte les loutres.", "La forêt s'arrête près du moulin."),
    ),
    "isl": (
        ("UTF-8",),
        ("Enginn hefur talið otrana.", "Ferjan fer þegar hún er full.", "Það er ljós í öllum gluggum."),
    ),
    "jpn": (
        ("UTF-8", "Shift_JIS", "EUC-JP"),
        ("港の灯りは夕暮れにともる。", "水車は日曜日に止まる。", "渡し船は満員になると出る。"),
    ),
}


def made_up_urls(rng: Random, count: int) -> list[str]:
    """Return URLs on a few large and many small hosts."""
    names = [first + second for first, second in product((*_AMBER, *_LANTERN), _BARN)]
    rng.shuffle(names)
    hosts = []
    for rank, name in enumerate(names):
        ending = rng.choices([*_ENDINGS], [*_ENDINGS.values()])[0]
        host = rng.choice(("", "", "www.", "blog.")) + name + ending
        hosts.append(host if rank % 40 else host.replace(name, f"é{name}").encode("idna").decode())
    large_first = [1 / (rank + 8) for rank in range(len(hosts))]
    chosen = rng.choices(hosts, large_first, k=count)
    return [f"{rng.choice(('http', 'https', 'https'))}://{host}{_path(rng)}" for host in chosen]


def _path(rng: Random) -> str:
    folders = "".join(f"/{rng.choice(_WORDS)}" for _ in range(rng.choice((0, 1, 1, 2))))
    name = f"{folders}/{rng.choice(_WORDS)}-{rng.randrange(10_000)}"
    styles = {
        "/": 6,
        name: 50,
        f"{name}/": 16,
        f"{name}.html": 10,
        name.title(): 5,
        f"{name}?{rng.choice('pqr')}={rng.randrange(99)}&Id={rng.randrange(999)}": 10,
        f"{name}-caf%C3%A9": 2,
        f"{name}-%E9t%E9": 1,
    }
    return rng.choices([*styles], [*styles.values()])[0]


def _response(
    status: int, body: bytes, mime: str | None = None, detected: str | None = None, **columns: str | None
) -> Row:
    found = {"fetch_status": status, "content_mime_type": mime or None, "content_mime_detected": detected, "body": body}
    if status != HTTPStatus.NOT_MODIFIED:
        digest = hashlib.sha1(body, usedforsecurity=False).digest()
        found["content_digest"] = base64.b32encode(digest).decode()
    return found | columns


def _page(rng: Random, url: str) -> Row:
    kind = rng.choices(("html", "xhtml", "pdf", "jpeg", "plain", "json"), (85, 3, 4, 3, 3, 2))[0]
    title = " ".join(rng.choices(_WORDS, k=3)).title()
    match kind:
        case "pdf":
            return _response(200, f"%PDF-1.4\n% {title}\n%%EOF\n".encode(), *["application/pdf"] * 2)
        case "jpeg":
            return _response(200, b"\xff\xd8\xff\xe0" + rng.randbytes(60) + b"\xff\xd9", *["image/jpeg"] * 2)
        case "json":
            return _response(200, json.dumps({"title": title}).encode(), *["application/json"] * 2)
    languages = rng.choices(("eng", "deu", "fra", "isl", "jpn", "deu,eng"), (60, 12, 9, 7, 7, 5))[0]
    spoken = languages.split(",")
    charset = rng.choice(_TEXTS[spoken[0]][0])
    text = " ".join(rng.choice(_TEXTS[language][1]) for language in [*spoken, *spoken])
    columns: dict[str, str | None] = {"content_charset": charset, "content_languages": languages}
    if kind == "plain":
        return _response(200, f"{title}\n{text}\n".encode(charset), *["text/plain"] * 2, **columns)
    body = (
        f'<!doctype html><html><head><meta charset="{charset}"><title>{title}</title>'
        f'<link rel="canonical" href="{escape(url)}"></head><body><h1>{title}</h1><p>{text}</p>'
        f'<a href="/">Home</a> <a href="{escape(_path(rng))}">{rng.choice(_WORDS)}</a></body></html>'
    ).encode(charset)
    if not rng.randrange(100):
        body = body[:200]
        columns["content_truncated"] = "length"
    return _response(200, body, "text/html", "application/xhtml+xml" if kind == "xhtml" else "text/html", **columns)


def _failure(rng: Random, url: str) -> Row:
    status = rng.choices((301, 302, 304, 403, 404, 410, 500, 503), (30, 14, 6, 5, 35, 3, 3, 4))[0]
    if status == HTTPStatus.NOT_MODIFIED:
        return _response(status, b"", "warc/revisit")
    columns: dict[str, str | None] = {"fetch_redirect": _elsewhere(url) if status < HTTPStatus.BAD_REQUEST else None}
    if columns["fetch_redirect"] and not rng.randrange(3):
        return _response(status, b"", **columns)
    title = HTTPStatus(status).phrase
    body = f"<!doctype html><html><head><title>{title}</title></head><body>{title}</body></html>".encode()
    columns |= {"content_charset": "UTF-8", "content_languages": "eng"}
    return _response(status, body, *["text/html"] * 2, **columns)


def _robots(rng: Random, url: str) -> Row:
    status = rng.choices((200, 301, 404), (75, 10, 15))[0]
    if status == HTTPStatus.OK:
        return _response(status, f"User-agent: *\nDisallow: /{rng.choice(_WORDS)}/\n".encode(), *["text/plain"] * 2)
    redirect = _elsewhere(url) if status == HTTPStatus.MOVED_PERMANENTLY else None
    return _response(status, b"", "text/plain", fetch_redirect=redirect)


def _elsewhere(url: str) -> str:
    return url.replace("http:", "https:", 1) if url.startswith("http:") else urljoin(url, "/moved/")


_REGISTRIES = ("co.uk", "co.jp", "com", "org", "net", "de", "fr", "is")
"""Public suffixes of the made-up hosts; ``example`` and ``test`` are on no list."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a crawl, fetched within three hours."""

    crawl: str
    number: int
    start: datetime

    @property
    def name(self) -> str:
        """Milliseconds since 1970, and a number."""
        return f"{int(self.start.timestamp()) * 1000 - 4_321_148}.{self.number}"

    def warc_path(self, subset: str) -> str:
        start, end = (f"{time:%Y%m%d%H%M%S}" for time in (self.start, self.start + timedelta(hours=3)))
        name = f"CC-MAIN-{start}-{end}-{self.number:05}.warc.gz"
        return f"crawl-data/{self.crawl}/segments/{self.name}/{subset}/{name}"


def captures(
    rng: Random, segments: Sequence[Segment], subset: str, urls: Sequence[str], *, twice: bool
) -> Iterator[Row]:
    """Yield a row and ``body`` for each URL, with times spread over the segments, without places of records.

    With ``twice``, what is not UTF-8 is escaped twice in keys, as until 2025.
    """
    fetch = {"warc": _page, "crawldiagnostics": _failure, "robotstxt": _robots}[subset]
    for url in urls:
        segment = rng.choice(segments)
        time = segment.start + timedelta(seconds=rng.randrange(3 * 3600))
        split = urlsplit(url)
        key = url_surtkey(url)
        yield {
            **fetch(rng, url),
            **_host_columns(split.hostname or ""),
            "url_surtkey": re.sub("(?:%[89a-f][0-9a-f])+", _escape_again, key) if twice else key,
            "url": url,
            "url_protocol": split.scheme,
            "url_port": split.port,
            "url_path": split.path,
            "url_query": url.partition("?")[2] if "?" in url else None,
            "fetch_time": time,
            "warc_record_id": _uuid7(rng, time).bytes,
            "warc_filename": segment.warc_path(subset),
            "warc_segment": segment.name,
        }


def _host_columns(host: str) -> Row:
    parts = [] if re.fullmatch("[0-9.]+", host) else host.split(".")[::-1]
    suffix = next((suffix for suffix in _REGISTRIES if host.endswith(f".{suffix}")), None)
    domain = ".".join(host.split(".")[-suffix.count(".") - 2 :]) if suffix else None
    names = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")
    return {
        "url_host_name": host,
        **{f"url_host_{name}": part for name, part in zip(names, parts, strict=False)},
        "url_host_registry_suffix": suffix,
        "url_host_registered_domain": domain,
        "url_host_private_suffix": suffix,
        "url_host_private_domain": domain,
        "url_host_name_reversed": ".".join(parts) or None,
    }


def _escape_again(escapes: re.Match[str]) -> str:
    try:
        unquote_to_bytes(escapes[0]).decode()
    except UnicodeDecodeError:
        return escapes[0].replace("%", "%25")
    return escapes[0]


def write_warc(rng: Random, segment: Segment, subset: str, rows: Sequence[Row]) -> bytes:
    """Return a WARC file (WARC 1.0, ISO 28500) of captures by time, a gzip member each; set their places in the rows.

    A 304 is a revisit, others are responses. As in Common Crawl they are between a request and metadata; to save space,
    only in the first segment.
    """
    name = segment.warc_path(subset).rpartition("/")[2]
    fields = f"isPartOf: {segment.crawl}\r\ndescription: made-up pages\r\nformat: WARC File Format 1.0\r\n"
    about = {"Content-Type": "application/warc-fields"}
    file = bytearray(_member("warcinfo", segment.start, _uuid(rng), {"WARC-Filename": name, **about}, fields.encode()))
    for row in sorted(rows, key=lambda row: row["fetch_time"]):
        time, record = row["fetch_time"], UUID(bytes=row["warc_record_id"])
        linked = {"WARC-Concurrent-To": f"<urn:uuid:{record}>", "WARC-Target-URI": row["url"]}
        if segment.number == 0:
            headers = {"Content-Type": "application/http; msgtype=request", **linked}
            host = urlsplit(row["url"]).netloc
            request = f"GET {row['url'].partition(host)[2] or '/'} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            file += _member("request", time, _uuid(rng), headers, request.encode())
        kind, headers, block = _record(row)
        member = _member(kind, time, record, headers, block)
        row |= {"warc_record_offset": len(file), "warc_record_length": len(member)}
        file += member
        if segment.number == 0:
            known = f"fetchTimeMs: {rng.randrange(20, 900)}\r\n"
            if charset := row.get("content_charset"):
                known += f"charset-detected: {charset}\r\n"
            file += _member("metadata", time, _uuid(rng), {**about, **linked}, known.encode())
    return bytes(file)


def _record(row: Row) -> tuple[str, dict[str, str], bytes]:
    status, digest, charset = row["fetch_status"], row.get("content_digest"), row.get("content_charset")
    headers = {"Content-Type": "application/http; msgtype=response", "WARC-Target-URI": row["url"]}
    if digest:
        headers["WARC-Payload-Digest"] = f"sha1:{digest}"
    else:
        headers["WARC-Profile"] = "http://netpreserve.org/warc/1.0/revisit/server-not-modified"
    if "content_truncated" in row:
        headers["WARC-Truncated"] = row["content_truncated"]
    if row["content_mime_detected"]:
        headers["WARC-Identified-Payload-Type"] = row["content_mime_detected"]
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if digest and row["content_mime_type"]:
        lines.append(f"Content-Type: {row['content_mime_type']}" + (f"; charset={charset}" if charset else ""))
    if row.get("fetch_redirect"):
        lines.append(f"Location: {row['fetch_redirect']}")
    head = "\r\n".join([*lines, f"Content-Length: {len(row['body'])}", "", ""])
    return "response" if digest else "revisit", headers, head.encode() + row["body"]


def _member(kind: str, time: datetime, record: UUID, headers: dict[str, str], block: bytes) -> bytes:
    lines = {
        "WARC-Type": kind,
        "WARC-Date": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        "WARC-Record-ID": f"<urn:uuid:{record}>",
        "Content-Length": str(len(block)),
        **headers,
    }
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return zlib.compress(head.encode() + b"\r\n" + block + b"\r\n\r\n", wbits=31)


def _uuid(rng: Random) -> UUID:
    return UUID(bytes=rng.randbytes(16), version=4)


def _uuid7(rng: Random, time: datetime) -> UUID:
    """Return an id that sorts by time, as those of records since 2026 (RFC 9562, 5.7)."""
    milliseconds = int(time.timestamp() * 1000) + rng.randrange(1000)
    return UUID(int=milliseconds << 80 | 7 << 76 | rng.getrandbits(12) << 64 | 2 << 62 | rng.getrandbits(62))
