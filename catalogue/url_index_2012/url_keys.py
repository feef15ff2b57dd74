"""URLs in the spelling of the index, and patterns of them.

``https://www.example.com/a?b`` is ``com.example.www/a?b:https``: the host reversed, the scheme at the end. Nothing else
is normalized, so ``www.``, letter case and a trailing slash count.

====================== ========================================================================================
``example.com/page``   that URL, by http or https; ``https://example.com/page`` by https alone
``example.com/blog/*`` URLs with that prefix
``example.com/*``      the host, on the port that is written
``*.example.com``      the host and every subdomain, on every port; ``*.example.com/*`` is the same
``*.is``               a top-level domain
``*``                  everything
====================== ========================================================================================
"""

import re
from dataclasses import dataclass

from catalogue.errors import QueryError
from catalogue.surt import EVERYTHING, NEWEST, KeyInterval, canonical_host, prefix_interval

_TYPED = re.compile(r"(?:(https?)://)?(\*\.)?([^/?]*)(.*)", re.DOTALL | re.IGNORECASE)
_AUTHORITY = re.compile(r"([a-z0-9_.-]+)(:[0-9]{1,5})?")
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_HOST = re.compile("[^/?:]*")


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """A pattern, and the URLs of the index that it matches."""

    text: str
    """Without surrounding blanks."""
    interval: KeyInterval
    """An interval with all matches."""
    form: re.Pattern[bytes]
    """A regular expression; the interval may have other keys."""

    def matches(self, key: bytes) -> bool:
        return key in self.interval and self.form.fullmatch(key) is not None


def parse_key_prefix(text: str) -> KeyPattern:
    typed = text.strip()
    if typed == "*":
        return KeyPattern(typed, EVERYTHING, re.compile(b".*", re.DOTALL))
    scheme, below, authority, rest = _TYPED.fullmatch(typed).groups()  # type: ignore[union-attr]  # matches anything
    ended = rest.endswith("*")
    rest = rest.removesuffix("*")
    if _NOT_IN_KEYS.search(typed) or "*" in rest:
        raise _refused(typed, "has a * in it that is not its last character, or a character that is in no URL")
    if "#" in typed:
        raise _refused(typed, "has a # in it, and URLs were archived without what follows that")
    base, port = _turned(typed, authority)
    ending = b":" + scheme.lower().encode() if scheme else b":https?"
    if below:
        if port or rest not in {"", "/"}:
            raise _refused(typed, "asks for subdomains and for a port or path at once")
        # Among the bytes from . to ? are 0 to 9, of hosts such as com.example2, which the form leaves out.
        found = KeyInterval(base + b".", base + b"@")
        return KeyPattern(typed, found, _form(base, b"[./:?].*", ending if scheme else b""))
    start = base + port + (b"" if rest.startswith("/") else b"/") + rest.encode()
    if ended:
        if scheme:
            return KeyPattern(typed, prefix_interval(start), _form(start, b".*", ending))
        # The scheme at the end of a key is no part of what was typed; some keys have none.
        either = rb"%b.*:https?|(?!.*:https?\Z)%b.*" % (2 * (re.escape(start),))
        return KeyPattern(typed, prefix_interval(start), re.compile(either, re.DOTALL))
    return KeyPattern(typed, prefix_interval(start + b":http"), _form(start, b"", ending))


def url_of(key: bytes) -> str:
    """Return the usual spelling of a URL, as in the header of its record; ``http`` if it has no scheme."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = key.decode("iso-8859-1")  # as warcio reads the header
    rest, _, scheme = text.rpartition(":")
    if scheme not in {"http", "https"}:
        rest, scheme = text, "http"
    host = _HOST.match(rest)[0]  # type: ignore[index]  # matches anything
    return f"{scheme}://{'.'.join(reversed(host.split('.')))}{rest[len(host) :]}"


def _form(start: bytes, middle: bytes, ending: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(start) + middle + ending, re.DOTALL)


def _turned(typed: str, authority: str) -> tuple[bytes, bytes]:
    """Return host and port in the spelling of the index."""
    name, colon, port = authority.partition(":")
    found = _AUTHORITY.fullmatch(canonical_host(name, NEWEST) + colon + port)
    if not found:
        raise _refused(typed, f"has {authority[:100]!r} where a host should be")
    return ".".join(reversed(found[1].split("."))).encode(), (found[2] or "").encode()


def _refused(typed: str, why: str) -> QueryError:
    message = f"{typed[:200]!r} {why}; patterns look like example.com/page, example.com/* or *.example.com"
    return QueryError(message)
