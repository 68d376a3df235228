"""When should who was shed come back? When an endpoint would keep the promise, and it is one's turn."""

import math
from typing import Final

import numpy as np

from penstock.routing.endpoint import USUAL_TPOT_S, USUAL_TTFT_S, Records

_LEAST_S, _MOST_S = 1, 60
"""HTTP says whole seconds; and beyond a minute nobody knows."""
_LEAST_LIFE_S: Final = 1e-3
_HALF_LIFE_S: Final = 10.0


class SheddableCrowd:
    """How many that may be shed come for each that is let in; what was ten seconds ago counts half."""

    def __init__(self) -> None:
        self._came = self._let_in = 0.0
        self._since_s = 0.0

    def came(self, now_s: float, *, let_in: bool) -> None:
        """Count one."""
        kept = 0.5 ** (max(0.0, now_s - self._since_s) / _HALF_LIFE_S)
        self._came, self._let_in, self._since_s = kept * self._came + 1, kept * self._let_in + let_in, now_s

    @property
    def for_each(self) -> float:
        """How many came for each that was let in; as if it were one where it was none."""
        return self._came / max(1.0, self._let_in)


def retry_s(request: Records, endpoints: Records, hits: Records, crowd: SheddableCrowd) -> int:
    """Return the seconds: as long as one endpoint takes to have room, for each that comes before one is let in."""
    soonest_s = max(_LEAST_S, room_s(request, endpoints, hits))
    return min(_MOST_S, math.ceil(soonest_s * crowd.for_each))


def room_s(request: Records, endpoints: Records, hits: Records) -> float:
    """Predict when an endpoint would keep the promise if nothing came meanwhile, of the one that is soonest there.

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
    return float(np.maximum(first_s - due_s, leave_s).min(initial=_MOST_S))


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
