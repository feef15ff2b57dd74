"""A file's end, when its size is not known."""

from catalogue.errors import RangeIgnored
from catalogue.ranges import ByteRange, Pin, SuffixRange
from catalogue.source.polite import PoliteSource
from catalogue.source.response import Response


def get_tail(source: PoliteSource, path: str, length: int) -> Response:
    """The last ``length`` bytes of a file, or all of it if it is shorter.

    One request, by a suffix range. CloudFront's documentation allows itself to answer such a range with the whole file;
    a host that does is asked for the first byte, which tells the size, and then for an explicit range, from then on.
    """
    if not source.limiter.state.ignores_suffixes:
        try:
            return source.get(path, SuffixRange(length))
        except RangeIgnored:
            # Single files behave so, too; a host is only known to ignore suffixes while none was ever honoured.
            if not source.honoured_suffixes:
                source.limiter.note_suffixes(ignored=True)
    first = source.get(path, ByteRange(0, 1))
    pin = Pin(first.total_size, first.etag)
    return source.get(path, ByteRange(max(0, first.total_size - length), first.total_size), pin=pin)
