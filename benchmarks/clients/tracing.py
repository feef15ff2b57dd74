"""A rate for all that aiohttp, and so fsspec, asks."""

import aiohttp

from benchmarks.clients.asking import leave


def traces(rate: float | None) -> list[aiohttp.TraceConfig]:
    """For a session; shared by all sessions that are given it."""
    if rate is None:
        return []
    wait = leave(rate)

    async def started(*_: object) -> None:
        await wait()

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)
    return [trace]
