"""A running server of a data folder, and requests to it over a socket."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from shutil import copytree
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from catalogue.server.application import server_of
from catalogue.server.service import Service
from catalogue.settings import Settings
from tests.support.faults import Fault, Request


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    pairs: list[tuple[str, str]]
    """All headers in order."""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serving(data: Path, settings: Settings, *, at_once: int = 2, **more: Any) -> Iterator[str]:
    """Run a server of a data folder; yield its address without a slash at the end."""
    with closing(Service(data, settings, at_once=at_once, **more)) as service, running(service) as address:
        yield address


def serving_harvested(
    untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("served") / "data"))
    with serving(data, settings) as address:
        yield address


@contextmanager
def served_from(source: str, data: Path, settings: Settings, folder: Path, **more: Any) -> Iterator[str]:
    """Serve a copy of a data folder that reads from another source."""
    reading = replace(settings, source=source, cache=folder / "cache")
    with serving(Path(copytree(data, folder / "data")), reading, **more) as address:
        yield address


@contextmanager
def running(service: Service, **options: Any) -> Iterator[str]:
    """Run a server of a service, which is not closed."""
    server = server_of(service, **options)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # it queues connections until the server runs
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="server")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def get(address: str, target: str = "/", *, method: str = "GET", **headers: str) -> Answer:
    """Send a request with an unchanged target, and ``_`` for ``-`` in headers; redirects are not followed."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request(method, target, headers={name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        pairs = response.getheaders()
        return Answer(response.status, {name.lower(): text for name, text in pairs}, response.read(), pairs)
    finally:
        connection.close()


class Failing:
    """A script that answers with a fault after ``begun`` is set."""

    def __init__(self, fault: Fault) -> None:
        self.begun = Event()
        self._fault = fault

    def __call__(self, request: Request) -> Fault | None:
        return self._fault if self.begun.is_set() and request.path.endswith(".parquet") else None
