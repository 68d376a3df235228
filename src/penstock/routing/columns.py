"""How does the policy run without a compiler? The same formulas on numpy columns, held equal to `harm` by tests.

For gateways that would rather not load numba. Records are turned into columns once, so that every sum after that runs
over numbers that lie side by side.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.routing.endpoint import (
    ANOTHERS,
    CLASSES,
    ENDPOINT,
    OWN,
    PARAMETERS,
    REJECTED,
    REQUEST,
    USUAL_TPOT_S,
    USUAL_TTFT_S,
    Records,
)

_HOPELESS = 1e3
_LEAST_SECONDS = 1.0
_WORD: Final = 8
_WHOLE: Final = ("accepts", "serves", "whose", "max_context_tokens", "kv_tokens", "decodes", "step_tokens")
_REAL: Final = (
    "saved_usd_per_s",
    "sequence_s",
    "context_token_s",
    "prompt_token_s",
    "prompt_pair_s",
    "first_token_ratio",
    "request_s",
    "prefill_correction",
    "decode_correction",
    "carry_s",
    "tpot_now_s",
    "wait_s",
    "free_tokens",
    "drain_tokens_per_s",
    "seats_wait_s",
    "stall_per_prompt_s",
    "stretch",
    "swing_s",
)
Columns = NDArray[np.float64]
Asked = Mapping[str, Any]


def _places(names: tuple[str, ...]) -> NDArray[np.int64]:
    # An offset is the second of what a field has.
    offsets = {name: told[1] for name, told in (ENDPOINT.fields or {}).items()}
    return np.array([offsets[name] // _WORD for name in names])


_WHOLE_AT, _REAL_AT = _places(_WHOLE), _places(_REAL)
_RESIDENTS_AT: Final = int(_places(("residents",))[0])


def pick_columns(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Return what `harm.pick` returns."""
    q = dict(zip(REQUEST.names or (), request[0].item(), strict=True))
    p = dict(zip(PARAMETERS.names or (), parameters[0].item(), strict=True))
    count = len(endpoints)
    words = endpoints.view(np.int64).reshape(count, ENDPOINT.itemsize // _WORD).T
    whole = dict(zip(_WHOLE, words[_WHOLE_AT], strict=True))
    holding = _holds(q, whole)
    able = np.flatnonzero(holding)
    if not able.size:
        return REJECTED
    e = {**whole, **dict(zip(_REAL, words.view(np.float64)[_REAL_AT], strict=True))}
    residents = words[_RESIDENTS_AT : _RESIDENTS_AT + CLASSES]
    harm, missed = _harm(q, e, hits, residents, p)
    # The first of the least, counted from where this request begins to look.
    begin, up = q["turn"] % count, whole["accepts"] != 0
    if not up[begin]:
        begin = int(np.flatnonzero(up)[q["turn"] // count % int(up.sum())])
    if able.size < count:
        harm = np.where(holding, harm, np.inf)
    if able.size < count and math.isinf(harm.min()):
        best = int(able[np.searchsorted(able, begin) % able.size])
    else:
        best = (int(np.concatenate((harm[begin:], harm[:begin])).argmin()) + begin) % count
    if q["sheddable"] and missed[best] > p["shed_fraction"]:
        return REJECTED
    return best


def _holds(q: Asked, e: Mapping[str, Records]) -> Records:
    longest = q["input_tokens"] + max(q["output_limit_tokens"], q["expected_output_tokens"])
    expected = q["input_tokens"] + q["expected_output_tokens"] * e["decodes"]
    up: Records = (e["accepts"] != 0) & ((e["serves"] & q["model"]) != 0)
    able: Records = up & (longest <= e["max_context_tokens"]) & (expected <= e["kv_tokens"])
    return able


def _harm(q: Asked, e: Mapping[str, Records], hits: Records, residents: Records, p: Asked) -> tuple[Columns, Columns]:
    times = max(0, min(6, round(math.log2(1.0 / max(p["doubt_fraction"], 0.01)))))
    stop, answer = float(q["input_tokens"]), float(q["expected_output_tokens"])
    uncached, decodes = stop - hits, e["decodes"]
    pairs = 0.5 * (stop * stop - hits.astype(np.float64) ** 2)
    prompt_s = (uncached * e["prompt_token_s"] + pairs * e["prompt_pair_s"]) * e["prefill_correction"]
    held = uncached + 0.5 * answer * decodes
    wait_s = e["wait_s"] + e["seats_wait_s"]
    lacking = held - e["free_tokens"]
    if lacking.max() > 0:
        wait_s = wait_s + np.maximum(lacking, 0.0) / np.maximum(e["drain_tokens_per_s"], _LEAST_SECONDS)
    own_s = prompt_s + (1.0 + np.floor(uncached / e["step_tokens"])) * e["carry_s"]
    ttft_s = e["request_s"] + wait_s + e["first_token_ratio"] * own_s
    more_s = (e["sequence_s"] + held * e["context_token_s"]) * e["decode_correction"]
    before_s, chance_s = e["tpot_now_s"], e["swing_s"] * (1.0 / math.sqrt(max(1.0, answer)))
    tpot_s = before_s + more_s * e["stretch"] + chance_s
    promised = q["ttft_s"] < math.inf or q["tpot_s"] < math.inf
    late = _chance(ttft_s * (1.0 / (q["ttft_s"] if promised else USUAL_TTFT_S)), times)
    slow = _chance(tpot_s * (1.0 / (q["tpot_s"] if promised else USUAL_TPOT_S)), times) * decodes
    missed = late + slow - late * slow
    harm = q["weight"] * missed
    if e["saved_usd_per_s"].any():
        token_s = e["sequence_s"] + (stop + 0.5 * answer) * e["context_token_s"]
        work_s = prompt_s + answer * token_s * e["decode_correction"] * decodes
        harm = harm + work_s * e["saved_usd_per_s"] * (1.0 / p["miss_usd"])
    after_s = before_s + (0.5 * (tpot_s - before_s - chance_s) + prompt_s * e["stall_per_prompt_s"])
    made = 0.0
    for kind in range(CLASSES):
        if residents[kind].any():
            per_limit = 1.0 / float(p["class_tpot_s"][kind])
            added = _strain(after_s * per_limit, times) - _strain(before_s * per_limit, times)
            made = made + float(p["class_weight"][kind]) * (residents[kind] * decodes) * added
    harm = harm + made
    room = (1.0 - p["full_tokens_fraction"]) * e["kv_tokens"]
    over = lacking + room
    if over.max() > 0:
        over = held + room - e["free_tokens"]
        least = 1e-3 * e["kv_tokens"]
        harm = harm + np.minimum(held, np.maximum(over, 0.0)) / np.maximum(room, least)
    if p["pickers"] > 1.0:
        own_hit = int(hits[e["whose"] == OWN].max(initial=0))
        harm = harm + p["trespass_misses"] * ((e["whose"] == ANOTHERS) & (hits < own_hit + 0.5 * stop))
    return harm, missed


def _chance(ratio: Columns, times: int) -> Columns:
    powered = np.minimum(ratio, _HOPELESS)
    for _ in range(times):
        powered *= powered
    chance: Columns = powered / (1.0 + powered)
    return chance


def _strain(ratio: Columns, times: int) -> Columns:
    strain = np.minimum(ratio, 1.0)
    for _ in range(times):
        strain *= strain
    if ratio.max() > 1.0:
        strain += (1 << times) * np.maximum(ratio - 1.0, 0.0)
    return strain
