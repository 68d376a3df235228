"""How is the simulator asked? A length bucket as a workload, a fleet as one run per pool, answers as values."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.prediction.predict import Range
from penstock.planning.asked.plan import Bucket
from penstock.planning.candidates.capacity import Capacity, CapacityOf, cannot
from penstock.planning.optimum.resize import Array
from penstock.planning.proof.verify import Check, RequestStream, ServingFleet, ServingPool, VerifyOf
from penstock.workload import Fixed, Poisson, Requests, Slo, SloClass, Workload
from penstock.workload.requests import Int64s

_LIFETIMES: Final = 10
"""A run lasts at least this many of its longest requests, so that most of it is not the beginning."""
_WARM_UP: Final = 0.2
"""Share of a run that is served but not judged: queues start empty."""

RateOf = Callable[[Deployment, Workload, Slo], float]
"""The highest rate, in requests per second, one replica sustains within the SLO; 0 where it meets it at none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """What each request of a run took, in the order they came."""

    ttft_s: Array
    tpot_s: Array
    """NaN for an answer of one token: there is no second one to wait for."""
    e2e_s: Array


SimulatePool = Callable[[Deployment, int, Requests], Times]
"""Serve requests on so many identical replicas, each by the least loaded one."""


def bucket_workload(bucket: Bucket, slo: Slo) -> Workload:
    """Write a length bucket as Poisson arrivals of one length under one promise."""
    return Workload(
        name=f"{bucket}",
        arrivals=Poisson(),
        lengths=Fixed(input_tokens=bucket.input_tokens, output_tokens=bucket.output_tokens),
        classes=(SloClass(name="all", share_fraction=1.0, slo=slo),),
    )


def simulated_capacity(rate_of: RateOf, predicted: CapacityOf) -> CapacityOf:
    """Take the rate from the simulator, and tier and interval from the prediction its step times rest on.

    What a closed loop without a queue cannot serve within the SLO, a queue does not make possible: it is not simulated.
    """

    def capacity(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        light = predicted(deployment, bucket, slo)
        if not light.meets_slo:
            return light
        rate, seen = rate_of(deployment, bucket_workload(bucket, slo), slo), light.requests_per_s
        if rate <= 0:
            return cannot("simulated: misses the SLO at every rate")
        return Capacity(
            requests_per_s=Range(value=rate, low=rate * seen.low / seen.value, high=rate * seen.high / seen.value),
            tier=light.tier,
            grounds=f"simulated with Poisson arrivals; {light.grounds}",
            prefill_fraction=light.prefill_fraction,
            measured_engine=light.measured_engine,
        )

    return capacity


def verify_by(simulate: SimulatePool, *, requests: int = 4000, seed: int = 0) -> VerifyOf:
    """Run every pool of a fleet with the requests it is given at the peak and judge each workload over all pools.

    Which pool a request goes to is drawn by the plan's shares, whatever the pools' state; so pools run apart.
    """

    def verify(fleet: ServingFleet) -> tuple[Check, ...]:
        kept: dict[str, int] = {}
        judged: dict[str, int] = {}
        seconds = _seconds(fleet, requests)
        arrivals = [_arrivals(fleet, number, seconds, seed) for number in range(len(fleet.streams))]
        for pool in fleet.pools:
            for workload, met, count in _judged(fleet, pool, arrivals, seconds, simulate):
                kept[workload] = kept.get(workload, 0) + met
                judged[workload] = judged.get(workload, 0) + count
        asked = {stream.workload: stream.slo.attainment_fraction for stream in fleet.streams}
        return tuple(
            Check(
                workload=name,
                attainment_fraction=kept.get(name, 0) / max(1, judged.get(name, 0)),
                required_fraction=fraction,
                note=f"{judged.get(name, 0):,} requests",
            )
            for name, fraction in asked.items()
        )

    return verify


def _seconds(fleet: ServingFleet, requests: int) -> float:
    rate = sum(stream.requests_per_s for stream in fleet.streams)
    return max(requests / rate, _LIFETIMES * max(_longest_s(stream) for stream in fleet.streams))


def _longest_s(stream: RequestStream) -> float:
    """How long a request may take by its SLO."""
    slo, tokens = stream.slo, stream.bucket.output_tokens
    parts = inf if slo.ttft_s is None or slo.tpot_s is None else slo.ttft_s + slo.tpot_s * tokens
    known = min(parts, slo.e2e_s if slo.e2e_s is not None else inf)
    return known if known < inf else (slo.ttft_s or 0.0) + (slo.tpot_s or 0.0) * tokens


def _arrivals(fleet: ServingFleet, number: int, seconds: float, seed: int) -> tuple[Array, Int64s]:
    """Poisson arrivals of a stream and the pool each is sent to, the same whatever the other streams are."""
    stream = fleet.streams[number]
    generator = np.random.default_rng(np.random.SeedSequence((seed, fleet.period, number)))
    times = np.sort(generator.uniform(0, seconds, generator.poisson(stream.requests_per_s * seconds)))
    weights = np.array([stream.shares.get(pool.id, 0.0) for pool in fleet.pools])
    pools = generator.choice(len(fleet.pools), len(times), p=weights / weights.sum())
    return times, pools


def _judged(
    fleet: ServingFleet,
    pool: ServingPool,
    arrivals: list[tuple[Array, Int64s]],
    seconds: float,
    simulate: SimulatePool,
) -> Iterator[tuple[str, int, int]]:
    """Serve what comes to one pool; yield each stream's workload, how many kept the SLO, and of how many."""
    index = fleet.pools.index(pool)
    own = [times[pools == index] for times, pools in arrivals]
    arrival_s = np.concatenate(own)
    if not len(arrival_s):
        return
    stream_of = np.repeat(np.arange(len(own)), [len(times) for times in own])
    order = np.argsort(arrival_s, kind="stable")
    arrival_s, stream_of = arrival_s[order], stream_of[order]
    buckets = [stream.bucket for stream in fleet.streams]
    times = simulate(
        pool.deployment,
        pool.replicas,
        Requests(
            arrival_s=arrival_s,
            input_tokens=np.array([bucket.input_tokens for bucket in buckets], np.int32)[stream_of],
            output_tokens=np.array([bucket.output_tokens for bucket in buckets], np.int32)[stream_of],
            slo_class=stream_of.astype(np.uint8),
            prefixes=None,
        ),
    )
    counted = arrival_s >= _WARM_UP * seconds
    for number, stream in enumerate(fleet.streams):
        rows = counted & (stream_of == number)
        met = stream.slo.met(ttft_s=times.ttft_s, tpot_s=times.tpot_s, e2e_s=times.e2e_s)
        yield stream.workload, int((met & rows).sum()), int(rows.sum())
