"""URL to ``url_surtkey``, as Common Crawl's crawler makes it.

The crawler (commoncrawl/nutch, ``WarcCdxWriter``) uses ``WaybackURLKeyMaker`` of iipc/webarchive-commons. Its rules
were compared with release 2.0.1. In order:

- scheme: ``http`` if missing; it decides the default port, and is not part of the key;
- user, password and fragment are dropped, and so is the default port;
- host: unescaped, IDNA 2003, surplus dots dropped, all spellings of an IPv4 address made one, every leading ``www.``,
  ``www1.`` and so on dropped, labels reversed; IPv6 addresses lose their brackets;
- path: unescaped repeatedly, ``.``, ``..`` and ``//`` resolved, escaped once, a trailing slash dropped; session ids of
  ASP.NET dropped;
- query: unescaped and escaped like the path, session ids dropped, arguments sorted by name and value;
- all in lower case.

Keys of older crawls were made by older releases, see ``ERAS``.
"""

import re
import stringprep
from dataclasses import dataclass, replace
from encodings import idna

from catalogue.errors import QueryError

KNOWN_SCHEME = re.compile(r"(?:https?|ftp|mms|rtsp|wais)://", re.ASCII | re.IGNORECASE)
"""Schemes of URLs; any other text starts with a host."""

_OPAQUE = ("dns:", "filedesc:", "warcinfo:")
BLANKS = "".join(map(chr, range(0x21)))
_STRAY = re.compile(r"[\t\n\r\x85\u2028\u2029]+")
_SURPLUS_SLASHES = re.compile(r"(?<=^http://)/+|(?<=^https://)/+")
_TYPED_SLASHES = re.compile(r"\A(https?://)/+", re.ASCII | re.IGNORECASE)
_PORT = re.compile(r"[+-]?[0-9]{1,20}")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_BYTE = (1 << 8) - 1
_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1

_PLAIN = {high + low: chr(int(high + low, 16)) for high in "01234567" for low in "0123456789abcdefABCDEF"}
_HIGH_BYTES = re.compile(r"(?:%[89A-Fa-f][0-9A-Fa-f])+")
_UNDECODED = re.compile(r"[\udc80-\udcff]")
_UNSAFE = re.compile(r"[^!-\x7f]|#|%(?![0-9A-Fa-f]{2})")
_UNSAFE_BEFORE_1_3 = re.compile(r"[^!-\x7f]|#|%")

_LABEL_ENDS = re.compile(r"[.\u3002\uff0e\uff61]")
_DOTS = re.compile(r"\.{2,}")
_WWW, _FIRST_WWW = re.compile(r"(?:www[0-9]*\.)+"), re.compile(r"www[0-9]*\.")
_SEVERAL_WWW = re.compile(r"(?:www[0-9]*\.){2}", re.ASCII | re.IGNORECASE)
_PLAIN_HOST = re.compile(r"(?:[a-z0-9_-]+\.)+[a-z][a-z0-9_-]*", re.ASCII | re.IGNORECASE)
_WHOLE_IPV4 = re.compile(r"0*([0-9]{1,19})")
_OCTAL_IPV4 = re.compile(r"0[0-7]*(?:\.[0-7]+){3}")
_DECIMAL_IPV4 = re.compile(r"[1-9][0-9]{0,2}(?:\.0*[0-9]{1,3}){3}")

_PATH_SESSIONS = tuple(
    re.compile(rf"(.*/)\({token}\)/([^?]+\.aspx.*)") for token in (r"(?:[a-z]\([0-9a-z]{24}\))+", "[0-9a-z]{24}")
)
_FIRST_SESSION = re.compile(r"[a-z]*id[a-z]*=", re.ASCII | re.IGNORECASE)
"""Session ids at the beginning of a query; other arguments may match too."""
_QUERY_SESSIONS = tuple(
    (marker, re.compile(rf"(.*){argument}(?:&(.*))?"))
    for marker, argument in (
        ("jsessionid=", "jsessionid=[0-9a-z]{32}"),
        ("phpsessid=", "phpsessid=[0-9a-z]{32}"),
        ("sid=", "sid=[0-9a-z]{32}"),
        ("aspsessionid", "aspsessionid[a-z]{8}=[a-z]{24}"),
        ("cftoken=", "cfid=[^&]+&cftoken=[^&]+"),
    )
)

