"""Secrets that nobody may ever see: in the environment of all commands, looked for in all that is said and logged."""

import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from catalogue.errors import StoreError
from catalogue.store.database import Store
from catalogue.store.schema import TABLES

MARK = "c4nary"
"""What all of them have in common."""
AWS = {
    "AWS_ACCESS_KEY_ID": f"{MARK}-key",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}-of-the-secret-key",
    "AWS_SESSION_TOKEN": f"{MARK}-of-the-session",
}
OF_NOBODY = {"aws_access_key_id": "key", "aws_secret_access_key": "-"}
"""For clients of tests' own, since the SDK by itself logs what signs requests."""
ENVIRONMENT = AWS | {
    "https_proxy": f"http://me:{MARK}-of-the-proxy@127.0.0.1:9",  # where nobody listens
    "NETRC": str(Path(__file__).parents[1] / "data/netrc"),
}
LOGGERS = ("aiobotocore", "aiohttp", "asyncio", "boto3", "botocore", "catalogue", "fsspec", "s3fs", "urllib3")
"""Of what handles secrets, or URLs."""


class Watch(logging.Handler):
    """Looks into whatever is logged."""

    def __init__(self, leaked: Callable[[str], object]) -> None:
        """Prepare.

        Args:
            leaked: told what holds a secret.
        """
        super().__init__(logging.DEBUG)
        self._leaked = leaked
        self._formatter = logging.Formatter("%(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        if MARK in (text := self._formatter.format(record)):
            self._leaked(text)


def watch(leaked: Callable[[str], object]) -> None:
    """Let libraries log everything, and look into it; see ``Watch``."""
    handler = Watch(leaked)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).addHandler(handler)


def stay_at_home(left: Callable[[str], object]) -> None:
    """Look at every connection that this process makes from now on.

    Args:
        left: told of each that is to another machine, before it is made.
    """

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(address := arguments[1], tuple):
            host = str(address[0])
            # A datagram's socket that is connected sends nothing; so some find out an address of their own.
            streams = arguments[0].type == socket.SOCK_STREAM
            if streams and not (host.startswith("127.") or host in {"::1", "localhost"}):
                left(f"{MARK}: a connection to {host}")

    sys.addaudithook(look)


def kept_in(folder: Path) -> list[Path]:
    """The files below a folder in which a secret is, also where a store holds it compressed."""
    found = [path for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    for path in folder.rglob("*.sqlite"):
        with suppress(StoreError), Store(path) as store:
            stored = [store.get(table, key) for table in TABLES for key in store.keys(table)]
            found += [path] * any(MARK in repr(value) for value in stored)
    return found
