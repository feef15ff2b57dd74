"""Find the charset of a document and decode it, as https://html.spec.whatwg.org/#determining-the-character-encoding.

The order is: byte order mark, ``charset`` of the header, declaration in the document, detection. The detector is that
of Firefox; UTF-8 is detected before, since few other texts are valid UTF-8. Style sheets are declared by ``@charset``
(https://drafts.csswg.org/css-syntax/#input-byte-stream).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from catalogue.records.charsets import (
    UTF_8,
    UTF_16_BE,
    UTF_16_LE,
    WINDOWS_1252,
    X_USER_DEFINED,
    charset_of,
    declared_charset,
    decode,
    similar_charset,
)
from catalogue.records.media_type import Syntax

try:
    from chardetng_py import detect
except ImportError:  # it has no wheels for this version of Python
    detect = None

BYTE_ORDER_MARK, HEADER, META, DECLARATION, RULE, DETECTION = (
    "byte order mark",
    "http header",
    "html meta",
    "xml declaration",
    "css charset",
    "detection",
)

_PRESCANNED = 1024
_LATE_META = 1 << 16
"""First bytes of a page in which browsers find a ``meta`` element while they parse."""
_DETECTED = 1 << 18
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": UTF_8, b"\xff\xfe": UTF_16_LE, b"\xfe\xff": UTF_16_BE}
_XML_DECLARATION = re.compile(rb"\s*<\?xml\s[^>]{0,500}?encoding\s*=\s*(?:\"([^\"<>]{1,40})\"|'([^'<>]{1,40})')")
_RULE = re.compile(rb'@charset "([^"]*)";')
_MARKUP = re.compile(
    rb"<(?:(?P<comment>!--)|(?P<tag>meta(?=[\t\n\f\r /])|/?[a-z][^\t\n\f\r >]*)|[!/?][^>]*>?)", re.IGNORECASE
)
_COMMENT_END = re.compile(rb"--!?>")
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*(?:(?P<end>>)|(?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)"
    rb"(?:[\t\n\f\r ]*=[\t\n\f\r ]*"
    rb"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<open>[\"'])|(?P<plain>[^\t\n\f\r >]*)))?)"
)
"""End of a tag; or a name and a value, where ``open`` is a quote that is not closed."""
_CONTENT_CHARSET = re.compile(
    rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|[\"']|([^\t\n\f\r ;]*))", re.IGNORECASE
)
_BY_PYTHON_NAME = {"cp874": "windows-874"}
"""Names from the detector that are not labels of the encoding standard."""
_TOP_LEVEL_DOMAIN = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]{1,59}")
_ESCAPE = b"\x1b"  # ASCII text with it may be iso-2022-jp
_INVALID = "\ufffd"


@dataclass(frozen=True, slots=True)
class DocumentCharset:
    """The charset of a document."""

    name: str
    """Lower case, as in the encoding standard."""
    source: str
    """What decided, such as ``http header``."""


def find_charset(data: bytes, syntax: Syntax, *, content_type: str = "", url: str = "") -> DocumentCharset:
    """Return the charset of a document without content codings.

    ``syntax`` determines which declarations count; ``content_type`` has all values of the header, separated by commas.
    The top-level domain of ``url`` helps to detect a charset.
    """
    for mark, charset in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return DocumentCharset(charset, BYTE_ORDER_MARK)
    if found := declared_charset(content_type):
        return DocumentCharset(found, HEADER)
    for source, find in _DECLARATIONS[syntax].items():
        if found := find(data[:_PRESCANNED]):
            return DocumentCharset(found, source)
    if found := _utf_16(data):
        return DocumentCharset(found, DETECTION)
    if _is_utf_8(data):
        return DocumentCharset(UTF_8, DETECTION)
    if syntax in {Syntax.HTML, Syntax.XHTML} and (found := _meta(data[:_LATE_META])):
        return DocumentCharset(found, META)
    if found := similar_charset(content_type):
        return DocumentCharset(found, HEADER)
    return DocumentCharset(_detected(data[:_DETECTED], url), DETECTION)


def decode_text(data: bytes, charset: DocumentCharset) -> str:
    """Decode a document without its byte order mark; invalid bytes become U+FFFD."""
    marks = [mark for mark, name in _BYTE_ORDER_MARKS.items() if name == charset.name]
    return decode(data.removeprefix(marks[0]) if charset.source == BYTE_ORDER_MARK else data, charset.name)


def _meta(data: bytes) -> str | None:
    """Find a ``meta`` element outside comments: https://html.spec.whatwg.org/#prescan-a-byte-stream-to-determine-its-encoding."""
    position = 0
    while markup := _MARKUP.search(data, position):
        position = markup.end()
        if markup["comment"]:
            end = _COMMENT_END.search(data, markup.start() + 2)
            if not end:
                return None
            position = end.end()
        elif markup["tag"]:
            attributes, position = _attributes(data, position)
            if markup["tag"].lower() == b"meta" and (charset := _declared_by(attributes)):
                return charset
    return None


