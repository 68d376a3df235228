"""Builds the router's initial state: each replica as an endpoint, the SLOs of the classes, and the scheduled faults.

An endpoint's latency coefficients are the coefficients of the replica's step times. Sliding-window attention is counted
as if the window were always full. The cost of sliding-window attention is therefore per request and per prompt token,
not per token of context.
"""

from collections.abc import Iterator, Sequence
from math import ceil, inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.compiled.marks import interpreted
from penstock.errors import DeploymentError
from penstock.model.sequence_mixers import EVERYTHING
from penstock.performance.step.step_cost import StepCost
from penstock.routing.admission import hold_seconds
from penstock.routing.endpoint_updates import divide
from penstock.routing.records import CLASSES, OVERLOAD, Record, Records, default_parameters, new_endpoints
from penstock.routing.relative_capacity import set_relative_capacities
from penstock.simulation.loop.world import (
    CHANGES_SPEED,
    DIES,
    FAULT,
    IS_NOTICED,
    PROMISE,
    REPORTS_AGAIN,
    RETURNS,
    STOPS_REPORTING,
    UNASKED,
)
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run_options import Fault, FaultKind, Routing
from penstock.workload import SloClass

_HOUR_S: Final = 3600.0
MAX_RETURNS: Final = 1 << 16
"""Maximum number of refused clients that will return. Further ones give up."""
_Happening = tuple[float, int, int, float]
"""A change of a replica: time in seconds, replica, kind of change, and factor that multiplies step durations."""


def endpoints_of(pools: Sequence[ReplicaPool], routing: Routing | None = None) -> Records:
    """Return an endpoint record for every replica, pool by pool, as a picker knows it before the first report.

    The ranks of a replica share one address and are one endpoint. The endpoint has the batch slots and the KV cache of
    all its ranks. One rank serves a request, and the engine decides which rank.
    """
    endpoints = new_endpoints(sum(pool.replicas for pool in pools))
    vendors = sorted({pool.vendor for pool in pools})
    first = 0
    for index, pool in enumerate(pools):
        mine = endpoints[first : first + pool.replicas]
        first += pool.replicas
        mine["pool"], mine["vendor"] = index, vendors.index(pool.vendor)
        mine["serves"] = 1 << pool.model
        mine["accepts"], mine["decodes"] = pool.role != "decode", pool.role != "prefill"
        believed = 1.0 if routing is None else routing.believed.get(pool.vendor, 1.0)
        replica, price = pool.replica, pool.usd_per_hour or 0.0
        describe_replica(mine, replica, replica.cost.scaled(believed), usd_per_hour=price)
        if replica.ranks > 1:
            mine["max_context_tokens"] = replica.max_tokens
            for limit in ("kv_tokens", "max_running", "step_tokens"):
                mine[limit] *= replica.ranks
        mine["saved_usd_per_s"] = mine["usd_per_s"] * pool.elastic
    set_relative_capacities(endpoints)
    return endpoints


def pickers_endpoints(pools: Sequence[ReplicaPool], routing: Routing) -> Records:
    """Return the endpoint records of each picker. In every pool each picker prefers its own share of the endpoints."""
    endpoints = np.tile(endpoints_of(pools, routing), (routing.pickers, 1))
    for picker in range(routing.pickers if routing.pickers > 1 else 0):
        interpreted(divide)(endpoints[picker], picker, routing.pickers)
    return endpoints


def describe_replica(endpoints: Record, replica: Replica, cost: StepCost, *, usd_per_hour: float) -> None:
    """Write the fixed properties of a replica into the records of its endpoints.

    The fixed properties are KV cache, batch slots, price and step coefficients. The limits are for one rank, and the
    caller scales them for an endpoint with several ranks. `cost` gives the step times of the endpoint.
    """
    endpoints["block_tokens"], endpoints["kv_tokens"] = replica.block_tokens, replica.kv_tokens
    if replica.context_tokens is not None:
        endpoints["max_context_tokens"] = replica.context_tokens
    endpoints["max_running"], endpoints["step_tokens"] = replica.max_sequences, replica.max_batched_tokens
    endpoints["usd_per_s"] = usd_per_hour / _HOUR_S
    endpoints["first_token_ratio"], endpoints["request_s"] = replica.first_ratio, replica.request_s
    windows = [place for place, limit in enumerate(cost.limits) if limit < EVERYTHING]
    whole = [place for place, limit in enumerate(cost.limits) if limit >= EVERYTHING]
    endpoints["step_s"], endpoints["prompt_step_s"] = cost.step_s, cost.prompt_step_s
    endpoints["sequence_s"] = cost.decode_s + sum(cost.limits[place] * cost.context_s[place] for place in windows)
    endpoints["context_token_s"] = sum(cost.context_s[place] for place in whole)
    observed_s = sum(cost.limits[place] * cost.pair_s[place] for place in windows)
    endpoints["prompt_token_s"] = cost.prefill_token_s + observed_s
    endpoints["prompt_pair_s"] = sum(cost.pair_s[place] for place in whole)
    endpoints["expert_s"], endpoints["expert_miss"] = cost.expert_s, cost.expert_miss


