"""Write a synthetic crawl: the same rows as Parquet files and as a CDX index.

Both have the forms of real ones. Parquet files adjoin each other, and have row groups, pages and page indexes. Their
numbers are not in the order of keys. Shards of the CDX index have blocks of 3,000 lines, but every fourth one has small
blocks, so that the list of blocks is long enough for searches. Files, row groups, pages, blocks and shards start within
the captures of a URL.
"""

import gzip
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.crawls import crawl_list
from benchmarks.real_size import writing
from benchmarks.zipnum import blocks
from catalogue.cdx.cluster import index_folder, list_path, shards_path
from catalogue.commoncrawl.crawls import COLLINFO, SUBSETS
from catalogue.surt import KeyInterval, url_surtkey
from tests.support.crawls import write_manifest
from tests.support.synthetic_rows import CRAWL, FREQUENT_URL, LINE, SyntheticRows, check_keys, joined_parts

_PARTS, _FEWEST_ROWS = 16, 4_000
"""Parts that are made at the same time, and the rows of each in small crawls."""
_FILES = {"warc": 12, "crawldiagnostics": 5, "robotstxt": 2}
_SHARDS = 8
_GROUPS, _PAGES, _FEWEST_PAGE = 4, 25, 40
"""Row groups of a file, pages of a row group, and the rows of a page of small crawls."""
_FREQUENT_SHARE = 100
_ROWS, _LINES, _FEWEST_LINES = 2_000_000, 3_000, 200
"""Rows of a full crawl, lines of its blocks, and lines of the blocks of small crawls."""
_SMALL, _FEWEST_SMALL = 100, 5
"""How many times smaller the blocks of every fourth shard are, and their lines in small crawls."""


@dataclass(frozen=True)
class SyntheticCrawl:
    """A crawl in a folder that is laid out as data.commoncrawl.org."""

    folder: Path
    rows: pa.Table
    """In the order of the lines of the CDX index."""
    blocks: int
    """Of the CDX index."""

    def find(self, intervals: Sequence[KeyInterval], subsets: Sequence[str] = SUBSETS) -> pa.Table:
        """Return the rows with keys of disjoint ascending intervals, in the order of answers."""
        keys = self.rows.column("url_surtkey")
        places = range(len(keys))

        def key(place: int) -> bytes:
            text: str = keys[place].as_py()
            return text.encode()

        found = [self.rows.slice(0, 0)]
        for interval in intervals:
            start = bisect_left(places, interval.start, key=key)
            end = bisect_left(places, interval.end, lo=start, key=key)
            found.append(self.rows.slice(start, end - start))
        matching = pa.concat_tables(found)
        return pa.concat_tables(matching.filter(pc.equal(matching.column("subset"), subset)) for subset in subsets)


def write_synthetic_crawl(folder: Path, rows: int, seed: int) -> SyntheticCrawl:
    """Write a crawl into an empty folder; the same number of rows and seed make the same one."""
    maker = SyntheticRows(rows, rows // _FREQUENT_SHARE, seed)
    parts = min(_PARTS, rows // _FEWEST_ROWS)
    with ThreadPoolExecutor() as executor:
        made = joined_parts(executor.map(lambda number: maker.part(number, parts), range(parts)))
        check_keys(made, 3000, seed)
        lines = made.column(LINE)
        made = made.drop_columns([LINE])
        list(executor.map(_write_parquet, *zip(*_parquet_files(folder, made, seed), strict=True)))
        cuts = _cuts(made.column("url_surtkey"), _SHARDS)
        size = max(_FEWEST_LINES, rows * _LINES // _ROWS)
        sizes = [max(_FEWEST_SMALL, size // _SMALL) if number % 4 == 1 else size for number in range(_SHARDS)]
        shards = executor.map(lambda cut, size: [*blocks(lines[cut].to_pylist(), size)], cuts, sizes)
        count = _write_index(folder, shards)
    write_manifest(folder, CRAWL)
    times = pc.min_max(made.column("fetch_time")).as_py()
    first, last = (f"{times[which]:%Y-%m-%dT%H:%M:%S}" for which in ("min", "max"))
    (folder / COLLINFO).write_bytes(crawl_list([CRAWL], first, last))
    return SyntheticCrawl(folder, made, count)


def _parquet_files(folder: Path, rows: pa.Table, seed: int) -> Iterator[tuple[Path, pa.Table]]:
    job = UUID(int=seed + 1)
    for subset, count in _FILES.items():
        inside = rows.filter(pc.equal(rows.column("subset"), subset)).drop_columns(["subset"])
        folder_of_subset = folder / f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset={subset}"
        folder_of_subset.mkdir(parents=True)
        numbers = np.random.default_rng(seed).permutation(count)
        for number, cut in zip(numbers, _cuts(inside.column("url_surtkey"), count), strict=True):
            yield folder_of_subset / f"part-{number:05}-{job}.c000.gz.parquet", inside[cut]


def _write_parquet(path: Path, rows: pa.Table) -> None:
    group = -(-len(rows) // _GROUPS)
    with writing(path, rows.schema, page_rows=max(_FEWEST_PAGE, -(-group // _PAGES))) as writer:
        writer.write_table(rows, row_group_size=group)


def _cuts(keys: pa.ChunkedArray, count: int) -> list[slice]:
    """Cut rows into parts of about the same size; one cut, and every second one, is between rows with the same key."""
    same = pc.equal(keys[1:], keys[:-1]).combine_chunks()
    repeats: NDArray[np.int64] = 1 + pc.indices_nonzero(same).to_numpy().astype(np.int64)
    frequent = pc.indices_nonzero(pc.equal(keys, url_surtkey(FREQUENT_URL))).to_numpy()
    cuts = np.linspace(0, len(keys), count + 1).astype(np.int64)
    for number in range(1, count):
        if number % 2:
            cuts[number] = repeats[np.searchsorted(repeats, cuts[number])]
    middle = int(frequent[len(frequent) // 2])
    cuts[1 + np.argmin(abs(cuts[1:-1] - middle))] = middle
    return [slice(start, end) for start, end in pairwise(cuts.tolist())]


def _write_index(folder: Path, shards: Iterable[Sequence[tuple[str, bytes]]]) -> int:
    """Write the CDX index of shards of blocks; return the number of blocks."""
    (folder / index_folder(CRAWL)).mkdir(parents=True)
    (folder / shards_path(CRAWL)).parent.mkdir(parents=True)
    count, names = 0, []
    with (folder / list_path(CRAWL)).open("wb") as listed:
        for number, members in enumerate(shards):
            names.append(f"cdx-{number:05}.gz")
            with (folder / index_folder(CRAWL) / names[-1]).open("wb") as shard:
                for first, member in members:
                    count += 1
                    place = f"{first}\t{names[-1]}\t{shard.tell()}\t{len(member)}\t{count}\n"
                    listed.write(place.encode())
                    shard.write(member)
    paths = [f"{index_folder(CRAWL)}/{name}\n" for name in (*names, "metadata.yaml", "cluster.idx")]
    (folder / shards_path(CRAWL)).write_bytes(gzip.compress("".join(paths).encode(), mtime=0))
    return count
