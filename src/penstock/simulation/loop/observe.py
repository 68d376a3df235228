"""What is reported of the steps that ended? Sums by replica, the time between tokens, a timeline, and a log."""

import math

from penstock.simulation.loop.compiled import compiled, rare
from penstock.simulation.loop.world import (
    BINS,
    BINS_PER_E,
    BUSY,
    LEAST_S,
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
    """Return the place of a time in a latency histogram."""
    return min(int(math.log(max(seconds, LEAST_S) / LEAST_S) * BINS_PER_E), BINS - 1)


@compiled
def count_gap(w: World, r: int, seconds: float, count: int) -> None:
    """Count intervals between tokens in the histogram of the replica's pool."""
    w.tokens_between[w.replicas[r].pool, bin_of(seconds)] += count


@compiled
def observe(w: World, r: int, now_s: float) -> None:
    """Add the steps that just ended to what is reported."""
    replica, control = w.replicas[r], w.control[0]
    seconds = now_s - replica.start_s
    used = replica.blocks - replica.free
    replica.busy_s += seconds
    replica.running_s += replica.running * seconds
    replica.waiting_s += replica.waiting * seconds
    replica.used_s += used * seconds
    replica.engine_steps += replica.steps
    replica.prefill_total += replica.prefill_tokens
    tokens = replica.steps * replica.decoding
    replica.decode_total += tokens
    if tokens > 0:
        _count_steps(w, r)
    _draw(w, r, now_s, tokens)
    if control.log_size < len(w.log):
        event = w.log[control.log_size]
        control.log_size += 1
        event.start_s, event.seconds, event.replica, event.steps = replica.start_s, seconds, r, replica.steps
        event.decodes, event.prefill_tokens = replica.decoding, replica.prefill_tokens
        event.used_blocks, event.waiting = used, replica.waiting


@compiled
def _count_steps(w: World, r: int) -> None:
    """Spread the lengths of consecutive steps over the histogram; they grow by the same amount each."""
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
        upper_s = LEAST_S * math.exp((place + 1) / BINS_PER_E)
        count = min(steps - done, max(1, int((upper_s - step_s) / growth) + 1))
        w.tokens_between[replica.pool, place] += count * replica.decoding
        done += count


@compiled
def _draw(w: World, r: int, now_s: float, tokens: int) -> None:
    """Spread the steps that just ended over the columns of the timeline they cover."""
    replica, control = w.replicas[r], w.control[0]
    while now_s >= control.width_s * TIMELINE:
        _widen(w)
    seconds, used = now_s - replica.start_s, replica.blocks - replica.free
    from_s = replica.start_s
    column = int(from_s / control.width_s)
    while from_s < now_s:
        until_s = min(now_s, (column + 1) * control.width_s)
        here_s = max(0.0, until_s - from_s)
        cell = w.timeline[replica.pool, column]
        cell[BUSY] += here_s
        cell[RUNNING] += replica.running * here_s
        cell[QUEUED] += replica.waiting * here_s
        cell[USED] += used * here_s
        cell[PROMPT] += replica.prefill_tokens * here_s / seconds
        cell[OUTPUT] += tokens * here_s / seconds
        from_s = max(until_s, (column + 1) * control.width_s)
        column += 1


@rare
def _widen(w: World) -> None:
    """Make two timeline columns one."""
    w.control[0].width_s *= 2
    for pool in range(w.timeline.shape[0]):
        for column in range(TIMELINE):
            for what in range(w.timeline.shape[2]):
                both = 0.0
                if 2 * column + 1 < TIMELINE:
                    both = w.timeline[pool, 2 * column, what] + w.timeline[pool, 2 * column + 1, what]
                w.timeline[pool, column, what] = both
