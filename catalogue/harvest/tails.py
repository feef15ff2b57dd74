"""Fetch the ends of files, with footers and page indexes."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

from catalogue.commoncrawl.datasets import IndexFile
from catalogue.errors import FormatError
from catalogue.parquet.footer import USUAL_TAIL, decode_footer, examine_footer, footer_length
from catalogue.parquet.model import TRAILER, Footer, RowGroup
from catalogue.parquet.page_index import Indexes, cut_indexes, has_damage
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.retry import get_tail
from catalogue.store.database import encode_indexes
from catalogue.store.layout import StoredFile, encode, version_of
from catalogue.store.stored_lists import stored_response
from catalogue.tables.make_table import FooterRows, rows_of_footer

if TYPE_CHECKING:
    from catalogue.session import Session

FIRST_TAIL_WITH_PAGES = 1 << 20
"""Bytes of the first tails with page indexes: about 0.9 MB for 11 row groups of 30 columns, and the footer."""

_SPARE = 16
"""A tail is longer than the largest footer so far, with page indexes, by this part of it; few files exceed that."""
_LENGTHS = 256
"""Added in turn, so that a response to the request before or after states another range."""
_DECODING = Lock()
"""Held while a footer is decoded or encoded, since threads that decode at the same time only wait for each other."""


def index_span(groups: Iterable[RowGroup], key: str) -> ByteRange | None:
    """Return the range with all page indexes that are stored; None if there are none."""
    groups = list(groups)
    keys = (group.chunks[key].column_index for group in groups if key in group.chunks)
    located = (chunk.offset_index for group in groups for chunk in group.chunks.values())
    found = [at for at in (*keys, *located) if at]
    return ByteRange(min(at.start for at in found), max(at.end for at in found)) if found else None


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """What was fetched of a file, encoded for the store."""

    value: bytes
    """The value with the footer; empty if it was stored before."""
    version: StoredFile
    """The stored file, of which the footer is not used."""
    indexes: Mapping[int, bytes] = field(default_factory=dict)
    """Page indexes by row group."""
    rows: FooterRows | None = None
    """Its rows in the table of the crawl."""


class FooterFetcher:
    """Fetches footers, and with ``pages`` page indexes, by tails.

    A tail is a little longer than the largest footer of the crawl and subset so far, with page indexes.
    """

    def __init__(
        self, session: "Session", stored: Sequence[str], known: Mapping[str, StoredFile], *, pages: bool
    ) -> None:
        """Learn the length of tails from ``stored`` files; of the files in ``known`` only page indexes are missing."""
        self._source, self._dataset = session.source, session.dataset
        self._known = known
        self._pages = pages
        self._largest: dict[str, int] = {}
        self._turn = count()
        for path in stored[::10]:
            value, file = session.store.undamaged("files", path), session.dataset.file(path)
            if value and file:
                groups = decode_footer(value.data, value.size).row_groups if pages else ()
                self._learn(file.subset, value.size, len(value.data), index_span(groups, session.dataset.key))

    def length(self, subset: str) -> int:
        largest, more = self._largest.get(subset), next(self._turn) % _LENGTHS
        if largest is None:
            return more + (FIRST_TAIL_WITH_PAGES if self._pages else USUAL_TAIL)
        return more + largest + largest // _SPARE + 4096

    def _learn(self, subset: str, size: int, footer_length: int, indexes: ByteRange | None) -> None:
        needed = size - TRAILER - indexes.start if indexes else footer_length
        self._largest[subset] = max(needed, self._largest.get(subset, 0))

    def fetch(self, file: IndexFile) -> FetchedFile:
        if known := self._known.get(file.path):
            footer = decode_footer(known.data, known.size)
            span = index_span(footer.row_groups, self._dataset.key)
            indexes = self._indexes(file, footer, span, known.version, b"")
            return FetchedFile(b"", known, encode_indexes(indexes, known))
        tail = get_tail(self._source, file.path, self.length(file.subset))
        version = tail.version
        try:
            length = footer_length(tail.body, version.size)
            body = tail.body
            if length + TRAILER > len(body):
                rest = ByteRange(version.size - TRAILER - length, version.size - len(body))
                body = self._source.get(file.path, rest, pin=version).body + body
            data = body[-TRAILER - length : -TRAILER]
            with _DECODING:
                footer = examine_footer(data, version.size, self._dataset.key)
        except FormatError as error:
            message = f"{file.path}: {error}"
            raise type(error)(message) from error
        span = index_span(footer.row_groups, self._dataset.key) if self._pages else None
        indexes = self._indexes(file, footer, span, version, body)
        with _DECODING:
            self._learn(file.subset, version.size, length, span)
            stored = stored_response(tail, self._source, data)
            value, rows = encode(stored), None
            with suppress(OverflowError):  # which is reported where the table is made
                rows = rows_of_footer(self._dataset.key, file, stored, version_of(value), footer)
            known = replace(stored, data=b"")
            return FetchedFile(value, known, encode_indexes(indexes, known), rows)

    def _indexes(
        self, file: IndexFile, footer: Footer, span: ByteRange | None, pin: FileVersion, body: bytes
    ) -> dict[int, Indexes]:
        if span is None:
            return {}
        found: dict[int, Indexes] = {}
        for tail in (body, b""):  # a response may be damaged
            read, first = tail, pin.size - len(tail)
            if span.start < first:
                rest = ByteRange(span.start, min(first, span.end))
                before = self._source.get(file.path, rest, pin=pin).body
                first, read = span.start, before + read if rest.end == first else before
            found = cut_indexes(footer, self._dataset.key, read, first)
            if not has_damage(found, footer, self._dataset.key, keys_only=True):
                break
        return found