def _attributes(data: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    found: dict[bytes, bytes] = {}
    while attribute := _ATTRIBUTE.match(data, position):
        position = attribute.end()
        if attribute["end"]:
            return found, position
        if attribute["open"]:
            break
        value = attribute["double"] or attribute["single"] or attribute["plain"] or b""
        found.setdefault(attribute["name"].lower(), value)
    return {}, len(data)


def _declared_by(attributes: Mapping[bytes, bytes]) -> str | None:
    label = attributes.get(b"charset")
    if label is None and attributes.get(b"http-equiv", b"").lower() == b"content-type":
        parameter = _CONTENT_CHARSET.search(attributes.get(b"content", b""))
        label = parameter and (parameter[1] or parameter[2] or parameter[3])
    charset = _readable(label)
    return WINDOWS_1252 if charset == X_USER_DEFINED else charset


def _xml_declaration(data: bytes) -> str | None:
    declaration = _XML_DECLARATION.match(data)
    return _readable(declaration and (declaration[1] or declaration[2]))


def _rule(data: bytes) -> str | None:
    rule = _RULE.match(data)
    return _readable(rule and rule[1])


def _readable(label: bytes | None) -> str | None:
    """Return the charset of a label, which is not UTF-16, since it was read as ASCII."""
    charset = charset_of(label.decode("latin-1")) if label else None
    return UTF_8 if charset in {UTF_16_LE, UTF_16_BE} else charset


_Find = Callable[[bytes], str | None]
_IN_HTML: dict[str, _Find] = {
    META: _meta,
    DECLARATION: lambda data: _xml_declaration(data) if data.startswith(b"<") else None,  # blanks only in feeds
}
_IN_XML: dict[str, _Find] = {DECLARATION: _xml_declaration}
_DECLARATIONS: dict[Syntax, dict[str, _Find]] = {
    Syntax.HTML: _IN_HTML,
    Syntax.XHTML: _IN_XML,  # browsers ignore its meta elements; one is used if the page is not UTF-8
    Syntax.RSS: _IN_XML,
    Syntax.ATOM: _IN_XML,
    Syntax.XML: _IN_XML,
    Syntax.TEXT: {RULE: _rule},
}


def _utf_16(data: bytes) -> str | None:
    """Detect UTF-16 by markup at the start, or by many ASCII characters."""
    head = data[:_PRESCANNED]
    pairs, first, second = len(head) // 2, head[::2].count(0), head[1::2].count(0)
    if head.startswith(b"<\0") or second > max(pairs // 3, 10 * first):
        return UTF_16_LE
    if head.startswith(b"\0<") or first > max(pairs // 3, 10 * second):
        return UTF_16_BE
    return None


def _is_utf_8(data: bytes) -> bool:
    if data.isascii():
        return _ESCAPE not in data
    text = data.decode(errors="replace")
    invalid = text.count(_INVALID) - data.count(_INVALID.encode()) - text.endswith(_INVALID)
    valid = len(text) - len(text.encode("ascii", "ignore")) - text.count(_INVALID)
    return valid > 2 * invalid


def _detected(data: bytes, url: str) -> str:
    if detect is None:
        from resiliparse.parse.encoding import detect_encoding  # noqa: PLC0415 - the other detector

        return charset_of(detect_encoding(data) or "") or WINDOWS_1252
    found = detect(data, allow_utf8=False, tld=_top_level_domain(url))
    return charset_of(_BY_PYTHON_NAME.get(found, found)) or WINDOWS_1252


def _top_level_domain(url: str) -> bytes | None:
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # brackets without an address
        return None
    domain = host.rpartition(".")[2]
    return domain.encode() if _TOP_LEVEL_DOMAIN.fullmatch(domain) else None
