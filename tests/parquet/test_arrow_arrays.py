"""Arrays are sorted as Python sorts their values."""

from itertools import product
from random import Random

import pyarrow as pa

from catalogue.parquet.arrow_arrays import sorted_pieces
from tests.support.amounts import part_of


def test_sorted_pieces() -> None:
    """Equal keys, keys of fewer bytes than are compared at first, and keys that begin another one."""
    for count, longest, rows in part_of(product([0, 1, 2, 50, 2000], [0, 3, 9, 20], [1, 7, 10_000]), 4):
        rng = Random(f"{count} {longest}")
        values = [bytes(rng.choice(b"\0ab\xff") for _ in range(rng.randint(0, longest))) for _ in range(count)]
        keys = pa.array([b"first", *values, b"last"], pa.binary())[1:-1]  # a part of a longer array
        pieces = [*sorted_pieces(keys, rows)]
        places = [each.to_pylist() for each, _ in pieces]
        assert all(inorder.equals(keys.take(each)) for each, inorder in pieces)
        assert all(0 < len(part) <= rows for part in places)
        assert [place for part in places for place in part] == sorted(range(count), key=values.__getitem__)
