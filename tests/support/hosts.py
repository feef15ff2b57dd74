"""A dataset of hosts, as an example of a dataset other than Common Crawl's index."""

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CRAWLS = ["CC-MAIN-2024-10", "CC-MAIN-2024-18"]


def host_keys(seed: int) -> list[str]:
    """Return reversed names of hosts, sorted except for a few, as in Common Crawl's host index."""
    rng = random.Random(seed)
    names = {f"{rng.choice(['com', 'is', 'org'])},{''.join(rng.choices('abc', k=4))}" for _ in range(400)}
    names |= {f"{name},{rng.choice(['www', 'blog', 'a-b'])}" for name in sorted(names)[::3]}
    ordered = sorted(names)
    for _ in range(len(ordered) // 50):
        ordered.insert(rng.randrange(len(ordered)), ordered.pop(rng.randrange(len(ordered))))
    return ordered


def host_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    folder = tmp_path_factory.mktemp("hosts") / "source"
    tables, paths = [], []
    for crawl in CRAWLS:
        for number in range(3):
            keys = host_keys(number)
            path = folder / "hosts" / f"crawl={crawl}" / f"part-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            rank = pa.int8() if crawl == CRAWLS[0] else pa.int64()
            rows = pa.table(
                {
                    "hcrank10": pa.array([len(key) % 7 + number for key in keys], rank),
                    "surt_host_name": keys,
                    "average": pa.array([len(key) / 2 for key in keys], pa.float32() if number else pa.float64()),
                    **({"only_here": [key.encode() for key in keys]} if number == 2 else {}),
                }
            )
            pq.write_table(rows, path, row_group_size=90, data_page_size=300, write_page_index=number != 1)
            paths.append(path.relative_to(folder))
            tables.append(rows.append_column("crawl", pa.array([crawl] * len(rows))))
    (folder / "hosts.paths.gz").write_bytes(gzip.compress("\n".join(map(str, paths)).encode()))
    rows = pa.concat_tables(tables, promote_options="permissive")
    return folder, rows.select(["hcrank10", "surt_host_name", "average", "only_here", "crawl"])
