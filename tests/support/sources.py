"""A file, sources that read it from a server with faults, and the error that each fault leads to."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

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
from catalogue.source.http import HttpSource, Timeouts
from catalogue.source.s3 import S3Source
from tests.support import canaries
from tests.support.faults import ALL_KINDS, Exchange, Fault, FaultServer, Kind, Request, Script

PATH = "cc-index/crawl=CC-MAIN-2022-05/part 0.parquet"
DATA = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
FILES = {PATH: DATA, "other.parquet": OTHER}
AGENT = "commoncrawl-catalogue/1 (me@example.org)"
BUCKET = "a-bucket"
SUFFIX = SuffixRange(5000)
BOUNDED = ByteRange(1000, 6000)
RANGES: dict[str, ByteRange | SuffixRange] = {"suffix": SUFFIX, "bounded": BOUNDED}
BODIES: dict[ByteRange | SuffixRange, bytes] = {SUFFIX: DATA[-5000:], BOUNDED: DATA[1000:6000]}
SHORT_TIMEOUTS = Timeouts(connect=10.0, silence=2.0, total=3.0)
"""Short for slow faults, but long enough for correct responses on a busy machine."""

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
    Kind.FLIPPED_BIT: None,  # not detectable
    Kind.OTHER_OBJECT: None,  # detectable only with a pin
    Kind.EMPTY: NotParquet,  # for a suffix; a bounded range shows that the file has shrunk
    Kind.CHANGED_ETAG: None,
    Kind.WEAK_ETAG: None,
    Kind.NO_ETAG: None,
    Kind.SLOW_DOWN: Throttled,
    Kind.RETRY_AFTER: Throttled,
    Kind.TOO_MANY: Throttled,
    Kind.QUOTA: Throttled,
    Kind.BLOCKED: Blocked,
    Kind.DENIED: Forbidden,
    Kind.NOT_FOUND: NotFound,
    Kind.UNSATISFIABLE: Forbidden,
    Kind.SERVER_ERROR: Unreachable,
    Kind.REDIRECT_HERE: Redirected,
    Kind.REDIRECT_AWAY: Redirected,
}
"""The error of each kind for a request without a pin; None if bytes are returned."""

TEMPORARY = [
    kind
    for kind in ALL_KINDS
    if ERRORS[kind] not in {None, Blocked, Forbidden, NotFound, NotParquet, Redirected}
    or kind in {Kind.WEAK_ETAG, Kind.NO_ETAG}
]
"""Faults that are detected, and for which requests are repeated."""


def expected(kind: Kind, requested: ByteRange | SuffixRange) -> type[Exception] | None:
    if kind is Kind.UNSATISFIABLE and isinstance(requested, SuffixRange):
        return RangeIgnored  # it is replaced by an explicit range
    if kind is Kind.SERVER_ERROR and isinstance(requested, SuffixRange):
        return WrongRange  # the same, after some attempts
    return FileChanged if kind is Kind.EMPTY and requested == BOUNDED else ERRORS[kind]


def quick(kind: Kind, **more: Any) -> Fault:
    """Return a fault that ends soon unless the client waits."""
    return replace(Fault(kind, hold=3.0, interval=0.05), **more)


class Arrivals:
    """A script that leaves requests without a response and counts them."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)

    def __call__(self, _: Request) -> Fault:
        self._arrived.release()
        return Fault(Kind.SILENT, hold=60)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._arrived.acquire(timeout=30)


def use_s3(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Set an environment with test credentials and without settings of the user."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL_S3"):
        patch.delenv(name, raising=False)
    environment = canaries.AWS | {"AWS_ENDPOINT_URL": endpoint.rstrip("/"), "AWS_DEFAULT_REGION": "us-east-1"}
    environment |= dict.fromkeys(["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"], "/dev/null")
    for name, value in (environment | {"AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "*"}).items():
        patch.setenv(name, value)


def open_http(url: str, connections: int = 2, timeouts: Timeouts | None = None) -> HttpSource:
    return HttpSource(url, user_agent=AGENT, connections=connections, timeouts=timeouts)


def open_s3(url: str = f"s3://{BUCKET}/", connections: int = 4, timeouts: Timeouts | None = None) -> S3Source:
    return S3Source(url, user_agent=AGENT, connections=connections, timeouts=timeouts)


class Served:
    """A server and one source for many faults; no fault may affect the next request."""

    source: HttpSource | S3Source

    def __init__(
        self, protocol: str, files: Mapping[str, bytes], script: Script | None = None, rate: float | None = None
    ) -> None:
        self._faults: dict[int, Fault] = {}
        self._protocol = protocol
        files = {f"{BUCKET}/{path}": data for path, data in files.items()}
        self.server = FaultServer(files, script=script or (lambda each: self._faults.get(each.number)), rate=rate)

    @contextmanager
    def open(self, connections: int = 4, timeouts: Timeouts | None = None) -> "Iterator[Served]":
        with self.server, pytest.MonkeyPatch.context() as patch:
            use_s3(patch, self.server.url)
            url = f"s3://{BUCKET}/" if self._protocol == "s3" else f"{self.server.url}{BUCKET}/"
            open_source = open_s3 if self._protocol == "s3" else open_http
            with closing(open_source(url, connections, timeouts)) as self.source:
                yield self

    def script(self, *faults: Fault | None) -> None:
        self.server.settle()
        self.server.reset()
        self._faults.clear()
        self._faults |= {number: fault for number, fault in enumerate(faults) if fault}

    def exchanges(self) -> list[Exchange]:
        return self.server.settle()
