"""How long may an endpoint be silent? As long as its answer may take: given up too soon, it is made twice."""

import math
from typing import Final

from penstock.gateway.picking.asked import BodyAsked

_SLACK: Final = 4.0
"""An endpoint that is silent for so many times what was predicted is given up."""
_LEAST_TRY_S, _MOST_TRY_S = 10.0, 3600.0
_LEAST_TOKEN_TRY_S: Final = 1.0
"""An answer that is not streamed is waited for at least so long per token."""


def try_s(asked: BodyAsked, ttft_s: float, tpot_s: float) -> float:
    """Return the seconds; an answer that is not streamed is silence until its last token."""
    tokens = 0.0 if asked.stream else float(asked.limit_tokens or math.inf)
    whole_s = tokens * tpot_s if tokens else 0.0
    least_s = max(_LEAST_TRY_S, tokens * _LEAST_TOKEN_TRY_S)
    return min(_MOST_TRY_S, max(least_s, _SLACK * (ttft_s + whole_s)))
