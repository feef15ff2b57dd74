"""A running server of a data folder, and requests to it over a socket."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from catalogue.server import server_of
from catalogue.server.service import Service
from catalogue.settings import Settings


@dataclass(frozen=True)
class Answer:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serving(data: Path, settings: Settings, *, at_once: int = 2, head_seconds: int = 20) -> Iterator[str]:
    """Run a server of a data folder; yield its address without a slash at the end."""
    with (
        closing(Service(data, settings, at_once=at_once)) as service,
        running(service, head_seconds=head_seconds) as address,
    ):
        yield address


@contextmanager
def running(service: Service, *, head_seconds: int = 20) -> Iterator[str]:
    """Run a server of a service, which is not closed."""
    server = server_of(service, head_seconds=head_seconds)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # it queues connections until the server runs
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="server")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def get(address: str, target: str = "/", *, method: str = "GET", **headers: str) -> Answer:
    """Send a request; redirects are not followed.

    Args:
        address: of the server.
        target: path and query string, sent unchanged.
        method: of the request.
        headers: by name, with ``_`` for ``-``.
    """
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request(method, target, headers={name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        found = {name.lower(): text for name, text in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()
