"""A random order has each row once, every order is as likely, and the seed decides it."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

from catalogue.query.random_order import DrawnRows, RandomOrder, RowGroupId
from tests.support.amounts import in_soak

SIZES: dict[RowGroupId, int] = {("a", 0): 1, ("a", 1): 7, ("b", 0): 0, ("b", 1): 90, ("c", 0): 1000, ("d", 3): 2}
ROWS = sum(SIZES.values())
SEEDS = 1500

Row = tuple[str, int, int]


def in_order(*drawn: Mapping[RowGroupId, DrawnRows]) -> list[Row]:
    rows = [
        (order, *group, row)
        for some in drawn
        for group, each in some.items()
        for row, order in zip(each.rows.tolist(), each.order.tolist(), strict=True)
    ]
    return [row[1:] for row in sorted(rows)]


def every_row(sizes: Mapping[RowGroupId, int], seed: int) -> list[Row]:
    return in_order(*RandomOrder(sizes, seed).rest())


def chi_squared(found: Counter[object], expected: float) -> float:
    return sum((count - expected) ** 2 / expected for count in found.values())


def test_has_each_row_once() -> None:
    rows = every_row(SIZES, 5)
    assert sorted(rows) == [(*group, row) for group, size in SIZES.items() for row in range(size)]
    assert rows != sorted(rows)
    for sizes in ({}, {("a", 0): 0}):
        assert RandomOrder(sizes, 0).next(10) == {}
        assert list(RandomOrder(sizes, 0).rest()) == []


@pytest.mark.parametrize("counts", [[1, 2, 3], [50] * 11, [550], [700], []])
def test_does_not_depend_on_how_many_rows_are_drawn_at_a_time(counts: list[int]) -> None:
    order = RandomOrder(SIZES, 5)
    drawn = [order.next(count) for count in counts]
    assert order.drawn == min(sum(counts), ROWS // 2) == len(in_order(*drawn))
    assert all((each.rows[1:] > each.rows[:-1]).all() for some in drawn for each in some.values())
    assert [*in_order(*drawn), *in_order(*order.rest())] == every_row(SIZES, 5)
    assert order.drawn == ROWS


def test_depends_on_the_seed_and_not_on_the_order_of_row_groups() -> None:
    assert every_row(dict(reversed(SIZES.items())), 5) == every_row(SIZES, 5)
    assert len({tuple(in_order(RandomOrder(SIZES, seed).next(3))) for seed in range(-25, 25)}) == 50


def test_leaves_out_row_groups_that_are_not_possible() -> None:
    possible = [*SIZES][::2]
    order = RandomOrder(SIZES, 5, possible)
    rows = [*in_order(order.next(100)), *in_order(*order.rest())]
    assert rows == [row for row in every_row(SIZES, 5) if row[:2] in possible]
    assert order.drawn == ROWS


@in_soak
def test_every_set_of_rows_is_as_likely() -> None:
    """The first three, and the last three, of nine rows in three row groups of two files."""
    sizes = {("a", 0): 2, ("a", 1): 4, ("b", 0): 3}
    orders = [every_row(sizes, seed) for seed in range(SEEDS)]
    places = [(*group, row) for group, size in sizes.items() for row in range(size)]
    for part in (slice(0, 3), slice(6, 9)):
        sets: Counter[object] = Counter(frozenset(order[part]) for order in orders)
        first: Counter[object] = Counter(order[part][0] for order in orders)
        assert set(sets) == {frozenset(each) for each in combinations(places, 3)}
        assert set(first) == set(places)
        # The 99.9th percentiles of chi-squared with 83 and 8 degrees of freedom.
        assert chi_squared(sets, SEEDS / 84) < 128.6
        assert chi_squared(first, SEEDS / 9) < 26.1


def test_files_row_groups_and_positions_get_their_share() -> None:
    """The shape of a crawl: files of one to ten row groups of thousands of rows; 300 rows for each of 100 seeds."""
    sizes = {(f"file-{file}", ordinal): 4000 + 500 * file for file in range(10) for ordinal in range(file + 1)}
    total = sum(sizes.values())
    of_group, of_file, of_position, by_file = (Counter[object]() for _ in range(4))
    for seed in range(100):
        for (path, ordinal), drawn in RandomOrder(sizes, seed).next(300).items():
            of_group[path, ordinal] += len(drawn.rows)
            of_file[path] += len(drawn.rows)
            of_position.update((drawn.rows * 20 // sizes[path, ordinal]).tolist())
    for (path, _), size in sizes.items():
        by_file[path] += size
    shares: list[tuple[Counter[object], Mapping[Any, float], float]] = [
        (of_group, sizes, 91.9),  # 55 - 1 degrees of freedom
        (of_file, by_file, 27.9),  # 9
        (of_position, dict.fromkeys(range(20), total / 20), 43.8),  # 19
    ]
    for found, share, limit in shares:
        assert set(found) == set(share)
        expected = {each: 100 * 300 * size / total for each, size in share.items()}
        assert sum((found[each] - many) ** 2 / many for each, many in expected.items()) < limit
