"""Predicts every measured row as the commands would without data of its month, load, setup, model or accelerator."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.performance.calibration.error_summary import Errors
from penstock.performance.calibration.first_token_waits import (
    SlowdownsOf,
    Waited,
    calibrate_first_tokens,
    first_row,
)
from penstock.performance.calibration.measured_runs import Run, as_columns, measured_engine, setup_of
from penstock.performance.similarity.cases import Cases
from penstock.performance.similarity.covariance import Spreads, covariance, linear, noise_of
from penstock.performance.similarity.curve import fit_curve, remaining_variance, slowdowns_of
from penstock.performance.similarity.own_measurements import OwnMeasurements, is_current, newest_of_each_load
from penstock.performance.similarity.posterior import Evidence, Measured, last_measured
from penstock.performance.similarity.slowdowns import GRID, closed_loop_case
from penstock.performance.step.step_work import Array

Folds = npt.NDArray[np.int64]
Picked = npt.NDArray[np.intp]
Kept = npt.NDArray[np.bool_]


FOLDS: Final[Mapping[str, Callable[[Cases], Sequence[npt.NDArray[Any]]]]] = {
    "month": lambda cases: [months_of(cases)],
    "load": lambda cases: [cases.labels["setup"], cases.users, *_lengths(cases)],
    "lengths": lambda cases: _lengths(cases),  # noqa: PLW0108 - defined below
    "setup": lambda cases: [cases.labels["setup"]],
    "model": lambda cases: [cases.labels["family"]],
    "accelerator": lambda cases: [cases.labels["part"]],
}
"""Columns that define each kind of fold. Rows that are equal in all these columns form one fold and are held out
together. If a month is held out, all later rows are held out too."""
_MIN_KNOWN: Final = 200
_AT_ONCE: Final = 12
"""Number of groups into which folds are merged for the fit of first tokens. All rows of a group are held out at
once."""
_LARGE: Final = 64
"""If a fold has more rows than this, the solution without the fold is cached and reused for other setups."""
_TOGETHER: Final = 40
"""Number of setups whose covariances are multiplied with the inverse in one matrix product."""


def _batches(groups: Iterable["_Group"], size: int) -> Iterator[list["_Group"]]:
    """Yield the groups in batches of `size`. The last batch can be smaller."""
    remaining = iter(groups)
    while taken := list(islice(remaining, size)):
        yield taken


def _lengths(cases: Cases) -> list[npt.NDArray[Any]]:
    return [np.round(cases.input_tokens), np.round(cases.output_tokens)]


def months_of(cases: Cases) -> npt.NDArray[np.datetime64]:
    """Return the month of each row."""
    days = np.datetime64("0001-01-01", "D") + (cases.day - 1).astype("timedelta64[D]")
    return days.astype("datetime64[M]")


def folds_of(cases: Cases, name: str) -> Folds:
    """Return the fold number of each row, for a kind of fold in `FOLDS`."""
    columns = [np.unique(values, return_inverse=True)[1] for values in FOLDS[name](cases)]
    return np.asarray(np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel(), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """Predictions of rows, each made without the row's fold. The values of a row that cannot be predicted are NaN."""

    predicted_s: Array
    uncertainty: Array
    """Standard deviation of the logarithm of each time, as the prediction states it."""
    slowdowns: Array
    """Slowdowns with which each row was predicted."""


