"""A file, or several of about a size, that grow record by record and get their names when they are finished."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from catalogue.atomic_files import resume, sync_folder
from catalogue.commoncrawl.capture import Capture
from catalogue.errors import QueryError
from catalogue.output.formats import Form, whole
from catalogue.output.ledger import Ledger
from catalogue.output.targets import Place

_BATCH_RECORDS, _BATCH_BYTES = 500, 8 << 20
"""After so many records or bytes what was written is made safe."""


class Parts:
    """The files of an output.

    What was noted in the ledger is safely in them; what comes behind that, after a kill, is cut off and fetched again.
    """

    def __init__(self, place: Place, name: str, form: Form, ledger: Ledger, *, most: int | None = None) -> None:
        """Go on with an output, or begin one.

        Args:
            place: where the files go.
            name: of the file; with ``most`` it gets a number, ``out-00000.warc.gz``.
            form: of the records in it.
            ledger: of this output.
            most: bytes of a file, about, after which another is begun; None for one file.
        """
        self._place = place
        self._target = name
        self._form = form
        self._ledger = ledger
        self._most = most
        self._file: BinaryIO | None = None
        self._name = ""
        self._size = 0
        self._waiting: list[tuple[Capture, int]] = []
        self._unsafe = 0
        self._look()

    def _look(self) -> None:
        """See what is there of what the ledger says."""
        for name, size in sorted(self._ledger.finished.items()):
            beside = self._beside(name)
            there = self._place.size(name)
            if there == size:
                for left in (beside, whole(beside)):  # it was stopped before the last step, or when it was to go on
                    left.unlink(missing_ok=True)
            elif there is not None:
                message = (
                    f"{self._place.shown(name)} has {there:,} bytes and not the {size:,} that were written; move it "
                    "away or delete it, and the same again fetches it anew"
                )
                raise QueryError(message)
            elif beside.exists() and beside.stat().st_size == size:  # likewise
                self._ledger.reopen(name, size)
            else:
                self._ledger.lose(name)
        for name, size in sorted(self._ledger.sizes.items()):
            beside = self._beside(name)
            if not beside.exists() and self._place.size(name) == size:
                self._ledger.finish(name, size)  # it was stopped between the last two steps
            elif not beside.exists() or beside.stat().st_size < size:
                self._ledger.lose(name)

    @property
    def form(self) -> Form:
        """Of the records in it."""
        return self._form

    def written(self) -> Iterator[bytes]:
        """The lines of a file of such, as far as it is accounted for."""
        for name in self._ledger.finished:
            brought = self._place.bring(name)
            with brought.open("rb") as file:
                yield from file
            self._place.done_with(brought)
        for name, size in self._ledger.sizes.items():
            with self._beside(name).open("rb") as file:
                while file.tell() < size:
                    yield file.readline()

    def add(self, capture: Capture, data: bytes) -> None:
        """Write the record of a capture, as its form has it."""
        if self._file and self._most and self._size + len(data) > self._most and self._waiting_or_held:
            self._finish()
        file = self._file or self._open()
        file.write(data)
        # In one step, since whatever stops this may do so between any two; what is longer than that is cut off.
        self._waiting.append((capture, self._size + len(data)))
        self._size += len(data)
        self._unsafe += len(data)
        if len(self._waiting) >= _BATCH_RECORDS or self._unsafe >= _BATCH_BYTES:
            self.make_safe()

    @property
    def _waiting_or_held(self) -> bool:
        return bool(self._waiting) or self._name in self._ledger.sizes

    def fail(self, failed: Iterable[tuple[Capture, str, str]]) -> None:
        """Note what could not be had; see ``Ledger.note_failed``."""
        self._ledger.note_failed(failed)

    def make_safe(self) -> None:
        """Have what was written survive whatever happens."""
        if self._file and self._waiting:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._ledger.note(self._name, self._waiting[-1][1], [capture for capture, _ in self._waiting])
            self._waiting, self._unsafe = [], 0

    def finish(self) -> list[str]:
        """Finish the last file, too; returns the names of all."""
        if self._file is None and self._ledger.sizes:
            self._open()
        self._finish()
        return sorted(self._ledger.finished)

    def close(self) -> None:
        """Leave off; what is not finished keeps its name that begins with a dot."""
        try:
            self.make_safe()
        finally:
            if self._file:
                with suppress(OSError):  # of what was not safe, and said before
                    self._file.close()
                self._file = None

    def _open(self) -> BinaryIO:
        """The file to go on with, or the next."""
        self._name = next(iter(sorted(self._ledger.sizes)), None) or self._next_name()
        size = self._ledger.sizes.get(self._name, 0)
        if not size and self._place.size(self._name) is not None:
            message = f"{self._place.shown(self._name)} holds something else; move it away or delete it"
            raise QueryError(message)
        file = self._file = resume(self._beside(self._name))
        file.seek(size)
        file.truncate()
        self._size = size
        if not size:
            sync_folder(self._place.growing)
            head = self._form.head(self._name)
            file.write(head)
            self._size = len(head)
        return file

    def _next_name(self) -> str:
        """A name that no file has; but where there is to be one file, that is what goes on."""
        if self._most is None:
            name = self._target
            if name in self._ledger.finished:
                beside = self._beside(name)
                self._form.regrow(self._place.bring(name), beside)
                sync_folder(self._place.growing)  # before the ledger says that it has its name
                self._ledger.reopen(name, beside.stat().st_size)
            return name
        names = _numbered(self._target, self._form)
        return next(name for name in names if name not in self._ledger.finished)

    def _beside(self, name: str) -> Path:
        return self._place.growing / f".{name}.part"

    def _finish(self) -> None:
        if self._file is None:
            return
        self.make_safe()
        self._file.close()
        self._file = None
        grown = self._beside(self._name)
        kept = self._form.seal(grown)
        size = kept.stat().st_size
        self._place.put(kept, self._name)
        if kept != grown:
            kept.unlink(missing_ok=True)
        self._ledger.finish(self._name, size)
        grown.unlink(missing_ok=True)


def first_name(name: str, form: Form, most: int | None) -> str:
    """Of the first file of an output."""
    return name if most is None else next(_numbered(name, form))


def _numbered(name: str, form: Form) -> Iterator[str]:
    stem = name.removesuffix(form.suffix)
    return (f"{stem}-{number:05}{form.suffix}" for number in count())
