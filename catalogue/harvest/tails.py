"""Fetch the ends of files, with footers and page indexes."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from threading import Lock

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import BadFooter, FormatError, StoreDamaged
from catalogue.parquet.footer import TRAILER, decode_footer, footer_length
from catalogue.parquet.model import Footer, RowGroup
from catalogue.parquet.stored_indexes import Indexes, cut_indexes
from catalogue.parquet.summary import FileSummary, examine_footer
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import Exchange
from catalogue.source.retry import PoliteSource
from catalogue.source.suffix import get_tail
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile
from catalogue.store.stored_lists import stored_response

FIRST_TAIL = 128 << 10
"""Bytes of the first tails of a crawl: more than nearly every footer."""
FIRST_TAIL_WITH_PAGES = 1 << 20
"""The same with page indexes, which precede the footer: about 0.9 MB for 11 row groups of 30 columns."""

_LENGTHS = 256
"""Added in turn, so that a response to the request before or after states another range."""


def whole(store: Store, path: str) -> StoredFile | None:
    """Return a file's value; None if it is missing or damaged."""
    with suppress(StoreDamaged):
        return store.get("files", path)
    return None


def index_ranges(groups: Iterable[RowGroup], key: str) -> list[ByteRange]:
    """Return where the page indexes are that are stored."""
    groups = list(groups)
    keys = (group.chunks[key].column_index for group in groups if key in group.chunks)
    located = (chunk.offset_index for group in groups for chunk in group.chunks.values())
    return sorted(at for at in (*keys, *located) if at)


class Tails:
    """The length of a tail: the largest footer of the crawl and subset so far, and some more."""

    def __init__(self, store: Store, table: Dataset, paths: Sequence[str], *, pages: bool) -> None:
        """Learn from some of the stored files."""
        self._lock = Lock()
        self._first = FIRST_TAIL_WITH_PAGES if pages else FIRST_TAIL
        self._largest: dict[str, int] = {}
        self._turn = count()
        for path in paths[::10]:
            known, file = whole(store, path), table.file(path)
            if known and file:
                footer = decode_footer(known.data, known.size) if pages else None
                ranges = index_ranges(footer.row_groups, table.key) if footer else []
                self.learn(file.subset, known.size - TRAILER - ranges[0].start if ranges else len(known.data))

    def length(self, subset: str) -> int:
        with self._lock:
            largest = self._largest.get(subset)
            more = next(self._turn) % _LENGTHS
        return more + (self._first if largest is None else largest * 5 // 4 + 4096)

    def learn(self, subset: str, footer_length: int) -> None:
        """Note the length that was needed."""
        with self._lock:
            self._largest[subset] = max(footer_length, self._largest.get(subset, 0))


@dataclass(frozen=True, slots=True)
class Taken:
    """What was fetched of a file."""

    stored: StoredFile
    facts: FileSummary | None
    """None for a footer that was stored before."""
    indexes: dict[int, Indexes] = field(default_factory=dict)
    exchange: Exchange | None = None

    @property
    def parts(self) -> list[bytes]:
        """Return the footer and the page indexes."""
        packed = b"".join(indexes.pack() for _, indexes in sorted(self.indexes.items()))
        return [self.stored.data, packed] if packed else [self.stored.data]


class Taker:
    """Fetch the footer of a file, and optionally its page indexes."""

    def __init__(
        self,
        source: PoliteSource,
        tails: Tails,
        known: Mapping[str, StoredFile],
        table: Dataset,
        *,
        pages: bool,
    ) -> None:
        """Prepare to fetch from ``source``; of files in ``known`` only page indexes."""
        self._source = source
        self._tails = tails
        self._known = known
        self._table = table
        self._pages = pages

    def take(self, file: IndexFile) -> Taken:
        """Fetch a file.

        Raises:
            SourceError: if the source fails.
            FormatError: if it is not an index file.
        """
        if known := self._known.get(file.path):
            pin = FileVersion(known.size, known.etag if known.source == self._source.url else None)
            return Taken(known, None, self._indexes(file, decode_footer(known.data, known.size), pin, b""))
        tail = get_tail(self._source, file.path, self._tails.length(file.subset))
        try:
            length = footer_length(tail.body)
            size = tail.total_size
            if length + TRAILER + 4 > size:
                message = f"the footer claims {length:,} of the file's {size:,} bytes"
                raise BadFooter(message)
            body = tail.body
            if length + TRAILER > len(body):
                rest = ByteRange(size - TRAILER - length, size - len(body))
                body = self._source.get(file.path, rest, pin=FileVersion(size, tail.etag)).body + body
            footer = body[-TRAILER - length : -TRAILER]
            facts = examine_footer(footer, size, self._table.key)
            if self._table != COMMON_CRAWL and self._table.key not in facts.column_names:
                message = f"has no column {self._table.key} to find rows by, but {', '.join(facts.column_names)}"
                raise BadFooter(message)
        except FormatError as error:
            message = f"{file.path}: {error}"
            raise type(error)(message) from error
        response = stored_response(tail, self._source, footer)
        if not self._pages:
            self._tails.learn(file.subset, length)
            return Taken(response, facts, exchange=tail.exchange)
        decoded = decode_footer(footer, size)
        ranges = index_ranges(decoded.row_groups, self._table.key)
        self._tails.learn(file.subset, size - TRAILER - ranges[0].start if ranges else length)
        indexes = self._indexes(file, decoded, FileVersion(size, tail.etag), body)
        return Taken(response, facts, indexes, tail.exchange)

    def take_apart(self, file: IndexFile) -> Taken:
        """Fetch a file on a new connection, including a stored footer."""
        with self._source.apart() as source:
            return Taker(source, self._tails, {}, self._table, pages=self._pages).take(file)

    def _indexes(self, file: IndexFile, footer: Footer, pin: FileVersion, body: bytes) -> dict[int, Indexes]:
        """Return the page indexes of a file whose last bytes are ``body``."""
        ranges = index_ranges(footer.row_groups, self._table.key)
        if not ranges:
            return {}
        start, end = ranges[0].start, max(each.end for each in ranges)
        first = pin.size - len(body)
        if start < first:
            rest = ByteRange(start, min(first, end))
            before = self._source.get(file.path, rest, pin=pin).body
            first, body = start, before + body if rest.end == first else before
        return cut_indexes(footer, self._table.key, body, first)
