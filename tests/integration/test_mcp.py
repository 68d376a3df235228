"""`penstock mcp` with the official client of the protocol."""

import os
import sys
from typing import Any

import pytest

mcp = pytest.importorskip("mcp")
anyio = pytest.importorskip("anyio")

PLAN = """
start: 2026-12-01
workloads:
  - {name: chat, model: llama-3.1-8b, slo: "ttft=1s,tpot=50ms", requests_per_s: 5, lengths: [{input: 512, output: 64}]}
accelerators: [{id: mi300x, tp: [1]}]
acquire: [rent]
draws: 100
"""
CALLS: dict[str, dict[str, Any]] = {
    "fit": {"model": "llama-3.1-8b", "on": "h100,mi300x"},
    "predict": {"model": "llama-3.1-8b", "on": "h100"},
    "simulate": {"model": "llama-3.1-8b", "on": "h100", "rate": 1, "requests": 50},
    "preflight": {"model": "gpt-oss-120b", "on": "mi300x"},
    "audit": {"claim": "llama-3.1-70b fp16 on 1x h100: 2800 tok/s"},
    "catalog": {"what": "list"},
    "plan": {"text": PLAN},
}
HOSTILE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fit", {}),
    ("fit", {"model": "../../etc/passwd", "on": "h100"}),
    ("fit", {"model": "llama-3.1-8b", "on": "h100:99999999999"}),
    ("predict", {"model": "llama-3.1-8b", "on": "h100", "concurrency": "1,-1"}),
    ("simulate", {"model": "llama-3.1-8b", "on": "h100", "rate": 1e-300}),
    ("plan", {"text": "workloads: &a [*a]"}),
    ("plan", {"text": PLAN.replace("lengths: [{input: 512, output: 64}]", "trace: /etc/passwd")}),
    ("catalog", {"what": "__class__"}),
    ("no-such-tool", {}),
)


async def _walk() -> None:
    server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "penstock", "mcp"], env=dict(os.environ))
    async with mcp.Client(server) as client:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == set(CALLS)
        assert all(tool.annotations.read_only_hint for tool in listed)
        for name, arguments in HOSTILE:
            result = await client.call_tool(name, arguments)
            assert result.is_error, name
            assert "internal error" not in result.content[0].text, result.content[0].text
            assert "root:" not in result.content[0].text, "a file of the host must not be shown"
        for name, arguments in CALLS.items():
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            assert result.structured_content["schema"].startswith("penstock.")


def test_the_official_client_lists_and_calls_every_tool_and_survives_hostile_arguments() -> None:
    anyio.run(_walk)
