"""Serve the tools on the standard streams or over HTTP, until the client or a signal ends it."""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
from mcp.server.transport_security import TransportSecuritySettings

from catalogue.errors import QueryError
from catalogue.mcp_server.calls import Calls
from catalogue.mcp_server.protocol import server_of
from catalogue.mcp_server.stdio import standard_streams

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_MAX_SESSIONS = 100
_SHUTDOWN_SECONDS = 1
PATH = "/mcp"


def serve_stdio(calls: Calls) -> None:
    """Serve one client on the standard streams; a signal is raised again at the end.

    Raises:
        BrokenPipeError: if the client does not read any more.
    """
    received: list[int] = []

    async def stop_on_signal(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                received.append(number)
                scope.cancel()

    async def serve() -> None:
        server = server_of(calls)
        async with calls, anyio.create_task_group() as group:
            group.start_soon(stop_on_signal, group.cancel_scope)
            async with standard_streams() as (messages, answers):
                await server.run(messages, answers, server.create_initialization_options())
            group.cancel_scope.cancel()

    with _restored_handlers():
        anyio.run(serve)
    if received:
        signal.raise_signal(received[0])


@contextmanager
def _restored_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def serve_http(calls: Calls, host: str, port: int, names: Sequence[str] = (), *, ready: Callable[[str], None]) -> None:
    """Serve clients over streamable HTTP.

    Args:
        calls: calls of all clients.
        host: the address to listen at.
        port: 0 for any free one.
        names: hosts that the header ``Host`` may name, in addition to those of this machine.
        ready: called with the URL.

    Raises:
        QueryError: if it cannot listen there.
    """
    import uvicorn  # noqa: PLC0415 - of no use on the standard streams

    async def serve(listening: socket.socket) -> None:
        async with calls:
            app = server_of(calls).streamable_http_app(
                streamable_http_path=PATH, max_sessions=_MAX_SESSIONS, transport_security=_security(names)
            )
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            )
            await uvicorn.Server(config).serve(sockets=[listening])

    with _listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listening.getsockname()[1]}{PATH}")
        anyio.run(serve, listening)


def _security(names: Sequence[str]) -> TransportSecuritySettings:
    """Accept requests for these hosts alone: pages of other sites could send them otherwise."""
    hosts = [*_LOCAL, *(f"[{name}]" if ":" in name and not name.startswith("[") else name for name in names)]
    with_ports = [each for host in hosts for each in (host, f"{host}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=with_ports,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in with_ports],
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise QueryError(f"cannot listen at {host}, port {port} ({why}); choose another --port") from error
