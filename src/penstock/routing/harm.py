"""Picks the endpoint with the least expected harm for a request, including the request's own risk of a missed SLO.

The harm of sending a request to an endpoint is a sum of five terms, in missed SLOs. The first term is the probability
that the request misses its SLO, from the ratio of predicted time to limit. The second term is the predicted effect of
the request's prompt and tokens on the requests already at the endpoint, by class. The third term is the effect on the
requests that will wait behind it, if it waits for KV blocks or a seat. The fourth term is the later cost of a nearly
full KV cache. The fifth term is the dollars that an idle endpoint would save.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.class_balance import class_of
from penstock.routing.latency import (
    decode_seconds,
    first_seconds,
    prompt_seconds,
    queue_seconds,
    share_of_chance,
    times_of,
    token_seconds,
)
from penstock.routing.miss_probability import chance, length_squarings, power, squarings, strain
from penstock.routing.policy_function import policy
from penstock.routing.records import (
    ANOTHERS,
    CLASSES,
    OWN,
    REJECTED,
    SERVE,
    USUAL_TPOT_S,
    USUAL_TTFT_S,
    Record,
    Records,
)

Terms = tuple[int, float, float, float, float, float, float, float, float, float, int]

_UNFAIR = 2.0
"""Price of a class from which on its requests count at an endpoint as if they were there by their share."""
_ABSENT = 3.0
"""Weight of these requests.

Without them, a class that is refused has no requests that others could make to miss. The others then fill every
endpoint beyond its limits, and it stays refused.
"""
_CLEARLY = 1.0 + 1e-9
"""Factor by which a lower bound must exceed the least harm found so far; slightly above 1 to allow for rounding."""


@compiled
def holds(q: Record, e: Record) -> bool:
    """Return whether an endpoint is up, serves the model, and has the KV cache and context window for a request."""
    longest = q["input_tokens"] + max(q["output_limit_tokens"], q["expected_output_tokens"])
    expected = q["input_tokens"] + q["expected_output_tokens"] * e["decodes"]
    return bool(
        e["accepts"] != 0
        and (e["serves"] & q["model"]) != 0
        and longest <= e["max_context_tokens"]
        and expected <= e["kv_tokens"]
    )


@compiled
def first_look(turn: int, endpoints: Records) -> int:
    """Return the endpoint at which the search starts, so that ties are spread over all endpoints that are up."""
    count = len(endpoints)
    begin = turn % count if count > 0 else 0
    if count > 0 and endpoints[begin]["accepts"] == 0:
        up = 0
        for index in range(count):
            up += endpoints[index]["accepts"] != 0
        left = (turn // count) % up if up > 0 else 0
        for index in range(count):
            if endpoints[index]["accepts"] != 0:
                if left == 0:
                    return index
                left -= 1
    return int(begin)


@compiled
def terms_of(q: Record, p: Record, endpoints: Records, hits: Records) -> Terms:
    """Return the terms of a request's harm that are the same at every endpoint, so that they are computed only once."""
    promised = q["ttft_s"] < math.inf or q["tpot_s"] < math.inf or q["e2e_s"] < math.inf
    weight = q["weight"] * p["class_factor"][class_of(q)]
    own_hit = 0
    if p["pickers"] > 1.0:
        for index in range(len(endpoints)):
            if endpoints[index]["whose"] == OWN and hits[index] > own_hit:
                own_hit = hits[index]
    return (
        squarings(p["doubt_fraction"]),
        1.0 / (q["ttft_s"] if promised else USUAL_TTFT_S),
        1.0 / (q["tpot_s"] if promised else USUAL_TPOT_S),
        share_of_chance(q),
        1.0 / p["miss_usd"],
        1.0 - p["full_tokens_fraction"],
        own_hit + 0.5 * q["input_tokens"],
        1.0 / q["e2e_s"],
        weight,
        p["given_up_misses"] * weight,
        length_squarings(p, class_of(q)),
    )


