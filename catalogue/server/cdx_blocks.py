"""Lines of the CDX index from blocks in memory, or by one request for a block."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.block_lines import written_lines
from catalogue.cdx.blocks import Block, inflate_blocks
from catalogue.cdx.cluster import BlockList, BlockRead
from catalogue.errors import FileChanged, Forbidden, FormatError, NotFound, StoreError
from catalogue.query.key_intervals import Intervals
from catalogue.server.memory import Memory
from catalogue.session import Session
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import CachedSource
from catalogue.surt import KeyInterval

_MAX_BLOCKS = 8
"""Results of more blocks are read like other queries."""


def lines_of_blocks(
    session: Session, crawl: str, intervals: Sequence[KeyInterval], memory: Memory, state: str
) -> list[str] | None:
    """Return all lines of disjoint ascending intervals of keys, in order.

    None if the list of blocks is not stored, if another way may be cheaper than these blocks, or if they cannot be
    read because something is damaged or was replaced: a query of both indexes then finds what to do.

    Raises:
        SourceError: if the source fails.
    """
    with suppress(FormatError, StoreError, FileChanged, NotFound, Forbidden):
        listed = session.block_lists.get(crawl)
        if isinstance(listed, StoredList):
            return _lines(session, listed, intervals, memory, state)
    return None


def _lines(
    session: Session, listed: StoredList, intervals: Sequence[KeyInterval], memory: Memory, state: str
) -> list[str] | None:
    found: list[str] = []
    requested = False
    for interval in intervals:
        part = listed.find(interval)
        places = part.blocks_for(interval)
        if len(places) > _MAX_BLOCKS:
            return None
        blocks = {place: memory.block(state, part.path(place), part.extent(place).start) for place in places}
        missing = [place for place, block in blocks.items() if block is None]
        if missing:
            first, *others = part.reads(range(missing[0], missing[-1] + 1))
            if requested or others or not _is_cheapest(session, part, first):
                return None
            requested = True
            for place, fetched in zip(first.blocks, _fetch(session, part, first), strict=True):
                memory.keep_block(state, fetched)
                blocks[place] = fetched
        for block in blocks.values():
            if block is None:
                return None
            for lines in block.find(Intervals([interval])):
                found += written_lines(listed.crawl, lines)
    found.sort()
    return found


def _is_cheapest(session: Session, part: BlockList, read: BlockRead) -> bool:
    """Return whether nothing can be cheaper than one request: it is cached or small, or no footers are stored."""
    if len(read.range) <= session.cost().max_gap or part.crawl not in session.metadata().requested_crawls:
        return True
    source, pin = session.reading, session.block_lists.version(part.crawl, read.path)
    return pin is not None and isinstance(source, CachedSource) and source.is_cached(read.path, pin, read.range)


def _fetch(session: Session, part: BlockList, read: BlockRead) -> Iterator[Block]:
    lists = session.block_lists
    response = session.reading.get(read.path, read.range, pin=lists.version(part.crawl, read.path))
    if response.etag:
        lists.note_version(part.crawl, read.path, FileVersion(response.total_size, response.etag))
        lists.save_versions()
    return inflate_blocks(part, read, response.body, response.total_size)
