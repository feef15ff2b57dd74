"""Patterns of URLs, and the keys that they match.

====================== ========================================================================================
``example.com/page``   that page, whatever its scheme, ``www.``, case or trailing slash
``example.com``        the home page alone
``example.com/dir/*``  pages below ``/dir/``, on the default port; not ``/dir/`` itself, whose key has lost its slash:
                       that is ``example.com/dir``
``example.com/di*``    every path with that prefix: ``/di``, ``/dir``, ``/direct/page``
``example.com/page?*`` that page with any query
``*.example.com``      the host and every subdomain, on every port; ``*.example.com/*`` is the same
``*.is``               a top-level domain
``*``                  everything
====================== ========================================================================================

An asterisk elsewhere is an error, because its meaning would be a guess; ``%2A`` is the character itself. With an
explicit ``Match``, an asterisk that does not repeat it is the character itself. Complete URLs may contain what some
URLs of the index contain: more than two slashes before the host, and spaces and control characters after it.

Patterns of other keys (see ``Keys``):

====================== ========================================================================================
host names             ``example.com`` that host, ``*.example.com`` it and its subdomains, ``*.is`` a top-level
                       domain; or as stored, ``com,example`` and ``com,example*``
text                   ``text`` itself, ``text*`` a prefix, with spaces as they are; the empty key, too
both                   ``*`` everything
====================== ========================================================================================
"""

import enum
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from catalogue.errors import QueryError
from catalogue.surt.interval import EVERYTHING, KeyInterval, exact_interval, merge, prefix_interval
from catalogue.surt.key import (
    BLANKS,
    ERAS,
    KNOWN_SCHEME,
    NEWEST,
    Era,
    Parts,
    argument_order,
    canonical_host,
    host_key,
    keys_of,
    lower_query,
    path_key,
    plain_key,
    port_key,
    reversed_host,
    split,
    strip_www,
    url_surtkeys,
    without_sessions,
    without_surplus_slashes,
)

