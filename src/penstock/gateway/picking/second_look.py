"""What is looked at again where no endpoint was named? An estimated length, and whose fault it is to be late."""

import numpy as np

from penstock.routing.endpoint import Records


def shortened(request: Records, endpoints: Records, hits: Records) -> bool:
    """Take a request as just fitting where its estimated length fits nowhere: bytes are not tokens.

    An image, or a script that JSON escapes, has far fewer tokens than its bytes say; the engine with the most room
    counts them, and refuses what is too long.
    """
    asked, up = request[0], _able(request, endpoints)
    room = int(np.minimum(up["max_context_tokens"], up["kv_tokens"]).max(initial=0))
    limit, before = int(asked["output_limit_tokens"]), asked.copy()
    asked["input_tokens"] = max(1, min(asked["input_tokens"], room - max(1, limit)))
    asked["expected_output_tokens"] = max(1, min(asked["expected_output_tokens"], room - asked["input_tokens"]))
    np.minimum(hits, asked["input_tokens"] - 1, out=hits)
    return bool(asked != before)


def late_by_itself(request: Records, endpoints: Records) -> bool:
    """Whether no endpoint keeps the first token's promise even alone, while one has less ahead of it than it takes.

    To shed such a request protects nobody, and it would be refused whenever it comes again, of an idle fleet too.
    """
    asked, up = request[0], _able(request, endpoints)
    tokens = float(asked["input_tokens"])
    prompt_s = tokens * up["prompt_token_s"] + 0.5 * tokens * tokens * up["prompt_pair_s"]
    alone_s = up["request_s"] + up["first_token_ratio"] * prompt_s * up["prefill_correction"]
    room = (up["wait_s"] + up["seats_wait_s"] < alone_s) & (up["tpot_now_s"] <= asked["tpot_s"])
    return bool(np.all(alone_s > asked["ttft_s"]) and np.any(room))


def _able(request: Records, endpoints: Records) -> Records:
    able: Records = endpoints[(endpoints["accepts"] != 0) & ((endpoints["serves"] & request[0]["model"]) != 0)]
    return able
