"""What does a deployment become in the simulator? Its step times, its KV blocks and the limits of its scheduler."""

from dataclasses import dataclass, replace

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.evidence.efficiencies import Efficiencies
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.prediction.stack import Stack, stack_of
from penstock.performance.step.cost import step_cost
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
) -> Placement:
    """Lay a deployment out; `typical_tokens` is the length at which the cache of a windowed model is counted."""
    stack = stack_of(deployment, measured_engine, efficiencies)
    return place_on(deployment, stack, typical_tokens=typical_tokens, prefix_caching=prefix_caching)


def place_on(deployment: Deployment, stack: Stack, *, typical_tokens: int, prefix_caching: bool = True) -> Placement:
    """Lay a deployment out on a stack that is known."""
    memory = fit(deployment, typical_tokens)
    replica = None
    if memory.fits and memory.capacity is not None:
        settings, ranks = deployment.engine, deployment.parallelism.dp
        sequences = settings.max_sequences * ranks
        replica = Replica(
            cost=step_cost(ReplicaWork(deployment), stack.slowdowns),
            # A model that caches nothing per token is limited by its batch alone.
            kv_blocks=memory.capacity.tokens // settings.block_tokens or sequences * typical_tokens,
            block_tokens=settings.block_tokens,
            max_batched_tokens=max(settings.max_batched_tokens * ranks, sequences),
            max_sequences=sequences,
            prefix_caching=prefix_caching,
            request_s=stack.request_s,
            first_ratio=stack.first_ratio,
        )
    return Placement(deployment=deployment, memory=memory, stack=stack, replica=replica)
