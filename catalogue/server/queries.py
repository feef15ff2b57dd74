"""What programs ask over HTTP, as values that JSON has words for.

Whoever asks is a stranger: no SQL of theirs is run, and what a question may cost is bounded before it is answered.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalogue.captures import Captures
from catalogue.catalogue import Catalogue
from catalogue.errors import NotHarvested, TooExpensive
from catalogue.formatting import plain
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.query.filters import Filters
from catalogue.reports import coverage_rows, disk_sizes
from catalogue.selection import stored_crawls
from catalogue.settings import package_version
from catalogue.surt import Match

MOST_ROW_GROUPS, MOST_FOUND = 2000, 100_000
"""That a question may reach into: each is decoded for its plan, which takes milliseconds. And that a pattern may be
found in, which is only told of."""
MOST_REQUESTS, MOST_BYTES = 1000, 1 << 30
"""That reading may take, where a limit does not end it early for sure."""
MOST_FETCHES = 10_000
"""That a plan is told with."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about captures."""

    url: str
    crawls: tuple[str, ...] = ("all",)
    match: Match | None = None
    from_: str | None = None
    to: str | None = None
    filters: Filters = field(default_factory=Filters)
    columns: str | None = None
    """Comma-separated, or ``*``; None for those of the CDX index."""
    limit: int | None = None


def plan_of(catalogue: Catalogue, asked: Asked) -> dict[str, Any]:
    """What answering takes, and what is read of which file; nothing is fetched.

    Returns:
        ``plan`` as ``ReadPlan.summary`` has it; ``files``, each with ``path``, ``crawl``, ``subset``, ``row_groups``,
        ``awaited`` (row groups whose page index is fetched first, so that their reads are not known yet) and
        ``plan_requests`` (see ``_told``); and ``files_left_out``, whose fetches would have been too many to tell of.

    Raises:
        QueryError: if it cannot be understood; ``TooExpensive`` if it reaches too far.
    """
    plan = _bounded(_captures(catalogue, asked)).plan
    waves = [plan.indexes, *plan.waves]
    files: dict[str, dict[str, Any]] = {}
    for path in plan.paths:
        file = plan.query.table.file(path)
        about = {"path": path, "crawl": file.crawl if file else None, "subset": file.subset if file else None}
        files[path] = {**about, "row_groups": [], "awaited": [], "fetches": []}
    for read in plan.files:
        files[read.file.path]["row_groups"] += [group.ordinal for group in read.row_groups]
    for awaited in plan.awaited:
        files[awaited.path]["awaited"].append(awaited.row_group)
    for wave, fetches in enumerate(waves):
        for fetch in fetches:
            files[fetch.path]["fetches"].append(_told(fetch, wave))
    room = MOST_FETCHES
    shown: list[dict[str, Any]] = []
    for each in files.values():
        room -= len(each["fetches"])
        if room < 0 and shown:
            break
        shown.append(each)
    return {"plan": plan.summary(), "files": shown, "files_left_out": len(files) - len(shown)}


def _told(fetch: PlannedRequest, wave: int) -> dict[str, Any]:
    """A request: bytes ``offset`` to ``offset + length - 1``; waves go out one after the other, 0 that of indexes."""
    return {
        "wave": wave,
        "offset": fetch.range.start,
        "length": len(fetch.range),
        "row_groups": sorted({part.row_group for part in fetch.parts}),
        "columns": sorted({part.column for part in fetch.parts}),
        "cached": fetch.cached,
    }


def captures_of(catalogue: Catalogue, asked: Asked) -> dict[str, Any]:
    """The captures that are asked for.

    Returns:
        ``captures``, rows by name of column; ``limited``, whether there may be more than the limit let through;
        ``complete`` and ``missing``, whether all is held that might match and what is not; ``plan`` as it was before
        anything was read; ``requests`` made meanwhile, and ``bytes`` received, by whoever shares the source.

    Raises:
        QueryError: if it cannot be understood; ``TooExpensive`` if it takes too much.
        SourceError: if something planned could not be read.
    """
    captures = _bounded(_captures(catalogue, asked))
    plan = captures.plan
    _check_cost(plan)
    requests, size = catalogue.requests, catalogue.bytes
    rows = [plain(row) for batch in captures.batches(warn=False) for row in batch.to_pylist()]
    return {
        "captures": rows,
        "limited": len(rows) == asked.limit,
        "complete": captures.complete,
        "missing": list(plan.missing),
        "plan": plan.summary(),
        "requests": catalogue.requests - requests,
        "bytes": catalogue.bytes - size,
    }


