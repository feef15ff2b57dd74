"""Captures of the URLs of a list, and of other URLs with the same keys.

A join by exact URLs compares keys, which many URLs have. Its result has a column that says whether a capture has the
URL of the list; other captures stay only for rows that have no such capture.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.keys import ROW, JoinKeys
from catalogue.join.kinds import newest_of
from catalogue.join.parse_keys import is_key
from catalogue.parquet.arrow_arrays import booleans, flags, numbers, positions
from catalogue.surt import same_url

EXACT = "exact"
"""Column: whether the capture has the URL of the list; null if the list has a key instead."""


def with_exact(joined: pa.Table, keys: JoinKeys) -> pa.Table:
    """Append the column to rows of the input with captures."""
    return joined.append_column(EXACT, _are_exact(joined[keys.column], joined["url"], are_keys=keys.are_keys))


def _are_exact(texts: pa.ChunkedArray, urls: pa.ChunkedArray, *, are_keys: bool) -> pa.Array:
    if are_keys:
        return pa.nulls(len(texts), pa.bool_())
    exact, is_url = are_true(pc.equal(texts, urls)), np.ones(len(texts), np.bool_)
    others = np.flatnonzero(~exact)
    pairs = zip(*(column.take(positions(others)).to_pylist() for column in (texts, urls)), strict=True)
    for row, (text, url) in zip(others.tolist(), pairs, strict=True):
        is_url[row] = not is_key(text.strip())
        exact[row] = is_url[row] and same_url(text.strip(), url or "")
    validity = None if is_url.all() else flags(is_url).buffers()[1]
    return pa.Array.from_buffers(pa.bool_(), len(exact), [validity, flags(exact).buffers()[1]])


def are_true(values: pa.ChunkedArray) -> np.ndarray:
    """Return which values are true, and not false or null."""
    found = values.combine_chunks()
    known: np.ndarray = booleans(found) & booleans(pc.is_valid(found))
    return known


def latest_of_rows(joined: pa.Table) -> pa.Table:
    """Keep the newest exact capture of each row of the input, or the newest one if none is exact."""
    rows = numbers(joined[ROW])
    if len(np.unique(rows)) == len(rows):
        return joined
    exact = are_true(joined[EXACT])
    keep = exact | ~np.isin(rows, rows[exact])
    return newest_of(joined.filter(flags(keep)), rows[keep])
