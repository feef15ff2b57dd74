"""Run a function on many items in an executor of the caller, a limited number at a time.

Items are read lazily. Closing cancels calls that have not started.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import ParamSpec, TypeVar

from catalogue.errors import SourceUnavailable

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


class RequestThreads(ThreadPoolExecutor):
    """Threads of a process that make requests until they are closed."""

    def __init__(self, most: int) -> None:
        super().__init__(most, thread_name_prefix="request")
        self._closed = False
        self.process = os.getpid()
        """A process that is forked from it has no threads."""

    def submit(
        self, fn: Callable[_Parameters, _Result], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> Future[_Result]:
        """Call a function in a thread.

        Raises:
            SourceUnavailable: if the threads were closed.
        """
        if self._closed:
            raise SourceUnavailable("the catalogue was closed while a result was read; open it again")
        return super().submit(fn, *args, **kwargs)

    def close(self) -> None:
        """Accept no other calls; those that wait are still made."""
        self._closed = True
        self.shutdown(wait=False)


def map_in_order(
    executor: Executor,
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    limit: int,
    weight: Callable[[_Item], int] = lambda _: 1,
) -> Generator[_Result, None, None]:
    """Yield the results in the order of the items; the first exception of the function ends the iteration.

    ``limit`` is the total ``weight``, such as bytes, of items that run or wait to be consumed; a heavier item runs
    alone.
    """
    pending: deque[tuple[Future[_Result], int]] = deque()
    total = 0
    try:
        for item in items:
            size = weight(item)
            while pending and total + size > limit:
                yield pending[0][0].result()
                total -= pending.popleft()[1]
            pending.append((executor.submit(function, item), size))
            total += size
        while pending:
            yield pending[0][0].result()
            pending.popleft()
    finally:
        for future, _ in pending:
            future.cancel()


def map_as_completed(
    executor: Executor, function: Callable[[_Item], _Result], items: Iterable[_Item], *, limit: int
) -> Generator[tuple[_Item, Future[_Result]], None, None]:
    """Yield each item with its finished future; at most ``limit`` items run at a time."""
    waiting = iter(items)
    pending: dict[Future[_Result], _Item] = {}
    try:
        while True:
            for item in islice(waiting, limit - len(pending)):
                pending[executor.submit(function, item)] = item
            if not pending:
                return
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in [future for future in pending if future in done]:  # in the order of submission
                yield pending.pop(future), future
    finally:
        for future in pending:
            future.cancel()