def row_groups_of(
    catalogue: Catalogue, crawls: Sequence[str], key: str | None, after: tuple[str, int], limit: int
) -> dict[str, Any]:
    """Rows of the view ``row_groups``, by path and number.

    Args:
        catalogue: to look into.
        crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
        key: a pattern; then only those that might hold keys of it.
        after: path and number behind which to begin.
        limit: of rows.

    Returns:
        ``row_groups``, and ``next``, the last of them as ``PATH:NUMBER`` if there are more.
    """
    held, places = stored_crawls(catalogue.session, crawls), []
    if key is not None:
        scope = _bounded(catalogue.captures(key, crawls=held), MOST_FOUND).question.scope
        places = [(each.path, ordinal) for each in scope.candidates for ordinal, _ in each.row_groups]
    chosen = "SEMI JOIN asked USING (path, row_group)" if key is not None else ""
    asked = pa.table(
        {
            "path": pa.array([path for path, _ in places], pa.string()),
            "row_group": pa.array([ordinal for _, ordinal in places], pa.int64()),
        }
    )
    with catalogue.connect() as connection:
        connection.register("asked", asked)
        found = connection.execute(
            f"SELECT * FROM row_groups {chosen} "  # noqa: S608 - one of two constants
            "WHERE list_contains($1, crawl) AND (path > $2 OR (path = $2 AND row_group > $3)) "
            "ORDER BY path, row_group LIMIT $4",
            [held, *after, limit + 1],
        )
        names = [column[0] for column in found.description or ()]
        rows = [plain(dict(zip(names, row, strict=True))) for row in found.fetchall()]
    last = rows[limit - 1] if len(rows) > limit else None
    return {"row_groups": rows[:limit], "next": f"{last['path']}:{last['row_group']}" if last else None}


def status_of(catalogue: Catalogue, spent: tuple[int, int]) -> dict[str, Any]:
    """What is held.

    Args:
        catalogue: that holds it.
        spent: requests so far, and bytes received.

    Returns:
        ``coverage``, a row a crawl and subset: files listed, harvested and failed, row groups, those of them without
        bounds, rows and bytes; ``sizes`` in bytes of the store and the catalogue; ``requests``, ``bytes``, ``version``.
    """
    coverage: list[Any] = []
    store, shown = 0, 0
    with suppress(NotHarvested):
        coverage = coverage_rows(catalogue.session)
        store, shown = disk_sizes(catalogue.session)
    return {
        "coverage": plain(coverage),
        "sizes": {"store": store, "catalogue": shown},
        "requests": spent[0],
        "bytes": spent[1],
        "version": package_version(),
    }


def _captures(catalogue: Catalogue, asked: Asked) -> Captures:
    names = asked.columns
    return catalogue.captures(
        asked.url,
        crawls=asked.crawls,
        columns=names.split(",") if names and names != "*" else names,
        status=asked.filters.status,
        mime=asked.filters.mime,
        lang=asked.filters.lang,
        from_=asked.from_,
        to=asked.to,
        limit=asked.limit,
        match=asked.match,
    )


def _bounded(captures: Captures, most: int = MOST_ROW_GROUPS) -> Captures:
    """The same, if it does not reach into too many row groups."""
    groups = sum(len(each.row_groups) for each in captures.question.scope.candidates)
    if groups > most:
        message = f"that reaches into {groups:,} row groups, and {most:,} are the most here; ask about less"
        raise TooExpensive(message)
    return captures


def _check_cost(plan: ReadPlan) -> None:
    """Refuse what would take long for sure; where nothing but keys decides, a limit is reached soon."""
    requests, size = plan.requests, plan.bytes
    if plan.stops_early and plan.query.keys_decide:
        requests, size = len(plan.indexes), sum(len(fetch.range) for fetch in plan.indexes)
    if requests > MOST_REQUESTS or size > MOST_BYTES:
        message = (
            f"that takes up to {requests:,} requests and {size:,} bytes, and {MOST_REQUESTS:,} and {MOST_BYTES:,} are "
            "the most here; ask about fewer URLs, crawls or columns"
        )
        raise TooExpensive(message)
