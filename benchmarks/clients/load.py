"""Suffix ranges of 64 kB for three seconds, by as little code as possible: what the server can do."""

import asyncio
import time
from urllib.parse import urlsplit

from benchmarks.clients.asking import Task, start

_SECONDS = 3.0


def load(task: Task) -> dict[str, float]:
    """Do it, by as many connections as the limit says."""
    address = urlsplit(task.url)
    paths = [urlsplit(file).path for file in task.files()]
    done = 0

    async def ask(number: int, until: float) -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        while time.monotonic() < until:
            path = paths[(number + done) % len(paths)]
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nRange: bytes=-64000\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]))
            done += 1
        writer.close()

    async def everybody() -> None:
        until = time.monotonic() + _SECONDS
        await asyncio.gather(*(ask(number, until) for number in range(int(task.limit or 1))))

    started = time.monotonic()
    asyncio.run(everybody())
    return {"requests": done, "fetch": time.monotonic() - started}


if __name__ == "__main__":
    start(load)
