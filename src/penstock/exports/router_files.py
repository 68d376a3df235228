"""Writes the files of Envoy, LiteLLM, SGLang's gateway and KEDA from the constants of a fleet's pools."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.exports.autoscaler_files import aibrix_file, dynamo_file, llmd_file
from penstock.exports.kubernetes_objects import object_name, write_yaml
from penstock.exports.pool_constants import PoolConstants, whole_weights

_TARGET_FRACTION: Final = 0.85
"""Share of the sustained rate at which an autoscaler adds a replica."""
_ENDPOINT_TYPE: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
_LITELLM_PROVIDER: Final = {"vllm": "hosted_vllm", "vllm-atom": "hosted_vllm"}
"""LiteLLM's provider for an engine. Other engines are called with the plain OpenAI provider."""
_RATE_METRIC: Final = {"sglang": "sglang:num_requests_total", "sglang-atom": "sglang:num_requests_total"}
"""Counter of finished requests on the metrics page of an engine; vLLM's for other engines."""


def envoy_file(pools: Sequence[PoolConstants]) -> str:
    """Return endpoints of Envoy's discovery service, one cluster per model, weighted by sustained rate."""
    resources = []
    for model, own in _by_model(pools).items():
        weights = whole_weights(own)
        endpoints = [
            {"endpoint": {"address": {"socket_address": _socket(address)}}, "load_balancing_weight": weight}
            for one, weight in zip(own, weights, strict=True)
            for address in one.pool.endpoints
        ]
        resources.append({"@type": _ENDPOINT_TYPE, "cluster_name": model, "endpoints": [{"lb_endpoints": endpoints}]})
    return json.dumps({"resources": resources}, indent=2) + "\n"


def litellm_file(pools: Sequence[PoolConstants]) -> str:
    """Return the models and router settings of LiteLLM's proxy."""
    entries = []
    for model, own in _by_model(pools).items():
        for one, weight in zip(own, whole_weights(own), strict=True):
            provider = _LITELLM_PROVIDER.get(one.pool.engine.name, "openai")
            entries += [
                {
                    "model_name": model,
                    "litellm_params": {
                        "model": f"{provider}/{model}",
                        "api_base": f"http://{address}/v1",
                        "api_key": "none",
                        "weight": weight,
                        "rpm": one.requests_per_minute,
                    },
                    "model_info": {"id": f"{one.pool.name}/{number}", **_token_price(one)},
                }
                for number, address in enumerate(one.pool.endpoints)
            ]
    return write_yaml({"model_list": entries, "router_settings": {"routing_strategy": "simple-shuffle"}})


def sglang_router_file(pools: Sequence[PoolConstants]) -> str:
    """Return one body per line for POST /workers of SGLang's gateway. `cost` is relative to the cheapest pool."""
    prices = [one.usd_per_request for one in pools]
    cheapest = min((price for price in prices if price is not None), default=None)
    lines = []
    for one, price in zip(pools, prices, strict=True):
        cost = {} if price is None or cheapest is None else {"cost": round(price / cheapest, 4)}
        labels = {"pool": one.pool.name, "accelerator": one.pool.accelerator, "vendor": one.pool.vendor}
        lines += [
            json.dumps({"url": f"http://{address}", "model_id": one.pool.model, **cost, "labels": labels})
            for address in one.pool.endpoints
        ]
    return "".join(f"{line}\n" for line in lines)


def keda_file(pools: Sequence[PoolConstants]) -> str:
    """Return one ScaledObject per pool. A replica is added at 85% of the rate that it sustains within the SLO."""
    return "---\n".join(write_yaml(_scaled_object(one)) for one in pools)


def _scaled_object(one: PoolConstants) -> dict[str, Any]:
    pool = one.pool
    metric = _RATE_METRIC.get(pool.engine.name, "vllm:request_success_total")
    trigger = {
        "serverAddress": "http://prometheus:9090",
        "query": f'sum(rate({metric}{{pool="{pool.name}"}}[2m]))',
        "threshold": f"{_TARGET_FRACTION * one.requests_per_s:.4g}",
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": object_name(pool.name)},
        "spec": {
            "scaleTargetRef": {"name": object_name(pool.name)},
            "minReplicaCount": 1,
            "maxReplicaCount": pool.replicas,
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }


def _token_price(one: PoolConstants) -> dict[str, float]:
    """Return the price of tokens for LiteLLM. All of the rent is charged to output tokens, as `simulate` does."""
    price = one.usd_per_output_token
    return {} if price is None else {"input_cost_per_token": 0.0, "output_cost_per_token": price}


def _by_model(pools: Sequence[PoolConstants]) -> dict[str, list[PoolConstants]]:
    found: dict[str, list[PoolConstants]] = {}
    for one in pools:
        found.setdefault(one.pool.model, []).append(one)
    return found


def _socket(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"address": host.strip("[]"), "port_value": int(port)}


FORMATS: Final[Mapping[str, Callable[[Sequence[PoolConstants]], str]]] = {
    "envoy": envoy_file,
    "litellm": litellm_file,
    "sglang-router": sglang_router_file,
    "keda": keda_file,
    "llm-d": llmd_file,
    "dynamo": dynamo_file,
    "aibrix": aibrix_file,
}
"""Writer of each format, by the name that `--to` takes."""
NEED_NO_ENDPOINTS: Final = frozenset({"keda", "llm-d", "dynamo", "aibrix"})
"""Formats about pools, which are written before the replicas have addresses."""
NEED_PRICES: Final = frozenset({"aibrix", "llm-d"})
"""Formats whose readers take a missing price as zero or as a default, and prefer that pool."""
COMPARE_PRICES: Final = frozenset({"sglang-router"})
"""Formats that may lack prices, if all pools do."""
