"""Follows the clients of requests: a client waits for the first token, may leave if it takes too long, and may return.

A client that leaves closes its connection. It returns after a pause, as OpenAI's client does after a timeout. A refused
client returns after the seconds of Retry-After. The rows of the requests whose clients may leave are linked by class,
in the order in which the clients sent them. All clients of a class are equally patient, so the first leaves first.
"""

import math

from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.queues import ask_again_later
from penstock.simulation.loop.visibility import chance_of
from penstock.simulation.loop.world import DONE, LEFT, NONE, WAITING, World

_FIRST_PAUSE_S, _MAX_PAUSE_S, _SHORTER = 0.5, 8.0, 0.25
"""Pause before a client returns that has left: doubled with each return, and up to a quarter shorter by chance."""


@compiled
def begin_wait(w: World, number: int, now_s: float) -> None:
    """Record that a client sends its request now. From now on it waits for the first token."""
    row = w.rows[number & (len(w.rows) - 1)]
    row.tried_s = now_s
    kind = min(row.slo_class, len(w.promises) - 1)
    if w.promises[kind]["patience_s"] == math.inf:
        return
    queue = w.may_leave[kind]
    row.may_leave, row.earlier, row.later = 1, queue["last"], NONE
    if queue["last"] == NONE:
        queue["first"] = number
    else:
        w.rows[queue["last"] & (len(w.rows) - 1)].later = number
    queue["last"] = number
    w.control[0].may_leave += 1


@compiled
def end_wait(w: World, number: int) -> None:
    """Record that a client no longer waits for the first token of its request."""
    mask = len(w.rows) - 1
    row = w.rows[number & mask]
    if not row.may_leave:
        return
    queue = w.may_leave[min(row.slo_class, len(w.promises) - 1)]
    if row.earlier == NONE:
        queue["first"] = row.later
    else:
        w.rows[row.earlier & mask].later = row.later
    if row.later == NONE:
        queue["last"] = row.earlier
    else:
        w.rows[row.later & mask].earlier = row.earlier
    row.may_leave = 0
    w.control[0].may_leave -= 1


@cold
def next_to_leave(w: World) -> int:
    """Return the class whose first waiting client leaves next. NONE if no client may leave."""
    best, best_s = NONE, math.inf
    for kind in range(len(w.may_leave)):
        first = w.may_leave[kind]["first"]
        if first != NONE:
            at_s = w.rows[first & (len(w.rows) - 1)].tried_s + w.promises[kind]["patience_s"]
            if at_s < best_s:
                best, best_s = kind, at_s
    return best


@compiled
def next_leave_s(w: World) -> float:
    """Return the time at which the next client leaves, if it gets no token before."""
    if w.control[0].may_leave == 0:
        return math.inf
    kind = next_to_leave(w)
    first = w.may_leave[kind]["first"]
    return float(w.rows[first & (len(w.rows) - 1)].tried_s + w.promises[kind]["patience_s"])


@cold
def end_try(w: World, number: int, now_s: float) -> None:
    """Let a client that has left return after a pause, or not at all."""
    row, control = w.rows[number & (len(w.rows) - 1)], w.control[0]
    if row.tries >= control.max_tries or control.returning >= len(w.returns):
        give_up(w, number, LEFT, now_s)
        return
    row.state, row.replica, row.after = WAITING, NONE, NONE
    row.computed, row.shared, row.entered, row.own_cached, row.building = 0, 0, 0, 0, 0
    row.lru_junk, row.doubled, row.received, row.preempted = 0, NONE, 0, 0
    pause_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2.0**row.tries)
    row.tries += 1
    add_return(w, number, now_s + pause_s * (1.0 - _SHORTER * chance_of(number + row.tries)))


@cold
def give_up(w: World, number: int, where: int, now_s: float) -> None:
    """End a request that is not served: it is refused or lost, or its client has left.

    In a closed loop, the user of the request then sends the next request.
    """
    row = w.rows[number & (len(w.rows) - 1)]
    end_wait(w, number)
    row.state, row.replica = DONE, where
    ask_again_later(w, now_s)


@cold
def add_return(w: World, number: int, at_s: float) -> None:
    """Add a client to the heap of those that will return."""
    place = w.control[0].returning
    w.control[0].returning += 1
    while place > 0 and w.returns[(place - 1) >> 1]["at_s"] > at_s:
        above = w.returns[(place - 1) >> 1]
        w.returns[place]["at_s"], w.returns[place]["number"] = above["at_s"], above["number"]
        place = (place - 1) >> 1
    w.returns[place]["at_s"], w.returns[place]["number"] = at_s, number


@cold
def next_return(w: World) -> int:
    """Remove the client that returns first from the heap, and return its request."""
    control = w.control[0]
    number = w.returns[0]["number"]
    control.returning -= 1
    left, place, child = control.returning, 0, 1
    last_s, last = w.returns[left]["at_s"], w.returns[left]["number"]
    while child < left:
        if child + 1 < left and w.returns[child + 1]["at_s"] < w.returns[child]["at_s"]:
            child += 1
        if w.returns[child]["at_s"] >= last_s:
            break
        w.returns[place]["at_s"], w.returns[place]["number"] = w.returns[child]["at_s"], w.returns[child]["number"]
        place, child = child, 2 * child + 1
    w.returns[place]["at_s"], w.returns[place]["number"] = last_s, last
    return int(number)
