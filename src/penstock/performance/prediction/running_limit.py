"""Computes how many requests of a closed loop run at once.

The KV cache, the engine's batch and the token budget of a step limit the number. A measurement of the setup proves that
the engine has at least the room that its run needed, so a longer request loses room in proportion to its length.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.benchmark_harness import prompts_first
from penstock.performance.memory.budget import MemoryFit, batch_limit
from penstock.performance.memory.running_requests import mean_context_tokens, running_requests
from penstock.performance.prediction.measured_load import SAME_LENGTHS, RequestedLoad
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.similarity.own_measurements import OwnMeasurements


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLimit:
    """Room of an engine for running requests."""

    cache_tokens: float = inf
    """Tokens that the KV cache holds."""
    requests: float = inf
    """Maximum number of requests in a batch."""
    step_tokens: float = inf
    """Tokens that one step processes. Infinite if the engine processes all waiting prompts before it decodes again."""
    drafts: Speculation

    def running(self, load: RequestedLoad) -> float:
        """Return the number of requests that run at once."""
        held = running_requests(
            self.cache_tokens, load.input_tokens, load.output_tokens, max_requests=min(self.requests, load.users)
        )
        return max(1.0, min(held, self.step_tokens / step_tokens(load, self.drafts)))

    def with_proof(self, own: OwnMeasurements, ranks: int) -> "RunningLimit":
        """Return the limit with at least the room that measured runs of the setup needed.

        `ranks` is the number of independent ranks of the replica. `own` has the loads of one rank. Lengths that count
        as the same load need the same room.
        """
        if not len(own):
            return self
        loads = [RequestedLoad(*each) for each in np.exp2(np.column_stack(own.loads)).tolist()]
        shorter, longer = np.exp2(SAME_LENGTHS).tolist()
        tokens = max(load.users * mean_context_tokens(load.input_tokens, load.output_tokens) for load in loads)
        step = max(load.users * step_tokens(load, self.drafts) for load in loads)
        return RunningLimit(
            cache_tokens=max(self.cache_tokens, ranks * tokens / shorter),
            requests=max(self.requests, round(ranks * max(load.users for load in loads))),
            step_tokens=max(self.step_tokens, ranks * step * longer / shorter),
            drafts=self.drafts,
        )


def step_tokens(load: RequestedLoad, drafts: Speculation) -> float:
    """Return the tokens that each running request adds to a step: its own tokens, and its share of the next prompt.

    A request takes as many steps as it has output tokens, or fewer with drafts.
    """
    steps = load.output_tokens / drafts.accepted_tokens
    return 1 + drafts.drafted_tokens + load.input_tokens / steps


def engine_limit(deployment: Deployment, memory: MemoryFit, engine: str, drafts: Speculation) -> RunningLimit:
    """Return the room of an engine as its settings and its memory say."""
    cached = 0 if memory.capacity is None else memory.capacity.tokens
    return RunningLimit(
        cache_tokens=cached or inf,
        requests=batch_limit(deployment) or inf,
        step_tokens=inf if prompts_first(engine) else deployment.batched_tokens,
        drafts=drafts,
    )
