"""The parts of a plan in the order of its result: by crawl, newest first, and in a crawl by subset."""

from itertools import groupby
from typing import NamedTuple

from catalogue.commoncrawl.crawls import subset_place
from catalogue.plan.crawl_plan import PlannedBlocks, PlannedFile
from catalogue.plan.plan import ReadPlan


class Section(NamedTuple):
    """The files of a subset of a crawl, or the blocks of a crawl, which have the rows of all subsets."""

    crawl: str
    subsets: tuple[str, ...]
    """In the order of the result."""
    files: tuple[PlannedFile, ...] = ()
    blocks: tuple[PlannedBlocks, ...] = ()


def sections(plan: ReadPlan) -> list[Section]:
    """Return the sections of a plan; all rows of one come before those of the next."""
    found: list[Section] = []
    for each in plan.crawls:
        of_subsets = groupby(each.files, lambda file: file.file.subset)
        found += [Section(each.crawl, (subset,), files=tuple(files)) for subset, files in of_subsets]
        if each.blocks:
            subsets = tuple(sorted(each.blocks[0].subsets, key=subset_place))
            found.append(Section(each.crawl, subsets, blocks=each.blocks))
    return found
