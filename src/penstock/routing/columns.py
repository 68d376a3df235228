"""How does the policy run without a compiler? The same formulas on numpy columns, held equal to `harm` by tests.

For gateways that would rather not load numba: some 40 microseconds over 100 endpoints instead of 3.
"""

import numpy as np

from penstock.routing.endpoint import ANOTHERS, CLASSES, OWN, REJECTED, USUAL_TPOT_S, USUAL_TTFT_S, Record, Records

_HOPELESS = 1e3
_LEAST_SECONDS = 1.0


def pick_columns(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Return what `harm.pick` returns."""
    q, p = request[0], parameters[0]
    able = np.flatnonzero(_holds(q, endpoints))
    if not able.size:
        return REJECTED
    whole = able.size == len(endpoints)
    e, cached = (endpoints, hits) if whole else (endpoints[able], hits[able])
    harm, missed = _harm(q, e, cached, p)
    # The first of the least, counted from where this request begins to look.
    begin, up = int(q["turn"]) % len(endpoints), endpoints["accepts"] != 0
    if not up[begin]:
        begin = int(np.flatnonzero(up)[int(q["turn"]) // len(endpoints) % int(up.sum())])
    shift = int(np.searchsorted(able, begin)) % able.size
    best = (int(np.argmin(np.roll(harm, -shift))) + shift) % able.size if shift else int(np.argmin(harm))
    if q["sheddable"] and missed[best] > p["shed_fraction"]:
        return REJECTED
    return int(able[best])


def _holds(q: Record, e: Records) -> Records:
    longest = q["input_tokens"] + max(q["output_limit_tokens"], q["expected_output_tokens"])
    expected = q["input_tokens"] + q["expected_output_tokens"] * e["decodes"]
    up: Records = (e["accepts"] != 0) & ((e["serves"] & q["model"]) != 0)
    able: Records = up & (longest <= e["max_context_tokens"]) & (expected <= e["kv_tokens"])
    return able


def _harm(q: Record, e: Records, hits: Records, p: Record) -> tuple[Records, Records]:
    times = max(0, min(6, round(np.log2(1.0 / max(float(p["doubt_fraction"]), 0.01)))))
    stop, answer = float(q["input_tokens"]), float(q["expected_output_tokens"])
    uncached = stop - hits
    pairs = 0.5 * (stop * stop - hits.astype(np.float64) ** 2)
    prompt_s = (uncached * e["prompt_token_s"] + pairs * e["prompt_pair_s"]) * e["prefill_correction"]
    held = uncached + 0.5 * answer * e["decodes"]
    steps = 1.0 + np.floor(uncached / e["step_tokens"])
    wait_s = e["wait_s"] + e["seats_wait_s"]
    lacking = held - e["free_tokens"]
    if (lacking > 0).any():
        wait_s = wait_s + np.maximum(lacking, 0.0) / np.maximum(e["drain_tokens_per_s"], _LEAST_SECONDS)
    own_s = prompt_s + steps * e["carry_s"]
    ttft_s = e["request_s"] + wait_s + e["first_token_ratio"] * own_s
    more_s = (e["sequence_s"] + held * e["context_token_s"]) * e["decode_correction"]
    chance_s = e["swing_s"] * (1.0 / np.sqrt(max(1.0, answer)))
    tpot_s = e["tpot_now_s"] + more_s * e["stretch"] + chance_s
    promised = q["ttft_s"] < np.inf or q["tpot_s"] < np.inf
    late = _chance(ttft_s * (1.0 / (q["ttft_s"] if promised else USUAL_TTFT_S)), times)
    slow = _chance(tpot_s * (1.0 / (q["tpot_s"] if promised else USUAL_TPOT_S)), times)
    slow = slow * e["decodes"]
    missed = late + slow - late * slow
    harm = q["weight"] * missed
    if e["saved_usd_per_s"].any():
        token_s = e["sequence_s"] + (stop + 0.5 * answer) * e["context_token_s"]
        work_s = prompt_s + answer * token_s * e["decode_correction"] * e["decodes"]
        harm = harm + work_s * e["saved_usd_per_s"] * (1.0 / p["miss_usd"])
    before_s = e["tpot_now_s"]
    after_s = before_s + 0.5 * (tpot_s - before_s - chance_s) + prompt_s * e["stall_per_prompt_s"]
    for kind in range(CLASSES):
        residents = e["residents"][:, kind] * e["decodes"]
        limit_s = float(p["class_tpot_s"][kind])
        if np.isfinite(limit_s) and residents.any():
            added = _strain(after_s * (1.0 / limit_s), times) - _strain(before_s * (1.0 / limit_s), times)
            harm = harm + p["class_weight"][kind] * residents * added
    room = (1.0 - p["full_tokens_fraction"]) * e["kv_tokens"]
    over = held + room - e["free_tokens"]
    if (over > 0).any():
        least = 1e-3 * e["kv_tokens"]
        harm = harm + np.minimum(held, np.maximum(over, 0.0)) / np.maximum(room, least)
    if p["pickers"] > 1.0:
        own_hit = hits[e["whose"] == OWN].max(initial=0)
        harm = harm + p["trespass_misses"] * ((e["whose"] == ANOTHERS) & (hits < own_hit + 0.5 * stop))
    return harm, missed


def _chance(ratio: Records, times: int) -> Records:
    powered = np.minimum(ratio, _HOPELESS)
    for _ in range(times):
        powered = powered * powered
    chance: Records = powered / (1.0 + powered)
    return chance


def _strain(ratio: Records, times: int) -> Records:
    powered = np.minimum(ratio, 1.0)
    for _ in range(times):
        powered = powered * powered
    strain: Records = powered + (1 << times) * np.maximum(ratio - 1.0, 0.0)
    return strain
