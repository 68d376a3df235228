"""Predicts the times of one deployment at every load.

The slowdowns give the time of any step. At loads of exactly this setup that were measured, a correction makes the
predicted time equal to the measured time.
"""

from dataclasses import dataclass, replace
from datetime import date
from typing import Final, Self

import numpy as np

from penstock.performance.similarity.cases import Cases, LogLoad
from penstock.performance.similarity.load_errors import LoadErrors
from penstock.performance.similarity.own_measurements import (
    OwnMeasurements,
    is_current,
    newest_of_each_load,
)
from penstock.performance.similarity.posterior import Evidence, last_measured
from penstock.performance.similarity.slowdowns import (
    CENTRE,
    DIGITS,
    GRID,
    GRID_WEIGHTS,
    closed_loop_case,
    slowdowns_through,
)
from penstock.performance.step.step_work import COMPONENTS, PROMPT_COMPONENTS, Array, ReplicaWork

DOUBLINGS: Final = np.arange(15)
"""Base-2 logarithms of the numbers of users for which a setup's factors are computed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Slowdowns of a deployment, and the measurements of its own setup that correct them."""

    slowdowns: Array
    own: OwnMeasurements
    differences: Array
    """Logarithm of measured over predicted time at each measured load. The slowdowns give the predicted time."""
    own_runs: LoadErrors | None = None
    """Errors of the user's own runs. The slowdowns include their level."""

    @classmethod
    def through(cls, slowdowns: Array, own: OwnMeasurements, own_roofline: Array) -> Self:
        """Return the curve that passes through measurements, given the work at each of their loads."""
        differences = own.log_seconds - np.log(own_roofline @ slowdowns)
        return cls(slowdowns=slowdowns, own=own, differences=np.asarray(differences))

    def with_own_runs(self, errors: LoadErrors) -> "Curve":
        """Return the curve corrected by the user's own runs, which were compared with this curve."""
        return replace(self, slowdowns=self.slowdowns * float(np.exp(errors.level)), own_runs=errors)

    def with_slower_prompts(self, prompt_log: float) -> "Curve":
        """Return the curve of an engine that takes exp(`prompt_log`) times as long for prompt tokens."""
        slowdowns = self.slowdowns.copy()
        slowdowns[[COMPONENTS.index(name) for name in PROMPT_COMPONENTS]] *= np.exp(prompt_log)
        return replace(self, slowdowns=slowdowns)

    def without_corrections(self, factor: float) -> "Curve":
        """Return the slowdowns times a factor, without the corrections, for engines that run only one phase."""
        none = np.zeros(len(self.own), np.bool_)
        return Curve(slowdowns=self.slowdowns * factor, own=self.own.take(none), differences=self.differences[none])

    def correction(self, at: LogLoad) -> Array:
        """Return the logarithm of the factor by which the measurements correct the time at each load."""
        shipped = self.own.interpolate(at, self.differences)
        return shipped if self.own_runs is None else shipped + self.own_runs.mean(at) - self.own_runs.level

    def factors_by_users(self, input_tokens: float, output_tokens: float) -> tuple[float, ...]:
        """Return the factor by which the measurements correct the time with 1, 2, 4 and more users, up to 16,384.

        The result is empty if nothing was measured.
        """
        if not len(self.own) and self.own_runs is None:
            return ()
        users = DOUBLINGS.astype(np.float64)
        at = users, np.full(len(users), np.log2(input_tokens)), np.full(len(users), np.log2(output_tokens))
        return tuple(np.round(np.exp(self.correction(at)), DIGITS).tolist())

    def log_seconds(self, at: Cases) -> Array:
        """Return the log seconds between two tokens, for each run in `at`."""
        return np.asarray(np.log(at.roofline @ self.slowdowns) + self.correction(at.log_load))


