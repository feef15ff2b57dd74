"""Every row is as likely as any other to come next, and nothing but the seed and its place decides when it comes."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

from catalogue.query.random_order import Drawn, Draws, Place

GROUPS: dict[Place, int] = {("a", 0): 1, ("a", 1): 7, ("b", 0): 0, ("b", 1): 90, ("c", 0): 1000, ("d", 3): 2}
ROWS = sum(GROUPS.values())
SEEDS = 1500

Row = tuple[float, str, int, int]


def rows_of(drawn: Mapping[Place, Drawn]) -> list[Row]:
    return sorted(
        (time, *place, row)
        for place, each in drawn.items()
        for row, time in zip(each.rows.tolist(), each.times.tolist(), strict=True)
    )


def order(draws: Draws, count: int) -> list[Row]:
    """All rows, taken so many at a time."""
    found: list[Row] = []
    while drawn := draws.next(count):
        rows = rows_of(drawn)
        assert len(rows) == min(count, draws.rows - len(found))
        assert all((each.rows[1:] > each.rows[:-1]).all() for each in drawn.values())
        found += rows
    return found


def chi_squared(found: Counter[object], expected: float) -> float:
    return sum((count - expected) ** 2 / expected for count in found.values())


def test_each_row_once_and_in_one_order() -> None:
    every = order(Draws(GROUPS, 5), ROWS)
    assert every == sorted(every)
    assert {(path, group): n for (path, group), n in Counter(row[1:3] for row in every).items()} == {
        place: size for place, size in GROUPS.items() if size
    }
    assert len({row[1:] for row in every}) == ROWS


@pytest.mark.parametrize("count", [1, 4, 50, 550])
def test_however_many_are_taken_at_a_time(count: int) -> None:
    assert order(Draws(GROUPS, 5), count) == order(Draws(GROUPS, 5), ROWS)


def test_whatever_others_there_are_to_be_drawn() -> None:
    every = order(Draws(GROUPS, 5), ROWS)
    for left_out in GROUPS:
        others = {place: size for place, size in reversed(GROUPS.items()) if place != left_out}
        assert order(Draws(others, 5), 10) == [row for row in every if row[1:3] != left_out]


def test_seeds_give_other_orders() -> None:
    assert len({tuple(rows_of(Draws(GROUPS, seed).next(3))) for seed in range(50)}) == 50


def test_none_of_no_rows() -> None:
    assert Draws({}, 0).next(10) == {}
    assert Draws({("a", 0): 0}, 0).next(10) == {}


def test_every_set_of_rows_is_as_likely() -> None:
    """The sets of the first three of nine rows, in three row groups of two files; and which of them is the first."""
    groups = {("a", 0): 2, ("a", 1): 4, ("b", 0): 3}
    sets: Counter[object] = Counter()
    first: Counter[object] = Counter()
    for seed in range(SEEDS):
        rows = rows_of(Draws(groups, seed).next(3))
        sets[frozenset(row[1:] for row in rows)] += 1
        first[min(rows)[1:]] += 1
    places = [(*place, row) for place, size in groups.items() for row in range(size)]
    assert set(sets) == {frozenset(each) for each in combinations(places, 3)}
    assert set(first) == set(places)  # what never comes is in no sum below
    # The 99.9th percentiles of chi-squared with 83 and 8 degrees of freedom.
    assert chi_squared(sets, SEEDS / 84) < 128.6
    assert chi_squared(first, SEEDS / 9) < 26.1


def test_files_row_groups_and_positions_get_their_share() -> None:
    """Of a crawl's shape: files of one to ten row groups, of thousands of rows; some rows of each of many seeds."""
    groups = {(f"file-{file}", ordinal): 4000 + 500 * file for file in range(10) for ordinal in range(file + 1)}
    total = sum(groups.values())
    of_group: Counter[object] = Counter()
    of_file: Counter[object] = Counter()
    of_position: Counter[object] = Counter()
    for seed in range(100):
        for (path, ordinal), drawn in Draws(groups, seed).next(300).items():
            of_group[path, ordinal] += len(drawn.rows)
            of_file[path] += len(drawn.rows)
            of_position.update((drawn.rows * 20 // groups[path, ordinal]).tolist())
    sizes: Counter[object] = Counter()
    for (path, _), size in groups.items():
        sizes[path] += size
    shares: list[tuple[Counter[object], Mapping[Any, float], float]] = [
        (of_group, groups, 91.9),  # 55 - 1 degrees of freedom
        (of_file, sizes, 27.9),  # 9
        (of_position, dict.fromkeys(range(20), total / 20), 43.8),  # 19
    ]
    for found, share, limit in shares:
        assert set(found) == set(share)
        expected = {each: 100 * 300 * size / total for each, size in share.items()}
        assert sum((found[each] - many) ** 2 / many for each, many in expected.items()) < limit
