"""Which endpoint should serve a request? The one where it does the least harm, its own chance to miss included.

Of each endpoint that can hold the request: the chance that it misses its promise there (predicted seconds over promised
ones), plus what its prompt and its tokens do to those already there (predicted, by class), plus what nearly full KV
caches cost later, plus the dollars that not using it would save. All of it in missed promises.
"""

import math

from penstock.routing.latency import first_seconds, prompt_seconds, share_of_chance, times_of, token_seconds
from penstock.routing.miss_probability import LENGTH_SQUARINGS, chance, power, squarings, strain
from penstock.routing.policy_compiler import native
from penstock.routing.records import ANOTHERS, CLASSES, OWN, REJECTED, USUAL_TPOT_S, USUAL_TTFT_S, Record, Records

Terms = tuple[int, float, float, float, float, float, float, float]

_CLEARLY = 1.0 + 1e-9
"""So much more than the least is more, however sums were rounded."""


@native
def holds(q: Record, e: Record) -> bool:
    """Whether an endpoint can serve a request at all: it is up, has the model, and cache and context window hold it."""
    longest = q["input_tokens"] + max(q["output_limit_tokens"], q["expected_output_tokens"])
    expected = q["input_tokens"] + q["expected_output_tokens"] * e["decodes"]
    return bool(
        e["accepts"] != 0
        and (e["serves"] & q["model"]) != 0
        and longest <= e["max_context_tokens"]
        and expected <= e["kv_tokens"]
    )


@native
def first_look(turn: int, endpoints: Records) -> int:
    """Return where a request begins to look, so that ties are shared by all endpoints that are up."""
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


@native
def terms_of(q: Record, p: Record, endpoints: Records, hits: Records) -> Terms:
    """What a request's harm is computed with at every endpoint, found and divided out once."""
    promised = q["ttft_s"] < math.inf or q["tpot_s"] < math.inf or q["e2e_s"] < math.inf
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
    )


@native
def harm_of(q: Record, e: Record, hit_tokens: int, p: Record, terms: Terms, enough: float) -> float:
    """Expected missed promises, dollars included, of sending a request to an endpoint that holds it.

    Where what it does at least is clearly more than `enough`, that is returned: it will not be the least.
    """
    times, per_ttft, per_tpot, chance_share, per_usd, spare, lent_hit, per_e2e = terms
    tpot_s, held = token_seconds(q, e, hit_tokens, chance_share)
    prompt_s = prompt_seconds(e, hit_tokens, q["input_tokens"]) * e["prefill_correction"]
    slower_s = 0.5 * (tpot_s - e["tpot_now_s"] - e["swing_s"] * chance_share) + prompt_s * e["stall_per_prompt_s"]
    powered = power(tpot_s * per_tpot, times) * e["decodes"]
    at_least = q["weight"] * powered + e["strain_per_s"] * slower_s * (1.0 + powered)
    if at_least > enough * _CLEARLY * (1.0 + powered):
        return float(at_least / (1.0 + powered))
    slow = powered / (1.0 + powered)
    first_s = first_seconds(q, e, hit_tokens, held, prompt_s)
    late = chance(first_s * per_ttft, times)
    missed = late + slow - late * slow
    if per_e2e > 0.0:
        missed += (1.0 - missed) * _ends_late(q, e, first_s, tpot_s, per_e2e)
    harm = q["weight"] * missed
    if e["saved_usd_per_s"] > 0.0:
        harm += work_seconds(q, e, prompt_s) * e["saved_usd_per_s"] * per_usd
    harm += _made_to_miss(e, p, slower_s, times)
    room = spare * e["kv_tokens"]
    if held + room > e["free_tokens"]:
        harm += min(held, held + room - e["free_tokens"]) / max(room, 1e-3 * e["kv_tokens"])
    if e["whose"] == ANOTHERS and hit_tokens < lent_hit:
        harm += p["trespass_misses"]
    return float(harm)


