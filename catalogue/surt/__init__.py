"""URLs to ``url_surtkey``, and patterns to intervals of keys."""

from catalogue.errors import QueryError
from catalogue.surt.equality import normal_url, same_url, similar_url, without_dots
from catalogue.surt.interval import (
    END,
    EVERYTHING,
    KeyInterval,
    covers,
    exact_interval,
    intersect,
    merge,
    prefix_interval,
    shared_prefix,
    text_after,
    text_from,
)
from catalogue.surt.key import BLANKS, NEWEST, canonical_host, newest_key, url_surtkeys, without_surplus_slashes
from catalogue.surt.macros import MACROS, Macro
from catalogue.surt.pattern import (
    Keys,
    Match,
    Pattern,
    exact_keys,
    parse_key_pattern,
    parse_key_patterns,
    parse_pattern,
)

__all__ = [
    "BLANKS",
    "END",
    "EVERYTHING",
    "MACROS",
    "NEWEST",
    "KeyInterval",
    "Keys",
    "Macro",
    "Match",
    "Pattern",
    "canonical_host",
    "covers",
    "exact_interval",
    "exact_keys",
    "intersect",
    "merge",
    "normal_url",
    "parse_key_pattern",
    "parse_key_patterns",
    "parse_pattern",
    "prefix_interval",
    "same_url",
    "shared_prefix",
    "similar_url",
    "text_after",
    "text_from",
    "url_surtkey",
    "url_surtkeys",
    "without_dots",
    "without_surplus_slashes",
]


def url_surtkey(url: str) -> str:
    """Return the key under which the index stores a URL; without a scheme, ``http`` is assumed.

    Raises:
        QueryError: if it is not text, has no host, or has a port that is not a number.
    """
    if not isinstance(url, str):  # checked outside of compiled modules, which raise TypeError
        raise QueryError(f"invalid URL of type {type(url).__name__}; use one text, such as https://example.com/page")
    return newest_key(url)
