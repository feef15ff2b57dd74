"""The ledger of an output: JSON lines that say which captures are stored in which file."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from catalogue.atomic_files import named, resume, sync_folder
from catalogue.commoncrawl.capture import Capture
from catalogue.errors import QueryError

_LONGEST_LINE = 256 << 20
"""Bytes; longer lines are not of a ledger."""
RecordKey: TypeAlias = tuple[str, int]
"""Archive and offset."""


def key_of(capture: Capture) -> RecordKey:
    return capture.filename, capture.offset


class JsonLedger(ABC):
    """An open file of JSON lines, each written after the step that it describes; the first identifies the work.

    A last line that was cut off by a kill is dropped.
    """

    replaces_unused = False
    """Whether a ledger of other work is replaced if no step of it is done."""

    def __init__(self, path: Path, about: Mapping[str, Any], *, unreadable: str, other: str) -> None:
        """Open or create a ledger, and apply its lines.

        Raises:
            QueryError: ``unreadable`` if the file is not a ledger, ``other`` if it is of other work.
        """
        about = json.loads(json.dumps(about))
        with ExitStack() as opened:
            self._file: BinaryIO = opened.enter_context(resume(path))
            end, is_other = 0, False
            try:
                while (line := self._file.readline(_LONGEST_LINE)).endswith(b"\n"):
                    if is_other:
                        if b'"done"' in line:
                            raise QueryError(other)
                        continue
                    entry = json.loads(line)
                    if end:
                        self._apply(entry)
                    elif entry["about"] != about:
                        if not self.replaces_unused:
                            raise QueryError(other)
                        is_other = True
                        continue
                    end += len(line)
                if len(line) == _LONGEST_LINE:
                    raise QueryError(unreadable)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise error if isinstance(error, QueryError) else QueryError(unreadable) from error
            self._file.seek(end)
            self._file.truncate()
            if not end:
                self._write({"about": about})
                sync_folder(path.parent)
            opened.pop_all()

    @abstractmethod
    def _apply(self, entry: dict[str, Any]) -> None: ...

    def _enter(self, entry: dict[str, Any]) -> None:
        self._apply(entry)
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Ledger(JsonLedger):
    """The open ledger of one output.

    Attributes:
        sizes: bytes of unfinished files, by name.
        finished: sizes of finished files, by name.
        failed: reason and, for permanent failures, a digest of the request; by record.
        deleted: records whose payload file no longer exists.
    """

    def __init__(
        self, path: Path, about: Mapping[str, Any], *, label: str = "", publish: Callable[[], None] = lambda: None
    ) -> None:
        """Open or create a ledger.

        ``label`` is its name in messages, by default the path; ``publish`` is called when a file is finished.
        """
        self.path = path
        self.publish = publish
        self.sizes: dict[str, int] = {}
        self.finished: dict[str, int] = {}
        self.failed: dict[RecordKey, tuple[str, str]] = {}
        self.deleted: set[RecordKey] = set()
        self._stored: dict[str, dict[str, set[int]]] = {}  # by output file and archive: offsets
        label = label or str(path)
        with named(label):
            super().__init__(
                path,
                about,
                unreadable=f"{label} cannot be read as a ledger; choose another name, or delete it",
                other=f"{label} is of another output; choose another name, or delete it",
            )

    def _apply(self, entry: dict[str, Any]) -> None:
        match entry:
            case {"finished": file}:
                del self.sizes[file]
                self.finished[file] = int(entry["size"])
            case {"reopened": file}:
                del self.finished[file]
                self.sizes[file] = int(entry["size"])
            case {"lost": file}:
                for files in (self._stored, self.sizes, self.finished):
                    files.pop(file, None)
            case _:
                if "file" in entry:
                    self.sizes[entry["file"]] = int(entry["size"])
                    stored = self._stored.setdefault(entry["file"], {})
                    for archive, offset in entry["done"]:
                        stored.setdefault(archive, set()).add(int(offset))
                        self.failed.pop((archive, int(offset)), None)
                for archive, offset, reason, request in entry.get("failed", ()):
                    self.failed[archive, int(offset)] = (str(reason), str(request))

    def is_stored(self, capture: Capture) -> bool:
        return key_of(capture) not in self.deleted and any(
            capture.offset in stored.get(capture.filename, ()) for stored in self._stored.values()
        )

    @property
    def num_stored(self) -> int:
        return sum(len(offsets) for stored in self._stored.values() for offsets in stored.values()) - len(self.deleted)

    @property
    def empty(self) -> bool:
        return not (self.sizes or self.finished or self.failed)

    def add(self, file: str, size: int, captures: Sequence[Capture]) -> None:
        self._enter({"file": file, "size": size, "done": [key_of(each) for each in captures]})

    def add_failed(self, failed: Iterable[tuple[Capture, str, str]]) -> None:
        self._enter({"failed": [[*key_of(capture), reason, request] for capture, reason, request in failed]})

    def finish(self, file: str, size: int) -> None:
        self._enter({"finished": file, "size": size})
        self.publish()

    def reopen(self, file: str, size: int) -> None:
        self._enter({"reopened": file, "size": size})

    def lose(self, file: str) -> None:
        self._enter({"lost": file})
