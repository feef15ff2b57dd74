"""What a power cut may leave of what a command did to its files: images of a folder, made of the calls written down.

The model is that of a disk with sectors of 4 KiB and a file system that keeps the order of changes of names. What was
written to a file and not synced since survives sector by sector, each at even odds, and the file has any of the
lengths that it had since. Names that were made, changed or removed survive up to some one, and those besides whose
folder was synced since: syncing a file does not save its name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree

from tests.slow.disk import Call, Entry, Opened

SECTOR = 4096


@dataclass(slots=True)
class _File:
    synced: bytes
    now: bytearray
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Where something was written, and what; or how long it was made."""

    def write(self, at: int, data: bytes) -> None:
        self.pending.append((at, data))
        _put(self.now, at, data)

    def truncate(self, size: int) -> None:
        self.pending.append((size, None))
        _resize(self.now, size)

    def sync(self) -> None:
        if self.pending:
            self.synced, self.pending = bytes(self.now), []

    def cut(self, random: Random) -> bytes:
        """Its bytes after a power cut."""
        if not self.pending:
            return self.synced
        left, sizes, now = bytearray(self.synced), [len(self.synced)], len(self.synced)
        for at, data in self.pending:
            if data is None:
                now = at
                if random.random() < 0.5:
                    _resize(left, at)
            else:
                now = max(now, at + len(data))
                for start in range(at - at % SECTOR, at + len(data), SECTOR):
                    if random.random() < 0.5:
                        first, last = max(start, at), min(start + SECTOR, at + len(data))
                        _put(left, first, data[first - at : last - at])
            sizes.append(now)
        _resize(left, random.choice(sizes))
        return bytes(left)


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        _resize(content, at)
    content[at : at + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass(slots=True)
class _Change:
    """Of names."""

    call: Call
    path: str
    other: str
    file: _File | None
    """That gets a name; None of a folder, or if one only loses its name."""
    synced: bool = False

    def touches(self, folder: str) -> bool:
        return folder in {_parent(self.path), _parent(self.other or self.path)}


@dataclass(frozen=True, slots=True)
class Image:
    """What is in a folder, by path from there."""

    folders: frozenset[str]
    files: dict[str, bytes]

    def write(self, folder: Path) -> None:
        """Make a folder hold this and nothing else."""
        rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in sorted(self.folders):
            (folder / name).mkdir()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


def taken(folder: Path) -> Image:
    """What is in a folder; without what SQLite maps into memory."""
    inside = [(path, str(path.relative_to(folder))) for path in folder.rglob("*")]
    return Image(
        frozenset(name for path, name in inside if path.is_dir()),
        {name: path.read_bytes() for path, name in inside if path.is_file() and not name.endswith("-shm")},
    )


class Replay:
    """A folder as it was at some moment of a run."""

    def __init__(self, before: Image, folder: Path) -> None:
        """Begin with what was there before the run, which is safe."""
        self._folder = str(folder)
        self._before = before
        self._names = {self._path(name): _File(data, bytearray(data)) for name, data in before.files.items()}
        self._at_first = dict(self._names)
        self._folders = {self._folder, *map(self._path, before.folders)}
        self._changes: list[_Change] = []
        self._files: dict[int, _File] = {}
        self._opened_folders: dict[int, str] = {}

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def take(self, entry: Entry) -> None:
        """Go on by one call."""
        if entry.error:  # it did nothing
            return
        match entry.call:
            case Call.OPEN:
                self._open(entry)
            case Call.WRITE:
                self._files[entry.fd].write(entry.at, entry.data)
            case Call.TRUNCATE:
                self._files[entry.fd].truncate(entry.at)
            case Call.SYNC:
                self._sync(entry.fd)
            case Call.CLOSE:
                self._files.pop(entry.fd, None)
                self._opened_folders.pop(entry.fd, None)
            case _:
                self._rename(entry)

    def _rename(self, entry: Entry) -> None:
        """Have a name change, come or go."""
        match entry.call:
            case Call.UNLINK:
                self._names.pop(entry.path, None)
                self._change(entry)
            case Call.RENAME:
                self._names[entry.other] = self._names.pop(entry.path)
                self._change(entry, self._names[entry.other])
            case Call.MKDIR:
                self._folders.add(entry.path)
                self._change(entry)
            case Call.RMDIR:
                self._folders.remove(entry.path)
                self._change(entry)
            case _:
                message = f"{entry.call.name} of {entry.path} is nothing that is expected"
                raise AssertionError(message)

    def _change(self, entry: Entry, file: _File | None = None) -> None:
        self._changes.append(_Change(entry.call, entry.path, entry.other, file))

    def _open(self, entry: Entry) -> None:
        if Opened.FOLDER in entry.opened:
            self._opened_folders[entry.fd] = entry.path
            return
        file = self._names.get(entry.path)
        if file is None:
            file = self._names[entry.path] = _File(b"", bytearray())
            self._change(entry, file)
        elif Opened.EMPTIED in entry.opened and file.now:
            file.truncate(0)
        self._files[entry.fd] = file

    def _sync(self, fd: int) -> None:
        if fd in self._files:
            self._files[fd].sync()
            return
        folder = self._opened_folders[fd]
        for change in self._changes:
            change.synced |= change.touches(folder)

    def whole(self) -> Image:
        """All, as those see it who look before there is any power cut."""
        names = {path: bytes(file.now) for path, file in self._names.items()}
        return self._image(self._folders, names)

    def synced(self, suffix: str) -> dict[str, bytes]:
        """What is safe of files whose names end so."""
        start = len(self._folder) + 1
        return {path[start:]: file.synced for path, file in self._names.items() if path.endswith(suffix)}

    def cut(self, random: Random) -> Image:
        """What a power cut might leave."""
        names, folders = dict(self._at_first), {self._folder, *map(self._path, self._before.folders)}
        last = random.choice([0, random.randint(0, len(self._changes))])  # none is what is worst, and likely soon after
        for number, change in enumerate(self._changes):
            if not (change.synced or number < last):
                continue
            match change.call:
                case Call.OPEN | Call.RENAME:
                    names.pop(change.path, None)
                    if change.file:
                        names[change.other or change.path] = change.file
                case Call.UNLINK:
                    names.pop(change.path, None)
                case Call.MKDIR:
                    folders.add(change.path)
                case _:
                    folders.discard(change.path)
        reached = {self._folder}
        for folder in sorted(folders):
            if _parent(folder) in reached:
                reached.add(folder)
        left = {path: file.cut(random) for path, file in names.items() if _parent(path) in reached}
        return self._image(reached, left)

    def _image(self, folders: Iterable[str], names: dict[str, bytes]) -> Image:
        start = len(self._folder) + 1
        return Image(
            frozenset(folder[start:] for folder in folders if folder != self._folder),
            {path[start:]: data for path, data in names.items()},
        )
