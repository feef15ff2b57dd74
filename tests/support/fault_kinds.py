"""The faults of the server in ``tests.support.faults``, and scripts that choose one for each request."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

MIB = 1 << 20


class Kind(Enum):
    """Kinds of faults. Most need a file that exists; otherwise the response is correct."""

    CUT_FIN = "cut-fin"  # the body ends early, and the connection is closed
    CUT_RST = "cut-rst"  # the same, and the connection is reset
    DISCONNECT = "disconnect"  # the connection is closed before the response
    SILENT = "silent"  # no response for ``hold`` seconds, then the connection is closed
    DRIP_BODY = "drip-body"  # a byte of the body every ``interval`` seconds, for ``hold`` seconds
    DRIP_HEADERS = "drip-headers"  # the same for the entire response
    CLOSE_DELIMITED = "close-delimited"  # no Content-Length; the body ends early with the connection
    CHUNKED_CUT = "chunked-cut"  # a chunked body without its last chunks
    LONG_BODY = "long-body"  # ``excess`` bytes more than Content-Range states; the framing depends on ``variant``
    ENDLESS = "endless"  # the same, chunked and without an end
    NEGATIVE_CHUNK = "negative-chunk"  # the same in a chunk of -1 bytes
    GZIP_BOMB = "gzip-bomb"  # Content-Encoding gzip; a small body that inflates to ``excess`` bytes
    HUGE_HEADER = "huge-header"  # one header of 1 MiB
    MANY_HEADERS = "many-headers"  # 200,000 headers
    WHOLE_FILE = "whole-file"  # 200 and the complete file
    WRONG_CONTENT_RANGE = "wrong-content-range"  # the correct bytes with another Content-Range
    OTHER_RANGE = "other-range"  # as many other bytes, with their Content-Range
    SHORT_RANGE = "short-range"  # the first or last half of the bytes, with its Content-Range
    NO_CONTENT_RANGE = "no-content-range"  # 206 without Content-Range
    MALFORMED_CONTENT_RANGE = "malformed-content-range"  # one of MALFORMED_CONTENT_RANGES
    MULTIPART = "multipart"  # multipart/byteranges with one part
    HTML_200 = "html-200"
    HTML_206 = "html-206"  # a page of the correct length, with the correct Content-Range
    XML_IN_200 = "xml-in-200"  # S3's SlowDown or InternalError with status 200
    FLIPPED_BIT = "flipped-bit"  # one bit of the body
    OTHER_OBJECT = "other-object"  # the correct response for another file
    EMPTY = "empty"  # as if the file had no bytes
    CHANGED_ETAG = "changed-etag"  # another ETag, regardless of If-Match
    WEAK_ETAG = "weak-etag"
    NO_ETAG = "no-etag"
    SLOW_DOWN = "slow-down"  # 503, S3's SlowDown
    RETRY_AFTER = "retry-after"  # 503 with Retry-After in seconds
    TOO_MANY = "too-many"  # 429 with Retry-After as a date
    QUOTA = "quota"  # 429 with RateLimit alone, whose window ends after ``retry_after`` seconds
    BLOCKED = "blocked"  # 403, CloudFront's page "Request blocked"
    DENIED = "denied"  # 403, S3's AccessDenied
    NOT_FOUND = "not-found"
    UNSATISFIABLE = "unsatisfiable"  # 416 for a valid range
    SERVER_ERROR = "server-error"
    NESTED_ERROR = "nested-error"  # 502, XML of 1,100 levels
    ENDLESS_ERROR = "endless-error"  # 502 with a body of ``excess`` bytes
    REDIRECT_HERE = "redirect-here"  # 301, 302, 307 or 308 to the same path with a query
    REDIRECT_AWAY = "redirect-away"  # the same to ``target``, in which {path} stands for the path


ALL_KINDS = tuple(Kind)
SLOW = frozenset({Kind.SILENT, Kind.DRIP_BODY, Kind.DRIP_HEADERS})

MALFORMED_CONTENT_RANGES = (
    *("", "bytes", "bytes {first}-{last}", "bytes {first}-{last}/", "bytes {first}-/{total}", "bytes -{last}/{total}"),
    *("bytes {total}-{first}/{total}", "bytes {first}-{last}/{last}", "bytes */{total}"),
    *("bytes={first}-{last}/{total}", "octets {first}-{last}/{total}"),
    "bytes {first}-{last}/{total}, bytes {first}-{last}/{total}",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind with its parameters. ``variant`` chooses among the forms of a kind."""

    kind: Kind
    variant: int = 0
    hold: float = 5.0
    interval: float = 1.0
    excess: int = 256 * MIB
    retry_after: int = 1
    target: str = "http://127.0.0.2/"


WITHOUT_SIZE = -1
"""The variant of ``UNSATISFIABLE`` that does not state the size of the file."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``path`` is decoded, without the leading slash and the query; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    number: int
    """Requests before this one."""
    attempt: int
    """Requests for this path before this one."""


Script = Callable[[Request], Fault | None]


def seeded(seed: int, share: float = 0.3, kinds: Iterable[Kind | Fault] = ALL_KINDS, max_in_a_row: int = 3) -> Script:
    """Return a script of random faults by seed, path, range and number of requests for that range."""
    choices = sorted((_fault(kind) for kind in kinds), key=repr)
    requested: Counter[tuple[str, str]] = Counter()
    in_a_row: Counter[tuple[str, str]] = Counter()

    def script(request: Request) -> Fault | None:
        key = (request.path, request.headers.get("range", ""))
        dice = random.Random(repr((seed, key, requested[key])))
        requested[key] += 1
        if in_a_row[key] >= max_in_a_row or dice.random() >= share:
            in_a_row.pop(key, None)
            return None
        in_a_row[key] += 1
        return replace(dice.choice(choices), variant=dice.randrange(1 << 32))

    return script


def always(kind: Kind | Fault) -> Script:
    return lambda _: _fault(kind)


def first(n: int, kind: Kind | Fault) -> Script:
    """Return a script with the fault for the first ``n`` requests of each path."""
    return lambda request: _fault(kind) if request.attempt < n else None


def only(path: str, kind: Kind | Fault) -> Script:
    return lambda request: _fault(kind) if request.path == path else None


def on_suffixes(kind: Kind | Fault) -> Script:
    return lambda request: _fault(kind) if "=-" in request.headers.get("range", "") else None


def _fault(kind: Kind | Fault) -> Fault:
    return Fault(kind) if isinstance(kind, Kind) else kind
