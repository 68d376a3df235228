"""Predicts by how much the times of runs with drafts deviate from the step model.

The step model gives the time of a drafting step from the slowdowns of the setup without drafts and from the expected
number of accepted tokens. The deviation of each measured run is one row. Two rows covary through the labels that they
share: model, engine, accelerator, draft length and setup, at any load or at a similar load. So a measured run with
drafts informs its own setup, and with less weight its neighbours. Rows without drafts are not changed by these rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from penstock.performance.similarity.cases import Cases
from penstock.performance.similarity.covariance import Reason, alike, in_a_month, similar_load, similar_users
from penstock.performance.similarity.posterior import Measured
from penstock.performance.step.step_work import Array

UnseenDraft = Literal["load", "setup"]
"""What was never measured with drafts: the load of a run, or its whole setup."""

_OF_STACK: Final = (
    Reason(name="all", label=None),
    *(Reason(name=label, label=label) for label in ("vendor", "part", "engine", "stack", "split engine")),
    Reason(name="all by users", label=None, near=similar_users),
    *(
        Reason(name=f"{label} by users", label=label, near=similar_users)
        for label in ("engine", "stack", "split engine")
    ),
)
"""Reasons that do not depend on the model, and so not on the acceptance of its drafts."""
_OF_MODEL: Final = (
    *(Reason(name=label, label=label) for label in ("family", "family engine", "family stack", "draft")),
    *(Reason(name=label, label=label) for label in ("family draft", "setup without drafts", "setup")),
    Reason(name="family by users", label="family", near=similar_users),
    *(Reason(name=f"{label} by load", label=label, near=similar_load) for label in ("family stack", "setup")),
    Reason(name="setup in a month", label="setup", near=in_a_month),
)
_SPREADS: Final[Mapping[str, float]] = {
    "all": 0.1,
    "vendor": 0.05,
    "part": 0.05,
    "engine": 0.05,
    "stack": 0.08,
    "split engine": 0.03,
    "family": 0.4,
    "family engine": 0.16,
    "family stack": 0.04,
    "draft": 0.05,
    "family draft": 0.24,
    "setup without drafts": 0.04,
    "setup": 0.05,
    "all by users": 0.1,
    "engine by users": 0.08,
    "stack by users": 0.03,
    "split engine by users": 0.08,
    "family by users": 0.1,
    "family stack by load": 0.06,
    "setup by load": 0.04,
    "setup in a month": 0.04,
}
"""Standard deviation of the effect of each reason on the log time, chosen by held-out errors."""
_NOISE: Final = 0.03
_UNDATED_NOISE: Final = 0.02
"""Standard deviations of the part of a log time that belongs to one row alone. A median over months has both parts."""
_OUTLIER: Final = 2.5
"""Distance of a row from its prediction by all other rows, in standard deviations, above which its weight falls."""
_REWEIGHTS: Final = 2
_NEAREST: Final = 200


def _covariance(one: Cases, other: Cases, reasons: Sequence[Reason]) -> Array:
    whole = np.zeros((len(one), len(other)))
    for name, matrix in alike(one, other, reasons):
        whole += _SPREADS[name] ** 2 * matrix
    return whole


def _own_noise(cases: Cases) -> Array:
    return np.asarray(_NOISE**2 + _UNDATED_NOISE**2 * cases.undated)


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftEvidence:
    """Measured runs with drafts, and the weight of each run in predictions."""

    measured: Measured
    """The work of a row is that of its drafting step, divided by the expected tokens of the step."""
    noise: Array
    """Variance of the part of each log time that belongs to the row alone. It is larger for outliers."""
    solved: Array
    """Weight of each row: the inverse covariance of the rows, times their deviations from the step model."""
    intervals: Mapping[UnseenDraft, tuple[float, float]]
    """P10 and P90 of held-out errors, in units of the standard deviation that the prediction states."""

    @property
    def cases(self) -> Cases:
        """Return the measured rows."""
        return self.measured.cases

    def shift(self, asked: Cases, *, acceptance_known: bool = False) -> Array:
        """Return the predicted deviation of each log time from the step model. All runs are of one deployment.

        If the acceptance of the drafts is known, the effects of the model are left out, because they mostly correct its
        expected acceptance.
        """
        reasons = _OF_STACK if acceptance_known else (*_OF_STACK, *_OF_MODEL)
        return np.asarray(_covariance(asked, self.cases, reasons) @ self.solved)

    def spread(self, asked: Cases) -> Array:
        """Return the standard deviation of measured deviations around each prediction, from the nearest rows."""
        reasons = (*_OF_STACK, *_OF_MODEL)
        across = _covariance(asked, self.cases, reasons)
        nearest = np.argsort(-across.max(axis=0), kind="stable")[:_NEAREST]
        rows = self.cases.take(nearest)
        within = _covariance(rows, rows, reasons) + np.diag(self.noise[nearest])
        explained = np.einsum("ij,ji->i", across[:, nearest], np.linalg.solve(within, across[:, nearest].T))
        return np.asarray(np.sqrt(np.maximum(_alone() - explained, 0.0) + _NOISE**2))

    def rows_of(self, asked: Cases) -> npt.NDArray[np.intp]:
        """Return the rows of exactly the setup and the drafts of `asked`."""
        return np.flatnonzero(self.cases.labels["setup"] == asked.labels["setup"][0])

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the rows, their noise and their weights as arrays."""
        numbers = {"noise": self.noise.astype(np.float32), "solved": self.solved.astype(np.float32)}
        return self.measured.to_arrays() | numbers

    @staticmethod
    def from_arrays(
        arrays: Mapping[str, npt.NDArray[Any]], intervals: Mapping[UnseenDraft, tuple[float, float]]
    ) -> "DraftEvidence":
        """Parse the arrays that `to_arrays` returns."""
        return DraftEvidence(
            measured=Measured.from_arrays(arrays),
            noise=arrays["noise"].astype(np.float64),
            solved=arrays["solved"].astype(np.float64),
            intervals=intervals,
        )


