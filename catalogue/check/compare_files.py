"""What a check finds; and the comparison of a stored footer and page indexes with the source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from secrets import choice

from catalogue.errors import FileChanged, Forbidden, FormatError, NotFound
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.page_index import Indexes, cut_indexes
from catalogue.parquet.splice import with_trailer
from catalogue.session import Session
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile, row_group_of

REPAIR = "catalogue check --repair"


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect, or a suspected one."""

    kind: str
    """``store`` for the SQLite file; ``files``, ``documents``, ``failures``, ``indexes``, ``facts`` or ``blocks``
    for a value; ``catalogue`` for the metadata database; ``suspect`` for a file that overlaps or equals others;
    ``source`` for a changed file.
    """
    key: str
    """Path of a file or document, or ``path#row_group``; empty if it concerns everything."""
    what: str
    next: str = REPAIR
    """The command that repairs it, if there is one."""

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" if self.key else self.what


def compared_length(session: Session, path: str) -> int:
    """Return the bytes of a file that are compared."""
    file = session.store.get("files", path)
    return file.size - start_of(file, written_indexes(session.store, path, file), session.dataset.key) if file else 0


def compare_with_source(session: Session, path: str) -> Iterator[Finding]:
    store, dataset, source = session.store, session.dataset, session.source
    stored, file = store.get("files", path), dataset.file(path)
    if stored is None or file is None:  # another process has deleted it
        return
    indexes = written_indexes(store, path, stored)
    for host in source.hosts_of(path):
        compared = path, stored, indexes, host, dataset.key, stored.version
        try:
            has_footer, different = compare_file(*compared)
            if different or not has_footer:  # the response may be damaged
                has_footer, different = compare_file(*compared)
        except FileChanged as error:
            what = f"it has changed at the source since it was harvested: {error}"
        except NotFound:
            if host is not source and stored.source != host.url:  # one of several, which may have fewer files
                continue
            what = "the source does not have it any more"
        except (Forbidden, FormatError) as error:
            what = f"the source refuses it: {error}"
        else:
            if has_footer:
                what = "the stored page index differs from the file's"
                yield from (Finding("indexes", f"{path}#{ordinal}", what) for ordinal in different)
                continue
            what = f"{'the source' if host is source else host.url} has another footer of the same size and version"
        yield Finding("source", path, what, dataset.refresh_command(file))


def written_indexes(store: Store, path: str, file: StoredFile) -> dict[int, Indexes]:
    """Return the stored page indexes of a file by row group, without bounds that a backfill found."""
    ordinals = [of[1] for key in store.index_keys(path) if (of := row_group_of(key))]
    stored = store.indexes(path, ordinals, file)
    return {ordinal: written for ordinal, each in stored.items() if (written := each.written)}


def start_of(existing: StoredFile, indexes: Mapping[int, Indexes], key: str) -> int:
    """Return the offset at which its footer and these page indexes start."""
    starts = [existing.size - len(with_trailer(existing.data))]
    for group in decode_footer(existing.data, existing.size).row_groups if indexes else ():
        for name, chunk in group.chunks.items():
            known = indexes.get(group.ordinal, Indexes())
            if known.column_index and name == key and chunk.column_index:
                starts.append(chunk.column_index.start)
            if name in known.offset_indexes and chunk.offset_index:
                starts.append(chunk.offset_index.start)
    return min(starts)


def compare_file(
    path: str, stored: StoredFile, indexes: Mapping[int, Indexes], source: PoliteSource, key: str, pin: FileVersion
) -> tuple[bool, list[int]]:
    """Return whether the source has this footer, and the row groups whose page indexes differ there.

    Of the dictionary pages of a file, one is compared.
    """
    start = start_of(stored, indexes, key)
    body = source.get(path, ByteRange(start, stored.size), pin=pin).body
    if not body.endswith(with_trailer(stored.data)):
        return False, []
    if not indexes:
        return True, []
    footer = decode_footer(stored.data, stored.size)
    there = cut_indexes(footer, key, body, start)
    different = []
    for ordinal, known in sorted(indexes.items()):
        has = there.get(ordinal, Indexes())
        others = (has.offset_indexes.get(name) != data for name, data in known.offset_indexes.items())
        if (known.column_index and known.column_index != has.column_index) or any(others):
            different.append(ordinal)
    pages = [(ordinal, name) for ordinal, known in sorted(indexes.items()) for name in known.dictionaries]
    if pages:
        ordinal, name = choice(pages)
        chunks = next((group.chunks for group in footer.row_groups if group.ordinal == ordinal), {})
        data, at = indexes[ordinal].dictionaries[name], chunks[name].range.start if name in chunks else 0
        if not at or source.get(path, ByteRange(at, at + len(data)), pin=pin).body != data:
            different.append(ordinal)
    return True, different
