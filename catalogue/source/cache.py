"""Bytes that were fetched, kept on this machine: only of versions that a strong ETag tells apart from every other."""

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
from catalogue.source.checks import Response, Source, Wanted, is_strong

_DIGEST_SIZE = 16
_LARGEST_SHARE = 8
"""A body of more than this part of the limit is not kept: it would drive out too much of what is asked for again."""
_VERSION = re.compile("[0-9a-f]{32}")
_ENTRY = re.compile("(0|[1-9][0-9]{0,17})-([1-9][0-9]{0,17})")
_BESIDE = re.compile(r"\.[a-z0-9_]+\.part")
"""An entry being written. What a kill left of one takes room, and goes when it is what was not used for longest."""


class RangeCache:
    """Byte ranges of versions of files, in a folder that threads and processes share.

    Each range is a file ``<version>/<start>-<end>``: a digest, then the bytes. No disk that is full, read-only, damaged
    or gone raises anything here: what cannot be had or kept is not held.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Prepare; nothing is made or read before the first call.

        Args:
            folder: made when the first range is kept, for nobody but the user.
            limit: bytes that the folder may hold; with 0 nothing is looked up either. Each process looks through it at
                least once for every eighth that it adds, so of several at work at once each may pass the limit by as
                much.
        """
        self.folder = folder
        self.limit = limit
        self._lock = Lock()
        self._room = 0
        """Bytes that may be added before the folder is looked through again."""

    def held(self, url: str, path: str, pin: FileVersion) -> list[ByteRange]:
        """The bytes that are here: ranges in ascending order that neither overlap nor touch.

        What is damaged is found out by ``get`` alone, and counts here until then.
        """
        return coalesce(self._entries(url, path, pin), max_gap=0, max_length=pin.size)

    def get(self, url: str, path: str, pin: FileVersion, wanted: ByteRange) -> bytes | None:
        """The bytes of a range, from one entry or several; None if they are not all here.

        An entry that is not what was written is removed.
        """
        entries = self._entries(url, path, pin)
        while cover := _cover(entries, wanted):
            body, place = [], wanted.start
            for entry in cover:
                kept = _read(self._file(url, path, pin, entry), len(entry))
                if kept is None:
                    entries.remove(entry)
                    break
                body.append(kept[place - entry.start : wanted.end - entry.start])
                place = entry.end
            else:
                return b"".join(body)
        return None

    def put(self, url: str, path: str, pin: FileVersion, start: int, body: bytes) -> None:
        """Keep the bytes of a file from ``start`` on, unless they are here already or more than an eighth of the limit.

        If the folder then holds more than the limit, what was not used for longest is removed, down to nine tenths.
        """
        if not 0 <= start < start + len(body):
            return
        added = ByteRange(start, start + len(body))
        if not self.keeps(pin, added) or any(added in held for held in self.held(url, path, pin)):
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
        """Whether there can be an entry of a range of this version."""
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
        """Bytes that the folder holds; it is looked through for that."""
        return sum(size for _, size, _ in self._found())

    def _found(self) -> Iterator[tuple[int, int, str]]:
        """When each file was last used, in nanoseconds, its bytes, and its path."""
        for version in _listed(self.folder, _VERSION.fullmatch, folders=True):
            for file in _listed(Path(version.path), lambda name: _parsed(name) or _BESIDE.fullmatch(name)):
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, status.st_size, file.path

    def _make_room(self) -> None:
        """Look through the folder, and remove what was not used for longest if it holds too much."""
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
    """A source that makes no request for what a cache holds, and keeps there what it has to ask for."""

    def __init__(self, inner: Source, cache: RangeCache) -> None:
        self.inner = inner
        self.cache = cache
        self._closed = False

    @property
    def url(self) -> str:
        """See ``Source.url``."""
        return self.inner.url

    @property
    def connections(self) -> int:
        """See ``Source.connections``."""
        return self.inner.connections

    def held(self, path: str, pin: FileVersion) -> list[ByteRange]:
        """The bytes of a file that need no request: ascending, neither overlapping nor touching."""
        return self.cache.held(self.url, path, pin)

    def get(self, path: str, wanted: Wanted = None, *, pin: FileVersion | None = None) -> Response:
        """See ``Source.get``; makes no request for a range of a pinned version that is held whole."""
        if self._closed or pin is None or not isinstance(wanted, ByteRange):
            return self.inner.get(path, wanted, pin=pin)
        body = self.cache.get(self.url, path, pin, wanted)
        if body is not None:
            return Response(body, wanted.start, total_size=pin.size, etag=pin.etag, last_modified=None)
        return self._fetched(path, wanted, pin)

    def _fetched(self, path: str, wanted: ByteRange, pin: FileVersion) -> Response:
        """What is not held whole."""
        response = self.inner.get(path, wanted, pin=pin)
        # An answer without an ETag passes for the pinned version, but does not prove to be it.
        if (response.etag, response.total_size) == (pin.etag, pin.size):
            self.cache.put(self.url, path, pin, response.start, response.body)
        return response

    def close(self) -> None:
        """See ``Source.close``."""
        self._closed = True
        self.inner.close()


def _cover(entries: list[ByteRange], wanted: ByteRange) -> list[ByteRange]:
    """As few entries as hold all that is wanted, ascending, the shorter of equally good ones; none if none do."""
    cover: list[ByteRange] = []
    place = wanted.start
    while place < wanted.end:
        here = [entry for entry in entries if entry.start <= place < entry.end]
        if not here:
            return []
        cover.append(max(here, key=lambda entry: (min(entry.end, wanted.end), -len(entry))))
        place = cover[-1].end
    return cover


def _parsed(name: str) -> ByteRange | None:
    """The range that an entry's name says it holds; None if it is no such name."""
    matched = _ENTRY.fullmatch(name)
    start, end = map(int, matched.groups()) if matched else (0, 0)
    return ByteRange(start, end) if start < end else None


def _listed(folder: Path, named: Callable[[str], object], *, folders: bool = False) -> list[os.DirEntry[str]]:
    """The files, or folders, in a folder whose names are right. A link is neither, nor are there files behind one."""
    kind = os.DirEntry.is_dir if folders else os.DirEntry.is_file
    with suppress(OSError):
        if folders or not folder.is_symlink():  # the cache's own folder may be wherever the user put it
            with os.scandir(folder) as found:
                return [entry for entry in found if named(entry.name) and kind(entry, follow_symlinks=False)]
    return []


def _digest(file: Path, body: bytes) -> bytes:
    """Of an entry's place too, so that one moved to another name is found out."""
    digest = hashlib.blake2b(f"{file.parent.name}/{file.name}\n".encode(), digest_size=_DIGEST_SIZE)
    digest.update(body)
    return digest.digest()


def _read(file: Path, length: int) -> bytes | None:
    """An entry's bytes, and that they were used is noted; None if they cannot be had, or are wrong and removed."""
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
    """Write an entry beside its place first: it is there whole or not at all. A power cut the digest finds out.

    Raises:
        OSError: if it cannot be written; nothing is left of it.
    """
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=file.parent)
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.writelines(parts)
        beside.replace(file)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _remove(file: Path) -> bool:
    """Remove an entry, and its folder if it was the last one there; whether it is gone."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
        with suppress(OSError):
            file.parent.rmdir()
        return True
    return False
