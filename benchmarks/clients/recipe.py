"""The recipe of skeptric.com, "Read Common Crawl Parquet Metadata with Python" (April 2022): three requests a file.

aiohttp fetches batches of 1,000 files with 100 connections and stores them in a SqliteDict, from which the
table is built. Two differences to the publication: pyarrow, which is faster, parses footers instead of fastparquet,
and ranges are correct where the published ones are a byte too long.
"""

import asyncio
import time

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
from sqlitedict import SqliteDict

from benchmarks.clients.asking import Task, start
from benchmarks.clients.rows import row_groups, write
from benchmarks.clients.tracing import traces

_BATCH = 1000


async def _footer(session: aiohttp.ClientSession, file: str) -> bytes:
    async with session.head(file) as answer:
        size = int(answer.headers["Content-Length"])
    async with session.get(file, headers={"Range": f"bytes={size - 8}-{size - 1}"}) as answer:
        end = await answer.read()
    if end[-4:] != b"PAR1":
        raise ValueError(file)
    at = size - 8 - int.from_bytes(end[:4], "little")
    async with session.get(file, headers={"Range": f"bytes={at}-{size - 9}"}) as answer:
        return await answer.read()


async def _gather(files: list[str], trace_configs: list[aiohttp.TraceConfig]) -> list[bytes]:
    async with aiohttp.ClientSession(raise_for_status=True, trace_configs=trace_configs) as session:
        return await asyncio.gather(*(_footer(session, file) for file in files))


def recipe(task: Task) -> dict[str, float]:
    """Store footers and write the table of row groups."""
    trace_configs = traces(task.limit)
    started = time.monotonic()
    files = task.files()
    rows = []
    with SqliteDict(task.folder / "footers.sqlite", flag="w") as store:
        for first in range(0, len(files), _BATCH):
            batch = files[first : first + _BATCH]
            for file, data in zip(batch, asyncio.run(_gather(batch, trace_configs)), strict=True):
                store[file] = data
            store.commit()
        fetched = time.monotonic()
        for file, data in store.items():
            file_bytes = b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1"
            rows += row_groups(file, pq.read_metadata(pa.BufferReader(file_bytes)))
    write(rows, task.folder)
    return {"files": len(files), "fetch": fetched - started, "table": time.monotonic() - fetched}


if __name__ == "__main__":
    start(recipe)
