"""Executors for catalogues."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import catalogue
from catalogue import Catalogue
from catalogue.read.workers import Task
from catalogue.settings import Settings


class Recording(Executor):
    """An executor of the simplest kind, which does at once what it is given; also one of several machines."""

    def __init__(self, threads: dict[str, int] | None = None) -> None:
        self.tasks: list[Task] = []
        if threads is not None:
            self._client = self
            self._threads = threads

    def nthreads(self) -> dict[str, int]:
        return self._threads

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.tasks += args
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as executors do
            future.set_exception(error)
        return future


def opened(data: Path, settings: Settings, executor: Executor) -> Catalogue:
    return catalogue.open(data, settings=settings, executor=executor)
