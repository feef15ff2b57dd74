"""Write records to an output that survives a kill at any time: files in parts, payloads in a folder, or a stream.

Files grow on this machine as ``.NAME.part``. Bytes that the ledger does not list are cut off after a kill and fetched
again. A finished file is sealed, moved or uploaded to its final name, and noted as finished.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import IO, BinaryIO, TypeAlias

from catalogue.atomic_files import create, resume, sync_folder, temporary_folder
from catalogue.commoncrawl.capture import Capture
from catalogue.errors import QueryError
from catalogue.output.formats import RecordFormat, sealed_path
from catalogue.output.ledger import Ledger, key_of
from catalogue.output.targets import Target

INDEX = "index.jsonl"

_BATCH_RECORDS, _BATCH_BYTES = 500, 8 << 20
"""Records and bytes between syncs."""
_BATCH_PAYLOADS, _BATCH_PAYLOAD_BYTES = 200, 16 << 20
_PAYLOAD_THREADS = 16


class PartWriter:
    """One file, or numbered files of about ``max_bytes``."""

    def __init__(
        self, target: Target, name: str, format_: RecordFormat, ledger: Ledger, *, max_bytes: int | None = None
    ) -> None:
        """Continue or begin an output.

        Raises:
            QueryError: if a finished file has been changed.
        """
        self.format = format_
        self._target = target
        self._output = name
        self._ledger = ledger
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None
        self._name = ""
        self._size = 0
        self._pending: list[tuple[Capture, int]] = []  # not in the ledger yet; each with the size of the file after it
        self._pending_bytes = 0
        self._recover()

    def _recover(self) -> None:
        for name, size in sorted(self._ledger.finished.items()):
            partial, actual = self._partial(name), self._target.size(name)
            if actual == size:
                for left in (partial, sealed_path(partial)):
                    left.unlink(missing_ok=True)
            elif actual is not None:
                raise QueryError(
                    f"{self._target.label(name)} has {actual:,} bytes instead of the {size:,} that were written; move "
                    "it away or delete it, and run the same command again"
                )
            elif partial.exists() and partial.stat().st_size == size:
                self._ledger.reopen(name, size)
            else:
                self._ledger.lose(name)
        for name, size in sorted(self._ledger.sizes.items()):
            partial = self._partial(name)
            if not partial.exists() and self._target.size(name) == size:
                self._ledger.finish(name, size)
            elif not partial.exists() or partial.stat().st_size < size:
                self._ledger.lose(name)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the ledger accounts for."""
        for name in self._ledger.finished:
            with self._target.download(name).open("rb") as file:
                yield from file
        for name, size in self._ledger.sizes.items():
            with self._partial(name).open("rb") as file:
                while file.tell() < size:
                    yield file.readline()

    def add(self, capture: Capture, data: bytes) -> None:
        used = self._pending or self._name in self._ledger.sizes
        if self._file and self._max_bytes and self._size + len(data) > self._max_bytes and used:
            self._finish_file()
        file = self._file or self._open()
        file.write(data)
        # One statement, since an interrupt may come between any two; bytes beyond the ledger's size are cut off.
        self._pending.append((capture, self._size + len(data)))
        self._size += len(data)
        self._pending_bytes += len(data)
        if len(self._pending) >= _BATCH_RECORDS or self._pending_bytes >= _BATCH_BYTES:
            self.sync()

    def sync(self) -> None:
        if self._file and self._pending:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._ledger.add(self._name, self._pending[-1][1], [capture for capture, _ in self._pending])
            self._pending, self._pending_bytes = [], 0

    def finish(self) -> list[str]:
        if self._file is None and self._ledger.sizes:
            self._open()
        self._finish_file()
        return sorted(self._ledger.finished)

    def close(self) -> None:
        """Stop; an unfinished file keeps its temporary name."""
        try:
            self.sync()
        finally:
            if self._file:
                with suppress(OSError):  # of bytes that were not synced, which was reported before
                    self._file.close()
                self._file = None

    def _open(self) -> BinaryIO:
        self._name = min(self._ledger.sizes, default="") or self._next_name()
        size = self._ledger.sizes.get(self._name, 0)
        if not size and self._target.size(self._name) is not None:
            raise QueryError(
                f"{self._target.label(self._name)} was not written by this command; move it away or delete it"
            )
        file = self._file = resume(self._partial(self._name))
        file.seek(size)
        file.truncate()
        self._size = size
        if not size:
            sync_folder(self._target.staging)
            header = self.format.header(self._name)
            file.write(header)
            self._size = len(header)
        return file

    def _next_name(self) -> str:
        if self._max_bytes:
            names = numbered(self._output, self.format)
            return next(name for name in names if name not in self._ledger.finished)
        name = self._output
        if name in self._ledger.finished:
            partial = self._partial(name)
            self.format.unseal(self._target.download(name), partial)
            sync_folder(self._target.staging)  # before the ledger names it
            self._ledger.reopen(name, partial.stat().st_size)
        return name

    def _partial(self, name: str) -> Path:
        return self._target.staging / f".{name}.part"

    def _finish_file(self) -> None:
        if self._file is None:
            return
        self.sync()
        self._file.close()
        self._file = None
        partial = self._partial(self._name)
        finished = self.format.seal(partial)
        size = finished.stat().st_size
        self._target.put(finished, self._name)
        if finished != partial:
            finished.unlink(missing_ok=True)
        self._ledger.finish(self._name, size)
        partial.unlink(missing_ok=True)


