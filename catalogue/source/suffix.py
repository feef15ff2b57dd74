"""Read the end of a file of unknown size."""

from catalogue.errors import FileChanged, RangeIgnored
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import Response
from catalogue.source.retry import PoliteSource


def get_tail(source: PoliteSource, path: str, length: int) -> Response:
    """Return the last ``length`` bytes of a file, or all of a shorter one.

    One suffix range. CloudFront may answer one with the complete file; for a host that does, the first byte tells the
    size, and an explicit range follows.
    """
    ignores_suffixes = source.limiter.state.ignores_suffixes
    if not ignores_suffixes:
        try:
            return source.get(path, SuffixRange(length))
        except RangeIgnored:
            pass
    try:
        tail = _explicit(source, path, length)
    except FileChanged:  # between its two requests
        tail = _explicit(source, path, length)
    # Single files behave so, too, and some to any range; the host is only known to ignore suffixes while it never
    # honoured one, and by a file of which it honours other ranges.
    if not (ignores_suffixes or source.honoured_suffixes):
        source.limiter.note_suffixes(ignored=True)
    return tail


def _explicit(source: PoliteSource, path: str, length: int) -> Response:
    first = source.get(path, ByteRange(0, 1))
    pin = FileVersion(first.total_size, first.etag)
    return source.get(path, ByteRange(max(0, first.total_size - length), first.total_size), pin=pin)
