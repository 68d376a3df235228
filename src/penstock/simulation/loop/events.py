"""Advances the fleet event by event: arrivals, routing, KV transfers and the ends of steps."""

import math

from penstock.compiled.interface import exported
from penstock.compiled.marks import cold, compiled
from penstock.compiled.policy_call import call_policy
from penstock.routing.class_balance import count_arrival
from penstock.routing.model_residency import ASLEEP
from penstock.routing.policy_function import Pick
from penstock.simulation.loop.batching import begin, end, enqueue
from penstock.simulation.loop.clients import begin_wait, next_leave_s
from penstock.simulation.loop.device_turns import take_turn
from penstock.simulation.loop.leaving import forget_in_transfer, leave
from penstock.simulation.loop.observed_tokens import tell_pickers
from penstock.simulation.loop.queues import can_hold, forget_first, leave_transfers
from penstock.simulation.loop.ranks import begin_together, end_together, pick_rank
from penstock.simulation.loop.replica_faults import apply_fault, ask_again, suspect
from penstock.simulation.loop.visibility import introduce, pass_reports, say_request
from penstock.simulation.loop.waiting_room import ask_for_waiting, hand_over, send_request, turn_away
from penstock.simulation.loop.world import DONE, NONE, UNASKED, World

FINISHED, MORE_ROWS, SATURATED, PAUSED, SAMPLED, IMPOSSIBLE = range(6)
"""Reasons why the simulation loop returned to its caller.

The reasons, in order: all requests are done; more requests must be loaded; a queue is too long; a progress report is
due; a pick is to be shown; the policy chose an endpoint that cannot serve the request.
"""

ROUND_ROBIN, MIN_REQUESTS, MIN_TOKENS = range(3)


@exported
def run(w: World, budget: int, pick: Pick) -> int:
    """Advance until the caller must act, or for `budget` events."""
    control = w.control[0]
    for _ in range(budget):
        # In an open loop no arrival may be skipped. In a closed loop all users may finish at once and send again.
        ahead = control.known_rows if control.closed else control.next_row
        if not control.final and control.loaded_rows - ahead <= control.users:
            tell_pickers(w, math.inf)  # their rows may be used again
            return MORE_ROWS
        ends = _next_end(w)
        ready = _next_transfer(w) if control.transferring > 0 else NONE
        end_s = w.ends[ends]
        ready_s = w.rows[w.replicas[ready].transfer_first & (len(w.rows) - 1)].queued_s if ready != NONE else math.inf
        arrival_s = math.inf
        if control.next_row < min(control.known_rows, control.loaded_rows):
            arrival_s = w.rows[control.next_row & (len(w.rows) - 1)].arrival_s
        waiting_s = control.look_s if control.held + control.returning > 0 else math.inf
        leave_s = next_leave_s(w)
        soonest_s = min(arrival_s, ready_s, end_s, waiting_s, leave_s)
        if soonest_s == math.inf:
            tell_pickers(w, math.inf)
            return FINISHED
        if control.routed and soonest_s >= control.look_s and _see_world(w, soonest_s, pick):
            if control.chosen >= len(w.heads):
                return IMPOSSIBLE
            continue
        control.now_s = soonest_s
        if arrival_s == soonest_s:
            why = _arrive(w, arrival_s, pick)
            if why != FINISHED:
                return why
        elif ready_s == soonest_s:
            _receive(w, ready, ready_s)
        else:
            _leave_or_proceed(w, ends, end_s, leave_s)
    return PAUSED


@cold
def _see_world(w: World, until_s: float, pick: Pick) -> bool:
    """Deliver reports to the pickers.

    Return True if a fault was due by `until_s` and was applied, or if requests wait at the gateway. After either, the
    caller must look for the next event again.
    """
    control = w.control[0]
    if control.reports_asked == 0:
        introduce(w)
    fault_s = w.faults[control.next_fault]["at_s"] if control.next_fault < len(w.faults) else math.inf
    control.look_s = min(pass_reports(w, min(until_s, fault_s)), fault_s)
    if fault_s > until_s:
        if control.held == 0 and control.returning == 0:
            return False
        ask_for_waiting(w, until_s, pick)
        return True
    control.look_s = 0.0
    control.now_s = fault_s
    tell_pickers(w, math.inf)  # a fault may end requests whose first token is not seen yet
    apply_fault(w, control.next_fault, pick)
    control.next_fault += 1
    return True


@compiled
def _arrive(w: World, now_s: float, pick: Pick) -> int:
    """Route the next arrival.

    Return FINISHED if the loop may continue, or else the reason why it must return to its caller.
    """
    control = w.control[0]
    number = control.next_row
    row = w.rows[number & (len(w.rows) - 1)]
    row.tried_s = now_s
    if not control.routed:
        r = choose(w, number, row.pool, False)  # noqa: FBT003 - compiled code takes no keywords
    else:
        if control.chosen == UNASKED:
            row.picker = number % w.endpoints.shape[0]
            tell_pickers(w, now_s)
            say_request(w, number, now_s)
            parameters = w.parameters[row.picker]
            count_arrival(w.request, parameters)
            control.chosen = call_policy(pick, w.request, w.endpoints[row.picker], w.hits, parameters)
            if control.sampled_every > 0 and number % control.sampled_every == 0:
                return SAMPLED
        e = control.chosen
        if e >= len(w.heads) or (e >= 0 and w.replicas[w.heads[e]].decodes_only):
            return IMPOSSIBLE
        control.chosen = UNASKED
        if e >= 0 and w.replicas[w.heads[e]].down:
            suspect(w, row.picker, e)
            e = ask_again(w, number, pick)
            if e >= len(w.heads):
                control.chosen = e
                return IMPOSSIBLE
        _take(w, now_s)
        if e < 0 or not can_hold(w, number, w.heads[e]):
            turn_away(w, number, e, now_s)
            return FINISHED
        r = send_request(w, number, e, now_s)
        return FINISHED if w.replicas[r].waiting <= control.stop_waiting else SATURATED
    _take(w, now_s)
    hand_over(w, number, r, now_s)
    return FINISHED if w.replicas[r].waiting <= control.stop_waiting else SATURATED