class PayloadWriter:
    """A folder of payload files and their index, which lists a payload after it has its final name."""

    def __init__(self, target: Target, name: str, format_: RecordFormat, ledger: Ledger) -> None:
        self._target = target.subfolder(name)
        self._folder = name
        self._index = PartWriter(self._target, INDEX, format_, ledger)
        self._pending: list[tuple[Capture, bytes, str, bytes]] = []
        self._pending_bytes = 0
        self._ledger = ledger
        ledger.deleted.update(self._deleted())
        self._opened = ExitStack()
        self._staging = self._opened.enter_context(temporary_folder(self._target.staging / ".payloads"))
        self._executor = ThreadPoolExecutor(_PAYLOAD_THREADS, thread_name_prefix="payloads")

    def _deleted(self) -> Iterator[tuple[str, int]]:
        names: set[str] | None = None
        for line in self._index.lines():
            names = self._target.names() if names is None else names
            entry = json.loads(line)
            if entry["file"] not in names:
                yield entry["warc_filename"], entry["warc_record_offset"]

    def add(self, capture: Capture, data: bytes) -> None:
        line, _, payload = data.partition(b"\n")
        self._pending.append((capture, line + b"\n", json.loads(line)["file"], payload))
        self._pending_bytes += len(payload)
        if len(self._pending) >= _BATCH_PAYLOADS or self._pending_bytes >= _BATCH_PAYLOAD_BYTES:
            self.sync()

    def sync(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        for _ in self._executor.map(self._store, pending):
            pass
        for capture, line, *_ in pending:
            if key_of(capture) in self._ledger.deleted:
                self._ledger.deleted.discard(key_of(capture))  # the index lists it already
            else:
                self._index.add(capture, line)
        self._index.sync()

    def _store(self, pending: tuple[Capture, bytes, str, bytes]) -> None:
        *_, name, payload = pending
        staged = self._staging / Path(name).name
        with create(staged) as file:
            file.write(payload)
        self._target.put(staged, name)
        staged.unlink(missing_ok=True)

    def finish(self) -> list[str]:
        self.sync()
        return [f"{self._folder}/{name}" for name in self._index.finish()]

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
        self._opened.close()
        self._index.close()


class StreamWriter:
    """An open file, such as a pipe; it cannot be continued."""

    def __init__(self, file: IO[bytes], format_: RecordFormat, ledger: Ledger) -> None:
        self._file = file
        self._ledger = ledger
        self._pending: list[Capture] = []
        file.write(format_.header(""))

    def add(self, capture: Capture, data: bytes) -> None:
        self._file.write(data)
        self._pending.append(capture)

    def sync(self) -> None:
        self._file.flush()
        self._ledger.add("stream", 0, self._pending)
        self._pending = []

    def finish(self) -> list[str]:
        self.sync()
        return []


RecordWriter: TypeAlias = PartWriter | PayloadWriter | StreamWriter


def numbered(name: str, format_: RecordFormat) -> Iterator[str]:
    """Yield names such as ``out-00000.warc.gz``."""
    stem = name.removesuffix(format_.suffix)
    return (f"{stem}-{number:05}{format_.suffix}" for number in count())
