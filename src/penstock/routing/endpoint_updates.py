"""Updates a picker's records when a request is sent, a first token or a last token arrives, or a report arrives.

The simulator and the gateway call the same functions at the same events, so that a simulated policy has the information
that it has in production.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.class_balance import class_of, count_length, count_outcome
from penstock.routing.corrections import corrected, fastest, forget, gain, is_slow
from penstock.routing.latency import decode_seconds, prompt_seconds, times_of
from penstock.routing.miss_probability import squarings, strain_slope
from penstock.routing.records import ANOTHERS, CLASSES, EVERYBODYS, OWN, Record, Records

_HIGHEST_LOAD = 0.9
"""Upper limit for the estimated share of an endpoint's time that prefill takes.

Above the limit, the queue length shows the overload.
"""
_EXPECTED_ANSWERS = 10.0
"""Weight, in answers, of the expected length of residents relative to the length that observed ends imply."""


@compiled
def refresh(endpoints: Records, index: int, now_s: float, parameters: Records) -> None:
    """Compute the derived fields of an endpoint's record after any change."""
    e, p = endpoints[index], parameters[0]
    others, others_waiting, queued = 0.0, 0.0, 0.0
    # At a shared endpoint the other pickers are assumed to send as many as this one. At its own they send none. At
    # another picker's endpoint nothing is known.
    alike = p["pickers"] - 1.0 if e["whose"] == EVERYBODYS else 0.0
    since = alike * e["sent_since_report"]
    if now_s - e["reported_s"] <= p["stale_s"]:
        others = max(0.0, float(e["running"] + e["waiting"] - e["in_flight_then"])) + since
        others_waiting = max(0.0, float(e["waiting"] - e["prefilling_then"]))
        queued = float(e["waiting"])
        used = float(e["kv_used_tokens"] + e["resident_tokens"] - e["resident_tokens_then"])
    else:
        used = float(e["resident_tokens"]) * (1.0 + alike)
        others = alike * e["in_flight"]
    e["others"] = others
    used = max(used, 0.0)
    per_request = 1.0 / max(1.0, float(e["in_flight"]))
    # Requests in the queue hold no KV yet, but will. What does not fit waits, and does not decode meanwhile.
    wanted = used + queued * e["resident_tokens"] * per_request
    fits = min(1.0, e["kv_tokens"] / max(1.0, wanted))
    shared = e["shared_tokens"] * per_request
    sequences = max(0.0, float(e["in_flight"] - e["prefilling"]) + others - others_waiting)
    context = min(used, float(e["kv_tokens"])) + sequences * shared
    decode_s = decode_seconds(e, sequences, context) * e["decode_correction"]
    load = min(e["prompt_load_fraction"] * e["prefill_correction"], _HIGHEST_LOAD)
    e["stretch"] = 1.0 / (1.0 - load)
    e["decode_now_s"] = decode_s
    # Requests still in prefill will decode together with a new request.
    soon = min((float(e["in_flight"]) + others) * fits, float(e["max_running"]))
    context = fits * wanted + soon * shared
    e["tpot_now_s"] = decode_seconds(e, soon, context) * e["decode_correction"] * e["stretch"]
    # Prompts arrive at random: over an answer of n tokens, their seconds have the variance n * tpot * squares.
    e["swing_s"] = e["prefill_correction"] * math.sqrt(e["prompt_squares_s"] * e["tpot_now_s"])
    share = 1.0 + (others_waiting / e["prefilling"] if e["prefilling"] > 0 else 0.0)
    steps = math.ceil(share * e["outstanding_prompt_tokens"] / max(1.0, e["step_tokens"] - sequences))
    ahead_s = share * e["outstanding_prompt_s"] * e["prefill_correction"]
    # A prompt visits every expert: it adds the experts that the decoding requests do not read.
    more_s = e["prompt_step_s"]
    if e["expert_s"] > 0.0:
        more_s += e["expert_s"] * e["expert_miss"] ** sequences
    e["carry_s"] = decode_s + more_s * e["prefill_correction"]
    busy = 0.5 if sequences + e["prefilling"] + others_waiting > 0 else 0.0  # on average it arrives mid-step
    e["wait_s"] = ahead_s + busy * decode_s + steps * e["carry_s"]
    e["strain_per_s"] = _strain_per_s(e, p)
    _refresh_room(e, sequences, others + e["in_flight"], soon, wanted)


@compiled
def _strain_per_s(e: Record, p: Record) -> float:
    strain, times = 0.0, squarings(p["doubt_fraction"])
    for kind in range(CLASSES if e["decodes"] != 0 else 0):
        if e["residents"][kind] > 0:
            per_limit = 1.0 / p["class_tpot_s"][kind]
            slope = strain_slope(e["tpot_now_s"] * per_limit, times) * per_limit
            strain += p["class_weight"][kind] * p["class_factor"][kind] * e["residents"][kind] * slope
    return strain


