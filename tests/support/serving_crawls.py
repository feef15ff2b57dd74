"""Servers of harvested crawls, and of failing sources."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import catalogue
from catalogue.server.service import Service
from catalogue.settings import Settings
from tests.support.faults import Fault, Request
from tests.support.serving import running


@contextmanager
def served(data: Path, settings: Settings, **more: Any) -> Iterator[str]:
    with closing(Service(data, settings, **more)) as service, running(service) as address:
        yield address


def harvested_in_part(data: Path, settings: Settings, crawl: str, subsets: str = "warc") -> Path:
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest(crawl, subsets=subsets)
    return data


class Failing:
    """A script that answers with a fault after ``begun`` is set."""

    def __init__(self, fault: Fault) -> None:
        self.begun = Event()
        self._fault = fault

    def __call__(self, request: Request) -> Fault | None:
        return self._fault if self.begun.is_set() and request.path.endswith(".parquet") else None
