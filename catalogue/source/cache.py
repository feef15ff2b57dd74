"""Cache fetched byte ranges on disk, for file versions that a strong ETag identifies."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock

from catalogue.source.byte_ranges import ByteRange, FileVersion, coalesce
from catalogue.source.checks import RequestedRange, Response, Source, is_strong

_DIGEST_SIZE = 16
_LARGEST_SHARE = 8
"""A body above this share of the limit is not cached: it would evict too much."""
_VERSION = re.compile("[0-9a-f]{32}")
_ENTRY = re.compile("(0|[1-9][0-9]{0,17})-([1-9][0-9]{0,17})")
_BESIDE = re.compile(r"\.[a-z0-9_]+\.part")
"""An entry that is being written. After a kill it is evicted like any other."""


class RangeCache:
    """Byte ranges in a folder that threads and processes share.

    Each range is a file ``<version>/<start>-<end>``: a digest, then the bytes. A full, read-only, damaged or missing
    disk raises nothing here: such entries count as missing.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Prepare; the first call reads the folder.

        Args:
            folder: created for the user alone when the first range is saved.
            limit: bytes of the folder; 0 disables the cache. Each process measures the folder once for every eighth
                that
                it adds, so each of several processes may exceed the limit by that much.
        """
        self.folder = folder
        self.limit = limit
        self._lock = Lock()
        self._room = 0
        """Bytes that may be added before the folder is measured again."""

    def cached_ranges(self, url: str, path: str, pin: FileVersion) -> list[ByteRange]:
        """Return the cached ranges, disjoint and ascending. Only ``get`` finds out that one is damaged."""
        return coalesce(self._entries(url, path, pin), max_gap=0, max_length=pin.size)

    def get(self, url: str, path: str, pin: FileVersion, requested: ByteRange) -> bytes | None:
        """Return the bytes of a range, from one or several entries; None if some are missing.

        A damaged entry is removed.
        """
        entries = self._entries(url, path, pin)
        while cover := _cover(entries, requested):
            body, place = [], requested.start
            for entry in cover:
                data = _read(self._file(url, path, pin, entry), len(entry))
                if data is None:
                    entries.remove(entry)
                    break
                body.append(data[place - entry.start : requested.end - entry.start])
                place = entry.end
            else:
                return b"".join(body)
        return None

    def put(self, url: str, path: str, pin: FileVersion, start: int, body: bytes) -> None:
        """Save bytes of a file from ``start`` on, unless they are cached or more than an eighth of the limit.

        Above the limit, the least recently used entries are removed until nine tenths of it are left.
        """
        if not 0 <= start < start + len(body):
            return
        added = ByteRange(start, start + len(body))
        if not self.keeps(pin, added) or any(added in stored for stored in self.cached_ranges(url, path, pin)):
            return
        file = self._file(url, path, pin, added)
        digest = _digest(file, body)
        with self._lock, suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.parent.mkdir(mode=0o700, exist_ok=True)
            if not file.parent.is_symlink():
                _write(file, digest, body)
                self._room -= len(digest) + len(body)
            if self._room < 0:
                self._make_room()

    def keeps(self, pin: FileVersion, added: ByteRange) -> bool:
        """Return whether a range of this version can be cached."""
        return is_strong(pin.etag) and added.end <= pin.size and len(added) <= self.limit // _LARGEST_SHARE

    def _file(self, url: str, path: str, pin: FileVersion, entry: ByteRange) -> Path:
        return self._version(url, path, pin) / f"{entry.start}-{entry.end}"

    def _version(self, url: str, path: str, pin: FileVersion) -> Path:
        version = json.dumps([url, path, pin.etag, pin.size]).encode()
        return self.folder / hashlib.blake2b(version, digest_size=16).hexdigest()

    def _entries(self, url: str, path: str, pin: FileVersion) -> list[ByteRange]:
        if not self.limit:
            return []
        named = (_parsed(file.name) for file in _listed(self._version(url, path, pin), _parsed))
        return [entry for entry in named if entry and entry.end <= pin.size]

    def size(self) -> int:
        """Measure the folder, in bytes."""
        return sum(size for _, size, _ in self._found())

    def _found(self) -> Iterator[tuple[int, int, str]]:
        """Yield time of last use in nanoseconds, size and path of each entry."""
        for version in _listed(self.folder, _VERSION.fullmatch, folders=True):
            for file in _listed(Path(version.path), lambda name: _parsed(name) or _BESIDE.fullmatch(name)):
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, status.st_size, file.path

    def _make_room(self) -> None:
        found = list(self._found())
        for version in _listed(self.folder, _VERSION.fullmatch, folders=True):
            with suppress(OSError):  # unless it is empty, as a kill may leave it
                Path(version.path).rmdir()
        total = sum(size for _, size, _ in found)
        enough = total if total <= self.limit else self.limit * 9 // 10
        for _, size, name in sorted(found):
            if total <= enough:
                break
            if _remove(Path(name)):
                total -= size
        # What other processes add is seen only by looking.
        self._room = min(self.limit - total, self.limit // _LARGEST_SHARE)


class CachedSource:
    """A source that requests only what the cache does not have, and caches it."""

    def __init__(self, inner: Source, cache: RangeCache) -> None:
        self.inner = inner
        self.cache = cache
        self._closed = False

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def connections(self) -> int:
        return self.inner.connections

    def cached_ranges(self, path: str, pin: FileVersion) -> list[ByteRange]:
        """Return the cached ranges of a file, disjoint and ascending."""
        return self.cache.cached_ranges(self.url, path, pin)

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """See ``Source.get``; a fully cached range of a known version needs no request."""
        if self._closed or pin is None or not isinstance(requested, ByteRange):
            return self.inner.get(path, requested, pin=pin)
        body = self.cache.get(self.url, path, pin, requested)
        if body is not None:
            return Response(body, requested.start, total_size=pin.size, etag=pin.etag, last_modified=None)
        return self._fetched(path, requested, pin)

    def _fetched(self, path: str, requested: ByteRange, pin: FileVersion) -> Response:
        response = self.inner.get(path, requested, pin=pin)
        # An answer without an ETag passes for the pinned version, but does not prove to be it.
        if (response.etag, response.total_size) == (pin.etag, pin.size):
            self.cache.put(self.url, path, pin, response.start, response.body)
        return response

    def close(self) -> None:
        self._closed = True
        self.inner.close()


def _cover(entries: list[ByteRange], requested: ByteRange) -> list[ByteRange]:
    """Return the fewest entries that cover a range, ascending, the shorter of equally good ones; none if none do."""
    cover: list[ByteRange] = []
    place = requested.start
    while place < requested.end:
        here = [entry for entry in entries if entry.start <= place < entry.end]
        if not here:
            return []
        cover.append(max(here, key=lambda entry: (min(entry.end, requested.end), -len(entry))))
        place = cover[-1].end
    return cover


def _parsed(name: str) -> ByteRange | None:
    matched = _ENTRY.fullmatch(name)
    start, end = map(int, matched.groups()) if matched else (0, 0)
    return ByteRange(start, end) if start < end else None


def _listed(folder: Path, named: Callable[[str], object], *, folders: bool = False) -> list[os.DirEntry[str]]:
    """List the files (or folders) whose names are valid, without following links."""
    kind = os.DirEntry.is_dir if folders else os.DirEntry.is_file
    with suppress(OSError):
        if folders or not folder.is_symlink():  # the cache's own folder may be wherever the user put it
            with os.scandir(folder) as found:
                return [entry for entry in found if named(entry.name) and kind(entry, follow_symlinks=False)]
    return []


def _digest(file: Path, body: bytes) -> bytes:
    """Return a digest that includes the entry's name, so that a renamed entry is invalid."""
    digest = hashlib.blake2b(f"{file.parent.name}/{file.name}\n".encode(), digest_size=_DIGEST_SIZE)
    digest.update(body)
    return digest.digest()


def _read(file: Path, length: int) -> bytes | None:
    """Return an entry's bytes and update its time of use; None if it cannot be read or was damaged and removed."""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_size == _DIGEST_SIZE + length:  # or memory would be set aside for a name
                digest, body = opened.read(_DIGEST_SIZE), opened.read(length)
                if digest == _digest(file, body):
                    with suppress(OSError):  # what cannot be written can be read
                        os.utime(file)
                    return body
    except OSError:
        return None
    _remove(file)
    return None


def _write(file: Path, *parts: bytes) -> None:
    """Write an entry atomically. No fsync: the digest reveals what a power cut damaged."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.writelines(parts)
        temporary.replace(file)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _remove(file: Path) -> bool:
    """Remove an entry and its folder if that is empty; return whether the entry is gone."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
        with suppress(OSError):
            file.parent.rmdir()
        return True
    return False
