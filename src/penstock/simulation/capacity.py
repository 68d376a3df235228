"""How much can it take? The highest request rate at which a fleet still keeps its promises, by bisection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import UsageError
from penstock.simulation.options import Options
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.workload import CountProgress, SloClass, Workload

_TOLERANCE: Final = 0.01
_TRIALS: Final = 24
_LEAST_SHARE: Final = 2.0**-12
"""Below this share of the throughput without any SLO, the answer is that it cannot be met."""


@dataclass(frozen=True, kw_only=True)
class SustainedRate:
    """What a fleet sustains."""

    rate_per_s: float
    """0 where the SLO is missed even by requests that come one at a time."""
    saturated_rate_per_s: float
    """Requests a second when everything is queued at once and nothing is promised: no rate can be higher."""
    outcome: Outcome
    """The run at that rate, or the slowest one tried where none is good enough."""
    requests: int
    """Simulated for each trial."""
    trials: int


def capacity(
    pools: Sequence[ReplicaPool],
    workload: Workload,
    *,
    classes: Sequence[SloClass],
    requests: int = 20_000,
    seed: int = 0,
    options: Options | None = None,
    progress: CountProgress | None = None,
) -> SustainedRate:
    """Bisect the rate to 1%; every trial has the same requests, only faster or slower."""
    require_searchable(workload, classes)
    chosen = options or Options()
    trials = 0

    def attempt(rate_per_s: float) -> Outcome:
        nonlocal trials
        trials += 1
        if progress is not None:
            progress(trials)
        blocks = workload.blocks(seed=seed, requests=requests, rate_per_s=rate_per_s)
        return simulate(pools, blocks, classes=classes, options=chosen)

    ceiling = _saturated_rate(pools, workload, requests, seed, chosen)
    low, high = 0.0, ceiling
    best, worst = None, attempt(ceiling)
    if worst.met:
        return SustainedRate(
            rate_per_s=ceiling, saturated_rate_per_s=ceiling, outcome=worst, requests=requests, trials=trials
        )
    while trials < _TRIALS and high - low > _TOLERANCE * high and high > _LEAST_SHARE * ceiling:
        middle = (low + high) / 2
        outcome = attempt(middle)
        if outcome.met:
            low, best = middle, outcome
        else:
            high, worst = middle, outcome
    return SustainedRate(
        rate_per_s=low, saturated_rate_per_s=ceiling, outcome=best or worst, requests=requests, trials=trials
    )


def require_searchable(workload: Workload, classes: Sequence[SloClass]) -> None:
    """Refuse what has no rate to search for."""
    if workload.users is not None:
        raise UsageError("the users of a closed loop decide its rate; search for a capacity with arrivals instead")
    if not any(item.slo for item in classes):
        raise UsageError("a capacity is the rate at which an SLO is met; give one, such as ttft=1s,tpot=50ms")


def _saturated_rate(
    pools: Sequence[ReplicaPool], workload: Workload, requests: int, seed: int, options: Options
) -> float:
    """Everything at once, as a closed loop with more users than there are seats."""
    seats = sum(pool.replica.max_sequences * pool.replicas for pool in pools if pool.role != "prefill")
    blocks = workload.blocks(seed=seed, requests=requests, rate_per_s=1.0)
    return simulate(pools, blocks, options=replace(options, users=min(2 * seats, requests), think_s=0.0)).requests_per_s
