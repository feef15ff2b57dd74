"""Resolve URL references in pages and in the header ``Location``, as browsers do (https://url.spec.whatwg.org/)."""

import re

from catalogue.errors import QueryError
from catalogue.records.charsets import UTF_8, encode
from catalogue.records.record import Record
from catalogue.surt.equality import without_dots
from catalogue.surt.key import BLANKS, without_surplus_slashes
from catalogue.surt.pattern import exact_keys

_LINE_ENDS = re.compile(r"[\t\n\r]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HTTP = re.compile(r"(https?:)([/\\]*)", re.IGNORECASE)
_BASE = re.compile(r"((https?:)//[^/?#]+)([^?#]*)([^#]*)", re.IGNORECASE)
_RESOLVED = re.compile(r"(https?://[^/?#]+)([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_DOTS = re.compile(r"(?<=/)(?:%2e|\.){1,2}(?=/|\Z)", re.IGNORECASE)
_TO_ESCAPE = re.compile(r"[^!-~]+")
_ENCODED_TO_ESCAPE = re.compile(rb"[^!-~]|[\"#'<>]")
_NETWORK = re.compile(r"(?:https?:|[/\\]{2})", re.IGNORECASE)
_NETWORK_WITH_HOST = re.compile(r"(?:https?:)?[/\\]{2}[^/\\?#]", re.IGNORECASE)
_HTTP_WITH_HOST = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#]+.*)", re.IGNORECASE | re.DOTALL)
_BEYOND_ASCII = 0x80


def cleaned_reference(reference: str) -> str:
    """Remove blanks and control characters around a reference, and tabs and line ends in it."""
    return _LINE_ENDS.sub("", reference.strip(BLANKS))


def resolve(base: str, reference: str, charset: str = UTF_8) -> str:
    """Return the absolute URL of a reference; that of another scheme is returned as it is.

    ``base`` is an absolute URL. Blanks and characters beyond ASCII are escaped, except in hosts; those of the query in
    ``charset``, which is that of the document.
    """
    target = cleaned_reference(reference)
    found = _HTTP.match(target)
    if not found and _SCHEME.match(target):
        return target
    before, separator, after = re.split(r"([?#]|\Z)", target, maxsplit=1)
    target = before.replace("\\", "/") + separator + after
    if found and (len(found[2]) > 1 or not base.lower().startswith(found[1].lower())):
        target = f"{found[1]}//{target[found.end() :].lstrip('/')}"
    elif found:  # such as "https:page"
        target = target[len(found[1]) :]
        target = f"./{target}" if _SCHEME.match(target) else target
    parts = _RESOLVED.match(_joined(base, target))
    if not parts:
        return target
    origin, path, rest = parts.groups()
    if "%2" in path:
        path = _DOTS.sub(lambda dots: dots[0].lower().replace("%2e", "."), path)
    query, separator, fragment = rest.partition("#")
    query = _TO_ESCAPE.sub(lambda found: _escape(encode(found[0], charset)), query)
    path, fragment = (_TO_ESCAPE.sub(_in_utf_8, part) for part in (without_dots(path), fragment))
    return f"{origin}{path}{query}{separator}{fragment}"


def _joined(base: str, target: str) -> str:
    """Join as in RFC 3986; ``urljoin`` drops ``?`` and ``;`` at the end, and empty segments."""
    parts = _BASE.match(base)
    if _SCHEME.match(target) or not parts:
        return target
    origin, scheme, path, query = parts.groups()
    if target.startswith("//"):
        return f"{scheme}//{target.lstrip('/')}"
    if target.startswith("/"):
        return f"{origin}{target}"
    if target.startswith("?"):
        return f"{origin}{path}{target}"
    if not target or target.startswith("#"):
        return f"{origin}{path}{query}{target}"
    return f"{origin}{path.rpartition('/')[0]}/{target}"


def _in_utf_8(found: re.Match[str]) -> str:
    return _escape(found[0].encode(errors="replace"))


def _escape(data: bytes) -> str:
    return _ENCODED_TO_ESCAPE.sub(lambda found: b"%%%02X" % ord(found[0]), data).decode()


def redirect_target(url: str, location: str) -> str:
    """Return the URL that a redirect leads to, without user and password.

    The header ``location`` may be relative, and contain spaces and other characters not allowed in URLs.

    Raises:
        QueryError: if the target is not a valid HTTP URL.
    """
    target = cleaned_reference(location)
    if _NETWORK.match(target) and not _NETWORK_WITH_HOST.match(target):
        raise QueryError("it has no host")
    found = _HTTP_WITH_HOST.match(resolve(without_surplus_slashes(url), target))
    if not found:
        raise QueryError("it is not an HTTP URL")
    resolved = "".join(found.groups())
    exact_keys(f"{resolved}#")  # a blank at the end of the host is not removed
    return resolved


def location_of(record: Record) -> str:
    """Return the header ``Location`` of a record, with escapes for bytes that are not UTF-8."""
    location = record.http_header("location") or ""
    raw = location.encode("latin-1", errors="replace")
    if location.isascii() or raw not in record.http_head:
        return location
    return "".join(chr(byte) if byte < _BEYOND_ASCII else f"%{byte:02X}" for byte in raw)
