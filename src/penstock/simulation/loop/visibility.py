"""Passes the state of the fleet to the router with the delays and losses of a real gateway.

A picker sees old reports, delayed cache contents, and the effects of its own picks. The simulation knows the exact
state of the fleet. This module passes on only the state that a gateway would see, with the same delay.
"""

import math

from penstock.compiled.marks import cold, compiled
from penstock.routing.endpoint_updates import (
    begin_report,
    divide,
    record_departure,
    refresh,
    reported,
    sent,
)
from penstock.routing.length_estimates import expected_tokens
from penstock.routing.model_residency import ready_in_s
from penstock.simulation.loop.observe import used_at
from penstock.simulation.loop.observed_tokens import tell_pickers
from penstock.simulation.loop.world import NONE, World


@cold
def introduce(w: World) -> None:
    """Compute the derived fields of every idle endpoint for every picker, before any report or request.

    Without these fields, a record says that the KV cache has no room, and the endpoint that is picked first gets all
    requests.
    """
    for picker in range(w.endpoints.shape[0]):
        for r in range(w.endpoints.shape[1]):
            refresh(w.endpoints[picker], r, 0.0, w.parameters[picker])


@cold
def pass_reports(w: World, until_s: float) -> float:
    """Take and deliver all endpoint reports that are due by `until_s`. Return the time at which the next report is due.

    Every endpoint reports once per interval. The reports are spread evenly over the interval.
    """
    control = w.control[0]
    while True:
        ask_s = control.reports_asked * control.report_s
        see_s = control.reports_seen * control.report_s + control.report_delay_s
        if control.reports_seen < control.reports_asked and see_s <= min(ask_s, until_s):
            _see(w, control.reports_seen, see_s)
            control.reports_seen += 1
        elif ask_s <= until_s:
            _ask(w, control.reports_asked, ask_s)
            control.reports_asked += 1
        else:
            pending = control.reports_seen < control.reports_asked
            return float(min(ask_s, see_s) if pending else ask_s)


@compiled
def _ask(w: World, number: int, now_s: float) -> None:
    """Take an endpoint's report at `now_s`.

    The time `now_s` may lie inside a leap (several steps simulated at once).
    """
    tell_pickers(w, now_s)
    e, place = number % len(w.heads), number & (w.reports.shape[1] - 1)
    head = w.replicas[w.heads[e]]
    lost = head.silent or head.down or chance_of(number) < w.control[0].report_loss
    running, waiting, used = 0, 0, 0
    for r in range(head.head, head.head + head.ranks):
        running += w.replicas[r].running
        waiting += w.replicas[r].waiting
        used += used_at(w, r, now_s)
    for picker in range(w.endpoints.shape[0]):
        report = w.reports[picker, place]
        if lost:
            report["asked_s"] = -math.inf
            continue
        begin_report(w.endpoints[picker], e, w.reports[picker], place, now_s)
        report["running"], report["waiting"] = running, waiting
        report["kv_used_tokens"] = used * head.block_tokens


@compiled
def _see(w: World, number: int, now_s: float) -> None:
    """Deliver an endpoint's report to every picker, unless the report was lost."""
    tell_pickers(w, now_s)
    e, place = number % len(w.heads), number & (w.reports.shape[1] - 1)
    for picker in range(w.endpoints.shape[0]):
        if w.reports[picker, place]["asked_s"] != -math.inf:
            looked = reported(w.endpoints[picker], e, w.reports[picker], place, now_s, w.parameters[picker])
            if looked and w.endpoints.shape[0] > 1:
                divide(w.endpoints[picker], picker, w.endpoints.shape[0])


@compiled
def chance_of(number: int) -> float:
    """Return a pseudo-random number from 0 to 1 that is the same for the same event in every run."""
    mixed = (number + 1) * 2654435761 % 4294967296
    mixed = (mixed ^ (mixed >> 15)) * 2246822519 % 4294967296
    mixed = (mixed ^ (mixed >> 13)) * 3266489917 % 4294967296
    return (mixed ^ (mixed >> 16)) / 4294967296.0


