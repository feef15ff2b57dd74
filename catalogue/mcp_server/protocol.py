"""The tools as a server of the library ``mcp``."""

import json
import logging
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from catalogue.errors import CatalogueError, NotHarvested, QueryError, SourceError, TooExpensive
from catalogue.mcp_server.answers import Answer, CallCost, ErrorAnswer, PageAnswer
from catalogue.mcp_server.arguments import first_error
from catalogue.mcp_server.calls import CallFailed, Calls, OverBudget
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
    """Return a server whose tools run as ``calls``; several clients may use it."""

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
