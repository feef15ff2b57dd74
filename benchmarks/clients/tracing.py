"""A rate limit for aiohttp, and so for fsspec."""

import aiohttp

from benchmarks.clients.asking import rate_limiter


def traces(rate: float | None) -> list[aiohttp.TraceConfig]:
    """Return trace configurations that limit the total rate of all sessions that use them."""
    if rate is None:
        return []
    wait = rate_limiter(rate)

    async def started(*_: object) -> None:
        await wait()

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)
    return [trace]
