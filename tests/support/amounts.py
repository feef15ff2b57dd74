"""How much of the tests runs: a part in ``make test``, everything in ``make soak``."""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

EXAMPLES = int(os.environ.get("CATALOGUE_TEST_EXAMPLES", "10"))
"""Random inputs of a test."""
COMPLETE = EXAMPLES > 100
"""Whether everything runs."""


def part_of(values: Iterable[Any], every: int = 2) -> list[Any]:
    """Return all values in ``make soak``, else the first and each n-th after it."""
    return [*values][:: 1 if COMPLETE else every]


def leave_for_soak(items: list[pytest.Item]) -> list[pytest.Item]:
    """Remove what only ``make soak`` runs; return it. To skip a test takes as long as to run a short one."""
    places: Counter[str] = Counter()
    removed = []
    for item in items if not COMPLETE else ():
        test = item.nodeid.partition("[")[0]
        every = item.get_closest_marker("in_part")
        if item.get_closest_marker("in_soak") or (every and places[test] % every.args[0]):
            removed.append(item)
        places[test] += 1
    without = {*removed}
    items[:] = [item for item in items if item not in without]
    return removed
