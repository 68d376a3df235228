"""Compares routing policies on the same requests, one run per policy, and counts each policy's requests per pool."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.routing.baselines.all_policies import RoutingPolicy
from penstock.routing.records import Records, default_parameters
from penstock.routing.replay import PickSample
from penstock.simulation.model_swapping import SwappingDevice
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import CountProgress, Requests, SloClass, Workload

LENGTHS: Final = (0, 512, 2048, 8192, 32768)
"""Lower bounds of the prompt-length buckets, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpike:
    """A load spike, which multiplies the arrival rate by `factor` for a limited time."""

    factor: float
    at_s: float
    for_s: float

    def __post_init__(self) -> None:
        if not (self.factor > 0 and self.at_s >= 0 and self.for_s > 0):
            raise UsageError(
                "a `crowd` (load spike) needs a factor above 0, a duration above 0, and a start of 0 s or later; "
                "write `crowd x3 at 60s for 20s`"
            )

    def times(self, arrival_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compress the arrivals of `factor` * `for_s` seconds into `for_s` seconds.

        Arrivals after the spike come earlier by the difference.
        """
        inside = np.clip(arrival_s - self.at_s, 0.0, self.factor * self.for_s)
        return arrival_s - inside + inside / self.factor


@dataclass(frozen=True, kw_only=True)
class SharedLoad:
    """Load that is the same for every compared policy."""

    workload: Workload
    requests: int
    rate_per_s: float | None
    """Requests per second. If None, the arrival times of the trace are kept."""
    seed: int


def with_load_spike(blocks: Iterable[Requests], crowds: Sequence[LoadSpike]) -> Iterator[Requests]:
    """Yield the blocks with load spikes applied to their arrival times."""
    for block in blocks:
        arrival_s = block.arrival_s
        for crowd in crowds:
            arrival_s = crowd.times(arrival_s)
        yield replace(block, arrival_s=arrival_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Destinations:
    """Pools to which a policy sent the requests of one class and prompt length.

    Requests too large for every pool are excluded.
    """

    slo_class: str
    from_tokens: int
    requests: int
    met_fraction: float
    shares: tuple[float, ...]
    """Share of the requests whose prompt each pool received. The requests missing to a sum of 1 were refused."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyRun:
    """Result of one policy on the requests that all policies share.

    Every figure is for this run alone, from its first arrival to its last token. Adding another policy to the
    comparison changes no figure. Policies are ranked by good tokens, not by goodput. Good tokens are output tokens of
    requests that met their SLO. A policy whose last request ends sooner could have a higher goodput with fewer good
    tokens. Goodput per second of the arrivals would rank policies like good tokens. In a burst, however, it would
    exceed the hardware's throughput.
    """

    policy: RoutingPolicy
    outcome: Outcome
    destinations: tuple[Destinations, ...]
    samples: tuple[PickSample, ...] = ()

    @property
    def worst_met_fraction(self) -> float:
        """Lowest attainment over the classes with an SLO."""
        return min((item.met_fraction or 0.0 for item in self.outcome.classes if item.slo is not None), default=1.0)

    @property
    def good_tokens(self) -> int:
        """Output tokens of requests that met their SLO. Policies are ranked by this number."""
        return sum(item.good_tokens for item in self.outcome.classes)

    @property
    def usd(self) -> float | None:
        """Cost of all replicas until the last token, or None if a price is missing."""
        known = [pool.usd for pool in self.outcome.pools if pool.usd is not None]
        return sum(known) if len(known) == len(self.outcome.pools) else None

    @property
    def usd_per_good_mtok(self) -> float | None:
        """Total cost per million output tokens of requests that met their SLO."""
        return None if self.usd is None or not self.good_tokens else self.usd / self.good_tokens * 1e6


def compare(
    pools: Sequence[ReplicaPool],
    blocks: Callable[[], Iterable[Requests]],
    policies: Sequence[RoutingPolicy],
    *,
    classes: Sequence[SloClass],
    routing: Routing,
    devices: tuple[SwappingDevice, ...] = (),
    weights: Mapping[str, Sequence[float]] = MappingProxyType({}),
    progress: Callable[[str], CountProgress | None] | None = None,
) -> tuple[PolicyRun, ...]:
    """Run every policy once, with the same requests, reports, faults and tie-breaking.

    `weights` maps a policy's name to the static weight of a replica in each pool.
    """
    runs = []
    for policy in policies:
        samples: list[PickSample] = []
        told = replace(
            routing,
            pick=policy.pick,
            parameters=_with_weights(routing.parameters, weights.get(policy.name, ())),
            show=lambda *seen, kept=samples: kept.append(PickSample.of(*seen)),
        )
        outcome = simulate(
            pools,
            blocks(),
            classes=classes,
            options=Options(routing=told, devices=devices, keep_requests=True),
            progress=None if progress is None else progress(policy.name),
        )
        runs.append(
            PolicyRun(
                policy=policy,
                outcome=outcome,
                destinations=tuple(_destinations(pools, outcome, classes)),
                samples=tuple(samples),
            )
        )
    return tuple(runs)


def _with_weights(parameters: Records | None, weights: Sequence[float]) -> Records:
    told = default_parameters() if parameters is None else parameters.copy()
    told["tuning"][0, : len(weights)] = weights
    return told


def _destinations(
    pools: Sequence[ReplicaPool], outcome: Outcome, classes: Sequence[SloClass]
) -> Iterator[Destinations]:
    """Count requests by class, prompt length and pool."""
    served = outcome.served
    if served is None:
        return
    pool_of = np.repeat(np.arange(len(pools)), [pool.replicas for pool in pools])
    pool = np.where(served.picked >= 0, pool_of[np.maximum(served.picked, 0)], -1)
    length = np.searchsorted(LENGTHS, served.input_tokens, "right") - 1
    after = np.where(served.output_tokens > 1, served.output_tokens - 1.0, np.nan)
    for kind, item in enumerate(classes):
        mine = np.minimum(served.slo_class, len(classes) - 1) == kind
        for place, begin in enumerate(LENGTHS):
            rows = mine & (length == place)
            if not rows.any():
                continue
            with np.errstate(invalid="ignore"):
                tpot_s = (served.e2e_s[rows] - served.ttft_s[rows]) / after[rows]
            met = np.isfinite(served.ttft_s[rows])
            if item.slo is not None:
                met &= item.slo.met(ttft_s=served.ttft_s[rows], tpot_s=tpot_s, e2e_s=served.e2e_s[rows])
            yield Destinations(
                slo_class=item.name,
                from_tokens=begin,
                requests=int(rows.sum()),
                met_fraction=float(met.mean()),
                shares=tuple(float((pool[rows] == index).mean()) for index in range(len(pools))),
            )
