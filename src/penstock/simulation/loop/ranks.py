"""Schedules ranks that wait for each other.

These ranks are the schedulers of one engine, and their steps begin and end together.
"""

import math

from penstock.compiled.marks import cold
from penstock.simulation.loop.batching import end, equal_steps, release_finished, schedule
from penstock.simulation.loop.step_time import plan_own, plan_together, take_steps
from penstock.simulation.loop.world import World


@cold
def begin_together(w: World, head: int, now_s: float) -> None:
    """Schedule the next steps of an engine whose ranks step together. A rank without work takes part in these steps."""
    first = w.replicas[head]
    ranks = first.ranks
    running, waiting, alike = 0, 0, True
    later = first.prompts_wait > 0 and _prompts_wait(w, head)
    for r in range(head, head + ranks):
        replica = w.replicas[r]
        preemptions = replica.preemptions
        plan_own(w, r, schedule(w, r, now_s, later))
        late = replica.ahead and release_finished(w, r)
        running += replica.running
        waiting += replica.waiting
        alike = alike and replica.prefill_tokens == 0 and replica.preemptions == preemptions and not late
    steps = plan_together(w, head)
    if later:
        steps = min(steps, first.prompts_wait - first.waited)
    if not alike:
        steps = 1
    for r in range(head, head + ranks):
        if alike and w.replicas[r].decoding > 0:
            steps = min(steps, equal_steps(w, r))
    first.waited = first.waited + steps if later else 0
    for r in range(head, head + ranks):
        if running > 0:
            take_steps(w, r, steps)
        else:
            w.replicas[r].steps = 0
            w.ends[r] = w.replicas[r].end_s = now_s if waiting > 0 else math.inf


@cold
def _prompts_wait(w: World, head: int) -> bool:
    """Return whether a rank's prompts wait until the other ranks also have prompts.

    Prompts wait under three conditions: only some ranks have a waiting prompt, every rank has requests to decode, and
    the limit of steps is not reached.
    """
    first = w.replicas[head]
    some, every, busy = False, True, True
    for r in range(head, head + first.ranks):
        replica = w.replicas[r]
        some = some or replica.waiting > 0
        every = every and replica.waiting > 0
        busy = busy and replica.decoding > 0
    return some and not every and busy and first.waited < first.prompts_wait


@cold
def end_together(w: World, head: int) -> None:
    """Update the state of an engine's ranks for the steps that just ended."""
    for r in range(head, head + w.replicas[head].ranks):
        end(w, r)


@cold
def pick_rank(w: World, head: int) -> int:
    """Pick the rank with the fewest requests, with more weight on waiting requests, as vLLM's own balancer does.

    As in `DPLBAsyncMPClient` of vLLM 0.32, a waiting request weighs as much as a running request while half of the KV
    cache is free. When the cache is full, a waiting request weighs four times as much. Each search starts one rank
    further than the last search. In vLLM the counts are up to 0.1 s old if several front ends share them. In the
    simulation the counts are exact, as in vLLM with one front end.
    """
    first = w.replicas[head]
    best, best_load = head, math.inf
    for ahead in range(first.ranks):
        r = head + (first.rank_turn + ahead) % first.ranks
        replica = w.replicas[r]
        pressed = max(0.0, 0.5 - replica.free / replica.blocks)
        load = replica.running + replica.waiting * (1 + 6 * pressed)
        if load < best_load:
            best, best_load = r, load
    first.rank_turn = (first.rank_turn + 1) % first.ranks
    return best
