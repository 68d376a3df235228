"""How is the simulator asked? A pool with the mix of lengths it is given, and answers as values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, log
from typing import Final

from penstock.planning.candidates.replica_capacity import Capacity, CapacityOf, Option, cannot, mixed_rate
from penstock.planning.in_parallel import in_parallel
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.planning.verification.serving_fleet import Check, ServingFleet, ServingPool, VerifyOf
from penstock.workload import Slo

_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
"""Replicas simulated. A pool of another size is simulated as the next smaller one with its share of the load: fewer
replicas share bursts less well, so that errs on the safe side, by 0.6% from 32 on."""
_SCHEDULERS: Final = 32
"""Queues simulated at most, as each rank that keeps its own requests has one: bursts are shared by those. Of replicas
of four ranks sixteen carry 0.1% more each than eight, of replicas of eight ranks six 0.1% more than four."""
_REFERENCE: Final = 8
"""Replicas at most with which a candidate is first judged; the fleet's own sizes follow when it is verified."""
_SMALL: Final = 16
"""Replicas up to which one less makes a difference that two runs can tell."""
_SHARE_STEP: Final = 1.001
"""Mixes in which no length's share of the requests differs by more than this factor are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """Replicas of one kind behind one router, and what comes to them."""

    option: Option
    replicas: int
    mix: tuple[tuple[Bucket, float], ...]
    """Lengths and their shares of the requests."""
    requests_per_s: float
    slo: Slo

    @property
    def mean_tokens(self) -> float:
        """Of a request, input and output."""
        return sum(bucket.context_tokens * fraction for bucket, fraction in self.mix)


LoadJudge = Callable[[PoolLoad], float]


def simulated_capacity(sustained: LoadJudge, predicted: CapacityOf) -> CapacityOf:
    """Take what a pool sustains of the workload's mix from the simulator, and the rest from the prediction under it.

    As many replicas are simulated as the workload would take, up to eight. How much one length takes beside another is
    the prediction's; so are tier and interval. What a closed loop without a queue cannot serve within the SLO, a queue
    does not make possible: it is not simulated.
    """

    def capacity(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        light = predicted(option, workload)
        served = zip(workload.shares, light, strict=True)
        fractions = tuple(share.fraction if seen.meets_slo else 0.0 for share, seen in served)
        each = mixed_rate(fractions, tuple(seen.requests_per_s.value for seen in light))
        if not each:
            return light
        needed = ceil(workload.peak_requests_per_s * sum(fractions) / each)
        replicas = _simulated(option, min(_REFERENCE, max(1, needed)))
        mix = _mix([(share.bucket, part) for share, part in zip(workload.shares, fractions, strict=True)])
        load = PoolLoad(option=option, replicas=replicas, mix=mix, requests_per_s=each * replicas, slo=workload.slo)
        factor = sustained(load) / load.requests_per_s
        return tuple(_scaled(seen, factor, replicas) for seen in light)

    return capacity


def _scaled(seen: Capacity, factor: float, replicas: int) -> Capacity:
    if not seen.meets_slo:
        return seen
    if factor <= 0:
        return cannot("simulated: misses the SLO at every rate")
    grounds = f"simulated with Poisson arrivals and the workload's mix of lengths on {replicas}; {seen.grounds}"
    return replace(seen, requests_per_s=seen.requests_per_s.scaled(factor), grounds=grounds)


def verify_by(
    sustained: LoadJudge, attained: LoadJudge, *, bounded: LoadJudge | None = None, sizing: bool = False
) -> VerifyOf:
    """Run every pool of a fleet with the requests it is given and judge each by itself.

    Which pool a request goes to is drawn by the plan's shares, whatever the pools' state; so pools run apart, those of
    different replicas side by side. `bounded` says whether a pool would hold where by how much is not asked. For
    `sizing` a pool that is just right need not be searched for what it carries; what other demands do to it needs that.
    """

    def verify(fleet: ServingFleet) -> tuple[Check, ...]:
        loads = {pool.id: (pool, load) for pool in fleet.pools if (load := _load(fleet, pool)) is not None}
        alike: dict[str, list[str]] = {}
        for pool, _ in loads.values():
            alike.setdefault(pool.option.id, []).append(pool.id)

        def checked(names: Sequence[str]) -> dict[str, Check]:
            return {name: _checked(*loads[name], _workload_of(fleet, name), by) for name in names}

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


def _checked(pool: ServingPool, load: PoolLoad, workload: str, by: _Judges) -> Check:
    """Run a pool at its load and, if that holds, as if it had one replica less: where that misses it is just right."""
    required, small, share = load.slo.attainment_fraction, pool.replicas <= _SMALL, 1.0
    if not small:
        # What a search finds says whether this load holds.
        share = by.sustained(load) / load.requests_per_s
    kept = by.attained(load)
    fewer = None if pool.replicas == 1 else pool.replicas / (pool.replicas - 1)
    just_right = (
        small
        and kept >= required
        and (fewer is None or by.bounded(replace(load, requests_per_s=load.requests_per_s * fewer)) < required)
    )
    if small and not (just_right and by.sizing):
        found = by.sustained(load) / load.requests_per_s
        # Chance may have a search end below a rate that held.
        share = max(1.0, found) if kept >= required else found
    return Check(
        workload=workload,
        pool=pool.id,
        attainment_fraction=kept,
        required_fraction=required,
        sustained_share=share,
        just_right=just_right,
        note=f"simulated as {load.replicas} replicas" if load.replicas < pool.replicas else "",
    )


def _load(fleet: ServingFleet, pool: ServingPool) -> PoolLoad | None:
    """What comes to a pool, or to as many of its replicas as are simulated; None where nothing does."""
    own = [stream for stream in fleet.streams if stream.shares.get(pool.id, 0.0) > 0]
    rates = [stream.requests_per_s * stream.shares[pool.id] for stream in own]
    if not sum(rates):
        return None
    replicas = _simulated(pool.option, pool.replicas)
    return PoolLoad(
        option=pool.option,
        replicas=replicas,
        mix=_mix([(stream.bucket, rate) for stream, rate in zip(own, rates, strict=True)]),
        requests_per_s=sum(rates) * replicas / pool.replicas,
        slo=own[0].slo,
    )


def _simulated(option: Option, replicas: int) -> int:
    """How many replicas stand for so many."""
    unit, ranks = option.apart, option.deployment.parallelism.dp
    if unit is not None:
        ahead, after = unit.prefill_replicas * unit.prefill.parallelism.dp, unit.decode_replicas * ranks
        ranks = min(ahead, after)
    return max(size for size in _SIZES if size <= replicas and (size == 1 or size * ranks <= _SCHEDULERS))


def _mix(weights: list[tuple[Bucket, float]]) -> tuple[tuple[Bucket, float], ...]:
    """Shares of the requests, each to half a step of itself: one in a hundred may be a quarter of the work."""
    total = sum(weight for _, weight in weights)
    rounded = [
        (bucket, _SHARE_STEP ** round(log(weight / total, _SHARE_STEP))) for bucket, weight in weights if weight > 0
    ]
    whole = sum(share for _, share in rounded)
    return tuple((bucket, share / whole) for bucket, share in rounded)
