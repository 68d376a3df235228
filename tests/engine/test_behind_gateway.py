"""Two real vLLM servers in one fleet with emulated endpoints, behind a real Envoy: about six minutes.

PENSTOCK_VLLM names the Python of an environment with vLLM, as `tools/install_vllm.sh` builds it.
"""

import asyncio
import json
import logging
import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from engine.record import SHAPE
from engine.server import Server, Settings, serve
from gateway_stack import Running, running
from penstock.gateway.telemetry.engine_metrics import read_page

log = logging.getLogger(__name__)
pytestmark = pytest.mark.engine
PATH = "/v1/completions"
EMULATED = 2
SILICON = Path(__file__).parents[2] / "examples" / "fleets" / "chat-70b-h100-mi300x.yaml"
"""An H100 pair and an MI300X, emulated."""
PATIENCE_S = 400.0


@dataclass(frozen=True)
class Mixed:
    """What runs."""

    gateway: Running
    engines: tuple[Server, ...]

    def figures(self, name: str) -> dict[str, float]:
        """A metric of the gateway's own page, by endpoint."""
        page = urllib.request.urlopen(f"http://{self.gateway.stack.metrics}/metrics", timeout=5).read().decode()
        found = re.findall(rf'^{name}\{{endpoint="([^"]+)"[^}}]*\}} (\S+)$', page, re.MULTILINE)
        return {address: float(value) for address, value in found}

    def of_engines(self, name: str) -> list[float]:
        figures = self.figures(name)
        return [figures[f"127.0.0.1:{engine.port}"] for engine in self.engines]

    def served(self) -> Counter[str]:
        """Requests by who answered them, as Envoy logged."""
        lines = Path(str(self.gateway.stack.access_log)).read_text().splitlines()
        return Counter(json.loads(line)["served"] for line in lines)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    python = os.environ.get("PENSTOCK_VLLM")
    if not python:
        pytest.skip("PENSTOCK_VLLM does not name the Python of an environment with vLLM")
    folder = tmp_path_factory.mktemp("mixed")
    with ExitStack() as held:
        engines = tuple(held.enter_context(serve(python, Settings(), shape=SHAPE)) for _ in range(2))
        gateway = held.enter_context(
            running(
                folder,
                endpoints=EMULATED,
                silicon=str(SILICON),
                models=("tiny",),
                real=tuple(f"127.0.0.1:{engine.port}" for engine in engines),
                access_log=str(folder / "access.json"),
                metrics=f"127.0.0.1:{free_ports(1)[0]}",
                step_s=0.02,
            )
        )
        yield Mixed(gateway, engines)


