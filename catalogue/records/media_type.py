"""Determine the media type of a payload, and its syntax.

Signatures are those of https://mimesniff.spec.whatwg.org/, and a few of archives and documents.
"""

import re
from collections.abc import Callable
from enum import Enum

from catalogue.records.charsets import UTF_16_BE, UTF_16_LE, VALUE, declared_charset

HTML, XHTML, PLAIN = "text/html", "application/xhtml+xml", "text/plain"
_ANY = "application/octet-stream"

_SNIFFED = 1445
_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+*-]{1,127}")
_END_OF_TYPE = re.compile("[; \t]")
"""Some servers forget the semicolon before a parameter."""
_AROUND_TYPE = " \t\"'"
_UNKNOWN = re.compile(
    r"\*/\*|(?:application|binary|content|unknown)/(?:x-)?"
    r"(?:binary|(?:force-)?download|octet-?stream|unknown(?:-content-type)?)"
)
"""Types of any bytes."""
_SIGNATURES = {
    b"%PDF-": "application/pdf",
    b"%!PS-Adobe-": "application/postscript",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"\x00\x00\x01\x00": "image/x-icon",
    b"II*\x00": "image/tiff",
    b"MM\x00*": "image/tiff",
    b"ID3": "audio/mpeg",
    b"OggS\x00": "application/ogg",
    b"MThd\x00\x00\x00\x06": "audio/midi",
    b"\x1aE\xdf\xa3": "video/webm",
    b"FLV\x01": "video/x-flv",
    b"wOFF": "font/woff",
    b"wOF2": "font/woff2",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b": "application/gzip",
    b"\x28\xb5\x2f\xfd": "application/zstd",
    b"BZh": "application/x-bzip2",
    b"\xfd7zXZ\x00": "application/x-xz",
    b"7z\xbc\xaf\x27\x1c": "application/x-7z-compressed",
    b"Rar!\x1a\x07": "application/x-rar-compressed",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "application/x-ole-storage",
    b"CWS": "application/x-shockwave-flash",
    b"FWS": "application/x-shockwave-flash",
    b"{\\rtf": "application/rtf",
}
_TEXT_SIGNATURES = (b"%PDF-", b"%!PS-Adobe-", b"GIF87a", b"GIF89a", b"{\\rtf")
"""They need no byte that text does not have."""
_BRANDED = (
    (re.compile(rb"RIFF....WEBPVP", re.DOTALL), "image/webp"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "audio/wave"),
    (re.compile(rb"RIFF....AVI ", re.DOTALL), "video/avi"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "image/avif"),
    (re.compile(rb"....ftyp(?:mp4|.{8}(?:.{4}){0,60}?mp4)", re.DOTALL), "video/mp4"),
)
_CHECKED = ("text/", "image/", "application/json", "application/javascript")
"""Declared types that a signature overrides, as those of XML; other documents may be in a zip file."""
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_UTF_16_STARTS = {UTF_16_LE: re.compile(rb"(?:[\t\n\r ]\0)*<\0"), UTF_16_BE: re.compile(rb"(?:\0[\t\n\r ])*\0<")}
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_HTML = re.compile(
    rb"\s*(?:<!--|<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)[\s>])",
    re.IGNORECASE,
)
_HTML_ELEMENT = re.compile(rb"<(?:html|head|body|title|meta)[\s>]", re.IGNORECASE)
"""An element in a page that begins with something else, such as a server's warning."""
_XML = re.compile(rb"\s*<\?xml\s")
_XML_TYPES = {
    "feed": "application/atom+xml",
    "html": XHTML,
    "rdf": "application/rdf+xml",
    "rss": "application/rss+xml",
    "svg": "image/svg+xml",
}
_LONGEST_PROLOG = 1 << 14
_PROLOG = re.compile(
    rb"\s*(?:(?:<\?.*?\?>|<!--.*?-->|<!doctype[^>\[]*(?:\[.*?\]\s*)?>)\s*)*", re.DOTALL | re.IGNORECASE
)
_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")