def errors_of(measured: Measured, name: str, predicted_s: Array, uncertainty: Array) -> Errors:
    """Return the errors of predicted times. Rows without a prediction are left out."""
    every = Errors(
        predicted_s=predicted_s,
        measured_s=measured.seconds,
        uncertainty=uncertainty,
        folds=folds_of(measured.cases, name),
        accelerators=np.array(measured.texts["part"]),
    )
    return every.take(~np.isnan(predicted_s))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Removed:
    """Solution for the remaining rows when some rows are left out."""

    rows: Picked
    block: Array
    """Inverse of the block of the inverse covariance that belongs to the left-out rows."""
    solved: Array
    """Weights of the remaining rows. The weights of the left-out rows are zero."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Group:
    """Rows of one setup and month, with the loads at which they are predicted."""

    rows: Picked
    grid: Cases
    """Grid of loads at the median date of the rows."""
    own: Picked
    """Rows of the setup that correct the prediction, one per load."""
    own_now: Cases
    """Loads of `own`, with the date of the grid."""
    rows_now: Cases
    """Loads of `rows`, at the date for which the uncertainty is stated."""


class HeldOut:
    """Predictor of held-out rows. It inverts the covariance of all rows once and reuses the inverse for most folds."""

    def __init__(self, found: Sequence[Run], spreads: Spreads) -> None:
        self.found, self.spreads = found, spreads
        self.measured = as_columns(found)
        self.cases: Cases = self.measured.cases
        self.left = np.log(self.measured.seconds) - linear(self.cases, spreads).reference
        self.whole = covariance(self.cases, self.cases, spreads).astype(np.float64)
        self.whole[np.diag_indices(len(found))] += noise_of(self.cases, spreads)
        self.inverse = np.linalg.inv(self.whole)
        self.solved = self.inverse @ self.left

    def without(self, *names: str) -> dict[str, Held]:
        """Predict the rows of each fold from the rows outside the fold, for each named kind of fold.

        For months, all later rows are left out too.
        """
        held = {name: self._nothing() for name in names}
        folds = {name: folds_of(self.cases, name) for name in names if name != "month"}
        large: dict[tuple[str, int], _Removed] = {}
        for group, across, through in self._with_inverse() if folds else ():
            known = np.einsum("ij,ij->i", through, across.rows)
            for name, fold in ((each, fold) for each in folds for fold in np.unique(folds[each][group.rows]).tolist()):
                gone = large.get((name, fold)) or self._remove(np.flatnonzero(folds[name] == fold))
                if len(gone.rows) > _LARGE:
                    large[name, fold] = gone
                lost = np.einsum("ij,ij->i", through[:, gone.rows] @ gone.block, through[:, gone.rows])
                variance = self._variance(group.rows_now, known - lost)
                kept = folds[name][group.rows] == fold, ~np.isin(group.own, gone.rows)
                self._predict(held[name], group, across, gone.solved, (variance, variance), kept)
        if "month" in held:
            self._a_month_ahead(held["month"])
        return held

    def _a_month_ahead(self, held: Held) -> None:
        """Predict each month's dated rows from earlier rows.

        The prediction uses the last software measured before the month, and the uncertainty at the date of the
        predicted rows.
        """
        month, dated = months_of(self.cases), ~self.cases.undated
        for this in np.unique(month[dated]):
            known = np.flatnonzero(dated & (month < this))
            if len(known) < _MIN_KNOWN:
                continue
            inverse = np.linalg.inv(self.whole[np.ix_(known, known)])
            solved = np.zeros(len(self.found))
            solved[known] = inverse @ self.left[known]
            for group in self._groups(dated & (month == this), known=known):
                across = self._across(group)
                last = _dated_as(group.rows_now, group.grid)
                earlier = (covariance(cases, self.cases.take(known), self.spreads) for cases in (last, group.rows_now))
                explained = [np.einsum("ij,ij->i", each @ inverse, each) for each in earlier]
                variances = self._variance(last, explained[0]), self._variance(group.rows_now, explained[1])
                every = np.ones(len(group.rows), np.bool_), np.ones(len(group.own), np.bool_)
                self._predict(held, group, across, solved, variances, every)

    def _nothing(self) -> Held:
        count = len(self.found)
        return Held(
            predicted_s=np.full(count, np.nan),
            uncertainty=np.full(count, np.nan),
            slowdowns=np.full((count, self.cases.roofline.shape[1]), np.nan),
        )

    def _remove(self, out: Picked) -> "_Removed":
        block = np.linalg.inv(self.inverse[np.ix_(out, out)])
        solved = self.solved - self.inverse[:, out] @ (block @ self.solved[out])
        solved[out] = 0.0
        return _Removed(rows=out, block=block, solved=solved)

    def _with_inverse(self) -> Iterator[tuple["_Group", "_Across", Array]]:
        """Yield each group, its covariances with all rows, and those of its own rows times the inverse covariance."""
        for together in _batches(self._groups(), _TOGETHER):
            across = [self._across(group) for group in together]
            through = np.vstack([each.rows for each in across]) @ self.inverse
            parts = np.split(through, np.cumsum([len(group.rows) for group in together])[:-1])
            yield from zip(together, across, parts, strict=True)

    def _across(self, group: "_Group") -> "_Across":
        grid, own, rows = (
            covariance(cases, self.cases, self.spreads).astype(np.float64)
            for cases in (group.grid, group.own_now, group.rows_now)
        )
        return _Across(grid=grid, own=own, rows=rows)

    def _groups(self, kept: npt.NDArray[np.bool_] | None = None, known: Picked | None = None) -> Iterator["_Group"]:
        """Yield the rows of each setup and month, with a grid of loads at the median date of these rows.

        If `known` is given, the grid has the date of the last known software, and only known rows correct it.
        """
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, run in enumerate(self.found):
            if run.row.scenario == "online" and (kept is None or kept[number]):
                groups[*setup_of(run.row), f"{run.row.date:%Y-%m}", run.row.dated].append(number)
        for members in groups.values():
            run, day = self.found[members[0]], date.fromordinal(round(float(np.median(self.cases.day[members]))))
            today = closed_loop_case(run.work, measured_engine(run.row), GRID, day, undated=run.row.dated == "up_to")
            grid = today if known is None else last_measured(self.cases.take(known), today)
            rows, setup = np.array(members, np.intp), self.cases.labels["setup"] == grid.labels["setup"][0]
            candidates = np.flatnonzero(setup) if known is None else known[setup[known]]
            own = newest_of_each_load(self.cases, self.measured.seconds, candidates, float(grid.day[0]))
            yield _Group(
                rows=rows,
                grid=grid,
                own=own,
                own_now=_dated_as(self.cases.take(own), grid),
                rows_now=_dated_as(self.cases.take(rows), today),
            )

    def _variance(self, cases: Cases, explained: Array) -> Array:
        """Return the variance of predicted log times, given the part that the known rows explain."""
        alone = np.diag(covariance(cases, cases, self.spreads))
        return np.asarray(np.maximum(alone - explained, 0.0) + self.spreads.noise**2)

    def _predict(
        self,
        held: Held,
        group: "_Group",
        across: "_Across",
        solved: Array,
        variances: tuple[Array, Array],
        kept: tuple[Kept, Kept],
    ) -> None:
        """Predict some rows of a group.

        `variances` are those of all rows of the group, with the last measured software and with the software of the
        row's day. `kept` selects the rows to predict, and the measurements of the setup that correct them.
        """
        picked, own = kept
        now, then = group.own_now.take(own), self.cases.take(group.own[own])
        predicted = linear(now, self.spreads).reference + across.own[own] @ solved
        smoothed = linear(then, self.spreads).reference + self._covariance_with_all(group.own[own]) @ solved
        drift = smoothed - predicted
        current = is_current(drift, then.undated)
        measurements = OwnMeasurements(
            loads=then.take(current).log_load,
            log_seconds=np.log(self.measured.seconds[group.own[own][current]]),
            drift=drift[current],
        )
        moved = linear(group.grid, self.spreads).reference + across.grid @ solved
        curve = fit_curve(
            group.grid, moved, measurements, then.roofline[current], predicted[current], self.spreads.common
        )
        rows, asked = group.rows[picked], group.rows_now.take(picked)
        last, today = (each[picked] for each in variances)
        variance = remaining_variance(measurements.unexplained_share(asked.log_load), last, today, self.spreads.noise)
        held.slowdowns[rows] = curve.slowdowns
        held.predicted_s[rows] = np.exp(curve.log_seconds(self.cases.take(rows)))
        held.uncertainty[rows] = np.sqrt(variance)

    def _covariance_with_all(self, rows: Picked) -> Array:
        """Return the covariance of rows with all rows, without noise."""
        shared = self.whole[rows]
        shared[np.arange(len(rows)), rows] -= noise_of(self.cases.take(rows), self.spreads)
        return shared


@dataclass(frozen=True, kw_only=True, eq=False)
class _Across:
    """Covariances of a group's grid, its own measurements and its rows with all measured rows."""

    grid: Array
    own: Array
    rows: Array


