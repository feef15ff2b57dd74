"""A disk that fails, as a library that commands are loaded with (``disk.c``), and what it wrote down of their calls."""

import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from tests.support import warm
from tests.support.commands import Command, Ran

PATIENCE = 120.0
"""Seconds that a command has, whatever the disk does."""

_ENTRY = struct.Struct("<IBBHHHiQI")
_FIRST_LINE = 200


class Call(IntEnum):
    """What was called."""

    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    RENAME = 4
    UNLINK = 5
    LINK = 6
    SYMLINK = 7
    MKDIR = 8
    SYNC = 9
    CLOSE = 10
    RMDIR = 11


class Opened(IntFlag):
    """How a file was opened."""

    CREATED = 1
    EMPTIED = 2
    FOLDER = 4
    WRITING = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A call that was made, or that failed as it was asked to."""

    number: int
    """Of the calls that change something, from 1; 0 of others."""
    call: Call
    opened: Opened
    path: str
    other: str
    """What it is renamed or linked to."""
    error: int
    """That it was made to fail with; of a kill the signal's number, of others 0."""
    fd: int
    at: int
    """Where a write begins, or how long a file is to be."""
    data: bytes

    @property
    def takes_room(self) -> bool:
        """Whether it fails on a full disk."""
        if self.call is Call.OPEN:
            return Opened.CREATED in self.opened
        return self.call in {Call.WRITE, Call.MKDIR, Call.LINK, Call.SYMLINK}


def why_not() -> str | None:
    """Why there can be no such disk here; None if there can."""
    if sys.platform != "linux":
        return "calls are intercepted as Linux does it"
    if not shutil.which("cc"):
        return "there is no C compiler"
    return None


def built(folder: Path) -> str:
    """Build the library; returns its path."""
    library = folder / "disk.so"
    source = Path(__file__).with_name("disk.c")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(library)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to go wrong."""

    kind: str
    """``fail``, ``failing``, ``full``, ``before``, ``halfway`` or ``after``; see ``disk.c``."""
    at: int
    """The number of the call, from 1."""
    error: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.at} {self.error}"


def full(at: int) -> Fault:
    """From that call on the disk is full."""
    return Fault("full", at, errno.ENOSPC)


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder whose disk fails as it is told."""

    folder: Path
    library: str
    log: Path
    """Outside of the folder."""

    def run(self, command: Command, *words: str, fault: Fault | None = None) -> tuple[Ran, list[Entry]]:
        """Run a command; returns what it came to, and its calls."""
        self.log.unlink(missing_ok=True)
        orders = {"DISK_FOLDER": str(self.folder), "DISK_LOG": str(self.log)}
        if fault:
            orders["DISK_FAULT"] = str(fault)
        environment = command.environment(**orders)
        with warm.Forked(words, environment, command.home, preload=self.library) as process:
            try:
                out, err = process.communicate(PATIENCE)
            except subprocess.TimeoutExpired as error:
                message = f"{' '.join(words)} has not ended after {PATIENCE} s; fault: {fault}"
                raise AssertionError(message) from error
            ran = Ran(process.wait(), out.decode(), err.decode())
        return ran, list(read(self.log))


def read(log: Path) -> Iterator[Entry]:
    """What was written down."""
    if not log.exists():
        return
    data = memoryview(log.read_bytes())
    place = 0
    while place < len(data):
        number, call, opened, path, other, error, fd, at, size = _ENTRY.unpack_from(data, place)
        place += _ENTRY.size
        parts = []
        for length in (path, other, size):
            parts.append(bytes(data[place : place + length]))
            place += length
        name, to = (os.path.normpath(os.fsdecode(part)) if part else "" for part in parts[:2])
        yield Entry(number, Call(call), Opened(opened), name, to, error, fd, at, parts[2])
