"""Arguments, list of files and rate limit of the clients."""

import asyncio
import gzip
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

_BURST = 10
"""Requests that may be sent at once after a pause, as in ``catalogue``."""


@dataclass(frozen=True, slots=True)
class Task:
    """Arguments of a client."""

    url: str
    """URL of the source, with a trailing slash."""
    manifest: str
    """Path of the list of files."""
    folder: Path
    """Output folder."""
    limit: float | None
    """Maximal requests per second; for ``load`` the number of connections."""

    def files(self) -> list[str]:
        """Request the list of files; return their URLs."""
        answer = build_opener(ProxyHandler({})).open(self.url + self.manifest)
        return [self.url + path for path in gzip.decompress(answer.read()).decode().split()]


def start(client: Callable[[Task], dict[str, float]]) -> None:
    """Run a client with the arguments of the command line."""
    url, manifest, folder, *limit = sys.argv[1:]
    print(json.dumps(client(Task(url, manifest, Path(folder), float(limit[0]) if limit else None))))


def rate_limiter(rate: float) -> Callable[[], Awaitable[None]]:
    """Return a token bucket, to be awaited before each request."""
    following = 0.0

    async def wait() -> None:
        nonlocal following
        now = time.monotonic()
        slot = max(following, now - (_BURST - 1) / rate)
        following = slot + 1 / rate
        if slot > now:
            await asyncio.sleep(slot - now)

    return wait
