"""Prepares a second ranking for a request for which the policy chose no endpoint.

The second ranking uses a shorter estimated length, or accepts that the response is late.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.gateway.picker.predicted_latency import IdleEndpoints
from penstock.routing.records import Records


def shorten(request: Records, endpoints: Records, hits: Records) -> bool:
    """Reduce a request's estimated length until the request fits the largest endpoint.

    Return whether the length changed. A request's length in tokens is estimated from its number of bytes. Images, and
    scripts whose characters JSON escapes, have far fewer tokens than this estimate. A request that seems too long is
    therefore sent to an engine, which counts the tokens and rejects the request if necessary.
    """
    record, up = request[0], endpoints[_serving(request, endpoints)]
    room = int(np.minimum(up["max_context_tokens"], up["kv_tokens"]).max(initial=0))
    limit, before = int(record["output_limit_tokens"]), record.copy()
    record["input_tokens"] = max(1, min(record["input_tokens"], room - max(1, limit)))
    record["expected_output_tokens"] = max(1, min(record["expected_output_tokens"], room - record["input_tokens"]))
    np.minimum(hits, record["input_tokens"] - 1, out=hits)
    return bool(record != before)


def late_candidates(request: Records, endpoints: Records, hits: Records, idle: IdleEndpoints) -> Records | None:
    """Return endpoint records with which to rank a late request again, or None if the request must be shed.

    A late request is served if shedding it would protect no other request. If some endpoints are idle, only idle
    endpoints accept the late request, because a retry would find no better endpoint. If no endpoint is idle, all
    endpoints accept the late request under two conditions. First, no endpoint could meet the TTFT target even when
    idle. Second, at some endpoint that meets the TPOT target, the queueing time is shorter than the TTFT when idle.
    """
    serving = _serving(request, endpoints)
    unloaded = serving & (endpoints["in_flight"] == 0) & (endpoints["running"] + endpoints["waiting"] == 0)
    if unloaded.any():
        candidates = endpoints.copy()
        candidates["accepts"][~unloaded] = 0
        return candidates
    alone_s = idle.predict_latency(request, endpoints, hits).ttft_s
    short_queue = np.isfinite(alone_s) & (endpoints["wait_s"] + endpoints["seats_wait_s"] < alone_s)
    in_time = endpoints["tpot_now_s"] <= request["tpot_s"]
    late_anyway = np.all(alone_s[serving] > request["ttft_s"]) and np.any(serving & short_queue & in_time)
    return endpoints if late_anyway else None


def _serving(request: Records, endpoints: Records) -> NDArray[np.bool_]:
    serving: NDArray[np.bool_] = (endpoints["accepts"] != 0) & ((endpoints["serves"] & request["model"]) != 0)
    return serving
