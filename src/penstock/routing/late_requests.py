"""Decides about requests for which the policy found no endpoint, on plain records.

`gateway.picker.late_fallback` describes the rules. A test holds both equal.
"""

import math

from penstock.compiled.interface import exported_short
from penstock.compiled.marks import compiled
from penstock.routing.admission import retry_after_s
from penstock.routing.endpoint_updates import clear_own_counts, refresh
from penstock.routing.harm import holds
from penstock.routing.latency import share_of_chance, times_of
from penstock.routing.picker_calls import PickerTable
from penstock.routing.records import Record, Records

SHED, ONLY_UNLOADED, ANY_ENDPOINT = range(3)
"""What to do with a late request: shed it, rank the endpoints without load, or rank all endpoints again."""


@exported_short
def retry_after(t: PickerTable) -> float:
    """Return the seconds after which the client of a shed request should return."""
    return retry_after_s(t.request, t.endpoints, t.hits, t.parameters)


@exported_short
def shorten_request(t: PickerTable) -> int:
    """Reduce a request's estimated length until it fits the largest endpoint. Return 1 if the length changed, else 0.

    The length is estimated from bytes. The engine counts the tokens, and rejects the request if necessary.
    """
    q, room = t.request[0], 0
    for index in range(len(t.endpoints)):
        e = t.endpoints[index]
        if _serves(q, e):
            room = max(room, min(e["max_context_tokens"], e["kv_tokens"]))
    input_tokens, output_tokens = q["input_tokens"], q["expected_output_tokens"]
    q["input_tokens"] = max(1, min(input_tokens, room - max(1, q["output_limit_tokens"])))
    q["expected_output_tokens"] = max(1, min(output_tokens, room - q["input_tokens"]))
    for index in range(len(t.hits)):
        t.hits[index] = min(t.hits[index], q["input_tokens"] - 1)
    return int(q["input_tokens"] != input_tokens or q["expected_output_tokens"] != output_tokens)


@exported_short
def late_choice(t: PickerTable) -> int:
    """Return SHED, ONLY_UNLOADED or ANY_ENDPOINT for a request that would be shed.

    The endpoints of the table must be a copy. With ONLY_UNLOADED, only endpoints without load accept the request
    afterwards. With any other result, the copy is of no further use.
    """
    q, unloaded = t.request[0], 0
    for index in range(len(t.endpoints)):
        unloaded += _is_unloaded(q, t.endpoints[index])
    if unloaded > 0:
        for index in range(len(t.endpoints)):
            t.endpoints[index]["accepts"] = int(_is_unloaded(q, t.endpoints[index]))
        return ONLY_UNLOADED
    return ANY_ENDPOINT if _late_anyway(q, t.endpoints, t.hits, t.parameters) else SHED


@compiled
def _late_anyway(q: Record, endpoints: Records, hits: Records, parameters: Records) -> bool:
    """Return whether no endpoint could meet the TTFT limit even if it was idle, and some queue is short."""
    short_queue = False
    for index in range(len(endpoints)):
        e = endpoints[index]
        if _serves(q, e):
            wait_s, in_time = e["wait_s"] + e["seats_wait_s"], e["tpot_now_s"] <= q["tpot_s"]
            _clear_load(e)
            refresh(endpoints, index, 0.0, parameters)
            alone_s = math.inf
            if holds(q, e):
                alone_s, _, _ = times_of(q, e, hits[index], share_of_chance(q))
                short_queue = short_queue or (in_time and wait_s < alone_s)
            if alone_s <= q["ttft_s"]:
                return False
    return short_queue


@compiled
def _serves(q: Record, e: Record) -> bool:
    return bool(e["accepts"] != 0 and (e["serves"] & q["model"]) != 0)


@compiled
def _is_unloaded(q: Record, e: Record) -> bool:
    return bool(_serves(q, e) and e["in_flight"] == 0 and e["running"] + e["waiting"] == 0)


@compiled
def _clear_load(e: Record) -> None:
    clear_own_counts(e)
    e["reported_s"] = -math.inf
    e["running"] = e["waiting"] = e["kv_used_tokens"] = 0
    e["sent_since_report"] = e["in_flight_then"] = e["prefilling_then"] = e["resident_tokens_then"] = 0
    e["prompt_load_fraction"] = e["prompt_squares_s"] = 0.0
