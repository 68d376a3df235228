"""When should who was shed come back? When the first endpoint would keep the promise, if nothing came meanwhile."""

import math
from typing import Final

import numpy as np

from penstock.routing.endpoint import USUAL_TPOT_S, USUAL_TTFT_S, Records

_LEAST_S, _MOST_S = 1, 60
"""HTTP says whole seconds; and beyond a minute nobody knows."""
_LEAST_LIFE_S: Final = 1e-3


def retry_s(request: Records, endpoints: Records, hits: Records) -> int:
    """Return the seconds, of the endpoint that is soonest there.

    A first token is late by what is ahead of it: prompts, seats, room in the cache. That much time has to pass. Tokens
    that are too slow, or an answer that ends too late, take that as large a part of those already there has ended.
    """
    asked, answer = request[0], int(request["expected_output_tokens"][0])
    held = (endpoints["accepts"] != 0) & ((endpoints["serves"] & asked["model"]) != 0)
    held &= asked["input_tokens"] + max(asked["output_limit_tokens"], answer) <= endpoints["max_context_tokens"]
    held &= asked["input_tokens"] + answer <= endpoints["kv_tokens"]
    able = endpoints[held]
    first_s, tpot_s = predicted_s(request, able, hits[held])
    promised = min(asked["ttft_s"], asked["tpot_s"], asked["e2e_s"]) < math.inf
    due_s, pace_s = (asked["ttft_s"], asked["tpot_s"]) if promised else (USUAL_TTFT_S, USUAL_TPOT_S)
    slow = np.maximum(tpot_s / pace_s, (first_s + answer * tpot_s) / asked["e2e_s"])
    leave_s = _life_s(answer, able) * (1.0 - 1.0 / np.maximum(slow, 1.0))
    late_s = float(np.maximum(first_s - due_s, leave_s).min(initial=_MOST_S))
    return min(_MOST_S, max(_LEAST_S, math.ceil(late_s)))


def predicted_s(request: Records, endpoints: Records, hits: Records) -> tuple[Records, Records]:
    """Predict first tokens and seconds per token at every endpoint, as `routing.times` does of one.

    Not its machine code: that is compiled for what every request needs, and few are shed.
    """
    asked, e = request[0], endpoints
    prompt, answer = float(asked["input_tokens"]), float(asked["expected_output_tokens"])
    uncached = prompt - hits
    held = uncached + 0.5 * answer * e["decodes"]
    more_s = (e["sequence_s"] + held * e["context_token_s"]) * e["decode_correction"]
    tpot_s = e["tpot_now_s"] + more_s * e["stretch"] + e["swing_s"] / math.sqrt(max(1.0, answer))
    pairs = 0.5 * (prompt * prompt - hits.astype(float) ** 2)
    prompt_s = (uncached * e["prompt_token_s"] + pairs * e["prompt_pair_s"]) * e["prefill_correction"]
    steps = 1.0 + np.floor(uncached / np.maximum(e["step_tokens"], 1))
    room_s = np.maximum(held - e["free_tokens"], 0.0) / np.maximum(e["drain_tokens_per_s"], 1.0)
    wait_s = e["wait_s"] + e["seats_wait_s"] + room_s
    return e["request_s"] + wait_s + e["first_token_ratio"] * (prompt_s + steps * e["carry_s"]), tpot_s


def _life_s(answer: int, endpoints: Records) -> Records:
    """How long an answer takes there: as those that are there are expected to, as this one where there are none."""
    known = endpoints["in_flight"] > 0
    mean = endpoints["resident_output_tokens"] / np.maximum(endpoints["in_flight"], 1)
    tokens = np.where(known, mean, answer)
    life_s: Records = np.maximum(tokens * endpoints["tpot_now_s"], _LEAST_LIFE_S)
    return life_s
