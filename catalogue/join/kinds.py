"""The kinds of joins.

A slice collects of its captures what its kind needs of each pattern, and writes a part. The result is made of all
parts, the rows of the input, and the unread patterns. The parts of an inner join are its result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.keys import NUMBER, one_batch
from catalogue.parquet.arrow_arrays import flags, integer, integers, numbers, positions
from catalogue.query.arguments import one_of
from catalogue.surt.pattern import Match

_PAIRS, _PAIR_BYTES = 1 << 18, 256 << 20
"""Pairs that are made at a time, and about their bytes."""
_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""Replace unknown times."""


_AGE = ["fetch_time", "crawl", "warc_filename", "warc_record_offset", "subset"]
"""Columns that decide which capture is the newest."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of join."""

    name: str
    columns: tuple[str, ...] | None = None
    """Columns that are read; None for the user's choice."""
    collect: Callable[[pa.Table], pa.Table] | None = None
    """Returns what is needed of captures with numbers of patterns, or merges such tables; sorted by number."""
    result: Callable[[pa.Table, pa.Table, np.ndarray], pa.Table] | None = None
    """Returns the result of a collected table, the rows of the input, and the unread patterns."""
    exact: bool = False
    """Whether captures of a row's URL are preferred to others with the same key."""


def distinct(patterns: np.ndarray) -> np.ndarray:
    """Return numbers once, ascending; most are in order already."""
    inorder = patterns if (np.diff(patterns) >= 0).all() else np.sort(patterns)
    return inorder[np.append(True, np.diff(inorder) > 0)] if len(inorder) else inorder


