"""What the loopback server of ``tests.support.faults`` serves: a folder, or bytes in a mapping."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Protocol

CHUNK = 64 << 10
"""Bytes read and sent at once."""

_SIBLINGS = 1_000
"""Neighbours of a file that are listed, at most."""


@dataclass(frozen=True, slots=True)
class Content:
    """One version of one file."""

    size: int
    etag: str
    modified: float
    """Seconds since 1970."""
    read: Callable[[int, int], bytes]
    """The bytes from a start to an exclusive end; fewer if the file has shrunk."""

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The same, a piece at a time.

        Raises:
            ConnectionAbortedError: if the file has shrunk, for then there is no right way to go on.
        """
        for at in range(start, end, CHUNK):
            piece = self.read(at, min(at + CHUNK, end))
            if len(piece) < min(CHUNK, end - at):
                message = "the file shrank while it was sent"
                raise ConnectionAbortedError(message)
            yield piece


class Files(Protocol):
    """What there is to serve."""

    def open(self, path: str, stack: ExitStack) -> Content | None:
        """The file at a decoded path, to be closed with the stack; None if there is none."""

    def neighbours(self, path: str) -> list[str]:
        """Paths near that of a file, this among them, in a fixed order; not all of them need be files."""


class Folder:
    """The regular files in a folder, also behind links as long as these stay in it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve(strict=True)
        self._locate = lru_cache(maxsize=1 << 16)(self._resolve)  # resolving takes longer than reading a tail

    def open(self, path: str, stack: ExitStack) -> Content | None:
        """The file at a decoded path, to be closed with the stack; None if there is none."""
        where = self._locate(path)
        if where is None:
            return None
        try:
            file = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block
        except OSError:
            return None
        stack.callback(os.close, file)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return None
        etag = f'"{found.st_size:x}-{found.st_mtime_ns:x}"'
        return Content(found.st_size, etag, found.st_mtime, lambda start, end: os.pread(file, end - start, start))

    def neighbours(self, path: str) -> list[str]:
        """All in the same folder, in order of name."""
        name = PurePosixPath(path)
        with os.scandir(self._root / name.parent) as entries:
            return [str(name.with_name(other)) for other in sorted(entry.name for entry in islice(entries, _SIBLINGS))]

    def _resolve(self, path: str) -> str | None:
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            return None
        try:
            where = Path(self._root, path).resolve()
        except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a NUL
            return None
        return str(where) if where.is_relative_to(self._root) else None


class Memory:
    """Files in a mapping that may change at any time."""

    _EPOCH = 1_577_836_800.0  # 2020-01-01

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._seen: dict[str, tuple[bytes, Content]] = {}

    def open(self, path: str, stack: ExitStack) -> Content | None:  # noqa: ARG002 - there is nothing to close
        """The file at a path as it is now. Each change that is seen makes it an hour younger."""
        data = self._files.get(path)
        if data is None:
            self._seen.pop(path, None)
            return None
        before, content = self._seen.get(path, (None, None))
        if before is not data or content is None:
            modified = self._EPOCH if content is None else content.modified + (3600 if before != data else 0)
            etag = f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
            content = Content(len(data), etag, modified, lambda start, end: data[start:end])
            self._seen[path] = (data, content)
        return content

    def neighbours(self, path: str) -> list[str]:  # noqa: ARG002 - near is everywhere
        """All there are, in the order of the mapping."""
        return list(self._files)
