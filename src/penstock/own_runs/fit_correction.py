"""Finds the correction of a setup's predicted times from runs of that setup.

The unknowns are one factor on the time of every step, and one on the time to first token. Both have a prior: no
correction, with the uncertainty of the prediction. Each run is simulated with the factor that the runs so far suggest,
until simulated and measured times agree on average.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log, sqrt
from statistics import fmean
from typing import Final

from penstock.load_tools.load_run import LoadRun
from penstock.own_runs.replay_run import SimulatedRun
from penstock.performance.calibration.error_summary import Logs

Replay = Callable[[LoadRun, float], SimulatedRun]
"""Simulates a run with a logarithm of the factor on the time of every step."""
_P90_SIGMAS: Final = 1.2816
_P99_SIGMAS: Final = 2.3263
_STEP_NOISE: Final = 0.03
"""Minimum standard deviation of one run's log time per token around the simulated one."""
_FIRST_NOISE: Final = 0.15
"""Standard deviation of one run's log time to first token, if its arrivals are known."""
_UNKNOWN_ARRIVALS: Final = 0.4
"""The same in a closed loop whose starts are not listed. Load tools start the next requests in different ways, which
changed the time to first token by a factor of 2.2 in runs of seven tools at 16 users."""
_OTHER_LOADS: Final = 0.06
"""Standard deviation of the log time per token at a load that was not measured, if one load of the setup was. The P90
error of predictions with the load held out is 9.4% (docs/accuracy.md)."""
_ROUNDS: Final = 8
_CLOSE: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """Measured run, and the same run as predicted before and after the correction."""

    run: LoadRun
    before: SimulatedRun
    after: SimulatedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFactor:
    """Logarithm of a factor with the standard deviations of the factor and of a further measurement."""

    log_factor: float
    sigma: float
    """Standard deviation of the factor itself."""
    next_run_sigma: float
    """Standard deviation of a further run around its prediction with the factor."""

    @property
    def spread(self) -> Logs:
        """Return the P10 and P90 of a further run over its corrected prediction, as logarithms."""
        return -_P90_SIGMAS * self.next_run_sigma, _P90_SIGMAS * self.next_run_sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCorrection:
    """Both factors of a setup, and the runs that they were found from."""

    step: FittedFactor
    first: FittedFactor
    runs: tuple[ComparedRun, ...]


def fit_correction(runs: Sequence[LoadRun], replay: Replay, *, prior: Logs, first_prior: Logs) -> FittedCorrection:
    """Find the factors from one or more runs. A prior is the P10 and P90 of the uncorrected prediction's error."""
    before = [replay(run, 0.0) for run in runs]
    simulated, step = before, _posterior(_step_errors(runs, before), [_STEP_NOISE] * len(runs), _sigma(prior))
    tried = 0.0
    for _ in range(_ROUNDS):
        if abs(step.log_factor - tried) <= _CLOSE:
            break
        tried = step.log_factor
        simulated = [replay(run, tried) for run in runs]
        errors = [tried + error for error in _step_errors(runs, simulated)]
        step = _posterior(errors, [_STEP_NOISE] * len(runs), _sigma(prior))
    first_errors = [log(run.ttft.mean_s / one.ttft_s) for run, one in zip(runs, simulated, strict=True)]
    noise = [_first_noise(run) for run in runs]
    first = _posterior(first_errors, noise, _sigma(first_prior))
    compared = tuple(
        ComparedRun(run=run, before=old, after=_with_first(new, first.log_factor))
        for run, old, new in zip(runs, before, simulated, strict=True)
    )
    other_loads = min(_sigma(prior), _OTHER_LOADS / sqrt(len({_load_of(run) for run in runs})))
    return FittedCorrection(
        step=replace(step, next_run_sigma=hypot(step.next_run_sigma, other_loads)), first=first, runs=compared
    )


def _load_of(run: LoadRun) -> tuple[float, float, float]:
    """Return the load of a run. Runs of equal loads say nothing about other loads."""
    load = run.users if run.users is not None else round(run.applied_rate_per_s, 1)
    return load, round(run.input_length.mean, -2), round(run.output_length.mean, -2)


def implausible_runs(runs: Sequence[ComparedRun], prior: Logs) -> Iterator[str]:
    """Yield a sentence for each run whose TPOT lies outside the P1 and P99 of the uncorrected prediction."""
    limit = _P99_SIGMAS * hypot(_sigma(prior), _STEP_NOISE)
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

    Runs of one setup at different loads differ by more than the noise of repetitions if the predicted curve has the
    wrong shape. Their scatter then replaces the noise.
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
    sigma = 1.0 / sqrt(precision)
    return FittedFactor(log_factor=estimate, sigma=sigma, next_run_sigma=hypot(sigma, fmean(spread)))


def _step_errors(runs: Sequence[LoadRun], simulated: Sequence[SimulatedRun]) -> list[float]:
    return [log(run.tpot.mean_s / one.tpot_s) for run, one in zip(runs, simulated, strict=True)]


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
