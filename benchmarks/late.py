"""What makes a server of this machine as late as a distant one, and counts what is asked of it."""

import asyncio
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Late:
    """Stands before a server, from ``with`` to the end of the block, for clients that open a connection a request.

    Args:
        url: of the server, which is on this machine.
        latency: seconds by which each answer is late.
    """

    def __init__(self, url: str, *, latency: float) -> None:
        self._server = urlsplit(url)
        self._latency = latency
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.url = ""
        """Where to ask instead."""
        self.requests = 0
        self.bytes = 0
        """Of answers, with their heads."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def reset(self) -> None:
        """Forget what was asked."""
        self.requests = self.bytes = 0

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        reading, writing = await asyncio.open_connection(self._server.hostname, self._server.port)
        asking = asyncio.create_task(_pass_on(reader, writing))
        try:
            first = await reading.read(1 << 16)
            await asyncio.sleep(self._latency)
            while first:
                self.bytes += len(first)
                writer.write(first)
                await writer.drain()
                first = await reading.read(1 << 16)
        except ConnectionError:
            pass  # the client has left
        finally:
            asking.cancel()
            for one in (writing, writer):
                one.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()  # or the server would keep open what its client has closed
