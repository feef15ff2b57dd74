"""URLs to ``url_surtkey``, and patterns to intervals of keys."""

from catalogue.surt.interval import (
    END,
    EVERYTHING,
    KeyInterval,
    covers,
    exact_interval,
    intersect,
    merge,
    overlap,
    prefix_interval,
    shared_prefix,
    text_after,
    text_from,
)
from catalogue.surt.key import NEWEST, canonical_host, url_surtkeys
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
from catalogue.surt.url_key import url_surtkey

__all__ = [
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
    "overlap",
    "parse_key_pattern",
    "parse_key_patterns",
    "parse_pattern",
    "prefix_interval",
    "shared_prefix",
    "text_after",
    "text_from",
    "url_surtkey",
    "url_surtkeys",
]
