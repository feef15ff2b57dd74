"""What the keys of a dataset are, and patterns of keys that are not URLs.

====================== ========================================================================================
host names             ``example.com`` that host, ``*.example.com`` it and its subdomains, ``*.is`` a top-level
                       domain; or as stored, ``com,example`` and ``com,example*``
text                   ``text`` itself, ``text*`` a prefix
both                   ``*`` everything
====================== ========================================================================================
"""

import enum
from collections.abc import Iterable

from catalogue.errors import QueryError
from catalogue.surt.interval import EVERYTHING, KeyInterval, exact_interval, merge, prefix_interval
from catalogue.surt.key import KNOWN_SCHEME, NEWEST, canonical_host, reversed_host, strip_www
from catalogue.surt.pattern import Match, Pattern, parse_pattern


class Keys(enum.Enum):
    """What the key column of a dataset contains."""

    URL = "url"
    """Keys of URLs, ``com,example)/page``."""
    HOST = "host"
    """Reversed host names, ``com,example``."""
    TEXT = "text"
    """Any text."""

    def spelt(self, key: str) -> str:
        """Return a key in its usual spelling: ``example.com/page`` for ``com,example)/page``."""
        host, bracket, rest = key.partition(")")
        if self is Keys.TEXT or (self is Keys.URL and not bracket):  # such as that of a mailto:
            return key
        host, colon, port = host.partition(":")
        return ".".join(reversed(host.strip(",").split(","))) + colon + port + rest


def parse_key_pattern(text: str, keys: Keys, match: Match | None = None) -> Pattern:
    """Parse a pattern of such keys; see ``parse_pattern`` for URLs.

    Raises:
        QueryError: if it is invalid.
    """
    if keys is Keys.URL:
        return parse_pattern(text, match)
    typed = text.strip()
    if any("\ud800" <= character <= "\udfff" for character in typed):
        raise QueryError(f"{typed[:200]!r} is not valid text")
    if not typed:
        raise QueryError(f"invalid pattern {typed!r}; use {_LIKE[keys]}")
    if typed == "*" and match is not Match.EXACT:
        return Pattern(typed, Match.PREFIX, (EVERYTHING,))
    if keys is Keys.HOST and "," not in typed and match is not Match.PREFIX:
        return _host(typed, match)
    if match in {Match.HOST, Match.DOMAIN}:
        raise QueryError(
            f"--match {match.value} is for names of hosts; {typed[:200]!r} is to be matched as exact or prefix"
        )
    if match is not Match.EXACT and (match is Match.PREFIX or typed.endswith("*")):
        return Pattern(typed, Match.PREFIX, (prefix_interval(typed.removesuffix("*").encode()),))
    return Pattern(typed, Match.EXACT, (exact_interval(typed.encode()),))


def parse_key_patterns(
    texts: Iterable[str], keys: Keys, match: Match | None = None, *, exact_url: bool = False
) -> list[Pattern]:
    """Parse patterns.

    Raises:
        QueryError: if one is invalid, or, with ``exact_url``, is not a URL.
    """
    patterns = [parse_key_pattern(text, keys, match) for text in texts]
    for pattern in patterns if exact_url else ():
        if pattern.url is None:
            raise QueryError(
                f"{pattern.text!r} is not a complete URL; with --exact-url use one such as https://example.com/page"
            )
    return patterns


_LIKE = {Keys.HOST: "example.com or *.example.com", Keys.TEXT: "text or text*"}


def _host(typed: str, match: Match | None) -> Pattern:
    scheme = KNOWN_SCHEME.match(typed)
    rest = (typed[scheme.end() :] if scheme else typed).removesuffix("/")
    if match is None:
        match = Match.DOMAIN if rest.startswith("*.") else Match.HOST
    name = rest.removeprefix("*.") if match is Match.DOMAIN else rest
    host = canonical_host(name, NEWEST)
    if not host or not {*host}.isdisjoint("*/?#: "):
        raise QueryError(f"invalid host {typed[:200]!r}; use {_LIKE[Keys.HOST]}")
    # Some tables keep www. and some do not.
    names = {reversed_host(each) for each in (host, strip_www(host))}
    intervals: list[KeyInterval] = [exact_interval(each.encode()) for each in names]
    if match is Match.DOMAIN:
        bare = strip_www(host)
        intervals.append(prefix_interval(f"{reversed_host(bare if '.' in bare else host)},".encode()))
    return Pattern(typed, match, merge(intervals))
