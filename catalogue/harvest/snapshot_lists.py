"""Lists of blocks of the CDX index in a snapshot: ``cluster.idx`` as a gzip file, made of the stored list.

A list from outside is decompressed and parsed here, and written again, because it could crash a Parquet library.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

from catalogue.atomic_files import make_folder, whole_file
from catalogue.cdx.block_file import StoredList, block_count, write_blocks
from catalogue.cdx.cluster import count_shards, format_blocks, list_path, parse_file, shards_path
from catalogue.errors import BadCdx, BadSnapshot, FileChanged, NotFound, StoreDamaged
from catalogue.harvest.harvest_blocks import put_list
from catalogue.harvest.snapshot import SnapshotList
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile
from catalogue.store.stored_lists import blocks_folder, list_file

_LEVEL = 6
_GZIP = 31
"""Stands for a gzip file in zlib's ``wbits``; its header has no time."""
_PIECE = 64 << 10
"""Bytes of a list that are compared by one request."""


def write_list(path: Path, blocks: StoredList, size: int) -> None:
    """Write the lines of a stored list, compressed.

    Args:
        path: of the file.
        blocks: the list.
        size: bytes of the list at the source.

    Raises:
        StoreDamaged: if the list is damaged, or does not have this size.
    """
    packer, written = zlib.compressobj(_LEVEL, wbits=_GZIP), 0
    with path.open("wb") as file:
        for part in blocks.parts():
            lines = format_blocks(part)
            written += len(lines)
            file.write(packer.compress(lines))
        file.write(packer.flush())
    if written != size:
        raise StoreDamaged(
            f"the stored list of blocks of {blocks.crawl} has {written:,} bytes instead of {size:,}; "
            f"run: catalogue harvest --crawl {blocks.crawl} --index cdx --refresh"
        )


def store_list(
    file: SnapshotList, path: Path, value: StoredFile, *, store: Store, source: PoliteSource, compare: int
) -> bool:
    """Check a list that was fetched from a snapshot, and store it.

    Args:
        file: the list in the manifest.
        path: the fetched file.
        value: the version of the list, without data.
        store: the store, whose harvest of the crawl is locked.
        source: with which the list is compared.
        compare: how many parts are compared; for 0 the source gets no request.

    Returns:
        Whether it was compared.

    Raises:
        BadSnapshot: if it is invalid, or the source has another list; nothing was stored.
        SourceError: if the source cannot be read.
    """
    crawl = file.crawl
    make_folder(blocks_folder(store))
    with whole_file(list_file(store, crawl)) as output, gzip.open(path) as lines, _checked(crawl, source):
        shards = count_shards(crawl, source.get(shards_path(crawl)).body) if compare else None
        directory = write_blocks(output, crawl, parse_file(crawl, lines, file.file_size, shards=shards))  # type: ignore[arg-type]
        if lines.read(1) or lines.tell() != file.file_size:
            raise BadSnapshot(f"has more lines than the {file.file_size:,} bytes of the manifest")
        if block_count(directory) != file.count:
            raise BadSnapshot(f"has {block_count(directory):,} blocks; the manifest says {file.count:,}")
        _compare(crawl, lines, file.file_size, source, compare)
    put_list(store, crawl, value, directory)
    return compare > 0


@contextmanager
def _checked(crawl: str, source: PoliteSource) -> Iterator[None]:
    try:
        yield
    except (BadCdx, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadSnapshot(f"is not the list of blocks of {crawl}: {str(error)[:300]}") from error
    except (NotFound, FileChanged) as error:
        message = f"is a list of blocks that {source.url} does not have, or not in this version: {error}"
        raise BadSnapshot(message) from error


def _compare(crawl: str, lines: gzip.GzipFile, size: int, source: PoliteSource, count: int) -> None:
    starts = range(0, size, _PIECE)
    pin = FileVersion(size, None)
    for start in sorted(SystemRandom().sample(starts, min(count, len(starts)))):
        part = ByteRange(start, min(start + _PIECE, size))
        lines.seek(start)
        if source.get(list_path(crawl), part, pin=pin).body != lines.read(len(part)):
            raise BadSnapshot(
                f"has another list of blocks than {source.url} from byte {start:,} on; it is wrong, or was made from "
                "another source or before the file was replaced"
            )
