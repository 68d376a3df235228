"""Computes Retry-After for shed requests."""

import math
from typing import Final

import numpy as np

from penstock.gateway.picker.decayed_sum import DecayedSum
from penstock.gateway.picker.predicted_latency import predict_latency
from penstock.routing.records import USUAL_TPOT_S, USUAL_TTFT_S, Records

_MIN_S, _MAX_S = 1, 60
"""Minimum and maximum of Retry-After in seconds.

HTTP allows only whole seconds, and forecasts for more than a minute are unreliable.
"""
_MIN_LIFE_S: Final = 1e-3
_HALF_LIFE_S: Final = 10.0


class ShedRatio:
    """Ratio of arriving to admitted sheddable requests.

    The counts of arriving and of admitted requests decay with a half-life of ten seconds.
    """

    def __init__(self) -> None:
        self._arrivals, self._admitted, self._now = DecayedSum(), DecayedSum(), 0.0

    def add(self, now_s: float, *, admitted: bool) -> None:
        """Count one sheddable request that arrives at the time `now_s`."""
        self._now = now_s / _HALF_LIFE_S
        self._arrivals.add(1, self._now)
        self._admitted.add(admitted, self._now)

    @property
    def arrivals_per_admission(self) -> float:
        """Ratio of arriving to admitted requests at the last arrival. An admitted count below 1 is taken as 1."""
        return self._arrivals.at(self._now) / max(1.0, self._admitted.at(self._now))


def retry_s(request: Records, endpoints: Records, hits: Records, shed_ratio: ShedRatio) -> int:
    """Return Retry-After in seconds.

    Retry-After is the predicted time until an endpoint has room, times the ratio of arriving to admitted requests.
    """
    soonest_s = max(_MIN_S, room_s(request, endpoints, hits))
    return min(_MAX_S, math.ceil(soonest_s * shed_ratio.arrivals_per_admission))


def room_s(request: Records, endpoints: Records, hits: Records) -> float:
    """Predict the seconds until some endpoint could meet the request's SLO if no more requests arrived.

    A first token is late because other requests are ahead in prefill, in batch slots or in the KV cache. The wait for
    TTFT is therefore the time by which the predicted TTFT exceeds its target. If TPOT or the end-to-end time is too
    long by a factor s, a fraction 1 - 1/s of the endpoint's resident requests has to finish first.
    """
    record, output_tokens = request[0], int(request["expected_output_tokens"][0])
    latency = predict_latency(request, endpoints, hits)
    able = np.isfinite(latency.ttft_s)
    ttft_s, tpot_s = latency.ttft_s[able], latency.tpot_s[able]
    has_slo = min(record["ttft_s"], record["tpot_s"], record["e2e_s"]) < math.inf
    max_ttft_s, max_tpot_s = (record["ttft_s"], record["tpot_s"]) if has_slo else (USUAL_TTFT_S, USUAL_TPOT_S)
    slowdown = np.maximum(tpot_s / max_tpot_s, (ttft_s + output_tokens * tpot_s) / record["e2e_s"])
    leave_s = _life_s(output_tokens, endpoints[able]) * (1.0 - 1.0 / np.maximum(slowdown, 1.0))
    return float(np.maximum(ttft_s - max_ttft_s, leave_s).min(initial=_MAX_S))


def _life_s(output_tokens: int, endpoints: Records) -> Records:
    """Return the seconds that a response of usual length takes at each endpoint.

    The usual length is the mean expected output of the endpoint's requests in flight. For an endpoint without requests
    in flight, the usual length is `output_tokens`.
    """
    mean = endpoints["resident_output_tokens"] / np.maximum(endpoints["in_flight"], 1)
    tokens = np.where(endpoints["in_flight"] > 0, mean, output_tokens)
    life_s: Records = np.maximum(tokens * endpoints["tpot_now_s"], _MIN_LIFE_S)
    return life_s
