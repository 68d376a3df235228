"""Do formulas of other routers and autoscalers gain by exported constants? Each runs with defaults and with constants.

Constants are read from the text that `penstock export` writes for a fleet file, in the peer's own format.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Final

import numpy as np
import yaml

from penstock.api.arguments.choices import counted_targets
from penstock.api.export import constants_of, export
from penstock.catalog import load_accelerator
from penstock.compiled.marks import compiled
from penstock.fleet.deployment import Parallelism
from penstock.fleet.pools import Fleet, NodeGroup, Pool, PoolEngine, Route
from penstock.routing.autoscaler.scaler import LoadReport, ScaledPool
from penstock.routing.harm import holds
from penstock.routing.records import REJECTED, Records, default_parameters
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run_options import Fault, Routing
from routing.cases import FLEETS, MODEL, PRECISION, REPLICAS, load, pool
from routing.elastic import LOAD_S, day
from routing.experiments import SEEDS, Row, parts, routing, search
from routing.rival_autoscalers import HorizontalPodAutoscaler, VariantAutoscaler

LOADS = ("conversation", "two classes", "long mix", "code")
_AMD_SLOWER: Final = 1.25
_DRAW: Final = 1_000_003
_DEFAULT_COST: Final = 10.0
"""Cost of a variant that states none (llm-d workload-variant-autoscaler b08b1c7, `saturation.DefaultVariantCost`)."""
_WAITING: Final = 5.0
"""Waiting requests per replica at which vLLM's production stack scales in its KEDA example."""


@compiled
def litellm_shuffle(request: Records, endpoints: Records, _hits: Records, parameters: Records) -> int:
    """Draw an endpoint by its weight (LiteLLM 2026-08-08, `router_strategy/simple_shuffle.py`); tuning 0: evenly."""
    p, total = parameters[0], 0.0
    for index in range(len(endpoints)):
        if holds(request[0], endpoints[index]):
            weight = p["tuning"][endpoints[index]["pool"]]
            total += weight if weight > 0.0 else 1.0
    left = total * (request[0]["turn"] % _DRAW) / _DRAW
    last = REJECTED
    for index in range(len(endpoints)):
        if holds(request[0], endpoints[index]):
            weight = p["tuning"][endpoints[index]["pool"]]
            left -= weight if weight > 0.0 else 1.0
            last = index
            if left < 0.0:
                break
    return int(last)


@cache
def fleet_file(name: str, asked: str) -> Fleet:
    """Describe a fleet of `routing.cases` as a fleet file, with one route per class of a load."""
    pools, nodes = [], []
    for number, word in enumerate(FLEETS[name]):
        ((part, devices),) = counted_targets(word)
        laid = pool(word)
        nodes.append(NodeGroup(accelerator=part.id, site="site", nodes=REPLICAS))
        pools.append(
            Pool(
                name=laid.name,
                model=MODEL,
                weights=PRECISION,
                kv="bf16",
                accelerator=part.id,
                vendor=load_accelerator(part.id).vendor,
                site="site",
                replicas=REPLICAS,
                split=Parallelism(tp=devices or 1),
                engine=PoolEngine(name="vllm", version="0.32.0"),
                usd_per_hour=laid.usd_per_hour,
                endpoints=tuple(f"10.0.{number}.{place + 1}:8000" for place in range(REPLICAS)),
            )
        )
    drawn, even = load(asked, 1), {one.name: 1 / len(pools) for one in pools}
    routes = tuple(
        Route(
            workload=one.name,
            input_tokens=round(float(drawn.inputs[drawn.kinds == kind].mean())),
            output_tokens=round(float(drawn.outputs[drawn.kinds == kind].mean())),
            slo=one.slo,
            peak_requests_per_s=one.share_fraction,
            weights=even,
        )
        for kind, one in enumerate(drawn.classes)
        if one.slo is not None
    )
    return Fleet(name=name, nodes=tuple(nodes), pools=tuple(pools), routes=routes)


def envoy_weights(fleet: Fleet) -> list[float]:
    """Return the weight of each pool's endpoints in the file for Envoy."""
    (cluster,) = json.loads(export(fleet, "envoy"))["resources"]
    weights = {
        one["endpoint"]["address"]["socket_address"]["address"].split(".")[2]: one["load_balancing_weight"]
        for one in cluster["endpoints"][0]["lb_endpoints"]
    }
    return [float(weights[str(number)]) for number in range(len(fleet.pools))]


def litellm_weights(fleet: Fleet) -> list[float]:
    """Return the weight of each pool's deployments in the file for LiteLLM."""
    entries = yaml.safe_load(export(fleet, "litellm"))["model_list"]
    weights = {one["model_info"]["id"].partition("/")[0]: one["litellm_params"]["weight"] for one in entries}
    return [float(weights[one.name]) for one in fleet.pools]


ROUTERS: Mapping[str, tuple[str, Callable[[Fleet], list[float]]]] = {
    "Envoy, round robin": ("weighted-round-robin", envoy_weights),
    "Envoy, least request": ("in-flight-per-capacity", envoy_weights),
    "LiteLLM, simple shuffle": ("litellm", litellm_weights),
}
"""Formula of each router, and the reader of its exported weights."""


def _route(policy: str, weights: Sequence[float], faults: tuple[Fault, ...]) -> Routing:
    if policy != "litellm":
        return routing(policy, dict(enumerate(weights)), faults=faults)
    parameters = default_parameters()
    parameters["tuning"][0, : len(weights)] = weights
    return Routing(pick=litellm_shuffle, parameters=parameters, faults=faults)


