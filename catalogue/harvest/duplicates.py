"""Footers and page indexes that came from more than one file: a server may have sent one file for another."""

from collections.abc import Iterable
from hashlib import blake2b


class Duplicates:
    """Notes footers and page indexes by digest."""

    def __init__(self, stored: Iterable[tuple[str, bytes]]) -> None:
        """Note the footers of stored files, given by path."""
        self._digests: dict[str, list[bytes]] = {}
        self._paths: dict[bytes, set[str]] = {}
        for path, footer in stored:
            self.add(path, [footer])

    def add(self, path: str, parts: Iterable[bytes]) -> bool:
        """Note the footer and page indexes of a file instead of those before; returns whether others have the same."""
        for digest in self._digests.pop(path, ()):
            self._paths[digest].discard(path)
        self._digests[path] = [blake2b(part, digest_size=16).digest() for part in parts]
        for digest in self._digests[path]:
            self._paths.setdefault(digest, set()).add(path)
        return bool(self.others(path))

    def others(self, path: str) -> list[str]:
        """The other files that have the footer or page indexes of a file."""
        return sorted({other for digest in self._digests[path] for other in self._paths[digest]} - {path})

    def paths(self) -> set[str]:
        """The files that have the footer or page indexes of another."""
        return {path for paths in self._paths.values() if len(paths) > 1 for path in paths}
