"""Run commands on a disk that fails, kills them or loses power (``disk.c``), and replay what they did to files."""

import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random

from tests.support import warm
from tests.support.commands import Command, Ran

TIMEOUT = 120.0
"""Seconds after which a command counts as hanging."""

SECTOR = 4096
_ENTRY = struct.Struct("<IBBHHHiQI")
_CREATED, _EMPTIED, _FOLDER = 1, 2, 4


class Call(IntEnum):
    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    RENAME = 4
    UNLINK = 5
    MKDIR = 6
    SYNC = 7
    CLOSE = 8
    RMDIR = 9


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded call.

    ``number`` counts the calls that change something, from 1, and is 0 for others. ``error`` is the injected error, or
    the signal of a kill. ``at`` is the offset of a write, or the size of a truncated file.
    """

    number: int
    call: Call
    flags: int
    path: str
    other: str
    error: int
    fd: int
    at: int
    data: bytes

    @property
    def needs_space(self) -> bool:
        return self.call in {Call.WRITE, Call.MKDIR} or (self.call is Call.OPEN and bool(self.flags & _CREATED))


@dataclass(frozen=True, slots=True)
class DiskFault:
    """``fail``, ``full``, ``before`` or ``halfway``, at the call of this number; see ``disk.c``."""

    kind: str
    at: int
    error: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.at} {self.error}"


def full(at: int) -> DiskFault:
    return DiskFault("full", at, errno.ENOSPC)


def missing_tools() -> str | None:
    """Return why calls cannot be recorded here; None if they can."""
    if sys.platform != "linux":
        return "calls are intercepted by a mechanism of Linux"
    return None if shutil.which("cc") else "there is no C compiler"


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder whose changes are recorded. ``log`` lies outside of it."""

    folder: Path
    library: str
    log: Path

    @classmethod
    def build(cls, folder: Path, scratch: Path) -> "Disk":
        library = scratch / "disk.so"
        source = Path(__file__).with_name("disk.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-lpthread"], check=True)
        return cls(folder, str(library), scratch / "calls")

    def run(self, command: Command, *words: str, fault: DiskFault | None = None) -> tuple[Ran, list[Entry]]:
        """Run a command; return its result and its calls."""
        self.log.unlink(missing_ok=True)
        orders = {"DISK_FOLDER": str(self.folder), "DISK_LOG": str(self.log)}
        if fault:
            orders["DISK_FAULT"] = str(fault)
        with warm.Forked(words, command.environment(**orders), command.home, preload=self.library) as process:
            try:
                out, err = process.communicate(TIMEOUT)
            except subprocess.TimeoutExpired as error:
                raise AssertionError(f"{' '.join(words)} still runs after {TIMEOUT} s; fault: {fault}") from error
            ran = Ran(process.wait(), out.decode(), err.decode())
        return ran, list(_read(self.log))


def _read(log: Path) -> Iterator[Entry]:
    data = memoryview(log.read_bytes() if log.exists() else b"")
    place = 0
    while place < len(data):
        number, call, flags, path, other, error, fd, at, size = _ENTRY.unpack_from(data, place)
        place += _ENTRY.size
        parts = []
        for length in (path, other, size):
            parts.append(bytes(data[place : place + length]))
            place += length
        name, to = (os.path.normpath(os.fsdecode(part)) if part else "" for part in parts[:2])
        yield Entry(number, Call(call), flags, name, to, error, fd, at, parts[2])


# ---- replay ----


