"""Times that the gateway reports of a real vLLM are those of its clients: about two minutes.

PENSTOCK_VLLM names the Python of an environment with vLLM, as `tools/install_vllm.sh` builds it.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from engine.record import SHAPE
from engine.server import Settings, serve
from gateway_stack import Running, running, until
from streaming_client import Timed, reported, request_body, stream_all

log = logging.getLogger(__name__)
pytestmark = pytest.mark.engine
LIMIT = 0.02
ON_THE_WAY_S = 0.001
"""Seconds between Envoy and the client, on cores that other work uses too: more than the limit of a short TTFT."""


@dataclass(frozen=True, slots=True)
class Load:
    """Users who send their next request when the last one is answered, with prompts between two lengths."""

    users: int
    requests: int
    shortest: int
    longest: int
    output_tokens: int = 40

    def bodies(self) -> list[tuple[str, bytes]]:
        """Return requests of different tenants, so that the receipt of each is found, with prompts of random words."""
        lengths = np.linspace(self.shortest, self.longest, self.requests).astype(int).tolist()
        prompts = [" ".join(f"w{word}" for word in np.random.default_rng().integers(0, 8000, one)) for one in lengths]
        return [
            (f"{self.users}-{turn}", request_body(prompt, self.output_tokens, "tiny"))
            for turn, prompt in enumerate(prompts)
        ]


LOADS = (Load(1, 12, 16, 48), Load(1, 12, 300, 800), Load(4, 48, 100, 400), Load(12, 60, 50, 200))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start one engine behind a gateway, which may choose it alone."""
    python = os.environ.get("PENSTOCK_VLLM")
    if not python:
        pytest.skip("PENSTOCK_VLLM does not name the Python of an environment with vLLM")
    folder = tmp_path_factory.mktemp("times")
    with (
        serve(python, Settings(kv_cache_blocks=512), shape=SHAPE) as engine,
        running(
            folder,
            endpoints=1,
            only=1,
            models=("tiny",),
            real=(f"127.0.0.1:{engine.port}",),
            metrics=f"127.0.0.1:{free_ports(1)[0]}",
            receipts=str(folder / "receipts"),
        ) as stack,
    ):
        stream_all(stack.port, "/v1/completions", [("warm-up", Load(1, 1, 16, 16).bodies()[0][1])], 1)
        yield stack


def receipts(gateway: Running, answers: Sequence[Timed]) -> list[dict[str, Any]]:
    """Return the newest line of receipts of each request."""
    found: dict[str, dict[str, Any]] = {}
    for file in Path(str(gateway.stack.receipts)).parent.glob("receipts*"):
        lines = map(json.loads, file.read_text().splitlines())
        found |= {line["ended"]["tenant"]: line["ended"] for line in lines if "ended" in line}
    return [found[one.tenant] for one in answers]


def sums(gateway: Running) -> tuple[int, float, float]:
    """Return the number of requests, and their times to first token and per token, as sums since the start."""
    count, ttft_s, tpot_s = reported(str(gateway.stack.metrics))
    return count, count * ttft_s, count * tpot_s


def compare(name: str, reported_s: Sequence[float], client_s: Sequence[float]) -> None:
    """Check that the means are equal within the limit, and log by how much single requests differ."""
    count, ratios = len(client_s), np.array(reported_s) / np.array(client_s)
    ours_s, theirs_s = fsum(reported_s) / count, fsum(client_s) / count
    low, high = np.quantile(ratios, (0.1, 0.9)) - 1
    log.warning(
        "%s: %.2f ms, %.2f ms at the client, %+.2f%% (P10 to P90 of requests %+.2f%% to %+.2f%%)",
        *(name, 1e3 * ours_s, 1e3 * theirs_s, 100 * (ours_s / theirs_s - 1), 100 * low, 100 * high),
    )
    assert ours_s == pytest.approx(theirs_s, rel=LIMIT, abs=ON_THE_WAY_S if name.startswith("TTFT") else 0.0), name


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_reported_times_of_a_real_engine_are_those_of_clients(gateway: Running, load: Load) -> None:
    until(lambda: sums(gateway)[0] > 0)
    before = sums(gateway)
    answers = stream_all(gateway.port, "/v1/completions", load.bodies(), load.users)
    until(lambda: sums(gateway)[0] == before[0] + load.requests)
    _, ttft_s, tpot_s = (after - then for after, then in zip(sums(gateway), before, strict=True))
    compare("TTFT, metrics", [ttft_s / load.requests], [fsum(one.ttft_s for one in answers) / load.requests])
    compare("TPOT, metrics", [tpot_s / load.requests], [fsum(one.tpot_s for one in answers) / load.requests])
    lines = receipts(gateway, answers)
    assert all(line["tokens_from"] == line["prompt_from"] == "engine" for line in lines)
    assert [line["output_tokens"] for line in lines] == [one.tokens for one in answers]
    compare("TTFT, receipts", [line["ttft_s"] for line in lines], [one.ttft_s for one in answers])
    compare("duration, receipts", [line["duration_s"] for line in lines], [one.duration_s for one in answers])
    decoding_s = [(line["duration_s"] - line["ttft_s"]) / (line["output_tokens"] - 1) for line in lines]
    compare("TPOT, receipts", decoding_s, [one.tpot_s for one in answers])
