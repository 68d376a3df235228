"""Predicts the latency of a request at an endpoint: time to first token, and time per output token.

Coefficients come from the performance model, and corrections come from observations. Terms that depend on the endpoint
alone are in its record, written by `endpoint_updates.refresh`.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.records import Record


@compiled
def prompt_seconds(e: Record, cached_tokens: int, input_tokens: int) -> float:
    """Return the seconds that a prompt adds to the engine steps that process it, without the learned correction."""
    start, stop = float(cached_tokens), float(input_tokens)
    return float((stop - start) * e["prompt_token_s"] + 0.5 * (stop * stop - start * start) * e["prompt_pair_s"])


@compiled
def decode_seconds(e: Record, sequences: float, context_tokens: float) -> float:
    """Return the seconds of an engine step that only decodes, without the learned correction."""
    seconds = e["step_s"] + sequences * e["sequence_s"] + context_tokens * e["context_token_s"]
    if e["expert_s"] > 0.0:
        seconds += e["expert_s"] * (1.0 - e["expert_miss"] ** sequences)
    return float(seconds)


@compiled
def share_of_chance(q: Record) -> float:
    """Return the factor for random delay by other prompts.

    Long answers average the delay out, so their factor is smaller.
    """
    return 1.0 / math.sqrt(max(1.0, float(q["expected_output_tokens"])))


@compiled
def token_seconds(q: Record, e: Record, hit_tokens: int, chance_share: float) -> tuple[float, float]:
    """Predict a request's time per output token in seconds, and the mean KV tokens that the request adds."""
    held = float(q["input_tokens"] - hit_tokens) + 0.5 * q["expected_output_tokens"] * e["decodes"]
    # A cached prefix takes no more of the KV cache, but every request that shares it reads it.
    more_s = (e["sequence_s"] + (held + hit_tokens) * e["context_token_s"]) * e["decode_correction"]
    return e["tpot_now_s"] + more_s * e["stretch"] + e["swing_s"] * chance_share, held


@compiled
def queue_seconds(e: Record, held_tokens: float) -> float:
    """Predict the seconds until a seat, and KV blocks for `held_tokens`, are free after all requests that wait now."""
    if held_tokens > e["free_tokens"]:
        return float(max(e["seats_wait_s"], (held_tokens - e["free_tokens"]) / max(e["drain_tokens_per_s"], 1.0)))
    return float(e["seats_wait_s"])


@compiled
def first_seconds(q: Record, e: Record, hit_tokens: int, queue_s: float, prompt_s: float) -> float:
    """Predict a request's time to first token in seconds.

    `queue_s` is its wait for a seat and KV blocks, `prompt_s` the seconds that its own prefill takes.
    """
    uncached, steps = float(q["input_tokens"] - hit_tokens), 1.0
    if uncached >= e["step_tokens"]:
        steps += math.floor(uncached / e["step_tokens"])
    # Prompts ahead are computed while seats and KV are freed, so the waits do not add up.
    wait_s = max(e["wait_s"], queue_s)
    steps_s = e["first_token_ratio"] * (prompt_s + steps * e["carry_s"])
    return float(e["request_s"] + wait_s + steps_s + e["ready_in_s"])


@compiled
def times_of(q: Record, e: Record, hit_tokens: int, chance_share: float) -> tuple[float, float, float]:
    """Predict a request's time to first token, time per output token, and own prefill time, all in seconds."""
    tpot_s, held = token_seconds(q, e, hit_tokens, chance_share)
    prompt_s = prompt_seconds(e, hit_tokens, q["input_tokens"]) * e["prefill_correction"]
    return first_seconds(q, e, hit_tokens, queue_seconds(e, held), prompt_s), tpot_s, prompt_s
