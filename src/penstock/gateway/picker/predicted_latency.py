"""Predicts a request's latency at every endpoint, either at the endpoint's present load or when the endpoint is idle.

The predictions use the functions of the routing policy.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.gateway.picker.compiled_policy import CompiledPolicy
from penstock.routing import picker_calls
from penstock.routing.picker_calls import LatencyTable, picker_table
from penstock.routing.records import Records

_CORRECTIONS = ("prefill_correction", "decode_correction", "kv_tokens")
"""Fields in which the record of an idle endpoint can differ from the endpoint's initial record."""


class PredictedLatency(NamedTuple):
    """Predicted TTFT and TPOT at each endpoint, in seconds.

    TTFT and TPOT are infinite at an endpoint that does not serve the requested model or is too small for the request.
    """

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]


def predict_latency(request: Records, endpoints: Records, hits: Records) -> PredictedLatency:
    """Predict a request's latency at every endpoint, at the load that the endpoint's record states."""
    latency = PredictedLatency(np.empty(len(endpoints)), np.empty(len(endpoints)))
    picker_calls.predict_latency(LatencyTable(request, endpoints, hits, *latency))
    return latency


class IdleEndpoints:
    """Records of all endpoints without any load."""

    def __init__(self, initial: Records, parameters: Records) -> None:
        self._records = initial.copy()
        self._policy = CompiledPolicy(picker_table(endpoints=self._records, parameters=parameters))
        self._refresh(range(len(initial)))

    def predict_latency(self, request: Records, endpoints: Records, hits: Records) -> PredictedLatency:
        """Predict a request's latency at every endpoint if the endpoint had no other request.

        The latency corrections and KV cache sizes come from the records `endpoints`.
        """
        changed = np.zeros(len(endpoints), bool)
        for name in _CORRECTIONS:
            changed |= self._records[name] != endpoints[name]
            self._records[name] = endpoints[name]
        self._refresh(np.flatnonzero(changed).tolist())
        return predict_latency(request, self._records, hits)

    def _refresh(self, indices: "range | list[int]") -> None:
        for index in indices:
            self._policy.refresh(index, 0.0)