def _replicas(name: str, asked: str) -> list[ReplicaPool]:
    """Lay out the replicas that the constants are about."""
    return [
        ReplicaPool(
            name=one.pool.name,
            replica=one.replica,
            replicas=one.pool.replicas,
            usd_per_hour=one.pool.usd_per_hour,
            vendor=one.pool.vendor,
        )
        for one in constants_of(fleet_file(name, asked))
    ]


def _slower_amd(pools: Sequence[ReplicaPool]) -> tuple[Fault, ...]:
    """Make every AMD replica slower than the constants say."""
    vendors = [pool.vendor for pool in pools for _ in range(pool.replicas)]
    return tuple(
        Fault(kind="slow", replica=place, at_s=0.0, factor=_AMD_SLOWER)
        for place, vendor in enumerate(vendors)
        if vendor == "amd"
    )


def routers() -> Iterator[Row]:
    """Compare the highest rate at which every class keeps 95%, with even weights and with exported ones."""
    for seed, asked, name in product(SEEDS, LOADS, FLEETS):
        drawn, pools = load(asked, 1), _replicas(name, asked)
        ours = begin = search(pools, drawn, routing("penstock"), 30.0, seed)
        slow = _slower_amd(pools)
        row: Row = {"fleet": name, "load": asked, "seed": seed, "penstock": ours}
        for router, (policy, weights_of) in ROUTERS.items():
            weights, even = weights_of(fleet_file(name, asked)), [1.0] * len(pools)
            row |= {
                f"{router}, weights": weights,
                f"{router}, default": search(pools, drawn, _route(policy, even, ()), begin, seed),
                f"{router}, exported": search(pools, drawn, _route(policy, weights, ()), begin, seed),
                f"{router}, default, slow": search(pools, drawn, _route(policy, even, slow), begin, seed),
                f"{router}, exported, slow": search(pools, drawn, _route(policy, weights, slow), begin, seed),
            }
        yield row


@dataclass(slots=True)
class RateScaling:
    """KEDA on requests per second, one ScaledObject per pool: the rate of the pool over its threshold.

    The fleet's rate is split over pools by their share of the replicas that are up times their weight.
    """

    pools: Sequence[ScaledPool]
    thresholds: Sequence[float]
    weights: Sequence[float]
    advised: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def desired_replicas(self, report: LoadReport) -> tuple[int, ...]:
        """Return the desired replicas of each pool. Scaling down uses the highest of the last 300 s, as HPA does."""
        shares = [max(1, one.up) * weight for one, weight in zip(report.pools, self.weights, strict=True)]
        rates = [report.requests_per_s * share / sum(shares) for share in shares]
        advice = tuple(math.ceil(rate / most) for rate, most in zip(rates, self.thresholds, strict=True))
        self.advised = [*(one for one in self.advised if one[0] >= report.now_s - LOAD_S), (report.now_s, advice)]
        highest = np.max([one[1] for one in self.advised], axis=0)
        return tuple(
            int(np.clip(want, max(1, pool.floor), pool.max_replicas))
            for want, pool in zip(highest, self.pools, strict=True)
        )


def autoscalers() -> Iterator[Row]:
    """Compare a day's dollars and requests in time, with the peer's default and with exported constants."""
    for name in ("H100 + MI300X", "H200 + MI325X"):
        drawn, given = load("conversation", 1), fleet_file(name, "conversation")
        pools, weights = _replicas(name, "conversation"), envoy_weights(given)
        alone = parts(name, drawn, SEEDS[0])
        thresholds = [
            float(one["spec"]["triggers"][0]["metadata"]["threshold"])
            for one in yaml.safe_load_all(export(given, "keda"))
        ]
        costs = [float(one["spec"]["variantCost"]) for one in yaml.safe_load_all(export(given, "llm-d"))]
        scaled = [
            ScaledPool(
                name=one.name,
                requests_per_s=rate / one.replicas,
                usd_per_hour=one.usd_per_hour or 0.0,
                max_replicas=one.replicas,
                floor=1 if place == 0 else 0,
                load_s=LOAD_S,
            )
            for place, (one, rate) in enumerate(zip(pools, alone, strict=True))
        ]
        even, mean = [1.0] * len(pools), [sum(thresholds) / len(thresholds)] * len(pools)
        requests, turns = routing("least-request"), _route("weighted-round-robin", even, ())
        weighted = _route("weighted-round-robin", weights, ())
        cases = (
            ("KEDA", "5 waiting requests per replica", requests, HorizontalPodAutoscaler(scaled, target=_WAITING)),
            ("KEDA", "one mean rate for both", turns, RateScaling(scaled, mean, even)),
            ("KEDA", "exported rates and weights", weighted, RateScaling(scaled, thresholds, weights)),
            ("llm-d", "equal costs", routing("llm-d"), VariantAutoscaler(_priced(scaled, _DEFAULT_COST))),
            ("llm-d", "exported costs", routing("llm-d"), VariantAutoscaler(_priced(scaled, *costs))),
        )
        for scaler, constants, route, made in cases:
            done = day(pools, drawn, made, route, 0.85 * sum(alone), 300.0)
            yield {
                "fleet": name,
                "scaler": scaler,
                "constants": constants,
                "usd": done.usd,
                "met": done.met / max(1, done.asked),
            }


def _priced(pools: Sequence[ScaledPool], *costs: float) -> list[ScaledPool]:
    """Return the pools as llm-d sees them, with one cost for all or one for each."""
    return [replace(pool, usd_per_hour=costs[place % len(costs)]) for place, pool in enumerate(pools)]
