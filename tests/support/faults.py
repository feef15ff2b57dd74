"""A loopback HTTP server that misbehaves on command.

::

    with FaultServer(files, script=first(2, Kind.CUT_FIN)) as server:
        fetch(server.url + "cc-index/part-0.parquet")
        assert [exchange.status for exchange in server.settle()] == [206, 206, 206]

It serves GET, HEAD, single ranges and If-Match as S3 does, as long as its script names no fault; the faults are in
``tests.support.fault_kinds``. By itself, for benchmarks, it serves a folder and keeps a log that is had as JSON::

    python -m tests.support.faults FOLDER --latency 0.03 --port 0
    curl http://127.0.0.1:PORT/-/log        # since the start, or the last /-/reset
"""

import argparse
import asyncio
import json
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.fault_answers import Answer, right_answer, wrong_answer
from tests.support.fault_files import Folder, Memory
from tests.support.fault_kinds import (
    ALL_KINDS,
    BLOCKING,
    DETECTABLE,
    HARMLESS,
    MALFORMED_CONTENT_RANGES,
    PERMANENT,
    SLOW,
    THROTTLING,
    UNDETECTABLE,
    Fault,
    Kind,
    Request,
    Script,
    always,
    first,
    only,
    seeded,
)
from tests.support.fault_wire import HEAD_LIMIT, Head, Wire
from tests.support.gates import Gate

__all__ = [
    "ALL_KINDS",
    "BLOCKING",
    "DETECTABLE",
    "HARMLESS",
    "MALFORMED_CONTENT_RANGES",
    "PERMANENT",
    "SLOW",
    "THROTTLING",
    "UNDETECTABLE",
    "Exchange",
    "Fault",
    "FaultServer",
    "Kind",
    "Request",
    "Script",
    "Step",
    "always",
    "first",
    "only",
    "seeded",
]

_LOG = "-/log"
_RESET = "-/reset"


class Step(Enum):
    """How answers on a connection are out of step with the requests."""

    IN = "in"
    TWICE = "twice"
    """Each is followed by the same again, in one piece."""
    TWICE_SLOWLY = "twice, slowly"
    """The same in two pieces."""
    BEHIND = "behind"
    """From the second on, each is the answer to the request before."""


@dataclass(slots=True)
class Exchange:
    """A request and what becomes of it; all but what is said of the request may change until the answer is sent."""

    method: str
    path: str
    """Decoded, without the leading slash and the query."""
    range_header: str | None
    headers: Mapping[str, str]
    """By lower-case name."""
    connection: int
    """How many connections came before the one it came by."""
    fault: Fault | None
    """What was done to it; None too if there was nothing to do it to."""
    started: float
    """When the request had arrived, by ``time.monotonic``."""
    finished: float
    """When the last piece so far was sent, or it ended."""
    status: int = 0
    """0 as long as not even that has been said."""
    body_bytes_sent: int = 0
    """Given to the system, which may hold some back for a client that does not read."""


class _Log:
    """What the server has been asked, for it and for the test's threads."""

    def __init__(self, keep: int) -> None:
        self._changed = threading.Condition()
        self._under_way = 0
        self._exchanges: deque[Exchange] = deque(maxlen=keep)
        self._attempts: Counter[str] = Counter()
        self.requests = 0
        self.bytes_sent = 0

    def request(self, head: Head) -> Request:
        """Number a request that has arrived."""
        with self._changed:
            request = Request(head.method, head.path, head.headers, self.requests, self._attempts[head.path])
            self.requests += 1
            self._attempts[head.path] += 1
        return request

    def begin(self, exchange: Exchange) -> None:
        with self._changed:
            self._exchanges.append(exchange)
            self._under_way += 1

    def sent(self, exchange: Exchange, size: int) -> None:
        """Note a piece before it is sent, so that a client that has it finds it noted."""
        exchange.finished = time.monotonic()
        exchange.body_bytes_sent += size
        with self._changed:
            self.bytes_sent += size

    def end(self, exchange: Exchange) -> None:
        exchange.finished = time.monotonic()
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def all(self) -> list[Exchange]:
        with self._changed:
            return list(self._exchanges)

    def settle(self, timeout: float) -> list[Exchange]:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._under_way, timeout):
                message = f"{self._under_way} exchanges are still under way after {timeout} s"
                raise TimeoutError(message)
            return list(self._exchanges)

    def reset(self) -> None:
        with self._changed:
            self._exchanges.clear()
            self._attempts.clear()
            self.requests = self.bytes_sent = 0


