"""A file, sources that read it from a server with faults, and the error that each fault leads to."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from catalogue import errors
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

_BY_ERROR: dict[type[Exception] | None, list[Kind]] = {
    errors.Unreachable: [
        *(Kind.CUT_FIN, Kind.CUT_RST, Kind.DISCONNECT, Kind.SILENT, Kind.DRIP_BODY, Kind.DRIP_HEADERS),
        *(Kind.CHUNKED_CUT, Kind.HUGE_HEADER, Kind.MANY_HEADERS, Kind.NEGATIVE_CHUNK, Kind.SERVER_ERROR),
        *(Kind.NESTED_ERROR, Kind.ENDLESS_ERROR),
    ],
    errors.WrongLength: [Kind.CLOSE_DELIMITED, Kind.LONG_BODY, Kind.ENDLESS],
    errors.WrongRange: [
        *(Kind.GZIP_BOMB, Kind.WRONG_CONTENT_RANGE, Kind.OTHER_RANGE, Kind.SHORT_RANGE, Kind.NO_CONTENT_RANGE),
        *(Kind.MALFORMED_CONTENT_RANGE, Kind.MULTIPART),
    ],
    errors.RangeIgnored: [Kind.WHOLE_FILE],
    errors.UnexpectedHtml: [Kind.HTML_200, Kind.HTML_206],
    errors.Throttled: [Kind.XML_IN_200, Kind.SLOW_DOWN, Kind.RETRY_AFTER, Kind.TOO_MANY, Kind.QUOTA],
    # The first cannot be detected, the second only with a pin.
    None: [Kind.FLIPPED_BIT, Kind.OTHER_OBJECT, Kind.CHANGED_ETAG, Kind.WEAK_ETAG, Kind.NO_ETAG],
    errors.NotParquet: [Kind.EMPTY],  # for a suffix; a bounded range shows that the file has shrunk
    errors.Blocked: [Kind.BLOCKED],
    errors.Forbidden: [Kind.DENIED, Kind.UNSATISFIABLE],
    errors.NotFound: [Kind.NOT_FOUND],
    errors.Redirected: [Kind.REDIRECT_HERE, Kind.REDIRECT_AWAY],
}
ERRORS = {kind: error for error, kinds in _BY_ERROR.items() for kind in kinds}
"""The error of each kind for a request without a pin; None if bytes are returned."""

TEMPORARY = [
    kind
    for kind in ALL_KINDS
    if ERRORS[kind]
    not in {None, errors.Blocked, errors.Forbidden, errors.NotFound, errors.NotParquet, errors.Redirected}
    or kind in {Kind.WEAK_ETAG, Kind.NO_ETAG}
]
"""Faults that are detected, and for which requests are repeated."""


def expected(kind: Kind, requested: ByteRange | SuffixRange) -> type[Exception] | None:
    if kind is Kind.UNSATISFIABLE and isinstance(requested, SuffixRange):
        return errors.RangeIgnored  # it is replaced by an explicit range
    if kind is Kind.SERVER_ERROR and isinstance(requested, SuffixRange):
        return errors.WrongRange  # the same, after some attempts
    return errors.FileChanged if kind is Kind.EMPTY and requested == BOUNDED else ERRORS[kind]


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
