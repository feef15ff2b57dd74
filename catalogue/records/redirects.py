"""The target of a redirect, from the header ``Location``."""

import re

from catalogue.errors import QueryError
from catalogue.records.record import Record
from catalogue.records.references import cleaned_reference, resolve
from catalogue.surt import exact_keys, without_surplus_slashes

_NETWORK = re.compile(r"(?:https?:|[/\\]{2})", re.IGNORECASE)
_NETWORK_WITH_HOST = re.compile(r"(?:https?:)?[/\\]{2}[^/\\?#]", re.IGNORECASE)
_HTTP_WITH_HOST = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#]+.*)", re.IGNORECASE | re.DOTALL)
_BEYOND_ASCII = 0x80


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