@compiled
def say_request(w: World, number: int, now_s: float) -> None:
    """Describe an arriving request as a gateway sees it, without the length of its answer."""
    row = w.rows[number & (len(w.rows) - 1)]
    kind = min(row.slo_class, len(w.promises) - 1)
    q, promise = w.request[0], w.promises[kind]
    q["now_s"], q["model"], q["input_tokens"] = now_s, promise["model"], row.input_tokens
    q["output_limit_tokens"] = promise["limit_tokens"]
    q["expected_output_tokens"] = expected_tokens(w.lengths, kind, row.input_tokens, promise["limit_tokens"])
    q["ttft_s"], q["tpot_s"], q["e2e_s"] = promise["ttft_s"], promise["tpot_s"], promise["e2e_s"]
    q["weight"] = promise["weight"]
    q["sheddable"], q["slo_class"], q["waited_s"] = promise["overload"], kind, now_s - row.tried_s
    q["number"], q["turn"] = number // w.endpoints.shape[0], int(chance_of(number) * 1048576)
    if row.leaf != NONE:
        _say_hits(w, number, now_s)
    elif w.control[0].hits_said:
        w.hits[:] = 0
    w.control[0].hits_said = row.leaf != NONE
    if len(w.devices) > 0:
        _say_residency(w, row.picker, now_s)


@cold
def _say_residency(w: World, picker: int, now_s: float) -> None:
    """Set the seconds until the model of each endpoint on a shared device is awake, from the device's true state."""
    for e in range(len(w.heads)):
        replica = w.replicas[w.heads[e]]
        if replica.on_device != NONE:
            link_s = w.devices[replica.on_device].link_free_s
            w.endpoints[picker, e]["ready_in_s"] = ready_in_s(
                replica.residency, replica.wake_s, replica.end_s, link_s, now_s
            )


@cold
def _say_hits(w: World, number: int, now_s: float) -> None:
    """Set the number of prompt tokens that the picker believes to be cached on the best rank of each engine."""
    row = w.rows[number & (len(w.rows) - 1)]
    for e in range(len(w.heads)):
        head = w.replicas[w.heads[e]]
        tree = w.segments[head.pool]
        depth, segment = tree[row.leaf].depth + 1, row.leaf
        for level in range(depth - 1, -1, -1):
            w.path[level] = segment
            segment = tree[segment].parent
        w.hits[e] = 0
        for r in range(head.head, (head.head + head.ranks) * head.caching):
            w.hits[e] = max(w.hits[e], _cached_blocks(w, number, r, depth, now_s) * head.block_tokens)


@cold
def _cached_blocks(w: World, number: int, r: int, depth: int, now_s: float) -> int:
    """Return the number of a prompt's cached blocks on one rank that the picker knows of.

    `path` holds the prompt's segments.
    """
    row, tree = w.rows[number & (len(w.rows) - 1)], w.segments[w.replicas[r].pool]
    most, found = (row.input_tokens - 1) // w.replicas[r].block_tokens, 0
    for level in range(depth):
        held = w.cached[r, w.path[level]]
        known = held.blocks if now_s - held.since_s >= w.control[0].cache_delay_s else 0
        usable = min(known, most - found)
        found += usable
        if usable < tree[w.path[level]].blocks:
            break
    return found


@compiled
def note_sent(w: World, number: int, e: int) -> None:
    """Record in the picker's state that the picker sent a request."""
    place = number & (len(w.rows) - 1)
    picker = w.rows[place].picker
    sent(w.endpoints[picker], e, w.request, w.hits[e], w.flights, place, w.parameters[picker])


@cold
def note_left(w: World, number: int, now_s: float) -> None:
    """Report to the picker that a client closed its connection before the first token."""
    if w.control[0].routed:
        place = number & (len(w.rows) - 1)
        picker = w.rows[place].picker
        record_departure(w.endpoints[picker], w.flights, place, now_s, w.parameters[picker])