@compiled
def harm_of(q: Record, e: Record, hit_tokens: int, p: Record, terms: Terms, enough: float) -> float:
    """Return the harm of sending a request to an endpoint that can hold it, in expected missed SLOs.

    If a lower bound of the harm clearly exceeds `enough`, return this bound, because the endpoint cannot be the best.
    """
    times, per_ttft, per_tpot, chance_share, per_usd, spare, lent_hit, per_e2e, weight, weakest_given_up, _ = terms
    given_up = e["relative_capacity"] * weakest_given_up
    tpot_s, held = token_seconds(q, e, hit_tokens, chance_share)
    prompt_s = prompt_seconds(e, hit_tokens, q["input_tokens"]) * e["prefill_correction"]
    stall = e["stall_per_prompt_s"]
    if stall == 0.0:  # only others have requests there; their answers count as long as the answer to this request
        stall = e["prefill_correction"] * chance_share * chance_share
    slower_s = 0.5 * (tpot_s - e["tpot_now_s"] - e["swing_s"] * chance_share) + prompt_s * stall
    powered = power(tpot_s * per_tpot, times) * e["decodes"]
    at_least = weight * powered + min(e["strain_per_s"] * slower_s, given_up) * (1.0 + powered)
    if at_least > enough * _CLEARLY * (1.0 + powered):
        return float(at_least / (1.0 + powered))
    slow = powered / (1.0 + powered)
    queue_s = queue_seconds(e, held)
    first_s = first_seconds(q, e, hit_tokens, queue_s, prompt_s)
    begun_s = q["waited_s"] + first_s
    late = chance(begun_s * per_ttft, times)
    missed = late + slow - late * slow
    if per_e2e > 0.0:
        missed += (1.0 - missed) * _ends_late(q, e, first_s, tpot_s, terms)
    harm = weight * missed
    if e["saved_usd_per_s"] > 0.0:
        harm += work_seconds(q, e, prompt_s) * e["saved_usd_per_s"] * per_usd
    harm += _made_to_miss(e, p, slower_s, times, given_up)
    if queue_s > 0.0:
        harm += weight * _made_to_wait(late, begun_s * per_ttft, queue_s / begun_s, times)
    room = spare * e["kv_tokens"]
    if held + room > e["free_tokens"]:
        harm += min(held, held + room - e["free_tokens"]) / max(room, 1e-3 * e["kv_tokens"])
    if e["whose"] == ANOTHERS and hit_tokens < lent_hit:
        harm += p["trespass_misses"]
    return float(harm)


@compiled
def _ends_late(q: Record, e: Record, first_s: float, tpot_s: float, terms: Terms) -> float:
    """Return the probability that the last token is late, because the answer is slower or longer than expected."""
    first_s += q["waited_s"]
    return chance((first_s + q["expected_output_tokens"] * tpot_s * e["decodes"]) * terms[7], terms[10])


@compiled
def _made_to_wait(late: float, ratio: float, queued_share: float, times: int) -> float:
    """Return the number of requests that miss their SLO because a request stands before them in a queue.

    A request in a queue slows no other, but whoever comes next waits longer by the time that it takes. When its turn
    comes, as many requests wait behind it as wait before it now. If each of them is in its position, the chance rises
    by `queued_share` x ratio x slope of the chance, which is 2^times x late x (1 - late). Beyond the limit, those
    behind are late anyway, but the queue takes longer to recover. That costs least where the queue is longest.
    """
    return queued_share * late * ((1 << times) * (1.0 - late) + 1.0 / max(1.0, ratio))


@compiled
def _made_to_miss(e: Record, p: Record, slower_s: float, times: int, given_up: float) -> float:
    """Return the weighted number of requests at an endpoint that miss their SLO if tokens take `slower_s` longer.

    Requests that miss their SLO anyway cannot miss it again. The harm is therefore at most `given_up` plus the rise of
    the probability of a miss. Without this bound, an overloaded fleet levels its load until every request misses.
    """
    harm = _harm_to_residents(e, p, slower_s, times, False)  # noqa: FBT003 - compiled code takes no keywords
    if harm <= given_up:
        return harm
    return min(harm, given_up + _harm_to_residents(e, p, slower_s, times, True))  # noqa: FBT003


