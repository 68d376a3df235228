"""Simulates replicas that die, slow down or stop reporting, and retries their requests as a gateway does.

A picker whose connection to a replica is refused or broken avoids this replica until it is up again. Other pickers
learn of a death when health checks notice it. Faults require that every replica has one rank, so that each replica is
one endpoint.
"""

from penstock.compiled.marks import cold
from penstock.compiled.policy_call import call_policy
from penstock.routing.endpoint_updates import divide, lost
from penstock.routing.policy_function import Pick
from penstock.simulation.loop.batching import enqueue
from penstock.simulation.loop.clients import give_up
from penstock.simulation.loop.leaving import forget_in_transfer
from penstock.simulation.loop.observe import count_queue
from penstock.simulation.loop.queues import can_hold
from penstock.simulation.loop.step_events import FAR
from penstock.simulation.loop.visibility import note_sent, say_request
from penstock.simulation.loop.world import (
    CHANGES_SPEED,
    DIES,
    DONE,
    IS_NOTICED,
    LOST,
    NONE,
    REPORTS_AGAIN,
    RETURNS,
    STOPS_REPORTING,
    WAITING,
    World,
)


@cold
def apply_fault(w: World, number: int, pick: Pick) -> None:
    """Apply a fault to its replica."""
    fault = w.faults[number]
    replica = w.replicas[fault["replica"]]
    if fault["kind"] == CHANGES_SPEED:
        replica.slowness = fault["factor"]
    elif fault["kind"] == STOPS_REPORTING:
        replica.silent = 1
    elif fault["kind"] == REPORTS_AGAIN:
        replica.silent = 0
    elif fault["kind"] == DIES:
        _die(w, fault["replica"], fault["at_s"], pick)
    elif fault["kind"] == RETURNS:
        replica.down = 0
        _tell(w, fault["replica"], 1)
    elif fault["kind"] == IS_NOTICED:
        _tell(w, fault["replica"], 0)


@cold
def _tell(w: World, r: int, accepts: int) -> None:
    """Record in the state of every picker whether a replica is up, as health checks do."""
    for picker in range(w.endpoints.shape[0]):
        w.endpoints[picker, r]["accepts"] = accepts
        if w.endpoints.shape[0] > 1:
            divide(w.endpoints[picker], picker, w.endpoints.shape[0])


@cold
def suspect(w: World, picker: int, r: int) -> None:
    """Mark a replica as down for the picker whose connection the replica refused."""
    if w.endpoints[picker, r]["accepts"] != 0:
        w.endpoints[picker, r]["accepts"] = 0
        if w.endpoints.shape[0] > 1:
            divide(w.endpoints[picker], picker, w.endpoints.shape[0])


@cold
def ask_again(w: World, number: int, pick: Pick) -> int:
    """Ask a request's picker again until the picker chooses a replica that is up.

    Return NONE if it chooses only replicas that are down.
    """
    picker = w.rows[number & (len(w.rows) - 1)].picker
    for _ in range(len(w.replicas)):
        r = call_policy(pick, w.request, w.endpoints[picker], w.hits, w.parameters[picker])
        if r < 0 or r >= len(w.replicas) or not w.replicas[r].down:
            return r
        suspect(w, picker, r)
    return NONE


@cold
def _die(w: World, r: int, now_s: float, pick: Pick) -> None:
    """Take a replica down. The replica's state is lost, and all its connections break."""
    mask = len(w.rows) - 1
    replica = w.replicas[r]
    count_queue(w, r, now_s)
    first, last = NONE, NONE
    # Join its lists into one, linked through `lru_after`, which is no longer used.
    for start in (replica.running_first, replica.waiting_first):
        number = start
        while number != NONE:
            row = w.rows[number & mask]
            following = row.after
            if row.state != DONE:  # a DONE row's answer ended with the last step; only its seat is not yet free
                row.lru_after = NONE
                if last == NONE:
                    first = number
                else:
                    w.rows[last & mask].lru_after = number
                last = number
            number = following
    _wipe(w, r)
    replica.down = 1
    while first != NONE:
        following = w.rows[first & mask].lru_after
        _break_off(w, first, r, now_s, pick)
        first = following


@cold
def _wipe(w: World, r: int) -> None:
    replica = w.replicas[r]
    replica.end_s, replica.next_event, replica.steps = float("inf"), FAR, 0
    w.ends[r] = replica.end_s
    replica.free = replica.blank = replica.blocks
    replica.junk = replica.running = replica.decoding = replica.waiting = 0
    replica.prefill_tokens = replica.outstanding_tokens = 0
    replica.lru_first = replica.lru_last = replica.running_first = replica.running_last = NONE
    replica.prefill_first = replica.waiting_first = replica.waiting_last = NONE
    replica.gone_first = replica.gone_last = NONE
    w.contexts[r, :] = 0
    w.growing[r, :] = 0
    w.phases[r, :] = 0
    w.calendar[r, :] = NONE
    for segment in range(w.cached.shape[1]):
        held = w.cached[r, segment]
        held.builder = held.junk = held.blocks = held.users = held.doubles = 0


@cold
def _break_off(w: World, number: int, dead: int, now_s: float, pick: Pick) -> None:
    """Break a connection to a dead replica. If the answer has started, the request is lost.

    If not, the request is routed again.
    """
    place, control = number & (len(w.rows) - 1), w.control[0]
    row = w.rows[place]
    if row.abandoned:
        forget_in_transfer(w, number, now_s)
        return
    lost(w.endpoints[row.picker], w.flights, place, now_s, w.parameters[row.picker])
    suspect(w, row.picker, dead)
    r = LOST
    if row.generated == 0:
        say_request(w, number, now_s)
        r = ask_again(w, number, pick)
        if r >= len(w.replicas):
            control.chosen = r  # run() reports the impossible choice to the caller
            r = NONE
        if r < 0 or not can_hold(w, number, r):
            r = NONE
    if r < 0:
        control.in_flight -= 1
        give_up(w, number, r, now_s)
        return
    row.state, row.computed, row.shared, row.entered = WAITING, 0, 0, 0
    row.own_cached, row.building, row.lru_junk, row.doubled = 0, 0, 0, NONE
    row.waited_s = now_s - row.arrival_s  # all work done for it is lost
    note_sent(w, number, r)
    w.replicas[r].outstanding_tokens += row.input_tokens
    enqueue(w, r, number, now_s)
