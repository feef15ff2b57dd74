"""A proxy that delays responses and counts requests."""

import asyncio
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class DelayingProxy:
    """A proxy for a local server and clients that open a connection per request; runs in a ``with`` block.

    Args:
        url: URL of the server.
        latency: seconds of delay per response.
    """

    def __init__(self, url: str, *, latency: float) -> None:
        self._server = urlsplit(url)
        self._latency = latency
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.url = ""
        """URL of the proxy."""
        self.requests = 0
        self.bytes = 0
        """Bytes of responses, including headers."""

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
        """Reset the counters."""
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
        forwarding = asyncio.create_task(_forward(reader, writing))
        try:
            data = await reading.read(1 << 16)
            await asyncio.sleep(self._latency)
            while data:
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
                data = await reading.read(1 << 16)
        except ConnectionError:
            pass  # the client closed its connection
        finally:
            forwarding.cancel()
            for stream in (writing, writer):
                stream.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()  # otherwise the server would keep the connection open
