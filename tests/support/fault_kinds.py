"""What the loopback server of ``tests.support.faults`` can do wrong, and scripts that say when.

::

    Kind                one way of going wrong
    Fault               a kind with its numbers: how long, how much, which variant
    Script              a function from a request to the fault it meets, or None
    seeded always first only        scripts ready to use

Each kind is in exactly one of ``DETECTABLE``, ``UNDETECTABLE``, ``THROTTLING``, ``BLOCKING`` and ``PERMANENT``, by
what a good client makes of it. ``SLOW`` and ``HARMLESS`` are parts of ``DETECTABLE``.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

MIB = 1 << 20


class Kind(Enum):
    """One way of going wrong.

    A kind that has nothing to work on is not done, and not logged: most need a file that is there and is not empty,
    ``OTHER_OBJECT`` needs a second one, ``OTHER_RANGE`` a range that is not the whole file. Where a kind is about a
    206 and no range was asked for, the 206 comes all the same, for the whole file. ``HEAD`` gets the headers of it all.
    """

    # The connection.
    CUT_FIN = "cut-fin"
    """The body stops short of its Content-Length, and the connection is closed."""
    CUT_RST = "cut-rst"
    """The same, and the connection is reset."""
    DISCONNECT = "disconnect"
    """The connection is closed before the first byte of an answer."""
    SILENT = "silent"
    """Nothing is said for ``hold`` seconds, then the connection is closed."""
    DRIP_BODY = "drip-body"
    """The body comes at a byte every ``interval`` seconds, and is cut when ``hold`` seconds have passed."""
    DRIP_HEADERS = "drip-headers"
    """The same with the whole answer, so that hardly the headers arrive."""

    # The framing.
    CLOSE_DELIMITED = "close-delimited"
    """No Content-Length: the body ends with the connection, too early."""
    CHUNKED_CUT = "chunked-cut"
    """A chunked body without its last chunks."""
    LONG_BODY = "long-body"
    """``excess`` bytes behind those that Content-Range promises: chunked, close-delimited, or with a Content-Length
    that contradicts it, by variant."""
    ENDLESS = "endless"
    """A chunked body that goes on until the client leaves; after ``excess`` bytes too many it is cut."""
    GZIP_BOMB = "gzip-bomb"
    """Content-Encoding gzip, asked for or not: a thousandth of ``excess`` bytes, that inflate to ``excess``."""
    HUGE_HEADER = "huge-header"
    """The right answer behind one header of 1 MiB."""
    MANY_HEADERS = "many-headers"
    """The right answer behind 200,000 headers."""

    # The range.
    WHOLE_FILE = "whole-file"
    """200 and the whole file, whatever the range was; right where none was asked for."""
    WRONG_CONTENT_RANGE = "wrong-content-range"
    """The right bytes under a Content-Range that is not theirs."""
    OTHER_RANGE = "other-range"
    """Other bytes of the file, as many as were asked for; Content-Range says which."""
    SHORT_RANGE = "short-range"
    """Half the bytes, by variant the first or the last half; Content-Range and Content-Length say so."""
    NO_CONTENT_RANGE = "no-content-range"
    """206 and the right bytes, without a Content-Range."""
    MALFORMED_CONTENT_RANGE = "malformed-content-range"
    """206 and the right bytes with one of ``MALFORMED_CONTENT_RANGES``, by variant."""
    MULTIPART = "multipart"
    """206 multipart/byteranges with the right bytes as its one part."""

    # Another body.
    HTML_200 = "html-200"
    """200 and a page."""
    HTML_206 = "html-206"
    """206, the right Content-Range and a page of just that length; only its type tells."""
    XML_IN_200 = "xml-in-200"
    """200 and an S3 error document, SlowDown or InternalError by variant."""
    FLIPPED_BIT = "flipped-bit"
    """One bit of the body is wrong, by variant; all headers are right."""
    OTHER_OBJECT = "other-object"
    """The right answer to a request for a neighbour of this file."""
    EMPTY = "empty"
    """As if the file had no bytes: 416 to any range, else 200."""

    # The entity.
    CHANGED_ETAG = "changed-etag"
    """The right answer with another ETag, whatever If-Match said. Only a client that has seen the file before can tell;
    one that has not takes the tag for good, and meets 412 with it."""
    WEAK_ETAG = "weak-etag"
    """The right answer with a weak ETag."""
    NO_ETAG = "no-etag"
    """The right answer without an ETag."""

    # The status.
    SLOW_DOWN = "slow-down"
    """503, S3's SlowDown."""
    RETRY_AFTER = "retry-after"
    """503 with a Retry-After of ``retry_after`` seconds."""
    TOO_MANY = "too-many"
    """429 with a Retry-After date ``retry_after`` seconds from now."""
    BLOCKED = "blocked"
    """403, CloudFront's page "Request blocked"."""
    DENIED = "denied"
    """403, S3's AccessDenied."""
    NOT_FOUND = "not-found"
    """404, S3's NoSuchKey."""
    UNSATISFIABLE = "unsatisfiable"
    """416, though the range is a good one."""
    SERVER_ERROR = "server-error"
    """500, S3's InternalError."""
    BAD_GATEWAY = "bad-gateway"
    """502 with a proxy's page."""
    GATEWAY_TIMEOUT = "gateway-timeout"
    """504 with a proxy's page."""
    REDIRECT_HERE = "redirect-here"
    """301, 302, 307 or 308, by variant, to the same path of this server with the query ``redirected``."""
    REDIRECT_AWAY = "redirect-away"
    """The same to that path under ``target``."""


