"""An Iceberg table for pyiceberg: footers come from the store, data from the source."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import DataScan, StaticTable
from pyiceberg.table.metadata import TableMetadataUtil

from catalogue.commoncrawl.crawls import PATH_COLUMNS
from catalogue.errors import StoreLocked
from catalogue.parquet.splice import with_trailer
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.checks import Source
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile


class IcebergTable(StaticTable):
    """pyiceberg's table, with filters on crawl and subset that work if these are not selected."""

    @classmethod
    def at(cls, metadata: Path, io: FileIO) -> "IcebergTable":
        address = f"file://{metadata.absolute().as_posix()}"
        document = TableMetadataUtil.parse_raw(metadata.read_text(encoding="utf-8"))
        return cls(("catalogue", "index"), document, address, io, NoopCatalog("catalogue"))

    def scan(self, *args: Any, **options: Any) -> "IndexScan":  # noqa: ANN401 - pyiceberg's
        """See pyiceberg's ``Table.scan``."""
        return IndexScan(**vars(super().scan(*args, **options)))


class IndexScan(DataScan):
    """A scan that reads the partition columns of its filter, and drops them if they are not selected.

    pyiceberg 0.12 fills partition columns only if they are selected; otherwise a filter on them silently finds nothing
    (apache/iceberg-python, _get_column_projection_values).
    """

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        found = DataScan.to_arrow(self._wider, dictionary_columns)
        return found.select(self._names)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        found = DataScan.to_arrow_batch_reader(self._wider, dictionary_columns)
        schema = pa.schema([found.schema.field(name) for name in self._names])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(self._names) for batch in found))

    def count(self) -> int:
        return DataScan.count(self._wider)

    @property
    def _names(self) -> list[str]:
        return [field.name for field in self.projection().fields]

    @property
    def _wider(self) -> "IndexScan":
        schema = self.table_metadata.schema()
        named: Any = extract_field_ids(bind(schema, self.row_filter, case_sensitive=self.case_sensitive))
        columns = {schema.find_field(number).name for number in named}
        needed = [name for name in PATH_COLUMNS if name in columns and name not in self._names]
        return self.update(selected_fields=(*self._names, *needed)) if needed else self


class FooterIO(PyArrowFileIO):
    """Reads stored data files from the source in the stored version, in many threads; pyiceberg reads all others."""

    def __init__(self, store: Store, source: Source, location: str) -> None:
        super().__init__()
        self._store = store
        self._source = source
        self._location = location
        self._versions = store.versions(store.keys("files"))

    def new_input(self, location: str) -> Any:  # noqa: ANN401 - PyArrowFileIO returns its own class
        """See ``PyArrowFileIO.new_input``.

        Raises:
            StoreLocked: if the stored footer of a file has changed since.
        """
        self._store.state()  # raises StoreError if the store was closed, for metadata too
        path = location.removeprefix(self._location)
        version = self._versions.get(path) if path != location else None
        if version is None:
            return super().new_input(location)
        stored = self._store.get("files", path, version)
        if stored is None:
            raise StoreLocked(f"{path} has been harvested again or deleted; open the table again")
        pin = stored.version
        return _Input(location, lambda requested: self._source.get(path, requested, pin=pin).body, stored)


class _Input(InputFile):
    def __init__(self, location: str, fetch: Callable[[ByteRange], bytes], stored: StoredFile) -> None:
        super().__init__(location)
        self._fetch, self._stored = fetch, stored

    def __len__(self) -> int:
        return self._stored.size

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's
        return _Stream(self._fetch, self._stored)


class _Stream(io.RawIOBase):
    def __init__(self, fetch: Callable[[ByteRange], bytes], stored: StoredFile) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = stored.size
        self._tail = with_trailer(stored.data)
        self._place = 0
        self._unread = True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes; Arrow first reads the last 64 KiB, of which it uses only the footer, and gets zeros before it."""
        requested = self._size if size is None or size < 0 else self._place + size
        start, end = self._place, min(requested, self._size)
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
