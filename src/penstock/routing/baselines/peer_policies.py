"""Implements the published formulas of other routers on Penstock's records, so that policies can be compared.

Each policy of this module skips endpoints that are down or too small for the request, and spreads ties over endpoints.
Both additions make a peer better than its original code. `tuning` has the settings that an operator of the other router
would choose; 0 means the router's default.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.harm import first_look, holds
from penstock.routing.policy_function import policy
from penstock.routing.records import REJECTED, Record, Records

_TYPICAL_INPUT, _TYPICAL_OUTPUT, _TYPICAL_BATCH = 1024.0, 256.0, 32.0


@compiled
def _or(value: float, otherwise: float) -> float:
    return value if value > 0.0 else otherwise


@compiled
def weight_of(e: Record, p: Record) -> float:
    """Return an endpoint's static weight: the setting of its pool, or else its requests/s at 32 requests in flight."""
    place = min(e["pool"], len(p["tuning"]) - 1)
    if p["tuning"][place] > 0.0:
        return float(p["tuning"][place])
    step_s = e["step_s"] + e["expert_s"] + _TYPICAL_BATCH * e["sequence_s"]
    step_s += _TYPICAL_BATCH * (_TYPICAL_INPUT + _TYPICAL_OUTPUT / 2) * e["context_token_s"]
    return float(1.0 / (_TYPICAL_INPUT * e["prompt_token_s"] + _TYPICAL_OUTPUT * step_s / _TYPICAL_BATCH))


