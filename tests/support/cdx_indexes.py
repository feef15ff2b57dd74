"""The CDX index of each crawl: those of the mirror, or made of the rows of the miniature."""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.zipnum import blocks
from catalogue.cdx.blocks import FoundLines, inflate_blocks
from catalogue.cdx.cluster import BlockList, BlockRead, index_folder, list_path, parse_blocks, shards_path
from catalogue.cdx.lines import lines_of
from catalogue.query.key_intervals import Intervals, KeyIntervals
from catalogue.surt.interval import KeyInterval


@dataclass(frozen=True)
class CdxIndex:
    crawl: str
    files: dict[str, bytes]
    """By path."""

    @property
    def cluster(self) -> bytes:
        return self.files[list_path(self.crawl)]

    @property
    def shards(self) -> list[str]:
        return sorted(path for path in self.files if path.endswith(".gz"))

    @property
    def lines(self) -> list[bytes]:
        """All lines with their line feeds, by reading all."""
        return [line for path in self.shards for line in gzip.decompress(self.files[path]).splitlines(keepends=True)]

    def parsed(self) -> BlockList:
        return parse_blocks(self.crawl, self.cluster, shards=len(self.shards))

    def find(self, listed: BlockList, *intervals: KeyInterval, max_length: int = 1 << 20) -> list[FoundLines]:
        """Return the lines of disjoint ascending intervals, by the blocks of a list."""
        found: list[FoundLines] = []
        for interval in intervals:
            for read in listed.reads(listed.blocks_for(interval), max_length=max_length):
                shard = self.files[read.path]
                body = shard[read.range.start : read.range.end]
                found += find_lines(listed, read, body, len(shard), Intervals([interval]))
        return found


def find_lines(
    blocks: BlockList, read: BlockRead, body: bytes, total_size: int, intervals: KeyIntervals
) -> Iterator[FoundLines]:
    """Yield the lines with keys of the intervals, in order; see ``inflate_blocks``."""
    for block in inflate_blocks(blocks, read, body, total_size, intervals):
        yield from block.find(intervals)


def make_index(crawl: str, lines: Sequence[str], *, lines_a_block: int = 50, blocks_a_shard: int = 6) -> CdxIndex:
    """Make the index of sorted lines without line feeds."""
    members = [*blocks(lines, lines_a_block)]
    return index_of(crawl, (members[at : at + blocks_a_shard] for at in range(0, len(members), blocks_a_shard)))


def index_of(crawl: str, shards: Iterable[Sequence[tuple[str, bytes]]]) -> CdxIndex:
    """Make the index of shards of blocks; each block is its key and time, and a gzip member."""
    files: dict[str, bytes] = {}
    cluster: list[str] = []
    for name, members in ((f"cdx-{number:05}.gz", members) for number, members in enumerate(shards)):
        place = 0
        for first, member in members:
            cluster.append(f"{first}\t{name}\t{place}\t{len(member)}\t{len(cluster) + 1}\n")
            place += len(member)
        files[f"{index_folder(crawl)}/{name}"] = b"".join(member for _, member in members)
    return CdxIndex(crawl, files | {list_path(crawl): "".join(cluster).encode()})


def indexes_of(whole_mirror: Path, rows: pa.Table) -> list[CdxIndex]:
    """Return the indexes of a mirror, or make them of all its rows."""
    folders = sorted(whole_mirror.glob(f"{index_folder('*')}"))
    if folders:
        return [read_index(whole_mirror, folder.parent.name) for folder in folders]
    made = []
    for crawl in sorted(set(rows["crawl"].to_pylist())):
        (batch,) = rows.filter(pc.equal(rows["crawl"], crawl)).combine_chunks().to_batches()
        made.append(make_index(crawl, sorted(lines_of(batch), key=str.encode)))
    return made


def read_index(mirror: Path, crawl: str) -> CdxIndex:
    files = {str(path.relative_to(mirror)): path.read_bytes() for path in (mirror / index_folder(crawl)).iterdir()}
    return CdxIndex(crawl, files)


def replace_index(mirror: Path, index: CdxIndex) -> None:
    rmtree(mirror / index_folder(index.crawl), ignore_errors=True)
    names = "".join(f"{path}\n" for path in index.files)
    for path, data in {**index.files, shards_path(index.crawl): gzip.compress(names.encode())}.items():
        (mirror / path).parent.mkdir(parents=True, exist_ok=True)
        (mirror / path).write_bytes(data)
