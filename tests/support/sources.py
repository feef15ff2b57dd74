"""What the tests of sources share: a file, faults that do not take long, and what each must lead to."""

import random
import threading
from dataclasses import replace
from typing import Any

from catalogue.errors import (
    Blocked,
    FileChanged,
    Forbidden,
    NotFound,
    NotParquet,
    RangeIgnored,
    Redirected,
    Throttled,
    UnexpectedHtml,
    Unreachable,
    WrongLength,
    WrongRange,
)
from catalogue.source.byte_ranges import ByteRange, SuffixRange
from catalogue.source.http import Timeouts
from tests.support.faults import Fault, Kind, Request

PATH = "cc-index/crawl=CC-MAIN-2022-05/part 0.parquet"
DATA = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
FILES = {PATH: DATA, "other.parquet": OTHER}

SUFFIX = SuffixRange(5000)
BOUNDED = ByteRange(1000, 6000)
WANTED: dict[str, ByteRange | SuffixRange] = {"suffix": SUFFIX, "bounded": BOUNDED}
RIGHT: dict[ByteRange | SuffixRange, bytes] = {SUFFIX: DATA[-5000:], BOUNDED: DATA[1000:6000]}

IMPATIENT = Timeouts(connect=5.0, silence=0.4, total=0.8)
"""So that a slow fault takes no longer, and a good answer is not late even on a busy machine."""

ERRORS: dict[Kind, type[Exception] | None] = {
    Kind.CUT_FIN: Unreachable,
    Kind.CUT_RST: Unreachable,
    Kind.DISCONNECT: Unreachable,
    Kind.SILENT: Unreachable,
    Kind.DRIP_BODY: Unreachable,
    Kind.DRIP_HEADERS: Unreachable,
    Kind.CLOSE_DELIMITED: WrongLength,
    Kind.CHUNKED_CUT: Unreachable,
    Kind.LONG_BODY: WrongLength,
    Kind.ENDLESS: WrongLength,
    Kind.GZIP_BOMB: WrongRange,
    Kind.HUGE_HEADER: Unreachable,
    Kind.MANY_HEADERS: Unreachable,
    Kind.WHOLE_FILE: RangeIgnored,
    Kind.WRONG_CONTENT_RANGE: WrongRange,
    Kind.OTHER_RANGE: WrongRange,
    Kind.SHORT_RANGE: WrongRange,
    Kind.NO_CONTENT_RANGE: WrongRange,
    Kind.MALFORMED_CONTENT_RANGE: WrongRange,
    Kind.MULTIPART: WrongRange,
    Kind.HTML_200: UnexpectedHtml,
    Kind.HTML_206: UnexpectedHtml,
    Kind.XML_IN_200: Throttled,
    Kind.FLIPPED_BIT: None,  # nobody can tell
    Kind.OTHER_OBJECT: None,  # nor here, without a pin
    Kind.EMPTY: NotParquet,  # to a suffix; a bounded range says that the file has shrunk
    Kind.CHANGED_ETAG: None,
    Kind.WEAK_ETAG: None,
    Kind.NO_ETAG: None,
    Kind.SLOW_DOWN: Throttled,
    Kind.RETRY_AFTER: Throttled,
    Kind.TOO_MANY: Throttled,
    Kind.BLOCKED: Blocked,
    Kind.DENIED: Forbidden,
    Kind.NOT_FOUND: NotFound,
    Kind.UNSATISFIABLE: Forbidden,
    Kind.SERVER_ERROR: Unreachable,
    Kind.BAD_GATEWAY: Unreachable,
    Kind.GATEWAY_TIMEOUT: Unreachable,
    Kind.REDIRECT_HERE: Redirected,
    Kind.REDIRECT_AWAY: Redirected,
}
"""What each kind leads to where no pin says which version is wanted; None where bytes come."""


class Arrivals:
    """A script that never answers, and tells how many requests it does that to."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)

    def __call__(self, _: Request) -> Fault:
        self._arrived.release()
        return Fault(Kind.SILENT, hold=60)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._arrived.acquire(timeout=30)


def expected(kind: Kind, requested: ByteRange | SuffixRange) -> type[Exception] | None:
    return FileChanged if kind is Kind.EMPTY and requested == BOUNDED else ERRORS[kind]


def quick(kind: Kind, **more: Any) -> Fault:
    """A fault that takes the server no time, unless the client waits."""
    return replace(Fault(kind, hold=3.0, interval=0.05), **more)
