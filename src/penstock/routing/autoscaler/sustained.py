"""Computes the request rate that an endpoint sustains within its SLO, in closed form from the routing coefficients.

A load is a mix of request lengths. Prefill takes a share of an endpoint's time, which slows decode steps. Little's law
gives the number of decoding requests from the request rate and the slowed decode step. The result is the highest rate
at which 95% of the requests of every length meet their SLO. The running requests must also fit the batch limit, and
their tokens must fit the KV cache. The simulator is more accurate but takes seconds. Routing weights and autoscaling
use the closed form, because they need a number per replica immediately.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.compiled.marks import interpreted
from penstock.routing.latency import decode_seconds, prompt_seconds
from penstock.routing.records import Record

_SURE: Final = 1.645
"""Distance between the 95th percentile and the mean of a normal distribution, in standard deviations."""
_TAIL: Final = 3.0
"""Ratio of P95 to mean of an exponential distribution. Waiting times of a loaded queue have this distribution."""
_MAX_PROMPTS: Final = 0.9
"""Maximum share of an endpoint's time for prefill."""
_FULL: Final = 0.95
"""Maximum share of the KV cache that running requests may use without preemptions."""
_ROUNDS: Final = 40
_decode_seconds, _prompt_seconds = interpreted(decode_seconds), interpreted(prompt_seconds)
_CLOSE: Final = 1e-4
_MIN_PER_S: Final = 1e-6
NO_WEIGHT: Final = 1e-9
"""Weight of an endpoint that should get only requests that do not fit any other endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadKind:
    """Requests of one length in a load, with their share of all requests and their SLO."""

    share: float
    input_tokens: int
    output_tokens: int
    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2e_s: float = math.inf


def sustained_requests_per_s(endpoint: Record, kinds: Sequence[LoadKind]) -> float:
    """Return the highest rate, in requests per second, at which an endpoint meets its SLOs; 0 if no rate does."""
    low, high = 0.0, 1.0
    while _keeps(endpoint, kinds, high) and high < 1e6:  # beyond any device
        low, high = high, 2.0 * high
    while high - low > _CLOSE * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _keeps(endpoint, kinds, middle) else (low, middle)
        if high < _MIN_PER_S:
            return 0.0
    return low


def mean_times_s(endpoint: Record, kind: LoadKind, rate_per_s: float) -> tuple[float, float]:
    """Return the mean time to first token and the mean duration of requests at a rate that an endpoint sustains."""
    own_s = _prompt_s(endpoint, kind)
    load = rate_per_s * own_s
    between_s, _, _ = _steady(endpoint, [kind], rate_per_s, load)
    wait_s = load * own_s / (2.0 * (1.0 - load))
    first_s = float(endpoint["request_s"] + wait_s + endpoint["first_token_ratio"] * (own_s + between_s))
    return first_s, first_s + (kind.output_tokens - 1) * between_s


def weights_by_capacity(endpoints: Sequence[Record], loads: Sequence[Sequence[LoadKind]]) -> tuple[float, ...]:
    """Return weights as an operator would set them: the sustained rate of each endpoint, without learned corrections.

    If any endpoint cannot meet its SLO at any rate, return each endpoint's sustained rate without an SLO.
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
    """Return the part of the load that an endpoint processes. A prefill endpoint generates only the first token."""
    return kinds if endpoint["decodes"] else [replace(kind, output_tokens=1, e2e_s=math.inf) for kind in kinds]


def _keeps(e: Record, kinds: Sequence[LoadKind], rate_per_s: float) -> bool:
    """Return whether requests of every length meet their SLO at a request rate."""
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
    """Return the steady state: seconds between tokens, number of decoding requests, and KV tokens that they hold."""
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
