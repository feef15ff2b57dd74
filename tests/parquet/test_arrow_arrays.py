"""Arrays are sorted as Python sorts their values."""

from random import Random

import pyarrow as pa
import pytest

from catalogue.parquet.arrow_arrays import sorted_pieces
from tests.support.amounts import in_part


@in_part(4)
@pytest.mark.parametrize("rows", [1, 7, 10_000])
@pytest.mark.parametrize("longest", [0, 3, 9, 20])
@pytest.mark.parametrize("count", [0, 1, 2, 50, 2000])
def test_sorted_pieces(count: int, longest: int, rows: int) -> None:
    """Equal keys, keys of fewer bytes than are compared at first, and keys that begin another one."""
    rng = Random(f"{count} {longest}")
    values = [bytes(rng.choice(b"\0ab\xff") for _ in range(rng.randint(0, longest))) for _ in range(count)]
    keys = pa.array([b"first", *values, b"last"], pa.binary())[1:-1]  # a part of a longer array
    pieces = [*sorted_pieces(keys, rows)]
    places = [each.to_pylist() for each, _ in pieces]
    assert all(inorder.equals(keys.take(each)) for each, inorder in pieces)
    assert all(0 < len(part) <= rows for part in places)
    assert [place for part in places for place in part] == sorted(range(count), key=values.__getitem__)
