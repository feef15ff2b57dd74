"""Read the end of a file of unknown size."""

from catalogue.errors import FileChanged, RangeIgnored
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import Response
from catalogue.source.retry import PoliteSource


def get_tail(source: PoliteSource, path: str, length: int) -> Response:
    """Return the last ``length`` bytes of a file, or all of a shorter one.

    This takes one request with a suffix range. CloudFront may respond with the complete file. For such hosts, the file
    size comes from a request for the first byte, and a second request has an explicit range.
    """
    ignores_suffixes = source.limiter.state.ignores_suffixes
    if not ignores_suffixes:
        try:
            return source.get(path, SuffixRange(length))
        except RangeIgnored:
            pass
    try:
        tail = _explicit(source, path, length)
    except FileChanged:  # between the two requests
        tail = _explicit(source, path, length)
    # A host may ignore ranges of single files. It counts as ignoring suffixes only if it has honoured none, and has
    # just honoured an explicit range of the same file.
    if not (ignores_suffixes or source.honoured_suffixes):
        source.limiter.note_suffixes(ignored=True)
    return tail


def _explicit(source: PoliteSource, path: str, length: int) -> Response:
    first = source.get(path, ByteRange(0, 1))
    pin = FileVersion(first.total_size, first.etag)
    return source.get(path, ByteRange(max(0, first.total_size - length), first.total_size), pin=pin)