def body(tokens: int, *, stream: bool = False, prompt: str = "w1 w2 w3 w4 w5") -> bytes:
    told = {"prompt": prompt, "model": "tiny", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return json.dumps({**told, **({"stream_options": {"include_usage": True}} if stream else {})}).encode()


def only_real(mixed: Mixed) -> None:
    for index in range(EMULATED):
        mixed.gateway.fault("die", index)


def all_well(mixed: Mixed) -> None:
    for index in range(EMULATED):
        mixed.gateway.fault("none", index)
    wait_for(lambda: min(mixed.figures("penstock_endpoint_up").values()) == 1.0, 10)


def wait_for(there: Callable[[], bool], seconds: float) -> None:
    begun_s = time.monotonic()
    while not there():
        assert time.monotonic() - begun_s < seconds, "it did not come about"
        time.sleep(0.2)


def test_a_real_engine_streams_and_answers_whole(mixed: Mixed) -> None:
    only_real(mixed)
    try:
        status, whole = asyncio.run(mixed.gateway.ask(body(12), path=PATH))
        assert status == 200
        assert json.loads(whole)["usage"]["completion_tokens"] == 12
        status, streamed = asyncio.run(mixed.gateway.ask(body(12, stream=True), path=PATH))
        assert status == 200
        assert b"data: [DONE]" in streamed
        assert b'"completion_tokens":12' in streamed
        status, said = asyncio.run(mixed.gateway.ask(body(5000), path=PATH))
        assert status == 400  # by the engine, or by the picker in its place
        assert b"maximum context length" in said or b"max_model_len" in said  # as the picker says it, or vLLM 0.32
    finally:
        all_well(mixed)


def test_a_fleet_of_both_kinds_answers_everything(mixed: Mixed) -> None:
    before = mixed.served()
    seen = asyncio.run(mixed.gateway.load(200, 16, body(16), path=PATH))
    assert seen.statuses == {200: 200}
    wait_for(lambda: sum((mixed.served() - before).values()) == 200, 5)
    by_place = mixed.served() - before
    assert set(by_place) <= {*mixed.gateway.stack.addresses, *mixed.gateway.stack.real}, by_place


def test_what_real_engines_publish_is_what_the_gateway_knows(mixed: Mixed) -> None:
    for engine in mixed.engines:
        engine.answer([4, 5, 6])  # the gateway may have sent everything to the faster silicon
    wait_for(lambda: all(mixed.of_engines("penstock_endpoint_kv_tokens")), 10)
    for engine, known in zip(mixed.engines, mixed.of_engines("penstock_endpoint_kv_tokens"), strict=True):
        report = read_page(engine.get("/metrics").encode())
        assert report is not None
        assert report.kv_tokens == known
        assert abs(known - engine.num_blocks() * Settings().block_size) <= Settings().block_size
        assert report.ttft[1] > 0
        assert report.itl[1] > 0
        assert report.prompt_tokens > 0


def running_at(engine: Server) -> int:
    """Return how many requests the engine computes, as it says itself."""
    report = read_page(engine.get("/metrics").encode())
    assert report is not None
    return int(report.running)


def test_an_abort_reaches_the_engine_and_is_forgotten(mixed: Mixed) -> None:
    only_real(mixed)

    async def leave() -> None:
        asked = body(900, stream=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", mixed.gateway.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(asked)}\r\n".encode())
        writer.write(b"content-type: application/json\r\n\r\n" + asked)
        await reader.readuntil(b"data:")
        writer.close()

    async def all_leave() -> None:
        await asyncio.gather(*(leave() for _ in range(8)))

    try:
        asyncio.run(all_leave())
        wait_for(lambda: not any(running_at(engine) for engine in mixed.engines), 5)  # 900 tokens take 15 s and more
        wait_for(lambda: not sum(mixed.of_engines("penstock_endpoint_running_requests")), 20)
        wait_for(lambda: not sum(mixed.figures("penstock_in_flight_requests").values()), 20)
    finally:
        all_well(mixed)


def test_real_and_emulated_silicon_share_what_is_too_much_for_either(mixed: Mixed) -> None:
    before = mixed.served()
    seats = asyncio.Semaphore(64)

    async def one() -> tuple[int, str, bool]:
        async with seats:
            return await head_of(mixed.gateway.port, body(16, stream=True), "default")

    async def all_of_them() -> list[tuple[int, str, bool]]:
        return await asyncio.gather(*(one() for _ in range(200)))

    assert {(status, whole) for status, _, whole in asyncio.run(all_of_them())} == {(200, True)}
    wait_for(lambda: sum((mixed.served() - before).values()) == 200, 20)
    by_place = mixed.served() - before
    log.warning("shared: %s", dict(by_place))
    assert sum(by_place[place] for place in mixed.gateway.stack.real) > 0
    assert sum(by_place[place] for place in mixed.gateway.stack.addresses) > 0


async def head_of(port: int, asked: bytes, objective: str) -> tuple[int, str, bool]:
    """Ask; return the status, `retry-after`, and whether the answer came to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}x-penstock-objective: {objective}\r\ncontent-length: {len(asked)}\r\n\r\n".encode() + asked)
    raw = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    start, _, rest = raw.partition(b"\r\n\r\n")
    again = re.search(rb"\r\nretry-after: (\d+)", start)
    whole = rest.endswith(b"0\r\n\r\n") or b"content-length" in start
    return int(start.split()[1]), again[1].decode() if again else "", whole


def test_overload_of_real_engines_sheds_what_may_wait_and_fails_nobody_who_was_let_in(mixed: Mixed) -> None:
    """Two engines of 16 seats each, 96 requests that must be served and 48 that may be told to come back."""
    only_real(mixed)

    async def overload() -> tuple[list[tuple[int, str, bool]], list[tuple[int, str, bool]], list[float]]:
        port = mixed.gateway.port
        must = [asyncio.create_task(head_of(port, body(96, stream=turn % 2 == 0), "default")) for turn in range(96)]
        waiting = [0.0]
        while not sum(waiting) and not all(task.done() for task in must):
            await asyncio.sleep(0.2)
            waiting = await asyncio.to_thread(mixed.of_engines, "penstock_endpoint_waiting_requests")
        may = [asyncio.create_task(head_of(port, body(96), "batch")) for _ in range(48)]
        return await asyncio.gather(*must), await asyncio.gather(*may), waiting

    try:
        must, may, waiting = asyncio.run(overload())
        shed = [one for one in may if one[0] == 429]
        told = sorted({one[1] for one in shed})
        log.warning(
            "waiting at the engines %s; %d of %d shed, to come back after %s", waiting, len(shed), len(may), told
        )
        assert [one for one in must if (one[0], one[2]) != (200, True)] == []
        assert [one for one in may if one[0] not in {200, 429}] == []
        assert sum(waiting) > 0  # the engines themselves had more than their seats
        assert shed
        assert all(1 <= int(again) <= 60 for _, again, _ in shed)
        wait_for(lambda: not sum(mixed.figures("penstock_in_flight_requests").values()), 60)
        assert asyncio.run(head_of(mixed.gateway.port, body(4), "batch"))[0] == 200  # what may be shed is let in again
    finally:
        all_well(mixed)
