"""One small call of every command of Penstock, with the files that the calls read.

`tools/check_pythons.py` runs them on each Python. A call states its expected exit code.
"""

import json
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
MAX_CALL_S: Final = 600
RECORDED_EVERY: Final = 1000
"""A gateway records one decision in 1,000, with all its inputs."""
PLAN: Final = """
name: one chat
start: 2026-12-01
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    users: 50
    lengths: [{input: 1k, output: 256, share: 100%}]
accelerators: [h100]
acquire: [rent]
"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command line of Penstock, and the exit code that it should have."""

    words: tuple[str, ...]
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call did."""

    call: Call
    exit_code: int
    seconds: float
    error: str

    @property
    def good(self) -> bool:
        """Return whether the call exited as expected."""
        return self.exit_code == self.call.exit_code


def _call(line: str, exit_code: int = 0) -> Call:
    return Call(words=tuple(line.split()), exit_code=exit_code)


BASE: Final = (
    _call("fit llama-3.1-8b --on mi300x,h100"),
    _call("predict llama-3.1-8b --on h100 --concurrency 1,16"),
    _call("guide llama-3.1-8b --prompts 1k --loads 1 --on h100"),
    _call("plan plan.yaml --fleet chosen.yaml"),
    _call("inspect llama-3.1-8b"),
    _call("tax --on h100"),
    _call("catalog list"),
    _call("catalog show mi300x"),
    _call("catalog diff mi300x h100"),
    _call("catalog prices h100"),
    _call("catalog models"),
    _call("workload describe trace.csv"),
    _call("simulate llama-3.1-8b --on h100 --rate 1 --requests 100"),
    _call("simulate --fleet fleet.yaml --rate 2 --requests 100 --policy penstock,round-robin"),
    _call("accuracy --by month"),
    Call(words=("audit", "h100 fp8: 3958 TFLOPS"), exit_code=1),
    _call("preflight llama-3.1-8b --on mi300x --host rocm=7.2.3"),
    _call("preflight packs"),
    _call("doctor"),
    _call("fp8 scan model.safetensors"),
    _call("results vllm-bench.json"),
    _call(
        "calibrate vllm-bench.json --on h100 --engine vllm --precision bf16 --kv bf16 --model llama-3.1-8b"
        " --accept-doubtful --to calibration.yaml"
    ),
)
"""Commands of the base installation."""
EXTRAS: Final = (_call("mcp"),)
"""Commands that need an extra and nothing else. Without input, `mcp` ends."""


def write_inputs(directory: Path) -> None:
    """Write the files that the calls name."""
    (directory / "plan.yaml").write_text(PLAN, encoding="utf-8")
    for name, source in (("fleet.yaml", "fleets/chat-h100-mi300x.yaml"), ("trace.csv", "traces/agentic.csv")):
        (directory / name).write_bytes((EXAMPLES / source).read_bytes())
    (directory / "vllm-bench.json").write_text(json.dumps(_load_result()), encoding="utf-8")
    (directory / "model.safetensors").write_bytes(_fp8_checkpoint())


def _load_result() -> dict[str, object]:
    """Return a result as `vllm bench serve` writes it: 64 requests from 8 users."""
    ttft_s, gap_s, tokens, requests, users = 0.05, 0.008, 128, 64, 8
    latency_s = ttft_s + gap_s * (tokens - 1)
    statistics = {
        f"{kind}_{name}_ms": 1000 * value
        for name, value in (("ttft", ttft_s), ("tpot", gap_s), ("itl", gap_s), ("e2el", latency_s))
        for kind in ("mean", "median", "p99")
    }
    return {
        "date": "20261101-120000",
        "endpoint_type": "openai",
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": requests,
        "completed": requests,
        "failed": 0,
        "request_rate": "inf",
        "max_concurrency": users,
        "duration": latency_s * requests / users,
        "total_input_tokens": 512 * requests,
        "total_output_tokens": tokens * requests,
        "start_times": [latency_s * (place // users) for place in range(requests)],
        "input_lens": [512] * requests,
        "output_lens": [tokens] * requests,
        "ttfts": [ttft_s] * requests,
        "itls": [[gap_s] * (tokens - 1)] * requests,
        **statistics,
    }


def _fp8_checkpoint() -> bytes:
    """Return one FP8 tensor with its scale, as safetensors."""
    width = 128
    codes = bytes((0x08, 0x20, 0x30, 0x38, 0x88, 0xA0, 0xB0, 0x7E)[place * place % 8] for place in range(width * width))
    scale = struct.pack("<f", 0.001)
    header = json.dumps(
        {
            "layer.weight": {"dtype": "F8_E4M3", "shape": [width, width], "data_offsets": [0, len(codes)]},
            "layer.weight_scale_inv": {
                "dtype": "F32",
                "shape": [1, 1],
                "data_offsets": [len(codes), len(codes) + len(scale)],
            },
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + codes + scale


def run_call(call: Call, directory: Path, environment: Mapping[str, str]) -> Outcome:
    """Run one call."""
    begin_s = time.monotonic()
    done = subprocess.run(  # noqa: S603 - our own command
        ["/usr/bin/env", "penstock", *call.words],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_CALL_S,
        check=False,
    )
    return Outcome(
        call=call, exit_code=done.returncode, seconds=time.monotonic() - begin_s, error=done.stdout + done.stderr
    )


def serve_and_route(directory: Path, environment: Mapping[str, str]) -> list[Outcome]:
    """Emulate a fleet, send requests through a gateway, and run what needs either of them."""
    first, _, _, _, listen, metrics = _free_ports(6)
    with ExitStack() as running:
        emulated = _call(f"emulate fleet.yaml --port {first} --write running.yaml --speed 100")
        routed = _call(
            f"route running.yaml --listen 127.0.0.1:{listen} --metrics 127.0.0.1:{metrics} --receipts receipts.jsonl"
            " --drain 1 --drain-grace 0"
        )
        outcomes = [running.enter_context(_served(emulated, directory, environment, f"127.0.0.1:{first}/health"))]
        outcomes.append(running.enter_context(_served(routed, directory, environment, f"127.0.0.1:{listen}/health")))
        _wait_until(lambda: _completes(f"127.0.0.1:{listen}"))
        with ThreadPoolExecutor(16) as clients:
            list(clients.map(lambda _: _completes(f"127.0.0.1:{listen}"), range(RECORDED_EVERY)))
        for line in (
            f"top 127.0.0.1:{metrics} --once",
            "export running.yaml --to envoy",
            f"bench plan.yaml --rate 2 --target a=http://127.0.0.1:{first} --dry-run",
        ):
            outcomes.append(run_call(_call(line), directory, environment))
    recorded = " ".join(path.name for path in sorted(directory.glob("receipts*.jsonl")))
    outcomes.append(run_call(_call(f"receipts {recorded}"), directory, environment))
    outcomes.append(run_call(_call(f"bill {recorded} --fleet running.yaml"), directory, environment))
    return outcomes


@contextmanager
def _served(call: Call, directory: Path, environment: Mapping[str, str], health: str) -> Iterator[Outcome]:
    """Run a server until the block ends. The outcome says how long it took to answer."""
    begin_s = time.monotonic()
    process = subprocess.Popen(  # noqa: S603 - our own command
        ["/usr/bin/env", "penstock", *call.words],
        cwd=directory,
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_until(lambda: process.poll() is not None or _answers(health))
        seconds = time.monotonic() - begin_s
        if process.poll() is not None:
            raise RuntimeError(f"{call.words[0]} ended: {process.communicate()[1]}")
        yield Outcome(call=call, exit_code=0, seconds=seconds, error="")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _free_ports(number: int) -> list[int]:
    """Return consecutive free ports of 127.0.0.1."""
    for begin in range(21_000, 60_000, number):
        with ExitStack() as held:
            try:
                for port in range(begin, begin + number):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(begin, begin + number))
    raise RuntimeError("no free ports")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _completes(address: str) -> bool:
    body = {"model": "llama-3.1-8b", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 - loopback
            return bool(reply.status == 200)
    except urllib.error.URLError:
        return False


def _wait_until(happened: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 120
    while not happened():
        if time.monotonic() > until_s:
            raise TimeoutError("nothing answered within two minutes")
        time.sleep(0.1)
