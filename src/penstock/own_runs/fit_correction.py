"""Finds the correction of a setup's predicted times from runs of that setup.

Each run is simulated with slower or faster steps until the simulated time per token is the measured one. That is the
error of the prediction at the load of the run; `LoadErrors` says what such errors tell about other loads. A further
factor on the time of prompt tokens, common to all loads, makes simulated and measured times to first token agree. It
changes the steps that prompts share with answers, so both are found together. Both have a prior: no correction, with
the uncertainty of the prediction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import hypot, log, log2, sqrt
from statistics import fmean
from typing import Final

import numpy as np

from penstock.load_tools.load_run import LoadRun
from penstock.own_runs.replay_run import SimulatedRun
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.calibration.own_correction import log_loads
from penstock.performance.similarity.load_errors import PRIOR_RUNS, LoadErrors

Replay = Callable[[LoadRun, float], SimulatedRun]
"""Simulates a run with a logarithm of the factor on the time of every step."""
ReplayAt = Callable[[float], Replay]
"""Returns the simulation with a logarithm of the further factor on the time of prompt tokens."""
_P90_SIGMAS: Final = 1.2816
_FIRST_NOISE: Final = 0.15
"""Standard deviation of one run's log time to first token, if its arrivals are known."""
_UNKNOWN_ARRIVALS: Final = 0.4
"""The same if the starts are not listed. Load tools start the next requests of a closed loop in different ways, which
changed the time to first token by a factor of 2.2 in runs of seven tools at 16 users. Arrivals at the same rate are
even, random or in bursts."""
_ROUNDS: Final = 8
_CLOSE: Final = 1e-3
_SLOPES: Final = (0.5, 4.0)
"""Bounds of the change of a simulated log time per token by a change of the log factor. Above 1 as queues grow."""
_PROMPT_SLOPES: Final = (0.2, 3.0)
"""The same of a simulated log time to first token by a change of the log factor of prompts."""
_PROMPT_STEP: Final = 1.5
"""Largest change of the log factor of prompts in one round."""
_PROMPT_CLOSE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """Measured run, and the same run as predicted before and after the correction."""

    run: LoadRun
    before: SimulatedRun
    after: SimulatedRun
    load: tuple[float, float, float]
    """Number of requests in flight per rank, input tokens and output tokens."""
    log_factor: float
    """Logarithm of the factor on step times with which the simulated time per token is the measured one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFactor:
    """Logarithm of a factor with the standard deviation of a further measurement."""

    log_factor: float
    next_run_sigma: float
    """Standard deviation of a further run around its prediction with the factor."""

    @property
    def spread(self) -> Logs:
        """Return the P10 and P90 of a further run over its corrected prediction, as logarithms."""
        return -_P90_SIGMAS * self.next_run_sigma, _P90_SIGMAS * self.next_run_sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCorrection:
    """Errors of step times by load, the factor on prompt tokens, and the runs that they were found from."""

    steps: LoadErrors
    prompts: FittedFactor
    """Its standard deviation is that of the time to first token."""
    runs: tuple[ComparedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matched:
    """Runs as simulated with one factor on prompts, and steps that match each run's time per token."""

    factors: list[float]
    loads: list[tuple[float, float, float]]
    steps: LoadErrors
    simulated: list[SimulatedRun]
    first_errors: list[float]
    """Logarithm of measured over simulated time to first token of each run."""


def fit_correction(
    runs: Sequence[LoadRun], replay_at: ReplayAt, *, prior: Logs, first_prior: Logs, ranks: int = 1
) -> FittedCorrection:
    """Find the correction from one or more runs. A prior is the P10 and P90 of the uncorrected prediction's error.

    `ranks` is the number of independent ranks that share the load of a run.
    """
    noise, sigma = [first_noise(run) for run in runs], sigma_of(first_prior)
    before = [replay_at(0.0)(run, 0.0) for run in runs]
    prompt_log, slope = 0.0, 1.0
    matched = _match(runs, ranks, replay_at(0.0), [0.0] * len(runs), sigma_of(prior))
    for _ in range(_ROUNDS):
        wanted = _posterior(matched.first_errors, noise, sigma, at=prompt_log, slope=slope).log_factor
        step = min(_PROMPT_STEP, max(-_PROMPT_STEP, wanted - prompt_log))
        if abs(step) <= _PROMPT_CLOSE:
            break
        again = _match(runs, ranks, replay_at(prompt_log + step), matched.factors, sigma_of(prior))
        slope = (fmean(matched.first_errors) - fmean(again.first_errors)) / step
        slope = min(_PROMPT_SLOPES[1], max(_PROMPT_SLOPES[0], slope))
        prompt_log, matched = prompt_log + step, again
    prompts = _posterior(matched.first_errors, noise, sigma, at=prompt_log, slope=slope)
    compared = tuple(
        ComparedRun(run=run, before=old, after=new, load=load, log_factor=factor)
        for run, old, new, load, factor in zip(
            runs, before, matched.simulated, matched.loads, matched.factors, strict=True
        )
    )
    return FittedCorrection(steps=matched.steps, prompts=replace(prompts, log_factor=prompt_log), runs=compared)


