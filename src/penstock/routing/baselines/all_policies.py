"""Lists all routing policies by name, with the source of each formula."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from penstock.errors import UsageError
from penstock.routing import harm
from penstock.routing.baselines import peer_policies
from penstock.routing.policy_function import Pick


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPolicy:
    """A named routing policy."""

    name: str
    pick: Pick
    source: str
    """Publisher of the formula, and the version of its source code that was read."""
    tuning: tuple[str, ...] = ()
    """Meaning of each number in the parameter `tuning`."""
    weighs: Literal["capacity", "file"] | None = None
    """Source of the replica weights that an operator of the policy would set: capacity under load, or a fleet file."""


_POLICIES: Final = (
    RoutingPolicy(name="penstock", pick=harm.pick, source="least expected harm, docs/gateway/how-it-decides.md"),
    RoutingPolicy(name="round-robin", pick=peer_policies.round_robin, source="GIE lwepp 84436a9, Envoy ROUND_ROBIN"),
    RoutingPolicy(
        name="weighted-round-robin",
        pick=peer_policies.weighted_round_robin,
        source="Envoy EDF scheduler, weights by capacity",
        tuning=("weight of each pool's replicas",),
        weighs="capacity",
    ),
    RoutingPolicy(
        name="static-weight",
        pick=peer_policies.weighted_round_robin,
        source="Envoy EDF scheduler, the fleet file's weights",
        tuning=("weight of each pool's replicas",),
        weighs="file",
    ),
    RoutingPolicy(
        name="least-request", pick=peer_policies.least_request, source="Envoy LEAST_REQUEST over all endpoints"
    ),
    RoutingPolicy(
        name="in-flight-per-capacity",
        pick=peer_policies.in_flight_per_capacity,
        source="Envoy LEAST_REQUEST with weights by capacity",
        tuning=("weight of each pool's replicas",),
        weighs="capacity",
    ),
    RoutingPolicy(
        name="llm-d",
        pick=peer_policies.llmd_token_load,
        source="llm-d-router v0.10.0: affinity filter and token load, the default since August 2026",
        tuning=("peak prefill tokens/s", "seconds a cached endpoint may be behind", "weight of tokens after the first"),
    ),
    RoutingPolicy(
        name="llm-d-scorers",
        pick=peer_policies.llmd_scorers,
        source="llm-d-router v0.10.0: queue, KV and prefix scorers, the default until August 2026",
        tuning=("queue weight", "KV weight", "prefix weight"),
    ),
    RoutingPolicy(
        name="dynamo",
        pick=peer_policies.dynamo,
        source="ai-dynamo/dynamo 2026-08-22, lib/kv-router",
        tuning=("prefill_load_scale",),
    ),
    RoutingPolicy(
        name="sglang-cache-aware",
        pick=peer_policies.sglang_cache_aware,
        source="sglang 2026-08-23, sgl-model-gateway cache_aware",
        tuning=("balance_abs_threshold", "balance_rel_threshold"),
    ),
)
POLICIES: Final[Mapping[str, RoutingPolicy]] = {policy.name: policy for policy in _POLICIES}
ALIASES: Final[Mapping[str, str]] = {"llm-d-token-load": "llm-d"}


def policy_of(name: str) -> RoutingPolicy:
    """Return a policy by its name."""
    word = name.strip().lower()
    found = POLICIES.get(ALIASES.get(word, word))
    if found is None:
        raise UsageError(f"'{name}' is not a routing policy; use one of {', '.join(POLICIES)}")
    return found