_PLAIN_URL = re.compile(
    r"(?:https?://)?((?:[a-z0-9_-]+\.)+[a-z][a-z0-9_-]*)(/[!\"$&->@-~]*)?(?:\?([!\"$&-~]*))?", re.ASCII | re.IGNORECASE
)
"""A URL on the default port with a host name in ASCII, without escapes and fragment."""


@dataclass(frozen=True, slots=True)
class Era:
    """How a release of webarchive-commons differs from the newest one."""

    escapes_percent: bool = False
    """Whether the percent sign of an escape that is not UTF-8 is escaped (``%E9``, ``%25e9``), until 1.2.0."""
    keeps_first_session: bool = False
    """Whether a session id that is the first argument is kept, until 1.1.6."""
    keeps_second_www: bool = False
    """Whether only the first of several ``www.`` is dropped, by the surt library of Python."""


NEWEST = Era()
_OLDER = Era(escapes_percent=True)
ERAS = (NEWEST, _OLDER, replace(_OLDER, keeps_first_session=True), Era(keeps_second_www=True))
"""Releases 2.0.1, 1.1.9 and 1.1.5: crawls since 2025, since 2021, and before; and Python's surt, perhaps the oldest."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a URL, not normalized."""

    scheme: str
    host: str
    port: int | None
    path: str
    query: str | None


def plain_key(url: str) -> str | None:
    """Return the key of a usual URL, in half the time; None for others. It is the same in all eras."""
    found = _PLAIN_URL.fullmatch(url)
    if found is None:
        return None
    host: str = found[1].lower()
    path: str = (found[2] or "").lower()
    query: str = (found[3] or "").lower()
    if "//" in path or "/." in path or ".aspx" in path:
        return None
    if query and ("sid=" in query or "sessionid" in query or "cftoken=" in query):
        return None
    if host.startswith("www"):
        if _SEVERAL_WWW.match(host):
            return None
        host = strip_www(host)
    key = f"{reversed_host(host)}){path.removesuffix('/') or '/'}"
    if "&" in query:
        query = "&".join(sorted(query.split("&"), key=argument_order))
    return f"{key}?{query}" if query else key


def newest_key(url: str) -> str:
    """Return the first of ``url_surtkeys``, without making the others."""
    if (plain := plain_key(url)) is not None:
        return plain
    return _opaque_key(url) if url.startswith(_OPAQUE) else _key(split(url), NEWEST)


def url_surtkeys(url: str) -> tuple[str, ...]:
    """Return all keys under which the index may store a URL, depending on the age of the crawl; the newest first.

    There are several only if the URL has an escape that is not UTF-8 (``%E9``), starts its query with a session id, or
    its host starts with several ``www.``.
    """
    if (plain := plain_key(url)) is not None:
        return (plain,)
    return (_opaque_key(url),) if url.startswith(_OPAQUE) else keys_of(split(url))


def keys_of(parts: Parts) -> tuple[str, ...]:
    query = parts.query or ""
    if "%" in f"{parts.host}{parts.path}{query}" or _FIRST_SESSION.match(query) or _SEVERAL_WWW.match(parts.host):
        return tuple(dict.fromkeys(_key(parts, era) for era in ERAS))
    return (_key(parts, NEWEST),)


def _key(parts: Parts, era: Era) -> str:
    key = f"{host_key(parts, era)}{path_key(parts.path, era)}"
    query = query_key(parts.query, era) if parts.query else ""
    return f"{key}?{query}" if query else key


