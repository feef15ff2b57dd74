"""The parts of a plan in the order of its result: by crawl, newest first, and in a crawl by subset."""

from itertools import groupby
from typing import NamedTuple

from catalogue.commoncrawl.crawls import newest_first, subset_place
from catalogue.plan.plan import PlannedBlocks, PlannedFile, ReadPlan


class Section(NamedTuple):
    """The files of a subset of a crawl, or the blocks of a crawl, which have the rows of all subsets."""

    crawl: str
    subsets: tuple[str, ...]
    """In the order of the result."""
    files: tuple[PlannedFile, ...] = ()
    blocks: tuple[PlannedBlocks, ...] = ()


def sections(plan: ReadPlan) -> list[Section]:
    """Return the sections of a plan; all rows of one come before those of the next."""
    files = groupby(plan.files, lambda each: (each.file.crawl, each.file.subset))
    blocks = groupby(plan.blocks, lambda each: each.crawl)
    found = [Section(crawl, (subset,), files=tuple(some)) for (crawl, subset), some in files]
    if plan.blocks:
        for crawl, some in blocks:
            planned = tuple(some)
            subsets = tuple(sorted(planned[0].subsets, key=subset_place))
            found.append(Section(crawl, subsets, blocks=planned))
        places = {crawl: place for place, crawl in enumerate(newest_first(each.crawl for each in found))}
        found.sort(key=lambda each: places[each.crawl])
    return found