@compiled
def _leave_or_proceed(w: World, r: int, end_s: float, leave_s: float) -> None:
    """Let a client leave, unless steps end before or at that moment. Their first tokens are in time."""
    if leave_s < end_s:
        leave(w, leave_s)
    else:
        _proceed(w, r, end_s)


@compiled
def _proceed(w: World, r: int, now_s: float) -> None:
    """End a replica's present steps and begin its next steps."""
    if w.replicas[r].together:
        _proceed_together(w, w.replicas[r].head, now_s)
        return
    end(w, r)
    # A request sent at this very moment is queued before the next step is scheduled, unless scheduling is asynchronous.
    if not w.replicas[r].ahead and _asks_again(w, now_s):
        w.replicas[r].steps = 0
    elif w.replicas[r].on_device != NONE:
        take_turn(w, r, now_s)
    else:
        begin(w, r, now_s)


@cold
def _proceed_together(w: World, head: int, now_s: float) -> None:
    """End the present steps of ranks that step together, and begin their next steps."""
    end_together(w, head)
    if not w.replicas[head].ahead and _asks_again(w, now_s):
        for r in range(head, head + w.replicas[head].ranks):
            w.replicas[r].steps = 0
    else:
        begin_together(w, head, now_s)


@compiled
def _asks_again(w: World, now_s: float) -> bool:
    """Return whether a closed loop's next request is sent at the same moment as an answer ends."""
    control = w.control[0]
    if not control.closed or control.next_row >= min(control.known_rows, control.loaded_rows):
        return False
    return bool(w.rows[control.next_row & (len(w.rows) - 1)].arrival_s <= now_s)


@compiled
def _take(w: World, now_s: float) -> None:
    """Take the next arrival off the list of requests."""
    control = w.control[0]
    begin_wait(w, control.next_row, now_s)
    control.next_row += 1
    control.now_s = control.arrived_s = now_s
    if control.pauses:
        forget_first(w)


@compiled
def _next_end(w: World) -> int:
    best = 0
    for r in range(1, len(w.ends)):
        if w.ends[r] < w.ends[best]:
            best = r
    return best


@cold
def _next_transfer(w: World) -> int:
    best, best_s = NONE, math.inf
    for r in range(len(w.replicas)):
        first = w.replicas[r].transfer_first
        if first != NONE and w.rows[first & (len(w.rows) - 1)].queued_s < best_s:
            best, best_s = r, w.rows[first & (len(w.rows) - 1)].queued_s
    return best


@cold
def _receive(w: World, sender: int, now_s: float) -> None:
    """Queue a request at a decode replica when its KV transfer from `sender` has ended."""
    number = leave_transfers(w, sender)
    row = w.rows[number & (len(w.rows) - 1)]
    w.control[0].now_s = now_s
    if row.abandoned:
        forget_in_transfer(w, number, now_s)
        return
    r = choose(w, number, NONE, True)  # noqa: FBT003 - compiled code takes no keywords
    w.replicas[r].outstanding_tokens += row.input_tokens
    enqueue(w, r, number, now_s)


@compiled
def choose(w: World, number: int, pool: int, decode: bool) -> int:  # noqa: FBT001 - compiled code takes no keywords
    """Pick replicas in turn, or the replica with the fewest outstanding requests or tokens, depending on the policy.

    Ties are broken in turn, or in favour of the first replica if `first_of_equals` is set. There is always a replica to
    pick, because a request that no allowed replica can hold is refused earlier.
    """
    control = w.control[0]
    count = len(w.replicas)
    if count == 1:
        return 0
    best, best_load = NONE, math.inf
    for ahead in range(count):
        r = ahead if control.first_of_equals else (control.turn + ahead) % count
        replica = w.replicas[r]
        wrong_pool = pool != NONE and pool != replica.pool  # noqa: PLR1714 - compiled code has no mixed tuples
        # An engine is chosen by the sum over its ranks, and then chooses a rank itself.
        if wrong_pool or replica.decodes_only != decode or replica.head != r or not can_hold(w, number, r):
            continue
        load = 0.0
        if control.policy == MIN_REQUESTS:
            load = float(replica.running + replica.waiting)
        elif control.policy == MIN_TOKENS:
            load = float(replica.outstanding_tokens)
        if replica.ranks > 1 and control.policy != ROUND_ROBIN:
            load = _load(w, r)
        if replica.on_device != NONE and replica.residency == ASLEEP and control.policy != ROUND_ROBIN:
            load += replica.max_requests  # a model that sleeps is woken when the batches of those awake are full
        if load < best_load:
            best, best_load = r, load
    control.turn = best + 1
    return best if w.replicas[best].ranks == 1 else pick_rank(w, best)


@cold
def _load(w: World, head: int) -> float:
    """Return the number of requests or tokens outstanding on all ranks of an engine."""
    requests, tokens = 0, 0
    for r in range(head, head + w.replicas[head].ranks):
        requests += w.replicas[r].running + w.replicas[r].waiting
        tokens += w.replicas[r].outstanding_tokens
    return float(requests if w.control[0].policy == MIN_REQUESTS else tokens)


@exported
def settled(w: World, base: int) -> int:
    """Return the first row that is not finished, from `base` on."""
    control = w.control[0]
    mask = len(w.rows) - 1
    while base < control.next_row and w.rows[base & mask].state == DONE:
        base += 1
    return base
