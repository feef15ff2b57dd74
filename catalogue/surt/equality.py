"""Equal URLs: only some of the URLs with one key are spellings of one URL."""

import re
from functools import lru_cache

from catalogue.errors import QueryError
from catalogue.surt.key import NEWEST, canonical_host, port_key, split, without_surplus_slashes

_PLAIN_URL = re.compile(
    r"(?:https?://)?((?:[a-z0-9_-]+\.)+[a-z][a-z0-9_-]*)(/[\w!$&'()*+,.:;=@~/-]*)?(\?[\w!$&'()*+,.:;=@~/?-]*)?",
    re.ASCII | re.IGNORECASE,
)
"""A URL on the default port with a host name in ASCII, without escapes, fragment and other characters."""
_TO_RESPELL = re.compile(r"%[0-9A-Fa-f]{2}|[^\w!$&'()*+,.:;=@~/?-]", re.ASCII)
_NEVER_ESCAPED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!*'()")
"""Unreserved characters of RFC 3986, and marks of RFC 2396, which ``encodeURIComponent`` does not escape."""
_ESCAPE_LENGTH = 3
_CACHED = 256


def same_url(url: str, other: str) -> bool:
    if url == other:
        return True
    try:
        return normal_url(url) == normal_url(other)
    except QueryError:
        return False


def similar_url(url: str, other: str) -> bool:
    """Return whether two URLs differ at most in ``www.`` and in a slash at the end."""
    try:
        return _similar(url) == _similar(other)
    except QueryError:
        return False


def _similar(url: str) -> str:
    return normal_url(url).removeprefix("www.").removesuffix("/")


@lru_cache(_CACHED)
def normal_url(url: str) -> str:
    """Return the text that all spellings of a URL have in common.

    Spellings differ in the scheme (``http``, ``https`` or none), the case, encoding and trailing dot of the host, the
    default port, dot segments, percent-encoding, user and fragment. Unlike for keys, ``www.``, trailing slashes and the
    order of arguments count.

    Raises:
        QueryError: if the URL has no host, or a port that is not a number.
    """
    found = _PLAIN_URL.fullmatch(url)
    if found and "/." not in (found[2] or ""):
        return f"{found[1].lower()}{found[2] or '/'}{found[3] or ''}"
    parts = split(without_surplus_slashes(url))
    scheme = "" if parts.scheme in {"http", "https"} else f"{parts.scheme}://"
    path = without_dots(_respelled(parts.path)) or "/"
    query = "" if parts.query is None else f"?{_respelled(parts.query)}"
    return f"{scheme}{canonical_host(parts.host, NEWEST)}{port_key(parts)}{path}{query}"


def _respelled(text: str) -> str:
    return _TO_RESPELL.sub(_respelling, text)


def _respelling(found: re.Match[str]) -> str:
    text = found[0]
    if len(text) == _ESCAPE_LENGTH:
        char = chr(int(text[1:], 16))
        return char if char in _NEVER_ESCAPED else text.upper()
    return "".join(f"%{byte:02X}" for byte in text.encode())


def without_dots(path: str) -> str:
    """Resolve the segments ``.`` and ``..``, as in RFC 3986."""
    if "/." not in path:
        return path
    kept: list[str] = []
    _, *segments = path.split("/")
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/".join(["", *kept])
