"""Where files are read from: http, S3 or a folder, asked politely and never believed unchecked."""

from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.discreet import be_discreet
from catalogue.source.limiter import Clock, Limiter, Policy, SystemClock
from catalogue.source.opening import credentials_from, open_source, surroundings
from catalogue.source.polite import ATTEMPTS, PoliteSource
from catalogue.source.response import MAX_DOCUMENT, Exchange, Response, Source, Wanted, is_strong
from catalogue.source.shared import SharedSource
from catalogue.source.tail import get_tail

__all__ = [
    "ATTEMPTS",
    "MAX_DOCUMENT",
    "CachedSource",
    "Clock",
    "Exchange",
    "Limiter",
    "Policy",
    "PoliteSource",
    "RangeCache",
    "Response",
    "SharedSource",
    "Source",
    "SystemClock",
    "Wanted",
    "be_discreet",
    "credentials_from",
    "get_tail",
    "is_strong",
    "open_source",
    "surroundings",
]