@dataclass(frozen=True, slots=True)
class Image:
    """Everything in a folder, by relative path, without the files that SQLite maps into memory."""

    folders: frozenset[str] = frozenset()
    files: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Image":
        inside = [(path, str(path.relative_to(folder))) for path in folder.rglob("*")]
        return cls(
            frozenset(name for path, name in inside if path.is_dir()),
            {name: path.read_bytes() for path, name in inside if path.is_file() and not name.endswith("-shm")},
        )

    def write(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in sorted(self.folders):
            (folder / name).mkdir()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


def _put(content: bytearray, at: int, data: bytes) -> None:
    _resize(content, max(at, len(content)))
    content[at : at + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class _File:
    def __init__(self, data: bytes = b"") -> None:
        self.synced, self.now = data, bytearray(data)
        self._pending: list[tuple[int, bytes | None]] = []

    def change(self, at: int, data: bytes | None) -> None:
        """Write data, or truncate the file if there is none."""
        self._pending.append((at, data))
        _resize(self.now, at) if data is None else _put(self.now, at, data)

    def sync(self) -> None:
        self.synced, self._pending = bytes(self.now), []

    def after_power_cut(self, random: Random) -> bytes:
        left, sizes = bytearray(self.synced), [len(self.synced)]
        for at, data in self._pending:
            if data is None:
                sizes.append(at)
                if random.random() < 0.5:
                    _resize(left, at)
                continue
            sizes.append(max(sizes[-1], at + len(data)))
            for start in range(at - at % SECTOR, at + len(data), SECTOR):
                if random.random() < 0.5:
                    first, last = max(start, at), min(start + SECTOR, at + len(data))
                    _put(left, first, data[first - at : last - at])
        _resize(left, random.choice(sizes))
        return bytes(left)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


class Replay:
    """A folder at some moment of a recorded run, and what a power cut may leave of it.

    The disk has sectors of 4 KiB, and the file system keeps the order of changes of names. Of data written since the
    last sync each sector survives with probability 1/2, and the file has any of its sizes since then. Changes of names
    survive up to a random one; later ones survive if their folder was synced since, not their file.
    """

    def __init__(self, before: Image, folder: Path) -> None:
        self._root = str(folder)
        self._names = {f"{folder}/{name}": _File(data) for name, data in before.files.items()}
        self._folders = {self._root, *(f"{folder}/{name}" for name in before.folders)}
        self._at_first = dict(self._names), set(self._folders)
        self._changes: list[tuple[Entry, _File | None]] = []
        self._synced: set[int] = set()
        self._open: dict[int, _File | str] = {}

    def take(self, entry: Entry) -> None:
        if entry.error:
            return
        file = self._open.get(entry.fd)
        match entry.call:
            case Call.OPEN:
                self._open_file(entry)
            case Call.WRITE | Call.TRUNCATE:
                assert isinstance(file, _File)
                file.change(entry.at, entry.data if entry.call is Call.WRITE else None)
            case Call.SYNC if isinstance(file, _File):
                file.sync()
            case Call.SYNC:
                touched = ({_parent(change.path), _parent(change.other or change.path)} for change, _ in self._changes)
                self._synced.update(number for number, folders in enumerate(touched) if file in folders)
            case Call.CLOSE:
                self._open.pop(entry.fd, None)
            case _:
                moved = self._names.get(entry.path) if entry.call is Call.RENAME else None
                self._changes.append((entry, moved))
                _apply(entry, moved, self._names, self._folders)

    def _open_file(self, entry: Entry) -> None:
        if entry.flags & _FOLDER:
            self._open[entry.fd] = entry.path
            return
        file = self._names.get(entry.path)
        if file is None:
            file = self._names[entry.path] = _File()
            self._changes.append((entry, file))
        elif entry.flags & _EMPTIED and file.now:
            file.change(0, None)
        self._open[entry.fd] = file

    def complete(self) -> Image:
        """Return the folder as it is without a power cut."""
        return self._image(self._folders, {path: bytes(file.now) for path, file in self._names.items()})

    def synced(self, suffix: str) -> dict[str, bytes]:
        """Return the synced content of the files whose names end with ``suffix``."""
        start = len(self._root) + 1
        return {path[start:]: file.synced for path, file in self._names.items() if path.endswith(suffix)}

    def after_power_cut(self, random: Random) -> Image:
        names, folders = dict(self._at_first[0]), set(self._at_first[1])
        last = random.choice([0, random.randint(0, len(self._changes))])
        for number, (entry, file) in enumerate(self._changes):
            if number in self._synced or number < last:
                _apply(entry, file, names, folders)
        reached = {self._root}
        for folder in sorted(folders):
            if _parent(folder) in reached:
                reached.add(folder)
        left = {path: file.after_power_cut(random) for path, file in names.items() if _parent(path) in reached}
        return self._image(reached, left)

    def _image(self, folders: Iterable[str], names: dict[str, bytes]) -> Image:
        start = len(self._root) + 1
        inside = frozenset(folder[start:] for folder in folders if folder != self._root)
        return Image(inside, {path[start:]: data for path, data in names.items()})


def _apply(entry: Entry, file: _File | None, names: dict[str, _File], folders: set[str]) -> None:
    if entry.call is Call.MKDIR:
        folders.add(entry.path)
    elif entry.call is Call.RMDIR:
        folders.discard(entry.path)
    else:
        names.pop(entry.path, None)
        if file:
            names[entry.other or entry.path] = file
