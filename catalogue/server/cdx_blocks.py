"""Lines of the CDX index from blocks in memory, or from the blocks of a plan."""

from collections.abc import Iterable, Sequence
from contextlib import closing

from catalogue.captures import Captures
from catalogue.cdx.block_file import StoredList
from catalogue.cdx.blocks import Block, inflate_blocks
from catalogue.cdx.rows import written_lines
from catalogue.query.key_intervals import Intervals, KeyIntervals
from catalogue.read.block_reader import fetch_blocks
from catalogue.read.streams import ReadEvents
from catalogue.server.memory import Memory
from catalogue.session import Session
from catalogue.surt import KeyInterval

MAX_BLOCKS = 8
"""Results of more blocks are read as rows, without keeping their blocks."""


def lines_in_memory(
    session: Session, crawl: str, intervals: Sequence[KeyInterval], memory: Memory, state: str
) -> list[str] | None:
    """Return all lines of disjoint ascending intervals of keys, in order, if all of their blocks are in memory.

    None if they are not, or if the list of blocks is not stored.
    """
    listed = session.block_lists.get(crawl)
    if not isinstance(listed, StoredList):
        return None
    blocks: dict[int, Block] = {}
    for interval in intervals:
        part = listed.find(interval)
        for place in part.blocks_for(interval):
            block = memory.block(state, part.path(place), part.extent(place).start)
            if block is None:
                return None
            blocks[part.number(place)] = block
    return _lines(crawl, blocks.values(), Intervals(intervals))


def read_lines(session: Session, crawl: str, captures: Captures, memory: Memory, state: str) -> list[str] | None:
    """Return all lines of captures, in order; their blocks are kept in memory.

    None if the plan does not read a few blocks alone.

    Raises:
        SourceError: if a request fails.
        BadCdx: if a block or line is invalid.
    """
    plan = captures.plan
    if not plan.is_ready or not plan.blocks or plan.block_count > MAX_BLOCKS:
        return None
    question = captures.question
    events, blocks = ReadEvents(note_version=question.note_version), list[Block]()
    with closing(fetch_blocks(plan, question.source(), session.request_threads, events)) as fetched:
        for request, response in fetched:
            blocks += inflate_blocks(request.planned.blocks, request.read, response.body, response.total_size)
    question.finish()
    for block in blocks:
        memory.keep_block(state, block)
    return _lines(crawl, blocks, question.query.intervals)


def _lines(crawl: str, blocks: Iterable[Block], intervals: KeyIntervals) -> list[str]:
    return sorted(line for block in blocks for lines in block.find(intervals) for line in written_lines(crawl, lines))