@native
def _ends_late(q: Record, e: Record, first_s: float, tpot_s: float, per_e2e: float) -> float:
    """Chance that the last token is late: the answer may be longer than expected as well as slower."""
    return chance((first_s + q["expected_output_tokens"] * tpot_s * e["decodes"]) * per_e2e, LENGTH_SQUARINGS)


@native
def _made_to_miss(e: Record, p: Record, slower_s: float, times: int) -> float:
    """Residents that miss their promise once a token takes so much longer, by class and what a miss counts."""
    harm, before_s = 0.0, e["tpot_now_s"]
    for kind in range(CLASSES if e["decodes"] != 0 else 0):
        residents = e["residents"][kind]
        if residents > 0:
            per_limit = 1.0 / p["class_tpot_s"][kind]
            added = strain((before_s + slower_s) * per_limit, times) - strain(before_s * per_limit, times)
            harm += p["class_weight"][kind] * residents * added
            if p["class_e2e_s"][kind] < math.inf:
                per_limit = e["resident_output_tokens"] / (e["in_flight"] * p["class_e2e_s"][kind])
                added = strain((before_s + slower_s) * per_limit, LENGTH_SQUARINGS)
                added -= strain(before_s * per_limit, LENGTH_SQUARINGS)
                harm += p["class_weight"][kind] * residents * added
    return harm


@native
def work_seconds(q: Record, e: Record, prompt_s: float) -> float:
    """Seconds of an endpoint that a request takes for itself, whoever else is there: what it costs of it.

    The step that all share is not counted, so that dollars prefer cheaper silicon and never a fuller endpoint.
    """
    context = q["input_tokens"] + 0.5 * q["expected_output_tokens"]
    token_s = e["sequence_s"] + context * e["context_token_s"]
    return float(prompt_s + q["expected_output_tokens"] * token_s * e["decode_correction"] * e["decodes"])


@native
def pick(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
    """Return the endpoint of least expected harm, or REJECTED: none can hold it, or it may be shed and would miss."""
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
    if best != REJECTED and q["sheddable"] != 0 and misses(q, endpoints[best], hits[best], terms) > p["shed_fraction"]:
        return REJECTED
    return best


@native
def misses(q: Record, e: Record, hit_tokens: int, terms: Terms) -> float:
    """Chance that a request misses its promise at an endpoint."""
    ttft_s, tpot_s, _ = times_of(q, e, hit_tokens, terms[3])
    late, slow = chance(ttft_s * terms[1], terms[0]), chance(tpot_s * terms[2], terms[0]) * e["decodes"]
    missed = late + slow - late * slow
    if terms[7] > 0.0:
        missed += (1.0 - missed) * _ends_late(q, e, ttft_s, tpot_s, terms[7])
    return float(missed)


@native
def rank(
    request: Records, endpoints: Records, hits: Records, parameters: Records, order: Records, harms: Records
) -> int:
    """Fill `order` with endpoints to try one after the other; return how many there are.

    The first is what `pick` returns; the second the best of another vendor, where there is one, because what broke the
    first may break all of its kind; the rest follow by harm. `harms` is room for one number per endpoint.
    """
    q, p = request[0], parameters[0]
    terms = terms_of(q, p, endpoints, hits)
    for index in range(len(endpoints)):
        harms[index] = math.inf
        if holds(q, endpoints[index]):
            harms[index] = min(harm_of(q, endpoints[index], hits[index], p, terms, math.inf), 1e300)
    found = 0
    first = pick(request, endpoints, hits, parameters)
    while found < len(order):
        best = first
        if found > 0:
            best = _least(endpoints, harms, endpoints[order[0]]["vendor"] if found == 1 else -1)
            if best == REJECTED and found == 1:
                best = _least(endpoints, harms, -1)
        if best == REJECTED:
            break
        order[found] = best
        harms[best] = math.inf
        found += 1
    return found


@native
def _least(endpoints: Records, harms: Records, not_vendor: int) -> int:
    best, least = REJECTED, math.inf
    for index in range(len(endpoints)):
        if harms[index] < least and endpoints[index]["vendor"] != not_vendor:
            best, least = index, harms[index]
    return best
