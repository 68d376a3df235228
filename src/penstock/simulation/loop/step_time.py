"""How long are a replica's next steps? A first step, and what each equal one after it takes more."""

import math

from penstock.simulation.loop.compiled import compiled
from penstock.simulation.loop.world import World


@compiled
def plan_times(w: World, r: int, pair_s: float) -> None:
    """Set the time of the step that is scheduled and by how much longer the ones after it are."""
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
    replica.first_step_s, replica.growth_s = first, growth


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
    """Let so many steps in a row begin where the replica's clock stands."""
    replica = w.replicas[r]
    replica.steps = steps
    replica.end_s = replica.start_s + steps * replica.first_step_s + replica.growth_s * (steps * (steps - 1) / 2)


@compiled
def cut_short(w: World, r: int, now_s: float) -> None:
    """End the planned steps at the first boundary from now on."""
    replica = w.replicas[r]
    passed, first, growth = now_s - replica.start_s, replica.first_step_s, replica.growth_s
    if growth > 0:
        half = first - growth / 2
        steps = (math.sqrt(half * half + 2 * growth * passed) - half) / growth
    else:
        steps = passed / first
    count = max(1, math.floor(steps))
    while count < replica.steps and count * first + growth * (count * (count - 1) / 2) < passed:
        count += 1
    if count < replica.steps:
        take_steps(w, r, count)
