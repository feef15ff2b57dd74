"""Questions to a CDX server, some at a time: ``python -m benchmarks.clients.ask_cdx FILE CLIENTS SECONDS``.

A file has one URL a line. Each of the clients asks one after the other on a connection that is kept open; together they
ask each URL once, and all of them again until as many seconds are over. What that took is printed as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp

_TIMEOUT = 120.0
"""Seconds to wait for a response."""


async def _ask(urls: Sequence[str], clients: int, seconds: float) -> dict[str, float]:
    taken: list[float] = []
    sent = failed = 0
    started = time.monotonic()

    async def client(session: aiohttp.ClientSession, left: Iterator[str]) -> None:
        nonlocal sent, failed
        for url in left:
            asked = time.monotonic()
            async with session.get(url) as answer:
                sent += len(await answer.read())
                failed += answer.status != 200
            taken.append(time.monotonic() - asked)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=clients),
        timeout=aiohttp.ClientTimeout(total=_TIMEOUT),
        headers={"Accept-Encoding": "identity"},
    ) as session:
        while not taken or time.monotonic() - started < seconds:
            left = iter(urls)
            await asyncio.gather(*(client(session, left) for _ in range(clients)))
    ended = time.monotonic()
    taken.sort()
    return {
        "queries": len(taken),
        "seconds": ended - started,
        "p50": taken[len(taken) // 2],
        "p99": taken[len(taken) * 99 // 100],
        "bytes": sent,
        "failed": failed,
    }


if __name__ == "__main__":
    file, number, duration = sys.argv[1:]
    asked = Path(file).read_text(encoding="utf-8").splitlines()
    print(json.dumps(asyncio.run(_ask(asked, int(number), float(duration)))))