_NOT_A_PORT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9]+(?:[/?#*]|$))")
"""A scheme and its colon, such as ``mailto:``: no port follows."""
_NOT_IN_URLS = re.compile(r"[\s\x00-\x1f\x7f]")
"""Only complete URLs may contain these after the host."""
_HOST_END = re.compile(r"[/?#]|$")
_SECOND_URL = re.compile(r"\s[a-z]+://", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_.~!$&'+,;=-]|%[89a-f][0-9a-f])+|\[[0-9a-f:.]+\]")
_HOST_IN_URL = re.compile(r"(?:[A-Za-z0-9_.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])+|\[[0-9A-Fa-f:.]+\]")
"""The ``host`` of RFC 3986, and its international form."""
_NUMBERS = re.compile(r"(?:\d+\.)+\*")
_PORTS = range(1 << 16)
_NO_TLD, _LIST_THEM = ": a wildcard cannot replace the top-level domain", "; list them: "
_LONGEST_PROPOSED = 300
"""Characters; a host name has at most 253 (RFC 1035)."""
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_CUT_ESCAPE = re.compile(r"%[0-9A-Fa-f]?\Z")


class Match(enum.Enum):
    """What a pattern matches."""

    EXACT = "exact"
    PREFIX = "prefix"
    """Keys with the URL's prefix; a trailing ``/`` or ``?`` counts.

    Keys sort the arguments of a query, so ``page?b=1*`` does not match the page with ``a=0&b=1``.
    """
    HOST = "host"
    """One host, on every port or on the written one; the path is ignored."""
    DOMAIN = "domain"
    """One host and its subdomains, on every port; the path is ignored.

    ``www.example.com`` means ``example.com``, but ``www.com`` does not mean all of ``com``.
    """


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern and the keys that it matches."""

    text: str
    match: Match
    intervals: tuple[KeyInterval, ...]
    """Disjoint and ascending, at least one; other URLs may have the same keys."""
    url: str | None = None
    """The URL to match in no other spelling; None unless the pattern is exact and has a scheme."""


def parse_pattern(pattern: str, match: Match | None = None) -> Pattern:
    """Parse a pattern in one of the forms above, or by ``match`` whatever its form.

    Raises:
        QueryError: if it is invalid or contradicts ``match``; the message shows a valid one.
    """
    typed = text = pattern.strip()
    if KNOWN_SCHEME.match(typed):  # other blanks are part of a key
        typed = pattern.strip(BLANKS)
        text = without_surplus_slashes(typed)
    if typed == "*" and match in {None, Match.DOMAIN, Match.PREFIX}:
        return Pattern(typed, match or Match.DOMAIN, (EVERYTHING,))
    found = KNOWN_SCHEME.match(text)
    scheme = found[0] if found else ""
    rest = text.removeprefix(scheme)
    try:
        _check(scheme, rest, has_surplus_slashes=text != typed)
        match, url = _by_form(scheme, rest) if match is None else (match, _by_match(scheme, rest, match))
        intervals = merge(_INTERVALS[match](url))
    except _Refused as refused:
        reason = str(refused)
        separator = "" if reason.startswith(_NO_TLD) else " "
        if _LIST_THEM not in reason:
            reason += "; patterns look like example.com/page, example.com/* or *.example.com"
        raise QueryError(f"{typed[:200]!r}{separator}{reason}") from None
    exact_url = typed if match is Match.EXACT and scheme else None
    return Pattern(typed, match, intervals, exact_url)


def exact_keys(text: str) -> tuple[str, ...]:
    """Return the keys of one URL, the newest first, like ``parse_pattern`` with ``EXACT`` in less time.

    Raises:
        QueryError: if it is no URL.
    """
    plain = plain_key(text)
    if plain is not None:
        return (plain,)
    found = parse_pattern(text, Match.EXACT).intervals
    return (found[0].start.decode(),) if len(found) == 1 else url_surtkeys(without_surplus_slashes(text))


class _Refused(Exception):
    """Why a pattern is invalid, as the rest of a sentence that starts with the pattern."""


def _check(scheme: str, rest: str, *, has_surplus_slashes: bool) -> None:
    if not (scheme or rest):
        raise _Refused("is not a pattern")
    host = _HOST_END.split(rest, maxsplit=1)[0]
    if _NOT_IN_URLS.search(host if scheme else rest) or _SECOND_URL.search(rest):
        raise _Refused("contains a space; write %20")
    if has_surplus_slashes and "." not in host:  # a path
        raise _Refused("names no host")
    if not scheme and _NOT_A_PORT.match(rest):
        raise _Refused("starts neither with http:// or https:// nor with a host, or a host and a port")
    if rest.startswith("/") and (scheme or not rest.startswith("//")):
        raise _Refused("names no host")


def _by_form(scheme: str, rest: str) -> tuple[Match, str]:
    below = rest.removeprefix("*.")
    if "*" in below[:-1]:
        raise _Refused("has a * that is neither its last character nor the *. before a host; %2A is a plain asterisk")
    if below != rest:
        if rest.endswith(".*") and {*below}.isdisjoint("/?#"):
            raise _Refused(f"{_NO_TLD}{_proposed_domains(f'*.{below[:-1]}', '')}")
        host = below.removesuffix("*").removesuffix("/")
        if below not in {host, f"{host}/", f"{host}/*"} or not {*host}.isdisjoint("/?#"):
            host = re.split("[/?#*]", below, maxsplit=1)[0]
            instead = _proposed("; use ", f"*.{host}", ", and choose by url_path")
            raise _Refused(f"combines subdomains and a path, which keys cannot express{instead}")
        return Match.DOMAIN, scheme + host
    if rest.endswith("*"):
        return Match.PREFIX, scheme + _before_asterisk(rest)
    return Match.EXACT, scheme + rest


def _by_match(scheme: str, rest: str, match: Match) -> str:
    if match is Match.PREFIX and rest.endswith("*"):
        return scheme + _before_asterisk(rest)
    return scheme + (rest.removeprefix("*.") if match is Match.DOMAIN else rest)


def _before_asterisk(rest: str) -> str:
    if {*rest}.isdisjoint("/?"):
        if rest.endswith(".*"):
            if _NUMBERS.fullmatch(rest):
                raise _Refused("has a * within an IP address; list the addresses")
            raise _Refused(f"{_NO_TLD}{_proposed_domains(rest[:-1], '/*')}")
        raise _Refused("has a * within the name of a host")
    return rest[:-1]


def _proposed(before: str, pattern: str, after: str = "") -> str:
    """Return a suggestion; empty if the pattern is longer than a host name or not printable."""
    return f"{before}{pattern}{after}" if len(pattern) <= _LONGEST_PROPOSED and pattern.isprintable() else ""


def _proposed_domains(start: str, end: str) -> str:
    return _proposed(_LIST_THEM, f"'{start}com{end}' '{start}org{end}'")


def _parts(url: str) -> Parts:
    if not url:
        raise _Refused("names no host")
    parts = split(url)
    if KNOWN_SCHEME.match(url):
        is_host = _HOST_IN_URL.fullmatch(parts.host) is not None
    else:
        # "a.com,b.com" is a list, and "com,example" is a key.
        is_list = "," in parts.host and len({"." in part for part in parts.host.split(",")}) == 1
        is_host = not is_list and _HOST.fullmatch(canonical_host(parts.host, NEWEST)) is not None
    if parts.host.startswith(".") or not is_host:
        raise _Refused(f"has {parts.host[:100]!r} where a host should be")
    if parts.port is not None and parts.port not in _PORTS:
        raise _Refused(f"has the port {parts.port}, and {_PORTS[-1]} is the highest")
    return parts


def _eras(url: str) -> tuple[Era, ...]:
    return (*ERAS[:2], ERAS[-1]) if "%" in url or "www" in url.lower() else (NEWEST,)


def _exact(url: str) -> Iterator[KeyInterval]:
    plain = plain_key(url)
    for key in keys_of(_parts(url)) if plain is None else (plain,):
        yield exact_interval(key.encode())


def _prefix(url: str) -> Iterator[KeyInterval]:
    if "#" in url:
        raise _Refused("contains a #, which keys do not have; leave out # and the text after it")
    if _CUT_ESCAPE.search(url):
        raise _Refused("ends within a percent escape")
    parts = _parts(url)
    for era in _eras(url):
        prefix = host_key(parts, era) + path_key(parts.path, era, more_follows=parts.query is None)
        if parts.query is not None:
            prefix += f"?{_query_start(parts.query, era)}"
        yield prefix_interval(prefix.encode())


def _query_start(query: str, era: Era) -> str:
    before, ampersand, last = lower_query(query, era).rpartition("&")
    whole = without_sessions(before + ampersand, era)
    arguments = whole.split("&")[:-1]
    # The last argument may go on: it is in order if it, or something that starts with it, can follow the others.
    follows = not arguments or arguments[-1].startswith(last) or argument_order(arguments[-1]) <= argument_order(last)
    if not follows or arguments != sorted(arguments, key=argument_order):
        raise _Refused("has arguments that are not sorted by name, as those of keys are; sort them, or end it at the ?")
    return whole + last


def _host(url: str, *, subdomains: bool = False) -> Iterator[KeyInterval]:
    parts = _parts(url)
    if subdomains:
        if port_key(parts):
            raise _Refused("combines subdomains and a port, which keys cannot express; leave out the port")
        parts = _parts(parts.host)
    for era in _eras(url):
        key = host_key(parts, era)
        yield prefix_interval(key.encode())
        if parts.port is None:
            # ``::1:8080)`` may be an IPv6 address, or ``::1`` and a port: rather match too much than too little.
            yield prefix_interval(f"{key[:-1]}:".encode())
        if subdomains:
            host = canonical_host(parts.host, era)
            bare = strip_www(host)
            # Three prefixes: one from ``com,example)`` to ``com,example:`` would take in ``com,example-shop)``.
            below = reversed_host(bare if "." in bare else host)
            yield prefix_interval(f"{below},".encode())


_INTERVALS: dict[Match, Callable[[str], Iterator[KeyInterval]]] = {
    Match.EXACT: _exact,
    Match.PREFIX: _prefix,
    Match.HOST: _host,
    Match.DOMAIN: partial(_host, subdomains=True),
}


class Keys(enum.Enum):
    """What the key column of a dataset contains."""

    URL = "url"
    """Keys of URLs, ``com,example)/page``."""
    HOST = "host"
    """Reversed host names, ``com,example``."""
    TEXT = "text"


def parse_key_pattern(text: str, keys: Keys, match: Match | None = None) -> Pattern:
    """Parse a pattern of host names or text; see ``parse_pattern`` for URLs."""
    typed = text if keys is Keys.TEXT else text.strip()
    if _SURROGATES.search(typed):
        raise QueryError(f"{typed[:200]!r} is not valid text")
    if not typed and keys is not Keys.TEXT:
        raise QueryError(f"invalid pattern {typed!r}; use {_LIKE[keys]}")
    if typed == "*" and match is not Match.EXACT:
        return Pattern(typed, Match.PREFIX, (EVERYTHING,))
    if keys is Keys.HOST and "," not in typed and match is not Match.PREFIX:
        return _parse_host(typed, match)
    if match in {Match.HOST, Match.DOMAIN}:
        raise QueryError(f"match='{match.value}' is for names of hosts; use exact or prefix for {typed[:200]!r}")
    if match is not Match.EXACT and (match is Match.PREFIX or typed.endswith("*")):
        return Pattern(typed, Match.PREFIX, (prefix_interval(typed.removesuffix("*").encode()),))
    return Pattern(typed, Match.EXACT, (exact_interval(typed.encode()),))


def parse_key_patterns(
    texts: Iterable[str], keys: Keys, match: Match | None = None, *, exact_url: bool = False
) -> list[Pattern]:
    """Parse patterns; with ``exact_url`` each must be a complete URL."""
    if exact_url and match not in {None, Match.EXACT}:
        raise QueryError(f"exact_url=True matches one URL, and match='{match.value}' others; leave out one of them")
    if keys is Keys.URL:
        patterns = [parse_pattern(text, match) for text in texts]
    else:
        patterns = [parse_key_pattern(text, keys, match) for text in texts]
    for pattern in patterns if exact_url else ():
        if pattern.url is None:
            raise QueryError(
                f"{pattern.text!r} is not a complete URL; with exact_url=True use one such as https://example.com/page"
            )
    return patterns


_LIKE = {Keys.HOST: "example.com or *.example.com", Keys.TEXT: "text or text*"}


def _parse_host(typed: str, match: Match | None) -> Pattern:
    scheme = KNOWN_SCHEME.match(typed)
    rest = (typed[scheme.end() :] if scheme else typed).removesuffix("/")
    if match is None:
        match = Match.DOMAIN if rest.startswith("*.") else Match.HOST
    name = rest.removeprefix("*.") if match is Match.DOMAIN else rest
    host = canonical_host(name, NEWEST)
    if not host or not {*host}.isdisjoint("*/?#: "):
        raise QueryError(f"invalid host {typed[:200]!r}; use {_LIKE[Keys.HOST]}")
    # Some datasets keep www. and some do not.
    names = {reversed_host(each) for each in (host, strip_www(host))}
    intervals = [exact_interval(each.encode()) for each in names]
    if match is Match.DOMAIN:
        bare = strip_www(host)
        intervals.append(prefix_interval(f"{reversed_host(bare if '.' in bare else host)},".encode()))
    return Pattern(typed, match, merge(intervals))
