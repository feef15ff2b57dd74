"""Serve the tools on the standard streams or over HTTP, until the client or a signal ends it."""

import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server import Server, ServerRequestContext
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from catalogue.errors import CatalogueError, NotHarvested, OverBudget, QueryError, SourceError, TooExpensive
from catalogue.mcp_server.calls import CallFailed, Calls
from catalogue.mcp_server.tool_models import Answer, CallCost, ErrorAnswer, PageAnswer, first_error
from catalogue.mcp_server.tools import INSTRUCTIONS, TOOLS, Tool
from catalogue.mcp_server.untrusted import visible_values
from catalogue.settings import package_version

_log = logging.getLogger(__name__)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_KINDS = (
    (OverBudget, "budget"),
    (TooExpensive, "too_expensive"),
    (NotHarvested, "not_stored"),
    (QueryError, "invalid"),
    (SourceError, "source"),
)


def server_of(calls: Calls) -> Server[Any]:
    """Return a server whose tools run as ``calls``, for one client or several."""

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*map(_described, TOOLS)])

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = _BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name[:100]!r}; use {', '.join(_BY_NAME)}")
        return await _called(tool, params.arguments or {}, calls)

    return Server(
        "catalogue",
        version=package_version(),
        title="Common Crawl catalogue",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=tool.asks_source,
        ),
    )


async def _called(tool: Tool, given: dict[str, Any], calls: Calls) -> types.CallToolResult:
    try:
        arguments = tool.arguments.model_validate(given)
    except ValidationError as error:
        return _failed("invalid", first_error(error.errors(), tool.input_schema["properties"]), calls.free)
    try:
        return _result(await calls.run(partial(tool.run, arguments)))
    except CallFailed as failed:
        if isinstance(failed.reason, CatalogueError):
            kind = next((kind for each, kind in _KINDS if isinstance(failed.reason, each)), "other")
            return _failed(kind, str(failed.reason), failed.cost)
        _log.exception("the tool %s failed", tool.name)
        problem = f"internal error ({type(failed.reason).__name__}); see the log of the server"
        return _failed("other", problem, failed.cost)


def _result(answer: Answer) -> types.CallToolResult:
    plain = answer.model_dump(mode="json")
    shown = {name: value if name == "content" else visible_values(value) for name, value in plain.items()}
    failed = isinstance(answer, PageAnswer) and answer.outcome == "not_read"
    return _as_result(shown, failed=failed)


def _failed(kind: Any, problem: str, cost: CallCost) -> types.CallToolResult:  # noqa: ANN401 - validated here
    error = ErrorAnswer(error=problem, kind=kind, cost=cost)
    return _as_result(visible_values(error.model_dump(mode="json")), failed=True)


def _as_result(plain: dict[str, Any], *, failed: bool) -> types.CallToolResult:
    text = json.dumps(plain, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=plain, is_error=failed
    )


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
    """Serve clients over streamable HTTP; ``ready`` is called with the URL.

    ``names`` are hosts that the header ``Host`` may name, in addition to those of this machine.

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


_READ = 1 << 16
_WRITTEN = 4096
"""Bytes that can be written to a pipe that is writable, without a wait."""
_LAST_SECONDS = 1.0
"""Time for the last answers, if the client does not read them."""


@asynccontextmanager
async def standard_streams() -> AsyncIterator[
    tuple[ObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]]
]:
    """Yield streams of messages; what others print goes to the standard error.

    Raises:
        BrokenPipeError: if the client does not read any more.
    """
    sys.stdout.flush()
    written = os.dup(1)
    os.dup2(2, 1)
    to_server, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    answers, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    broken: list[OSError] = []
    all_written = anyio.Event()

    async def write() -> None:
        try:
            async with from_server:
                async for answer in from_server:
                    line = answer.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await _write(written, f"{line}\n".encode())
        except BrokenPipeError as error:
            broken.append(error)
            group.cancel_scope.cancel()
        all_written.set()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, 0, to_server, answers)
            group.start_soon(write)
            async with messages, answers:
                yield messages, answers
            with anyio.move_on_after(_LAST_SECONDS):
                await all_written.wait()
            group.cancel_scope.cancel()
    finally:
        os.dup2(written, 1)
        os.close(written)
    if broken:
        raise broken[0]


async def _read(
    descriptor: int, messages: ObjectSendStream[SessionMessage | Exception], answers: ObjectSendStream[SessionMessage]
) -> None:
    async with messages:
        rest = b""
        while data := await _readable(descriptor):
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(bytes.strip, lines):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await answers.send(SessionMessage(_error(line)))
                else:
                    await messages.send(SessionMessage(message))


def _error(line: bytes) -> types.JSONRPCError:
    number = None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        error = types.ErrorData(code=types.PARSE_ERROR, message="the line is not JSON in UTF-8")
    else:
        if isinstance(value, dict) and type(value.get("id")) in {int, str}:
            number = value["id"]
        why = "the line is not one message of JSON-RPC 2.0, or contains a lone surrogate"
        error = types.ErrorData(code=types.INVALID_REQUEST, message=why)
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=error)


async def _readable(descriptor: int) -> bytes:
    try:
        await anyio.wait_readable(descriptor)
    except PermissionError:  # a file, which can always be read
        await anyio.lowlevel.checkpoint()
    return os.read(descriptor, _READ)


async def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            await anyio.wait_writable(descriptor)
        except PermissionError:  # a file
            await anyio.lowlevel.checkpoint()
        left = left[os.write(descriptor, left[:_WRITTEN]) :]
