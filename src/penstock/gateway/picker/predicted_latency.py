"""Predicts a request's latency at every endpoint, at its present load or idle, with the policy's own functions."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.gateway.picker.compiled_policy import CompiledPolicy
from penstock.routing import picker_calls
from penstock.routing.picker_calls import LatencyTable, picker_table
from penstock.routing.records import Records

_CORRECTIONS = ("prefill_correction", "decode_correction", "kv_tokens")
"""Fields of an idle endpoint's record that can differ from its initial record."""


class PredictedLatency(NamedTuple):
    """Predictions per endpoint, in seconds; infinity where the request does not fit or is not served."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]


def predict_latency(request: Records, endpoints: Records, hits: Records) -> PredictedLatency:
    """Predict a request's latency at every endpoint, at the endpoint's present load."""
    latency = PredictedLatency(np.empty(len(endpoints)), np.empty(len(endpoints)))
    picker_calls.predict_latency(LatencyTable(request, endpoints, hits, *latency))
    return latency


class IdleEndpoints:
    """The endpoints as the policy would see them without any load."""

    def __init__(self, initial: Records, parameters: Records) -> None:
        self._records = initial.copy()
        self._policy = CompiledPolicy(picker_table(endpoints=self._records, parameters=parameters))
        self._refresh(range(len(initial)))

    def predict_latency(self, request: Records, endpoints: Records, hits: Records) -> PredictedLatency:
        """Predict a request's latency at every endpoint if it were alone there, with the corrections of `endpoints`."""
        changed = np.zeros(len(endpoints), bool)
        for name in _CORRECTIONS:
            changed |= self._records[name] != endpoints[name]
            self._records[name] = endpoints[name]
        self._refresh(np.flatnonzero(changed).tolist())
        return predict_latency(request, self._records, hits)

    def _refresh(self, indices: "range | list[int]") -> None:
        for index in indices:
            self._policy.refresh(index, 0.0)
