"""Finds the correction of a setup's predicted times from runs of that setup.

Each run is simulated with slower or faster steps until the simulated time per token is the measured one. That is the
error of the prediction at the load of the run; `LoadErrors` says what such errors tell about other loads. A further
factor on the time to first token is common to all loads. Both have a prior: no correction, with the uncertainty of the
prediction.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, log2, sqrt
from statistics import fmean
from typing import Final

import numpy as np

from penstock.load_tools.load_run import LoadRun
from penstock.own_runs.replay_run import SimulatedRun
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.calibration.own_correction import log_loads
from penstock.performance.similarity.load_errors import RUN_NOISE, LoadErrors

Replay = Callable[[LoadRun, float], SimulatedRun]
"""Simulates a run with a logarithm of the factor on the time of every step."""
_P90_SIGMAS: Final = 1.2816
_P99_SIGMAS: Final = 2.3263
_FIRST_NOISE: Final = 0.15
"""Standard deviation of one run's log time to first token, if its arrivals are known."""
_UNKNOWN_ARRIVALS: Final = 0.4
"""The same in a closed loop whose starts are not listed. Load tools start the next requests in different ways, which
changed the time to first token by a factor of 2.2 in runs of seven tools at 16 users."""
_ROUNDS: Final = 8
_CLOSE: Final = 1e-3
_SLOPES: Final = (0.5, 4.0)
"""Bounds of the change of a simulated log time per token by a change of the log factor. Above 1 as queues grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """Measured run, and the same run as predicted before and after the correction."""

    run: LoadRun
    before: SimulatedRun
    after: SimulatedRun
    load: tuple[float, float, float]
    """Mean number of requests in flight per rank, input tokens and output tokens."""
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
    """Errors of step times by load, the factor on first tokens, and the runs that they were found from."""

    steps: LoadErrors
    first: FittedFactor
    runs: tuple[ComparedRun, ...]


def fit_correction(
    runs: Sequence[LoadRun], replay: Replay, *, prior: Logs, first_prior: Logs, ranks: int = 1
) -> FittedCorrection:
    """Find the correction from one or more runs. A prior is the P10 and P90 of the uncorrected prediction's error.

    `ranks` is the number of independent ranks that share the load of a run.
    """
    before = [replay(run, 0.0) for run in runs]
    factors = [_matching_factor(run, replay, one) for run, one in zip(runs, before, strict=True)]
    loads = [_load_of(run, ranks) for run in runs]
    steps = load_errors(loads, factors, _sigma(prior))
    simulated = [replay(run, float(each)) for run, each in zip(runs, steps.mean(steps.loads), strict=True)]
    first_errors = [log(run.ttft.mean_s / one.ttft_s) for run, one in zip(runs, simulated, strict=True)]
    first = _posterior(first_errors, [_first_noise(run) for run in runs], _sigma(first_prior))
    compared = tuple(
        ComparedRun(run=run, before=old, after=_with_first(new, first.log_factor), load=load, log_factor=factor)
        for run, old, new, load, factor in zip(runs, before, simulated, loads, factors, strict=True)
    )
    return FittedCorrection(steps=steps, first=first, runs=compared)


def load_errors(
    loads: Sequence[tuple[float, float, float]], log_factors: Sequence[float], prior_sigma: float
) -> LoadErrors:
    """Return the errors of runs. A load has users, input tokens and output tokens."""
    logs = [(log2(users), log2(inputs), log2(outputs)) for users, inputs, outputs in loads]
    return LoadErrors(prior_sigma=prior_sigma, loads=log_loads(logs), errors=np.array(log_factors))


def _matching_factor(run: LoadRun, replay: Replay, predicted: SimulatedRun) -> float:
    """Return the logarithm of the factor with which the simulated time per token is the measured one."""
    wanted = log(run.tpot.mean_s)
    tried, found = 0.0, log(predicted.tpot_s)
    slope = 1.0
    for _ in range(_ROUNDS):
        if abs(wanted - found) <= _CLOSE:
            break
        step = (wanted - found) / slope
        again = log(replay(run, tried + step).tpot_s)
        slope = min(_SLOPES[1], max(_SLOPES[0], (again - found) / step))
        tried, found = tried + step, again
    return tried


def _load_of(run: LoadRun, ranks: int) -> tuple[float, float, float]:
    """Return the load of a run: the requests in flight per rank, and the mean lengths. Little's law in an open loop."""
    latency_s = run.ttft.mean_s + run.output_length.mean * run.tpot.mean_s
    users = run.users if run.users is not None else run.applied_rate_per_s * latency_s
    return max(1.0, users / ranks), max(1.0, run.input_length.mean), max(1.0, run.output_length.mean)


def implausible_runs(runs: Sequence[ComparedRun], prior: Logs) -> Iterator[str]:
    """Yield a sentence for each run whose TPOT lies outside the P1 and P99 of the uncorrected prediction."""
    limit = _P99_SIGMAS * hypot(_sigma(prior), RUN_NOISE)
    for one in runs:
        measured_s, predicted_s = one.run.tpot.mean_s, one.before.tpot_s
        if abs(log(measured_s / predicted_s)) > limit:
            yield (
                f"{one.run.where}: TPOT is {measured_s * 1e3:.3g} ms, outside the prediction's P1 to P99 of "
                f"{predicted_s * exp(-limit) * 1e3:.3g} to {predicted_s * exp(limit) * 1e3:.3g} ms. "
                "Check the model, the precision, the accelerator and drafting."
            )


def _posterior(errors: Sequence[float], noise: Sequence[float], prior_sigma: float) -> FittedFactor:
    """Return the factor between the prior, which is no correction, and the mean error of the runs.

    Runs at different loads differ by more than the noise of repetitions if the predicted curve has the wrong shape.
    Their scatter then replaces the noise.
    """
    weights = [1.0 / sigma**2 for sigma in noise]
    mean = sum(weight * error for weight, error in zip(weights, errors, strict=True)) / sum(weights)
    scatter = 0.0
    if len(errors) > 1:
        scatter = sqrt(sum((error - mean) ** 2 for error in errors) / (len(errors) - 1))
    spread = [max(sigma, scatter) for sigma in noise]
    weights = [1.0 / sigma**2 for sigma in spread]
    precision = sum(weights) + 1.0 / prior_sigma**2
    estimate = sum(weight * error for weight, error in zip(weights, errors, strict=True)) / precision
    return FittedFactor(log_factor=estimate, next_run_sigma=hypot(1.0 / sqrt(precision), fmean(spread)))


def _first_noise(run: LoadRun) -> float:
    return _UNKNOWN_ARRIVALS if run.closed_loop and not run.has_all_records else _FIRST_NOISE


def _sigma(spread: Logs) -> float:
    low, high = spread
    return max(1e-6, (high - low) / (2 * _P90_SIGMAS))


def _with_first(simulated: SimulatedRun, log_factor: float) -> SimulatedRun:
    return SimulatedRun(
        ttft_s=simulated.ttft_s * exp(log_factor),
        tpot_s=simulated.tpot_s,
        output_tokens_per_s=simulated.output_tokens_per_s,
    )
