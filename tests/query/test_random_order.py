"""Every row is as likely to come early in a random order, and rows of row groups that are not possible are left out."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from catalogue.query.random_order import RandomOrder


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