def _alone() -> float:
    """Return the variance of a deviation about which nothing is known."""
    return sum(spread**2 for spread in _SPREADS.values())


class SolvedDrafts:
    """Solution of the covariance of runs with drafts, from which any rows can be held out."""

    def __init__(self, measured: Measured, deviations: Array) -> None:
        self.measured, self.deviations = measured, deviations
        self._whole = _covariance(measured.cases, measured.cases, (*_OF_STACK, *_OF_MODEL))
        self.noise = _own_noise(measured.cases)
        for _ in range(_REWEIGHTS):
            # Distance of each row from its prediction by all other rows. Outliers get less weight.
            distance = np.abs(self.solved) / np.sqrt(np.diag(self._precision))
            self.noise = self.noise * np.maximum(1.0, distance / _OUTLIER) ** 2
            del self._precision, self.solved

    @cached_property
    def _precision(self) -> Array:
        return np.asarray(np.linalg.inv(self._whole + np.diag(self.noise)))

    @cached_property
    def solved(self) -> Array:
        """Return the weight of each row."""
        return np.asarray(self._precision @ self.deviations)

    def without(self, groups: npt.NDArray[Any]) -> tuple[Array, Array]:
        """Predict the deviation of each row with all rows of its group held out.

        Return the predictions, and the standard deviations of the measured deviations around them.
        """
        shifts, spreads = np.zeros(len(groups)), np.zeros(len(groups))
        for group in np.unique(groups):
            held = np.flatnonzero(groups == group)
            own = np.linalg.inv(self._precision[np.ix_(held, held)])
            shifts[held] = self.deviations[held] - own @ self.solved[held]
            spreads[held] = np.sqrt(np.maximum(np.diag(own) - self.noise[held], 0.0) + _NOISE**2)
        return shifts, spreads

    def evidence(self, intervals: Mapping[UnseenDraft, tuple[float, float]]) -> DraftEvidence:
        """Return the evidence with all rows."""
        return DraftEvidence(measured=self.measured, noise=self.noise, solved=self.solved, intervals=intervals)
