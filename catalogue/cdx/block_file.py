"""A complete list of blocks as a Parquet file, and its directory.

A row is a block. A row group has some thousand, so that a search decodes 0.1 MB of 26 MB. The directory has the first
block of each, and a digest of the file's footer: pyarrow may abort the process on a damaged one.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from catalogue.cdx.cluster import COLUMNS, STAMP, BlockList, list_path
from catalogue.errors import BadCdx, StoreDamaged
from catalogue.parquet.arrow_arrays import positions, text
from catalogue.surt.interval import KeyInterval

FILE = pa.schema(
    [
        ("crawl", pa.string()),
        ("number", pa.int32()),  # from 1 on
        ("first_key", pa.string()),  # of the first line of the block
        ("first_time", pa.string()),  # of the same line, as 14 digits
        ("shard", pa.int32()),  # NNNNN of cdx-NNNNN.gz
        ("offset", pa.int64()),  # in the shard
        ("length", pa.int32()),  # in bytes
    ]
)
_READ = ["first_key", "first_time", "shard", "offset", "length", "number"]
_ROW_GROUP = 4096
_ENCODINGS = {"first_key": "DELTA_BYTE_ARRAY", "first_time": "PLAIN"} | dict.fromkeys(
    ["number", "shard", "offset", "length"], "DELTA_BINARY_PACKED"
)
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,  # level 9 saves 5 % and takes 3.5 times as long
    "use_dictionary": ["crawl"],
    "column_encoding": _ENCODINGS,
    "write_page_checksum": True,
}
_MAX_DIRECTORY = 16 << 20
"""Bytes of a directory; real ones have less than 0.1 MB."""
_TRAILER = 8


def write_blocks(file: BinaryIO, crawl: str, parts: Iterable[BlockList]) -> bytes:
    """Write a complete list, in consecutive parts, to an empty readable file; return its directory.

    Raises:
        BadCdx: if a key is not UTF-8, or keys are too long.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - a plan without stored lists does not need it

    firsts, blocks, size = [], 0, 0
    with pq.ParquetWriter(file, FILE, **_OPTIONS) as writer:
        for part in parts:
            blocks += len(part)
            # A slice would keep the complete part in memory.
            firsts.append(part.columns.take(positions(np.arange(0, len(part), _ROW_GROUP))))
            size += firsts[-1].nbytes
            if size > _MAX_DIRECTORY:
                raise BadCdx(f"{list_path(crawl)} has keys that are too long")
            writer.write_table(_table(crawl, part.columns), _ROW_GROUP)
    (directory,) = pa.Table.from_batches(firsts, COLUMNS).combine_chunks().to_batches()
    about = {"crawl": crawl, "blocks": str(blocks), "footer": _digest(file)}
    output = pa.BufferOutputStream()
    with pa.ipc.new_stream(output, COLUMNS.with_metadata(about)) as stream:
        stream.write_batch(directory)
    packed: bytes = output.getvalue().to_pybytes()
    return packed


def block_count(directory: bytes) -> int:
    return int(_opened(directory).schema.metadata[b"blocks"])


def _opened(directory: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(directory) as stream:
        batch: pa.RecordBatch = stream.read_next_batch()
    return batch


def _table(crawl: str, columns: pa.RecordBatch) -> pa.Table:
    first = columns.column("first")
    keys = pc.binary_slice(first, 0, -STAMP)
    times = pc.binary_slice(first, 1 - STAMP)
    try:
        texts = {"first_key": keys.cast(pa.string()), "first_time": times.cast(pa.string())}
    except pa.ArrowInvalid as error:
        raise BadCdx(f"{list_path(crawl)} has a key that is not UTF-8: {error}") from error
    texts["crawl"] = pa.repeat(text(crawl), len(columns))
    return pa.table([texts[name] if name in texts else columns.column(name) for name in FILE.names], schema=FILE)


def _digest(file: BinaryIO) -> str:
    size = file.seek(0, 2)
    file.seek(max(0, size - _TRAILER))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - _TRAILER - length))
    return f"{size}:{hashlib.blake2b(file.read(length + _TRAILER), digest_size=16).hexdigest()}"


class StoredList:
    """A stored list of blocks; methods raise ``StoreDamaged`` if the file is damaged."""

    def __init__(self, path: Path, directory: bytes) -> None:
        """Open the file.

        Raises:
            StoreDamaged: if it is not the file of this directory.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._firsts = _opened(directory)
        about = self._firsts.schema.metadata
        self.crawl = about[b"crawl"].decode()
        self._path = path
        self._numbers: list[int] = [*self._firsts.column("number").to_pylist(), int(about[b"blocks"]) + 1]
        self._keys = pc.binary_slice(self._firsts.column("first"), 0, -STAMP).to_pylist()
        try:
            file = pa.OSFile(str(path))  # opened once: another thread or process may delete or replace it
            digest = _digest(file)
        except OSError as error:
            raise self._damaged(error) from error
        if digest.encode() != about[b"footer"]:
            raise self._damaged("it was replaced or damaged")
        self._file = pq.ParquetFile(file, page_checksum_verification=True)
        self._last: tuple[range, BlockList] | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        return self._numbers[-1] - 1

    def parts(self) -> Iterator[BlockList]:
        last = len(self._keys) - 1
        for number in range(last + 1):
            (columns,) = self._read(range(number, number + 1)).combine_chunks().to_batches()
            yield BlockList(self.crawl, columns, begins=number == 0, ends=number == last)

    def read_all(self) -> int:
        for number in range(len(self._keys)):
            self._read(range(number, number + 1))
        return self._path.stat().st_size

    def count(self, interval: KeyInterval) -> int:
        """Count the blocks with keys of an interval, and at most some thousand others."""
        groups = self._groups(interval)
        return self._numbers[groups.stop] - self._numbers[groups.start]

    def share(self, key: bytes) -> float:
        """Return the share of the blocks that start with a key less than ``key``; see ``list_search.Predictor``."""
        part = self.find(KeyInterval(key, key + b"\0"))
        place = bisect_left(range(len(part)), key, key=part.key)
        before = part.number(place) - 1 if place < len(part) else len(self)
        return before / len(self)

    def find(self, interval: KeyInterval) -> BlockList:
        """Return the part of the list with all blocks of an interval; see ``BlockList.blocks_for``."""
        groups = self._groups(interval)
        with self._lock:
            if self._last is None or self._last[0] != groups:
                # The key of the block after them ends the others.
                after = pa.table(self._firsts.slice(groups.stop, 1).columns, schema=COLUMNS)
                (columns,) = pa.concat_tables([self._read(groups), after]).combine_chunks().to_batches()
                begins, ends = groups.start == 0, groups.stop == len(self._keys)
                self._last = groups, BlockList(self.crawl, columns, begins, ends)
            return self._last[1]

    def _read(self, groups: range) -> pa.Table:
        try:
            table = self._file.read_row_groups([*groups], columns=_READ, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from error
        first = pc.binary_join_element_wise(table.column("first_key"), table.column("first_time"), text(" "))
        return pa.table([first.cast(pa.binary()), *table.select(COLUMNS.names[1:]).columns], schema=COLUMNS)

    def _groups(self, interval: KeyInterval) -> range:
        first = max(0, bisect_left(self._keys, interval.start) - 1)
        return range(first, max(first + 1, bisect_left(self._keys, interval.end, lo=first)))

    def _damaged(self, why: object) -> StoreDamaged:
        command = f"catalogue harvest --crawl {self.crawl} --index cdx --refresh"
        return StoreDamaged(f"{self._path} cannot be used ({' '.join(str(why).split())}); run: {command}")
