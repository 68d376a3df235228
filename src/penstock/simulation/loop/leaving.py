"""Lets clients leave that have waited too long for the first token.

The gateway sees the closed connection at once, and so does the engine. A request in a queue, at the gateway or at the
engine, is forgotten at once. A prompt that is computed is stopped at the end of the step in progress, as engines do,
and its KV blocks are freed. A KV transfer that is in progress ends first.
"""

from penstock.compiled.marks import cold
from penstock.routing.class_balance import count_outcome
from penstock.routing.records import CLASSES
from penstock.simulation.loop.clients import end_try, end_wait, next_to_leave
from penstock.simulation.loop.kv_blocks import drop_own, release
from penstock.simulation.loop.queues import leave_held, leave_queue, leave_running
from penstock.simulation.loop.step_time import cut_short, cut_together
from penstock.simulation.loop.visibility import note_left
from penstock.simulation.loop.world import NONE, WAITING, World


@cold
def leave(w: World, now_s: float) -> None:
    """Let the client leave whose patience ends first."""
    number = w.may_leave[next_to_leave(w)]["first"]
    row, control = w.rows[number & (len(w.rows) - 1)], w.control[0]
    control.now_s = now_s
    end_wait(w, number)
    row.left = 1
    r = row.replica
    if r == NONE:
        _leave_gateway(w, number, now_s)
        return
    note_left(w, number, now_s)
    in_transfer = row.received and w.replicas[r].prefills_only
    if in_transfer or (row.state != WAITING and w.replicas[r].steps > 0):
        row.abandoned = 1
    elif row.state == WAITING:
        _leave_engine_queue(w, r, number, now_s)
    else:
        stop_prompt(w, r, number, now_s)


@cold
def _leave_gateway(w: World, number: int, now_s: float) -> None:
    """Forget a request that is held at the gateway."""
    row = w.rows[number & (len(w.rows) - 1)]
    leave_held(w, number)
    w.flights[number & (len(w.rows) - 1)]["endpoint"] = NONE
    kind = min(row.slo_class, CLASSES - 1)
    count_outcome(w.parameters[row.picker, 0], kind, False)  # noqa: FBT003 - compiled code takes no keywords
    end_try(w, number, now_s)


@cold
def _leave_engine_queue(w: World, r: int, number: int, now_s: float) -> None:
    """Take a request out of an engine's queue. The next in the queue may then fit into the batch."""
    replica = w.replicas[r]
    blocked = replica.waiting_first == number
    leave_queue(w, r, number, now_s)
    drop_own(w, r, number)
    if blocked and replica.waiting > 0 and replica.steps > 1:
        if replica.together:
            cut_together(w, replica.head, now_s)
        else:
            cut_short(w, r, now_s)
    forget(w, r, number, now_s)


@cold
def stop_prompt(w: World, r: int, number: int, now_s: float) -> None:
    """Stop the prompt of a client that has left, between two steps. Free its blocks and its batch slot."""
    row = w.rows[number & (len(w.rows) - 1)]
    leave_running(w, r, number)
    release(w, r, number, row.computed, row.computed, False)  # noqa: FBT003 - compiled code takes no keywords
    forget(w, r, number, now_s)


@cold
def forget(w: World, r: int, number: int, now_s: float) -> None:
    """Count a request no longer as outstanding at an engine, because its client has left."""
    row = w.rows[number & (len(w.rows) - 1)]
    w.replicas[r].outstanding_tokens -= row.input_tokens
    forget_in_transfer(w, number, now_s)


@cold
def forget_in_transfer(w: World, number: int, now_s: float) -> None:
    """Forget a request that no replica counts as outstanding, because its client has left."""
    w.rows[number & (len(w.rows) - 1)].abandoned = 0
    w.control[0].in_flight -= 1
    end_try(w, number, now_s)
