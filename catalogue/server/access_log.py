"""The access log: one JSON object a line."""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from starlette.types import Scope

from catalogue.errors import QueryError

_MAX_PATH, _MAX_QUERY, _MAX_AGENT = 300, 1000, 150
"""Characters. A line then has at most 4 kB, which the system writes to a pipe in one piece, too."""


class AccessLog:
    """A file to which all processes append, each line by one write."""

    def __init__(self, path: str, *, proxied: bool, notify: Callable[[str], None]) -> None:
        """Open the file, or standard error for ``-``.

        Args:
            path: the file.
            proxied: whether the last address of ``X-Forwarded-For`` is the client, because a proxy has added it.
            notify: called with a message if lines cannot be written.

        Raises:
            QueryError: if it cannot be opened.
        """
        self._path = None if path == "-" else Path(path)
        self._name = path
        self._proxied = proxied
        self._notify = notify
        self._failed = False
        try:
            self._file = _open(self._path) if self._path else sys.stderr.fileno()
        except OSError as error:
            message = f"the access log {path} cannot be opened ({error.strerror}); choose another --access-log"
            raise QueryError(message) from error

    def write(self, scope: Scope, status: int, size: int, seconds: float, *, complete: bool) -> None:
        """Write a line about an answer."""
        headers = dict(scope["headers"])
        client = scope["client"][0] if scope["client"] else None
        if self._proxied and (forwarded := headers.get(b"x-forwarded-for")):
            client = _text(forwarded.rpartition(b",")[2].strip(), _MAX_AGENT)
        spent = scope["state"].get("spent", (0, 0))
        entry = {
            "time": datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="milliseconds"),
            "client": client,
            "method": scope["method"],
            "path": _text(scope["raw_path"], _MAX_PATH),
            "query": _text(scope["query_string"], _MAX_QUERY),
            "status": status,
            "bytes": size,
            "milliseconds": round(seconds * 1000, 1),
            "complete": complete,
            "source_requests": spent and spent[0],
            "source_bytes": spent and spent[1],
            "user_agent": _text(headers.get(b"user-agent", b""), _MAX_AGENT),
        }
        try:
            os.write(self._file, json.dumps(entry).encode() + b"\n")
        except OSError as error:
            if not self._failed:
                self._notify(f"the access log {self._name} cannot be written ({error.strerror}); lines are missing")
            self._failed = True
        else:
            self._failed = False

    def follow(self) -> None:
        """Open the file again if it was renamed or deleted, so that logrotate need not send a signal."""
        if self._path:
            with suppress(OSError):  # the old one is used until the new one can be opened
                if not (self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._file))):
                    old, self._file = self._file, _open(self._path)
                    os.close(old)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)


def _text(value: bytes, most: int) -> str:
    """Decode a value of a head; the end of a long one is replaced by an ellipsis."""
    text = value.decode("latin-1")
    return text if len(text) <= most else f"{text[:most]}…"
