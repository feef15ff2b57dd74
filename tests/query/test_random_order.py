"""A random order has each row once, each is as likely to come early, and impossible row groups are left out."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from catalogue.query.random_order import DrawnRows, RandomOrder, RowGroupId

SIZES: dict[RowGroupId, int] = {("a", 0): 1, ("a", 1): 7, ("b", 0): 0, ("b", 1): 90, ("c", 0): 1000, ("d", 3): 2}


def in_order(*drawn: Mapping[RowGroupId, DrawnRows]) -> list[list[Any]]:
    places = [
        (place, *group, int(row))
        for some in drawn
        for group, each in some.items()
        for place, row in zip(each.order, each.rows, strict=True)
    ]
    return [row for _, *row in sorted(places)]


def test_has_each_row_once_however_many_are_drawn_at_a_time() -> None:
    every = in_order(*RandomOrder(SIZES, 5).rest())
    assert every != sorted(every) == [[*group, row] for group, size in SIZES.items() for row in range(size)]
    for counts in ([1, 2, 3], [50] * 11, [700]):
        order = RandomOrder(dict(reversed(SIZES.items())), 5)
        drawn = [order.next(count) for count in counts]
        assert [*in_order(*drawn), *in_order(*order.rest())] == every


def test_every_set_of_rows_is_as_likely() -> None:
    """The first three, and the last three, of nine rows in three row groups of two files."""
    orders = [in_order(*RandomOrder({("a", 0): 2, ("a", 1): 4, ("b", 0): 3}, seed).rest()) for seed in range(1500)]
    for part in (slice(3), slice(6, 9)):
        sets = Counter(str(sorted(order[part])) for order in orders)
        assert len(sets) == 84
        # The 99.9th percentile of chi-squared with 83 degrees of freedom.
        assert sum((count - 1500 / 84) ** 2 for count in sets.values()) / (1500 / 84) < 128.6


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


def test_leaves_out_row_groups_that_are_not_possible() -> None:
    sizes = {("a", 0): 1, ("a", 1): 90, ("b", 0): 1000, ("c", 0): 0, ("d", 3): 7}
    every, order = RandomOrder(sizes, 5), RandomOrder(sizes, 5, [("a", 1), ("d", 3)])
    for drawn, left in ((every.next(100), order.next(100)), *zip(every.rest(), order.rest(), strict=False)):
        assert {group: [*rows.rows] for group, rows in drawn.items() if group in {("a", 1), ("d", 3)}} == {
            group: [*rows.rows] for group, rows in left.items()
        }
    assert order.drawn == every.drawn
