"""The target of a redirect, from the header ``Location``, as browsers read it (https://url.spec.whatwg.org/)."""

import re

from catalogue.errors import QueryError
from catalogue.records.record import Record
from catalogue.surt import BLANKS, exact_keys, without_dots, without_surplus_slashes

_LINE_ENDS = re.compile(r"[\t\n\r]+")
_HTTP = re.compile(r"https?:", re.IGNORECASE)
_NETWORK = re.compile(r"(?:https?:|//)", re.IGNORECASE)
_NETWORK_WITH_HOST = re.compile(r"(?:https?:)?//[^/?#]", re.IGNORECASE)
_HTTP_WITH_HOST = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#]+)([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_BASE = re.compile(r"((https?:)//[^/?#]+)([^?#]*)([^#]*)", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BEYOND_ASCII = 0x80
_TO_ESCAPE = re.compile(r"[^!-~]")


def redirect_target(url: str, location: str) -> str:
    """Return the URL that a redirect leads to, without user and password.

    The header ``location`` may be relative, and contain spaces and other characters not allowed in URLs.

    Raises:
        QueryError: if the target is not a valid HTTP URL.
    """
    target = cleaned_location(location)
    if _HTTP.match(target) or not _SCHEME.match(target):
        before, separator, rest = re.split(r"([?#]|$)", target, maxsplit=1)
        target = before.replace("\\", "/") + separator + rest
    if _NETWORK.match(target) and not _NETWORK_WITH_HOST.match(target):
        raise QueryError("it has no host")
    found = _HTTP_WITH_HOST.match(_resolved(without_surplus_slashes(url), target))
    if not found:
        raise QueryError("it is not an HTTP URL")
    scheme, host, path, rest = found.groups()
    resolved = scheme + host + _TO_ESCAPE.sub(_escape, without_dots(path) + rest)
    exact_keys(f"{resolved}#")  # a blank at the end of the host is not removed
    return resolved


def _resolved(url: str, target: str) -> str:
    """Resolve as in RFC 3986; ``urljoin`` drops ``?`` and ``;`` at the end, and empty segments."""
    base = _BASE.match(url)
    if _SCHEME.match(target) or not base:
        return target
    origin, scheme, path, query = base.groups()
    if target.startswith("//"):
        return f"{scheme}{target}"
    if target.startswith("/"):
        return f"{origin}{target}"
    if target.startswith("?"):
        return f"{origin}{path}{target}"
    if not target or target.startswith("#"):
        return f"{origin}{path}{query}{target}"
    return f"{origin}{path.rpartition('/')[0]}/{target}"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def location_of(record: Record) -> str:
    """Return the header ``Location`` of a record, with escapes for bytes that are not UTF-8."""
    location = record.http_header("location") or ""
    raw = location.encode("latin-1", errors="replace")
    if location.isascii() or raw not in record.http_head:
        return location
    return "".join(chr(byte) if byte < _BEYOND_ASCII else f"%{byte:02X}" for byte in raw)


def cleaned_location(location: str) -> str:
    """Remove blanks and control characters around a value, and tabs and line ends in it."""
    return _LINE_ENDS.sub("", location.strip(BLANKS))
