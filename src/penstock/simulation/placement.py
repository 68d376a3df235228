"""Converts a deployment into a simulated replica: its step times, KV blocks and scheduler limits."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.disaggregated.disaggregated_prediction import transfer_token_s
from penstock.performance.disaggregated.steady_state import HANDOVER_S
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.prediction.drafted_load import DraftedCurve, drafted_curve
from penstock.performance.prediction.serving_stack import Stack, stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.step.drafting_step import drafting_cost
from penstock.performance.step.step_cost import step_cost
from penstock.performance.step.step_work import ReplicaWork
from penstock.simulation.replica import Replica, ReplicaPool, Transfer

PROMPTS_WAIT_STEPS: Final = {"trtllm": 60}
"""Maximum steps for which a rank's prompts wait for the other ranks, for each engine whose ranks prefill together.

Published runs of TensorRT-LLM with attention ranks set `enable_balance` and `timeout_iters: 60` (scripts of InferenceX,
`dsr1_*_trt*.sh`). In other engines a prompt on one rank makes the other ranks wait.
"""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A deployment that is ready to be simulated, or the reason why the deployment does not fit in memory."""

    deployment: Deployment
    memory: MemoryFit
    stack: Stack
    replica: Replica | None
    """None if the deployment does not fit in memory."""
    speculation: Speculation | None = None
    measured_engine: str | None = None
    """Engine whose measurements define the stack, if the stack was looked up by name."""

    def at(self, log_factor: float) -> Replica | None:
        """Return the replica with step times multiplied by exp(log_factor), for the P10 or P90 of the step times."""
        if self.replica is None:
            return None
        return replace(self.replica, cost=self.replica.cost.scaled(float(np.exp(log_factor))))

    def with_slower_prompts(self, prompt_log: float) -> "Placement":
        """Return the placement of an engine without drafts that takes exp(`prompt_log`) times as long for prompts."""
        if self.replica is None:
            return self
        stack = replace(self.stack, curve=self.stack.curve.with_slower_prompts(prompt_log))
        cost = step_cost(ReplicaWork(self.deployment), stack.slowdowns)
        cost = replace(cost, batch_factors=self.replica.cost.batch_factors)
        return replace(self, stack=stack, replica=replace(self.replica, cost=cost))


def place(
    deployment: Deployment,
    measured_engine: str,
    efficiencies: Efficiencies,
    *,
    typical_lengths: tuple[int, int],
    prefix_caching: bool = True,
    speculation: Speculation | None = None,
) -> Placement:
    """Convert a deployment into a replica, with the step times of the measured stack for its engine and accelerator."""
    work = ReplicaWork(deployment)
    stack = stack_of(work, measured_engine, efficiencies, drafting=speculation is not None)
    drafted = drafted_curve(stack, work, measured_engine, efficiencies, speculation)
    placed = place_on(
        work,
        stack,
        typical_lengths=typical_lengths,
        measured_engine=measured_engine,
        prefix_caching=prefix_caching,
        speculation=speculation if drafted is None else drafted.at_typical_loads(),
        drafted=drafted,
    )
    return replace(placed, measured_engine=measured_engine)


def place_on(
    work: ReplicaWork,
    stack: Stack,
    *,
    typical_lengths: tuple[int, int],
    measured_engine: str,
    prefix_caching: bool = True,
    speculation: Speculation | None = None,
    drafted: DraftedCurve | None = None,
) -> Placement:
    """Place a deployment. `drafted` has the measured runs with the drafts of `speculation`.

    `typical_lengths` are the mean prompt and answer tokens of a request. They size the cache of a sliding-window model.
    They also select the measured loads of this setup that correct the time of a step.

    A simulated step yields one token per request. A speculative step that yields n tokens is therefore simulated as n
    equal steps, each with 1/n of the tokens that a step may process.
    """
    deployment, stack = work.deployment, stack.at_lengths(*typical_lengths)
    typical_tokens = sum(typical_lengths)
    memory = fit(deployment, typical_tokens)
    cost = replace(step_cost(work, stack.slowdowns), batch_factors=stack.curve.factors_by_users(*typical_lengths))
    yielded = 1.0
    if speculation is not None:
        yielded = speculation.accepted_tokens
        widened = partial(_widened_spread, stack, speculation)
        stack = replace(stack, spread_of=widened, tier=speculation.tier_on(stack))
        cost = drafting_cost(work, stack.slowdowns, speculation.drafted_tokens, yielded)
        factors = () if drafted is None else drafted.factors_by_users(*typical_lengths, speculation.log_factor)
        cost = replace(cost.scaled(float(np.exp(speculation.log_factor))), batch_factors=factors)
    replica = None
    if memory.fits and memory.capacity is not None:
        settings, sequences = deployment.engine, deployment.engine.max_sequences
        rank_tokens = memory.capacity.tokens // deployment.parallelism.dp
        replica = Replica(
            cost=cost,
            # A model that caches nothing per token is limited only by its batch.
            kv_blocks=rank_tokens // settings.block_tokens or sequences * typical_tokens,
            block_tokens=settings.block_tokens,
            max_batched_tokens=max(round(settings.max_batched_tokens / yielded), sequences),
            max_sequences=sequences,
            prefix_caching=prefix_caching,
            context_tokens=deployment.model.max_context_tokens,
            asynchronous=settings.schedules_ahead and deployment.parallelism.pp == 1,
            prompts_wait_steps=PROMPTS_WAIT_STEPS.get(measured_engine, 0),
            request_s=stack.request_s,
            first_ratio=stack.first_ratio,
        )
    return Placement(deployment=deployment, memory=memory, stack=stack, replica=replica, speculation=speculation)


def _widened_spread(stack: Stack, speculation: Speculation) -> Logs:
    return speculation.widened(stack.spread)


def disaggregated_pools(
    deployed: Disaggregated,
    ahead: Replica,
    after: Replica,
    *,
    name: str,
    units: int = 1,
    usd_per_hour: float | None = None,
) -> tuple[ReplicaPool, ReplicaPool]:
    """Return the prefill pool and the decode pool. `usd_per_hour` is the price of a decode replica."""
    share = deployed.prefill.parallelism.devices / deployed.decode.parallelism.devices
    return (
        ReplicaPool(
            name=f"{name} prefill",
            replica=ahead,
            replicas=units * deployed.prefill_replicas,
            role="prefill",
            transfer=Transfer(token_s=transfer_token_s(deployed), start_s=HANDOVER_S),
            usd_per_hour=None if usd_per_hour is None else usd_per_hour * share,
        ),
        ReplicaPool(
            name=f"{name} decode",
            replica=after,
            replicas=units * deployed.decode_replicas,
            role="decode",
            usd_per_hour=usd_per_hour,
        ),
    )
