"""Where files are read from: http, S3 or a folder, asked politely and never believed unchecked."""

from catalogue.source.limiter import Clock, Limiter, Policy, SystemClock
from catalogue.source.opening import open_source
from catalogue.source.polite import ATTEMPTS, PoliteSource
from catalogue.source.response import Response, Source, Wanted
from catalogue.source.tail import get_tail

__all__ = [
    "ATTEMPTS",
    "Clock",
    "Limiter",
    "Policy",
    "PoliteSource",
    "Response",
    "Source",
    "SystemClock",
    "Wanted",
    "get_tail",
    "open_source",
]
