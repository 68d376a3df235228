"""Retries a request that no endpoint can take: with a shorter estimated length, or although it will be late."""

import numpy as np
from numpy.typing import NDArray

from penstock.routing.records import Record, Records


def shorten(request: Records, endpoints: Records, hits: Records) -> bool:
    """Shorten a request whose estimated length fits no endpoint. Return whether it changed.

    The estimate is from bytes, and bytes are not tokens. An image, or a script that JSON escapes, has far fewer tokens
    than its bytes suggest. The engine with the most room counts the tokens, and rejects a request that is too long.
    """
    asked, up = request[0], endpoints[_serving(request, endpoints)]
    room = int(np.minimum(up["max_context_tokens"], up["kv_tokens"]).max(initial=0))
    limit, before = int(asked["output_limit_tokens"]), asked.copy()
    asked["input_tokens"] = max(1, min(asked["input_tokens"], room - max(1, limit)))
    asked["expected_output_tokens"] = max(1, min(asked["expected_output_tokens"], room - asked["input_tokens"]))
    np.minimum(hits, asked["input_tokens"] - 1, out=hits)
    return bool(asked != before)


def late_candidates(request: Records, endpoints: Records) -> Records | None:
    """Return endpoints that may serve a request late because shedding it protects no other; None: shed it.

    If some endpoints are idle, only those accept it: shedding would gain nothing there, now or at any retry. Otherwise
    all accept it if none could meet the TTFT target even when idle, and one of them has a queue shorter than that TTFT
    and meets the TPOT target.
    """
    serving = _serving(request, endpoints)
    idle = serving & (endpoints["in_flight"] == 0) & (endpoints["running"] + endpoints["waiting"] == 0)
    if idle.any():
        free = endpoints.copy()
        free["accepts"][~idle] = 0
        return free
    return endpoints if _late_by_itself(request[0], endpoints[serving]) else None


def _late_by_itself(asked: Record, up: Records) -> bool:
    tokens = float(asked["input_tokens"])
    prompt_s = tokens * up["prompt_token_s"] + 0.5 * tokens * tokens * up["prompt_pair_s"]
    alone_s = up["request_s"] + up["first_token_ratio"] * prompt_s * up["prefill_correction"]
    room = (up["wait_s"] + up["seats_wait_s"] < alone_s) & (up["tpot_now_s"] <= asked["tpot_s"])
    return bool(np.all(alone_s > asked["ttft_s"]) and np.any(room))


def _serving(request: Records, endpoints: Records) -> NDArray[np.bool_]:
    serving: NDArray[np.bool_] = (endpoints["accepts"] != 0) & ((endpoints["serves"] & request[0]["model"]) != 0)
    return serving
