"""Write the CDX index of a crawl of the miniature: shards of blocks, the list of blocks, and the list of files."""

import zlib
from collections.abc import Collection, Sequence

import pyarrow as pa

from catalogue.cdx.cluster import index_folder, list_path, shards_path
from catalogue.cdx.lines import lines_of
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo.pages import Row

_BLOCK_LINES = 60
"""Lines of a block; Common Crawl's have 3,000."""
_SHARDS = 3


def cdx_files(crawl: str, rows: Sequence[Row], missing: Collection[str]) -> dict[str, bytes]:
    """Return the files of the CDX index of rows of all subsets, by path, without the columns ``missing`` then."""
    schema = pa.schema([field for field in SCHEMA if field.name not in missing])
    (batch,) = pa.Table.from_pylist([*rows], schema).combine_chunks().to_batches()
    lines = sorted({line.encode() for line in lines_of(batch)})
    files: dict[str, bytes] = {}
    listed: list[bytes] = []
    for shard, of_shard in enumerate(_pieces(lines, -(-len(lines) // _SHARDS))):
        name, data = f"cdx-{shard:05}.gz", b""
        for of_block in _pieces(of_shard, _BLOCK_LINES):
            block = zlib.compress(b"".join(line + b"\n" for line in of_block), 6, 31)
            first = b" ".join(of_block[0].split(b" ", 2)[:2])
            place = f"\t{name}\t{len(data)}\t{len(block)}\t{len(listed) + 1}\n"
            listed.append(first + place.encode())
            data += block
        files[f"{index_folder(crawl)}/{name}"] = data
    files[list_path(crawl)] = b"".join(listed)
    names = "".join(f"{path}\n" for path in files).encode()
    return files | {shards_path(crawl): zlib.compress(names, wbits=31)}


def _pieces(lines: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [lines[start : start + size] for start in range(0, len(lines), size)]
