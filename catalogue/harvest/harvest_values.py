"""Fetch dictionary pages, which have the values of row groups."""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import OF_ONE_FILE, QueryError
from catalogue.formatting import join_first, plural, size
from catalogue.harvest.harvest import VALUES, Harvested
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.progress import Progress, Report
from catalogue.query.arguments import comma_separated
from catalogue.query.resolved_query import check_columns
from catalogue.session import Session
from catalogue.source.parallel import run_ahead
from catalogue.store.stored_lists import note_values

ALL_VALUES = (
    *("content_mime_detected", "content_mime_type", "content_languages", "content_charset", "fetch_status"),
    "url_host_tld",
)
"""The columns of Common Crawl's index whose values ``all`` means."""


def value_columns(session: Session, names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the columns that are named, or that ``all`` means.

    Raises:
        QueryError: if one does not exist, or has no values that can be stored.
    """
    words = comma_separated(names, "values")
    if words == ["all"]:
        if session.dataset != COMMON_CRAWL:
            raise QueryError(f"name the columns of {session.dataset.name} whose values are to be stored")
        return ALL_VALUES
    known = session.metadata().columns() if session.store_path.exists() else {}
    columns = check_columns(words, known, session.dataset)
    if unsuitable := [name for name in columns if name in {session.dataset.key, *session.dataset.path_columns}]:
        raise QueryError(f"the values of {unsuitable[0]} need not be stored, as queries find them without")
    return columns


def harvest_values(
    session: Session, crawl: str, columns: Sequence[str], subsets: Sequence[str], report: Report
) -> Harvested:
    """Fetch and store the dictionary pages of columns that are not stored; footers must be stored.

    Raises:
        SourceUnavailable: if the source failed; what was fetched before is stored.
        StoreLocked: if another process harvests this crawl.
    """
    index = dictionary_index(session, crawl, subsets)
    listed = index.dictionary_pages(columns)
    at = Progress(crawl, listed, listed)
    outcome = Harvested(at, index=VALUES)
    spent, started = session.spending(), time.monotonic()

    with session.store.harvesting(crawl):
        requests = index.missing_dictionaries(columns)
        at.done -= sum(len(request.parts) for request in requests)
        if requests:
            received = sum(len(request.range) for request in requests)
            session.notify(
                f"{crawl}: {plural(len(requests), 'request')}, about {size(received)}, for the values of "
                f"{join_first(columns, len(columns))}"
            )
        report(at)
        try:
            while requests:  # pages of unknown length may be cut short
                threads = session.source.connections
                with closing(run_ahead(threads, index.fetch, requests, in_order=False)) as calls:
                    for request, call in calls:
                        try:
                            answer = call.result()
                        except OF_ONE_FILE as error:
                            outcome.failures[request.path] = str(error)
                            at.failed += len(request.parts)
                        else:
                            index.take(request, answer)
                            names = {f"{request.path}#{part.row_group}:{part.column}" for part in request.parts}
                            outcome.fetched |= names
                            at.done = min(at.listed, at.done + len(names))
                        at.requests, at.bytes = spent()
                        at.seconds = time.monotonic() - started
                        report(at)
                left = index.missing_dictionaries(columns)
                requests = tuple(each for each in left if each.path not in outcome.failures)
        finally:
            index.save()
            note_values(session.store, crawl)
    return outcome


def dictionary_index(session: Session, crawl: str, subsets: Sequence[str]) -> ColumnarIndex:
    files = session.metadata().files(crawl, subsets if session.dataset == COMMON_CRAWL else ())
    count, source = sum(len(file.ordinals) for file in files), (lambda: session.source)
    return ColumnarIndex(crawl, lambda: files, count, session.page_indexes, source, session.cost(), must_store=True)
