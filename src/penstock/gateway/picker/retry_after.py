"""Computes Retry-After for shed requests."""

import math
from typing import Final

import numpy as np

from penstock.routing.numpy_policy import able_columns, times_columns
from penstock.routing.records import USUAL_TPOT_S, USUAL_TTFT_S, Records

_MIN_S, _MAX_S = 1, 60
"""Bounds of Retry-After in seconds. HTTP wants whole seconds; a forecast beyond a minute means little."""
_MIN_LIFE_S: Final = 1e-3
_HALF_LIFE_S: Final = 10.0


class ShedRatio:
    """Sheddable requests that arrive per admitted one, with a half-life of ten seconds."""

    def __init__(self) -> None:
        self._arrivals = self._admitted = 0.0
        self._since_s = 0.0

    def add(self, now_s: float, *, admitted: bool) -> None:
        """Count one sheddable request."""
        remaining = 0.5 ** (max(0.0, now_s - self._since_s) / _HALF_LIFE_S)
        self._arrivals, self._admitted, self._since_s = (
            remaining * self._arrivals + 1,
            remaining * self._admitted + admitted,
            now_s,
        )

    @property
    def arrivals_per_admission(self) -> float:
        """Arrivals per admitted request; the admitted count is at least 1."""
        return self._arrivals / max(1.0, self._admitted)


def retry_s(request: Records, endpoints: Records, hits: Records, shed_ratio: ShedRatio) -> int:
    """Return Retry-After in seconds: the time until an endpoint has room, times arrivals per admitted request."""
    soonest_s = max(_MIN_S, room_s(request, endpoints, hits))
    return min(_MAX_S, math.ceil(soonest_s * shed_ratio.arrivals_per_admission))


def room_s(request: Records, endpoints: Records, hits: Records) -> float:
    """Predict seconds until the first endpoint could meet the SLO if no more requests arrived.

    A first token is late because of the prefills, batch slots and KV cache space ahead of it. That delay has to pass.
    If TPOT or the end-to-end time is too long by a factor s, a fraction 1 - 1/s of the resident requests has to finish
    first.
    """
    asked, answer = request[0], int(request["expected_output_tokens"][0])
    held = able_columns(asked, endpoints)
    able = endpoints[held]
    first_s, tpot_s, *_ = times_columns(asked, able, hits[held])
    promised = min(asked["ttft_s"], asked["tpot_s"], asked["e2e_s"]) < math.inf
    due_s, pace_s = (asked["ttft_s"], asked["tpot_s"]) if promised else (USUAL_TTFT_S, USUAL_TPOT_S)
    slow = np.maximum(tpot_s / pace_s, (first_s + answer * tpot_s) / asked["e2e_s"])
    leave_s = _life_s(answer, able) * (1.0 - 1.0 / np.maximum(slow, 1.0))
    return float(np.maximum(first_s - due_s, leave_s).min(initial=_MAX_S))


def _life_s(answer: int, endpoints: Records) -> Records:
    """Return the seconds a response takes per endpoint.

    Uses the expected mean length of requests in flight there, or this request's length if there are none.
    """
    known = endpoints["in_flight"] > 0
    mean = endpoints["resident_output_tokens"] / np.maximum(endpoints["in_flight"], 1)
    tokens = np.where(known, mean, answer)
    life_s: Records = np.maximum(tokens * endpoints["tpot_now_s"], _MIN_LIFE_S)
    return life_s