@compiled
def _harm_to_residents(e: Record, p: Record, slower_s: float, times: int, bounded: bool) -> float:  # noqa: FBT001
    """Return the weighted sum of the rise of `strain` over an endpoint's requests, or of `chance` if it is bounded.

    Reports show how many requests other pickers have there. Their classes are taken to be those of all requests.
    """
    harm, before_s, after_s = 0.0, e["tpot_now_s"], e["tpot_now_s"] + slower_s
    others = e["others"] if p["pickers"] > 1.0 else 0.0
    for kind in range(CLASSES if e["decodes"] != 0 else 0):
        there = e["residents"][kind] + others * p["class_share"][kind]
        if p["class_price"][kind] > _UNFAIR:
            absent = p["class_share"][kind] * e["in_flight"] * (1.0 - _UNFAIR / p["class_price"][kind])
            there = max(there, _ABSENT * absent)
        if there > 0.0:
            there *= p["class_weight"][kind] * p["class_factor"][kind]
            per_limit = 1.0 / p["class_tpot_s"][kind]
            harm += there * _rise(before_s * per_limit, after_s * per_limit, times, bounded)
            if p["class_e2e_s"][kind] < math.inf:
                per_limit = _resident_tokens(e, p, kind) / p["class_e2e_s"][kind]
                harm += there * _rise(before_s * per_limit, after_s * per_limit, length_squarings(p, kind), bounded)
    return harm


@compiled
def _rise(before: float, after: float, times: int, bounded: bool) -> float:  # noqa: FBT001
    """Return the rise of `strain`, or of `chance` if it is bounded, between two ratios of time to limit."""
    if bounded:
        return chance(after, times) - chance(before, times)
    return strain(after, times) - strain(before, times)


@compiled
def _resident_tokens(e: Record, p: Record, kind: int) -> float:
    """Return the mean answer of a class at an endpoint: of the residents if all are of this class, or of the class."""
    if 0 < e["residents"][kind] == e["in_flight"]:
        return float(e["resident_output_tokens"] / e["in_flight"])
    return float(p["class_output_tokens"][kind])


@compiled
def work_seconds(q: Record, e: Record, prompt_s: float) -> float:
    """Return the seconds of an endpoint's time that a request uses for itself, independent of the other requests.

    The part of a step that all requests share is not counted, so that dollars favour cheaper accelerators and never a
    fuller endpoint.
    """
    context = q["input_tokens"] + 0.5 * q["expected_output_tokens"]
    token_s = e["sequence_s"] + context * e["context_token_s"]
    return float(prompt_s + q["expected_output_tokens"] * token_s * e["decode_correction"] * e["decodes"])


