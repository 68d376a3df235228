"""Compares the requests of a run with the SLOs of their classes, also for replicas that are slower than simulated."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run_options import Options
from penstock.workload import Requests, Slo, SloClass

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedClass:
    """The requests of one class that arrived after the warm-up."""

    slo: Slo
    ttft_s: NDArray[np.float64]
    """Seconds to the first token; infinite for requests that were not served."""
    tpot_s: NDArray[np.float64]
    """Seconds per output token after the first; not a number for answers of one token."""
    e2e_s: NDArray[np.float64]
    unserved: int
    """Refused, oversized and lost requests, which count as misses."""

    @property
    def attained_fraction(self) -> float:
        """Return the share of requests that met their SLO."""
        met = np.isfinite(self.ttft_s) & self.slo.met(ttft_s=self.ttft_s, tpot_s=self.tpot_s, e2e_s=self.e2e_s)
        return float(np.sum(met)) / (len(met) + self.unserved)

    def slowdown_limit(self, request_s: float) -> float:
        """Return the largest factor on all times but `request_s` at which the class still meets its target."""
        slo, factors = self.slo, np.full(len(self.ttft_s), inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            if slo.ttft_s is not None:
                factors = np.fmin(factors, (slo.ttft_s - request_s) / (self.ttft_s - request_s))
            if slo.e2e_s is not None:
                factors = np.fmin(factors, (slo.e2e_s - request_s) / (self.e2e_s - request_s))
            if slo.tpot_s is not None:
                factors = np.fmin(factors, slo.tpot_s / self.tpot_s)
        factors[~np.isfinite(self.ttft_s)] = 0.0
        misses = len(factors) - ceil(slo.attainment_fraction * (len(factors) + self.unserved) - _ROUNDING)
        if misses < 0:
            return 0.0
        return inf if misses == len(factors) else float(np.partition(factors, misses)[misses])


def judge_classes(
    outcome: Outcome, blocks: Sequence[Requests], classes: Sequence[SloClass], *, warm_up: float
) -> list[JudgedClass] | None:
    """Return the requests of each class with an SLO, without those of the warm-up; None if no request was served."""
    served = outcome.served
    if served is None or not len(served.number):
        return None
    begins_s = served.arrival_s[0] + warm_up * outcome.arrival_span_s
    groups = np.minimum(np.concatenate([block.slo_class for block in blocks]), len(classes) - 1)
    unserved = np.concatenate([block.arrival_s for block in blocks]) >= begins_s
    # In a stopped run, missing requests may simply not have been reached.
    unserved[slice(None) if outcome.saturation is not None else served.number] = False
    group = groups[served.number]
    after = np.where(served.output_tokens > 1, served.output_tokens - 1.0, np.nan)
    found = []
    for index, item in enumerate(classes):
        rows = (group == index) & (served.arrival_s >= begins_s)
        if item.slo is None or not rows.any():
            continue
        ttft_s, e2e_s = served.ttft_s[rows], served.e2e_s[rows]
        with np.errstate(invalid="ignore"):  # requests that were not served have infinite times and miss
            tpot_s = (e2e_s - ttft_s) / after[rows]
        missing = int(np.sum(unserved & (groups == index)))
        found.append(JudgedClass(slo=item.slo, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s, unserved=missing))
    return found


def slowdown_limit(judged: Sequence[JudgedClass], pools: Sequence[ReplicaPool], options: Options) -> float | None:
    """Return the largest factor on all step times, and on the time between arrivals, with which every SLO is still met.

    If every step and every time between two arrivals is longer by the same factor, the same events happen in the same
    order. Every time in the result is longer by this factor, except for `request_s`, which a request spends outside the
    engine. One run therefore shows how much slower its replicas may be, at a rate that is lower by the same factor.
    Return None where something else does not scale: the times of KV transfers, of reports to a router and of
    users, and the patience of clients.
    """
    lags = {pool.replica.request_s for pool in pools}
    if len(lags) > 1 or options.routing is not None or options.users is not None or options.patience_s:
        return None
    if any(pool.role != "both" for pool in pools):
        return None
    return min((each.slowdown_limit(*lags) for each in judged), default=inf)
