"""Predicts the steady-state speed of a prefill pool with a decode pool, and the uncertainty of this speed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, inf
from typing import Final

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.fleet.serving_engines import measured_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.disaggregated.measured_pools import CorrectedPools, MeasuredPools, PoolsSpeed
from penstock.performance.disaggregated.phase_factors import Phase, PhaseFactors, labels_of
from penstock.performance.disaggregated.steady_state import PoolsDemand, Steady, TwoPools, steady
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.memory.engine_settings_that_fit import with_room
from penstock.performance.memory.request_cache import request_cache_bytes
from penstock.performance.memory.sharding import refusal, stage_of_layers
from penstock.performance.prediction.choose_engine import BEST
from penstock.performance.prediction.drafted_load import drafted_curve
from penstock.performance.prediction.measured_load import CorrectedTime, RequestedLoad
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Stack, Tier, stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.step.drafting_step import drafting_cost
from penstock.performance.step.step_cost import StepCost, step_cost
from penstock.performance.step.step_work import ReplicaWork

_TYPICAL_TOKENS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedSplit:
    """Number of prefill replicas and of decode replicas, and the parallelism of each kind of replica."""

    prefill: Parallelism
    prefill_replicas: int
    decode: Parallelism
    decode_replicas: int
    kv_bytes_per_s: float | None = None
    """Bytes per second at which one prefill replica sends KV. None if the user gave no value."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisaggregatedEvidence:
    """Published runs of disaggregated deployments: fitted factors, and the runs of each setup."""

    factors: PhaseFactors
    measured_of: Callable[[Disaggregated, str, Speculation | None], MeasuredPools | None] = lambda *_: None
    """Function from a deployment, an engine and drafts to the published runs of exactly this setup."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DisaggregatedPrediction:
    """Predicted performance of both pools together."""

    deployed: Disaggregated
    measured_engine: str
    demand: PoolsDemand
    prefill: Stack
    decode: Stack
    memory: tuple[MemoryFit, MemoryFit]
    """Memory of a prefill replica and of a decode replica."""
    steady: Steady
    tpot_s: Range
    ttft_s: Range
    output_tokens_per_s: Range
    tier: Tier
    """Tier of the time per output token. It is `calibrated` if the setups of both replicas were measured in
    disaggregated deployments, but not together at this load or near it."""
    speculation: Speculation | None = None
    """Speculative decoding of the decode replicas."""

    @property
    def fits(self) -> bool:
        """Return whether a prefill replica and a decode replica each have memory for the model and one request."""
        return all(memory.fits for memory in self.memory)

    @property
    def output_tokens_per_s_per_device(self) -> float:
        """Return the throughput divided by the number of devices in both pools."""
        return self.output_tokens_per_s.value / self.deployed.devices


def deploy_disaggregated(
    model: ModelSpec,
    accelerator: Accelerator,
    split: DisaggregatedSplit,
    measured_engine: str,
    cache_dtype: CacheDtype | None,
    drafts: Speculation | None = None,
) -> Disaggregated:
    """Return the deployment of both pools, with the engine's default settings for each replica."""
    own_layers = drafts is not None and drafts.own_layers
    ahead, after = (
        Deployment(
            model=model,
            accelerator=accelerator,
            engine=measured_defaults(measured_engine, accelerator, tp=ranks.tp, pp=ranks.pp),
            parallelism=ranks,
            cache_dtype=cache_dtype,
            speculative=drafting,
        )
        for ranks, drafting in ((split.prefill, False), (split.decode, own_layers))
    )
    return Disaggregated(
        prefill=ahead,
        prefill_replicas=split.prefill_replicas,
        decode=after,
        decode_replicas=split.decode_replicas,
        kv_bytes_per_s=split.kv_bytes_per_s,
    )


def disaggregated_engines(
    accelerator: Accelerator, measured_engine: str, efficiencies: Efficiencies, factors: PhaseFactors
) -> Sequence[str]:
    """List the engines with which to predict: the requested engine, or all measured engines.

    The measured engines are those with disaggregated measurements on the accelerator. If there are no disaggregated
    measurements, all engines with measurements on the accelerator are listed. If the accelerator has no measurements,
    only vLLM is listed.
    """
    known = factors.engines(accelerator.id) or efficiencies.engines(accelerator.id) or ("vllm",)
    if measured_engine == BEST:
        return known
    tried = sorted({*known, *efficiencies.engines(accelerator.id)})
    if measured_engine not in tried:
        raise DeploymentError(
            f"engine '{measured_engine}' was not measured on {accelerator.id}; choose one of: {', '.join(tried)}"
        )
    return (measured_engine,)