def _match(
    runs: Sequence[LoadRun],
    ranks: int,
    replay: Replay,
    begin: Sequence[float],
    prior_sigma: float,
) -> _Matched:
    """Match the time per token of each run. `begin` has factors that nearly do."""
    factors = [_matching_factor(run, replay, near) for run, near in zip(runs, begin, strict=True)]
    loads = [_load_of(run, ranks, replay, fmean(factors)) for run in runs]
    steps = load_errors(loads, factors, prior_sigma)
    simulated = [replay(run, float(each)) for run, each in zip(runs, steps.mean(steps.loads), strict=True)]
    errors = [log(run.ttft.mean_s / one.ttft_s) for run, one in zip(runs, simulated, strict=True)]
    return _Matched(factors=factors, loads=loads, steps=steps, simulated=simulated, first_errors=errors)


def load_errors(
    loads: Sequence[tuple[float, float, float]], log_factors: Sequence[float], prior_sigma: float
) -> LoadErrors:
    """Return the errors of runs. A load has users, input tokens and output tokens."""
    logs = [(log2(users), log2(inputs), log2(outputs)) for users, inputs, outputs in loads]
    return LoadErrors(prior_sigma=prior_sigma, loads=log_loads(logs), errors=np.array(log_factors))


def _matching_factor(run: LoadRun, replay: Replay, begin: float) -> float:
    """Return the logarithm of the factor with which the simulated time per token is the measured one."""
    wanted = log(run.tpot.mean_s)
    tried, found = begin, log(replay(run, begin).tpot_s)
    slope = 1.0
    for _ in range(_ROUNDS):
        if abs(wanted - found) <= _CLOSE:
            break
        step = (wanted - found) / slope
        again = log(replay(run, tried + step).tpot_s)
        slope = min(_SLOPES[1], max(_SLOPES[0], (again - found) / step))
        tried, found = tried + step, again
    return tried


def _load_of(run: LoadRun, ranks: int, replay: Replay, shared: float) -> tuple[float, float, float]:
    """Return the load of a run: the requests in flight per rank, and the mean lengths.

    In an open loop a slow run has more requests in flight than its repetition. If these were its load, the noise
    between repetitions would look like a change with load. So an open loop has the requests in flight that the
    simulation has with `shared`, the mean factor of all runs. By Little's law.
    """
    users = float(run.users or 0)
    if run.users is None:
        seen = replay(run, shared)
        users = run.applied_rate_per_s * (seen.ttft_s + run.output_length.mean * seen.tpot_s)
    return max(1.0, users / ranks), max(1.0, run.input_length.mean), max(1.0, run.output_length.mean)


def _posterior(
    errors: Sequence[float], noise: Sequence[float], prior_sigma: float, *, at: float, slope: float
) -> FittedFactor:
    """Return the factor on prompts between the prior, which is no correction, and the errors of the runs.

    The errors are those of times to first token with the factor `at`; a log time changes by `slope` times the change of
    the log factor. Runs at different loads differ by more than the noise of repetitions if the predicted curve has the
    wrong shape. Their scatter then replaces the noise. The prior is wider if the runs contradict it.
    """
    weights = [1.0 / sigma**2 for sigma in noise]
    mean = sum(weight * error for weight, error in zip(weights, errors, strict=True)) / sum(weights)
    scatter = 0.0
    if len(errors) > 1:
        scatter = sqrt(sum((error - mean) ** 2 for error in errors) / (len(errors) - 1))
    spread = [max(sigma, scatter) for sigma in noise]
    weights = [1.0 / sigma**2 for sigma in spread]
    known = slope**2 * sum(weights)
    told = slope * sum(weight * (error + slope * at) for weight, error in zip(weights, errors, strict=True)) / known
    surprise = told**2 / (prior_sigma**2 + 1.0 / known)
    widening = max(1.0, (PRIOR_RUNS + surprise) / (PRIOR_RUNS + 1))
    precision = known + 1.0 / (widening * prior_sigma**2)
    return FittedFactor(
        log_factor=told * known / precision, next_run_sigma=hypot(slope / sqrt(precision), fmean(spread))
    )


def first_noise(run: LoadRun) -> float:
    """Return the standard deviation of a run's log time to first token."""
    return _FIRST_NOISE if run.has_all_records else _UNKNOWN_ARRIVALS


def sigma_of(spread: Logs) -> float:
    """Return the standard deviation of an error by its P10 and P90."""
    low, high = spread
    return max(1e-6, (high - low) / (2 * _P90_SIGMAS))
