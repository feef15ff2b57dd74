"""Rows that wait for others come back in order, from memory and from a file."""

from contextlib import closing

import pyarrow as pa
import pytest

from catalogue.read.result_order import Place
from catalogue.read.waiting_rows import WaitingRows

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64())])


@pytest.mark.parametrize("most", [0, 400, 1 << 20])
def test_rows_come_by_place_in_the_order_of_addition(most: int) -> None:
    places = [Place(number % 3, number % 2) for number in range(40)]
    with closing(WaitingRows(SCHEMA, most)) as waiting:
        for number, place in enumerate(places):
            rows = [{"key": f"{number}", "number": number}, {"key": None, "number": None}]
            waiting.add(place, pa.Table.from_pylist(rows, SCHEMA))
        found = [(place, table.to_pylist()[0]["number"]) for place, table in waiting.inorder()]
    assert found == sorted(((place, number) for number, place in enumerate(places)))


def test_nothing_waits() -> None:
    with closing(WaitingRows(SCHEMA)) as waiting:
        assert list(waiting.inorder()) == []
