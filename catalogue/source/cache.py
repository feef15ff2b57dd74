"""Cache fetched byte ranges on disk, for file versions that a strong ETag identifies."""

import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from catalogue.errors import CatalogueError
from catalogue.source.byte_ranges import ByteRange, FileVersion, coalesce
from catalogue.source.checks import RequestedRange, Response, Source, is_strong
from catalogue.source.observe import Observer, observed
from catalogue.source.retry import PoliteSource

_DIGEST_SIZE = 16
_LARGEST_SHARE = 8
"""A body larger than ``limit / 8`` would evict too much."""
_VERSION = re.compile("[0-9a-f]{32}")
_ENTRY = re.compile("(0|[1-9][0-9]{0,17})-([1-9][0-9]{0,17})")
_TEMPORARY = re.compile(r"\.[a-z0-9_]+\.part")
"""Entries that are being written; those of a killed process stay until they are evicted."""


class RangeCache:
    """Byte ranges in a folder that threads and processes share.

    Each entry is a file ``<version>/<start>-<end>``: a digest, then the bytes. Entries that cannot be read or written
    count as missing.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Prepare; the first call reads the folder, and saving a range creates it for the user only.

        0 as ``limit`` in bytes disables the cache. Each process may exceed it by an eighth, after which it measures the
        folder again.
        """
        self.folder = folder
        self.limit = limit
        self._lock = Lock()
        self._unmeasured = 0
        """Bytes that may be added before the next measurement."""

    def cached_ranges(self, url: str, path: str, pin: FileVersion) -> list[ByteRange]:
        """Return the cached ranges, disjoint and ascending; ``get`` may still find an entry damaged."""
        return coalesce(self._entries(url, path, pin), max_gap=0, max_length=pin.size)

    def is_cached(self, url: str, path: str, pin: FileVersion, requested: ByteRange) -> bool:
        if self.limit and requested.end <= pin.size and _is_regular(self._file(url, path, pin, requested)):
            return True
        return any(requested in each for each in self.cached_ranges(url, path, pin))

    def get(self, url: str, path: str, pin: FileVersion, requested: ByteRange) -> bytes | None:
        """Return the bytes of a range, joined from entries; None if bytes are missing."""
        if self.limit and requested.end <= pin.size:
            file = self._file(url, path, pin, requested)
            if _is_regular(file) and (whole := _read(file, len(requested))) is not None:
                return whole  # found without listing the entries
        entries = self._entries(url, path, pin)
        while cover := _cover(entries, requested):
            body, position = [], requested.start
            for entry in cover:
                data = _read(self._file(url, path, pin, entry), len(entry))
                if data is None:
                    entries.remove(entry)
                    break
                body.append(data[position - entry.start : requested.end - entry.start])
                position = entry.end
            else:
                return b"".join(body)
        return None

    def put(self, url: str, path: str, pin: FileVersion, start: int, body: bytes) -> None:
        """Save bytes unless they are cached or too large.

        If the folder exceeds the limit, evict the least recently used entries to nine tenths of it.
        """
        added = ByteRange(start, start + len(body))
        is_storable = is_strong(pin.etag) and added.end <= pin.size and len(added) <= self.limit // _LARGEST_SHARE
        if not is_storable or self.is_cached(url, path, pin, added):
            return
        file = self._file(url, path, pin, added)
        digest = _digest(file, body)
        with self._lock, suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.parent.mkdir(mode=0o700, exist_ok=True)
            if not file.parent.is_symlink():
                _write(file, digest, body)
                self._unmeasured -= len(digest) + len(body)
            if self._unmeasured < 0:
                self._evict()

    def drop(self, url: str, path: str, pin: FileVersion, damaged: Iterable[ByteRange]) -> None:
        """Delete the entries that have bytes of some ranges."""
        ranges = [*damaged]
        for entry in self._entries(url, path, pin):
            if any(entry.start < each.end and each.start < entry.end for each in ranges):
                _remove(self._file(url, path, pin, entry))

    def _file(self, url: str, path: str, pin: FileVersion, entry: ByteRange) -> Path:
        return self._version(url, path, pin) / f"{entry.start}-{entry.end}"

    def _version(self, url: str, path: str, pin: FileVersion) -> Path:
        version = json.dumps([pin.origin or url, path, pin.etag, pin.size]).encode()
        return self.folder / hashlib.blake2b(version, digest_size=16).hexdigest()

    def _entries(self, url: str, path: str, pin: FileVersion) -> list[ByteRange]:
        if not self.limit:
            return []
        entries = (_parse(file.name) for file in _list(self._version(url, path, pin), _parse))
        return [entry for entry in entries if entry and entry.end <= pin.size]

    def size(self) -> int:
        return sum(size for _, size, _ in self._measure()) if self.limit else 0

    def _measure(self) -> Iterator[tuple[int, int, str]]:
        for version in _list(self.folder, _VERSION.fullmatch, folders=True):
            for file in _list(Path(version.path), lambda name: _parse(name) or _TEMPORARY.fullmatch(name)):
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, status.st_size, file.path

    def _evict(self) -> None:
        entries = list(self._measure())
        for version in _list(self.folder, _VERSION.fullmatch, folders=True):
            with suppress(OSError):  # only empty folders, left by a killed process, can be removed
                Path(version.path).rmdir()
        total = sum(size for _, size, _ in entries)
        target = total if total <= self.limit else self.limit * 9 // 10
        for _, size, name in sorted(entries):
            if total <= target:
                break
            if _remove(Path(name)):
                total -= size
        # Other processes add entries, too, so the folder is measured again soon.
        self._unmeasured = min(self.limit - total, self.limit // _LARGEST_SHARE)


class CachedSource:
    """A source for many threads that requests only ranges that are not cached, and equal ones once at a time."""

    def __init__(self, inner: Source, cache: RangeCache, observer: Observer | None = None) -> None:
        self.inner = inner
        self.url = inner.url
        self.connections = inner.connections
        self.cache = cache
        self._observer = observer
        """This is called with cached ranges; the inner source reports its requests."""
        self._running: dict[tuple[int, str, FileVersion, ByteRange], Future[Response | None]] = {}
        """Responses for all threads that wait; None if the thread that requests one is interrupted."""

    def cached_ranges(self, path: str, pin: FileVersion) -> list[ByteRange]:
        return self.cache.cached_ranges(self.url, path, pin)

    def is_cached(self, path: str, pin: FileVersion, requested: ByteRange) -> bool:
        return self.cache.is_cached(self.url, path, pin, requested)

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """See ``Source.get``; without a pin, the response is cached for later requests."""
        if not isinstance(requested, ByteRange):
            return self.inner.get(path, requested, pin=pin)
        if pin is None:  # for later requests, which name the version
            response = self.inner.get(path, requested)
            self.cache.put(self.url, path, response.version, response.start, response.body)
            return response
        key, own = (os.getpid(), path, pin, requested), Future[Response | None]()  # a forked process has no threads
        while (running := self._running.setdefault(key, own)) is not own:
            if shared := running.result():
                return shared
        try:
            response = self._cached(path, requested, pin) or self._fetch(path, requested, pin)
            own.set_result(response)
        except CatalogueError as error:
            own.set_exception(error)
            raise
        finally:
            del self._running[key]
            if not own.done():
                own.set_result(None)
        return response

    def _cached(self, path: str, requested: ByteRange, pin: FileVersion) -> Response | None:
        def read() -> Response | None:
            body = self.cache.get(self.url, path, pin, requested)
            if body is None:
                return None
            return Response(body, requested.start, pin.size, pin.etag, last_modified=None, origin=pin.origin)

        return observed(self._observer, self.url, path, requested, read, cached=True) if self._observer else read()

    def _fetch(self, path: str, requested: ByteRange, pin: FileVersion) -> Response:
        response = self.inner.get(path, requested, pin=pin)
        # A response without an ETag, or of another host, passes the checks, but may be of another version.
        if response.version._replace(origin=response.origin or self.url) == pin._replace(origin=pin.origin or self.url):
            self.cache.put(self.url, path, pin, response.start, response.body)
        return response

    def close(self) -> None:
        self.inner.close()


def _cover(entries: list[ByteRange], requested: ByteRange) -> list[ByteRange]:
    cover: list[ByteRange] = []
    position = requested.start
    while position < requested.end:
        candidates = [entry for entry in entries if entry.start <= position < entry.end]
        if not candidates:
            return []
        cover.append(max(candidates, key=lambda entry: (min(entry.end, requested.end), -len(entry))))
        position = cover[-1].end
    return cover


def _parse(name: str) -> ByteRange | None:
    matched = _ENTRY.fullmatch(name)
    start, end = map(int, matched.groups()) if matched else (0, 0)
    return ByteRange(start, end) if start < end else None


def _list(folder: Path, is_valid: Callable[[str], object], *, folders: bool = False) -> list[os.DirEntry[str]]:
    kind = os.DirEntry.is_dir if folders else os.DirEntry.is_file
    with suppress(OSError):
        if folders or not folder.is_symlink():  # the user may have made the cache folder a link
            with os.scandir(folder) as entries:
                return [entry for entry in entries if is_valid(entry.name) and kind(entry, follow_symlinks=False)]
    return []


def _is_regular(file: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(file.lstat().st_mode) and not file.parent.is_symlink()
    return False


def _digest(file: Path, body: bytes) -> bytes:
    """Include the name in the digest: a renamed entry is invalid."""
    digest = hashlib.blake2b(f"{file.parent.name}/{file.name}\n".encode(), digest_size=_DIGEST_SIZE)
    digest.update(body)
    return digest.digest()


def _read(file: Path, length: int) -> bytes | None:
    try:
        with file.open("rb") as opened:
            if (
                os.fstat(opened.fileno()).st_size == _DIGEST_SIZE + length
            ):  # a false name could demand any amount of memory
                digest, body = opened.read(_DIGEST_SIZE), opened.read(length)
                if digest == _digest(file, body):
                    with suppress(OSError):  # a read-only folder can still be read
                        os.utime(file)
                    return body
    except OSError:
        return None
    _remove(file)
    return None


def _write(file: Path, *parts: bytes) -> None:
    """Write an entry atomically; its digest replaces fsync."""
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
    with suppress(OSError):
        file.unlink(missing_ok=True)
        with suppress(OSError):
            file.parent.rmdir()
        return True
    return False


def drop_cached(source: Source, path: str, pin: FileVersion, damaged: Iterable[ByteRange]) -> bool:
    """Delete what is cached of ranges that cannot be decoded; return whether the source has a cache.

    Responses are cached before they are decoded, and a source may send a damaged one.
    """
    if isinstance(source, CachedSource) and source.cache.limit:
        source.cache.drop(source.url, path, pin, damaged)
        return True
    return False


AnySource: TypeAlias = PoliteSource | CachedSource
