"""Tenants of a real vLLM are billed by the work that each of them causes alone: about three minutes.

The gateway is `penstock route` with the file of an accelerator of our own. PENSTOCK_VLLM names the Python of an
environment with vLLM, as `tools/install_vllm.sh` builds it.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from math import fsum
from pathlib import Path

import numpy as np
import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from engine.closed_loops import SHAPE, settings
from engine.server import Server, serve_folder
from engine.tiny_llama import write_model
from gateway_stack import until
from penstock.api.bill import bill
from streaming_client import Timed, request_body, stream

log = logging.getLogger(__name__)
pytestmark = pytest.mark.engine
DTYPE = "float32"
ACCELERATOR = Path(__file__).parents[1] / "data" / "vllm_cpu_loops" / f"{DTYPE}.toml"
ROUNDS = 2
LIMIT = 0.15
FLEET = """
version: 1
name: one core
note: a vLLM on a processor core
nodes: []
pools:
- name: core
  model: {model}
  weights: bf16
  kv: bf16
  accelerator: {accelerator}
  vendor: intel
  site: here
  replicas: 1
  split: {{tp: 1, pp: 1, dp: 1, ep: false}}
  engine: {{name: vllm, version: 0.32.0, settings: {{}}}}
  role: both
  usd_per_hour: 1.0
  endpoints: ["127.0.0.1:{port}"]
routes:
- workload: mixed
  input_tokens: 300
  output_tokens: 60
  slo: {{ttft_s: 30.0, tpot_s: 5.0, e2e_s: null, attainment_fraction: 0.95}}
  peak_requests_per_s: 1.0
  weights: {{core: 1.0}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Lengths of a tenant's requests, its users and their pauses, and the requests that it sends in a run alone."""

    input_tokens: int
    output_tokens: int
    users: int
    alone: int
    pause_s: float = 0.0


TENANTS = {
    "chat": Tenant(input_tokens=32, output_tokens=120, users=6, alone=12),
    "documents": Tenant(input_tokens=500, output_tokens=2, users=1, alone=10, pause_s=0.3),
}


@dataclass(frozen=True, slots=True)
class Run:
    """Requests of each tenant in one run, its time, and the processor time of the engine."""

    requests: Mapping[str, int]
    start_unix_s: float
    end_unix_s: float
    engine_s: float
    waited_s: float
    """Seconds in which the engine was ready while other work had its core."""


@dataclass(frozen=True)
class Billed:
    """An engine behind a gateway that writes receipts."""

    engine: Server
    model: str
    port: int
    folder: Path
    answers: dict[str, list[Timed]] = field(default_factory=dict)

    def alone(self, name: str, requests: int, users: int) -> Run:
        """Send requests of one tenant, while nothing else is sent."""
        left = iter(range(requests))
        return self._run({name: (users, lambda: next(left, None) is not None)})

    def together(self, waves: int) -> Run:
        """Let the first tenant's users send so many requests each, and all others send until these are answered."""
        first, *others = TENANTS
        expected = waves * TENANTS[first].users
        left = iter(range(expected))
        users = {first: (TENANTS[first].users, lambda: next(left, None) is not None)}
        return self._run(
            users | {name: (TENANTS[name].users, lambda: len(self.answers[first]) < expected) for name in others}
        )

    def _run(self, users: Mapping[str, tuple[int, Callable[[], bool]]]) -> Run:
        self.answers.clear()
        self.answers.update({name: [] for name in users})
        before, start_unix_s = self.engine.load(), time.time()
        asyncio.run(self._send(users))
        after, end_unix_s = self.engine.load(), time.time()
        time.sleep(0.5)  # the last request's record is read in intervals
        return Run(
            {name: len(answers) for name, answers in self.answers.items()},
            start_unix_s,
            end_unix_s,
            after.engine_ran_s - before.engine_ran_s,
            after.engine_waited_s - before.engine_waited_s,
        )

    async def _send(self, users: Mapping[str, tuple[int, Callable[[], bool]]]) -> None:
        async def user(name: str, goes_on: Callable[[], bool]) -> None:
            tenant = TENANTS[name]
            while goes_on():
                words = np.random.default_rng().integers(0, 8000, tenant.input_tokens)  # none is in the prefix cache
                prompt = " ".join(f"w{word}" for word in words)
                body = request_body(prompt, tenant.output_tokens, self.model)
                self.answers[name].append(await stream(self.port, "/v1/completions", body, name))
                await asyncio.sleep(tenant.pause_s)

        await asyncio.gather(*(user(name, goes_on) for name, (many, goes_on) in users.items() for _ in range(many)))

    def shares(self, runs: Sequence[Run]) -> Mapping[str, float]:
        """Return each tenant's part of the seconds that `penstock bill` charges for these runs."""
        seconds = dict.fromkeys(TENANTS, 0.0)
        for run in runs:
            start, end = (
                datetime.fromtimestamp(at_s, UTC).isoformat() for at_s in (run.start_unix_s - 0.1, run.end_unix_s + 0.3)
            )
            files = sorted(self.folder.glob("receipts*"))
            lines = bill(files, self.folder / "fleet.yaml", start=start, end=end).invoice.tenants
            assert {line.tenant: line.requests for line in lines} == run.requests
            for line in lines:
                seconds[line.tenant] += line.seconds
        return {name: one_s / fsum(seconds.values()) for name, one_s in seconds.items()}


@contextmanager
def routed(folder: Path) -> Iterator[int]:
    """Start `penstock route` for a fleet file; yield the port for clients."""
    listen, metrics = free_ports(2)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "penstock", "route", "fleet.yaml", "--listen", f"127.0.0.1:{listen}"),
            *("--metrics", f"127.0.0.1:{metrics}", "--receipts", "receipts", "--drain-grace", "0"),
        ],
        cwd=folder,
    )

    def is_ready() -> bool:
        assert process.poll() is None, "the gateway has ended"
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{listen}/ready", timeout=2).status == 200)
        except OSError:
            return False

    try:
        until(is_ready, 120)
        yield listen
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.fixture
def billed(tmp_path: Path) -> Iterator[Billed]:
    python = os.environ.get("PENSTOCK_VLLM")
    if not python:
        pytest.skip("PENSTOCK_VLLM does not name the Python of an environment with vLLM")
    model = tmp_path / "model"
    write_model(model, SHAPE)
    names = ["--served-model-name", str(model)]
    with serve_folder(python, settings(DTYPE), shape=SHAPE, model=model, extra=names) as engine:
        fleet = FLEET.format(model=model, accelerator=ACCELERATOR, port=engine.port)
        (tmp_path / "fleet.yaml").write_text(fleet, encoding="utf-8")
        with routed(tmp_path) as port:
            yield Billed(engine, str(model), port, tmp_path)


