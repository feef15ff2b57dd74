"""Compare a stored footer and page indexes with the source."""

from collections.abc import Iterator, Mapping

from catalogue.check.findings import Finding
from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import FileChanged, Forbidden, FormatError, NotFound
from catalogue.parquet.footer import decode_footer, with_trailer
from catalogue.parquet.stored_indexes import Indexes, cut_indexes
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile


class Comparison:
    """Compares a file with what the source has."""

    def __init__(self, store: Store, table: Dataset, source: PoliteSource) -> None:
        self._store = store
        self._table = table
        self._source = source

    def length(self, path: str) -> int:
        """Return the bytes that a comparison requests."""
        existing = self._store.get("files", path)
        return existing.size - start_of(existing, self._indexes(path, existing), self._table.key) if existing else 0

    def _indexes(self, path: str, existing: StoredFile) -> dict[int, Indexes]:
        """Return the stored page indexes that are part of the file itself."""
        ordinals = [of[1] for key in self._store.index_keys(path) if (of := row_group_of(key))]
        stored = self._store.indexes(path, ordinals, existing)
        return {ordinal: written for ordinal, each in stored.items() if (written := each.written)}

    def compare(self, path: str) -> list[Finding]:
        """Return how the source differs from what is stored of a file.

        Raises:
            SourceError: if the source fails.
        """
        existing = self._store.get("files", path)
        if existing is None:  # another process has deleted it
            return []
        indexes = self._indexes(path, existing)
        start = start_of(existing, indexes, self._table.key)
        pin = FileVersion(existing.size, existing.etag if existing.source == self._source.url else None)
        file = self._table.file(path)
        again = f"{self._table.harvest_command(file.crawl if file else '')} --refresh"
        try:
            body = self._source.get(path, ByteRange(start, existing.size), pin=pin).body
        except FileChanged as error:
            return [Finding("source", path, f"it has changed at the source since it was harvested: {error}", again)]
        except NotFound:
            return [Finding("source", path, "the source does not have it any more", again)]
        except (Forbidden, FormatError) as error:
            return [Finding("source", path, f"the source refuses it: {error}", again)]
        return list(self._differences(path, existing, indexes, body, again))

    def _differences(
        self, path: str, existing: StoredFile, indexes: dict[int, Indexes], body: bytes, again: str
    ) -> Iterator[Finding]:
        if not body.endswith(with_trailer(existing.data)):
            yield Finding("source", path, "the source has another footer of the same size and version", again)
            return
        for ordinal in differing(existing, indexes, self._table.key, body):
            yield Finding("indexes", f"{path}#{ordinal}", "the stored page index differs from the file's")


def start_of(existing: StoredFile, indexes: Mapping[int, Indexes], key: str) -> int:
    """Return the offset in a file at which its footer and these page indexes, by row group, start."""
    starts = [existing.size - len(with_trailer(existing.data))]
    for group in decode_footer(existing.data, existing.size).row_groups if indexes else ():
        for name, chunk in group.chunks.items():
            known = indexes.get(group.ordinal, Indexes())
            if known.column_index and name == key and chunk.column_index:
                starts.append(chunk.column_index.start)
            if name in known.offset_indexes and chunk.offset_index:
                starts.append(chunk.offset_index.start)
    return min(starts)


def differing(existing: StoredFile, indexes: Mapping[int, Indexes], key: str, body: bytes) -> Iterator[int]:
    """Yield the row groups whose page indexes differ from those in ``body``, the last bytes of the file."""
    if not indexes:
        return
    there = cut_indexes(decode_footer(existing.data, existing.size), key, body, existing.size - len(body))
    for ordinal, known in sorted(indexes.items()):
        has = there.get(ordinal, Indexes())
        others = (has.offset_indexes.get(name) != data for name, data in known.offset_indexes.items())
        if (known.column_index and known.column_index != has.column_index) or any(others):
            yield ordinal