def set_visibility(control: NDArray[Any], routing: Routing, count: int, *, asked: bool) -> None:
    """Write the visibility settings of the pickers into the control record."""
    control["chosen"], control["routed"] = UNASKED, asked
    control["sampled_every"] = routing.sampled_every
    control["report_s"] = routing.sight.report_interval_s / count
    control["report_delay_s"], control["report_loss"] = routing.sight.report_delay_s, routing.sight.report_loss
    control["cache_delay_s"] = routing.sight.cache_delay_s
    control["max_held"], control["max_tries"] = routing.max_held, routing.max_tries


def parameters_for(routing: Routing, classes: Sequence[SloClass]) -> Records:
    """Return the policy's parameters with the SLOs and weights of the classes."""
    given = default_parameters() if routing.parameters is None else routing.parameters
    parameters = given.copy()
    parameters["pickers"] = routing.pickers
    promises = promises_of(classes, routing)
    for place in range(CLASSES):
        kind = min(place, len(promises) - 1)
        parameters["class_tpot_s"][0, place] = promises["tpot_s"][kind]
        parameters["class_e2e_s"][0, place] = promises["e2e_s"][kind]
        parameters["class_weight"][0, place] = promises["weight"][kind]
    return parameters


def promises_of(classes: Sequence[SloClass], routing: Routing, patience_s: Sequence[float] = ()) -> NDArray[Any]:
    """Return the SLO limits and weight of each class, its clients' patience, and what may be done in overload."""
    promises = np.zeros(max(1, len(classes)), PROMISE)
    promises["ttft_s"] = promises["tpot_s"] = promises["e2e_s"] = promises["patience_s"] = inf
    promises["patience_s"][: len(patience_s)] = patience_s[: len(promises)]
    promises["weight"] = promises["model"] = 1
    for place, item in enumerate(classes):
        promises[place]["overload"] = OVERLOAD[item.overload]
        if item.slo is not None:
            promised = (item.slo.ttft_s, item.slo.tpot_s, item.slo.e2e_s)
            for name, limit_s in zip(("ttft_s", "tpot_s", "e2e_s"), promised, strict=True):
                promises[place][name] = inf if limit_s is None else limit_s
    for place, weight in enumerate(routing.weights[: len(promises)]):
        promises[place]["weight"] = weight
    for place, model in enumerate(routing.class_models[: len(promises)]):
        promises[place]["model"] = 1 << model
    for promise in promises:
        promise["hold_s"] = interpreted(hold_seconds)(promise["ttft_s"], promise["e2e_s"])
    return promises


def reports_on_their_way(routing: Routing, count: int) -> int:
    """Return the maximum number of reports that are in transit at one time."""
    return ceil(routing.sight.report_delay_s / routing.sight.report_interval_s * count) + 2


def faults_of(routing: Routing, pools: Sequence[ReplicaPool]) -> NDArray[Any]:
    """Return the scheduled state changes of replicas in order of time. Overlapping faults of one replica are merged."""
    count = sum(pool.schedulers for pool in pools)
    if routing.faults and any(pool.role != "both" or pool.replica.ranks > 1 for pool in pools):
        raise DeploymentError(
            "this fleet cannot be simulated with faults, because a replica has several ranks or does not both prefill "
            "and decode; leave the faults out"
        )
    alike: dict[tuple[int, FaultKind], list[Fault]] = {}
    for fault in routing.faults:
        if not 0 <= fault.replica < count:
            raise DeploymentError(
                f"a fault names replica {fault.replica}, but the replicas are numbered 0 to {count - 1}"
            )
        alike.setdefault((fault.replica, fault.kind), []).append(fault)
    rows: list[_Happening] = []
    for (_, kind), faults in alike.items():
        rows += _changes_of_speed(faults) if kind == "slow" else _outages(faults)
    return np.array(sorted(rows), FAULT)


def _changes_of_speed(faults: Sequence[Fault]) -> Iterator[_Happening]:
    """Yield the times at which a replica's speed changes. A replica is always as slow as its slowest active fault."""
    factor = 1.0
    for at_s in sorted({fault.at_s for fault in faults} | {fault.over_s for fault in faults} - {inf}):
        now = max((fault.factor for fault in faults if fault.at_s <= at_s < fault.over_s), default=1.0)
        if now != factor:
            yield at_s, faults[0].replica, CHANGES_SPEED, now
        factor = now


def _outages(faults: Sequence[Fault]) -> Iterator[_Happening]:
    """Yield outages. Overlapping outages are merged into one outage, from the first start to the last end.

    Pickers notice the merged outage of a dead replica only once, at the earliest time at which any of its parts would
    be noticed.
    """
    joined: list[tuple[float, float, float]] = []
    for fault in sorted(faults, key=lambda each: each.at_s):
        at_s, over_s, noticed_s = fault.at_s, fault.over_s, fault.at_s + fault.noticed_s
        if joined and at_s <= joined[-1][1]:
            first_s, last_s, known_s = joined.pop()
            at_s, over_s, noticed_s = first_s, max(last_s, over_s), min(known_s, noticed_s)
        joined.append((at_s, over_s, noticed_s))
    which, dies = faults[0].replica, faults[0].kind == "dies"
    for at_s, over_s, noticed_s in joined:
        yield at_s, which, DIES if dies else STOPS_REPORTING, 1.0
        if over_s < inf:
            yield over_s, which, RETURNS if dies else REPORTS_AGAIN, 1.0
        if dies and noticed_s < over_s:
            yield noticed_s, which, IS_NOTICED, 1.0