def shares_of_work(runs: Sequence[Run], requests: Mapping[str, int]) -> tuple[Mapping[str, float], float]:
    """Return the tenants' parts of the work of these requests if each takes as long as in runs alone, and the work."""
    work_s = {}
    for name, many in requests.items():
        mine = [run for run in runs if name in run.requests]
        work_s[name] = many * fsum(run.engine_s for run in mine) / sum(run.requests[name] for run in mine)
    total_s = fsum(work_s.values())
    return {name: one_s / total_s for name, one_s in work_s.items()}, total_s


def test_shares_of_the_bill_are_those_of_the_work_of_each_tenant_alone(billed: Billed) -> None:
    """Alone with the same users, so that as many requests share the fixed part of each step as in the mix."""
    billed.together(1)  # routing learns how fast the engine is
    alone, one_by_one, mixes = [], [], []
    for turn in count():
        alone += [billed.alone(name, tenant.alone, tenant.users) for name, tenant in TENANTS.items()]
        if turn == ROUNDS:
            break
        one_by_one += [billed.alone(name, tenant.alone // 4, 1) for name, tenant in TENANTS.items()]
        mixes.append(billed.together(3))
    shares = billed.shares(mixes)
    requests = {name: sum(run.requests[name] for run in mixes) for name in TENANTS}
    engine_s, waited_s = fsum(run.engine_s for run in mixes), fsum(run.waited_s for run in mixes)
    log.warning("%s: %.1f s of engine, which waited for its core %.1f s", requests, engine_s, waited_s)
    work, work_s = shares_of_work(alone, requests)
    sequential, sequential_s = shares_of_work(one_by_one, requests)
    for name, share in shares.items():
        log.warning(
            "%s: %.1f%% billed, %.1f%% of work alone (%+.1f%%; %.1f s in all), %.1f%% of work one by one "
            "(%+.0f%%; %.1f s in all)",
            *(name, 100 * share, 100 * work[name], 100 * (share / work[name] - 1), work_s),
            *(100 * sequential[name], 100 * (share / sequential[name] - 1), sequential_s),
        )
    assert shares == pytest.approx(work, rel=LIMIT)
