"""The access log: one JSON object a line."""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.types import Scope

from catalogue.errors import QueryError

_MAX_PATH, _MAX_QUERY, _MAX_AGENT = 300, 1000, 150
"""Characters. A line then has at most 4 kB, which the system writes to a pipe in one piece, too."""


class AccessLog:
    """A file to which all processes append, each line by one write.

    It is opened for each line, so that it may be renamed at any time.
    """

    def __init__(self, path: str, *, proxied: bool, notify: Callable[[str], None]) -> None:
        """Create the file if it does not exist.

        Args:
            path: the file; ``-`` for standard error.
            proxied: whether the last address of ``X-Forwarded-For`` is the client, because a proxy has added it.
            notify: called with a message if lines cannot be written.

        Raises:
            QueryError: if it cannot be opened.
        """
        self._path = path
        self._proxied = proxied
        self._notify = notify
        self._failed = False
        try:
            os.close(self._open())
        except OSError as error:
            message = f"the access log {path} cannot be opened ({error.strerror}); choose another --access-log"
            raise QueryError(message) from error

    def write(self, scope: Scope, status: int, size: int, seconds: float, *, complete: bool) -> None:
        """Write a line about an answer; of a request that is not valid HTTP, the scope has the client alone."""
        headers = dict(scope.get("headers", ()))
        client = scope["client"][0] if scope["client"] else None
        if self._proxied and (forwarded := headers.get(b"x-forwarded-for")):
            client = _text(forwarded.rpartition(b",")[2].strip(), _MAX_AGENT)
        spent = scope.get("state", {}).get("spent", (0, 0))
        entry = {
            "time": datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="milliseconds"),
            "client": client,
            "method": scope.get("method"),
            "path": _text(scope.get("raw_path", b""), _MAX_PATH),
            "query": _text(scope.get("query_string", b""), _MAX_QUERY),
            "status": status,
            "bytes": size,
            "milliseconds": round(seconds * 1000, 1),
            "complete": complete,
            "source_requests": spent and spent[0],
            "source_bytes": spent and spent[1],
            "user_agent": _text(headers.get(b"user-agent", b""), _MAX_AGENT),
        }
        try:
            self._append(json.dumps(entry).encode() + b"\n")
        except OSError as error:
            if not self._failed:
                self._notify(f"the access log {self._path} cannot be written ({error.strerror}); lines are missing")
            self._failed = True
        else:
            self._failed = False

    def _append(self, line: bytes) -> None:
        file = self._open()
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def _open(self) -> int:
        if self._path == "-":
            return os.dup(sys.stderr.fileno())
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)


def _text(value: bytes, most: int) -> str:
    """Decode a value of a head; the end of a long one is replaced by an ellipsis."""
    text = value.decode("latin-1")
    return text if len(text) <= most else f"{text[:most]}…"