def pairs(captures: pa.Table, inputs: pa.Table) -> Iterator[pa.Table]:
    """Yield each capture with each row of its pattern, some at a time; ``inputs`` are sorted by number."""
    of, captures = numbers(captures[NUMBER]), captures.drop_columns([NUMBER])
    patterns, given = numbers(inputs[NUMBER]), one_batch(inputs.drop_columns([NUMBER]))
    first = np.searchsorted(patterns, of)
    counts = np.searchsorted(patterns, of, side="right") - first
    ends = np.cumsum(counts)
    size = 1 + sum(rows.nbytes // max(1, len(rows)) for rows in (given, captures))
    step = max(1, min(_PAIRS, _PAIR_BYTES // size))
    for start in range(0, int(ends[-1]) if len(ends) else 0, step):
        here = np.arange(start, min(start + step, int(ends[-1])))
        at = np.searchsorted(ends, here, side="right")
        rows_of = given.take(positions(first[at] + here - (ends[at] - counts[at])))
        chosen = captures if np.array_equal(at, np.arange(len(captures))) else captures.take(positions(at))
        names = [*rows_of.schema.names, *chosen.column_names]
        yield pa.table([*rows_of.columns, *chosen.columns], names=names)


# ---- semi, anti ----


def _present(captures: pa.Table) -> pa.Table:
    return pa.table({NUMBER: positions(distinct(numbers(captures[NUMBER])))})


def _found(collected: pa.Table, inputs: pa.Table, unread: np.ndarray) -> pa.Table:  # noqa: ARG001 - one signature
    return _rows(inputs, np.isin(numbers(inputs[NUMBER]), numbers(collected[NUMBER])))


def _absent(collected: pa.Table, inputs: pa.Table, unread: np.ndarray) -> pa.Table:
    of = numbers(inputs[NUMBER])
    return _rows(inputs, ~(np.isin(of, numbers(collected[NUMBER])) | np.isin(of, unread)))


def _rows(inputs: pa.Table, chosen: np.ndarray) -> pa.Table:
    return inputs.drop_columns([NUMBER]).filter(flags(chosen))


# ---- crawls ----

_COUNTED = [NUMBER, "crawl", "fetch_status"]


def _counted(captures: pa.Table) -> pa.Table:
    if "captures" not in captures.column_names:
        times = captures["fetch_time"]
        ones = positions(np.ones(len(captures), np.int64))
        captures = captures.select(_COUNTED).append_column("captures", ones)
        captures = captures.append_column("first", times).append_column("last", times)
    crawls, statuses = _codes(captures["crawl"]), _codes(captures["fetch_status"])
    order, starts = _groups(numbers(captures[NUMBER]), crawls, statuses)
    found = captures.select(_COUNTED).take(positions(order[starts]))
    for name, values in _summed(captures, order, starts).items():
        found = found.append_column(name, values.slice(0, len(starts)))
    return found


def _summed(counted: pa.Table, order: np.ndarray, starts: np.ndarray) -> dict[str, pa.Array]:
    kind = counted.schema.field("first").type
    return {
        "captures": positions(_reduced(np.add, counted["captures"], order, starts, 0)),
        "first": _times(_reduced(np.minimum, counted["first"], order, starts, _LATEST), _LATEST, kind),
        "last": _times(_reduced(np.maximum, counted["last"], order, starts, _EARLIEST), _EARLIEST, kind),
    }


def _reduced(
    function: np.ufunc, values: pa.ChunkedArray, order: np.ndarray, starts: np.ndarray, unknown: int
) -> np.ndarray:
    known = numbers(pc.fill_null(values.cast(pa.int64()), integer(unknown, pa.int64())))[order]
    return np.append(function.reduceat(known, starts) if len(starts) else known, unknown)


def _times(values: np.ndarray, unknown: int, kind: pa.DataType) -> pa.Array:
    return pc.if_else(flags(values != unknown), positions(values), pa.nulls(1, pa.int64())[0]).cast(kind)


def _codes(values: pa.ChunkedArray) -> np.ndarray:
    encoded = values.combine_chunks().dictionary_encode()
    ranks = pc.rank(encoded.dictionary, tiebreaker="dense").cast(pa.int64()).take(encoded.indices)
    return integers(pc.fill_null(ranks, integer(0, pa.int64())))


def _groups(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort(columns[::-1])
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    return order, np.flatnonzero(is_first)


def _in_crawls(collected: pa.Table, inputs: pa.Table, unread: np.ndarray) -> pa.Table:
    of, wanted = numbers(collected[NUMBER]), numbers(inputs[NUMBER])
    order, starts = _groups(of)
    patterns = of[starts]
    none = len(patterns)  # place of the values for patterns without captures
    at = np.where(np.isin(wanted, patterns), np.searchsorted(patterns, wanted), none)
    summed = _summed(collected, order, starts)
    columns = {
        "captures": summed["captures"],
        "crawls": _lists(of, patterns, collected["crawl"], descending=True),
        "first": summed["first"],
        "last": summed["last"],
        "statuses": _lists(of, patterns, collected["fetch_status"]),
    }
    found = inputs.drop_columns([NUMBER])
    for name, values in columns.items():
        found = found.append_column(name, values.take(positions(at)))
    return found.append_column("complete", flags(~np.isin(wanted, unread)))


def _lists(of: np.ndarray, patterns: np.ndarray, values: pa.ChunkedArray, *, descending: bool = False) -> pa.ListArray:
    codes = _codes(values)
    there = np.flatnonzero(codes)
    order, starts = _groups(of[there], -codes[there] if descending else codes[there])
    chosen = there[order[starts]]
    offsets = positions(np.append(np.searchsorted(of[chosen], patterns), [len(chosen)] * 2))
    return pa.ListArray.from_arrays(offsets.cast(pa.int32()), values.take(positions(chosen)).combine_chunks())


# ---- latest ----


def _newest(captures: pa.Table) -> pa.Table:
    return newest_of(captures, numbers(captures[NUMBER]))


def _newest_of_urls(captures: pa.Table) -> pa.Table:
    urls = captures["url"].combine_chunks().dictionary_encode(null_encoding="encode")
    return newest_of(captures, numbers(captures[NUMBER]), integers(urls.indices))


def newest_of(captures: pa.Table, *groups: np.ndarray) -> pa.Table:
    """Return the newest capture of each group, sorted by the arrays ``groups``; at equal times the greatest place.

    Captures without a time are older than all others.
    """
    if not len(captures):
        return captures
    names = [*map(str, range(len(groups))), *_AGE]
    columns = [*map(positions, groups), *captures.select(_AGE).columns]
    keys = [(name, "descending" if name in _AGE else "ascending") for name in names]
    order = integers(pc.sort_indices(pa.Table.from_arrays(columns, names), sort_keys=keys)).astype(np.int64)
    inorder = [group[order] for group in groups]
    newest = order[np.append(True, np.any([group[1:] != group[:-1] for group in inorder], axis=0))]
    if (np.diff(newest) > 0).all():  # as nearly always, where filtering takes less memory
        is_newest = np.zeros(len(captures), np.bool_)
        is_newest[newest] = True
        return captures if is_newest.all() else captures.filter(flags(is_newest))
    return captures.take(positions(newest))


def _newest_of_inputs(collected: pa.Table, inputs: pa.Table, unread: np.ndarray) -> pa.Table:  # noqa: ARG001
    given = inputs.schema.remove(0)
    captures = collected.schema.remove(0)
    return pa.concat_tables([pa.Table.from_batches([], pa.schema([*given, *captures])), *pairs(collected, inputs)])


def newest_columns(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*columns, "fetch_time", "warc_filename", "warc_record_offset"]))


_KINDS = (
    Kind("inner"),
    Kind("semi", (), _present, _found),
    Kind("anti", (), _present, _absent),
    Kind("crawls", ("fetch_time", "fetch_status"), _counted, _in_crawls),
    Kind("latest", None, _newest, _newest_of_inputs),
)
_OF_URLS = (Kind("inner", exact=True), Kind("latest", None, _newest_of_urls, _newest_of_inputs, exact=True))
KINDS = {kind.name: kind for kind in _KINDS}


def kind_of(name: str, match: Match) -> Kind:
    one_of("how", KINDS)(name)
    of_urls = {kind.name: kind for kind in _OF_URLS} if match is Match.EXACT else {}
    return of_urls.get(name, KINDS[name])
