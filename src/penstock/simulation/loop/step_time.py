"""Computes the duration of a replica's next steps: the duration of the first step, and its growth from step to step."""

import math

from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.step_events import FAR
from penstock.simulation.loop.world import World


@compiled
def plan_times(w: World, r: int, pair_s: float) -> None:
    """Set the duration of the scheduled step, and by how much each later step is longer."""
    replica = w.replicas[r]
    cost = w.costs[replica.cost]
    first = cost.step_s + replica.decoding * cost.decode_s + replica.prefill_tokens * cost.prefill_token_s + pair_s
    if replica.prompts > 0:
        first += cost.prompt_step_s
    if cost.expert_s > 0:
        first += cost.expert_s * (1 - cost.expert_miss ** (replica.decoding + replica.prefill_tokens))
    growth = 0.0
    for kind in range(w.limits.shape[1]):
        per_token = w.context_s[replica.cost, kind]
        first += per_token * w.contexts[r, kind]
        growth += per_token * w.growing[r, kind]
    factor = replica.slowness * w.batch_factors[replica.cost, replica.decoding]
    replica.first_step_s, replica.growth_s = first * factor, growth * factor


@cold
def plan_own(w: World, r: int, pair_s: float) -> None:
    """Set the seconds that a rank's tokens add to the engine's step, and by how much these seconds grow per step."""
    replica = w.replicas[r]
    cost = w.costs[replica.cost]
    own = replica.decoding * cost.decode_s + replica.prefill_tokens * cost.prefill_token_s + pair_s
    growth = 0.0
    for kind in range(w.limits.shape[1]):
        per_token = w.context_s[replica.cost, kind]
        own += per_token * w.contexts[r, kind]
        growth += per_token * w.growing[r, kind]
    replica.own_s, replica.own_growth_s = own, growth


@cold
def plan_together(w: World, head: int) -> int:
    """Set the duration of a step that ranks share.

    The experts process the tokens of all ranks, and all ranks wait for the slowest rank. Return the number of steps for
    which the same rank stays slowest.
    """
    replica = w.replicas[head]
    cost = w.costs[replica.cost]
    decoding, prefill_tokens, prompts, slowest = 0, 0, 0, head
    for r in range(head, head + replica.ranks):
        rank = w.replicas[r]
        decoding += rank.decoding
        prefill_tokens += rank.prefill_tokens
        prompts += rank.prompts
        if rank.own_s > w.replicas[slowest].own_s:
            slowest = r
    first = cost.step_s + decoding * cost.experts_decode_s + prefill_tokens * cost.experts_prefill_token_s
    if prompts > 0:
        first += cost.prompt_step_s
    first += cost.expert_s * (1 - cost.expert_miss ** (decoding + prefill_tokens))
    factor = w.batch_factors[replica.cost, decoding]
    own_s, growth = w.replicas[slowest].own_s, w.replicas[slowest].own_growth_s
    steps = FAR
    for r in range(head, head + replica.ranks):
        rank = w.replicas[r]
        rank.first_step_s, rank.growth_s = (first + own_s) * factor, growth * factor
        if rank.own_growth_s > growth:
            behind = (own_s - rank.own_s) / (rank.own_growth_s - growth)
            steps = min(steps, 1 + math.floor(min(behind, float(FAR))))
    return steps


@cold
def cut_together(w: World, head: int, now_s: float) -> None:
    """End the planned steps of all ranks of an engine at the next step boundary."""
    for r in range(head, head + w.replicas[head].ranks):
        cut_short(w, r, now_s)


@compiled
def chunk_s(w: World, r: int, start: float, end: float) -> float:
    """Return the seconds of attention that prompt tokens from `start` to `end` add to a step."""
    cost = w.replicas[r].cost
    seconds = 0.0
    for kind in range(w.limits.shape[1]):
        per_pair = w.pair_s[cost, kind]
        if per_pair > 0:
            limit = float(w.limits[cost, kind])
            seconds += per_pair * (_pairs(end, limit) - _pairs(start, limit))
    return seconds


@compiled
def _pairs(tokens: float, limit: float) -> float:
    if tokens <= limit:
        return tokens * tokens / 2
    return limit * limit / 2 + limit * (tokens - limit)


@compiled
def take_steps(w: World, r: int, steps: int) -> None:
    """Start a leap (`steps` steps with the same batch) at the replica's current time."""
    replica = w.replicas[r]
    replica.steps = steps
    w.ends[r] = replica.end_s = replica.start_s + steps_s(w, r, steps)


@compiled
def steps_s(w: World, r: int, steps: int) -> float:
    """Return the duration of `steps` consecutive steps, in seconds."""
    replica = w.replicas[r]
    seconds: float = steps * replica.first_step_s + replica.growth_s * (steps * (steps - 1) / 2)
    return seconds


@compiled
def cut_short(w: World, r: int, now_s: float) -> None:
    """End the planned steps at the next step boundary."""
    replica = w.replicas[r]
    passed, first, growth = now_s - replica.start_s, replica.first_step_s, replica.growth_s
    if growth > 0:
        half = first - growth / 2
        steps = (math.sqrt(half * half + 2 * growth * passed) - half) / growth
    else:
        steps = passed / first
    count = max(0 if replica.ahead else 1, math.floor(steps))
    while count < replica.steps and steps_s(w, r, count) < passed:
        count += 1
    if replica.ahead:
        count += 1  # the step that begins at that boundary is already scheduled
    if count < replica.steps:
        take_steps(w, r, count)
