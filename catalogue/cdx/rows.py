"""Rows of the index → the captures that a request to the CDX API wants of them, in its order."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from warcio.timeutils import timestamp_to_datetime

from catalogue.cdx.cdx_filters import How
from catalogue.cdx.cdx_request import CdxRequest
from catalogue.cdx.lines import KEY, RAW, TIME, cdx_table, places_of
from catalogue.errors import TooExpensive
from catalogue.parquet.arrow_arrays import positions

_STAMP = "%Y%m%d%H%M%S"
_SECONDS = 10.0
"""That expressions may take for the rows of one question. Of two thousand characters RE2 makes some that take 20 ms a
row, so that of half a million rows they would take hours."""
_MOST_AT_ONCE, _SOON = 256, 0.05
"""Rows that are looked at between two looks at the clock; and seconds within which it may be twice as many next."""


def chosen_of(
    batches: Iterable[pa.RecordBatch], request: CdxRequest, clock: Callable[[], float]
) -> Iterator[pa.RecordBatch]:
    """The same as ``chosen`` of many batches of rows, as long as expressions take no more than some seconds.

    Args:
        batches: of rows of the index.
        request: what is wanted of them.
        clock: seconds that this thread took so far.

    Raises:
        TooExpensive: if they do.
    """
    expressions = any(each.how is How.MATCHES for each in request.filters)
    left, most = _SECONDS, 1
    for batch in batches:
        if not expressions:
            yield chosen(batch, request)
            continue
        at = 0
        while at < batch.num_rows:
            began = clock()
            kept = chosen(batch.slice(at, most), request)
            took = clock() - began
            left -= took
            if left < 0:
                message = f"the expressions in filter= take more than {_SECONDS:.0f} s; write simpler ones"
                raise TooExpensive(message)
            at += most
            most = min(2 * most, _MOST_AT_ONCE) if took < _SOON else max(1, most // 2)
            yield kept


def chosen(rows: pa.RecordBatch, request: CdxRequest) -> pa.RecordBatch:
    """The CDX fields of those rows whose time, and what else the filters ask for, is right."""
    table = cdx_table(rows)
    masks = [each.mask(table) for each in request.filters]
    masks += [pc.greater_equal(table.column(TIME), request.first)] if request.first else []
    masks += [pc.less_equal(table.column(TIME), request.last)] if request.last else []
    for mask in masks[1:]:
        masks[0] = pc.and_(masks[0], mask)
    return table.filter(masks[0]) if masks else table


def candidates_of(rows: pa.RecordBatch, last: pa.RecordBatch, request: CdxRequest) -> pa.RecordBatch:
    """Select the rows that may be among the first captures, given the one that is the last of these so far.

    Args:
        rows: rows of the index, in any order.
        last: one row of CDX fields.
        request: gives the order.
    """
    fields = places_of(rows)
    if request.closest:
        near, far = (_distances(times, request.closest) for times in (fields[TIME], last.column(TIME)))
        return rows.filter(pa.array(near <= far))
    places, bound = (pc.binary_join_element_wise(each[KEY], each[TIME], " ") for each in (fields, last))
    is_ahead = pc.greater_equal if request.reverse else pc.less_equal
    return rows.filter(is_ahead(places, bound[0]))


def arranged(tables: Iterable[pa.RecordBatch], request: CdxRequest) -> pa.RecordBatch:
    """The captures of a page, or of a part of one, in the order that is asked for: by key, time and the line's rest.

    That is the order of the lines' bytes, since a blank, which follows the key, comes before all that a key is made of.
    With ``closest``, those nearest in time come first; no more than the limit are kept.
    """
    table = pa.Table.from_batches(tables, cdx_table(pa.RecordBatch.from_pydict({})).schema)
    order = pc.sort_indices(table.column(RAW)).to_numpy()
    if request.closest:
        order = order[np.argsort(_distances(table.column(TIME), request.closest)[order], kind="stable")]
    elif request.reverse:
        order = order[::-1]
    kept = table.take(positions(order[: request.limit])).combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in kept.columns], names=kept.schema.names)


def _distances(stamps: pa.Array | pa.ChunkedArray, closest: str) -> np.ndarray:
    """Seconds between times and another, if need be the nearest that there is; of what is no time they are endless."""
    moment = timestamp_to_datetime(closest, tz_aware=True).timestamp()  # pads and clamps as pywb does
    times = np.asarray(pc.strptime(stamps, format=_STAMP, unit="s", error_is_null=True).cast(pa.int64()))
    distances: np.ndarray = np.nan_to_num(np.abs(times.astype(float) - moment), nan=np.inf)
    return distances
