"""Search a crawl's list of blocks by small ranges, where the list is not stored.

A search finds the last line before an interval, the first line after it, and the lines between, by probes in a
shrinking gap between known lines. Lines stay known for later searches. The first probe also returns size and version of
the list. It is at the end, or where row groups of the same crawl predict the key. The next probes are where the key is
predicted. Wrong predictions cost few probes more than bisection.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

from catalogue.cdx.cluster import MAX_LINE, MAX_LIST, BlockList, count_shards, key_of, list_path, shards_path
from catalogue.cdx.known_lines import Gap, KnownLines
from catalogue.cdx.usual_shares import usual_share
from catalogue.commoncrawl.crawls import SUBSETS, has_columnar_index
from catalogue.errors import BadCdx, FileChanged, NotFound, NotParquet
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.checks import Response
from catalogue.source.retry import PoliteSource, get_tail
from catalogue.surt.interval import KeyInterval

PROBE = 16 << 10
"""Bytes of a probe, about 190 lines."""
_PREDICTED_PROBE = 160 << 10
"""Bytes where the list of another crawl predicts a key."""
_ROUGH_PROBE = 96 << 10
"""Bytes where a rough prediction is near a known line."""
_FIRST_BY_ROW_GROUPS, _BY_ROW_GROUPS = 4 << 10, 88 << 10
"""Bytes where row groups predict a key. The first probe corrects the estimated size of the list; the next prediction is
wrong by less than 44 kB for 19 keys of 20.
"""
_SHARES = {"warc": 0.81, "crawldiagnostics": 0.16, "robotstxt": 0.03}
"""Usual share of each subset in the rows of a crawl."""
_ESTIMATED = 0.98
"""Share of an estimated size after which the end of the list is read."""
_ROWS, _LINE = 3000, 53
"""Estimated rows of a block, and bytes of a line without its key."""
COMPLETE_GAP = 192 << 10
"""Gaps up to this size are read completely."""
_PIECE = 8 << 20
"""Maximum bytes of a request."""
_MAX_PROBES = 64
"""Bisection of the largest list needs fewer."""
_FREE, _FREE_IF_ROUGH = 4, 2
"""Probes that wrong predictions may cost more than bisection."""
_FAR = 8 * _ROUGH_PROBE
"""Bytes from a known line at which a rough prediction is not expected to be right."""


# The usual maximum of requests and bytes in a list of 100 MB
START = 3, 30_000
"""Cost of the list's end, and of the extra reads for a first key."""
NEXT_SEARCH = 6, 300_000
"""Cost of a key that published figures predict."""
PREDICTED_SEARCH = 3, 400_000
"""Cost of a key that the list of another crawl predicts."""
SEARCH_BY_ROW_GROUPS = 3, 280_000
"""Cost of a key that row groups predict."""


class Predictor(NamedTuple):
    """Predicts where keys are in a list."""

    share: Callable[[bytes], float]
    """Returns the share of the list before a key, from 0 to 1; it never decreases."""
    size: int | None = None
    """Estimated bytes of the list."""
    rough: bool = False
    """It may be wrong by several percent of the list."""


USUAL = Predictor(usual_share, rough=True)
"""Predicts where nothing is stored that resembles the list."""


def predict_from(groups: Iterable[tuple[bytes, bytes, int]], subsets: Iterable[str] = SUBSETS) -> Predictor:
    """Predict from row groups of the columnar index of the same crawl, in any order: bounds and number of rows.

    Half of a group that may have the key counts as before it. Lines of the list are as long as the bounds around them.
    Rows of other subsets are estimated.
    """
    listed = [(first, last, rows * (2 * _LINE + len(first) + len(last))) for first, last, rows in groups]
    firsts, lasts = (sorted((group[place], group[2]) for group in listed) for place in range(2))
    first_keys, last_keys = ([key for key, _ in bounds] for bounds in (firsts, lasts))
    started, ended = ([0, *accumulate(size for _, size in bounds)] for bounds in (firsts, lasts))
    twice = started[-1]
    known = sum(_SHARES.get(subset, 0) for subset in {*subsets}) or 1
    return Predictor(
        lambda key: (started[bisect_left(first_keys, key)] + ended[bisect_left(last_keys, key)]) / (2 * twice or 1),
        int(twice / known) // (2 * _ROWS),
    )


def find_shards(source: PoliteSource, crawl: str) -> int | None:
    """Count the shards by the list of a crawl's files; return None if there is none, as of crawls before 2013."""
    try:
        return count_shards(crawl, source.get(shards_path(crawl)).body)
    except NotFound:
        if has_columnar_index(crawl):
            raise
        return None


def end_of_list(source: PoliteSource, crawl: str) -> Response:
    """Fetch the last lines of a list; an empty list is a ``BadCdx``."""
    try:
        return get_tail(source, list_path(crawl), PROBE)
    except NotParquet as error:  # by its general meaning, the file is empty
        raise BadCdx(f"{list_path(crawl)} is empty") from error


