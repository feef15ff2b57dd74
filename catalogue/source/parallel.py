"""Run a function on many items in an executor, with a bounded number under way.

``map_in_order`` yields results in the order of the items, ``map_as_completed`` as they finish. Both read items only
when there is room, and cancel what has not started when they are closed. The caller owns the executor.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_order(
    executor: Executor,
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    limit: int,
    weight: Callable[[_Item], int] = lambda _: 1,
) -> Generator[_Result, None, None]:
    """Yield the results in the order of the items.

    Args:
        executor: runs the function.
        function: its first exception ends the iteration.
        items: read lazily.
        limit: total weight of items under way or not yet consumed; an item above it runs alone.
        weight: of one item, such as its number of bytes.
    """
    under_way: deque[tuple[Future[_Result], int]] = deque()
    total = 0
    try:
        for item in items:
            size = weight(item)
            while under_way and total + size > limit:
                yield under_way[0][0].result()
                total -= under_way.popleft()[1]
            under_way.append((executor.submit(function, item), size))
            total += size
        while under_way:
            yield under_way[0][0].result()
            under_way.popleft()
    finally:
        for future, _ in under_way:
            future.cancel()


def map_as_completed(
    executor: Executor, function: Callable[[_Item], _Result], items: Iterable[_Item], *, limit: int
) -> Generator[tuple[_Item, Future[_Result]], None, None]:
    """Yield each item with its finished future; at most ``limit`` items are under way."""
    waiting = iter(items)
    under_way: dict[Future[_Result], _Item] = {}
    try:
        while True:
            for item in islice(waiting, limit - len(under_way)):
                under_way[executor.submit(function, item)] = item
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in [each for each in under_way if each in done]:  # in the order of submission
                yield under_way.pop(future), future
    finally:
        for future in under_way:
            future.cancel()
