"""Learns corrections of predicted latency per endpoint, and forgets them while an endpoint gets few requests.

A slow endpoint gets few requests, so its answers rarely show that it has recovered. While requests go to other
endpoints, the correction of a slow endpoint therefore decays towards the usual correction of its pool.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.records import Record, Records

_PRIOR = 0.1
"""Weight of the uncorrected prediction, as a share of the number of requests that a correction remembers."""
_MIN_CORRECTION, _MAX_CORRECTION = 0.2, 5.0
_LOOKS_EVERY_S, _HALVINGS = 1.0, 30
_SLOW = 2.2
"""An endpoint is slow if its correction exceeds the lowest correction in its pool by more than this factor.

By chance alone, learned corrections differ by a factor of up to 1.4, and in overload, where endpoints are given up, by
up to 2. With 1.8, four pickers at 130% of capacity shared all endpoints for long and kept up to 3 points less.
"""
_BESIDE_OTHERS = 0.1
"""Weight of a request to another pool, in the count of requests that an endpoint did not get.

A request to the same pool has the weight 1.
"""


@compiled
def gain(seen: float, usual_requests: float) -> float:
    """Return the weight of one more request in an average with a prior.

    The weight is never below 1 / usual_requests.
    """
    return 1.0 / min(usual_requests, _PRIOR * usual_requests + seen)


@compiled
def corrected(correction: float, ratio: float, weight: float) -> float:
    """Return a correction moved towards the observed latency: multiplied by `ratio ** weight`, within limits."""
    ratio = min(max(ratio, 1.0 / _MAX_CORRECTION), _MAX_CORRECTION)
    moved: float = correction * ratio ** min(weight, 0.5)
    return min(max(moved, _MIN_CORRECTION), _MAX_CORRECTION)


@compiled
def forget(endpoints: Records, index: int, now_s: float, p: Record) -> bool:
    """Decay the corrections of all endpoints in a pool. Return False if the last check was less than a second ago.

    The more requests an endpoint did not get, the more of its correction is forgotten. An endpoint that got as many
    requests as the others in its pool forgets nothing, because its answers are recent. An endpoint without requests
    forgets half of its correction while each other endpoint gets `correction_requests` requests, independent of the
    time that passes. Requests to other pools count less, because a pool may get fewer requests only because its
    requests are longer.
    """
    e = endpoints[index]
    if now_s - e["forgot_s"] < _LOOKS_EVERY_S:
        return False
    share, enough = _share(endpoints, e), _PRIOR * p["correction_requests"]
    passed = share - e["forgot_share"]
    due = passed >= enough or passed < 0.0  # less than before: the fleet has changed
    prompts, answers = 1.0, 1.0
    if due:
        prompts = _usual(
            endpoints["prefill_correction"], endpoints["prompts_seen"], endpoints["pool"], e["pool"], enough
        )
        answers = _usual(
            endpoints["decode_correction"], endpoints["answers_seen"], endpoints["pool"], e["pool"], enough
        )
    for other in range(len(endpoints)):
        equal = endpoints[other]
        if equal["pool"] == e["pool"]:
            equal["forgot_s"] = now_s
            if due:
                missed = max(0.0, passed - (1.0 + _BESIDE_OTHERS) * (equal["sent"] - equal["forgot_sent"]))
                equal["forgot_share"], equal["forgot_sent"] = share, equal["sent"]
                _fade(equal, prompts, answers, 0.5 ** (missed / p["correction_requests"]), p["correction_requests"])
    return True


@compiled
def fastest(endpoints: Records, pool: int) -> tuple[float, float]:
    """Return the lowest prefill and decode corrections in a pool."""
    prompts, answers = _MAX_CORRECTION, _MAX_CORRECTION
    for index in range(len(endpoints)):
        e = endpoints[index]
        if e["pool"] == pool and e["accepts"] != 0:
            prompts, answers = min(prompts, e["prefill_correction"]), min(answers, e["decode_correction"])
    return prompts, answers


@compiled
def is_slow(e: Record, prompts: float, answers: float) -> bool:
    """Return whether an endpoint is clearly slower than the fastest endpoint of its pool."""
    return bool(e["prefill_correction"] > _SLOW * prompts or e["decode_correction"] > _SLOW * answers)


@compiled
def _share(endpoints: Records, e: Record) -> float:
    """Return the mean requests sent per endpoint in the pool of `e`, plus a small term for other pools.

    The small term is 10% of the mean requests sent per endpoint, over all endpoints that share a model with `e`.
    """
    equals, sent, others, sent_others = 0, 0, 0, 0
    for index in range(len(endpoints)):
        other = endpoints[index]
        if other["pool"] == e["pool"]:
            equals, sent = equals + 1, sent + other["sent"]
        if (other["serves"] & e["serves"]) != 0:
            others, sent_others = others + 1, sent_others + other["sent"]
    return float(sent / equals + _BESIDE_OTHERS * sent_others / others)


@compiled
def _fade(e: Record, prompts: float, answers: float, kept: float, usual_requests: float) -> None:
    """Keep a share `kept` of an endpoint's observations. Move its corrections towards the pool's usual corrections."""
    prior = _PRIOR * usual_requests
    seen = min(e["prompts_seen"], usual_requests - prior)
    e["prefill_correction"] = prompts * (e["prefill_correction"] / prompts) ** _weight(seen, prior, kept)
    e["prompts_seen"] = kept * seen
    seen = min(e["answers_seen"], usual_requests - prior)
    e["decode_correction"] = answers * (e["decode_correction"] / answers) ** _weight(seen, prior, kept)
    e["answers_seen"] = kept * seen


@compiled
def _weight(seen: float, prior: float, kept: float) -> float:
    """Return the share that remains, after forgetting, of the distance between a correction and its pool's usual one.

    A correction is a mean of a prior and `seen` observations, of which a share `kept` is kept.
    """
    return kept * (seen + prior) / (kept * seen + prior)


@compiled
def _usual(corrections: Records, seen: Records, pools: Records, pool: int, enough: float) -> float:
    """Return the median correction of a pool's endpoints with enough answers.

    The value 1.0 (no correction) is one more sample. Of two middle values the lower one (faster) is returned, because
    one slow endpoint says nothing about the rest of its pool.
    """
    low, high = _MIN_CORRECTION, _MAX_CORRECTION
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        count, below = 1, int(middle >= 1.0)
        for index in range(len(pools)):
            if pools[index] == pool and seen[index] >= enough:
                count += 1
                below += corrections[index] <= middle
        low, high = (low, middle) if 2 * below >= count else (middle, high)
    return high
