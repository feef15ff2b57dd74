"""What is done of an output, beside it: run again, only what is missing is fetched.

JSON lines, of which the last may have been cut off by whatever stopped it. Each says what became of some captures, and
how long their file was when they were safely in it.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from catalogue.atomic_files import named, resume, sync_folder
from catalogue.commoncrawl.capture import Capture
from catalogue.errors import QueryError

Place = tuple[str, int]
"""An archive and an offset in it, which is what makes a capture that capture."""


class Ledger:
    """The ledger of one output, open."""

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        *,
        shown: str = "",
        publish: Callable[[], None] = lambda: None,
    ) -> None:
        """Open a ledger, or begin one.

        Args:
            path: of its file.
            about: what makes the output this one and no other, as JSON has it.
            shown: what users call it, if not by its path.
            publish: called when a file of the output was finished, to have that known elsewhere.

        Raises:
            QueryError: if it is of another output, or no ledger.
        """
        self.path = path
        self.publish = publish
        self._shown = shown or str(path)
        self.sizes: dict[str, int] = {}
        """Bytes of files that are not finished, up to which they are accounted for."""
        self.finished: dict[str, int] = {}
        """Bytes of those that are, as they were kept."""
        self._done: dict[str, dict[str, set[int]]] = {}
        """By file of the output, archive and offset."""
        self.failed: dict[Place, tuple[str, str]] = {}
        """Reasons, and of what question they are the lasting answer; empty if of none."""
        self.gone: set[Place] = set()
        """What was in the output, and was found to be there no more."""
        with named(self._shown), ExitStack() as opened:
            self._file: BinaryIO = opened.enter_context(resume(path))
            whole = self._read(json.loads(json.dumps(about)))
            self._file.seek(whole)
            self._file.truncate()
            if not whole:
                self._write({"about": about})
                sync_folder(path.parent)
            opened.pop_all()

    def _read(self, about: object) -> int:
        """Take what is there; returns the bytes of it that are whole."""
        whole = 0
        for number, line in enumerate(self._file.read().splitlines(keepends=True)):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                if number == 0 and entry["about"] != about:
                    message = f"{self._shown} is of another output; choose another name, or delete it"
                    raise QueryError(message)
                if number:
                    self._take(entry)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if isinstance(error, QueryError):
                    raise
                message = f"{self._shown} cannot be read as a ledger; choose another name, or delete it"
                raise QueryError(message) from error
            whole += len(line)
        return whole

    def _take(self, entry: dict[str, Any]) -> None:
        if "finished" in entry:
            del self.sizes[entry["finished"]]
            self.finished[entry["finished"]] = int(entry["size"])
            return
        if "reopened" in entry:
            del self.finished[entry["reopened"]]
            self.sizes[entry["reopened"]] = int(entry["size"])
            return
        if "lost" in entry:
            self._lose(entry["lost"])
            return
        if "file" in entry:
            self.sizes[entry["file"]] = int(entry["size"])
            held = self._done.setdefault(entry["file"], {})
            for archive, offset in entry["done"]:
                held.setdefault(archive, set()).add(int(offset))
                self.failed.pop((archive, int(offset)), None)
        for archive, offset, reason, asked in entry.get("failed", ()):
            self.failed[archive, int(offset)] = (str(reason), str(asked))

    def _lose(self, file: str) -> None:
        self._done.pop(file, None)
        self.sizes.pop(file, None)
        self.finished.pop(file, None)

    def is_done(self, capture: Capture) -> bool:
        """Whether its record is safely in the output."""
        return (capture.filename, capture.offset) not in self.gone and any(
            capture.offset in held.get(capture.filename, ()) for held in self._done.values()
        )

    @property
    def done(self) -> int:
        """How many are."""
        return sum(len(offsets) for held in self._done.values() for offsets in held.values()) - len(self.gone)

    @property
    def empty(self) -> bool:
        """Whether nothing was noted."""
        return not (self.sizes or self.finished or self.failed)

    def note(self, file: str, size: int, done: Sequence[Capture]) -> None:
        """Note what is safely in a file of the output."""
        self._enter({"file": file, "size": size, "done": [[each.filename, each.offset] for each in done]})

    def note_failed(self, failed: Iterable[tuple[Capture, str, str]]) -> None:
        """Note what could not be had, why, and of what question that is the lasting answer; see ``failed``."""
        self._enter({"failed": [[c.filename, c.offset, reason, asked] for c, reason, asked in failed]})

    def finish(self, file: str, size: int) -> None:
        """Note that a file of the output has its own name and will not grow, and how long it is."""
        self._enter({"finished": file, "size": size})
        self.publish()

    def reopen(self, file: str, size: int) -> None:
        """Note that a file that was finished goes on, and how long what grows on is."""
        self._enter({"reopened": file, "size": size})

    def lose(self, file: str) -> None:
        """Note that a file is not there any more, and with it what was in it."""
        self._enter({"lost": file})

    def _enter(self, entry: dict[str, Any]) -> None:
        self._take(entry)
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
