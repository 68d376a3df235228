"""A real vLLM loads LoRA adapters when requests ask for them, behind a real Envoy: about three minutes.

PENSTOCK_VLLM names the Python of an environment with vLLM, as `tools/install_vllm.sh` builds it.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from engine.cold_loads import write_adapter
from engine.record import SHAPE
from engine.server import Server, Settings, serve_folder
from engine.tiny_llama import write_model
from gateway_stack import Running, running

log = logging.getLogger(__name__)
pytestmark = pytest.mark.engine
PATH = "/v1/completions"
RANKS = {f"adapter-{rank}": rank for rank in (8, 16, 32, 64)}
ASKED_OF_BASE, ASKED_OF_EACH = 60, 10


@dataclass(frozen=True)
class Adapting:
    """One real engine that finds adapters in a folder, and two emulated endpoints that have none."""

    gateway: Running
    engine: Server


@pytest.fixture(scope="module")
def adapting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapting]:
    python = os.environ.get("PENSTOCK_VLLM")
    if not python:
        pytest.skip("PENSTOCK_VLLM does not name the Python of an environment with vLLM")
    folder = tmp_path_factory.mktemp("adapting")
    write_model(folder / "model", SHAPE)
    for name, rank in RANKS.items():
        write_adapter(folder / "adapters" / name, SHAPE, rank, base=str(folder / "model"))
    with ExitStack() as held:
        engine = held.enter_context(
            serve_folder(
                python,
                Settings(),
                shape=SHAPE,
                model=folder / "model",
                extra=["--enable-lora", "--max-lora-rank", str(max(RANKS.values())), "--max-loras", "2"],
                variables={
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
                    "VLLM_PLUGINS": "lora_filesystem_resolver",
                    "VLLM_LORA_RESOLVER_CACHE_DIR": str(folder / "adapters"),
                },
                one_core=True,
            )
        )
        gateway = held.enter_context(
            running(
                folder / "gateway",
                endpoints=2,
                models=("tiny",),
                real=(f"127.0.0.1:{engine.port}",),
                adapters=tuple(RANKS),
                adapters_of_real=True,
            )
        )
        yield Adapting(gateway, engine)


def body(model: str, tokens: int = 4) -> bytes:
    return json.dumps({"prompt": "w1 w2 w3", "model": model, "max_tokens": tokens, "ignore_eos": True}).encode()


def test_no_request_is_lost_while_adapters_are_loaded_on_demand(adapting: Adapting) -> None:
    """Requests for four adapters that are not loaded arrive together, while the base model serves."""

    async def everything() -> tuple[list[tuple[int, bytes]], dict[str, list[tuple[int, bytes]]]]:
        base = [asyncio.create_task(adapting.gateway.ask(body("tiny", 16), path=PATH)) for _ in range(ASKED_OF_BASE)]
        asked = {
            name: [asyncio.create_task(adapting.gateway.ask(body(name), path=PATH)) for _ in range(ASKED_OF_EACH)]
            for name in RANKS
        }
        return list(await asyncio.gather(*base)), {
            name: list(await asyncio.gather(*tasks)) for name, tasks in asked.items()
        }

    listed = json.loads(adapting.engine.get("/v1/models"))["data"]
    assert {card["id"] for card in listed} == {"tiny"}
    base, adapted = asyncio.run(everything())
    assert {status for status, _ in base} == {200}
    for name, answers in adapted.items():
        assert {status for status, _ in answers} == {200}, (name, answers)
        assert {json.loads(told)["model"] for _, told in answers} == {name}
    listed = json.loads(adapting.engine.get("/v1/models"))["data"]
    assert {card["id"] for card in listed} == {"tiny", *RANKS}


def test_adapters_that_take_turns_in_two_slots_lose_no_request(adapting: Adapting) -> None:
    """Four adapters share two places of the engine, so each request may evict one."""

    async def in_turns() -> list[tuple[int, bytes]]:
        tasks = [
            asyncio.create_task(adapting.gateway.ask(body(name), path=PATH))
            for _ in range(ASKED_OF_EACH)
            for name in RANKS
        ]
        return list(await asyncio.gather(*tasks))

    begun_s = time.perf_counter()
    answers = asyncio.run(in_turns())
    log.warning("%d requests for %d adapters in %.1f s", len(answers), len(RANKS), time.perf_counter() - begun_s)
    assert {status for status, _ in answers} == {200}


def test_an_adapter_that_is_nowhere_is_refused_and_not_lost(adapting: Adapting) -> None:
    status, told = asyncio.run(adapting.gateway.ask(body("adapter-unknown"), path=PATH))
    assert status == 404, told