ALL_KINDS = tuple(Kind)

UNDETECTABLE = frozenset({Kind.FLIPPED_BIT, Kind.OTHER_OBJECT})
"""No header tells; ``OTHER_OBJECT`` does not to a client that has not seen the file's size or ETag before."""

THROTTLING = frozenset({Kind.SLOW_DOWN, Kind.RETRY_AFTER, Kind.TOO_MANY, Kind.XML_IN_200})
"""To be asked again, later and more slowly."""

BLOCKING = frozenset({Kind.BLOCKED})
"""To stop everything for minutes; apart from the others, so that a soak can leave it out."""

PERMANENT = frozenset(
    {Kind.DENIED, Kind.NOT_FOUND, Kind.UNSATISFIABLE, Kind.EMPTY, Kind.REDIRECT_HERE, Kind.REDIRECT_AWAY}
)
"""Answers that asking again does not change."""

DETECTABLE = frozenset(ALL_KINDS) - UNDETECTABLE - THROTTLING - BLOCKING - PERMANENT
"""A client that checks status, Content-Range, lengths, type, encoding and ETag sees these, and asking again helps."""

SLOW = frozenset({Kind.SILENT, Kind.DRIP_BODY, Kind.DRIP_HEADERS})
"""These take up to ``hold`` seconds each."""

HARMLESS = frozenset({Kind.WEAK_ETAG, Kind.NO_ETAG})
"""The bytes are right, so a client may also take them and go on without a pinned version."""

MALFORMED_CONTENT_RANGES = (
    "",
    "bytes",
    "bytes {first}-{last}",
    "bytes {first}-{last}/",
    "bytes {first}-/{total}",
    "bytes -{last}/{total}",
    "bytes {total}-{first}/{total}",
    "bytes {first}-{last}/{last}",
    "bytes */{total}",
    "bytes={first}-{last}/{total}",
    "octets {first}-{last}/{total}",
    "bytes {first}-{last}/{total}, bytes {first}-{last}/{total}",
)
"""Formats of what ``MALFORMED_CONTENT_RANGE`` sends; ``first`` and ``last`` are inclusive."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind with its numbers; each kind looks only at those its description names."""

    kind: Kind
    variant: int = 0
    """Chooses among the forms of a kind: the place of a cut or a flipped bit, a malformed string, a status."""
    hold: float = 5.0
    """Seconds after which a slow kind gives up and closes the connection."""
    interval: float = 1.0
    """Seconds between two bytes of a drip."""
    excess: int = 256 * MIB
    """How many bytes too many; never held in memory."""
    retry_after: int = 1
    """Seconds."""
    target: str = "http://127.0.0.2/"
    """Where ``REDIRECT_AWAY`` leads: a URL up to the path."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as a script sees it."""

    method: str
    path: str
    """Decoded, without the leading slash and the query."""
    headers: Mapping[str, str]
    """By lower-case name."""
    number: int
    """How many requests came before this one."""
    attempt: int
    """How many requests for this path, with any range, came before this one."""


Script = Callable[[Request], Fault | None]


def seeded(seed: int, share: float = 0.3, kinds: Iterable[Kind | Fault] = ALL_KINDS, max_in_a_row: int = 3) -> Script:
    """A random mixture that is the same every time.

    What the n-th request for a path and a range meets depends on the arguments, the path, the range and n alone, hence
    neither on other requests nor on how those of several connections interleave.

    Args:
        seed: of the mixture.
        share: of the requests that meet a fault.
        kinds: to choose from, all as likely. As faults they bring their own numbers, but for ``variant``, which is
            random: ``[Fault(kind, hold=0.1, interval=0.01) for kind in DETECTABLE]``.
        max_in_a_row: after so many faults for one path and range the next request for it goes well.

    Returns:
        A script that counts, so it is for one server only.
    """
    # Sorted, since the order of a set of kinds is another one in every process.
    choices = sorted((_fault(kind) for kind in kinds), key=repr)
    asked: Counter[tuple[str, str]] = Counter()
    in_a_row: Counter[tuple[str, str]] = Counter()

    def script(request: Request) -> Fault | None:
        key = (request.path, request.headers.get("range", ""))
        dice = random.Random(repr((seed, key, asked[key])))
        asked[key] += 1
        if in_a_row[key] >= max_in_a_row or dice.random() >= share:
            in_a_row.pop(key, None)
            return None
        in_a_row[key] += 1
        return replace(dice.choice(choices), variant=dice.randrange(1 << 32))

    return script


def always(kind: Kind | Fault) -> Script:
    """The fault for every request."""
    fault = _fault(kind)
    return lambda _: fault


def first(n: int, kind: Kind | Fault) -> Script:
    """The fault for the first ``n`` requests of each path."""
    fault = _fault(kind)
    return lambda request: fault if request.attempt < n else None


def only(path: str, kind: Kind | Fault) -> Script:
    """The fault for every request of one path."""
    fault = _fault(kind)
    return lambda request: fault if request.path == path else None


def _fault(kind: Kind | Fault) -> Fault:
    return Fault(kind) if isinstance(kind, Kind) else kind
