"""What to do next, by what is held."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from catalogue.commoncrawl.crawls import has_columnar_index, newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.formatting import plural

_OLD_LIST = timedelta(days=45)
"""Of the list of crawls, in which there is a new one about once a month."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is worth doing."""

    why: str
    command: str


def steps(
    table: Dataset,
    coverage: Sequence[Mapping[str, Any]],
    listed: Sequence[str],
    list_age: timedelta | None,
    price: str,
) -> Iterator[Step]:
    """What is worth doing, the most urgent first.

    Args:
        table: of the files.
        coverage: how much of each crawl and subset is held, as the query of that name says.
        listed: the crawls that there are, newest first, as far as that is known.
        list_age: of that knowledge; None if there is none.
        price: of learning the bounds that are missing, in words; empty if it is not known.
    """
    held = newest_first(row["crawl"] for row in coverage if row["files_harvested"])
    incomplete: dict[str, dict[str, int]] = {}
    failed: Counter[str] = Counter()
    for row in coverage:
        count = 0 if row["files_listed"] is None else int(row["files_listed"]) - row["files_harvested"]
        if row["files_failed"] or (row["requested"] and count > 0):
            incomplete.setdefault(row["crawl"], {})[row["subset"]] = max(count, row["files_failed"])
            failed[row["crawl"]] += row["files_failed"]
    for crawl in newest_first(incomplete):
        subsets = incomplete[crawl]
        why = (
            f"{plural(count := sum(subsets.values()), 'file')} of {crawl} {'is' if count == 1 else 'are'} not harvested"
        )
        if failed[crawl]:
            why += f"; {failed[crawl]:,} of them failed"
        yield Step(why, table.harvest_command(crawl, subsets))
    there_are = [crawl for crawl in newest_first(listed) if has_columnar_index(crawl)]
    if not held and not incomplete:
        such = there_are[0] if there_are else "latest" if table == COMMON_CRAWL else table.name
        yield Step("nothing is harvested yet", table.harvest_command(such))
    if unbounded := sum(row["without_bounds"] for row in coverage):
        options = "" if table == COMMON_CRAWL else f" --table {table.name}"
        why = f"{plural(unbounded, 'row group')} without bounds, which every question reads"
        if price:
            yield Step(f"{why}; to learn them takes {price}", f"catalogue backfill --only-gaps{options}")
        else:
            yield Step(why, f"catalogue backfill --only-gaps{options} --dry-run")
    if held and there_are and newest_first([held[0], there_are[0]])[0] != held[0]:
        yield Step(f"{there_are[0]} is newer than all that is held", table.harvest_command(there_are[0]))
    if list_age is not None and list_age > _OLD_LIST:
        yield Step(f"the list of crawls is {list_age.days} days old", "catalogue crawls")
