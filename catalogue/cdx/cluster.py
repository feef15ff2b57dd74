"""The list of blocks of a crawl's CDX index (ZipNum).

``cluster.idx`` has a line for each block: ``KEY SP TIMESTAMP TAB cdx-NNNNN.gz TAB OFFSET TAB LENGTH TAB NUMBER LF``,
with key and time of the first line of the block. The lines are sorted by their bytes. ``NUMBER`` counts from 1 in the
crawl. The blocks of a shard, which is a file ``cdx-NNNNN.gz``, follow each other without gaps.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from catalogue.commoncrawl.gzip_members import inflate_list
from catalogue.errors import BadCdx, BadManifest
from catalogue.parquet.arrow_arrays import arrow_memory, booleans, integers, positions
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.surt.interval import KeyInterval

MAX_LIST = 1 << 30
"""Bytes; the largest known lists have 0.1 GB."""
MAX_BLOCK = 16 << 20
"""Compressed bytes; most blocks have 0.2 MB."""
MAX_READ = 8 << 20
"""Bytes of several blocks in one request."""

COLUMNS = pa.schema(
    [
        ("first", pa.binary()),  # key, blank and time of the first line
        ("shard", pa.int32()),
        ("offset", pa.int64()),
        ("length", pa.int32()),
        ("number", pa.int32()),
    ]
)
MAX_LINE = 1 << 20
"""Bytes; keys have at most some thousand."""
STAMP = 15
"""Bytes of a time and the blank before it."""
_KEY = rb"(?!\xef\xbb\xbf)[^\x00-\x20\xff]{1,%d}+" % (MAX_LINE - 100)
"""No byte order mark, which pyarrow skips. No control characters: the order of lines is that of key and time."""
_LINE = _KEY + rb" [0-9]{14}\tcdx-[0-9]{5}\.gz\t(?:0|[1-9][0-9]{0,14})\t[1-9][0-9]{0,8}\t[1-9][0-9]{0,8}\n"
_LINES = re.compile(rb"(?:%b){1,4096}" % _LINE)
"""Longer matches take memory. A possessive group would end within an invalid line in Python before 3.11.5."""
_PART = MAX_LINE * 5 // 4
"""Bytes of a list that are parsed at once; each part has the end of a line."""

Places: TypeAlias = range
"""Places of neighbouring blocks in a list, from 0 on."""


def index_folder(crawl: str) -> str:
    """Return the folder of ``cluster.idx`` and the shards."""
    return f"cc-index/collections/{crawl}/indexes"


def list_path(crawl: str) -> str:
    return f"{index_folder(crawl)}/cluster.idx"


def shards_path(crawl: str) -> str:
    return f"crawl-data/{crawl}/cc-index.paths.gz"


def count_shards(crawl: str, data: bytes) -> int:
    """Count the shards by the list of a crawl's files.

    Raises:
        BadCdx: if it is not such a list, or shards are missing.
    """
    path = shards_path(crawl)
    try:
        words = inflate_list(data).split()
    except BadManifest as error:
        raise BadCdx(f"{path}: {error}") from error
    shards = re.compile(rb"%b/cdx-([0-9]{5})\.gz" % re.escape(index_folder(crawl).encode()))
    numbers = sorted(int(found[1]) for found in map(shards.fullmatch, words) if found)
    if not numbers or numbers != [*range(len(numbers))]:
        raise BadCdx(f"{path} does not list the shards of {crawl} from 0 on")
    return len(numbers)


def key_of(line: bytes) -> bytes:
    return line[: line.find(b" ")]


class BlockRead(NamedTuple):
    """Neighbouring blocks of a shard, which one request reads."""

    path: str
    range: ByteRange
    blocks: Places
    pin: FileVersion | None = None
    """The known version of the shard."""


@dataclass(frozen=True, slots=True)
class BlockList:
    """Consecutive blocks of a crawl, in the order of their keys."""

    crawl: str
    columns: pa.RecordBatch
    """See ``COLUMNS``."""
    begins: bool = True
    """It starts with the first block of the crawl."""
    ends: bool = True
    """It ends with the last block of the crawl."""

    def __len__(self) -> int:
        count: int = self.columns.num_rows
        return count

    def first(self, place: int) -> bytes:
        text: bytes = self.columns.column(0)[place].as_py()
        return text

    def key(self, place: int) -> bytes:
        return self.first(place)[:-STAMP]

    def shard(self, place: int) -> int:
        return int(self.columns.column("shard")[place])

    def extent(self, place: int) -> ByteRange:
        offset = int(self.columns.column("offset")[place])
        return ByteRange(offset, offset + int(self.columns.column("length")[place]))

    def number(self, place: int) -> int:
        return int(self.columns.column("number")[place])

    def path(self, place: int) -> str:
        return f"{index_folder(self.crawl)}/cdx-{self.shard(place):05}.gz"

    def ends_shard(self, place: int) -> bool | None:
        """Return whether a block is the last of its shard; None if unknown."""
        if place + 1 < len(self):
            return self.shard(place + 1) != self.shard(place)
        return True if self.ends else None

    def blocks_for(self, interval: KeyInterval) -> Places:
        """Return the places of the blocks that may have keys of an interval.

        The block before the first one that starts with a key can end with captures of it, so it is included.

        Raises:
            BadCdx: if the list does not have all of these blocks, which is possible if it is not in order.
        """
        places = range(len(self))
        start = bisect_left(places, interval.start, key=self.key)
        end = bisect_left(places, interval.end, lo=start, key=self.key)
        if (start == 0 and not self.begins) or (end == len(self) and not self.ends):
            part = f"the part from line {self.number(0):,} to {self.number(len(self) - 1):,}"
            raise BadCdx(
                f"{list_path(self.crawl)}: {part} does not have all blocks of the query; the list may not be in order"
            )
        return range(max(0, start - 1), end)

    def part(self, start: int, stop: int) -> "BlockList":
        """Return some blocks, and the one after them, whose key ends the others."""
        begins, ends = self.begins and start == 0, self.ends and stop >= len(self) - 1
        places = positions(np.arange(start, min(stop + 1, len(self))))
        return BlockList(self.crawl, self.columns.take(places), begins=begins, ends=ends)  # a slice is pickled whole

    def reads(self, blocks: Places, *, max_length: int = MAX_READ) -> list[BlockRead]:
        """Merge neighbouring blocks of a shard into requests of at most ``max_length`` bytes, or of one block."""
        shards, offsets, lengths = map(integers, self.columns.select(["shard", "offset", "length"]).columns)
        ends = offsets + lengths
        found = []
        at = blocks.start
        while at < blocks.stop:
            after = min(blocks.stop, int(np.searchsorted(shards, shards[at], "right")))
            after = max(at + 1, at + int(np.searchsorted(ends[at:after], offsets[at] + max_length, "right")))
            place = ByteRange(int(offsets[at]), int(ends[after - 1]))
            found.append(BlockRead(self.path(at), place, range(at, after)))
            at = after
        return found


def parse_blocks(crawl: str, data: bytes, *, start: int = 0, ends: bool = True, shards: int | None = None) -> BlockList:
    """Parse and check a list of blocks, or a part of it that consists of complete lines.

    ``start`` is the offset of the first line in the file, ``ends`` says that the last line is the last of the file, and
    ``shards`` counts those of a complete list, if known.

    Raises:
        BadCdx: if it is not such a list, has gaps, or is not in order.
    """
    path, begins = list_path(crawl), start == 0
    if not data:
        raise BadCdx(f"{path} is empty" if begins and ends else f"{path}: no lines at byte {start:,}")
    if len(data) > MAX_LIST:
        raise BadCdx(f"{path} has {len(data):,} bytes; at most {MAX_LIST:,} are accepted")
    valid = 0
    while lines := _LINES.match(data, valid):
        valid = lines.end()
    if valid != len(data):
        text = data[valid : valid + 120].partition(b"\n")[0]
        raise BadCdx(f"{path}, {_position(data, start, valid)}: {text!r} is not a line of a list of blocks")
    columns = _columns(data)
    found = BlockList(crawl, columns, begins, ends)
    for wrong, what in _faults(columns):
        if wrong.any():
            breaks = [found.end() for found in re.finditer(b"\n", data)]
            before = int(np.argmax(wrong))
            raise BadCdx(f"{path}, {_position(data, start, breaks[before])}: {what}")
    if begins and not (found.number(0) == 1 and found.shard(0) == 0 and found.extent(0).start == 0):
        raise BadCdx(f"{path} does not start with block 1 at the start of shard 0")
    if shards is not None and ends and found.shard(len(found) - 1) + 1 != shards:
        last = found.shard(len(found) - 1)
        raise BadCdx(f"{path} ends with shard {last}; the crawl has {shards} shards, from 0 on")
    return found


def parse_pieces(crawl: str, pieces: Iterable[bytes], size: int, *, shards: int | None) -> Iterator[BlockList]:
    """Parse and check a complete list of a size in parts, in bounded memory; see ``parse_blocks``."""
    at, last, rest = 0, b"", b""
    for piece in (whole[start : start + _PART] for whole in pieces for start in range(0, len(whole), _PART)):
        data = rest + piece
        end = data.rfind(b"\n") + 1
        if not end:
            if len(data) > MAX_LINE:
                break
            rest = data
            continue
        # The last line before this part is parsed again, so that the lines around the border are compared.
        start, lines, rest = at - len(last), last + data[:end], data[end:]
        at += end
        part = parse_blocks(crawl, lines, start=start, ends=at == size, shards=shards)
        yield replace(part, columns=part.columns.slice(1), begins=False) if last else part
        last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
    if at < size or not at:
        raise BadCdx(f"{list_path(crawl)}: byte {at:,} is not the start of a complete line of the list")


def _columns(data: bytes) -> pa.RecordBatch:
    names = COLUMNS.names
    types: dict[str, Any] = {name: COLUMNS.field(name).type for name in names} | {"shard": pa.string()}
    batches = pa.csv.open_csv(
        pa.BufferReader(arrow_memory(data)),
        pa.csv.ReadOptions(column_names=names, block_size=2 * MAX_LINE, use_threads=False),
        pa.csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False),
        pa.csv.ConvertOptions(column_types=types, null_values=[], check_utf8=False),
    )
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    shards = pc.utf8_slice_codeunits(batch.column("shard"), len("cdx-"), len("cdx-00000")).cast(pa.int32())
    return batch.set_column(names.index("shard"), COLUMNS.field("shard"), shards)


def _faults(columns: pa.RecordBatch) -> list[tuple[np.ndarray, str]]:
    firsts = columns.column("first")
    shard, offset, length, number = map(integers, columns.columns[1:])
    same = shard[1:] == shard[:-1]
    expected = np.where(same, offset[:-1] + length[:-1], 0)
    return [
        (booleans(pc.greater(firsts[:-1], firsts[1:])), "the key is less than the key before it"),
        (number[1:] != number[:-1] + 1, "the number of the block is not the next one"),
        (~same & (shard[1:] != shard[:-1] + 1), "the shard is not the next one"),
        (offset[1:] != expected, "the block does not start at the end of the block before it"),
        (length[1:] > MAX_BLOCK, f"the block has more than {MAX_BLOCK:,} bytes"),
    ]


def _position(data: bytes, start: int, at: int) -> str:
    line = data.count(b"\n", 0, at) + 1
    return f"byte {start + at:,}" + (f" (line {line:,})" if start == 0 else "")
