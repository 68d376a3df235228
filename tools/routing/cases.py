"""Which fleets and loads are policies tried on? Several vendors, and traces in halves: to choose by and to report."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.api.arguments.choices import counted_targets
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.options.model_options import DeploymentOptions
from penstock.catalog import load_prices
from penstock.catalog.price import market_price
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.simulation.placement import place
from penstock.simulation.replica import ReplicaPool
from penstock.workload import Gamma, Poisson, Requests, Slo, SloClass, read_trace
from penstock.workload.randomness import NATIVE_BLOCK

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
MODEL, PRECISION, REPLICAS = "llama-3.1-70b", "fp8", 8
FLEETS = {
    "H100 + MI300X": ("h100:2", "mi300x:1"),
    "H200 + MI325X": ("h200:1", "mi325x:1"),
    "B200 + MI355X": ("b200:1", "mi355x:1"),
    "H200 + MI300X + MI355X": ("h200:1", "mi300x:1", "mi355x:1"),
}
CHAT = Slo(ttft_s=2.0, tpot_s=0.06)
LOADS = ("long mix", "conversation", "two classes", "long mix, bursts", "conversation, bursts", "code")


@cache
def pool(word: str, replicas: int = REPLICAS) -> ReplicaPool:
    """Lay out eight replicas of one kind, on vLLM, at contract rents where they are known."""
    ((part, devices),) = counted_targets(word)
    options = DeploymentOptions(MODEL, word, precision=PRECISION, engine="vllm")
    prediction = RequestedDeployment(options).predict(part, devices, (1024, 256, 64))
    engine, lengths = prediction.measured_engine, (1024, 256)
    placed = place(prediction.deployment, engine, shipped_efficiencies(), typical_lengths=lengths)
    prices = load_prices(part.id)
    price = market_price(prices, "rent_contract") or market_price(prices, "rent_on_demand")
    if placed.replica is None or price is None:
        raise ValueError(f"{word} does not fit or has no price")
    usd = price.usd_per_device * placed.deployment.parallelism.devices
    return ReplicaPool(
        name=word.partition(":")[0], replica=placed.replica, replicas=replicas, usd_per_hour=usd, vendor=part.vendor
    )


def fleet(name: str) -> list[ReplicaPool]:
    """Lay out a fleet."""
    return [pool(word) for word in FLEETS[name]]


@cache
def _lengths(trace: str, half: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    blocks = list(read_trace(TRACES / trace).blocks())
    inputs = np.concatenate([block.input_tokens for block in blocks])
    outputs = np.concatenate([block.output_tokens for block in blocks])
    middle = len(inputs) // 2
    mine = slice(0, middle) if half == 0 else slice(middle, None)
    return inputs[mine], np.maximum(1, outputs[mine])


@dataclass(frozen=True, eq=False)
class Load:
    """Requests drawn from lengths that belong to classes; looks like a workload to the simulator."""

    name: str
    arrivals: Poisson | Gamma
    inputs: NDArray[np.int32]
    outputs: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    classes: tuple[SloClass, ...]
    users: None = None
    sharing: None = None
    think_s: float = 0.0

    def blocks(
        self, *, seed: int, requests: int, rate_per_s: float | None = None, block_requests: int = NATIVE_BLOCK
    ) -> Iterator[Requests]:
        """Draw requests; the same seed is the same requests at any rate."""
        del block_requests
        times: list[NDArray[np.float64]] = []
        for block in self.arrivals.times(seed, rate_per_s or 1.0):
            times.append(block)
            if sum(len(one) for one in times) >= requests:
                break
        drawn = np.random.default_rng(seed + 1000).integers(0, len(self.inputs), requests)
        yield Requests(
            arrival_s=np.concatenate(times)[:requests],
            input_tokens=self.inputs[drawn],
            output_tokens=self.outputs[drawn],
            slo_class=self.kinds[drawn],
        )


@cache
def load(name: str, half: int) -> Load:
    """Return a load; `half` 0 is for choosing parameters, 1 for reporting."""
    plain, _, bursts = name.partition(", ")
    arrivals = Gamma(cv=3.0) if bursts else Poisson()
    trace = "azure_llm_2023_code.csv" if plain == "code" else "azure_llm_2023_conv.csv"
    inputs, outputs = _lengths(trace, half)
    rng = np.random.default_rng(half)
    kinds = np.zeros(len(inputs), np.uint8)
    classes: tuple[SloClass, ...] = (SloClass(name=plain, share_fraction=1.0, slo=CHAT),)
    if plain == "long mix":
        more = len(inputs) // 19
        long = rng.choice(np.array([16384, 24576, 32768, 49152], np.int32), more, p=[0.4, 0.3, 0.2, 0.1])
        inputs = np.concatenate([inputs, long])
        outputs = np.concatenate([outputs, rng.integers(100, 500, more).astype(np.int32)])
        kinds = np.concatenate([kinds, np.ones(more, np.uint8)])
        classes = (
            SloClass(name="short", share_fraction=0.95, slo=CHAT),
            SloClass(name="long", share_fraction=0.05, slo=Slo(ttft_s=20.0, tpot_s=0.06)),
        )
    elif plain == "two classes":
        kinds = rng.integers(0, 2, len(inputs)).astype(np.uint8)
        classes = (
            SloClass(name="fast", share_fraction=0.5, slo=Slo(ttft_s=2.0, tpot_s=0.045)),
            SloClass(name="patient", share_fraction=0.5, slo=Slo(ttft_s=10.0, tpot_s=0.15)),
        )
    return Load(name, arrivals, inputs, outputs, kinds, classes)
