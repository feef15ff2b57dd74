"""Answers of the JSON API as plain values. Clients send no SQL, and the cost of a query is limited."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from catalogue.captures import Captures, find_captures
from catalogue.catalogue import Catalogue
from catalogue.errors import NotHarvested, TooExpensive
from catalogue.formatting import to_json
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.query.query import Query
from catalogue.settings import package_version
from catalogue.stored import coverage_rows, disk_sizes, stored_crawls

MAX_ROW_GROUPS, MAX_LISTED = 2000, 100_000
"""Row groups of a query, each of which takes milliseconds to plan; and of a list of row groups."""
MAX_REQUESTS, MAX_BYTES = 1000, 1 << 30
"""Cost of a query, unless a limit certainly ends it early."""
MAX_PLANNED_FETCHES = 10_000


def plan_answer(catalogue: Catalogue, query: Query) -> dict[str, Any]:
    """Plan a query without fetching anything.

    Raises:
        TooExpensive: if it reaches too many row groups.
    """
    plan = _limited(find_captures(catalogue.session, query)).plan
    files: dict[str, dict[str, Any]] = {}
    for path in plan.paths:
        file = plan.query.table.file(path)
        about = {"path": path, "crawl": file.crawl if file else None, "subset": file.subset if file else None}
        files[path] = {**about, "row_groups": [], "awaited": [], "fetches": []}
    for read in plan.files:
        files[read.file.path]["row_groups"] += [group.ordinal for group in read.row_groups]
    for awaited in plan.awaited:
        files[awaited.path]["awaited"].append(awaited.row_group)
    for wave, requests in enumerate([plan.indexes, *plan.waves]):
        for request in requests:
            files[request.path]["fetches"].append(_fetch(request, wave))
    room = MAX_PLANNED_FETCHES
    shown: list[dict[str, Any]] = []
    for each in files.values():
        room -= len(each["fetches"])
        if room < 0 and shown:
            break
        shown.append(each)
    return {"plan": plan.summary(), "files": shown, "files_left_out": len(files) - len(shown)}


def query_answer(catalogue: Catalogue, query: Query) -> dict[str, Any]:
    """Find captures.

    Raises:
        TooExpensive: if it costs too much.
        SourceError: if a planned range could not be read.
    """
    captures = _limited(find_captures(catalogue.session, query))
    plan = captures.plan
    _check_cost(plan)
    requests, size = catalogue.requests, catalogue.bytes
    rows = [to_json(row) for batch in captures.batches(warn=False) for row in batch.to_pylist()]
    return {
        "captures": rows,
        "limited": len(rows) == query.limit,
        "complete": captures.complete,
        "missing": list(plan.missing),
        "plan": plan.summary(),
        "requests": catalogue.requests - requests,
        "bytes": catalogue.bytes - size,
    }


def row_groups_answer(
    catalogue: Catalogue, crawls: Sequence[str], key: str | None, after: tuple[str, int], limit: int
) -> dict[str, Any]:
    """List row groups by path and number.

    Args:
        catalogue: where they are stored.
        crawls: names, years, ranges ``A..B``, ``latest`` or ``all``.
        key: a pattern, to list only row groups that may contain its keys.
        after: path and number before the first.
        limit: rows.
    """
    stored, places = stored_crawls(catalogue.session, crawls), []
    if key is not None:
        scope = _limited(catalogue.captures(key, crawls=stored), MAX_LISTED).question.scope
        places = [(each.path, ordinal) for each in scope.candidates for ordinal, _ in each.row_groups]
    semi_join = "SEMI JOIN selected USING (path, row_group)" if key is not None else ""
    selected = pa.table(
        {
            "path": pa.array([path for path, _ in places], pa.string()),
            "row_group": pa.array([ordinal for _, ordinal in places], pa.int64()),
        }
    )
    with catalogue.connect() as connection:
        connection.register("selected", selected)
        found = connection.execute(
            f"SELECT * FROM row_groups {semi_join} "  # noqa: S608 - one of two constants
            "WHERE list_contains($1, crawl) AND (path > $2 OR (path = $2 AND row_group > $3)) "
            "ORDER BY path, row_group LIMIT $4",
            [stored, *after, limit + 1],
        )
        names = [column[0] for column in found.description or ()]
        rows = [to_json(dict(zip(names, row, strict=True))) for row in found.fetchall()]
    last = rows[limit - 1] if len(rows) > limit else None
    return {"row_groups": rows[:limit], "next": f"{last['path']}:{last['row_group']}" if last else None}


def status_answer(catalogue: Catalogue, spent: tuple[int, int]) -> dict[str, Any]:
    """Report what is stored; ``spent`` are requests and bytes so far."""
    coverage: list[Any] = []
    store, database = 0, 0
    with suppress(NotHarvested):
        coverage = coverage_rows(catalogue.session)
        store, database = disk_sizes(catalogue.session)
    return {
        "coverage": to_json(coverage),
        "sizes": {"store": store, "catalogue": database},
        "requests": spent[0],
        "bytes": spent[1],
        "version": package_version(),
    }


def _fetch(request: PlannedRequest, wave: int) -> dict[str, Any]:
    return {
        "wave": wave,
        "offset": request.range.start,
        "length": len(request.range),
        "row_groups": sorted({part.row_group for part in request.parts}),
        "columns": sorted({part.column for part in request.parts}),
        "cached": request.cached,
    }


def _limited(captures: Captures, most: int = MAX_ROW_GROUPS) -> Captures:
    groups = sum(len(each.row_groups) for each in captures.question.scope.candidates)
    if groups > most:
        raise TooExpensive(f"the query reaches {groups:,} row groups; the limit is {most:,}")
    return captures


def _check_cost(plan: ReadPlan) -> None:
    """Refuse expensive queries; without filters other than keys, a limit ends them early."""
    requests, size = plan.requests, plan.bytes
    if plan.stops_early and plan.query.keys_decide:
        requests, size = len(plan.indexes), sum(len(fetch.range) for fetch in plan.indexes)
    if requests > MAX_REQUESTS or size > MAX_BYTES:
        message = (
            f"the query takes up to {requests:,} requests and {size:,} bytes; the limits are {MAX_REQUESTS:,} and "
            f"{MAX_BYTES:,}; use fewer URLs, crawls or columns"
        )
        raise TooExpensive(message)
