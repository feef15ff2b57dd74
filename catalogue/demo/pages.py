"""Made-up URLs and responses.

Hosts are names reserved for documentation and tests (RFC 2606, RFC 5737), or names that end in ``-madeup``.
"""

import base64
import hashlib
import json
from html import escape
from http import HTTPStatus
from itertools import product
from random import Random
from typing import Any
from urllib.parse import urljoin

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
"""URLs that are easily looked up wrongly; each crawl has all of them in its subset ``warc``."""

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
"""Charsets and sentences, by ISO 639-3 code."""


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


def fetch(rng: Random, subset: str, url: str) -> Row:
    """Return a response for a subset: its ``body``, and columns of its row, absent where null."""
    return {"warc": _page, "crawldiagnostics": _failure, "robotstxt": _robots}[subset](rng, url)


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
    found = {
        "fetch_status": status,
        "content_mime_type": mime or "unk",
        "content_mime_detected": detected,
        "body": body,
    }
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