@compiled
def _refresh_room(e: Record, sequences: float, requests: float, fitting: float, wanted_tokens: float) -> None:
    """Compute how soon the KV cache and the batch of an endpoint have room for another request.

    Answers that have ended are shorter than those that still run. The time for which a request holds its KV tokens is
    therefore taken from the tokens that all residents decoded per answer that ended. `fitting` is the number of
    requests that hold KV tokens.
    """
    per_request = 1.0 / max(1.0, float(e["in_flight"]))
    answer = e["resident_output_tokens"] * per_request
    length = (e["decoded_tokens"] + _EXPECTED_ANSWERS * answer) / (e["ended_answers"] + _EXPECTED_ANSWERS)
    life_s = max(1e-3, length * e["tpot_now_s"])
    e["free_tokens"] = e["kv_tokens"] - wanted_tokens
    holding = fitting * e["resident_tokens"] * per_request
    if e["in_flight"] == 0:  # only others have requests there
        holding = min(wanted_tokens, float(e["kv_tokens"]))
    e["drain_tokens_per_s"] = holding / life_s
    excess = requests + 1.0 - e["max_running"]
    e["seats_wait_s"] = excess * life_s / max(1.0, sequences) if excess > 0.0 else 0.0
    e["stall_per_prompt_s"] = e["prefill_correction"] / answer if answer > 0.0 else 0.0  # 0: unknown
    e["resident_tpot_s"] = e["tpot_now_s"] + e["swing_s"] / math.sqrt(max(1.0, answer))


@compiled
def sent(
    endpoints: Records, index: int, request: Records, hit_tokens: int, flights: Records, place: int, parameters: Records
) -> None:
    """Record in `flights[place]` that a request was sent to an endpoint."""
    e, q, f, p = endpoints[index], request[0], flights[place], parameters[0]
    now_s = q["now_s"]
    prompt_s = prompt_seconds(e, hit_tokens, q["input_tokens"])
    f["endpoint"], f["sent_s"], f["first_s"] = index, now_s, math.inf
    f["input_tokens"], f["uncached_tokens"] = q["input_tokens"], q["input_tokens"] - hit_tokens
    f["expected_output_tokens"] = q["expected_output_tokens"]
    f["slo_class"] = class_of(q)
    f["prompt_s"], f["waited_s"] = prompt_s, q["waited_s"]
    f["ttft_limit_s"], f["tpot_limit_s"], f["e2e_limit_s"] = q["ttft_s"], q["tpot_s"], q["e2e_s"]
    f["ttft_s"], _, _ = times_of(q, e, hit_tokens, 0.0)
    p["class_admitted"][f["slo_class"]] += 1.0
    e["sent"] += 1
    e["in_flight"] += 1
    e["prefilling"] += 1
    e["sent_since_report"] += 1
    e["outstanding_prompt_tokens"] += f["uncached_tokens"]
    e["outstanding_prompt_s"] += prompt_s
    e["resident_tokens"] += resident_tokens(f)
    e["shared_tokens"] += hit_tokens
    e["resident_output_tokens"] += f["expected_output_tokens"]
    e["residents"][f["slo_class"]] += 1
    _fade_load(e, now_s, p["load_s"])
    e["prompt_load_fraction"] += prompt_s / p["load_s"]
    e["prompt_squares_s"] += prompt_s * prompt_s / p["load_s"]
    refresh(endpoints, index, now_s, parameters)