class ClusterSearch:
    """Searches of one version of a list of blocks, for one thread."""

    def __init__(self, source: PoliteSource, crawl: str) -> None:
        self.crawl = crawl
        self._path = list_path(crawl)
        self._source = source
        self.lines: KnownLines | None = None
        """The lines read so far, also by earlier searches."""
        self.predict = USUAL
        """A better prediction makes searches shorter."""
        self._is_checked = False
        """The shards were counted, or the crawl has no list of files."""

    @property
    def known(self) -> KnownLines:
        """The lines read so far, and the end of the list, which a new search reads first."""
        return self.lines or self._open(end_of_list(self._source, self.crawl))

    def find(self, interval: KeyInterval) -> BlockList:
        """Return the part of the list that has all blocks of an interval; see ``BlockList.blocks_for``.

        When the last block is used, the shards are counted by the list of files: the list may be shorter.

        Raises:
            BadCdx: if the list is invalid.
            FileChanged: if it is another version than before.
            SourceError: if it cannot be read.
        """
        start = self._border(interval.start)
        end = self._border(interval.end)
        if start < end:
            for part in self.known.missing(ByteRange(start, end)):
                self._read_all(part)
        if self._is_unchecked_end(end):
            if (shards := find_shards(self._source, self.crawl)) is not None:
                self.known.check_shards(shards)
            self._is_checked = True
        return self.known.list(start, end)

    def _is_unchecked_end(self, border: int) -> bool:
        return border == self.known.version.size and self.known.shards is None and not self._is_checked

    def knows(self, interval: KeyInterval) -> bool:
        """Return whether ``find`` makes no request."""
        if self.lines is None:
            return False
        start, end = self.lines.border(interval.start), self.lines.border(interval.end)
        if not (isinstance(start, int) and isinstance(end, int)) or self._is_unchecked_end(end):
            return False
        return start >= end or not self.lines.missing(ByteRange(start, end))

    def locate(self, interval: KeyInterval) -> ByteRange | None:
        """Probe for the range of the lines of the blocks that start inside an interval."""
        start, end = self._border(interval.start), self._border(interval.end)
        return ByteRange(start, end) if start < end else None

    def _open(self, response: Response) -> KnownLines:
        size = response.total_size
        if size > MAX_LIST:
            raise BadCdx(f"{self._path} has {size:,} bytes; at most {MAX_LIST:,} are accepted")
        known = KnownLines(self.crawl, response.version)
        known.add_part(response.start, response.body)
        self.lines = known
        return known

    def _around(self, key: bytes) -> Response:
        if size := self.predict.size:
            start = max(0, int(self.predict.share(key) * size) - _FIRST_BY_ROW_GROUPS // 2)
            if start + _FIRST_BY_ROW_GROUPS <= _ESTIMATED * size:
                with suppress(FileChanged, NotParquet):  # the list is shorter than estimated, or empty
                    return self._source.get(self._path, ByteRange(start, start + _FIRST_BY_ROW_GROUPS))
        return end_of_list(self._source, self.crawl)

    def _border(self, key: bytes) -> int:
        known = self.lines or self._open(self._around(key))
        most = 0
        for probes in range(_MAX_PROBES):
            gap = known.border(key)
            if isinstance(gap, int):
                return gap
            if not probes:
                most = len(gap) << (_FREE_IF_ROUGH if self.predict.rough else _FREE)
            most = (max(most, len(gap)) - PROBE + 1) // 2  # as bisection leaves of a gap that large
            self._read(gap, self._probe(key, gap, most))
        raise BadCdx(f"{self._path}: {key[:200]!r} was not found in {_MAX_PROBES} requests")

    def _probe(self, key: bytes, gap: Gap, most: int) -> ByteRange:
        if len(gap) <= COMPLETE_GAP:
            return ByteRange(gap.start, gap.end)
        place, length = self._predicted(key, gap)
        start = place - length // 2
        if not gap.end - length - most <= start <= gap.start + most:
            length = PROBE
            start = max(gap.end - length - most, min(start, gap.start + most))
        start = max(gap.start, min(start, gap.end - length))
        return ByteRange(start, start + length)

    def _predicted(self, key: bytes, gap: Gap) -> tuple[int, int]:
        """Predict a key's place; return it with the length of the probe."""
        share, size, rough = self.predict
        low = share(key_of(gap.before)) if gap.before else 0.0
        high = share(key_of(gap.after)) if gap.after else 1.0
        part = (share(key) - low) / (high - low) if low < high else 0.5
        place = int(min(max(0.0, part), 1.0) * len(gap))
        if not rough:
            return gap.start + place, _BY_ROW_GROUPS if size else _PREDICTED_PROBE
        near = min(place, len(gap) - place)
        if near < len(gap) // 8:  # the key shall be between known lines that are near
            place += near // 4 if place == near else -near // 4
        return gap.start + place, PROBE if near > _FAR else _ROUGH_PROBE

    def _read(self, gap: Gap, part: ByteRange) -> None:
        while not self.known.add_part(part.start, self._get(part).body):
            if len(part) >= MAX_LINE:
                raise BadCdx(f"{self._path} has a line of more than {MAX_LINE:,} bytes at byte {part.start:,}")
            length = min(2 * len(part), MAX_LINE)
            start = max(gap.start, part.end - length) if part.end == gap.end else part.start
            part = ByteRange(start, min(start + length, gap.end))

    def _read_all(self, part: ByteRange) -> None:
        at, rest = part.start, b""
        while at < part.end:
            piece = ByteRange(at, min(at + _PIECE, part.end))
            body = rest + self._get(piece).body
            self.known.add_part(piece.end - len(body), body)
            rest, at = body[body.rfind(b"\n") + 1 :], piece.end

    def _get(self, part: ByteRange) -> Response:
        return self._source.get(self._path, part, pin=self.known.version)