def media_type(
    identified: str | None, indexed: str | None, declared: str | None, payload: Callable[[], bytes]
) -> str | None:
    """Return the media type of a payload in lower case, without parameters; None if nothing is known.

    ``identified`` is ``WARC-Identified-Payload-Type`` of the record, ``indexed`` the detected type in the index, and
    ``declared`` the ``Content-Type`` of the response. The signature of another binary type has priority over that.
    ``payload`` returns the payload without codings; it is called only if its first bytes decide.
    """
    for detected in (identified, indexed):
        if (found := declared_type(detected)) and not _UNKNOWN.fullmatch(found):
            return found
    named = declared_type(declared) or declared_type(identified) or declared_type(indexed)
    data = payload()
    if not data:
        return named
    if named == PLAIN and declared_charset(declared or "") not in _UTF_16_STARTS and is_binary(data[:_SNIFFED]):
        return binary_type(data) or _ANY
    if named and not _UNKNOWN.fullmatch(named):
        binary = binary_type(data) if named.startswith(_CHECKED) or is_xml(named) else None
        return binary or named
    return binary_type(data) or _text_type(data) or named


def declared_type(declared: str | None) -> str | None:
    """Return the last valid media type of a list, as browsers do; the first one of a copy of the header ``Accept``.

    It is in lower case, without parameters and quotes.
    """
    types = VALUE.findall(declared or "")
    for part in types if "*/*" in (declared or "") else reversed(types):
        name = _END_OF_TYPE.split(part.strip(_AROUND_TYPE), maxsplit=1)[0].rstrip(_AROUND_TYPE).lower()
        if _TYPE.fullmatch(name):
            return name
    return None


def binary_type(data: bytes) -> str | None:
    head = data[:_SNIFFED]
    for signature, found in _SIGNATURES.items():
        if head.startswith(signature) and (signature in _TEXT_SIGNATURES or is_binary(head)):
            return found
    return next((found for pattern, found in _BRANDED if pattern.match(head)), None)


def is_binary(data: bytes) -> bool:
    """Return whether data has a byte that text does not have."""
    return not data.startswith(_BYTE_ORDER_MARKS) and _BINARY.search(data) is not None


def is_html(mime: str) -> bool:
    return mime in {HTML, XHTML, "application/vnd.wap.xhtml+xml"}


def is_xml(mime: str) -> bool:
    return mime in {"text/xml", "application/xml"} or mime.endswith("+xml")


def root_element(data: bytes) -> str | None:
    """Return the lower-case name of the first element of an XML document, without its prefix."""
    head = _readable(data)
    prolog = _PROLOG.match(head)
    found = _ROOT.match(head, prolog.end() if prolog else 0)
    return found[1].decode().lower() if found else None


def _text_type(data: bytes) -> str | None:
    head = _readable(data)
    if _XML.match(head):
        return _XML_TYPES.get(root_element(data) or "", "application/xml")
    if is_binary(head):
        return None
    return HTML if _HTML.match(head) or _HTML_ELEMENT.search(head[:_SNIFFED]) else PLAIN


def _readable(data: bytes) -> bytes:
    """Return the first bytes, without byte order mark and from UTF-16 in UTF-8."""
    head = data[:_LONGEST_PROLOG]
    if head.startswith(_BYTE_ORDER_MARKS[1:]):
        return head.decode("utf-16", "replace").encode(errors="replace")
    for charset, start in _UTF_16_STARTS.items():
        if start.match(head):
            return head.decode(charset, "replace").encode(errors="replace")
    return head.removeprefix(_BYTE_ORDER_MARKS[0])


_FEEDS = {"rss": "rss", "rdf": "rss", "feed": "atom"}


class Syntax(Enum):
    """Syntax of a document with text."""

    HTML = "html"
    XHTML = "xhtml"
    RSS = "rss"
    ATOM = "atom"
    XML = "xml"
    """Its text is the document."""
    TEXT = "text"

    @property
    def parsed_as(self) -> str:
        """The syntax of the parser that reads it."""
        return {Syntax.XHTML: "html", Syntax.XML: "text"}.get(self, self.value)


def syntax_of(mime: str | None, data: bytes, *, declared: str | None = None) -> Syntax | None:
    """Return the syntax of a document; None if it has no text, such as an image.

    A feed is recognized by its root element, since servers and detectors give it many types. XHTML declared as HTML is
    HTML, as in browsers.
    """
    if mime is None or not (mime.startswith("text/") or is_html(mime) or is_xml(mime)):
        return None
    root = root_element(data) or ""
    if root in _FEEDS:
        return Syntax(_FEEDS[root])
    if is_html(mime) or (is_xml(mime) and root == "html"):
        return Syntax.HTML if HTML in {mime, declared} else Syntax.XHTML
    if not mime.startswith("text/"):
        return None
    return Syntax.XML if is_xml(mime) else Syntax.TEXT
