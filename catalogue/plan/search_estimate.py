"""What a search in a list of blocks costs, before anything is read of the list."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.cluster import MAX_READ
from catalogue.cdx.list_search import (
    COMPLETE_GAP,
    NEXT_SEARCH,
    PREDICTED_SEARCH,
    PROBE,
    SEARCH_BY_ROW_GROUPS,
    START,
    USUAL,
    Predictor,
)
from catalogue.errors import StoreError
from catalogue.plan.crawl_plan import ListSearch
from catalogue.surt import KeyInterval

_USUAL_SIZE = 100_000_000
"""Bytes of most lists of Common Crawl."""
_LINE = 84
"""Bytes of a usual line."""
_WIDE, _NARROW = 0.005, 0.002
"""Shares of a list: one that may cost more than a search, and one that predictions cannot tell from 0."""


class ListFigures(NamedTuple):
    """What is expected of a list."""

    size: int | None = None
    """Bytes; None if nothing like it is known."""
    block: int = 250_000
    """Bytes of a block, and of some that are read with it."""


def predict_like(other: StoredList) -> Predictor:
    """Predict by the list of another crawl; where it is damaged, by usual shares."""

    def share(key: bytes) -> float:
        with suppress(StoreError):
            return other.share(key)
        return USUAL.share(key)

    return Predictor(share)


def estimate_search(
    intervals: Iterable[KeyInterval],
    unknown: Sequence[KeyInterval],
    predictor: Predictor,
    figures: ListFigures,
    *,
    is_begun: bool,
) -> ListSearch:
    """Estimate the search for ascending intervals, and the reads of their blocks.

    Args:
        intervals: all intervals of a query.
        unknown: those whose lines are not known.
        predictor: what the search uses.
        figures: what is expected of the list.
        is_begun: an earlier search has read parts of the list.
    """
    by_row_groups = predictor.size is not None
    later = SEARCH_BY_ROW_GROUPS if by_row_groups else NEXT_SEARCH if predictor.rough else PREDICTED_SEARCH
    first = later if is_begun or by_row_groups else START + later
    size = predictor.size if figures.size is None else figures.size
    shares = _shares(unknown, predictor)
    searches = _distant(shares, PROBE / (size or _USUAL_SIZE))
    requests = first.requests + (searches - 1) * later.requests
    received = first.bytes + (searches - 1) * later.bytes
    if figures.size is not None:
        pieces = -(-max(0, figures.size - PROBE) // COMPLETE_GAP)  # one request reads all of a piece
        requests = min(requests, 1 + pieces, searches * (1 + pieces.bit_length()))
        received = min(received, figures.size)
    listed = sum(int(max(0.0, end - start - _NARROW) * (size or 0)) for start, end in shares)
    reads = _distant(_shares(intervals, predictor), 2 * _LINE / (size or _USUAL_SIZE))
    blocks = listed // _LINE * figures.block
    return ListSearch(
        requests + reads + blocks // MAX_READ,
        received + reads * figures.block + listed + blocks,
        requests,
        received + listed,
        size is None and any(end - start > _WIDE for start, end in shares),
    )


def _shares(intervals: Iterable[KeyInterval], predictor: Predictor) -> list[tuple[float, float]]:
    return [(predictor.share(each.start), predictor.share(each.end)) for each in intervals]


def _distant(shares: Iterable[tuple[float, float]], gap: float) -> int:
    """Count intervals that are not next to the one before them, as those of a host and of its subdomains are."""
    return 1 + sum(start - before > gap for (_, before), (start, _) in pairwise(shares))