class FaultServer:
    """The server, in a thread of its own, from ``with`` to the end of the block.

    Args:
        files: a folder, or bytes by path without a leading slash; the test may change either between two requests.
        script: what goes wrong; nothing if there is none. It runs in the server's thread, and what it raises is raised
            again at the end of the block.
        gate: holds one of the requests, before it is answered.
        latency: seconds by which each answer is late; those of other connections are not held up.
        rate: bytes of body a second on each connection.
        host: a loopback address.
        port: 0 for any that is free.
        keep: how many exchanges the log holds; older ones are forgotten, but counted.
    """

    def __init__(
        self,
        files: Path | Mapping[str, bytes],
        *,
        script: Script | None = None,
        gate: Gate | None = None,
        latency: float = 0.0,
        rate: float | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        keep: int = 100_000,
    ) -> None:
        self._files = Folder(files) if isinstance(files, Path) else Memory(files)
        self._script = script or (lambda _: None)
        self._gate = gate
        self._latency = latency
        self.step = Step.IN
        """Of the answers to requests for Parquet files."""
        self._previous: dict[int, Request] = {}
        self._rate = rate
        self._address = (host, port)
        self._log = _Log(keep)
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._accepted = 0
        self._failures: list[BaseException] = []
        self._listener: socket.socket
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="fault server", daemon=True)

    def __enter__(self) -> Self:
        # Listening from here on, so that a port that is taken is the caller's error, and no client comes too early.
        self._listener = socket.create_server(self._address, backlog=1024)
        self._listener.setblocking(False)  # noqa: FBT003 - the only way to say it
        self._address = self._listener.getsockname()[:2]
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._gate:
            self._gate.open()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if error is None and self._failures:
            raise self._failures[0]

    @property
    def url(self) -> str:
        """Of the root, with a slash at its end."""
        return f"http://{self._address[0]}:{self._address[1]}/"

    @property
    def log(self) -> list[Exchange]:
        """The exchanges so far, in the order in which the requests came; the last ones may be under way."""
        return self._log.all()

    @property
    def requests(self) -> int:
        """How many requests came, also those that the log has forgotten."""
        return self._log.requests

    @property
    def body_bytes_sent(self) -> int:
        """How many bytes of body were sent in all."""
        return self._log.bytes_sent

    def settle(self, timeout: float = 5.0) -> list[Exchange]:
        """The log as soon as no exchange is under way.

        Raises:
            TimeoutError: if one still is after ``timeout`` seconds.
        """
        return self._log.settle(timeout)

    def reset(self) -> None:
        """Forget all requests and begin to count anew."""
        self._log.reset()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # Not asyncio.start_server, which forgets to close what it has just accepted when it is closed itself.
        self._loop.add_reader(self._listener, self._accept)
        self._ready.set()
        await self._stop.wait()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for task in self._connections:
            task.cancel()
        while self._connections:
            await asyncio.wait(self._connections)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # gone before it was taken
        task = self._loop.create_task(self._serve(connection, self._accepted))
        self._accepted += 1
        self._connections[task] = connection
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()  # of a task that was cancelled before it began, too
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)

    async def _serve(self, connection: socket.socket, number: int) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=HEAD_LIMIT)
        wire = Wire(reader, writer, self._rate)
        try:
            while await self._answer_one(wire, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.transport.abort()  # whatever was to be sent has been

    async def _answer_one(self, wire: Wire, connection: int) -> bool:
        """Answer the next request of a connection; whether yet another may follow."""
        try:
            head = await wire.head()
        except ValueError:
            return await wire.send(Answer(400, {"Content-Length": "0"}), None, _unnoted)
        if head.path in {_LOG, _RESET}:
            return await wire.send(self._report(head), head, _unnoted)
        now = time.monotonic()
        request = self._log.request(head)
        try:
            fault = self._script(request)
        except Exception as error:
            self._failures.append(error)
            message = "the script failed"
            raise ConnectionAbortedError(message) from error
        exchange = Exchange(
            head.method, head.path, head.headers.get("range"), head.headers, connection, fault, now, now
        )
        self._log.begin(exchange)
        try:
            if self._gate:
                await self._gate.pass_through(request)
            if self._latency:
                await asyncio.sleep(self._latency)
            with ExitStack() as stack:
                step = self.step if request.path.endswith(".parquet") else Step.IN
                asked = self._previous.get(connection, request) if step is Step.BEHIND else request
                answer = self._answer(asked, exchange, stack)
                exchange.status = answer.status
                again = b""
                if step is not Step.IN:
                    self._previous[connection] = request
                    again = wire.packed(self._answer(request, exchange, stack), head)
                if step is Step.TWICE:
                    answer = replace(answer, body=[b"".join(answer.body) + again])
                more = await wire.send(answer, head, lambda size: self._log.sent(exchange, size))
                if step is Step.TWICE_SLOWLY:
                    await wire.write(again)
                return more
        finally:
            self._log.end(exchange)

    def _answer(self, request: Request, exchange: Exchange, stack: ExitStack) -> Answer:
        if exchange.fault:
            answer = wrong_answer(exchange.fault, request, self._files, stack)
            if answer:
                return answer
            exchange.fault = None
        return right_answer(request, self._files.open(request.path, stack))

    def _report(self, head: Head) -> Answer:
        if head.path == _RESET:
            self._log.reset()
        report = {
            "requests": self._log.requests,
            "body_bytes_sent": self._log.bytes_sent,
            "exchanges": [
                {
                    "method": one.method,
                    "path": one.path,
                    "range": one.range_header,
                    "status": one.status,
                    "bytes": one.body_bytes_sent,
                }
                for one in self._log.all()
            ],
        }
        data = json.dumps(report).encode()
        return Answer(200, {"Content-Type": "application/json", "Content-Length": str(len(data))}, (data,))


def _unnoted(_: int) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a folder until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds by which each answer is late")
    parser.add_argument("--rate", type=float, help="bytes of body a second on each connection")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    given = parser.parse_args(arguments)
    # Blocked before the server's thread starts, which inherits that; the signal is then waited for here.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = FaultServer(given.folder, latency=given.latency, rate=given.rate, host=given.host, port=given.port)
    with server:
        print(server.url, flush=True)  # noqa: T201 - what it is started for
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
