"""Secrets in the environment of all commands, which no output and no log may contain."""

import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from catalogue.errors import StoreError
from catalogue.store.database import Store
from catalogue.store.layout import TABLES

MARK = "c4nary"
"""A part of every secret."""
AWS = {
    "AWS_ACCESS_KEY_ID": f"{MARK}-key",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}-of-the-secret-key",
    "AWS_SESSION_TOKEN": f"{MARK}-of-the-session",
}
OF_NOBODY = {"aws_access_key_id": "key", "aws_secret_access_key": "-"}
"""For clients of tests, since the SDK logs what signs requests."""
ENVIRONMENT = AWS | {
    "https_proxy": f"http://me:{MARK}-of-the-proxy@127.0.0.1:9",  # which refuses connections
    "NETRC": str(Path(__file__).parents[1] / "data/netrc"),
}
LOGGERS = ("aiobotocore", "aiohttp", "asyncio", "boto3", "botocore", "catalogue", "fsspec", "s3fs", "urllib3")
"""Loggers of libraries that handle secrets or URLs."""


class Watch(logging.Handler):
    def __init__(self, leaked: Callable[[str], object]) -> None:
        super().__init__(logging.DEBUG)
        self._leaked = leaked
        self._formatter = logging.Formatter("%(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        if MARK in (text := self._formatter.format(record)):
            self._leaked(text)


def watch(leaked: Callable[[str], object]) -> None:
    """Let libraries log everything; call ``leaked`` with messages that contain a secret."""
    handler = Watch(leaked)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).addHandler(handler)


def stay_at_home(left: Callable[[str], object]) -> None:
    """Call ``left`` before this process connects to another machine."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(address := arguments[1], tuple):
            host = str(address[0])
            # A connected datagram socket sends nothing; libraries use one to find the local address.
            streams = arguments[0].type == socket.SOCK_STREAM
            if streams and not (host.startswith("127.") or host in {"::1", "localhost"}):
                left(f"{MARK}: a connection to {host}")

    sys.addaudithook(look)


def kept_in(folder: Path) -> list[Path]:
    """Return the files below a folder that contain a secret, also compressed in a store."""
    found = [path for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    for path in folder.rglob("*.sqlite"):
        with suppress(StoreError), Store(path) as store:
            stored = [store.get(table, key) for table in TABLES for key in store.keys(table)]
            found += [path] * any(MARK in repr(value) for value in stored)
    return found
