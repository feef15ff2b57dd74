"""Rows that wait for others come back in order, from memory and from a file."""

from contextlib import ExitStack
from random import Random

import pyarrow as pa
import pytest

from catalogue.read.key_order import WaitingRows
from catalogue.surt import END
from tests.support.amounts import in_part, part_of

SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64()), ("text", pa.string()), ("unused", pa.int64())])
OTHERS = ["time", "text"]

Row = tuple[str, int | None, str | None]


def place(row: Row) -> tuple[object, ...]:
    key, time, text = row
    return key.encode(), time is None, time or 0, text is None, text or ""


def random_rows(chance: Random, keys: str, count: int) -> list[Row]:
    return [
        (
            chance.choice(keys) + chance.choice(["", "\0", "é"]),
            chance.choice([None, 1, 2, 3]),
            chance.choice([None, "", "a", "b"]),
        )
        for _ in range(count)
    ]


def table(rows: list[Row]) -> pa.Table:
    columns = [*map(list, zip(*rows, strict=True))] if rows else [[], [], []]
    return pa.table([*columns, list(range(len(rows)))], schema=SCHEMA)


def rows_of(tables: list[pa.Table]) -> list[Row]:
    every = pa.concat_tables([table([]), *tables])
    return [*zip(*(every.column(name).to_pylist() for name in SCHEMA.names[:3]), strict=True)]


@in_part(3)
@pytest.mark.parametrize("most", [0, 2000, 1 << 20])
def test_rows_come_by_key_and_the_other_columns(most: int) -> None:
    chance = Random(most)
    for _ in part_of(range(20), 3):
        added: list[Row] = []
        with ExitStack() as stack:
            waiting = WaitingRows(SCHEMA, "key", OTHERS, stack, most)
            found: list[pa.Table] = []
            for lowest in "abcdefgh":
                for _ in range(chance.randrange(3)):
                    some = random_rows(chance, lowest + chance.choice("hijk"), 1 + chance.randrange(30))
                    if chance.random() < 0.5:
                        some.sort(key=place)
                    added += some
                    waiting.add(table(some))
                found += waiting.below(chance.choice([lowest, lowest + "\0"]).encode())
                complete = [row for row in sorted(added, key=place) if row[0] < lowest]
                assert rows_of(found)[: len(complete)] == complete
            found += waiting.below(END)
        assert rows_of(found) == sorted(added, key=place)


def test_rows_that_are_in_order_are_not_copied() -> None:
    rows = table([(f"{number:03}", number, None) for number in range(100)])
    with ExitStack() as stack:
        waiting = WaitingRows(SCHEMA, "key", OTHERS, stack)
        waiting.add(rows)
        (found,) = waiting.below(END)
    assert found.column("key").chunk(0).buffers()[2].address == rows.column("key").chunk(0).buffers()[2].address
