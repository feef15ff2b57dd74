"""The column chunks of row groups in tables, decoded from the footers in the store when they are used."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from catalogue.errors import StoreLocked
from catalogue.parquet.column_chunk import LazyChunks
from catalogue.parquet.footer import decode_chunks
from catalogue.parquet.model import Column, ColumnChunk
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile

_FOOTERS = 64
"""Footers in memory, of some 0.1 MB each."""


class StoredFooters:
    """Reads footers from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._value = lru_cache(_FOOTERS)(self._read)

    def _read(self, path: str, version: bytes) -> StoredFile:
        stored = self._store.get("files", path, version)
        if stored is None:
            message = f"another process has changed what is stored of {path}; run the query again"
            raise StoreLocked(message)
        return stored

    def chunks(self, row: Mapping[str, Any], columns: Mapping[str, Column]) -> LazyChunks:
        """Return the column chunks of a row group.

        The first use raises ``StoreDamaged`` if the footer is damaged, ``StoreLocked`` if it was replaced.
        """
        decoded: list[LazyChunks] = []

        def make(name: str, _: int) -> ColumnChunk:
            if not decoded:
                stored = self._value(row["path"], row["version"])
                options = {"columns": columns, "created_by": row["created_by"], "ordered": row["ordered"]}
                decoded.append(decode_chunks(stored.data, stored.size, offset=row["footer_offset"], **options))
            return decoded[0][name]

        return LazyChunks(dict.fromkeys(columns, 0), make)