def _opaque_key(url: str) -> str:
    """Return the key of other records: the URL itself, except for DNS look-ups."""
    _check_unicode(url)
    return f"{','.join(reversed(url.removeprefix('dns:').split('.')))})" if url.startswith("dns:") else url


def split(url: str) -> Parts:
    text = _STRAY.sub("", url.strip(BLANKS))
    if not text.isascii():
        _check_unicode(text)
    if not KNOWN_SCHEME.match(text):
        text = f"http://{text}"
    scheme, _, text = _SURPLUS_SLASHES.sub("", text).partition("://")
    text, has_query, query = text.partition("#")[0].partition("?")
    authority, slash, path = text.partition("/")
    _, has_user, host = authority.partition("@")
    if not has_user:
        host = authority
    # As in Java, the colon of the port may follow a bracket only without a user.
    bracket = host.find("]") if host.startswith("[") and not has_user else 0
    colon = host.find(":", max(bracket, 0))
    port = None
    if colon >= 0:
        host, port = host[:colon], _port(url, host[colon + 1 :])
    if not host:
        raise no_key(url, "it has no host")
    return Parts(scheme.lower(), host, port, slash + path, query if has_query else None)


def without_surplus_slashes(url: str) -> str:
    """Remove slashes that some URLs of the index have between ``https://`` and the host."""
    return _TYPED_SLASHES.sub(r"\1", url)


def no_key(url: str, why: str) -> QueryError:
    return QueryError(f"{url[:200]!r} has no key, because {why}; a URL looks like https://example.com/page")


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise no_key(text, "it is not Unicode text; write other bytes as escapes, such as %E9") from error


def _port(url: str, digits: str) -> int | None:
    if not digits:
        return None
    port = int(digits) if _PORT.fullmatch(digits) else _MAX_INT + 1
    if not -_MAX_INT - 1 <= port <= _MAX_INT:
        raise no_key(url, f"the port {digits[:50]!r} is not a number")
    return None if port == -1 else port  # -1 is how Java says that there is none


def host_key(parts: Parts, era: Era) -> str:
    host = canonical_host(parts.host, era)
    if not host:
        raise no_key(parts.host, "it has no host")
    return f"{reversed_host(strip_www(host, era))}{port_key(parts)})"


def port_key(parts: Parts) -> str:
    """Return the port of a key: nothing if it is the scheme's default."""
    if parts.port is None or parts.port == _DEFAULT_PORTS.get(parts.scheme, 0):
        return ""
    return f":{parts.port}"


def canonical_host(host: str, era: Era) -> str:
    """Return the normalized host in the usual order of labels, with its ``www.``."""
    if _PLAIN_HOST.fullmatch(host):
        return host.lower()
    host = _unescaped(host)
    if not host.isascii():
        host = _to_ascii(host)
    if "." in host:
        host = _DOTS.sub(".", host.lstrip(".")).removesuffix(".")
    address = _ipv4(host) if host[-1:].isdecimal() else None
    return address or _escaped(host.lower(), era).lower()


def strip_www(host: str, era: Era = NEWEST) -> str:
    """Remove all leading ``www.``, ``www1.`` and so on, even if only a top-level domain remains."""
    found = (_FIRST_WWW if era.keeps_second_www else _WWW).match(host)
    return host[found.end() :] if found else host


def reversed_host(host: str) -> str:
    """Return the labels of a host in reverse order, or an IPv6 address without brackets."""
    if "." not in host and host.startswith("[") and host.endswith("]"):
        return host[1:-1]
    return ",".join(reversed(host.split(".")))


def _to_ascii(host: str) -> str:
    """Encode a host like ``java.net.IDN.toASCII``; return it unchanged if a label cannot be encoded."""
    labels = _LABEL_ENDS.split(host)
    if labels[-1] == "":
        labels.pop()
        if labels == [""]:
            return ""
    try:
        return ".".join(map(_label_to_ascii, labels))
    except UnicodeError:
        return host


