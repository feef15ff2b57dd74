"""What to do next, by what is stored."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from catalogue.commoncrawl.crawls import has_columnar_index, newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import QueryError
from catalogue.formatting import plural, size
from catalogue.harvest.backfill import prepare_backfill
from catalogue.reports import coverage_rows
from catalogue.session import Session
from catalogue.store.stored_lists import crawl_list_age, known_crawls

_OLD_LIST = timedelta(days=45)
"""Age of a list of crawls that lacks about one crawl."""
_PRICED = 500
"""Row groups up to which the cost of a backfill is estimated; more take too long."""


@dataclass(frozen=True, slots=True)
class Step:
    """A reason to do something, and the command that does it."""

    why: str
    command: str


def next_steps(session: Session) -> list[Step]:
    """Return what to do next, the most urgent first; no request is made."""
    coverage = coverage_rows(session)
    price = ""
    with suppress(QueryError):  # of an invalid source
        if 0 < sum(row["without_bounds"] for row in coverage) <= _PRICED:
            needed = prepare_backfill(session, only_gaps=True).estimate
            price = f"{plural(needed.requests, 'request')}, {size(needed.bytes)}, about {needed.seconds:.0f} s"
    listed = known_crawls(session.store) if session.dataset == COMMON_CRAWL else []
    age = crawl_list_age(session.store) if listed else None
    return list(steps(session.dataset, coverage, listed, age, price))


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
    stored = newest_first(row["crawl"] for row in coverage if row["files_harvested"])
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
    if not stored and not incomplete:
        such = there_are[0] if there_are else "latest" if table == COMMON_CRAWL else table.name
        yield Step("nothing is harvested yet", table.harvest_command(such))
    if unbounded := sum(row["without_bounds"] for row in coverage):
        options = "" if table == COMMON_CRAWL else f" --table {table.name}"
        why = f"{plural(unbounded, 'row group')} without bounds, which every question reads"
        if price:
            yield Step(f"{why}; to learn them takes {price}", f"catalogue backfill --only-gaps{options}")
        else:
            yield Step(why, f"catalogue backfill --only-gaps{options} --dry-run")
    if stored and there_are and newest_first([stored[0], there_are[0]])[0] != stored[0]:
        yield Step(f"{there_are[0]} is newer than all stored crawls", table.harvest_command(there_are[0]))
    if list_age is not None and list_age > _OLD_LIST:
        yield Step(f"the list of crawls is {list_age.days} days old", "catalogue crawls")
