"""What happens when a replica dies, slows down or falls silent? Its requests go elsewhere, as a gateway sends them."""

from penstock.routing.ledger import divide, lost, sent
from penstock.simulation.loop.batching import enqueue
from penstock.simulation.loop.compiled import rare
from penstock.simulation.loop.knowledge import say_request
from penstock.simulation.loop.observe import count_queue
from penstock.simulation.loop.queues import can_hold
from penstock.simulation.loop.step_events import FAR
from penstock.simulation.loop.world import (
    CHANGES_SPEED,
    DIES,
    DONE,
    IS_NOTICED,
    NONE,
    REPORTS_AGAIN,
    RETURNS,
    STOPS_REPORTING,
    WAITING,
    World,
)


@rare
def befall(w: World, number: int) -> None:
    """Let a fault happen."""
    fault = w.faults[number]
    replica = w.replicas[fault["replica"]]
    if fault["kind"] == CHANGES_SPEED:
        replica.slowness = fault["factor"]
    elif fault["kind"] == STOPS_REPORTING:
        replica.silent = 1
    elif fault["kind"] == REPORTS_AGAIN:
        replica.silent = 0
    elif fault["kind"] == DIES:
        _die(w, fault["replica"], fault["at_s"])
    elif fault["kind"] == RETURNS:
        replica.down = 0
        _tell(w, fault["replica"], 1)
    elif fault["kind"] == IS_NOTICED:
        _tell(w, fault["replica"], 0)


@rare
def _tell(w: World, r: int, accepts: int) -> None:
    """Let every picker know whether a replica is up, as health checks do."""
    for picker in range(w.endpoints.shape[0]):
        w.endpoints[picker, r]["accepts"] = accepts
        if w.endpoints.shape[0] > 1:
            divide(w.endpoints[picker], picker, w.endpoints.shape[0])


@rare
def _die(w: World, r: int, now_s: float) -> None:
    """Take a replica down: what it held is lost, and its requests start again elsewhere, with the time they lost."""
    mask = len(w.rows) - 1
    replica = w.replicas[r]
    count_queue(w, r, now_s)
    first = NONE
    # Its lists become one, newest first, threaded through `lru_after`, which nothing uses any more.
    for start in (replica.running_first, replica.waiting_first):
        number = start
        while number != NONE:
            row = w.rows[number & mask]
            following = row.after
            if row.state != DONE:  # its answer ended with the last step, and only its seat was not yet free
                row.lru_after = first
                first = number
            number = following
    _wipe(w, r)
    replica.down = 1
    while first != NONE:
        following = w.rows[first & mask].lru_after
        _again(w, first, r, now_s)
        first = following


@rare
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


@rare
def _again(w: World, number: int, dead: int, now_s: float) -> None:
    """Send a request of a dead replica to the one with the fewest requests of those that are up and hold it."""
    place = number & (len(w.rows) - 1)
    row = w.rows[place]
    lost(w.endpoints[row.picker], w.flights, place, now_s, w.parameters)
    best, fewest = NONE, 0
    for r in range(len(w.replicas)):
        other = w.replicas[r]
        if r != dead and not other.down and not other.decodes_only and can_hold(w, number, r):
            load = w.endpoints[row.picker, r]["in_flight"]
            if best == NONE or load < fewest:
                best, fewest = r, load
    if best == NONE:
        w.control[0].rejected += 1
        w.control[0].in_flight -= 1
        row.state, row.replica = DONE, NONE
        return
    row.state, row.generated, row.computed, row.shared, row.entered = WAITING, 0, 0, 0, 0
    row.own_cached, row.building, row.lru_junk, row.doubled = 0, 0, 0, NONE
    say_request(w, number, now_s)
    sent(w.endpoints[row.picker], best, w.request, 0, w.flights, place, w.parameters)
    w.replicas[best].outstanding_tokens += row.input_tokens
    enqueue(w, best, number, now_s)
