"""Writes profiles of a fleet's pools for the autoscalers of llm-d, Dynamo and AIBrix.

All three need times as functions of the load. The times come from the step costs that plans and simulations use.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from penstock.exports.kubernetes_objects import config_map, object_name, write_yaml
from penstock.exports.pool_constants import PoolConstants
from penstock.routing.autoscaler.sustained import LoadKind, mean_times_s, sustained_requests_per_s
from penstock.simulation.loop.initial_visibility import endpoints_of
from penstock.simulation.replica import Replica, ReplicaPool

_MS: Final = 1e3
_CENTS: Final = 100
_KV_USAGE: Final = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95)
_FIT_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_INPUTS: Final = (128, 256, 512, 1024, 2048, 4096, 8192)
_OUTPUTS: Final = (16, 32, 64, 128, 256, 512, 1024)


def llmd_file(pools: Sequence[PoolConstants]) -> str:
    """Return one VariantAutoscaling per pool, for llm-d's workload variant autoscaler.

    Its cost is in cents per hour and replica. The coefficients of its former latency model are annotations: TPOT is
    alpha + beta x batch, TTFT is gamma + delta x tokens x batch, in milliseconds.
    """
    return "---\n".join(write_yaml(_variant(one)) for one in pools)


def _variant(one: PoolConstants) -> dict[str, Any]:
    pool, replica = one.pool, one.replica
    batches = [batch for batch in _FIT_BATCHES if batch <= replica.max_sequences]
    steps_ms = [_MS * _decode_s(replica, batch, round(one.input_tokens + one.output_tokens / 2)) for batch in batches]
    beta, alpha = np.polyfit(batches, steps_ms, 1)
    inputs = [tokens for tokens in _INPUTS if tokens <= replica.max_tokens]
    delta, gamma = np.polyfit(inputs, [_MS * _first_token_s(replica, tokens) for tokens in inputs], 1)
    name, cost = object_name(pool.name), pool.usd_per_hour
    model_ms = {"alpha": alpha, "beta": beta, "gamma": gamma, "delta": delta}
    return {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {
            "name": name,
            "labels": {"inference.optimization/acceleratorName": pool.accelerator},
            "annotations": {
                "penstock/setup": one.setup,
                "penstock/requests-per-s": _positive(one.requests_per_s),
                **{f"penstock/{key}-ms": _positive(value) for key, value in model_ms.items()},
            },
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "modelID": pool.model,
            **({} if cost is None else {"variantCost": f"{_CENTS * cost:.2f}"}),
        },
    }


def _positive(value: float) -> str:
    return f"{max(0.0, float(value)):.6g}"


def dynamo_file(pools: Sequence[PoolConstants]) -> str:
    """Return one ConfigMap per pool with the profile that Dynamo's planner reads from `--profile-results-dir`."""
    return "---\n".join(write_yaml(_profile_map(one)) for one in pools)


def _profile_map(one: PoolConstants) -> dict[str, Any]:
    replica, devices = one.replica, one.pool.devices
    inputs = [tokens for tokens in _INPUTS if tokens <= replica.max_tokens]
    first_s = [_first_token_s(replica, tokens) for tokens in inputs]
    prefill = {
        "prefill_isl": inputs,
        "prefill_ttft": [_MS * seconds for seconds in first_s],
        "prefill_thpt_per_gpu": [tokens / seconds / devices for tokens, seconds in zip(inputs, first_s, strict=True)],
    }
    points = [
        (context, batch)
        for context in inputs
        for batch in sorted({_batch_at(replica, usage, context) for usage in _KV_USAGE})
    ]
    steps = [(batch, _decode_s(replica, batch, context)) for context, batch in points]
    decode = {
        "x_kv_usage": [batch * context / replica.kv_tokens for context, batch in points],
        "y_context_length": [context for context, _ in points],
        "z_itl": [_MS * seconds for _, seconds in steps],
        "z_thpt_per_gpu": [batch / seconds / devices for batch, seconds in steps],
        "max_kv_tokens": replica.kv_tokens,
    }
    return config_map(
        f"{object_name(one.pool.name)}-profile",
        {"prefill_raw_data.json": json.dumps(prefill), "decode_raw_data.json": json.dumps(decode)},
        setup=one.setup,
    )


def _batch_at(replica: Replica, usage: float, context: int) -> int:
    """Return the requests of one length that fill a part of the KV cache, or that the engine runs at most."""
    return min(replica.max_sequences, max(1, round(usage * replica.kv_tokens / context)))


def aibrix_file(pools: Sequence[PoolConstants]) -> str:
    """Return one profile per line for AIBrix's GPU optimizer.

    Rows of `tputs` are output lengths and columns are input lengths. All profiles have the same lengths, as the
    optimizer demands. A rate of 0 means that no rate keeps the SLO. `e2e` and `ttft` are mean times at the rates.
    """
    longest = min(one.replica.max_tokens for one in pools)
    inputs = [tokens for tokens in _INPUTS if tokens + _OUTPUTS[-1] <= longest]
    created = datetime.now(UTC).timestamp()
    return "".join(json.dumps(_gpu_profile(one, inputs, created)) + "\n" for one in pools)


def _gpu_profile(one: PoolConstants, inputs: Sequence[int], created: float) -> dict[str, Any]:
    slo, pool = one.slo, one.pool
    limits = {
        name: limit
        for name, limit in (("ttft", slo.ttft_s), ("tpot", slo.tpot_s), ("e2e", slo.e2e_s))
        if limit is not None
    }
    endpoint = endpoints_of([ReplicaPool(name=pool.name, replica=one.replica, replicas=1)])[0]
    kinds = [
        [
            LoadKind(
                share=1.0,
                input_tokens=given,
                output_tokens=made,
                **{f"{name}_s": limit for name, limit in limits.items()},
            )
            for given in inputs
        ]
        for made in _OUTPUTS
    ]
    rates = [[sustained_requests_per_s(endpoint, [kind]) for kind in row] for row in kinds]
    times_s = [
        [mean_times_s(endpoint, kind, rate) for kind, rate in zip(*pair, strict=True)]
        for pair in zip(kinds, rates, strict=True)
    ]
    return {
        "gpu": object_name(pool.name),
        "cost": pool.usd_per_hour,
        "tputs": rates,
        "indexes": [list(_OUTPUTS), list(inputs)],
        "created": created,
        "e2e": [[whole_s for _, whole_s in row] for row in times_s],
        "ttft": [[first_s for first_s, _ in row] for row in times_s],
        "slos": {"percentile": 0, **limits},
    }


def _decode_s(replica: Replica, batch: int, context: int) -> float:
    return replica.cost.seconds(contexts=(context,) * batch)


def _first_token_s(replica: Replica, inputs: int) -> float:
    """Return the time to first token of a request that meets no other, in chunks of the engine's step."""
    size = replica.max_batched_tokens
    chunks = [(start, min(start + size, inputs)) for start in range(0, inputs, size)]
    steps_s = sum(replica.cost.seconds(chunks=(chunk,)) for chunk in chunks)
    return replica.request_s + replica.first_ratio * steps_s
