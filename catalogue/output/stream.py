"""An output that can only be appended to, such as a pipe, and so cannot be resumed."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import QueryError
from catalogue.output.formats import Form, Payloads
from catalogue.output.ledger import Ledger
from catalogue.output.row_formats import Rows


class Stream:
    """Records written to an open file as they come."""

    def __init__(self, file: IO[bytes], form: Form, ledger: Ledger) -> None:
        """Begin with the form's head; see ``Parts``."""
        self._file = file
        self._ledger = ledger
        self._waiting: list[Capture] = []
        file.write(form.head(""))

    def add(self, capture: Capture, data: bytes) -> None:
        """See ``Parts``."""
        self._file.write(data)
        self._waiting.append(capture)

    def fail(self, failed: Iterable[tuple[Capture, str, str]]) -> None:
        """See ``Parts``."""
        self._ledger.note_failed(failed)

    def make_safe(self) -> None:
        """Flush, and note the records, so that none is written twice."""
        self._file.flush()
        self._ledger.note("stream", 0, self._waiting)
        self._waiting = []

    def finish(self) -> list[str]:
        """There are no files to name; see ``Parts``."""
        self.make_safe()
        return []


@contextmanager
def open_stream(file: IO[bytes], form: Form) -> Iterator[tuple[Stream, Ledger]]:
    """Write records to an open file.

    Raises:
        QueryError: if the form cannot be written from start to end.
    """
    if isinstance(form, Payloads | Rows):
        message = "only warc, text and metadata can be written to a stream; choose one of them, or give a file"
        raise QueryError(message)
    with TemporaryDirectory() as folder, closing(Ledger(Path(folder) / "ledger", {})) as ledger:
        yield Stream(file, form, ledger), ledger