def disaggregated_stack(
    deployment: Deployment, measured_engine: str, phase: Phase, efficiencies: Efficiencies, factors: PhaseFactors
) -> Stack:
    """Return the stack of an engine that only prefills or only decodes."""
    stack = stack_of(ReplicaWork(deployment), measured_engine, efficiencies)
    return stack_in_phase(stack, deployment, measured_engine, phase, factors)


def decode_cost(work: ReplicaWork, stack: Stack, drafts: Speculation | None) -> StepCost:
    """Return the cost of a step with one token per request, with or without drafts."""
    if drafts is None:
        return step_cost(work, stack.slowdowns)
    cost = drafting_cost(work, stack.slowdowns, drafts.drafted_tokens, drafts.accepted_tokens)
    return cost.scaled(exp(drafts.log_factor))


def stack_in_phase(
    stack: Stack,
    deployment: Deployment,
    measured_engine: str,
    phase: Phase,
    factors: PhaseFactors,
    drafts: Speculation | None = None,
) -> Stack:
    """Convert the stack of an engine with both phases into the stack of an engine that only prefills or only decodes.

    The slowdowns of the steps are multiplied by the fitted factor of the phase.
    """
    draft = "" if drafts is None else drafts.label
    labels = labels_of(deployment, measured_engine, seen=stack.novelty == "shape", draft=draft)
    measured = factors.measured(labels)
    spread = factors.spread(measured=measured, drafting=bool(draft))
    return replace(
        stack,
        curve=stack.curve.without_corrections(exp(factors.log_factor(phase, labels))),
        spread_of=lambda: spread.tpot,
        first_spread=spread.ttft,
        tier="calibrated" if measured else "transferred",
    )


def predict_disaggregated(
    deployed: Disaggregated,
    measured_engine: str,
    demand: PoolsDemand,
    efficiencies: Efficiencies,
    factors: PhaseFactors,
    drafts: Speculation | None = None,
    own: MeasuredPools | None = None,
) -> DisaggregatedPrediction:
    """Predict the speed of two pools under a closed loop of users or at a request rate.

    The decode replicas draft tokens if `drafts` is given. `own` has the published runs of exactly this setup.
    """
    inputs, both = round(demand.input_tokens), round(demand.input_tokens + demand.output_tokens)
    ahead = disaggregated_stack(deployed.prefill, measured_engine, "prefill", efficiencies, factors)
    decoding = ReplicaWork(deployed.decode)
    alone = stack_of(decoding, measured_engine, efficiencies)
    drafted = drafted_curve(alone, decoding, measured_engine, efficiencies, drafts)
    drafts = drafts if drafted is None else drafted.at_typical_loads()
    after = stack_in_phase(alone, deployed.decode, measured_engine, "decode", factors, drafts)
    memory = fit(deployed.prefill, max(1, inputs)), fit(deployed.decode, max(1, both))
    pools = TwoPools(
        prefill=step_cost(ReplicaWork(deployed.prefill), ahead.slowdowns),
        decode=decode_cost(decoding, after, drafts),
        prefill_workers=deployed.prefill_replicas,
        decode_workers=deployed.decode_replicas,
        batched_tokens=deployed.prefill.batched_tokens,
        seats=seats_of(deployed.decode, memory[1]),
        transfer_token_s=transfer_token_s(deployed),
    )

    def solved(demands: Sequence[PoolsDemand]) -> tuple[list[Steady], PoolsSpeed]:
        # The client receives the first token from the decode replica, as in the simulator.
        states = steady([(pools, each) for each in demands])
        rates = [each.requests_per_s * asked.output_tokens for each, asked in zip(states, demands, strict=True)]
        firsts = [observed_s(each, after.request_s, after.first_ratio) for each in states]
        return states, PoolsSpeed(np.array([each.tpot_s for each in states]), np.array(rates), np.array(firsts))

    (answer,), said = solved([demand])
    measured = ahead.tier == after.tier == "calibrated"
    spread = factors.spread(measured=measured, drafting=drafts is not None)
    tier: Tier = "calibrated" if measured else "transferred"
    at = CorrectedPools(*(CorrectedTime(log_factor=0.0, spread=each, tier=tier) for each in spread.ends))
    if own is not None and demand.users is not None:
        load = RequestedLoad(demand.users, demand.input_tokens, demand.output_tokens)
        repeats = efficiencies.repeats, efficiencies.first_repeats
        at = own.correct(load, lambda loads: solved([_closed_loop(load) for load in loads])[1], spread, repeats, tier)
    tpot_s, rate, ttft_s = (
        range_around(float(value[0]) * exp(each.log_factor), each.spread) for value, each in zip(said, at, strict=True)
    )
    return DisaggregatedPrediction(
        deployed=deployed,
        measured_engine=measured_engine,
        demand=demand,
        prefill=ahead,
        decode=after,
        memory=memory,
        steady=answer,
        tpot_s=tpot_s,
        ttft_s=ttft_s,
        output_tokens_per_s=rate,
        tier=at.tpot.tier,
        speculation=drafts,
    )


