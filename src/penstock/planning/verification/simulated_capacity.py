"""Computes pool capacities and checks SLOs by simulation, given the replicas and the mix of lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, log
from typing import Final

from penstock.planning.candidates.candidate_search import CarriesShare
from penstock.planning.candidates.replica_capacity import Capacity, CapacityOf, Option, RateCurve, cannot, mixed_rate
from penstock.planning.in_parallel import in_parallel
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.planning.verification.serving_fleet import Check, ServingFleet, ServingPool, VerifyOf
from penstock.workload import Slo

_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
"""Numbers of replicas that are simulated. A pool of another size is simulated with the next smaller number of replicas
and a proportional load. Bursts spread less well over fewer replicas, so capacity is slightly underestimated: by 0.6%
from 32 replicas on."""
_SCHEDULERS: Final = 32
"""Maximum number of queues simulated. Each data-parallel rank has a separate queue, and bursts spread over all queues.

With four ranks per replica, a replica in a pool of sixteen carries 0.1% more than in a pool of eight. With eight ranks,
a replica in a pool of six carries 0.1% more than in a pool of four.
"""
_REFERENCE: Final = 8
"""Maximum number of replicas in the first simulation of a candidate; verification simulates the fleet's pool sizes."""
_SMALL: Final = 16
"""Maximum number of replicas of a pool for which two simulations can show the effect of removing one replica."""
_SHARE_STEP: Final = 1.001
"""Two mixes of lengths count as equal if the shares of each length differ by at most this ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """Replicas of one kind behind one router, with their load."""

    option: Option
    replicas: int
    mix: tuple[tuple[Bucket, float], ...]
    """Lengths and their shares of the requests."""
    requests_per_s: float
    slo: Slo

    @property
    def mean_lengths(self) -> tuple[int, int]:
        """Return the mean number of input tokens and of output tokens of a request."""
        inputs = sum(bucket.input_tokens * fraction for bucket, fraction in self.mix)
        outputs = sum(bucket.output_tokens * fraction for bucket, fraction in self.mix)
        return max(1, round(inputs)), max(1, round(outputs))


LoadJudge = Callable[[PoolLoad], float]
CurveOf = Callable[[PoolLoad], RateCurve]
"""Function that returns the sustained rate of a pool over the prediction error."""


def simulated_capacity(sustained: LoadJudge, predicted: CapacityOf) -> CapacityOf:
    """Return a capacity function that simulates the rate for the workload's mix and predicts all other values.

    As many replicas are simulated as the workload needs, up to eight. The relative cost of each length, the tier and
    the P10-P90 interval come from the prediction. A length that misses the SLO in the prediction, which ignores queues,
    is not simulated, because queues would only add delay.
    """

    def scale(load: PoolLoad) -> Callable[[RateCurve], RateCurve]:
        factor = sustained(load) / load.requests_per_s
        return lambda seen: seen.scaled(factor)

    return _capacity_by(scale, predicted)


def shares_carried(carries: Callable[[PoolLoad, float], bool], predicted: CapacityOf) -> CarriesShare:
    """Return a function that simulates once whether an option sustains a share of its predicted rates."""

    def carries_share(option: Option, workload: WorkloadPlan, share: float) -> bool:
        load = reference_load(option, workload, predicted(option, workload))
        return load is not None and carries(load, share)

    return carries_share


def capacity_with_curve(curve_of: CurveOf, predicted: CapacityOf) -> CapacityOf:
    """Return a capacity function that also simulates how the rate changes with the prediction error.

    A replica that is slower than predicted may miss the SLO at any rate, which the predicted interval does not show.
    """

    def scale(load: PoolLoad) -> Callable[[RateCurve], RateCurve]:
        mixed = curve_of(load).scaled(1 / load.requests_per_s)
        return lambda seen: mixed.scaled(seen.range.value)

    return _capacity_by(scale, predicted)


def _capacity_by(scale_of: Callable[[PoolLoad], Callable[[RateCurve], RateCurve]], predicted: CapacityOf) -> CapacityOf:
    """Return a capacity function that simulates the pool that the workload needs.

    `scale_of` returns the function from the predicted curve of a length to its simulated curve.
    """

    def capacity(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        light = predicted(option, workload)
        load = reference_load(option, workload, light)
        if load is None:
            return light
        scale = scale_of(load)
        return tuple(_with_simulated_curve(seen, scale, load.replicas) for seen in light)

    return capacity


def reference_load(option: Option, workload: WorkloadPlan, light: Sequence[Capacity]) -> PoolLoad | None:
    """Return the pool with which a candidate is simulated first; None if it serves no length.

    `light` are the predicted capacities, without queues. The pool has as many replicas as the workload needs, up to
    eight.
    """
    served = zip(workload.shares, light, strict=True)
    fractions = tuple(share.fraction if seen.meets_slo else 0.0 for share, seen in served)
    each = mixed_rate(fractions, tuple(seen.requests_per_s.value for seen in light))
    if not each:
        return None
    needed = ceil(workload.peak_requests_per_s * sum(fractions) / each)
    replicas = simulated_size(option, min(_REFERENCE, max(1, needed)))
    mix = _mix([(share.bucket, fraction) for share, fraction in zip(workload.shares, fractions, strict=True)])
    return PoolLoad(option=option, replicas=replicas, mix=mix, requests_per_s=each * replicas, slo=workload.slo)


def _with_simulated_curve(seen: Capacity, scale: Callable[[RateCurve], RateCurve], replicas: int) -> Capacity:
    if not seen.meets_slo:
        return seen
    grounds = f"simulated with Poisson arrivals and the workload's mix of lengths on {replicas}; {seen.grounds}"
    found = replace(seen, curve=scale(seen.curve), grounds=grounds, simulated_replicas=replicas)
    return found if found.meets_slo else cannot("simulated: misses the SLO at every rate")


def verify_by(
    sustained: LoadJudge, attained: LoadJudge, *, bounded: LoadJudge | None = None, sizing: bool = False
) -> VerifyOf:
    """Return a function that simulates every pool of a fleet with its requests and judges each pool separately.

    The pool of each request is drawn by the plan's shares, independently of the load of the pools. Therefore each pool
    is simulated separately, and pools with different kinds of replicas are simulated in parallel. If the margin to the
    SLO is not needed, `bounded` decides whether a pool meets the SLO. If `sizing` is true, there is no search for the
    capacity of a pool that is exactly sized; the capacity of such a pool is needed only to resize the fleet for other
    demands.
    """

    def verify(fleet: ServingFleet) -> tuple[Check, ...]:
        loads = {pool.id: (pool, load) for pool in fleet.pools if (load := load_of_pool(fleet, pool)) is not None}
        alike: dict[str, list[str]] = {}
        for pool, _ in loads.values():
            alike.setdefault(pool.option.id, []).append(pool.id)

        def checked(names: Sequence[str]) -> dict[str, Check]:
            return {name: _check_pool(*loads[name], _workload_of(fleet, name), by) for name in names}

        found: dict[str, Check] = {}
        for checks in in_parallel([partial(checked, names) for names in alike.values()]):
            found.update(checks)
        return tuple(found[name] for name in loads)

    by = _Judges(sustained=sustained, attained=attained, bounded=bounded or attained, sizing=sizing)
    return verify


def _workload_of(fleet: ServingFleet, pool: str) -> str:
    return next(stream.workload for stream in fleet.streams if pool in stream.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judges:
    sustained: LoadJudge
    attained: LoadJudge
    bounded: LoadJudge
    sizing: bool


def _check_pool(pool: ServingPool, load: PoolLoad, workload: str, by: _Judges) -> Check:
    """Simulate a pool at its load and, if it meets the SLO, with one replica less.

    The pool is exactly sized if it misses the SLO with one replica less.
    """
    required, small, share = load.slo.attainment_fraction, pool.replicas <= _SMALL, 1.0
    if not small:
        # The result of the capacity search also decides whether this load meets the SLO.
        share = by.sustained(load) / load.requests_per_s
    kept = by.attained(load)
    fewer = None if pool.replicas == 1 else pool.replicas / (pool.replicas - 1)
    just_right = (
        small
        and kept >= required
        and (fewer is None or by.bounded(replace(load, requests_per_s=load.requests_per_s * fewer)) < required)
    )
    if small and not (just_right and by.sizing):
        share = by.sustained(load) / load.requests_per_s
    if kept >= required:
        # By chance a capacity search may end below a rate that met the SLO.
        share = max(1.0, share)
    return Check(
        workload=workload,
        pool=pool.id,
        attainment_fraction=kept,
        required_fraction=required,
        sustained_share=share,
        just_right=just_right,
        note=f"simulated as {load.replicas} replicas" if load.replicas < pool.replicas else "",
    )


def load_of_pool(fleet: ServingFleet, pool: ServingPool) -> PoolLoad | None:
    """Return the load of a pool, scaled to the number of replicas simulated; None if the pool has no load."""
    own = [stream for stream in fleet.streams if stream.shares.get(pool.id, 0.0) > 0]
    rates = [stream.requests_per_s * stream.shares[pool.id] for stream in own]
    if not sum(rates):
        return None
    replicas = simulated_size(pool.option, pool.replicas)
    return PoolLoad(
        option=pool.option,
        replicas=replicas,
        mix=_mix([(stream.bucket, rate) for stream, rate in zip(own, rates, strict=True)]),
        requests_per_s=sum(rates) * replicas / pool.replicas,
        slo=own[0].slo,
    )


def simulated_size(option: Option, replicas: int) -> int:
    """Return how many replicas are simulated to represent a pool of `replicas` replicas."""
    unit, ranks = option.disaggregated, option.deployment.parallelism.dp
    if unit is not None:
        ahead, after = unit.prefill_replicas * unit.prefill.parallelism.dp, unit.decode_replicas * ranks
        ranks = min(ahead, after)
    return max(size for size in _SIZES if size <= replicas and (size == 1 or size * ranks <= _SCHEDULERS))


def pool_of_size(load: PoolLoad, replicas: int) -> PoolLoad:
    """Return the load of a pool with another number of replicas, at the same rate per replica.

    The pool has at most as many replicas as are simulated.
    """
    size = simulated_size(load.option, replicas)
    return replace(load, replicas=size, requests_per_s=load.requests_per_s / load.replicas * size)


def _mix(weights: list[tuple[Bucket, float]]) -> tuple[tuple[Bucket, float], ...]:
    """Return the share of requests of each length; shares are rounded, so that similar mixes become equal.

    Each share is rounded relative to its own size: a length that occurs in 1% of the requests can cause a quarter of
    the work.
    """
    total = sum(weight for _, weight in weights)
    rounded = [
        (bucket, _SHARE_STEP ** round(log(weight / total, _SHARE_STEP))) for bucket, weight in weights if weight > 0
    ]
    whole = sum(share for _, share in rounded)
    return tuple((bucket, share / whole) for bucket, share in rounded)