def _dated_as(cases: Cases, other: Cases) -> Cases:
    """Return cases with the date of the first case in `other`."""
    count = len(cases)
    return replace(cases, day=np.full(count, other.day[0]), undated=np.full(count, other.undated[0]))


class Dated:
    """Function that maps a run to its slowdowns with the software of the run's day."""

    def __init__(self, evidence: Evidence) -> None:
        # A time to first token belongs to the run that measured it, and not to the median of other runs of its load.
        runs_alone = replace(evidence.measured, median_s=np.full(len(evidence.cases), np.nan))
        self.evidence = replace(evidence, measured=runs_alone)
        self._found: dict[tuple[object, ...], Array] = {}

    def __call__(self, run: Run) -> Array:
        """Return the slowdowns of a run. They are computed once for each setup and day."""
        key = (*setup_of(run.row), run.row.date)
        if key not in self._found:
            self._found[key] = slowdowns_of(self.evidence, run.work, measured_engine(run.row), run.row.date)
        return self._found[key]


def folds_of_waits(waits: Sequence[Waited], name: str) -> Folds:
    """Return the fold number of each measured time to first token."""
    return folds_of(as_columns([item.run for item in waits]).cases, name)


def slowdowns_of_waits(waits: Sequence[Waited], slowdowns: Array, found: Sequence[Run]) -> Array:
    """Return the slowdowns with which each time to first token is predicted, given one row of slowdowns per run.

    The values of a row that is not among the runs, such as one with drafts, are NaN.
    """
    known = {run.row.id: row for run, row in zip(found, slowdowns, strict=True)}
    return np.array([known.get(item.run.row.id, np.full(slowdowns.shape[1], np.nan)) for item in waits])


