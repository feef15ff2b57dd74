"""Catalogues that hand their plans to executors."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.settings import Settings
from catalogue.workers import Task


def few_to_be_asked(few_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of two files of each crawl and subset, to be asked."""
    return Path(copytree(few_data, tmp_path_factory.mktemp("asked") / "data"))


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
