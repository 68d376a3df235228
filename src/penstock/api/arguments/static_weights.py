"""Computes static routing weights per pool.

Static weights come from the fleet file, or from the request rate that one replica of each pool sustains within the SLO.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from penstock.errors import UsageError
from penstock.fleet.pools import Fleet
from penstock.routing.autoscaler.sustained import NO_WEIGHT, LoadKind, weights_by_capacity
from penstock.routing.baselines.all_policies import RoutingPolicy
from penstock.routing.records import TUNING
from penstock.simulation.loop.initial_visibility import endpoints_of
from penstock.simulation.replica import ReplicaPool
from penstock.workload import Requests, SloClass


def weights_choice(
    policies: Sequence[RoutingPolicy],
    fleet: Fleet,
    pools: Sequence[ReplicaPool],
    blocks: Iterable[Requests],
    classes: Sequence[SloClass],
) -> Mapping[str, tuple[float, ...]]:
    """Return the weight of one replica of each pool, for each policy that uses weights."""
    weighing = {policy.name: policy.weighs for policy in policies if policy.weighs is not None}
    if weighing and len(pools) > TUNING:
        raise UsageError(
            f"{', '.join(weighing)} supports at most {TUNING} pools, but the fleet has {len(pools)}; leave this "
            "policy out"
        )
    stated, taken = _route_weights(fleet, pools), None
    if "capacity" in weighing.values() or (weighing and stated is None):
        taken = capacities(pools, load_kinds(next(iter(blocks)), classes))
    chosen = {name: stated if weighs == "file" and stated is not None else taken for name, weighs in weighing.items()}
    return {name: weights for name, weights in chosen.items() if weights is not None}


def _route_weights(fleet: Fleet, pools: Sequence[ReplicaPool]) -> tuple[float, ...] | None:
    """Return the weight of one replica of each pool according to the fleet's routes, averaged by route rate.

    The result is None if no route gives a weight to a pool.
    """
    shares = [
        sum(route.peak_requests_per_s * route.weights.get(pool.name, 0.0) for route in fleet.routes) for pool in pools
    ]
    total = sum(shares)
    if not total:
        return None
    return tuple(max(share / total / pool.replicas, NO_WEIGHT) for share, pool in zip(shares, pools, strict=True))


def capacities(pools: Sequence[ReplicaPool], kinds: Sequence[LoadKind]) -> tuple[float, ...]:
    """Return the requests per second that one replica of each pool sustains within the SLO.

    If a pool cannot meet the SLO at any rate, the rates of all pools are computed without SLOs.
    """
    endpoints, first = endpoints_of(pools), np.cumsum([0, *(pool.replicas for pool in pools)])
    return weights_by_capacity([endpoints[index] for index in first[:-1]], [kinds] * len(pools))


def load_kinds(block: Requests, classes: Sequence[SloClass]) -> tuple[LoadKind, ...]:
    """Return the mean request lengths and the SLO of each SLO class in the first block of requests."""
    kinds = []
    for number in np.unique(block.slo_class):
        mine, slo = block.slo_class == number, classes[number].slo if number < len(classes) else None
        promised = () if slo is None else (slo.ttft_s, slo.tpot_s, slo.e2e_s)
        kinds.append(
            LoadKind(
                share=float(mine.mean()),
                input_tokens=max(1, round(float(block.input_tokens[mine].mean()))),
                output_tokens=max(1, round(float(block.output_tokens[mine].mean()))),
                **{
                    name: limit_s
                    for name, limit_s in zip(("ttft_s", "tpot_s", "e2e_s"), promised, strict=False)
                    if limit_s is not None
                },
            )
        )
    return tuple(kinds)
