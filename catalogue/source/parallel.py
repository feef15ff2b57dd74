"""Call a function with many items, a limited number at a time. Closing cancels calls that have not started."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
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


def run_ahead(
    threads: int | Callable[[Callable[[_Item], _Result], _Item], Future[_Result]],
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    limit: int = 0,
    weight: Callable[[_Item], int] | None = None,
    in_order: bool = True,
) -> Generator[tuple[_Item, Future[_Result]], None, None]:
    """Call a function with items ahead of the consumer, and yield each item with its call.

    ``threads`` is the number of threads, which end with the iteration, or the method ``submit`` of an executor.
    ``limit`` items run or wait to be consumed, by default two for each thread, or items of this ``weight``, such as
    bytes; one that is heavier runs alone. Unless ``in_order``, calls are yielded when they are finished.
    """
    pending: deque[tuple[_Item, Future[_Result], int]] = deque()
    total = 0

    def next_calls() -> Iterator[tuple[_Item, Future[_Result]]]:
        nonlocal total
        calls = [pending[0]]
        if not in_order:
            finished = wait([call for _, call, _ in pending], return_when=FIRST_COMPLETED).done
            calls = [each for each in pending if each[1] in finished]
        for each in calls:
            yield each[:2]
            pending.remove(each)
            total -= each[2]

    with ExitStack() as stack:
        if isinstance(threads, int):
            limit = limit or 2 * threads
            threads = stack.enter_context(closing(RequestThreads(threads))).submit
        try:
            for item in items:
                size = weight(item) if weight else 1
                while pending and total + size > limit:
                    yield from next_calls()
                pending.append((item, threads(function, item), size))
                total += size
            while pending:
                yield from next_calls()
        finally:
            for _, call, _ in pending:
                call.cancel()
