"""A server of a data folder, running: what tests of its faces ask over a real socket."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """What came back."""

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
def serving(
    data: Path, settings: Settings, *, at_once: int = 2, waiting: int = 512, silence: int = 20
) -> Iterator[str]:
    """The address, without a slash at its end, of a server of the catalogue in a folder."""
    service = Service(data, settings, at_once=at_once, waiting=waiting)
    try:
        with running(service, silence=silence) as address:
            yield address
    finally:
        service.close()


@contextmanager
def running(service: Service, *, silence: int = 20) -> Iterator[str]:
    """The same of a service, which is left open."""
    server = server_of(service, silence=silence)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # who connects before it runs is kept waiting
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="server")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def get(address: str, target: str = "/", *, method: str = "GET", **headers: str) -> Answer:
    """Ask once, for a path and query exactly as they are written; redirects are not followed.

    Args:
        address: of the server.
        target: what stands in the first line of the request.
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