@policy
def pick(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Return the endpoint of least expected harm, or REJECTED if none can hold the request or it must be shed."""
    q, p = request[0], parameters[0]
    count = len(endpoints)
    terms = terms_of(q, p, endpoints, hits)
    best, least = REJECTED, math.inf
    index = first_look(q["turn"], endpoints)
    for _ in range(count):
        e = endpoints[index]
        if holds(q, e):
            harm = harm_of(q, e, hits[index], p, terms, least)
            if harm < least or best == REJECTED:
                best, least = index, harm
        index += 1
        if index == count:
            index = 0
    return _settle(q, p, endpoints, hits, terms, best, least)


@compiled
def _settle(q: Record, p: Record, endpoints: Records, hits: Records, terms: Terms, best: int, least: float) -> int:
    """Return the endpoint of least harm, the one that all pickers give up, or REJECTED if the request must be shed."""
    if best == REJECTED:
        return REJECTED
    if q["sheddable"] != SERVE:
        if is_admitted(q, endpoints[best], hits[best], p, terms):
            return best
        return _best_admitted(q, p, endpoints, hits, terms)
    dear = p["pickers"] > 1.0 and least > terms[9]  # seldom, so that the price is not computed at every pick
    if dear and price_of(q, endpoints[best], hits[best], p, terms) > p["given_up_misses"]:
        return _given_up_by_all(q, endpoints, p, best)
    return best


@compiled
def _best_admitted(q: Record, p: Record, endpoints: Records, hits: Records, terms: Terms) -> int:
    """Return the endpoint of least harm among those where a request may be admitted, or REJECTED.

    The endpoint of least harm of all may be one that is given up, where the request would miss its SLO. Other pickers'
    endpoints are left out, because each picker would send them what its own cannot take.
    """
    best, least = REJECTED, math.inf
    for index in range(len(endpoints)):
        e = endpoints[index]
        trespass = e["whose"] == ANOTHERS and hits[index] < terms[6]
        if not trespass and holds(q, e) and misses(q, e, hits[index], terms) <= p["shed_fraction"]:
            price = price_of(q, e, hits[index], p, terms)
            if price < least and price <= p["admission_misses"]:
                best, least = index, price
    return int(best)


@compiled
def _given_up_by_all(q: Record, endpoints: Records, p: Record, otherwise: int) -> int:
    """Return the endpoint with the slowest step by its last report, or `otherwise` if no endpoint has reported lately.

    All pickers see the same reports, so in overload all of them give up this endpoint. If each of them chose by its own
    counts and corrections, each would give up another endpoint.
    """
    slowest_s, best = -1.0, otherwise
    for index in range(len(endpoints)):
        e = endpoints[index]
        if q["now_s"] - e["reported_s"] <= p["stale_s"] and holds(q, e):
            step_s = decode_seconds(e, float(e["running"] + e["waiting"]), float(e["kv_used_tokens"]))
            if step_s > slowest_s:
                slowest_s, best = step_s, index
    return int(best)


@compiled
def is_admitted(q: Record, e: Record, hit_tokens: int, p: Record, terms: Terms) -> bool:
    """Return whether a request probably meets its SLO at an endpoint, and does little enough harm there."""
    if misses(q, e, hit_tokens, terms) > p["shed_fraction"]:
        return False
    return bool(price_of(q, e, hit_tokens, p, terms) <= p["admission_misses"])


@compiled
def price_of(q: Record, e: Record, hit_tokens: int, p: Record, terms: Terms) -> float:
    """Return the harm of serving a request at an endpoint, in misses of its own.

    Another picker's endpoint costs no more than the picker's own.
    """
    harm = harm_of(q, e, hit_tokens, p, terms, math.inf)
    if e["whose"] == ANOTHERS and hit_tokens < terms[6]:
        harm -= p["trespass_misses"]
    return harm / max(terms[8], 1e-9)


@compiled
def misses(q: Record, e: Record, hit_tokens: int, terms: Terms) -> float:
    """Return the probability that a request misses its SLO at an endpoint."""
    ttft_s, tpot_s, _ = times_of(q, e, hit_tokens, terms[3])
    late = chance((q["waited_s"] + ttft_s) * terms[1], terms[0])
    slow = chance(tpot_s * terms[2], terms[0]) * e["decodes"]
    missed = late + slow - late * slow
    if terms[7] > 0.0:
        missed += (1.0 - missed) * _ends_late(q, e, ttft_s, tpot_s, terms)
    return float(missed)


@compiled
def rank(
    request: Records, endpoints: Records, hits: Records, parameters: Records, order: Records, harms: Records
) -> int:
    """Fill `order` with endpoints to try one after the other, and return their number.

    The first endpoint is the result of `pick`. The second endpoint is the best of another vendor, if there is any,
    because a fault may affect all endpoints of one vendor. The other endpoints are in order of harm, least harm first.
    `harms` is scratch space, one number per endpoint.
    """
    q, p = request[0], parameters[0]
    count = len(endpoints)
    terms = terms_of(q, p, endpoints, hits)
    best, least = REJECTED, math.inf
    index = first_look(q["turn"], endpoints)
    for _ in range(count):
        harms[index] = math.inf
        if holds(q, endpoints[index]):
            harm = harm_of(q, endpoints[index], hits[index], p, terms, least)
            harms[index] = min(harm, 1e300)
            if harm < least or best == REJECTED:
                best, least = index, harm
        index += 1
        if index == count:
            index = 0
    found = 0
    best = _settle(q, p, endpoints, hits, terms, best, least)
    while best != REJECTED and found < len(order):
        order[found] = best
        harms[best] = math.inf
        found += 1
        best = _next_best(q, p, endpoints, hits, terms, harms, endpoints[order[0]]["vendor"] if found == 1 else -1)
        if best == REJECTED and found == 1:
            best = _next_best(q, p, endpoints, hits, terms, harms, -1)
    return found


@compiled
def _next_best(
    q: Record, p: Record, endpoints: Records, hits: Records, terms: Terms, harms: Records, not_vendor: int
) -> int:
    """Return the endpoint of least harm that is not of a vendor. Lower bounds among `harms` are replaced if needed."""
    while True:
        best, least = REJECTED, math.inf
        for index in range(len(endpoints)):
            if harms[index] < least and endpoints[index]["vendor"] != not_vendor:
                best, least = index, harms[index]
        if best == REJECTED:
            return REJECTED
        harms[best] = min(harm_of(q, endpoints[best], hits[best], p, terms, math.inf), 1e300)
        if harms[best] <= least:
            return int(best)
