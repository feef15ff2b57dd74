"""The CDX index of real size of a crawl whose index file is that of ``real_size``.

Its list has 1.2 million blocks. The blocks around the keys that queries ask for are made of rows of the index file;
the others are holes in sparse files.
"""

import gzip
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cluster import make_list
from benchmarks.real_size import CRAWL, INDEX_FILE, QUERIES
from benchmarks.report import say
from benchmarks.zipnum import blocks
from catalogue.cdx.cluster import index_folder, list_path, shards_path
from catalogue.cdx.lines import lines_of

BLOCKS, SHARDS = 1_200_000, 300
_BEFORE, _AFTER = 4_500, 10_500
"""Rows before and after the first row of a query that the blocks have."""


def with_blocks(folder: Path, file: str = INDEX_FILE, keys: Iterable[str] = (QUERIES["exact URL"][0],)) -> Path:
    """Return another folder with the files of a crawl and its CDX index; made unless it is there.

    Args:
        folder: of the crawl.
        file: path of the index file of real size.
        keys: first keys of queries, whose rows the blocks have.
    """
    target = folder.with_name(f"{folder.name}-blocks")
    if not target.exists():
        say(f"making {BLOCKS:,} blocks")
        made = Path(mkdtemp(prefix="crawl-", dir=folder.parent))
        shutil.copytree(folder, made, copy_function=os.link, dirs_exist_ok=True)
        index = made / index_folder(CRAWL)
        index.mkdir(parents=True)
        _write(index, [[*_real_blocks(pq.ParquetFile(folder / file), key)] for key in sorted(keys, key=str.encode)])
        names = "".join(f"{index_folder(CRAWL)}/cdx-{shard:05}.gz\n" for shard in range(SHARDS))
        listed = made / shards_path(CRAWL)
        listed.write_bytes(gzip.compress(f"{names}{list_path(CRAWL)}\n".encode()))
        made.rename(target)
    return target


def _real_blocks(file: pq.ParquetFile, low: str) -> Iterator[tuple[str, bytes]]:
    """Yield the blocks of the rows around a key."""
    for group in range(file.num_row_groups):
        keys = file.read_row_group(group, columns=["url_surtkey"]).column(0).to_pylist()
        at = bisect_left(keys, low)
        if at < len(keys) and keys[at].startswith(low):
            rows = file.read_row_group(group).slice(max(0, at - _BEFORE), _BEFORE + _AFTER)
            (batch,) = rows.combine_chunks().to_batches(max_chunksize=_BEFORE + _AFTER)
            yield from blocks(_lines(batch))
            return
    message = f"no row group has {low}"
    raise ValueError(message)


def _lines(batch: pa.RecordBatch) -> Sequence[str]:
    return sorted(lines_of(batch), key=str.encode)


def _write(folder: Path, real: Sequence[Sequence[tuple[str, bytes]]]) -> None:
    """Write the list, and the shards with the real blocks, which come in ascending runs."""
    made_up = [tuple(line.split("\t")) for line in make_list(BLOCKS).decode().splitlines()]
    entries: list[tuple[str, int, bytes]] = [(line[0], int(line[3]), b"") for line in made_up]
    for run in real:
        start, end = (bisect_left(entries, key, key=lambda entry: entry[0]) for key in (run[0][0], run[-1][0]))
        entries[start:end] = [(first, len(block), block) for first, block in run]
    each = -(-len(entries) // SHARDS)
    with (folder / "cluster.idx").open("w", encoding="utf-8") as listed:
        for shard in range(SHARDS):
            name, offset = f"cdx-{shard:05}.gz", 0
            with (folder / name).open("wb") as file:
                for number, (first, length, block) in enumerate(entries[shard * each : (shard + 1) * each]):
                    listed.write(f"{first}\t{name}\t{offset}\t{length}\t{shard * each + number + 1}\n")
                    if block:
                        file.seek(offset)
                        file.write(block)
                    offset += length
                file.truncate(offset)
