"""A folder of payloads, each a file of its own, and an index of them."""

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree

from catalogue.atomic_files import create, create_folder
from catalogue.commoncrawl.capture import Capture
from catalogue.output.formats import Payloads
from catalogue.output.ledger import Ledger
from catalogue.output.parts import Parts
from catalogue.output.targets import Place

INDEX = "index.jsonl"

_BATCH_FILES, _BATCH_BYTES = 200, 16 << 20
"""Payloads that wait to be written together, at most."""
_THREADS = 16


class Folder:
    """The files of such an output. A payload has its name before the index, or the ledger, names it."""

    def __init__(self, place: Place, name: str, form: Payloads, ledger: Ledger) -> None:
        """Go on with an output, or begin one; see ``Parts``."""
        self._place = place.below(name)
        self._name = name
        self._form = form
        self._index = Parts(self._place, INDEX, form, ledger)
        self._waiting: list[tuple[Capture, bytes, str, bytes]] = []
        self._size = 0
        self._ledger = ledger
        ledger.gone.update(self._lacking())
        self._growing = self._place.growing / ".payloads"
        create_folder(self._growing)
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="payloads")

    def _lacking(self) -> Iterator[tuple[str, int]]:
        """The places of payloads that the index names and nobody finds."""
        there: set[str] | None = None
        for line in self._index.written():
            there = self._place.names() if there is None else there
            named = json.loads(line)
            if named["file"] not in there:
                yield named["warc_filename"], named["warc_record_offset"]

    @property
    def form(self) -> Payloads:
        """See ``Parts``."""
        return self._form

    def add(self, capture: Capture, data: bytes) -> None:
        """See ``Parts``."""
        line, _, payload = data.partition(b"\n")
        self._waiting.append((capture, line + b"\n", json.loads(line)["file"], payload))
        self._size += len(payload)
        if len(self._waiting) >= _BATCH_FILES or self._size >= _BATCH_BYTES:
            self.make_safe()

    def fail(self, failed: Iterable[tuple[Capture, str, str]]) -> None:
        """See ``Parts``."""
        self._index.fail(failed)

    def make_safe(self) -> None:
        """See ``Parts``."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            for _ in self._executor.map(self._keep, *zip(*((name, data) for *_, name, data in waiting), strict=True)):
                pass
            for capture, line, *_ in waiting:
                if (place := (capture.filename, capture.offset)) in self._ledger.gone:
                    self._ledger.gone.discard(place)  # the index names it
                else:
                    self._index.add(capture, line)
        self._index.make_safe()

    def _keep(self, name: str, payload: bytes) -> None:
        grown = self._growing / Path(name).name
        with create(grown) as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        self._place.put(grown, name)
        grown.unlink(missing_ok=True)

    def finish(self) -> list[str]:
        """See ``Parts``."""
        self.make_safe()
        return [f"{self._name}/{name}" for name in self._index.finish()]

    def close(self) -> None:
        """See ``Parts``."""
        self._executor.shutdown(cancel_futures=True)
        rmtree(self._growing, ignore_errors=True)
        self._index.close()
