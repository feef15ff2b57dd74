"""What to do next, by what is stored."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from catalogue.commoncrawl.crawls import has_columnar_index, newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import QueryError
from catalogue.formatting import format_cost, plural, without_key_range
from catalogue.reports import coverage_rows
from catalogue.session import Session
from catalogue.store.stored_lists import crawl_list_age, listed_crawls

_OLD_LIST = timedelta(days=45)
"""Age of a list of crawls after which about one crawl is missing."""
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
            from catalogue.harvest.backfill import prepare_backfill

            price = format_cost(prepare_backfill(session, "all").estimate)
    listed = listed_crawls(session.store) if session.dataset == COMMON_CRAWL else {}
    age = crawl_list_age(session.store) if listed else None
    return list(steps(session.dataset, coverage, listed, age, price))


def steps(
    dataset: Dataset,
    coverage: Sequence[Mapping[str, Any]],
    listed: Collection[str],
    list_age: timedelta | None,
    price: str,
) -> Iterator[Step]:
    """Yield what to do, the most urgent first.

    ``coverage`` has the rows of the query of this name, and ``listed`` the known crawls, newest first; None as
    ``list_age`` means that there is no such list. ``price`` is the cost of finding missing bounds, in words; empty if
    unknown.
    """
    stored = newest_first(row["crawl"] for row in coverage if row["files_harvested"])
    incomplete: dict[str, dict[str, int]] = {}
    for row in coverage:
        count = 0 if row["files_listed"] is None else int(row["files_listed"]) - row["files_harvested"]
        if row["files_failed"] or (row["requested"] and count > 0):
            incomplete.setdefault(row["crawl"], {})[row["subset"]] = max(count, row["files_failed"])
    for crawl in newest_first(incomplete):
        count = sum(incomplete[crawl].values())
        failed = sum(row["files_failed"] for row in coverage if row["crawl"] == crawl)
        why = f"{plural(count, 'file')} of {crawl} {'is' if count == 1 else 'are'} not harvested"
        yield Step(
            f"{why}; {failed:,} of them failed" if failed else why, dataset.harvest_command(crawl, incomplete[crawl])
        )
    harvestable = [crawl for crawl in newest_first(listed) if has_columnar_index(crawl)]
    if not stored and not incomplete:
        crawl = harvestable[0] if harvestable else "latest" if dataset == COMMON_CRAWL else dataset.name
        yield Step("no footers are stored yet", dataset.harvest_command(crawl))
    if unbounded := sum(row["without_bounds"] for row in coverage):
        command = "catalogue backfill" + ("" if dataset == COMMON_CRAWL else f" --table {dataset.name}")
        why = without_key_range(unbounded)
        yield (
            Step(f"{why}; reading their keys once takes {price}", command)
            if price
            else Step(why, f"{command} --dry-run")
        )
    if stored and harvestable and newest_first([stored[0], harvestable[0]])[0] != stored[0]:
        yield Step(f"{harvestable[0]} is newer than all stored crawls", dataset.harvest_command(harvestable[0]))
    if list_age is not None and list_age > _OLD_LIST:
        yield Step(f"the list of crawls is {list_age.days} days old", "catalogue crawls")
