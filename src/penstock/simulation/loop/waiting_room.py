"""Holds requests at the gateway while the fleet is overloaded, and asks the policy again for clients that return."""

from penstock.compiled.marks import cold, compiled
from penstock.compiled.policy_call import call_policy
from penstock.routing.admission import retry_after_s
from penstock.routing.class_balance import count_arrival, count_outcome
from penstock.routing.policy_function import Pick
from penstock.routing.records import CLASSES, HOLD, REJECTED
from penstock.simulation.loop.batching import enqueue
from penstock.simulation.loop.clients import add_return, begin_wait, end_wait, give_up, next_return
from penstock.simulation.loop.device_turns import note_arrival
from penstock.simulation.loop.observed_tokens import tell_pickers
from penstock.simulation.loop.queues import can_hold
from penstock.simulation.loop.ranks import pick_rank
from penstock.simulation.loop.replica_faults import ask_again, suspect
from penstock.simulation.loop.visibility import chance_of, note_sent, say_request
from penstock.simulation.loop.world import NONE, WAITING, World


@compiled
def send_request(w: World, number: int, e: int, now_s: float) -> int:
    """Send a request to an endpoint, and return the replica or rank that gets it."""
    note_sent(w, number, e)
    r = w.heads[e]
    if w.replicas[r].ranks > 1:
        r = pick_rank(w, r)
    hand_over(w, number, r, now_s)
    return int(r)


@compiled
def hand_over(w: World, number: int, r: int, now_s: float) -> None:
    """Queue a request at a replica."""
    w.control[0].in_flight += 1
    w.replicas[r].outstanding_tokens += w.rows[number & (len(w.rows) - 1)].input_tokens
    if w.replicas[r].on_device != NONE:
        note_arrival(w, r, number, now_s)
    enqueue(w, r, number, now_s)


@cold
def turn_away(w: World, number: int, chosen: int, now_s: float) -> None:
    """Hold a request that is not admitted, or refuse it. A request too large for the chosen engine is refused."""
    row, control = w.rows[number & (len(w.rows) - 1)], w.control[0]
    promise = w.promises[min(row.slo_class, len(w.promises) - 1)]
    row.state, row.replica, row.after = WAITING, NONE, NONE
    may_wait = chosen == REJECTED and now_s - row.tried_s < promise["hold_s"]
    if promise["overload"] == HOLD and may_wait and control.held < control.max_held:
        _hold(w, number)
        return
    _refuse(w, number, now_s)


@cold
def _hold(w: World, number: int) -> None:
    row, control = w.rows[number & (len(w.rows) - 1)], w.control[0]
    held = w.held[min(row.slo_class, len(w.held) - 1)]
    row.held = 1
    control.held += 1
    if held["last"] == NONE:
        held["first"] = number
    else:
        w.rows[held["last"] & (len(w.rows) - 1)].after = number
    held["last"] = number


@cold
def _refuse(w: World, number: int, now_s: float) -> None:
    """Refuse a request. Its client returns later, or not at all."""
    row, control = w.rows[number & (len(w.rows) - 1)], w.control[0]
    p = w.parameters[row.picker, 0]
    count_outcome(p, min(row.slo_class, CLASSES - 1), False)  # noqa: FBT003 - compiled code takes no keywords
    if row.tries >= control.max_tries or control.returning >= len(w.returns):
        give_up(w, number, NONE, now_s)
        return
    say_request(w, number, now_s)
    later_s = retry_after_s(w.request, w.endpoints[row.picker], w.hits, w.parameters[row.picker])
    end_wait(w, number)
    row.tries += 1
    add_return(w, number, now_s + later_s * (1.0 + 0.5 * chance_of(number + row.tries)))


@cold
def ask_for_waiting(w: World, now_s: float, pick: Pick) -> None:
    """Ask the policy again for requests held at the gateway, oldest first, and for clients that return by now."""
    control = w.control[0]
    control.now_s = max(control.now_s, now_s)
    tell_pickers(w, now_s)
    for kind in range(len(w.held)):
        _release(w, kind, now_s, pick)
    while control.returning > 0 and w.returns[0]["at_s"] <= now_s:
        number = next_return(w)
        row = w.rows[number & (len(w.rows) - 1)]
        if row.left:  # a client that has left is judged from its arrival
            row.waited_s = now_s - row.arrival_s
        else:  # a client that was refused is judged from its return
            row.arrival_s, row.waited_s = now_s, 0.0
        begin_wait(w, number, now_s)
        e = _ask(w, number, now_s, pick)
        count_arrival(w.request, w.parameters[row.picker])
        if e < 0 or not can_hold(w, number, w.heads[e]):
            turn_away(w, number, e, now_s)
        else:
            send_request(w, number, e, now_s)


@cold
def _release(w: World, kind: int, now_s: float, pick: Pick) -> None:
    """Send the held requests of a class while the policy admits them. Refuse those that were held too long."""
    control, held, mask = w.control[0], w.held[kind], len(w.rows) - 1
    while held["first"] != NONE:
        number = held["first"]
        row = w.rows[number & mask]
        late = now_s - row.tried_s > w.promises[kind]["hold_s"]
        e = NONE if late else _ask(w, number, now_s, pick)
        if e < 0 and not late:
            break
        held["first"] = row.after
        if row.after == NONE:
            held["last"] = NONE
        control.held -= 1
        if e < 0 or not can_hold(w, number, w.heads[e]):
            _refuse(w, number, now_s)
        else:
            row.waited_s += now_s - row.tried_s
            send_request(w, number, e, now_s)


@cold
def _ask(w: World, number: int, now_s: float, pick: Pick) -> int:
    """Return the endpoint that the policy chooses for a request, or NONE."""
    picker = w.rows[number & (len(w.rows) - 1)].picker
    say_request(w, number, now_s)
    e = call_policy(pick, w.request, w.endpoints[picker], w.hits, w.parameters[picker])
    if e >= len(w.heads):
        w.control[0].chosen = e  # run() reports the impossible choice to the caller
        return NONE
    if e >= 0 and w.replicas[w.heads[e]].down:
        suspect(w, picker, e)
        e = ask_again(w, number, pick)
        return NONE if e >= len(w.heads) else int(e)
    return int(e)