def fit_curve(
    grid: Cases, grid_log_seconds: Array, own: OwnMeasurements, own_roofline: Array, predicted: Array, common: Array
) -> Curve:
    """Fit slowdowns to the predicted times of a grid of loads and to the measurements of the setup.

    `predicted` has the log times that the covariance predicts for the loads in `own`, with the software of the grid.
    """
    moved = grid_log_seconds + own.interpolate(grid.log_load, own.log_seconds - predicted)
    own_weights = own.spread.narrow**2 / own.own_variance
    slowdowns = slowdowns_through(
        np.vstack([grid.roofline, own_roofline]),
        np.round(np.concatenate([moved, own.log_seconds]), DIGITS),
        common,
        np.concatenate([GRID_WEIGHTS, own_weights]),
    )
    return Curve.through(slowdowns, own, own_roofline)


def curve_of(evidence: Evidence, work: ReplicaWork, engine: str, day: date | None = None) -> Curve:
    """Return the curve of a deployment with the software of a given day.

    If no day is given, the newest software of the most similar measured setup is used.
    """
    grid = closed_loop_case(work, engine, GRID, day or evidence.newest)
    grid = grid if day is not None else last_measured(evidence.cases, grid)
    setup, day_now = evidence.rows_sharing(grid, "setup"), float(grid.day[0])
    rows = newest_of_each_load(evidence.cases, evidence.measured.answer_s, setup, day_now)
    measured = evidence.cases.take(rows)
    loads = tuple(zip(measured.users, measured.input_tokens, measured.output_tokens, strict=True))
    # The work of this deployment at each load. The measured engine may have batched other numbers of prompt tokens.
    now = closed_loop_case(work, engine, loads, date.fromordinal(int(day_now))) if loads else grid.take(rows)
    predicted = np.round(evidence.log_seconds(now), DIGITS)
    drift = np.round(evidence.log_seconds(measured), DIGITS) - predicted
    every = OwnMeasurements(loads=measured.log_load, log_seconds=np.log(evidence.measured.answer_s[rows]), drift=drift)
    current = is_current(drift, measured.undated)
    return fit_curve(
        grid,
        evidence.log_seconds(grid),
        every.take(current),
        now.roofline[current],
        predicted[current],
        evidence.spreads.common,
    )


def slowdowns_of(evidence: Evidence, work: ReplicaWork, engine: str, day: date | None = None) -> Array:
    """Return the slowdowns of a deployment with the software of a given day, or the newest software if None."""
    return curve_of(evidence, work, engine, day).slowdowns


def uncertainty_of(evidence: Evidence, work: ReplicaWork, engine: str, own: OwnMeasurements) -> float:
    """Return the uncertainty of a deployment's times at typical loads today, as the standard deviation of a logarithm.

    It includes the changes of software since the last measurement.
    """
    today = closed_loop_case(work, engine, tuple(GRID[number] for number in CENTRE), evidence.newest)
    last = last_measured(evidence.cases, today)
    variances = evidence.spread(last) ** 2, evidence.spread(today) ** 2
    variance = remaining_variance(own.unexplained_share(last.log_load), *variances, evidence.spreads.noise)
    return round(float(np.sqrt(np.mean(variance))), DIGITS)


def uncertainty_at(
    evidence: Evidence, work: ReplicaWork, engine: str, load: tuple[float, float, float], own: OwnMeasurements
) -> float:
    """Return the uncertainty of a deployment's time at one load, as the standard deviation of a logarithm.

    The uncertainty is for the software that was last measured. `load` has users, input tokens and output tokens.
    """
    last = last_measured(evidence.cases, closed_loop_case(work, engine, (load,), evidence.newest))
    variance = evidence.spread(last) ** 2
    left = remaining_variance(own.unexplained_share(last.log_load), variance, variance, evidence.spreads.noise)
    return round(float(np.sqrt(left[0])), DIGITS)


def remaining_variance(unexplained: Array, last: Array, today: Array, noise: float) -> Array:
    """Return the variance of log times after the setup's own measurements are taken into account.

    `last` has the variances with the last measured software, and `today` those with the software of today. Own
    measurements reduce the first and say nothing about newer software. The noise of a repetition remains.
    """
    return np.asarray(noise**2 + unexplained * np.maximum(last - noise**2, 0.0) + np.maximum(today - last, 0.0))
