"""Keeps sums over the batch, and a calendar of the steps at which requests finish or fill an attention window.

Every decoding request gains one token per step. The step at which a request finishes or fills a window is therefore
known when decoding starts. Until the next step in the calendar, the sums over the batch change by the same amount in
every step.
"""

from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.world import NONE, World

FAR = 2**62
"""Number of a step that is never reached."""


@compiled
def enter_decode(w: World, r: int, number: int, left: int) -> None:
    """Add a request, which has `left` tokens to generate, to the sums. Add its events to the calendar."""
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    tokens = row.computed
    replica.decoding += 1
    w.phases[r, row.lag % replica.block_tokens] += 1
    _note(w, r, number, 0, replica.step + left)
    for kind in range(w.limits.shape[1]):
        limit = w.limits[replica.cost, kind]
        w.contexts[r, kind] += min(tokens, limit)
        if tokens < limit:
            w.growing[r, kind] += 1
            if limit - tokens <= left:
                _note(w, r, number, kind + 1, replica.step + limit - tokens)


@compiled
def _note(w: World, r: int, number: int, kind: int, step: int) -> None:
    """Add an event to the calendar."""
    kinds = w.chain.shape[1]
    slot = step & (w.calendar.shape[1] - 1)
    w.chain[number & (len(w.rows) - 1), kind] = w.calendar[r, slot]
    w.calendar[r, slot] = number * kinds + kind
    w.replicas[r].next_event = min(w.replicas[r].next_event, step)


@cold
def forget_decode(w: World, r: int, number: int, tokens: int) -> None:
    """Remove a preempted request from the sums and its pending events from the calendar."""
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    leave_sums(w, r, number, tokens)
    finish = row.input_tokens + row.output_tokens - 1
    _strike(w, r, number, 0, finish - row.lag)
    for kind in range(w.limits.shape[1]):
        limit = w.limits[replica.cost, kind]
        if tokens < limit <= finish:
            _strike(w, r, number, kind + 1, limit - row.lag)
    find_next_event(w, r)


@cold
def _strike(w: World, r: int, number: int, kind: int, step: int) -> None:
    """Remove an event from the calendar."""
    mask, kinds = len(w.rows) - 1, w.chain.shape[1]
    slot = step & (w.calendar.shape[1] - 1)
    wanted = number * kinds + kind
    following = w.chain[number & mask, kind]
    event = w.calendar[r, slot]
    if event == wanted:
        w.calendar[r, slot] = following
    else:
        while w.chain[(event // kinds) & mask, event % kinds] != wanted:
            event = w.chain[(event // kinds) & mask, event % kinds]
        w.chain[(event // kinds) & mask, event % kinds] = following


@compiled
def leave_sums(w: World, r: int, number: int, tokens: int) -> None:
    """Remove a request with `tokens` cached tokens from the sums over decoding requests."""
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    replica.decoding -= 1
    w.phases[r, row.lag % replica.block_tokens] -= 1
    for kind in range(w.limits.shape[1]):
        limit = w.limits[replica.cost, kind]
        w.contexts[r, kind] -= min(tokens, limit)
        if tokens < limit:
            w.growing[r, kind] -= 1


@compiled
def grow_sums(w: World, r: int, steps: int) -> None:
    """Add the tokens that every decoding request gained in the steps that just ended."""
    w.replicas[r].step += steps
    for kind in range(w.limits.shape[1]):
        w.contexts[r, kind] += steps * w.growing[r, kind]


@compiled
def leave_windows(w: World, r: int) -> int:
    """Handle the events of the step that just ended and return the number of finished requests in `leaving`.

    `leaving` is sorted by order of admission, because blocks are freed in this order, which differs from the order in
    the calendar.
    """
    replica = w.replicas[r]
    mask, kinds = len(w.rows) - 1, w.chain.shape[1]
    slot = replica.step & (w.calendar.shape[1] - 1)
    event = w.calendar[r, slot]
    w.calendar[r, slot] = NONE
    finished = 0
    while event != NONE:
        number, kind = event // kinds, event % kinds
        event = w.chain[number & mask, kind]
        if kind > 0:
            w.growing[r, kind - 1] -= 1
        else:
            place = finished
            while place > 0 and w.leaving[place - 1] > number:
                w.leaving[place] = w.leaving[place - 1]
                place -= 1
            w.leaving[place] = number
            finished += 1
    return finished


@compiled
def find_next_event(w: World, r: int) -> None:
    """Find the next step in the calendar that has an event."""
    replica = w.replicas[r]
    if replica.decoding == 0:
        replica.next_event = FAR
        return
    mask = w.calendar.shape[1] - 1
    step = replica.step + 1
    while w.calendar[r, step & mask] == NONE:
        step += 1
    replica.next_event = step
