"""What is held of a file, compared with what the source has, and with what its footer says."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from catalogue import metadata_db
from catalogue.check.findings import Finding
from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import FileChanged, Forbidden, FormatError, NotFound, StoreDamaged
from catalogue.examine import Examiner
from catalogue.parquet.footer import decode_footer, with_trailer
from catalogue.parquet.pages import Indexes, cut_indexes
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile


class Comparison:
    """Compares a file with what the source has."""

    def __init__(self, store: Store, table: Dataset, source: PoliteSource, examiner: Examiner) -> None:
        self._store = store
        self._table = table
        self._source = source
        self._examiner = examiner

    def length(self, path: str) -> int:
        """Bytes that are asked for."""
        held = self._store.get("files", path)
        return held.size - start_of(held, self._indexes(path, held), self._table.key) if held else 0

    def _indexes(self, path: str, held: StoredFile) -> dict[int, Indexes]:
        """The stored page indexes that stand in the file itself."""
        ordinals = [of[1] for key in self._store.index_keys(path) if (of := row_group_of(key))]
        stored = self._store.indexes(path, ordinals, held)
        return {ordinal: written for ordinal, each in stored.items() if (written := each.written)}

    def compare(self, path: str) -> list[Finding]:
        """What of a file is otherwise at the source, or than its footer says.

        Raises:
            SourceError: if the source fails.
        """
        held = self._store.get("files", path)
        if held is None:  # somebody has just deleted it
            return []
        indexes = self._indexes(path, held)
        start = start_of(held, indexes, self._table.key)
        pin = FileVersion(held.size, held.etag if held.source == self._source.url else None)
        file = self._table.file(path)
        again = f"{self._table.harvest_command(file.crawl if file else '')} --refresh"
        try:
            body = self._source.get(path, ByteRange(start, held.size), pin=pin).body
        except FileChanged as error:
            return [Finding("source", path, f"it was changed at the source since it was taken: {error}", again)]
        except NotFound:
            return [Finding("source", path, "it is not there any more at the source", again)]
        except (Forbidden, FormatError) as error:
            return [Finding("source", path, f"the source does not give it any more: {error}", again)]
        return [*self._otherwise(path, held, indexes, body, again), *self._misread(path, held)]

    def _otherwise(
        self, path: str, held: StoredFile, indexes: dict[int, Indexes], body: bytes, again: str
    ) -> Iterator[Finding]:
        if not body.endswith(with_trailer(held.data)):
            yield Finding("source", path, "its footer is another at the source, of the same size and version", again)
            return
        for ordinal in differing(held, indexes, self._table.key, body):
            yield Finding("indexes", f"{path}#{ordinal}", "the page index is another than the file has")

    def _misread(self, path: str, held: StoredFile) -> Iterator[Finding]:
        """Whether what is known of a footer is what is found in it once more."""
        version = self._store.version(path)
        with suppress(StoreDamaged):
            known = self._store.facts([path]).get(path)
            if known is None or version is None or not metadata_db.are_of(known.note, version):
                return
            try:
                found = metadata_db.packed(self._examiner.examine(held.data, held.size), held, version)
            except FormatError as error:
                yield Finding("facts", path, f"it is shown, but {error}")
                return
            if found.data != known.data:
                yield Finding("facts", path, "what is known of the footer is not what it says")


def start_of(held: StoredFile, indexes: Mapping[int, Indexes], key: str) -> int:
    """The offset in a file from which on its footer and these page indexes, by row group, lie."""
    starts = [held.size - len(with_trailer(held.data))]
    for group in decode_footer(held.data, held.size).row_groups if indexes else ():
        for name, chunk in group.chunks.items():
            known = indexes.get(group.ordinal, Indexes())
            if known.column_index and name == key and chunk.column_index:
                starts.append(chunk.column_index.start)
            if name in known.offset_indexes and chunk.offset_index:
                starts.append(chunk.offset_index.start)
    return min(starts)


def differing(held: StoredFile, indexes: Mapping[int, Indexes], key: str, body: bytes) -> Iterator[int]:
    """The row groups whose page indexes are not those in the last bytes of a file, ``body``, ascending."""
    if not indexes:
        return
    there = cut_indexes(decode_footer(held.data, held.size), key, body, held.size - len(body))
    for ordinal, known in sorted(indexes.items()):
        has = there.get(ordinal, Indexes())
        others = (has.offset_indexes.get(name) != data for name, data in known.offset_indexes.items())
        if (known.column_index and known.column_index != has.column_index) or any(others):
            yield ordinal
