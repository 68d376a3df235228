"""Proposes the next run of a measured setup: the one that narrows the interval most at the loads that matter."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Final

import numpy as np

from penstock.performance.calibration.error_summary import Logs
from penstock.performance.calibration.own_correction import log_loads
from penstock.performance.similarity.load_errors import LoadErrors, spread_of

_MIN_NARROWING: Final = 0.1
"""Smallest share of the interval that a run must remove to be proposed."""


@dataclass(frozen=True, slots=True)
class RunLoad:
    """Closed loop of users with fixed token lengths, as a load tool applies it to one replica."""

    users: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """Proposed run, and the interval at the loads that matter before and after it."""

    load: RunLoad
    before: Logs
    """P10 and P90 of measured over corrected time per token, as logarithms."""
    after: Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedRun:
    """Next run, the loads at which it narrows the interval, and the command that makes it."""

    run: NextRun
    matters: str
    command: str


def propose_run(
    errors: LoadErrors, possible: Sequence[RunLoad], matters: Sequence[RunLoad], *, ranks: int = 1
) -> NextRun | None:
    """Return the possible run after which the mean variance at the loads that matter is smallest.

    Of runs that are equally good within 1%, the one with the fewest users is the quickest. None if no run narrows the
    interval by 5%. `ranks` is the number of independent ranks that share the load of a run.
    """
    at = log_loads([_logs(load, ranks) for load in matters])
    left = [errors.sigma_after(at, log_loads([_logs(load, ranks)])) for load in possible]
    variances = [float(np.mean(np.square(sigmas))) for sigmas in left]
    good = [number for number, variance in enumerate(variances) if variance <= 1.01 * min(variances)]
    best = min(good, key=lambda number: possible[number].users)
    before, after = errors.spread(at), spread_of(left[best])
    if after[1] > (1 - _MIN_NARROWING) * before[1]:
        return None
    return NextRun(load=possible[best], before=before, after=after)


def _logs(load: RunLoad, ranks: int) -> tuple[float, float, float]:
    return log2(max(1.0, load.users / ranks)), log2(load.input_tokens), log2(load.output_tokens)
