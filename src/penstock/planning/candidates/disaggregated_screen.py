"""Estimates the rate within an SLO that prefill-only and decode-only replicas sustain together in steady state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.disaggregated.disaggregated_prediction import (
    observed_s,
    seats_of,
    stack_in_phase,
    transfer_token_s,
)
from penstock.performance.disaggregated.phase_factors import Phase, PhaseFactors, PhaseSpread
from penstock.performance.disaggregated.steady_state import Columns, PoolsDemand, Steady, TwoPools, steady
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Stack
from penstock.performance.step.step_cost import StepCost, step_cost
from penstock.performance.step.step_work import Array, ReplicaWork
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Capacity, Option, RateCurve, cannot
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo

_RATES: Final = 100
"""Number of equal steps in which request rates are tried; a step is 1% of the maximum rate of the slower pool."""
_HALVINGS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseEngine:
    """A prefill-only or decode-only replica, with the fitted stack whose measurements predict its speed."""

    work: ReplicaWork
    stack: Stack
    cost: StepCost


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """Maximum rates of one prefill replica and of one decode replica for one length, in requests per second."""

    prefill_per_s: float
    decode_per_s: float


class UnitScreen:
    """Estimates the capacity of disaggregated units from the steady state of their two pools; engines are cached."""

    def __init__(self, loop: QueuelessScreen, phase_factors: PhaseFactors) -> None:
        self.loop = loop
        self.phase_factors = phase_factors
        self._engines: dict[tuple[int, Phase], PhaseEngine] = {}
        self._sending: dict[tuple[int, float | None], float] = {}

    def __call__(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        """Return the highest rate within the SLO for each length; `loop` estimates options that are not units."""
        if option.disaggregated is None:
            return self.loop(option, workload)
        return tuple(self._alone(option, option.disaggregated, share.bucket, workload.slo) for share in workload.shares)

    def medians(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        """Return the same rates; options that are not units have no uncertainty, which takes longer to compute."""
        return self(option, workload) if option.disaggregated is not None else self.loop.medians(option, workload)

    def engine(self, deployment: Deployment, measured_engine: str, phase: Phase) -> PhaseEngine:
        """Return a prefill-only or decode-only replica of a deployment; results are cached."""
        both = self.loop.compiled_on(deployment, measured_engine)
        key = (id(both), phase)
        if key not in self._engines:
            stack = stack_in_phase(both.stack, deployment, measured_engine, phase, self.phase_factors)
            cost = step_cost(both.work, stack.slowdowns)
            self._engines[key] = PhaseEngine(work=both.work, stack=stack, cost=cost)
        return self._engines[key]

    def engines(self, unit: Disaggregated, measured_engine: str) -> tuple[PhaseEngine, PhaseEngine]:
        """Return the engine that prefills and the engine that decodes."""
        return (
            self.engine(unit.prefill, measured_engine, "prefill"),
            self.engine(unit.decode, measured_engine, "decode"),
        )

    def spread(self, unit: Disaggregated, measured_engine: str) -> PhaseSpread:
        """Return the prediction error of a unit.

        The error is smaller if the prefill and the decode setup were both measured in a disaggregated deployment.
        """
        return self.phase_factors.seen if self.measured(unit, measured_engine) else self.phase_factors.unseen

    def measured(self, unit: Disaggregated, measured_engine: str) -> bool:
        """Return whether both the prefill and the decode setup were measured in a disaggregated deployment."""
        return all(side.stack.tier == "calibrated" for side in self.engines(unit, measured_engine))

    def rates(self, pairs: Sequence[tuple[Disaggregated, str]], bucket: Bucket, slo: Slo) -> list[PairRates]:
        """Return the rates of the prefill and the decode replica of each pair; 0 if even one request misses the SLO.

        The rates are for one length and ignore the queue in front of the prefill replicas. Rates are computed for many
        pairs at once, to choose the numbers of prefill and decode replicas.
        """
        if not pairs:
            return []
        demand = PoolsDemand(input_tokens=bucket.input_tokens, output_tokens=bucket.output_tokens, requests_per_s=1.0)
        columns = Columns([(self._pools(unit, engine, bucket), demand) for unit, engine in pairs])
        decoding = _most_decoding(columns, _token_limit_s(bucket, slo))
        step_s = columns.decode_step_s(decoding)
        after = columns.decodes * decoding / (columns.outputs * step_s)
        lone_s = columns.prefill_step_s(np.ones_like(step_s)) + columns.link_s + columns.start_s + step_s
        ahead = np.where(lone_s <= _first_limit_s(slo), columns.prefill_limit, 0.0)
        replicas = zip(columns.prefills.tolist(), columns.decodes.tolist(), strict=True)
        return [
            PairRates(prefill_per_s=float(ahead[n]) / prefills, decode_per_s=float(after[n]) / decodes)
            for n, (prefills, decodes) in enumerate(replicas)
        ]

    def _alone(self, option: Option, unit: Disaggregated, bucket: Bucket, slo: Slo) -> Capacity:
        """Return the capacity of a unit for one length."""
        for held, tokens in ((unit.prefill, bucket.input_tokens), (unit.decode, bucket.longest_tokens)):
            memory = self.loop.memory(held, tokens)
            if not memory.fits:
                return cannot(memory.obstacle.reason if memory.obstacle else "does not fit")
        engine = option.measured_engine
        ahead, after = self.engines(unit, engine)
        pools = self._pools(unit, engine, bucket)
        found, slow, fast = (_most(pools, at, after.stack, bucket, slo) for at in (0.0, *self._steps(unit, engine)))
        if found is None:
            return cannot("misses the SLO with one request alone")
        rate, decoding = found
        low, high = 0.0 if slow is None else slow[0], rate if fast is None else fast[0]
        return Capacity(
            curve=RateCurve.through(Range(value=rate, low=min(low, rate), high=max(high, rate))),
            tier="calibrated" if self.measured(unit, engine) else "transferred",
            grounds=f"{engine}, disaggregated, prefill from {' > '.join(ahead.stack.path)}, "
            f"decode from {' > '.join(after.stack.path)}; steady state with {decoding:,.0f} requests per decode step",
            # Prefill devices only prefill, so their share of the unit's devices is the cost of prompts.
            prefill_fraction=unit.prefill_replicas * unit.prefill.parallelism.devices / unit.devices,
            measured_engine=engine,
            software=after.stack.software,
        )

    def _steps(self, unit: Disaggregated, measured_engine: str) -> tuple[float, float]:
        """Return the logarithms of the factors on step time that give the P10 and the P90 of capacity.

        Step times are scaled instead of the rate, because near the SLO's limit on time per token a small change in step
        time causes a large change in the rate.
        """
        spread = self.spread(unit, measured_engine)
        return max(spread.tpot[1], -spread.rate[0], 0.0), min(spread.tpot[0], -spread.rate[1], 0.0)

    def _pools(self, unit: Disaggregated, measured_engine: str, bucket: Bucket) -> TwoPools:
        ahead, after = self.engines(unit, measured_engine)
        return TwoPools(
            prefill=ahead.cost,
            decode=after.cost,
            prefill_workers=unit.prefill_replicas,
            decode_workers=unit.decode_replicas,
            batched_tokens=unit.prefill.batched_tokens,
            seats=seats_of(unit.decode, self.loop.memory(unit.decode, bucket.context_tokens)),
            transfer_token_s=self._transfer_token_s(unit, ahead),
        )

    def _transfer_token_s(self, unit: Disaggregated, ahead: PhaseEngine) -> float:
        key = (id(ahead), unit.kv_bytes_per_s)
        if key not in self._sending:
            self._sending[key] = transfer_token_s(unit)
        return self._sending[key]


def _most(pools: TwoPools, log_factor: float, decoding: Stack, bucket: Bucket, slo: Slo) -> tuple[float, float] | None:
    """Return the highest rate within the SLO and the requests per decode step at that rate.

    All step times are multiplied by the exponential of `log_factor`. Return None if every rate misses the SLO.
    """
    factor = exp(log_factor)
    pools = replace(pools, prefill=pools.prefill.scaled(factor), decode=pools.decode.scaled(factor))

    def asked(rate: float) -> PoolsDemand:
        return PoolsDemand(input_tokens=bucket.input_tokens, output_tokens=bucket.output_tokens, requests_per_s=rate)

    columns = Columns([(pools, asked(1.0))])
    most = float(np.minimum(columns.prefill_limit, columns.decode_limit)[0])
    rates = most * np.arange(1, _RATES) / _RATES
    solved = steady([(pools, asked(float(rate))) for rate in rates])
    kept = np.flatnonzero(_within(solved, decoding, bucket, slo))
    return (float(rates[kept[-1]]), solved[int(kept[-1])].decoding) if kept.size else None


def _within(solved: Sequence[Steady], decoding: Stack, bucket: Bucket, slo: Slo) -> NDArray[np.bool_]:
    after = bucket.output_tokens - 1
    tpot_s = np.array([each.tpot_s for each in solved])
    ttft_s = np.array([observed_s(each, decoding.request_s, decoding.first_ratio) for each in solved])
    between_s = tpot_s if after else np.full_like(tpot_s, np.nan)
    kept = slo.met(ttft_s=ttft_s, tpot_s=between_s, e2e_s=ttft_s + tpot_s * after)
    return np.logical_and.accumulate(kept)


def _most_decoding(columns: Columns, limit_s: float) -> Array:
    """Return the largest batch of a decode replica that meets a time limit per token; 0 if one request is too slow."""
    low, high = np.zeros_like(columns.seats), columns.seats.copy()
    whole = columns.decode_step_s(high) <= limit_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        kept = columns.decode_step_s(middle) <= limit_s
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    found = np.where(whole, columns.seats, low)
    return np.where(columns.decode_step_s(np.ones_like(found)) <= limit_s, found, 0.0)


def _token_limit_s(bucket: Bucket, slo: Slo) -> float:
    """Return the time limit per token in seconds.

    The limit is the lower of the SLO's limit per token and a token's share of the end-to-end limit; infinite without
    limits.
    """
    limits = [np.inf if slo.tpot_s is None else slo.tpot_s]
    limits += [] if slo.e2e_s is None else [slo.e2e_s / bucket.output_tokens]
    return float(min(limits))


def _first_limit_s(slo: Slo) -> float:
    return float(min(np.inf if slo.ttft_s is None else slo.ttft_s, np.inf if slo.e2e_s is None else slo.e2e_s))
