"""How far is an endpoint from what was predicted of it? Learned from its answers, and forgotten where none come.

An endpoint that was slow gets few requests, so that few answers could tell that it has recovered: what they taught
fades as requests go elsewhere, towards what its equals are seen to do.
"""

import math

from penstock.routing.policy_compiler import native
from penstock.routing.records import Record, Records

_PRIOR = 0.1
"""Of the requests a correction remembers, those that the prediction counts for before any was seen."""
_MIN_CORRECTION, _MAX_CORRECTION = 0.2, 5.0
_LOOKS_EVERY_S, _HALVINGS = 1.0, 30
_SLOW = 1.8
"""Times the fastest of its equals: what is learned of them differs by up to 1.4 by chance."""
_BESIDE_OTHERS = 0.1
"""Of a request that went to another pool: what it says of one that did not come."""


@native
def gain(seen: float, usual_requests: float) -> float:
    """What one request more says of a correction: the first ones as in an average, with some for what was predicted."""
    return 1.0 / min(usual_requests, _PRIOR * usual_requests + seen)


@native
def corrected(correction: float, ratio: float, weight: float) -> float:
    """Move a correction towards what was observed, by a share of the difference in logarithms."""
    ratio = min(max(ratio, 1.0 / _MAX_CORRECTION), _MAX_CORRECTION)
    moved: float = correction * ratio ** min(weight, 0.5)
    return min(max(moved, _MIN_CORRECTION), _MAX_CORRECTION)


@native
def forget(endpoints: Records, index: int, now_s: float, p: Record) -> bool:
    """Let an endpoint's pool forget what its share of the requests would have told; whether it was time to look.

    Who had as many as its equals forgets nothing: its answers tell. Who had none forgets half of what is known of it in
    `correction_requests` of theirs, however long that takes. Beside other pools it is slower: they may have fewer
    requests because those are longer.
    """
    e = endpoints[index]
    if now_s - e["forgot_s"] < _LOOKS_EVERY_S:
        return False
    share, enough = _share(endpoints, e), _PRIOR * p["correction_requests"]
    passed = share - e["forgot_share"]
    due = passed >= enough or passed < 0.0  # less than before: the fleet is another
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


@native
def fastest(endpoints: Records, pool: int) -> tuple[float, float]:
    """Return the least of what was learned of prompts and of answers in a pool."""
    prompts, answers = _MAX_CORRECTION, _MAX_CORRECTION
    for index in range(len(endpoints)):
        e = endpoints[index]
        if e["pool"] == pool and e["accepts"] != 0:
            prompts, answers = min(prompts, e["prefill_correction"]), min(answers, e["decode_correction"])
    return prompts, answers


@native
def is_slow(e: Record, prompts: float, answers: float) -> bool:
    """Whether an endpoint takes clearly longer than the fastest of its equals."""
    return bool(e["prefill_correction"] > _SLOW * prompts or e["decode_correction"] > _SLOW * answers)


@native
def _share(endpoints: Records, e: Record) -> float:
    """What has been sent to each of its pool so far, and with it some of what was to each that serves its models."""
    equals, sent, others, sent_others = 0, 0, 0, 0
    for index in range(len(endpoints)):
        other = endpoints[index]
        if other["pool"] == e["pool"]:
            equals, sent = equals + 1, sent + other["sent"]
        if (other["serves"] & e["serves"]) != 0:
            others, sent_others = others + 1, sent_others + other["sent"]
    return float(sent / equals + _BESIDE_OTHERS * sent_others / others)


@native
def _fade(e: Record, prompts: float, answers: float, kept: float, usual_requests: float) -> None:
    """Keep so much of what was seen of an endpoint, beside what is usual in its pool."""
    prior = _PRIOR * usual_requests
    seen = min(e["prompts_seen"], usual_requests - prior)
    e["prefill_correction"] = prompts * (e["prefill_correction"] / prompts) ** _weight(seen, prior, kept)
    e["prompts_seen"] = kept * seen
    seen = min(e["answers_seen"], usual_requests - prior)
    e["decode_correction"] = answers * (e["decode_correction"] / answers) ** _weight(seen, prior, kept)
    e["answers_seen"] = kept * seen


@native
def _weight(seen: float, prior: float, kept: float) -> float:
    """Of a mean of what was seen and what is usual: what is left of its distance once so much of the first is kept."""
    return kept * (seen + prior) / (kept * seen + prior)


@native
def _usual(corrections: Records, seen: Records, pools: Records, pool: int, enough: float) -> float:
    """Return the middle one of a pool's corrections that rest on enough answers, and of what was predicted.

    Of two in the middle the faster: one that is slow by itself says nothing of its equals.
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