def _label_to_ascii(label: str) -> str:
    # Unlike Java, Python accepts what Unicode 3.2 had not assigned yet, such as emoji. (Java also keeps capitals that
    # got a small letter later, Georgian and Cherokee ones; here they become small.)
    if any(map(stringprep.in_table_a1, label)):
        raise UnicodeError("a code point that Unicode 3.2 does not know")
    return idna.ToASCII(label).decode("ascii")


def _ipv4(host: str) -> str | None:
    """Return the usual spelling of an IPv4 address given as one number, octal or decimal."""
    if whole := _WHOLE_IPV4.fullmatch(host):
        number = int(whole[1])
        return ".".join(map(str, (number & 0xFFFFFFFF).to_bytes(4, "big"))) if number <= _MAX_LONG else None
    if _OCTAL_IPV4.fullmatch(host):
        octets = [int(octet, 8) for octet in host.split(".")]
    elif _DECIMAL_IPV4.fullmatch(host):
        octets = [int(octet) for octet in host.split(".")]
    else:
        return None
    return ".".join(map(str, octets)) if max(octets) <= _MAX_BYTE else None


def path_key(path: str, era: Era, *, more_follows: bool = False) -> str:
    """Return the path of a key. If ``more_follows``, its last segment is kept, even ``..`` or an empty one."""
    path = _unescaped(path)
    if "//" in path or "/." in path:
        path = _resolved(path, more_follows=more_follows)
    path = _escaped(path, era).lower()
    if ".aspx" in path:
        for session in _PATH_SESSIONS:
            if found := session.fullmatch(path):
                path = found[1] + found[2]
    if not more_follows:
        path = path.removesuffix("/")
    return path or "/"


def _resolved(path: str, *, more_follows: bool) -> str:
    _, *segments = path.split("/")
    last = [segments.pop()] if more_follows else []
    resolved: list[str] = []
    for segment in segments:
        if segment == ".." and resolved:
            resolved.pop()
        elif segment != ".":
            resolved.append(segment)
    *before, final = [*resolved, *last] or [""]
    return "/".join(["", *filter(None, before), final])


def query_key(query: str, era: Era) -> str:
    text = without_sessions(lower_query(query, era), era)
    return "&".join(sorted(text.split("&"), key=argument_order)) if "&" in text else text


def lower_query(query: str, era: Era) -> str:
    return _escaped(_unescaped(query), era).lower()


def argument_order(argument: str) -> tuple[str, str, str]:
    """Return a sort key: by name, those without a value first, then by value."""
    return argument.partition("=")


def without_sessions(query: str, era: Era) -> str:
    """Remove session ids; an ampersand before the last one stays."""
    if "=" not in query:
        return query
    whole = query
    for marker, session in _QUERY_SESSIONS:
        found = session.fullmatch(query) if marker in whole else None
        if found and (found[1] or not era.keeps_first_session):
            query = found[1] + (found[2] or "")
    return query


def _unescaped(text: str) -> str:
    """Decode percent escapes repeatedly, until only those that are not UTF-8 are left."""
    if "%" not in text:
        return text
    start, *pieces = text.split("%")
    done = ""
    # From the end, so that what follows a percent sign is already decoded.
    for piece in reversed(pieces):
        done = piece + done
        while (char := _PLAIN.get(done[:2])) == "%":
            done = done[2:]
        done = char + done[2:] if char else "%" + done
    return start + _HIGH_BYTES.sub(_decoded, done)


def _decoded(escapes: re.Match[str]) -> str:
    text = bytes.fromhex(escapes[0].replace("%", "")).decode("utf-8", "surrogateescape")
    return _UNDECODED.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02x}", text)


def _escaped(text: str, era: Era) -> str:
    """Escape all but printable ASCII, and also ``#`` and any percent sign that starts no escape."""
    unsafe = _UNSAFE_BEFORE_1_3 if era.escapes_percent else _UNSAFE
    return unsafe.sub(lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), text)
