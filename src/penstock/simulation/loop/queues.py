"""Lists of waiting requests, running requests and KV transfers, linked through the rows.

A heap, ordered by wake time, holds the closed-loop users that are in think time or wait for the end of an answer.
"""

from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.observe import count_queue
from penstock.simulation.loop.world import NONE, PREFILL, WAITING, World


@compiled
def can_hold(w: World, number: int, r: int) -> bool:
    """Return whether a replica could hold a request within its KV cache and the model's context."""
    row, replica = w.rows[number & (len(w.rows) - 1)], w.replicas[r]
    # As in `kv_needed_tokens`: a prefill replica does not cache the answer.
    needed = row.input_tokens if replica.prefills_only else row.input_tokens + row.output_tokens - 1
    longest = row.input_tokens + row.output_tokens
    return bool(needed <= replica.blocks * replica.block_tokens and longest <= replica.context)


@compiled
def wait_last(w: World, r: int, number: int, now_s: float) -> None:
    """Append a new request to the queue."""
    count_queue(w, r, now_s)
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    row.state, row.replica, row.after = WAITING, r, NONE
    if replica.waiting_last == NONE:
        replica.waiting_first = number
    else:
        w.rows[replica.waiting_last & mask].after = number
    replica.waiting_last = number
    replica.waiting += 1


@compiled
def wait_first(w: World, r: int, number: int, now_s: float) -> None:
    """Put a preempted request at the front of the queue, so that it is admitted next."""
    count_queue(w, r, now_s)
    row, replica = w.rows[number & (len(w.rows) - 1)], w.replicas[r]
    row.state, row.after = WAITING, replica.waiting_first
    replica.waiting_first = number
    if replica.waiting_last == NONE:
        replica.waiting_last = number
    replica.waiting += 1


@compiled
def leave_waiting(w: World, r: int) -> None:
    """Remove the first request from the queue, at the start of a step."""
    count_queue(w, r, w.replicas[r].start_s)
    replica = w.replicas[r]
    row = w.rows[replica.waiting_first & (len(w.rows) - 1)]
    replica.waiting_first = row.after
    if row.after == NONE:
        replica.waiting_last = NONE
    replica.waiting -= 1


@cold
def leave_queue(w: World, r: int, number: int, now_s: float) -> None:
    """Remove a request from any place in the queue."""
    count_queue(w, r, now_s)
    mask, replica = len(w.rows) - 1, w.replicas[r]
    before, other = NONE, replica.waiting_first
    while other != number:
        before, other = other, w.rows[other & mask].after
    after = w.rows[number & mask].after
    if before == NONE:
        replica.waiting_first = after
    else:
        w.rows[before & mask].after = after
    if after == NONE:
        replica.waiting_last = before
    replica.waiting -= 1


@cold
def leave_held(w: World, number: int) -> None:
    """Remove a request from any place among those of its class that are held at the gateway."""
    mask = len(w.rows) - 1
    held = w.held[min(w.rows[number & mask].slo_class, len(w.held) - 1)]
    before, other = NONE, held["first"]
    while other != number:
        before, other = other, w.rows[other & mask].after
    after = w.rows[number & mask].after
    if before == NONE:
        held["first"] = after
    else:
        w.rows[before & mask].after = after
    if after == NONE:
        held["last"] = before
    w.control[0].held -= 1


@compiled
def join_running(w: World, r: int, number: int) -> None:
    """Append a request to the batch."""
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    row.state = PREFILL
    row.before, row.after = replica.running_last, NONE
    if replica.running_last == NONE:
        replica.running_first = number
    else:
        w.rows[replica.running_last & mask].after = number
    replica.running_last = number
    replica.running += 1
    if replica.prefill_first == NONE:
        replica.prefill_first = number


@compiled
def leave_running(w: World, r: int, number: int) -> None:
    """Remove a request from the batch."""
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    if row.before == NONE:
        replica.running_first = row.after
    else:
        w.rows[row.before & mask].after = row.after
    if row.after == NONE:
        replica.running_last = row.before
    else:
        w.rows[row.after & mask].before = row.before
    replica.running -= 1


@cold
def send(w: World, r: int, number: int, now_s: float) -> None:
    """Start the KV transfer of a prefilled prompt. Each replica has one link, which carries transfers one at a time."""
    mask = len(w.rows) - 1
    replica, row, cost = w.replicas[r], w.rows[number & mask], w.costs[w.replicas[r].cost]
    replica.outstanding_tokens -= row.input_tokens
    start_s = max(now_s, replica.link_free_s)
    replica.link_free_s = start_s + row.input_tokens * cost.transfer_token_s
    # The setup of a transfer delays it without occupying the link.
    row.queued_s = replica.link_free_s + cost.transfer_start_s
    # Counted as waiting, because the client's first-token ratio stretches steps, not transfers.
    row.waited_s += row.queued_s - now_s
    row.generated, row.computed, row.received = 0, 0, 1
    row.state, row.after = WAITING, NONE
    if replica.transfer_last == NONE:
        replica.transfer_first = number
    else:
        w.rows[replica.transfer_last & mask].after = number
    replica.transfer_last = number
    w.control[0].transferring += 1


@cold
def leave_transfers(w: World, r: int) -> int:
    """Remove the first request from a replica's link and return its number."""
    replica = w.replicas[r]
    number: int = replica.transfer_first
    row = w.rows[number & (len(w.rows) - 1)]
    replica.transfer_first = row.after
    if row.after == NONE:
        replica.transfer_last = NONE
    w.control[0].transferring -= 1
    return number


@compiled
def ask_again_later(w: World, observed_s: float) -> None:
    """Let a closed-loop user send the next request, if any. The user sees the end of an answer at `observed_s`."""
    control = w.control[0]
    if not control.closed:
        return
    if control.pauses:
        _pause(w, observed_s)
    elif control.known_rows < control.loaded_rows:
        w.rows[control.known_rows & (len(w.rows) - 1)].arrival_s = observed_s
        control.known_rows += 1


@cold
def _pause(w: World, observed_s: float) -> None:
    """Add a user's wake time to the heap, which has one entry per request that is known and not yet sent.

    Near the end of a run, more users pause than requests are left. The user who wakes first gets the next request.
    """
    control, wakes = w.control[0], w.wakes
    if control.next_row >= control.loaded_rows:
        return
    beyond = control.known_rows - control.loaded_rows
    # Until the arrival time of a row is known, the field holds the pause before it.
    pause_s = w.rows[control.known_rows & (len(w.rows) - 1)].arrival_s if beyond < 0 else w.pauses[beyond]
    at_s = observed_s + pause_s
    place = control.known_rows - control.next_row
    while place > 0 and wakes[(place - 1) >> 1] > at_s:
        wakes[place] = wakes[(place - 1) >> 1]
        place = (place - 1) >> 1
    wakes[place] = at_s
    control.known_rows += 1
    w.rows[control.next_row & (len(w.rows) - 1)].arrival_s = wakes[0]


@cold
def forget_first(w: World) -> None:
    """Remove from the heap the user whose request was just sent. The next request arrives at the next wake time."""
    control, wakes = w.control[0], w.wakes
    left = control.known_rows - control.next_row
    if left <= 0 or control.next_row >= control.loaded_rows:
        return
    last_s, place, child = wakes[left], 0, 1
    while child < left:
        if child + 1 < left and wakes[child + 1] < wakes[child]:
            child += 1
        if wakes[child] >= last_s:
            break
        wakes[place] = wakes[child]
        place, child = child, 2 * child + 1
    wakes[place] = last_s
    w.rows[control.next_row & (len(w.rows) - 1)].arrival_s = wakes[0]
