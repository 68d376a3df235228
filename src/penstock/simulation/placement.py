"""What does a deployment become in the simulator? Its step times, its KV blocks and the limits of its scheduler."""

from dataclasses import dataclass, replace

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.evidence.efficiencies import Efficiencies
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.prediction.predict import Speculation
from penstock.performance.prediction.stack import Stack, stack_of
from penstock.performance.step.cost import step_cost
from penstock.performance.step.drafts import drafting_cost
from penstock.performance.step.work import ReplicaWork
from penstock.simulation.replica import Replica


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A deployment ready to be simulated, or what stands in the way."""

    deployment: Deployment
    memory: MemoryFit
    stack: Stack
    replica: Replica | None
    """None where it does not fit."""
    speculation: Speculation | None = None
    measured_engine: str | None = None
    """Whose measurements the stack is from, where it was looked up by name."""

    def at(self, log_factor: float) -> Replica | None:
        """Return the same replica, slower by a factor given as its logarithm: one end of the interval."""
        if self.replica is None:
            return None
        return replace(self.replica, cost=self.replica.cost.scaled(float(np.exp(log_factor))))


def place(
    deployment: Deployment,
    measured_engine: str,
    efficiencies: Efficiencies,
    *,
    typical_tokens: int,
    prefix_caching: bool = True,
    speculation: Speculation | None = None,
) -> Placement:
    """Lay a deployment out on the stack that serves it."""
    work = ReplicaWork(deployment)
    stack = stack_of(work, measured_engine, efficiencies)
    placed = place_on(
        work, stack, typical_tokens=typical_tokens, prefix_caching=prefix_caching, speculation=speculation
    )
    return replace(placed, measured_engine=measured_engine)


def place_on(
    work: ReplicaWork,
    stack: Stack,
    *,
    typical_tokens: int,
    prefix_caching: bool = True,
    speculation: Speculation | None = None,
) -> Placement:
    """Lay a deployment out; `typical_tokens` is the length at which the cache of a windowed model is counted.

    A step of the simulator yields one token of each request, so one that drafts is simulated in as many equal shares
    as it yields tokens, each with its share of the tokens a step may take.
    """
    deployment = work.deployment
    memory = fit(deployment, typical_tokens)
    cost, yielded = step_cost(work, stack.slowdowns), 1.0
    if speculation is not None:
        yielded = speculation.accepted_tokens
        stack = replace(stack, spread=speculation.widened(stack.spread), tier=speculation.tier_on(stack))
        cost = drafting_cost(work, stack.slowdowns, speculation.drafted_tokens, yielded)
        cost = cost.scaled(float(np.exp(speculation.log_factor)))
    replica = None
    if memory.fits and memory.capacity is not None:
        settings, ranks = deployment.engine, deployment.parallelism.dp
        sequences = settings.max_sequences * ranks
        replica = Replica(
            cost=cost,
            # A model that caches nothing per token is limited by its batch alone.
            kv_blocks=memory.capacity.tokens // settings.block_tokens or sequences * typical_tokens,
            block_tokens=settings.block_tokens,
            max_batched_tokens=max(round(settings.max_batched_tokens * ranks / yielded), sequences),
            max_sequences=sequences,
            prefix_caching=prefix_caching,
            request_s=stack.request_s,
            first_ratio=stack.first_ratio,
        )
    return Placement(deployment=deployment, memory=memory, stack=stack, replica=replica, speculation=speculation)
