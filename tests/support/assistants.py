"""Clients of the library ``mcp`` for the tools, in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from catalogue.mcp_server.calls import Calls
from catalogue.mcp_server.serve import server_of
from catalogue.settings import Settings
from tests.support.faults import Fault, FaultServer, Kind


class Assistant:
    """A client whose answers are compared with their text."""

    def __init__(self, client: Client, calls: Calls) -> None:
        self.client = client
        self.calls = calls

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.result(tool, **arguments)
        assert not result.is_error, result.structured_content
        return dict(result.structured_content or {})

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.result(tool, **arguments)
        assert result.is_error, result.structured_content
        return dict(result.structured_content or {})

    async def result(self, tool: str, **arguments: Any) -> CallToolResult:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result


def without_index(folder: Path, crawl: str) -> FaultServer:
    return FaultServer(folder, script=lambda each: Fault(Kind.NOT_FOUND) if f"/{crawl}/indexes" in each.path else None)


@asynccontextmanager
async def assistant_of(settings: Settings, max_requests: int = 1000, mode: Any = "auto") -> AsyncIterator[Assistant]:
    """Run a server in memory, and yield a client of it."""
    async with Calls(settings, max_requests) as calls, Client(server_of(calls), mode=mode) as client:
        yield Assistant(client, calls)