def slowdowns_matching(predicted_s: Array, known: SlowdownsOf, found: Sequence[Run]) -> Array:
    """Return slowdowns that reproduce predicted times per token, with one row per run.

    Each run has the slowdowns of its own setup, all multiplied by the factor by which the prediction differs from them.
    """
    rows = np.array(
        [
            known(run) if np.isfinite(each) else np.nan * run.roofline
            for run, each in zip(found, predicted_s, strict=True)
        ]
    )
    own_s = np.einsum("ij,ij->i", rows, np.array([run.roofline for run in found]))
    return np.asarray(rows * (predicted_s / own_s)[:, None])


def first_tokens_without(
    waits: Sequence[Waited], folds: Folds, known: SlowdownsOf, held: Array, served_s: Array | None = None
) -> Array:
    """Predict times to first token, each without the fold of its row.

    `held` has the slowdowns of the steps for each measured row, predicted without the row's fold. A row without such
    slowdowns is not predicted. If `served_s` is given, these simulated times of the steps replace those of the loop.
    """
    predicted, groups = np.full(len(waits), np.nan), folds % _AT_ONCE
    rows = [first_row(item, known(item.run)) for item in waits]
    for group in np.unique(groups):
        first = calibrate_first_tokens([row for row, at in zip(rows, groups, strict=True) if at != group])
        for number in np.flatnonzero((groups == group) & np.isfinite(held).all(axis=1)).tolist():
            served = None if served_s is None else float(served_s[number])
            predicted[number] = first.seconds(first_row(waits[number], held[number], served))
    return predicted
