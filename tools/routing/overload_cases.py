"""What does a policy keep with shared prefixes, in a crowd, and with two unlike classes on two endpoints?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from penstock.api.arguments.fleet_argument import fleet_choice, placed_pool
from penstock.api.arguments.workload_argument import workload_choice
from penstock.api.options.simulate_options import SimulateFleetOptions
from penstock.simulation.compare_policies import LoadSpike, with_load_spike
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Fixed, Poisson, Requests, Slo, SloClass, Workload
from routing.cases import CHAT, Load, load, pool
from routing.experiments import Row, routing
from routing.overload import OURS, figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
PEERS = ("round-robin", "least-request", "llm-d", "dynamo")


def each(
    about: Row, pools: Sequence[ReplicaPool], blocks: Iterable[Requests], classes: Sequence[SloClass]
) -> Iterator[Row]:
    """Simulate our three ways and every peer on the same requests."""
    drawn = list(blocks)
    for policy, overload in [*(("penstock", way) for way in OURS), *((peer, "serve") for peer in PEERS)]:
        told = [replace(item, overload=overload) for item in classes]
        options = Options(routing=routing(policy), keep_requests=True)
        outcome = simulate(pools, drawn, classes=told, options=options)
        served = outcome.served
        if served is None:
            raise ValueError("the requests of the run were not kept")
        later = np.arange(len(served.ttft_s)) >= len(served.ttft_s) // 2
        slo = classes[0].slo or CHAT
        with np.errstate(invalid="ignore"):
            tpot_s = (served.e2e_s - served.ttft_s) / np.maximum(served.output_tokens - 1, 1)
        met = np.isfinite(served.ttft_s) & slo.met(ttft_s=served.ttft_s, tpot_s=tpot_s, e2e_s=served.e2e_s)
        name = f"penstock, {overload}" if policy == "penstock" else policy
        yield {**about, "policy": name, "second_half": round(float(met[later].mean()), 4), **figures(outcome)}


def prefixes() -> Iterator[Row]:
    """150 prompts of 6,000 tokens are shared, 1,200 more are each request's own; short runs and steady state."""
    fleet = fleet_choice(EXAMPLE)
    first, second = fleet.pools
    fleet = replace(
        fleet,
        pools=(
            replace(first, accelerator="h100_nvl", replicas=4),
            replace(second, accelerator="mi325x", replicas=8, engine=first.engine),
        ),
        routes=(replace(fleet.routes[0], input_tokens=7200, output_tokens=1000),),
    )
    pools = [
        ReplicaPool(name=one.name, replica=placed_pool(fleet, one), replicas=one.replicas, vendor=one.vendor)
        for one in fleet.pools
    ]
    options = SimulateFleetOptions(fleet, system_prompts="150:6000", slo="ttft=5s,tpot=100ms")
    cells = [*product((50.0, 55.0, 60.0, 70.0, 85.0, 110.0), (12_000,), (3, 4)), (58.0, 40_000, 3), (66.0, 40_000, 3)]
    for rate, requests, seed in cells:
        work, _ = workload_choice(options, tokens=(1200, 1000), rate_per_s=rate)
        about: Row = {"case": f"prefixes, {requests:,} requests", "rate": rate, "seed": seed}
        yield from each(about, pools, work.blocks(seed=seed, requests=requests, rate_per_s=rate), work.classes)


def crowds() -> Iterator[Row]:
    """Three times as many requests for 20 s, all alike or with the lengths of the Azure conversation."""
    pools = [pool("h100:2", 4), pool("mi300x:1", 4)]
    classes = (SloClass(name="all", share_fraction=1.0, slo=CHAT),)
    crowd = [LoadSpike(factor=3.0, at_s=60.0, for_s=20.0)]
    alike = Workload(name="alike", arrivals=Poisson(), lengths=Fixed(input_tokens=1024, output_tokens=200))
    cases: tuple[tuple[str, Workload | Load, float, int], ...] = (
        ("crowd of equal requests", alike, 20.0, 3_000),
        ("crowd", load("conversation", 1), 30.0, 5_000),
    )
    for (name, drawn, rate, requests), seed in product(cases, (0, 1, 2, 3)):
        blocks = with_load_spike(drawn.blocks(seed=seed, requests=requests, rate_per_s=rate), crowd)
        yield from each({"case": name, "rate": rate, "seed": seed}, pools, blocks, classes)


def unlike_classes() -> Iterator[Row]:
    """Prompts above and below 3,000 tokens are two classes, on one H100 pair and one MI300X."""
    pools, drawn = [pool("h100:2", 1), pool("mi300x:1", 1)], load("conversation", 1)
    slo = Slo(ttft_s=3.0, tpot_s=0.08)
    split = replace(drawn, kinds=(drawn.inputs > 3_000).astype(np.uint8))
    classes = [SloClass(name=name, share_fraction=0.5, slo=slo) for name in ("chat", "code")]
    for rate, seed in product((8.0, 11.0, 14.0, 17.0), (13, 14, 15)):
        about: Row = {"case": "two unlike classes, two endpoints", "rate": rate, "seed": seed}
        yield from each(about, pools, split.blocks(seed=seed, requests=1_200, rate_per_s=rate), classes)


def cases() -> Iterator[Row]:
    """Simulate every special case."""
    yield from prefixes()
    yield from crowds()
    yield from unlike_classes()