def _closed_loop(load: tuple[float, float, float]) -> PoolsDemand:
    users, inputs, outputs = load
    return PoolsDemand(users=users, input_tokens=inputs, output_tokens=outputs)


def predict_disaggregated_on(
    model: ModelSpec,
    accelerator: Accelerator,
    split: DisaggregatedSplit,
    *,
    cache_dtype: CacheDtype | None,
    measured_engine: str,
    demand: PoolsDemand,
    efficiencies: Efficiencies,
    evidence: DisaggregatedEvidence,
    speculate: Callable[[str], Speculation] | None = None,
) -> DisaggregatedPrediction:
    """Predict with the requested engine, or with every measured engine, and return the best prediction.

    Predictions are compared by four criteria in this order: whether the deployment fits in memory, whether the
    setup was measured (tier), how close the setup is to a measured setup, and speed.
    """

    def predicted(name: str) -> DisaggregatedPrediction:
        drafts = None if speculate is None else speculate(name)
        deployed = deploy_disaggregated(model, accelerator, split, name, cache_dtype, drafts)
        own = evidence.measured_of(deployed, name, drafts)
        if own is not None:
            deployed = _with_room(deployed, demand)
        return predict_disaggregated(deployed, name, demand, efficiencies, evidence.factors, drafts, own)

    answers = [
        predicted(name) for name in disaggregated_engines(accelerator, measured_engine, efficiencies, evidence.factors)
    ]
    surest = {"shape": 3, "configuration": 2, "model": 1, "accelerator": 0}

    tiers = ("transferred", "calibrated", "interpolated", "measured")

    def worth(answer: DisaggregatedPrediction) -> tuple[bool, int, int, float]:
        sure = surest[answer.decode.novelty]
        return answer.fits, tiers.index(answer.tier), sure, answer.output_tokens_per_s.value

    return max(answers, key=worth)


def _with_room(deployed: Disaggregated, demand: PoolsDemand) -> Disaggregated:
    """Replace engine settings that leave too little memory for the load with the nearest settings that leave enough.

    Published runs of the setup must show that there are such settings.
    """
    inputs, both = round(demand.input_tokens), round(demand.input_tokens + demand.output_tokens)
    users = max(1, ceil((demand.users or 1) / deployed.decode_replicas))
    return replace(
        deployed,
        prefill=with_room(deployed.prefill, max(1, inputs)),
        decode=with_room(deployed.decode, max(1, both), requests=users),
    )


def observed_s(answer: Steady, request_s: float, first_ratio: float) -> float:
    """Return the time to first token that a client sees, in seconds.

    As in the simulator, `first_ratio` scales only the time of the steps. The time of waiting and transfer is not
    scaled.
    """
    return request_s + answer.ttft_s + (first_ratio - 1) * answer.served_s


def kv_bytes_per_token(deployment: Deployment) -> float:
    """Return the KV bytes that one device of a rank holds for one token.

    The device sends these bytes to the decode replica. The engine may reserve more bytes for a token than the device
    sends.
    """
    if refusal(deployment) is not None:
        return 0.0
    owner = stage_of_layers(len(deployment.model.layers), deployment.parallelism.pp)
    stages = [[index for index, at in enumerate(owner) if at == stage] for stage in sorted(set(owner))]
    return max(request_cache_bytes(deployment, layers, _TYPICAL_TOKENS) for layers in stages) / _TYPICAL_TOKENS


def transfer_token_s(deployed: Disaggregated) -> float:
    """Return the seconds for which the links of a prefill replica are busy sending the KV of one token.

    Every device of a rank sends its own share of the KV.
    """
    split = deployed.prefill.parallelism
    return kv_bytes_per_token(deployed.prefill) * split.tp * split.pp / deployed.sending_bytes_per_s


def seats_of(deployment: Deployment, memory: MemoryFit) -> int:
    """Return the maximum number of concurrent requests of a decode replica, given its batch limit and its KV cache."""
    limit = deployment.engine.max_sequences * deployment.parallelism.dp
    held = memory.capacity.concurrent_requests if memory.capacity is not None else None
    return max(1, min(limit, int(held))) if held else limit


def range_around(value: float, logs: tuple[float, float]) -> Range:
    """Return a range around a predicted value.

    The arguments are the predicted value, and P10 and P90 of the ratio of measured to predicted values, as logarithms.
    """
    low, high = logs
    if value == inf:
        return Range(value=value, low=value, high=value)
    return Range(value=value, low=value * exp(min(low, 0.0)), high=value * exp(max(high, 0.0)))
