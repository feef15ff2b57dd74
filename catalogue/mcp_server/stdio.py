"""Protocol messages on the standard streams.

The library's own transport reads in a thread, and no signal ends a thread that waits for a line.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

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
        why = "the line is not one message of JSON-RPC 2.0, or has half a character, a surrogate"
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