@policy
def round_robin(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:  # noqa: ARG001 - the one signature
    """Take endpoints in turn (GIE `pkg/lwepp`, 84436a9; Envoy ROUND_ROBIN)."""
    able = 0
    for index in range(len(endpoints)):
        able += holds(request[0], endpoints[index])
    left = request[0]["number"] % able if able > 0 else 0
    for index in range(len(endpoints)):
        if holds(request[0], endpoints[index]):
            if left == 0:
                return int(index)
            left -= 1
    return REJECTED


@policy
def weighted_round_robin(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Take endpoints in turn, in proportion to static weights (Envoy's EDF scheduler, `edf_scheduler.h`, v1.35)."""
    return _least(request, endpoints, hits, parameters, _DEADLINE)


@policy
def least_request(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Take the endpoint with the fewest requests in flight from this picker (Envoy LEAST_REQUEST, v1.35).

    Envoy by default compares two random endpoints; this policy compares all endpoints.
    """
    return _least(request, endpoints, hits, parameters, _IN_FLIGHT)


@policy
def in_flight_per_capacity(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Take the endpoint with the fewest requests in flight per static weight (Envoy LEAST_REQUEST, v1.35, bias 1)."""
    return _least(request, endpoints, hits, parameters, _PER_WEIGHT)


@policy
def dynamo(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Take the endpoint of least cost in KV blocks (dynamo 2026-08-22, `lib/kv-router/src/scheduling/selector/mod.rs`).

    The cost is `prefill_load_scale` (tuning 0, default 1) times the endpoint's blocks in prefill, plus its blocks in
    decode.
    """
    return _least(request, endpoints, hits, parameters, _DYNAMO)


_DEADLINE, _IN_FLIGHT, _PER_WEIGHT, _DYNAMO = range(4)


@compiled
def _least(request: Records, endpoints: Records, hits: Records, parameters: Records, what: int) -> int:
    """Take the endpoint with the least value of the figure `what`. Ties are spread over the endpoints that are up."""
    q, p = request[0], parameters[0]
    count = len(endpoints)
    best, least = REJECTED, math.inf
    index = first_look(q["turn"], endpoints)
    for _ in range(count):
        e = endpoints[index]
        if holds(q, e):
            value = float(e["in_flight"])
            if what == _DEADLINE:
                value = (e["sent"] + 1.0) / weight_of(e, p)
            elif what == _PER_WEIGHT:
                value = (e["in_flight"] + 1.0) / weight_of(e, p)
            elif what == _DYNAMO:
                prefill = e["outstanding_prompt_tokens"] + q["input_tokens"] - hits[index]
                decode = e["resident_tokens"] + e["shared_tokens"] + q["input_tokens"]
                value = (_or(p["tuning"][0], 1.0) * prefill + decode) / e["block_tokens"]
            if value < least:
                best, least = index, value
        index = index + 1 if index + 1 < count else 0
    return int(best)


@policy
def llmd_scorers(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Take the endpoint with the highest score (llm-d-router v0.10.0, `pkg/epp/framework/plugins/scheduling/scorer`).

    An endpoint's score is a weighted sum of three scorers. The score of queue-scorer is (longest queue - own queue) /
    (longest queue - shortest queue). The score of kv-cache-utilization-scorer is the free share of the KV cache. The
    score of prefix-scorer is the cached share of the prompt. The weights of the three scorers (tuning 0 to 2) default
    to 2, 2 and 3, as llm-d shipped them until August 2026.
    """
    q, p = request[0], parameters[0]
    count = len(endpoints)
    shortest, longest = math.inf, -math.inf
    for index in range(count):
        if holds(q, endpoints[index]):
            shortest = min(shortest, float(endpoints[index]["waiting"]))
            longest = max(longest, float(endpoints[index]["waiting"]))
    best, most = REJECTED, -math.inf
    index = first_look(q["turn"], endpoints)
    for _ in range(count):
        e = endpoints[index]
        if holds(q, e):
            queue = 1.0 if longest <= shortest else (longest - e["waiting"]) / (longest - shortest)
            score = _or(p["tuning"][0], 2.0) * queue
            score += _or(p["tuning"][1], 2.0) * (1.0 - e["kv_used_tokens"] / e["kv_tokens"])
            score += _or(p["tuning"][2], 3.0) * hits[index] / max(1, q["input_tokens"])
            if score > most:
                best, most = index, score
        index = index + 1 if index + 1 < count else 0
    return int(best)


@policy
def llmd_token_load(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Prefer endpoints that cache the prompt, and among them the fewest tokens in flight (llm-d-router v0.10.0).

    The filter prefix-cache-affinity-filter keeps only endpoints that cache 80% of the prompt. The filter is skipped if
    the shortest queue of these endpoints exceeds the shortest queue of all endpoints by more than 18 s (tuning 1). A
    queue in seconds is tokens in flight divided by 15,928 tokens/s (tuning 0; calibrated on 2x H100). The score of
    token-load-scorer is 1 - (tokens in flight + uncached prompt) / 4,194,304. The filter and this scorer are llm-d's
    default since August 2026. With `addEstimatedOutputTokens`, a request counts until it ends, and tuning 2 is the
    weight of its tokens.
    """
    q, p = request[0], parameters[0]
    count = len(endpoints)
    rate, patience_s = _or(p["tuning"][0], 15928.0), _or(p["tuning"][1], 18.0)
    best_any, best_sticky = math.inf, math.inf
    for index in range(count):
        if holds(q, endpoints[index]):
            tokens = _in_flight_tokens(endpoints[index], p)
            best_any = min(best_any, tokens)
            if hits[index] >= 0.8 * q["input_tokens"]:
                best_sticky = min(best_sticky, tokens)
    stay = best_sticky < math.inf and (best_sticky - best_any) / rate <= patience_s
    best, least = REJECTED, math.inf
    index = first_look(q["turn"], endpoints)
    for _ in range(count):
        e = endpoints[index]
        if holds(q, e) and (not stay or hits[index] >= 0.8 * q["input_tokens"]):
            tokens = _in_flight_tokens(e, p) + q["input_tokens"] - hits[index]
            if tokens < least:
                best, least = index, tokens
        index = index + 1 if index + 1 < count else 0
    return int(best)


@compiled
def _in_flight_tokens(e: Record, p: Record) -> float:
    return float(e["outstanding_prompt_tokens"] + p["tuning"][2] * (e["resident_tokens"] + e["shared_tokens"]))


@policy
def sglang_cache_aware(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Take the least loaded endpoint if loads differ, else the best cache (sglang 2026-08-23, `sgl-model-gateway`).

    The formula is in `src/policies/cache_aware.rs`. Loads differ if the highest number of requests in flight exceeds
    the lowest by more than 32 (tuning 0) and by a factor of more than 1.1 (tuning 1). If loads are similar, take the
    endpoint that caches the largest share of the prompt, if this share exceeds half. If no endpoint caches half of the
    prompt, sglang takes the smallest prefix tree, here replaced by the endpoint with the fewest requests sent.
    """
    q, p = request[0], parameters[0]
    count = len(endpoints)
    lightest, heaviest = math.inf, -math.inf
    for index in range(count):
        if holds(q, endpoints[index]):
            lightest = min(lightest, float(endpoints[index]["in_flight"]))
            heaviest = max(heaviest, float(endpoints[index]["in_flight"]))
    apart = heaviest - lightest > _or(p["tuning"][0], 32.0) and heaviest > _or(p["tuning"][1], 1.1) * lightest
    best, least, longest = REJECTED, math.inf, 0
    index = first_look(q["turn"], endpoints)
    for _ in range(count):
        e = endpoints[index]
        if holds(q, e):
            value = float(e["in_flight"] if apart else e["sent"])
            follows = not apart and hits[index] > 0.5 * q["input_tokens"]
            if (follows and hits[index] > longest) or (longest == 0 and value < least):
                best, least = index, value
                longest = hits[index] if follows else longest
        index = index + 1 if index + 1 < count else 0
    return int(best)
