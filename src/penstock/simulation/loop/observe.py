"""Measures a simulation run: time integrals per replica, the time between tokens, a timeline, and a log of steps.

Inside a leap of equal steps, blocks fill and requests arrive. Blocks and waiting requests are integrated over these
steps in closed form, so that a mean over time is exact.
"""

import math

from penstock.compiled.interface import exported
from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.world import (
    BINS,
    BINS_PER_E,
    BUSY,
    MIN_S,
    OUTPUT,
    PROMPT,
    QUEUED,
    RUNNING,
    TIMELINE,
    USED,
    World,
)


@compiled
def bin_of(seconds: float) -> int:
    """Return the index of the latency-histogram bin for a duration."""
    return min(int(math.log(max(seconds, MIN_S) / MIN_S) * BINS_PER_E), BINS - 1)


@compiled
def count_gap(w: World, r: int, seconds: float, count: int) -> None:
    """Count intervals between tokens in the histogram of the replica's pool."""
    w.tokens_between[w.replicas[r].pool, bin_of(seconds)] += count


@compiled
def client_lag_s(w: World, r: int, number: int) -> float:
    """Return the delay, in seconds, from the engine's output of a request's tokens until the client sees them.

    `first_ratio` multiplies only the time from admission to the first token, not the time in a queue or in KV transfer.
    """
    row, replica = w.rows[number & (len(w.rows) - 1)], w.replicas[r]
    served_s = row.first_s - row.arrival_s - row.waited_s
    lag_s: float = replica.request_s + (replica.first_ratio - 1) * served_s
    return lag_s


@compiled
def observe(w: World, r: int, now_s: float) -> None:
    """Add the engine steps that just ended to the measurements."""
    replica, control = w.replicas[r], w.control[0]
    seconds = now_s - replica.start_s
    used = replica.blocks - replica.free
    replica.busy_s += seconds
    replica.running_s += replica.running * seconds
    grown_s = _grown_block_seconds(w, r)
    replica.used_s += used * seconds + grown_s
    replica.engine_steps += replica.steps
    replica.prefill_total += replica.prefill_tokens
    tokens = replica.steps * replica.decoding
    replica.decode_total += tokens
    if tokens > 0:
        _count_steps(w, r)
    _draw(w, r, now_s, tokens, used + grown_s / seconds if seconds > 0 else float(used))
    if control.log_size < len(w.log):
        event = w.log[control.log_size]
        control.log_size += 1
        event.start_s, event.seconds, event.replica, event.steps = replica.start_s, seconds, r, replica.steps
        event.decodes, event.prefill_tokens = replica.decoding, replica.prefill_tokens
        event.used_blocks, event.waiting = used, replica.waiting