@compiled
def resident_tokens(f: Record) -> int:
    """Return the mean KV tokens that a request is assumed to hold for itself while in flight."""
    return int(f["uncached_tokens"] + f["expected_output_tokens"] // 2)


@compiled
def _fade_load(e: Record, now_s: float, load_s: float) -> None:
    passed = max(0.0, now_s - e["prompt_load_s"])
    faded = math.exp(-passed / load_s)
    e["prompt_load_fraction"] *= faded
    e["prompt_squares_s"] *= faded
    e["ended_answers"] *= faded
    e["decoded_tokens"] *= faded
    if e["tpot_now_s"] > 0.0:
        e["decoded_tokens"] += (e["in_flight"] - e["prefilling"]) * passed / e["tpot_now_s"]
    e["prompt_load_s"] = now_s


@compiled
def first_token(endpoints: Records, flights: Records, place: int, now_s: float, parameters: Records) -> None:
    """Record a request's first token, and update the prefill correction of its endpoint."""
    f, p = flights[place], parameters[0]
    index = f["endpoint"]
    e = endpoints[index]
    f["first_s"] = now_s
    _leave_prefill(e, f)
    f["decode_s"] = decode_seconds(e, float(e["in_flight"] - e["prefilling"]), _context_tokens(e))
    own_s = f["prompt_s"] * e["first_token_ratio"] * e["prefill_correction"]
    if f["ttft_s"] > 0.0 and own_s > 0.0:
        # Weighted by the share of the time due to the prompt itself: a queue says little about prefill speed.
        share = own_s / f["ttft_s"]
        ratio = max(1e-6, now_s - f["sent_s"]) / f["ttft_s"]
        weight = share * gain(e["prompts_seen"], p["correction_requests"])
        e["prefill_correction"] = corrected(e["prefill_correction"], ratio, weight)
        e["prompts_seen"] += share
    if e["decodes"] == 0:
        _leave(e, f)
    refresh(endpoints, index, now_s, parameters)


@compiled
def _context_tokens(e: Record) -> float:
    """Return the context tokens that a step reads: the KV in use, and prefixes that several requests share."""
    used = max(0.0, float(e["kv_used_tokens"] + e["resident_tokens"] - e["resident_tokens_then"]))
    return used + float(e["shared_tokens"]) * (1.0 - float(e["prefilling"]) / max(1.0, float(e["in_flight"])))


@compiled
def _leave_prefill(e: Record, f: Record) -> None:
    e["prefilling"] -= 1
    e["outstanding_prompt_tokens"] -= f["uncached_tokens"]
    e["outstanding_prompt_s"] = max(0.0, e["outstanding_prompt_s"] - f["prompt_s"])
    if e["prefilling"] == 0:
        e["outstanding_prompt_s"] = 0.0  # removes rounding errors


@compiled
def finished(
    endpoints: Records, flights: Records, place: int, output_tokens: int, now_s: float, parameters: Records
) -> None:
    """Record the end of an answer of `output_tokens` tokens, and update the decode correction of its endpoint."""
    f, p = flights[place], parameters[0]
    index = f["endpoint"]
    e = endpoints[index]
    if f["first_s"] == math.inf:
        _leave_prefill(e, f)
    elif e["decodes"] != 0 and output_tokens > 1 and now_s > f["first_s"]:
        observed_s = (now_s - f["first_s"]) / (output_tokens - 1)
        after_s = decode_seconds(e, float(e["in_flight"] - e["prefilling"]), _context_tokens(e))
        expected_s = 0.5 * (f["decode_s"] + after_s) * e["stretch"] * e["decode_correction"]
        # A long answer averages over more steps than a short one.
        share = min(1.0, output_tokens / 100.0)
        weight = share * gain(e["answers_seen"], p["correction_requests"])
        e["decode_correction"] = corrected(e["decode_correction"], observed_s / expected_s, weight)
        e["answers_seen"] += share
    if f["first_s"] == math.inf or e["decodes"] != 0:
        _leave(e, f)
    count_outcome(p, f["slo_class"], _is_met(f, output_tokens, now_s))
    count_length(p, f["slo_class"], f["expected_output_tokens"], output_tokens)
    refresh(endpoints, index, now_s, parameters)


@compiled
def _is_met(f: Record, output_tokens: int, now_s: float) -> bool:
    """Return whether an answer that just ended met its SLO, as far as the picker saw it."""
    begun_s, first_s = f["sent_s"] - f["waited_s"], min(f["first_s"], now_s)
    per_token_s = (now_s - first_s) / (output_tokens - 1) if output_tokens > 1 else 0.0
    return bool(
        first_s - begun_s <= f["ttft_limit_s"]
        and per_token_s <= f["tpot_limit_s"]
        and now_s - begun_s <= f["e2e_limit_s"]
    )


@compiled
def lost(endpoints: Records, flights: Records, place: int, now_s: float, parameters: Records) -> None:
    """Record that a request was refused, broken off or cancelled, so that its endpoint will not answer it."""
    f = flights[place]
    e = endpoints[f["endpoint"]]
    if f["first_s"] == math.inf:
        _leave_prefill(e, f)
    if f["first_s"] == math.inf or e["decodes"] != 0:
        _leave(e, f)
    refresh(endpoints, f["endpoint"], now_s, parameters)


@compiled
def record_departure(endpoints: Records, flights: Records, place: int, now_s: float, parameters: Records) -> None:
    """Record that a client closed its connection before its first token. The request has missed its SLO."""
    count_outcome(parameters[0], flights[place]["slo_class"], False)  # noqa: FBT003 - compiled code takes no keywords
    lost(endpoints, flights, place, now_s, parameters)


@compiled
def _leave(e: Record, f: Record) -> None:
    e["in_flight"] -= 1
    e["resident_tokens"] -= resident_tokens(f)
    e["shared_tokens"] -= f["input_tokens"] - f["uncached_tokens"]
    e["resident_output_tokens"] -= f["expected_output_tokens"]
    e["residents"][f["slo_class"]] -= 1
    if e["decodes"] != 0 and f["first_s"] < math.inf:
        e["ended_answers"] += 1.0


@compiled
def clear_own_counts(e: Record) -> None:
    """Clear the picker's counts of requests in flight at an endpoint."""
    e["in_flight"] = e["prefilling"] = e["outstanding_prompt_tokens"] = 0
    e["outstanding_prompt_s"] = 0.0
    e["resident_tokens"] = e["shared_tokens"] = e["resident_output_tokens"] = 0
    for kind in range(CLASSES):
        e["residents"][kind] = 0


@compiled
def resume(endpoints: Records, index: int, flights: Records, place: int) -> None:
    """Count a request that was in flight before the fleet was reloaded. The caller refreshes the endpoint."""
    e, f = endpoints[index], flights[place]
    f["endpoint"] = index
    if f["first_s"] == math.inf:
        e["prefilling"] += 1
        e["outstanding_prompt_tokens"] += f["uncached_tokens"]
        e["outstanding_prompt_s"] += f["prompt_s"]
    e["in_flight"] += 1
    e["resident_tokens"] += resident_tokens(f)
    e["shared_tokens"] += f["input_tokens"] - f["uncached_tokens"]
    e["resident_output_tokens"] += f["expected_output_tokens"]
    e["residents"][f["slo_class"]] += 1


@compiled
def divide(endpoints: Records, picker: int, pickers: int) -> None:
    """Assign to one of several pickers its share of the endpoints of every pool.

    If a pool has at least as many endpoints as there are pickers, every picker gets the same number of endpoints for
    itself. If the number of pickers is a multiple of the number of remaining endpoints, each remaining endpoint is
    shared by an equal group of pickers. Fewer pickers then see the same free endpoint at once. A picker treats an
    endpoint shared by a group as shared by all pickers, which only makes the picker more cautious. If the number of
    pickers is not such a multiple, all pickers share the remaining endpoints. If an endpoint of a pool is down, or is
    slow by this picker's corrections, all pickers share the whole pool, because a share would be too small.
    """
    pools = 0
    for index in range(len(endpoints)):
        pools = max(pools, endpoints[index]["pool"] + 1)
    for pool in range(pools):
        count, down = 0, 0
        prompts, answers = fastest(endpoints, pool)
        for index in range(len(endpoints)):
            if endpoints[index]["pool"] == pool:
                count += 1
                down += endpoints[index]["accepts"] == 0 or is_slow(endpoints[index], prompts, answers)
        divided = count // pickers * pickers if down == 0 and pickers > 1 else 0
        left = count - divided
        grouped = divided > 0 and left > 0 and pickers % left == 0
        place = 0
        for index in range(len(endpoints)):
            if endpoints[index]["pool"] == pool:
                whose = EVERYBODYS
                if place < divided:
                    whose = OWN if place % pickers == picker else ANOTHERS
                elif grouped and picker % left != place - divided:
                    whose = ANOTHERS
                endpoints[index]["whose"] = whose
                place += 1


@compiled
def begin_report(endpoints: Records, index: int, reports: Records, place: int, now_s: float) -> None:
    """Store the picker's own counts for an endpoint, when the picker requests a report."""
    e, report = endpoints[index], reports[place]
    report["asked_s"] = now_s
    report["sent"], report["in_flight"] = e["sent"], e["in_flight"]
    report["prefilling"], report["resident_tokens"] = e["prefilling"], e["resident_tokens"]


@compiled
def reported(endpoints: Records, index: int, reports: Records, place: int, now_s: float, parameters: Records) -> bool:
    """Apply a report to an endpoint's record.

    Return whether it is time to divide the endpoints among the pickers again.
    """
    e, report = endpoints[index], reports[place]
    e["reported_s"] = report["asked_s"]
    e["running"], e["waiting"], e["kv_used_tokens"] = report["running"], report["waiting"], report["kv_used_tokens"]
    e["sent_since_report"] = e["sent"] - report["sent"]
    e["in_flight_then"], e["prefilling_then"] = report["in_flight"], report["prefilling"]
    e["resident_tokens_then"] = report["resident_tokens"]
    _fade_load(e, now_s, parameters[0]["load_s"])
    looked = forget(endpoints, index, now_s, parameters[0])
    for other in range(len(endpoints) if looked else 0):
        if endpoints[other]["pool"] == e["pool"] and other != index:
            refresh(endpoints, other, now_s, parameters)
    refresh(endpoints, index, now_s, parameters)
    return looked
