"""Lists of blocks of the CDX index, whose blocks do not exist."""

import gzip
from pathlib import Path

from catalogue.cdx.cluster import count_shards, index_folder, list_path, shards_path

CRAWL, OTHER = "CC-MAIN-2022-33", "CC-MAIN-2021-49"


def shards_list(shards: int, crawl: str = CRAWL) -> bytes:
    return gzip.compress("".join(f"{index_folder(crawl)}/cdx-{number:05}.gz\n" for number in range(shards)).encode())


def write_list(mirror: Path, lines: bytes, crawl: str = CRAWL) -> Path:
    path = mirror / list_path(crawl)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines)
    shards = 1 + max(int(line.split(b"\t")[1][4:9]) for line in lines.splitlines())
    listed = mirror / shards_path(crawl)
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_bytes(shards_list(shards, crawl))
    assert count_shards(crawl, listed.read_bytes()) == shards
    return path
