"""Decides whether a request is admitted while the fleet is overloaded, and when a refused client should return.

Harm is the price of admission. A request is worth serving while the harm that it does, including its own probable miss,
is below the weight of its own miss. Above this price, fewer SLOs are missed if the request is not sent.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.class_balance import class_of
from penstock.routing.harm import holds, terms_of
from penstock.routing.latency import times_of
from penstock.routing.records import USUAL_TPOT_S, USUAL_TTFT_S, Record, Records

_MIN_RETRY_S, _MAX_RETRY_S = 1.0, 60.0
"""Limits of Retry-After in seconds. HTTP allows whole seconds, and forecasts beyond a minute are unreliable."""


@compiled
def hold_seconds(ttft_s: float, e2e_s: float) -> float:
    """Return the seconds that a request may be held at the gateway: half of its limit for the first token.

    Held longer, a request would miss its SLO, and would take the place of one that can still meet it.
    """
    return 0.5 * min(ttft_s if ttft_s < math.inf else USUAL_TTFT_S, e2e_s)


@compiled
def retry_after_s(request: Records, endpoints: Records, hits: Records, parameters: Records) -> float:
    """Predict the seconds after which a refused client should return.

    Some endpoint must have room for the request, and the clients that were refused meanwhile return as well. The time
    until an endpoint has room is therefore multiplied by the requests that arrive per admitted request.
    """
    q, p = request[0], parameters[0]
    terms, soonest_s = terms_of(q, p, endpoints, hits), _MAX_RETRY_S
    for index in range(len(endpoints)):
        if holds(q, endpoints[index]):
            soonest_s = min(soonest_s, _room_s(q, endpoints[index], hits[index], terms[3]))
    kind = class_of(q)
    per_admission = max(1.0, p["class_requests"][kind] / max(1.0, p["class_admitted"][kind]))
    return float(min(_MAX_RETRY_S, max(_MIN_RETRY_S, soonest_s) * per_admission))


@compiled
def _room_s(q: Record, e: Record, hit_tokens: int, chance_share: float) -> float:
    """Predict the seconds until an endpoint could meet the SLO of a request if no more requests arrived.

    A first token is late because of requests ahead. If tokens are too slow by a factor, the fraction 1 - 1 / factor of
    the endpoint's requests has to finish first.
    """
    ttft_s, tpot_s, _ = times_of(q, e, hit_tokens, chance_share)
    promised = q["ttft_s"] < math.inf or q["tpot_s"] < math.inf or q["e2e_s"] < math.inf
    slow = tpot_s / (q["tpot_s"] if promised else USUAL_TPOT_S)
    slow = max(1.0, slow, (ttft_s + q["expected_output_tokens"] * tpot_s) / q["e2e_s"])
    answer = float(q["expected_output_tokens"])
    if e["in_flight"] > 0:
        answer = e["resident_output_tokens"] / e["in_flight"]
    limit_s = q["ttft_s"] if promised else USUAL_TTFT_S
    return float(max(ttft_s - limit_s, answer * e["tpot_now_s"] * (1.0 - 1.0 / slow)))