@compiled
def grown_blocks(w: World, r: int, ahead: int) -> int:
    """Return the number of blocks that decoding requests allocate in the next `ahead` steps."""
    replica = w.replicas[r]
    size = replica.block_tokens
    grown: int = (ahead // size) * replica.decoding
    for step in range(ahead % size):
        grown += w.phases[r, -(replica.step + 1 + step) % size]
    return grown


@compiled
def _grown_block_seconds(w: World, r: int) -> float:
    """Return the time integral, in block-seconds, of the blocks that are allocated during a leap (several equal steps).

    In each round of `size` steps, every decoding request allocates one block. Step `m + q * size` therefore has `q *
    decoding` more blocks than step m, and it takes `first + growth * (m + q * size)` seconds. The integral over a leap
    is therefore a combination of the sums of 1, q and q squared.
    """
    replica = w.replicas[r]
    steps, size, each = replica.steps, replica.block_tokens, float(replica.decoding)
    if steps <= 1 or replica.decoding == 0:
        return 0.0
    total, taken = 0.0, 0.0
    for m in range(min(size, steps)):
        if m > 0:
            taken += w.phases[r, -(replica.step + m) % size]
        rounds = float((steps - m + size - 1) // size)
        ones, firsts = rounds, rounds * (rounds - 1) / 2
        squares = (rounds - 1) * rounds * (2 * rounds - 1) / 6
        step_s = replica.first_step_s + replica.growth_s * m
        total += step_s * (each * firsts + taken * ones)
        total += replica.growth_s * size * (each * squares + taken * firsts)
    return total


@compiled
def used_at(w: World, r: int, now_s: float) -> int:
    """Return the number of blocks in use at a moment inside a leap that is still in progress."""
    replica = w.replicas[r]
    used: int = replica.blocks - replica.free
    if replica.steps > 1 and now_s > replica.start_s:
        passed, first, growth = now_s - replica.start_s, replica.first_step_s, replica.growth_s
        done = passed / first
        if growth > 0:
            half = first - growth / 2
            done = (math.sqrt(half * half + 2 * growth * passed) - half) / growth
        used += grown_blocks(w, r, min(int(done), replica.steps - 1))
    return used


@compiled
def count_queue(w: World, r: int, now_s: float) -> None:
    """Add the time since the last change to a queue's integral, before a request joins or leaves the queue."""
    replica, control = w.replicas[r], w.control[0]
    from_s = replica.counted_s
    replica.counted_s = max(now_s, from_s)
    if replica.waiting == 0 or now_s <= from_s:
        return
    replica.waiting_s += replica.waiting * (now_s - from_s)
    while now_s >= control.width_s * TIMELINE:
        _widen(w)
    column = int(from_s / control.width_s)
    while from_s < now_s:
        until_s = min(now_s, (column + 1) * control.width_s)
        w.timeline[replica.pool, column, QUEUED] += replica.waiting * max(0.0, until_s - from_s)
        from_s = max(until_s, (column + 1) * control.width_s)
        column += 1


@exported
def count_queues(w: World) -> None:
    """Integrate every queue up to now."""
    for r in range(len(w.replicas)):
        count_queue(w, r, w.control[0].now_s)


@compiled
def _count_steps(w: World, r: int) -> None:
    """Count the durations of consecutive steps in the histogram.

    Each step is longer than the previous step by the same amount.
    """
    replica = w.replicas[r]
    first, growth, steps = replica.first_step_s, replica.growth_s, replica.steps
    last = first + growth * (steps - 1)
    if last < first * (1 + 0.5 / BINS_PER_E):
        count_gap(w, r, first, steps * replica.decoding)
        return
    done = 0
    while done < steps:
        step_s = first + growth * done
        place = bin_of(step_s)
        upper_s = MIN_S * math.exp((place + 1) / BINS_PER_E)
        count = min(steps - done, max(1, int((upper_s - step_s) / growth) + 1))
        w.tokens_between[replica.pool, place] += count * replica.decoding
        done += count


@compiled
def _draw(w: World, r: int, now_s: float, tokens: int, mean_used: float) -> None:
    """Spread the steps that just ended over the timeline columns that they cover.

    Used blocks are assumed to grow linearly.
    """
    replica, control = w.replicas[r], w.control[0]
    while now_s >= control.width_s * TIMELINE:
        _widen(w)
    seconds = now_s - replica.start_s
    rise = 2 * (mean_used - (replica.blocks - replica.free))
    from_s = replica.start_s
    column = int(from_s / control.width_s)
    while from_s < now_s:
        until_s = min(now_s, (column + 1) * control.width_s)
        here_s = max(0.0, until_s - from_s)
        cell = w.timeline[replica.pool, column]
        cell[BUSY] += here_s
        cell[RUNNING] += replica.running * here_s
        middle = ((from_s + until_s) / 2 - replica.start_s) / seconds
        cell[USED] += (mean_used + rise * (middle - 0.5)) * here_s
        cell[PROMPT] += replica.prefill_tokens * here_s / seconds
        cell[OUTPUT] += tokens * here_s / seconds
        from_s = max(until_s, (column + 1) * control.width_s)
        column += 1


@cold
def _widen(w: World) -> None:
    """Double the width of the timeline columns by merging pairs of columns."""
    w.control[0].width_s *= 2
    for pool in range(w.timeline.shape[0]):
        for column in range(TIMELINE):
            for what in range(w.timeline.shape[2]):
                both = 0.0
                if 2 * column + 1 < TIMELINE:
                    both = w.timeline[pool, 2 * column, what] + w.timeline[pool, 2 * column + 1, what]
                w.timeline[pool, column, what] = both
