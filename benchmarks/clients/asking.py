"""What the clients have in common: what they are started with, the list of files, and leave to make requests."""

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
"""Requests that may go out at once after a rest, as with ours."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a client is to do."""

    url: str
    """Of the source, with a slash at its end."""
    manifest: str
    """Where the list of files is."""
    folder: Path
    """Takes what is made."""
    limit: float | None
    """Requests a second at most, or for the load connections."""

    def files(self) -> list[str]:
        """The addresses of the files, by one request."""
        answer = build_opener(ProxyHandler({})).open(self.url + self.manifest)
        return [self.url + path for path in gzip.decompress(answer.read()).decode().split()]


def start(client: Callable[[Task], dict[str, float]]) -> None:
    """Do what the command line says."""
    url, manifest, folder, *limit = sys.argv[1:]
    print(json.dumps(client(Task(url, manifest, Path(folder), float(limit[0]) if limit else None))))


def leave(rate: float) -> Callable[[], Awaitable[None]]:
    """A token bucket: what it returns is waited for before every request."""
    following = 0.0

    async def wait() -> None:
        nonlocal following
        now = time.monotonic()
        slot = max(following, now - (_BURST - 1) / rate)
        following = slot + 1 / rate
        if slot > now:
            await asyncio.sleep(slot - now)

    return wait
