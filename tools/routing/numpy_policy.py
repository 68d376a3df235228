"""Implements the policy in numpy, without a compiler. Tests hold it equal to `harm`.

It is for gateways that do not load numba. A numpy call costs about as much as a hundred numbers, so values raised to
the same power are raised together.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.routing.records import (
    ANOTHERS,
    CLASSES,
    OWN,
    PARAMETERS,
    REJECTED,
    REQUEST,
    USUAL_TPOT_S,
    USUAL_TTFT_S,
    Records,
)

_HOPELESS: Final = 1e3
_MIN_SECONDS: Final = 1.0
_MOST: Final = 1e300
_CAPS: Final = np.array([_HOPELESS, _HOPELESS] + 2 * CLASSES * [1.0])[:, None]
"""Upper limits of the ratios of time to limit: two probabilities of a miss, then strain, which is linear above 1."""
Columns = NDArray[np.float64]
Asked = Mapping[str, Any]
_LENGTH_POWER: Final = 2
"""Exponent for times that depend on answer length."""


def pick_columns(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Return the same result as `harm.pick`."""
    q = dict(zip(REQUEST.names or (), request[0].item(), strict=True))
    p = dict(zip(PARAMETERS.names or (), parameters[0].item(), strict=True))
    count, up, able = len(endpoints), endpoints["accepts"] != 0, able_columns(q, endpoints)
    whole = bool(able.all())
    if not whole and not able.any():
        return REJECTED
    harm, missed = _harm(q, endpoints, hits, p)
    # The first of the minimal values, counted from the endpoint at which this request starts its search.
    begin = q["turn"] % count
    if not up[begin]:
        begin = int(np.flatnonzero(up)[q["turn"] // count % int(up.sum())])
    if not whole:
        harm = np.where(able, np.minimum(harm, _MOST), np.inf)
    best = int(np.concatenate((harm[begin:], harm[:begin])).argmin() + begin) % count
    if q["sheddable"] and missed[best] > p["shed_fraction"]:
        return REJECTED
    return best


def able_columns(q: Asked, e: Records) -> NDArray[np.bool_]:
    """Return the result of `harm.holds` for every endpoint."""
    longest = q["input_tokens"] + max(q["output_limit_tokens"], q["expected_output_tokens"])
    expected = q["input_tokens"] + q["expected_output_tokens"] * e["decodes"]
    able = (e["accepts"] != 0) & ((e["serves"] & q["model"]) != 0) & (longest <= e["max_context_tokens"])
    able &= expected <= e["kv_tokens"]
    return able  # type: ignore[no-any-return]  # of untyped columns


class ColumnTimes(NamedTuple):
    """The predictions of `latency.times_of` for a request at every endpoint."""

    ttft_s: Columns
    tpot_s: Columns
    prompt_s: Columns
    chance_s: Columns
    """Random delay in seconds per token."""
    held: Columns
    """Mean KV tokens that the request adds."""


def times_columns(q: Asked, e: Records, hits: Records) -> ColumnTimes:
    """Predict the values of `latency.times_of` at every endpoint."""
    stop, answer = float(q["input_tokens"]), float(q["expected_output_tokens"])
    uncached = stop - hits
    pairs = 0.5 * (stop * stop - hits.astype(np.float64) ** 2)
    prompt_s = (uncached * e["prompt_token_s"] + pairs * e["prompt_pair_s"]) * e["prefill_correction"]
    held = uncached + 0.5 * answer * e["decodes"]
    more_s = (e["sequence_s"] + held * e["context_token_s"]) * e["decode_correction"]
    chance_s = e["swing_s"] * (1.0 / math.sqrt(max(1.0, answer)))
    tpot_s = e["tpot_now_s"] + more_s * e["stretch"] + chance_s
    return ColumnTimes(_first_seconds(e, uncached, held, prompt_s), tpot_s, prompt_s, chance_s, held)


def _harm(q: Asked, e: Records, hits: Records, p: Asked) -> tuple[Columns, Columns]:
    stop, answer = float(q["input_tokens"]), float(q["expected_output_tokens"])
    decodes, free, kv_tokens, before_s = e["decodes"], e["free_tokens"], e["kv_tokens"], e["tpot_now_s"].copy()
    ttft_s, tpot_s, prompt_s, chance_s, held = times_columns(q, e, hits)
    after_s = before_s + (0.5 * (tpot_s - before_s - chance_s) + prompt_s * e["stall_per_prompt_s"])
    late, slow, made = _misses(q, e, p, (ttft_s, tpot_s, before_s, after_s))
    missed = late + slow - late * slow
    if q["e2e_s"] < math.inf:
        powered = np.minimum((ttft_s + answer * tpot_s * decodes) / q["e2e_s"], _HOPELESS) ** _LENGTH_POWER
        missed = missed + (1.0 - missed) * (powered / (1.0 + powered))
    harm = q["weight"] * missed
    if e["saved_usd_per_s"].any():
        token_s = e["sequence_s"] + (stop + 0.5 * answer) * e["context_token_s"]
        work_s = prompt_s + answer * token_s * e["decode_correction"] * decodes
        harm = harm + work_s * e["saved_usd_per_s"] * (1.0 / p["miss_usd"])
    harm = harm + made
    room = (1.0 - p["full_tokens_fraction"]) * kv_tokens
    over = held + room - free
    if over.max() > 0:
        harm = harm + np.minimum(held, np.maximum(over, 0.0)) / np.maximum(room, 1e-3 * kv_tokens)
    if p["pickers"] > 1.0:
        own_hit = int(hits[e["whose"] == OWN].max(initial=0))
        harm = harm + p["trespass_misses"] * ((e["whose"] == ANOTHERS) & (hits < own_hit + 0.5 * stop))
    return harm, missed


def _first_seconds(e: Records, uncached: Columns, held: Columns, prompt_s: Columns) -> Columns:
    wait_s = e["wait_s"] + e["seats_wait_s"]
    lacking = held - e["free_tokens"]
    if lacking.max(initial=0.0) > 0:
        wait_s = wait_s + np.maximum(lacking, 0.0) / np.maximum(e["drain_tokens_per_s"], _MIN_SECONDS)
    own_s = prompt_s + (1.0 + np.floor(uncached / e["step_tokens"])) * e["carry_s"]
    first_s: Columns = e["request_s"] + wait_s + e["first_token_ratio"] * own_s
    return first_s


def _misses(q: Asked, e: Records, p: Asked, times_s: tuple[Columns, ...]) -> tuple[Columns, Columns, Columns | float]:
    """Return the probabilities of a late first token and of slow tokens, and the residents made to miss."""
    times = max(0, min(6, round(math.log2(1.0 / max(p["doubt_fraction"], 0.01)))))
    ttft_s, tpot_s, before_s, after_s = times_s
    promised = q["ttft_s"] < math.inf or q["tpot_s"] < math.inf or q["e2e_s"] < math.inf
    present = [kind for kind in range(CLASSES) if e["residents"][:, kind].any()]
    ratios = np.empty((2 + 2 * len(present), len(e)))
    np.multiply(ttft_s, 1.0 / (q["ttft_s"] if promised else USUAL_TTFT_S), out=ratios[0])
    np.multiply(tpot_s, 1.0 / (q["tpot_s"] if promised else USUAL_TPOT_S), out=ratios[1])
    for place, kind in enumerate(present):
        per_limit = 1.0 / float(p["class_tpot_s"][kind])
        np.multiply(after_s, per_limit, out=ratios[2 + 2 * place])
        np.multiply(before_s, per_limit, out=ratios[3 + 2 * place])
    powered = np.minimum(ratios, _CAPS[: len(ratios)])
    for _ in range(times):
        powered *= powered
    chances = powered[:2] / (1.0 + powered[:2])
    made: Columns | float = 0.0
    if present and ratios[2:].max() > 1.0:
        powered[2:] += (1 << times) * np.maximum(ratios[2:] - 1.0, 0.0)
    for place, kind in enumerate(present):
        added = powered[2 + 2 * place] - powered[3 + 2 * place]
        limit_s = float(p["class_e2e_s"][kind])
        if limit_s < math.inf:
            per_limit = e["resident_output_tokens"] / (np.maximum(e["in_flight"], 1) * limit_s)
            added = added + _length_strain(after_s * per_limit) - _length_strain(before_s * per_limit)
        made = made + float(p["class_weight"][kind]) * (e["residents"][:, kind] * e["decodes"]) * added
    return chances[0], chances[1] * e["decodes"], made


def _length_strain(ratio: Columns) -> Columns:
    """Return the harm to residents at a ratio of end-to-end time to its limit."""
    strained: Columns = np.where(ratio >= 1.0, 1.0 + _LENGTH_POWER * (ratio - 1.0), ratio**_LENGTH_POWER)
    return strained
