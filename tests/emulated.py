"""An emulated endpoint that serves while a test's script runs."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='emulating needs the extra: pip install "penstock[gateway]"')


from penstock.emulator.emulated_endpoint import EmulatedReplica
from penstock.emulator.emulator_server import emulate
from penstock.emulator.server_facts import ServerFacts
from penstock.emulator.sleep_mode import SleepTimes
from penstock.fleet.deployment import Parallelism
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica

MODEL = "llama"
STEP_S, TOKEN_S = 0.02, 1e-4
COST = StepCost(step_s=STEP_S, decode_s=0.0, prefill_token_s=TOKEN_S)


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    seconds: float
    whole: bool
    """Whether the answer ended as HTTP says it must."""


async def ask(port: int, path: str, body: object = None) -> Reply:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b"" if body is None else json.dumps(body).encode()
    begun = time.perf_counter()
    verb = "GET" if body is None else "POST"
    writer.write(f"{verb} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".encode())
    writer.write(b"content-length: %d\r\n\r\n" % len(data) + data)
    try:
        raw = await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        raw = b"HTTP/1.1 0 reset\r\n\r\n"
    writer.close()
    head, _, rest = raw.partition(b"\r\n\r\n")
    chunked = b"transfer-encoding: chunked" in head
    return Reply(int(head.split()[1]), rest, time.perf_counter() - begun, not chunked or rest.endswith(b"0\r\n\r\n"))


def chat(tokens: int, *, stream: bool = False, prompt: str = "hello", model: str = MODEL) -> dict[str, object]:
    said = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": said, "max_tokens": tokens, "ignore_eos": True, "stream": stream}


FACTS = ServerFacts(
    version="0.32.0",
    weights="bf16",
    cache_dtype="bf16",
    split=Parallelism(),
    max_sequences=256,
    max_batched_tokens=8192,
    prefix_caching=True,
)


def emulated(port: int, *, pool: str = "pool", model: str = MODEL, engine: str = "vllm") -> EmulatedReplica:
    return EmulatedReplica(
        address=f"127.0.0.1:{port}",
        pool=pool,
        model=model,
        engine=engine,
        simulated=Replica(cost=COST, kv_blocks=200),
        facts=FACTS,
        max_tokens=3200,
        usual_output_tokens=20,
        sleep=SleepTimes(sleep_s=(0.2, 0.05), wake_s=(0.3, 0.6)),
    )


def during(script: Callable[[int, int], Awaitable[None]], *, speed: float = 1.0, engine: str = "vllm") -> None:
    """Serve one endpoint and a place for commands while a script runs."""
    port, control = free_ports(2)
    serve([emulated(port, engine=engine)], control, lambda: script(port, control), speed=speed)


def serve(
    replicas: Sequence[EmulatedReplica], control: int, script: Callable[[], Awaitable[None]], *, speed: float = 1.0
) -> None:
    """Serve endpoints and a place for commands while a script runs."""

    async def main() -> None:
        ready = asyncio.Event()
        serving = asyncio.create_task(
            emulate(replicas, control=f"127.0.0.1:{control}", speed=speed, seed=0, ready=ready.set)
        )
        await asyncio.wait_for(ready.wait(), 5)
        await script()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(serving, 5)

    asyncio.run(main())
