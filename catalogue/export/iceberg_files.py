"""Files of a table as pyiceberg reads them: footers from the store, data from our source, pinned to what is held."""

import io
from collections.abc import Callable
from typing import Any

from pyiceberg.io import InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalogue.errors import StoreLocked
from catalogue.parquet.footer import with_trailer
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import Source
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile


class HeldFiles:
    """Files whose footers are held, by their address; safe to use from many threads."""

    def __init__(self, store: Store, source: Source, location: str) -> None:
        """Take what they are read by.

        Args:
            store: with their footers.
            source: with their data.
            location: where a table says that they are, with a slash at its end.
        """
        self._store = store
        self._source = source
        self._location = location
        self._state = store.state()
        self._last_row = store.last_row("files")

    def find(self, address: str) -> tuple[str, StoredFile] | None:
        """A file's path and what is held of it; None if that is nothing.

        Raises:
            StoreError: if the store was closed; what was made for as long as it is open is gone, too.
            StoreLocked: if that has changed since this was made, so that a table may say something else of the file.
        """
        state = self._store.state()
        if not address.startswith(self._location):
            return None
        path = address.removeprefix(self._location)
        held = self._store.get("files", path)
        if state != self._state:
            written = self._store.written_since("files", self._last_row)
            if held is None or written is None or path in written:
                message = f"{path} was harvested again or deleted since; open the table again"
                raise StoreLocked(message)
        return (path, held) if held else None

    def open(self, path: str, held: StoredFile) -> "_Stream":
        """A file, of which the version that is held is read or none."""
        pin = FileVersion(held.size, held.etag if held.source == self._source.url else None)
        return _Stream(lambda wanted: self._source.get(path, wanted, pin=pin).body, held)


class FooterIO(PyArrowFileIO):
    """Reads data files as they are held, and all else, such as metadata, as pyiceberg does."""

    def __init__(self, properties: Properties = EMPTY_DICT, *, held: HeldFiles) -> None:
        super().__init__(properties)
        self._held = held

    def new_input(self, location: str) -> Any:  # noqa: ANN401 - the class above promises one of its own
        """The file at an address."""
        found = self._held.find(location)
        return _Input(location, self._held, *found) if found else super().new_input(location)


class _Input(InputFile):
    def __init__(self, location: str, files: HeldFiles, path: str, held: StoredFile) -> None:
        super().__init__(location)
        self._files, self._path, self._held = files, path, held

    def __len__(self) -> int:
        return self._held.size

    def exists(self) -> bool:
        """Whether it was there when its footer was taken; to be sure would cost a request."""
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's
        """Open it; nothing is asked for yet."""
        return self._files.open(self._path, self._held)


class _Stream(io.RawIOBase):
    """A file's bytes: its end from memory, the rest as it is read."""

    def __init__(self, fetch: Callable[[ByteRange], bytes], held: StoredFile) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = held.size
        self._tail = with_trailer(held.data)
        self._place = 0
        self._unread = True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        """Bytes from here on.

        Arrow looks for a footer in the last 64 KiB before it reads anything else, and of these only at the footer; so
        it gets zeros for the data that stands before.
        """
        wanted = self._size if size is None or size < 0 else self._place + size
        start, end = self._place, min(wanted, self._size)
        self._place = max(start, end)
        if start >= end:
            return b""
        tail = self._size - len(self._tail)
        body = b""
        if start < tail:
            here = ByteRange(start, min(end, tail))
            body = bytes(len(here)) if self._unread and start > 0 and end == self._size else self._fetch(here)
        self._unread = False
        return body + self._tail[max(0, start - tail) : max(0, end - tail)]

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - whatever can be written to
        body = self.read(len(buffer))
        buffer[: len(body)] = body
        return len(body)
