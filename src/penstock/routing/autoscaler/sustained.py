"""How many requests a second does an endpoint take within the promise? In closed form, from the same coefficients.

A load is a mix of lengths. Prompts take a share of the time, so that a step that decodes is stretched; how many decode
at once follows from the rate and the stretched step (Little). The rate is the highest at which 95 of 100 requests of
every length keep their times, the running fit the seats and their tokens the KV cache. The simulator says it better and
takes seconds; this is for weights and for scaling, where one number a replica is wanted at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.routing.latency import decode_seconds, prompt_seconds
from penstock.routing.policy_compiler import interpreted
from penstock.routing.records import Record

_SURE: Final = 1.645
"""Standard deviations above the mean that 95 of 100 stay below."""
_TAIL: Final = 3.0
"""A wait that 95 of 100 stay below, over the mean wait: of an exponential one, which queues have under load."""
_MAX_PROMPTS: Final = 0.9
"""Of the time, the share prompts may take."""
_FULL: Final = 0.95
"""Of the KV cache, what running requests may hold before some are preempted."""
_ROUNDS: Final = 40
_decode_seconds, _prompt_seconds = interpreted(decode_seconds), interpreted(prompt_seconds)
_CLOSE: Final = 1e-4
_MIN_PER_S: Final = 1e-6
NO_WEIGHT: Final = 1e-9
"""Of whoever is to take nothing: it is sent what no other can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadKind:
    """Requests of one length among those that come, and what they are promised."""

    share: float
    input_tokens: int
    output_tokens: int
    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2e_s: float = math.inf


def sustained_requests_per_s(endpoint: Record, kinds: Sequence[LoadKind]) -> float:
    """Return the highest rate an endpoint keeps its promises at; 0 where it keeps them for nobody."""
    low, high = 0.0, 1.0
    while _keeps(endpoint, kinds, high) and high < 1e6:  # noqa: PLR2004 - beyond any device
        low, high = high, 2.0 * high
    while high - low > _CLOSE * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _keeps(endpoint, kinds, middle) else (low, middle)
        if high < _MIN_PER_S:
            return 0.0
    return low


def weights_by_capacity(endpoints: Sequence[Record], loads: Sequence[Sequence[LoadKind]]) -> tuple[float, ...]:
    """Weigh endpoints as an operator would: by the rate each takes of its load, before anything was learned of it.

    Where one keeps the promise for nobody, by the rate each takes without one.
    """
    fresh = [_fresh(endpoint) for endpoint in endpoints]
    unpromised = [
        [replace(kind, ttft_s=math.inf, tpot_s=math.inf, e2e_s=math.inf) for kind in kinds] for kinds in loads
    ]
    for asked in (loads, unpromised):
        rates = tuple(sustained_requests_per_s(e, _part(e, kinds)) for e, kinds in zip(fresh, asked, strict=True))
        if all(rate > 0 for rate in rates):
            return rates
    return tuple(max(rate, NO_WEIGHT) for rate in rates)


def _fresh(endpoint: Record) -> Record:
    fresh = endpoint.copy()
    fresh["prefill_correction"] = fresh["decode_correction"] = 1.0
    return fresh


def _part(endpoint: Record, kinds: Sequence[LoadKind]) -> Sequence[LoadKind]:
    """What of a request an endpoint does: one that prefills makes no answers."""
    return kinds if endpoint["decodes"] else [replace(kind, output_tokens=1, e2e_s=math.inf) for kind in kinds]


def _keeps(e: Record, kinds: Sequence[LoadKind], rate_per_s: float) -> bool:
    """Whether every kind's promise holds at a rate."""
    prompts = [_prompt_s(e, kind) for kind in kinds]
    load = rate_per_s * sum(kind.share * seconds for kind, seconds in zip(kinds, prompts, strict=True))
    if load > _MAX_PROMPTS:
        return False
    squares = rate_per_s * sum(kind.share * seconds**2 for kind, seconds in zip(kinds, prompts, strict=True))
    between_s, running, held = _steady(e, kinds, rate_per_s, load)
    if running > e["max_running"] or held > _FULL * e["kv_tokens"]:
        return False
    wait_s = _TAIL * squares / (2.0 * (1.0 - load)) + between_s
    for kind, own_s in zip(kinds, prompts, strict=True):
        swing_s = _SURE * math.sqrt(squares * between_s / max(1, kind.output_tokens))
        first_s = e["request_s"] + wait_s + e["first_token_ratio"] * (own_s + between_s)
        token_s = between_s + swing_s
        if token_s > kind.tpot_s or first_s > kind.ttft_s or first_s + kind.output_tokens * token_s > kind.e2e_s:
            return False
    return True


def _prompt_s(e: Record, kind: LoadKind) -> float:
    steps = 1.0 + kind.input_tokens // max(1, int(e["step_tokens"]))
    whole_s = _prompt_seconds(e, 0, kind.input_tokens) + steps * e["prompt_step_s"]
    return float(whole_s * e["prefill_correction"])


def _steady(e: Record, kinds: Sequence[LoadKind], rate_per_s: float, load: float) -> tuple[float, float, float]:
    """Seconds between tokens, requests that decode at once and the tokens they hold, where these agree."""
    answers = rate_per_s * sum(kind.share * kind.output_tokens for kind in kinds)
    tokens = rate_per_s * sum(
        kind.share * kind.output_tokens * (kind.input_tokens + kind.output_tokens / 2) for kind in kinds
    )
    between_s = 0.0
    for _ in range(_ROUNDS):
        running, held = answers * between_s, tokens * between_s
        if running > e["max_running"] or held > e["kv_tokens"]:
            break
        before_s = between_s
        between_s = _decode_seconds(e, max(1.0, running), held) * e["decode_correction"] / (1.0 - load)
        if between_s - before_s < _CLOSE * between_s:
            break
    return float(between_s), answers * between_s, tokens * between_s
