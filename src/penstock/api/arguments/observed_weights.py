"""Computes static routing weights from the traffic that receipts record.

The simulator computes static weights from its workload in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np
from numpy.lib.recfunctions import structured_to_unstructured

from penstock.errors import UsageError
from penstock.routing.autoscaler.sustained import LoadKind, weights_by_capacity
from penstock.routing.records import TUNING, Records
from penstock.routing.replay import PickSample

ObservedSetups = tuple[PickSample, Records]
_KIND: Final = [
    "pool",
    "serves",
    "decodes",
    "max_running",
    "step_tokens",
    "step_s",
    "prompt_step_s",
    "expert_s",
    "expert_miss",
    "sequence_s",
    "context_token_s",
    "prompt_token_s",
    "prompt_pair_s",
    "first_token_ratio",
    "request_s",
]
"""Fields that define a kind of endpoint. Replicas are of the same kind if all these fields are equal."""


def with_weights(seen: Sequence[ObservedSetups], policy: str) -> list[ObservedSetups]:
    """Return the recorded decisions with a weight for each kind of endpoint.

    Weights that the gateway recorded are not recomputed.
    """
    loads, known, found = seen_loads(seen), dict[bytes, tuple[Records, Records]](), list[ObservedSetups]()
    for sample, parameters in seen:
        if parameters["tuning"].any():
            found.append((sample, parameters))
            continue
        fixed = structured_to_unstructured(sample.endpoints[_KIND], dtype=np.float64)
        key = fixed.tobytes()
        if key not in known:
            known[key] = _kinds(sample.endpoints, fixed, loads, policy)
        endpoints, weighing = sample.endpoints.copy(), parameters.copy()
        endpoints["pool"], weights = known[key]
        weighing["tuning"][0, : len(weights)] = weights
        found.append((replace(sample, endpoints=endpoints), weighing))
    return found


def _kinds(
    endpoints: Records, fixed: Records, loads: Mapping[int, Sequence[LoadKind]], policy: str
) -> tuple[Records, Records]:
    """Assign a number to each kind of endpoint in a fleet, and compute the weight of each kind.

    The weight of a kind depends on the load of the models that its endpoints serve.
    """
    _, first, number = np.unique(fixed, axis=0, return_index=True, return_inverse=True)
    if len(first) > TUNING:
        raise UsageError(
            f"{policy} supports at most {TUNING} kinds of endpoints, but there are {len(first)}; leave this policy out"
        )
    mine = [[kinds for model, kinds in loads.items() if model & endpoints[index]["serves"]] for index in first]
    everything = [kind for kinds in loads.values() for kind in kinds]
    asked = [_normalise_shares([kind for kinds in some for kind in kinds] or everything) for some in mine]
    return number.reshape(-1), np.array(weights_by_capacity([endpoints[index] for index in first], asked))


def _normalise_shares(kinds: Sequence[LoadKind]) -> list[LoadKind]:
    whole = sum(kind.share for kind in kinds)
    return [replace(kind, share=kind.share / whole) for kind in kinds]


def seen_loads(seen: Sequence[ObservedSetups]) -> dict[int, list[LoadKind]]:
    """Return the mean request lengths and the SLO of each SLO class, for each model.

    The mean answer length is taken over the later half of the decisions, because the picker learns answer lengths over
    time.
    """
    requests = np.concatenate([sample.request for sample, _ in seen])
    loads = dict[int, list[LoadKind]]()
    for model, slo_class in sorted({(int(one["model"]), int(one["slo_class"])) for one in requests}):
        mine = requests[(requests["model"] == model) & (requests["slo_class"] == slo_class)]
        promised = {name: float(np.median(mine[name])) for name in ("ttft_s", "tpot_s", "e2e_s")}
        kind = LoadKind(
            share=len(mine) / len(requests),
            input_tokens=max(1, round(float(mine["input_tokens"].mean()))),
            output_tokens=max(1, round(float(mine["expected_output_tokens"][len(mine) // 2 :].mean()))),
            **{name: limit_s or inf for name, limit_s in promised.items()},
        )
        loads.setdefault(model, []).append(kind)
    return loads
