"""The kinds of joins.

A slice collects of its captures what its kind needs of each pattern, which is known by its ``number``, and writes a
part. The result is made of the ``parts`` of all slices, the rows of the input, ``inputs``, and the patterns for which
not everything was read, ``unread``; it has rows of the input alone, or is made by SQL. The parts of an inner join are
its result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.errors import QueryError
from catalogue.join.keys import ROW
from catalogue.join.lookups import NUMBER
from catalogue.parquet.arrow_arrays import numbers, positions

PARTS, INPUTS, UNREAD = "parts", "inputs", "unread"
"""Names of tables."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of join."""

    name: str
    columns: tuple[str, ...] | None = None
    """Of captures that are read; None for those that the user chooses."""
    collect: Callable[[pa.Table], pa.Table] | None = None
    """Returns what is kept of some captures, which have the number of a pattern, and of what was kept of others."""
    chosen: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """Returns which rows of the input are the result, by whether their patterns are in parts, and are unread."""
    result: str = ""
    """SQL, for other results."""


def _present(captures: pa.Table) -> pa.Table:
    """Return the numbers of the patterns, each once."""
    return pa.table({NUMBER: positions(distinct(numbers(captures[NUMBER])))})


def distinct(patterns: np.ndarray) -> np.ndarray:
    """Return numbers once, in ascending order; most are in order already."""
    inorder = patterns if (np.diff(patterns) >= 0).all() else np.sort(patterns)
    return inorder[np.append(True, np.diff(inorder) > 0)] if len(inorder) else inorder


_COUNTED = [NUMBER, "crawl", "fetch_status"]


def _counted(captures: pa.Table) -> pa.Table:
    """Return number of captures, first and last time of each pattern, crawl and status."""
    if "captures" not in captures.column_names:
        times = captures["fetch_time"]
        ones = positions(np.ones(len(captures), np.int64))
        captures = captures.select(_COUNTED).append_column("captures", ones)
        captures = captures.append_column("first", times).append_column("last", times)
    grouped = captures.group_by(_COUNTED, use_threads=False)
    found = grouped.aggregate([("captures", "sum"), ("first", "min"), ("last", "max")])
    return found.rename_columns([*_COUNTED, "captures", "first", "last"]).cast(captures.schema)


def _newest(captures: pa.Table) -> pa.Table:
    """Return the newest capture of each pattern; of several at the same time the one with the greatest place."""
    captures = captures.filter(pc.is_valid(captures["fetch_time"]))  # all have one
    of = numbers(captures[NUMBER])
    times = numbers(captures["fetch_time"].cast(pa.int64()))
    if not len(of):
        return captures
    order = np.lexsort((times, of))
    of, times = of[order], times[order]
    is_last = np.append(of[1:] != of[:-1], True)
    equal = np.flatnonzero(is_last[1:] & (of[1:] == of[:-1]) & (times[1:] == times[:-1])) + 1
    for at in equal.tolist():
        first = at
        while first and (of[first - 1], times[first - 1]) == (of[at], times[at]):
            first -= 1
        places = captures.select(_PLACE).take(positions(order[first : at + 1])).to_pylist()
        best = max(range(len(places)), key=lambda n: tuple((value is not None, value) for value in places[n].values()))
        order[at] = order[first + best]
    (every,) = captures.combine_chunks().to_batches()
    newest = positions(order[is_last])
    return pa.table([column.take(newest) for column in every.columns], schema=captures.schema)


_PLACE = ["crawl", "warc_filename", "warc_record_offset", "subset"]


def newest_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return columns with those that decide which capture is the newest."""
    return tuple(dict.fromkeys([*columns, "fetch_time", "warc_filename", "warc_record_offset"]))


_INPUT = f"{INPUTS}.* EXCLUDE ({NUMBER})"
_ORDER = f"ORDER BY {NUMBER}, {ROW}"
_READ = f"{NUMBER} NOT IN (SELECT {NUMBER} FROM {UNREAD})"

_CRAWLS = f"""
SELECT {_INPUT}, coalesce(captures, 0) AS captures, coalesce(crawls, []) AS crawls, first, last,
       coalesce(statuses, []) AS statuses, {_READ} AS complete
FROM {INPUTS} LEFT JOIN (
    SELECT {NUMBER}, sum(captures)::BIGINT AS captures, list(DISTINCT crawl ORDER BY crawl DESC) AS crawls,
           min(first) AS first, max(last) AS last, list(DISTINCT fetch_status ORDER BY fetch_status) AS statuses
    FROM {PARTS} GROUP BY {NUMBER}
) USING ({NUMBER}) {_ORDER}"""

_BEST = f"""
SELECT {NUMBER}, max({{
    'time': fetch_time, 'crawl': crawl, 'file': warc_filename, 'offset': warc_record_offset, 'subset': subset
}}) AS newest FROM {PARTS} GROUP BY {NUMBER}"""
_LATEST = f"""
SELECT {_INPUT}, {PARTS}.* EXCLUDE ({NUMBER})
FROM {PARTS} JOIN ({_BEST}) AS best
    ON best.{NUMBER} = {PARTS}.{NUMBER} AND newest.crawl = crawl AND newest.subset = subset
    AND newest.file IS NOT DISTINCT FROM warc_filename AND newest.offset IS NOT DISTINCT FROM warc_record_offset
JOIN {INPUTS} ON {INPUTS}.{NUMBER} = {PARTS}.{NUMBER} ORDER BY {PARTS}.{NUMBER}, {ROW}"""

_KINDS = (
    Kind("inner"),
    Kind("semi", (), _present, chosen=lambda found, unread: found),  # noqa: ARG005 - kinds have one signature
    Kind("anti", (), _present, chosen=lambda found, unread: ~(found | unread)),
    Kind("crawls", ("fetch_time", "fetch_status"), _counted, result=_CRAWLS),
    Kind("latest", None, _newest, result=_LATEST),
)
KINDS = {kind.name: kind for kind in _KINDS}


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise QueryError(f"there is no join {name!r}; use {', '.join(KINDS)}")
    return KINDS[name]
