"""What a footer says of an index file, and what that means for a question about one URL."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.doctor.doctor_findings import Seen
from catalogue.formatting import plural, size
from catalogue.parquet.model import Footer, RowGroup
from catalogue.parquet.summary import FileSummary, RowGroupSummary
from catalogue.query.query import CDX_COLUMNS

_PAGE_ROWS = 20_000
"""Of a page at most, as parquet-mr writes them."""
_LONGEST_WRITER = 100


def of_layout(crawl: str, facts: FileSummary, footer: Footer, length: int) -> Iterator[Seen]:
    """What is worth saying of a file.

    Args:
        crawl: which it is of.
        facts: what examining its footer found.
        footer: decoded.
        length: bytes of the footer.
    """
    groups = facts.row_groups
    yield Seen("writer", facts.created_by.strip()[:_LONGEST_WRITER] or "does not say")
    rows = f"{plural(facts.num_rows, 'row')} in {plural(len(groups), 'row group')}"
    yield Seen("footer", f"{size(length)}; {rows}, {facts.codec}, {plural(len(footer.columns), 'column')}")
    if not groups:
        return
    kinds = Counter(group.bounds_from for group in groups)
    yield Seen(
        "bounds of keys", ", ".join(f"{kind}: {count}" for kind, count in kinds.items()), _of_bounds(crawl, kinds)
    )
    depth = _depth(groups)
    if depth is not None:
        yield _order(crawl, groups, depth)
    whole, paged = _costs(footer.row_groups)
    if facts.has_page_index:
        means = f"one URL reads about {size(paged)}, where a row group would be {size(whole)}" if paged < whole else ""
        yield Seen("page index", "yes", means)
    else:
        yield Seen("page index", "none", f"one URL reads a row group, {size(whole)}, the first time; then pages of it")


def _of_bounds(crawl: str, kinds: Counter[str]) -> str:
    if kinds["missing"]:
        return f"those without are always read; catalogue backfill --only-gaps --crawl {crawl} learns them, once"
    return "of an order that other readers distrust; used here" if kinds["footer (signed)"] else ""


def _order(crawl: str, groups: Sequence[RowGroupSummary], depth: int) -> Seen:
    ends = [(group.min_key or "", group.max_key or "") for group in groups]
    if all(before[1] <= after[0] for before, after in pairwise(ends)):
        return Seen("order", "sorted", "one URL is in one row group of a file")
    means = f"one URL may be in {depth} row groups of a file; catalogue backfill --crawl {crawl} learns where, once"
    return Seen("order", "zipped: row groups have keys between those of others", means)


def _depth(groups: Sequence[RowGroupSummary]) -> int | None:
    """How many row groups a key may be in at most; None if that cannot be told."""
    ends = [
        (group.min_key, group.max_key) for group in groups if group.min_key is not None and group.max_key is not None
    ]
    if len(ends) < len(groups):
        return None
    return max(sum(least <= at <= greatest for least, greatest in ends) for at, _ in ends)


def _costs(groups: Sequence[RowGroup]) -> tuple[int, int]:
    """Bytes, about, of the usual columns of a row group, and of a page of each with the indexes that find it."""
    whole = paged = 0
    for group in groups:
        for name in CDX_COLUMNS:
            if chunk := group.chunks.get(name):
                whole += len(chunk.range)
                indexes = (chunk.column_index if name == COMMON_CRAWL.key else None, chunk.offset_index)
                paged += sum(len(index) for index in indexes if index)
                paged += len(chunk.range) * min(group.num_rows, _PAGE_ROWS) // max(1, group.num_rows)
    return whole // len(groups), paged // len(groups)
