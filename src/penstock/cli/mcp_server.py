"""Serves the tools of `penstock mcp` with the Model Context Protocol over stdin and stdout."""

import json
import logging
from threading import Lock
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from penstock import __version__
from penstock.api.agent_tools import TOOLS
from penstock.errors import PenstockError

LOG = logging.getLogger(__name__)
_ONE_AT_A_TIME = Lock()
_INSTRUCTIONS = (
    "Penstock predicts LLM serving on AMD and NVIDIA accelerators. Every figure has a P10-P90 interval and a tier; "
    "quote both. Prices have a seller and a date. A document with a negative verdict is an answer, not an error."
)


async def _list_tools(_: Any, __: Any) -> ListToolsResult:  # noqa: ANN401 - as the protocol's library passes them
    return ListToolsResult(
        tools=[
            Tool(
                name=tool.name,
                description=tool.question,
                input_schema=tool.input_schema(),
                output_schema=tool.output_schema(),
                annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for tool in TOOLS.values()
        ]
    )


async def _call_tool(_: Any, params: Any) -> CallToolResult:  # noqa: ANN401 - as the protocol's library passes them
    return await anyio.to_thread.run_sync(_result, params.name, params.arguments or {})


def _result(name: str, arguments: dict[str, object]) -> CallToolResult:
    """Answer one call. Expected failures and bugs become errors of the call; the server goes on."""
    if name not in TOOLS:
        return _failure(f"there is no tool '{name[:40]}'; the tools are {', '.join(TOOLS)}")
    try:
        with _ONE_AT_A_TIME:
            document = json.loads(json.dumps(TOOLS[name].answer(arguments)))
    except PenstockError as error:
        return _failure(str(error))
    except Exception as error:  # the guard of the service: one bad call must not end the server
        LOG.exception("call of %s failed", name)
        return _failure(f"internal error: {type(error).__name__}")
    text = TextContent(type="text", text=json.dumps(document, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=document)


def _failure(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)


def build_server() -> Any:  # noqa: ANN401 - a type of the optional package
    """Build the server."""
    return Server(
        "penstock",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )


def serve() -> None:
    """Serve until stdin ends."""
    anyio.run(_serve)


async def _serve() -> None:
    server = build_server()
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
