"""Who serves a request, and what happens next in the fleet? Arrivals, routes, KV transfers and the ends of steps."""

import math

from penstock.simulation.loop.batching import begin, end, enqueue
from penstock.simulation.loop.compiled import compiled, entry, rare
from penstock.simulation.loop.queues import leave_transfers
from penstock.simulation.loop.world import DONE, NONE, World

FINISHED, MORE_ROWS, WHERE_TO, SATURATED, PAUSED = range(5)
"""Why the loop came back: all done; it needs rows; it asks for a route; a queue is too long; to show a sign of life."""

ROUND_ROBIN, LEAST_REQUESTS, LEAST_TOKENS = range(3)


@entry
def run(w: World, budget: int) -> int:
    """Advance until something is needed from outside, or after `budget` events."""
    control = w.control[0]
    for _ in range(budget):
        # In an open loop no arrival may be overlooked; in a closed one every user may finish at once and ask again.
        ahead = control.known_rows if control.closed else control.next_row
        if not control.final and control.loaded_rows - ahead <= control.users:
            return MORE_ROWS
        ends = _next_end(w)
        ready = _next_transfer(w) if control.transferring > 0 else NONE
        end_s = w.replicas[ends].end_s
        ready_s = w.rows[w.replicas[ready].transfer_first & (len(w.rows) - 1)].queued_s if ready != NONE else math.inf
        arrival_s = math.inf
        if control.next_row < control.known_rows:
            arrival_s = w.rows[control.next_row & (len(w.rows) - 1)].arrival_s
        soonest_s = min(arrival_s, ready_s, end_s)
        if soonest_s == math.inf:
            return FINISHED
        control.now_s = soonest_s
        if arrival_s == soonest_s:
            if control.ask:
                return WHERE_TO
            if not _arrive(w, arrival_s):
                return SATURATED
        elif ready_s == soonest_s:
            _receive(w, ready, ready_s)
        else:
            _proceed(w, ends, end_s)
    return PAUSED


@compiled
def _arrive(w: World, now_s: float) -> bool:
    """Route the next arrival; False when the queue it joins is longer than allowed."""
    number = w.control[0].next_row
    row = w.rows[number & (len(w.rows) - 1)]
    _hand(w, number, choose(w, number, row.pool, False), now_s)  # noqa: FBT003 - compiled code takes no keywords
    return bool(w.replicas[row.replica].waiting <= w.control[0].stop_waiting)


@compiled
def _proceed(w: World, r: int, now_s: float) -> None:
    """End a replica's steps and begin the next ones."""
    control = w.control[0]
    known = control.known_rows
    end(w, r)
    # Whoever asks again at this very moment is in the queue before the next step is scheduled.
    if control.known_rows > known and control.think_s == 0:
        w.replicas[r].steps = 0
    else:
        begin(w, r, now_s)


@entry
def place(w: World, number: int, r: int, now_s: float) -> None:
    """Hand the next arrival to a replica somebody else has chosen."""
    _hand(w, number, r, now_s)


@compiled
def _hand(w: World, number: int, r: int, now_s: float) -> None:
    control = w.control[0]
    row = w.rows[number & (len(w.rows) - 1)]
    control.next_row += 1
    control.in_flight += 1
    control.now_s = now_s
    w.replicas[r].outstanding_tokens += row.input_tokens + row.output_tokens
    enqueue(w, r, number, now_s)


@compiled
def _next_end(w: World) -> int:
    best = 0
    for r in range(1, len(w.replicas)):
        if w.replicas[r].end_s < w.replicas[best].end_s:
            best = r
    return best


@rare
def _next_transfer(w: World) -> int:
    best, best_s = NONE, math.inf
    for r in range(len(w.replicas)):
        first = w.replicas[r].transfer_first
        if first != NONE and w.rows[first & (len(w.rows) - 1)].queued_s < best_s:
            best, best_s = r, w.rows[first & (len(w.rows) - 1)].queued_s
    return best


@rare
def _receive(w: World, sender: int, now_s: float) -> None:
    """A prompt's KV has arrived: a decoding replica takes it on."""
    number = leave_transfers(w, sender)
    row = w.rows[number & (len(w.rows) - 1)]
    w.control[0].now_s = now_s
    r = choose(w, number, NONE, True)  # noqa: FBT003 - compiled code takes no keywords
    w.replicas[r].outstanding_tokens += row.input_tokens + row.output_tokens
    enqueue(w, r, number, now_s)


@compiled
def choose(w: World, number: int, pool: int, decode: bool) -> int:  # noqa: FBT001 - compiled code takes no keywords
    """Pick a replica: in turn, or the one with the least requests or tokens outstanding; ties go to the first.

    There is always one: a request that none of the replicas it may go to could hold is refused before it gets here.
    """
    control = w.control[0]
    row = w.rows[number & (len(w.rows) - 1)]
    most_tokens = row.input_tokens + row.output_tokens - 1
    count = len(w.replicas)
    if count == 1:
        return 0
    best, best_load = NONE, math.inf
    for ahead in range(count):
        r = (control.turn + ahead) % count if control.policy == ROUND_ROBIN else ahead
        replica = w.replicas[r]
        wrong_pool = pool != NONE and pool != replica.pool  # noqa: PLR1714 - compiled code has no mixed tuples
        # As `kv_needed_tokens` says: where prompts are only prefilled, the answer is cached elsewhere.
        needed = row.input_tokens if replica.prefills_only else most_tokens
        if wrong_pool or replica.decodes_only != decode or needed > replica.blocks * replica.block_tokens:
            continue
        load = 0.0
        if control.policy == LEAST_REQUESTS:
            load = float(replica.running + replica.waiting)
        elif control.policy == LEAST_TOKENS:
            load = float(replica.outstanding_tokens)
        if load < best_load:
            best, best_load = r, load
    control.turn = best + 1
    return best


@entry
def settled(w: World, base: int) -> int:
    """Return the first row that is not finished, from `base` on."""
    control = w.control[0]
    mask = len(w.rows) - 1
    while base < control.next_row and w.rows[base & mask].state == DONE:
        base += 1
    return base
