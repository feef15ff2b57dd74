"""The ledger of an output: JSON lines that say which captures are stored in which file.

With it the same command fetches only what is missing. Each line is written after the bytes that it accounts for; a last
line that was cut off by a kill is dropped.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from catalogue.atomic_files import append, named, resume, sync_folder
from catalogue.commoncrawl.capture import Capture
from catalogue.errors import QueryError

RecordKey: TypeAlias = tuple[str, int]
"""Archive and offset, which identify a record."""


def key_of(capture: Capture) -> RecordKey:
    return capture.filename, capture.offset


class Ledger:
    """The open ledger of one output.

    Attributes:
        sizes: bytes accounted for, by name of unfinished file.
        finished: size by name of finished file.
        failed: reason and, for permanent failures, a digest of the request; by record.
        deleted: records whose payload file no longer exists.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        *,
        label: str = "",
        publish: Callable[[], None] = lambda: None,
    ) -> None:
        """Open or create a ledger.

        Args:
            path: its file.
            about: identifies the output, as JSON values.
            label: name in messages; by default the path.
            publish: called when a file is finished.

        Raises:
            QueryError: if the file is not a ledger, or the ledger of another output.
        """
        self.path = path
        self.publish = publish
        self.sizes: dict[str, int] = {}
        self.finished: dict[str, int] = {}
        self.failed: dict[RecordKey, tuple[str, str]] = {}
        self.deleted: set[RecordKey] = set()
        self._stored: dict[str, dict[str, set[int]]] = {}  # by output file and archive: offsets
        self._label = label or str(path)
        with named(self._label), ExitStack() as opened:
            self._file: BinaryIO = opened.enter_context(resume(path))
            complete = self._read(json.loads(json.dumps(about)))
            self._file.seek(complete)
            self._file.truncate()
            if not complete:
                self._write({"about": about})
                sync_folder(path.parent)
            opened.pop_all()

    def _read(self, about: object) -> int:
        """Apply the entries of the file; return the bytes of its complete lines."""
        complete, is_other = 0, False
        for number, line in enumerate(self._file.read().splitlines(keepends=True)):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                if number:
                    self._apply(entry)
                else:
                    is_other = entry["about"] != about
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise QueryError(
                    f"{self._label} cannot be read as a ledger; choose another name, or delete it"
                ) from error
            if is_other:
                raise QueryError(f"{self._label} is of another output; choose another name, or delete it")
            complete += len(line)
        return complete

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
        """Note records that are synced to a file, and its size with them."""
        self._enter({"file": file, "size": size, "done": [key_of(each) for each in captures]})

    def add_failed(self, failed: Iterable[tuple[Capture, str, str]]) -> None:
        """Note captures that failed; see ``failed``."""
        self._enter({"failed": [[*key_of(capture), reason, request] for capture, reason, request in failed]})

    def finish(self, file: str, size: int) -> None:
        """Note that a file is complete under its final name."""
        self._enter({"finished": file, "size": size})
        self.publish()

    def reopen(self, file: str, size: int) -> None:
        """Note that a finished file grows again, with the size of its growing form."""
        self._enter({"reopened": file, "size": size})

    def lose(self, file: str) -> None:
        """Note that a file and its records no longer exist."""
        self._enter({"lost": file})

    def _enter(self, entry: dict[str, Any]) -> None:
        self._apply(entry)
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        append(self._file, json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        self._file.close()
