"""Predicts the logarithm of a run's time from all measurements, with the standard deviation of this prediction."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.performance.similarity.cases import WORDS, Cases, Codes, DrivenEngine, hash_strings, noise_of_sources
from penstock.performance.similarity.covariance import (
    BY_DATE,
    LEVELS,
    REASONS,
    Spreads,
    alike,
    covariance,
    linear,
    noise_of,
)
from penstock.performance.step.step_work import Array

EXTRA_TEXTS: Final = ("version", "model", "devices", "source")
DATED_BY: Final = ("setup", "family stack", "stack")
"""Labels in order of preference. The first label that a deployment shares with dated measurements decides. The
deployment is then predicted with the newest software of these measurements."""
_NEAREST: Final = 200
"""Number of measurements, nearest to a prediction, that determine the uncertainty of the prediction."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Measured rows as columns, with the attributes of each row as codes and as text."""

    cases: Cases
    seconds: Array
    """Seconds between two tokens of a request."""
    first_s: Array
    """Mean or median seconds to the first token, as published. NaN if it was not published."""
    median_s: Array
    """Median seconds between two tokens over all runs of the row's load, where `seconds` of one run differ much from
    it. NaN elsewhere."""
    texts: Mapping[str, tuple[str, ...]]
    """Attributes of each row as text, including the additional attributes in `EXTRA_TEXTS`."""

    @cached_property
    def answer_s(self) -> Array:
        """Return the seconds between two tokens that answer for each row's load: the median, if one run differs."""
        return np.asarray(np.where(np.isnan(self.median_s), self.seconds, self.median_s))

    @cached_property
    def engines(self) -> tuple[DrivenEngine, ...]:
        """Return the engine and the scenario of each row."""
        known = {word: DrivenEngine.parse(word) for word in set(self.texts["engine"])}
        return tuple(known[word] for word in self.texts["engine"])

    def take(self, kept: npt.NDArray[np.bool_]) -> "Measured":
        """Return the selected rows."""
        texts = {word: tuple(np.array(spelt)[kept].tolist()) for word, spelt in self.texts.items()}
        return Measured(
            cases=self.cases.take(kept),
            seconds=self.seconds[kept],
            first_s=self.first_s[kept],
            median_s=self.median_s[kept],
            texts=texts,
        )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the rows as compact arrays, in which each attribute is an index into the list of its values.

        An attribute that is empty in all rows is left out.
        """
        written: dict[str, npt.NDArray[Any]] = {
            "light": self.cases.roofline.astype(np.float32),
            "seconds": self.seconds.astype(np.float32),
            "first_s": self.first_s.astype(np.float32),
            "median_s": self.median_s.astype(np.float32),
            "users": self.cases.users.astype(np.float32),
            "input_tokens": self.cases.input_tokens.astype(np.float32),
            "output_tokens": self.cases.output_tokens.astype(np.float32),
            "day": self.cases.day.astype(np.int32),
            "undated": self.cases.undated,
        }
        for word, texts in self.texts.items():
            if not any(texts):
                continue
            spelt, which = np.unique(np.array(texts), return_inverse=True)
            written[f"{word}_spelt"], written[word] = spelt, which.astype(np.uint16)
        return written

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> "Measured":
        """Parse the arrays that `to_arrays` returns."""
        empty = np.zeros(len(arrays["users"]), np.uint16)
        which = {name: arrays.get(name, empty) for name in (*WORDS, *EXTRA_TEXTS)}
        spelt = {name: arrays[f"{name}_spelt"].tolist() if name in arrays else [""] for name in which}
        codes: dict[str, Codes] = {word: hash_strings(spelt[word])[which[word]] for word in WORDS}
        numbers = {name: arrays[name].astype(np.float64) for name in _NUMBERS}
        return Measured(
            cases=Cases(
                words=codes,
                undated=arrays["undated"],
                roofline=arrays["light"].astype(np.float64),
                source_noise=noise_of_sources(spelt["source"])[which["source"]],
                **numbers,
            ),
            seconds=arrays["seconds"].astype(np.float64),
            first_s=arrays["first_s"].astype(np.float64),
            median_s=arrays["median_s"].astype(np.float64),
            texts={name: tuple(np.array(spelt[name])[index].tolist()) for name, index in which.items()},
        )


_NUMBERS: Final = ("users", "input_tokens", "output_tokens", "day")


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Measurements, the assumed similarity between them, and the weight of each measurement in predictions."""

    measured: Measured
    spreads: Spreads
    solved: Array
    """Weight of each row. The weights are the inverse covariance of the rows, times the difference of each row's log
    time from its value under the common slowdowns."""

    @property
    def cases(self) -> Cases:
        """Return the measured rows."""
        return self.measured.cases

    @cached_property
    def newest(self) -> date:
        """Return the day of the newest dated row. The uncertainty of predictions is computed for this day."""
        return date.fromordinal(int(self.cases.day[~self.cases.undated].max()))

    def log_seconds(self, asked: Cases) -> Array:
        """Predict the log seconds between two tokens for each run in `asked`. All these runs are of one deployment.

        The shift from the common slowdowns equals `covariance(asked, rows) @ solved`. Most rows share few labels with a
        run, so for each kind of label only the rows with the run's label are summed.
        """
        if not len(asked):
            return np.zeros(0)
        at = linear(asked, self.spreads)
        moved = at.reference + self._shift(asked)
        for level, label in LEVELS.items():
            moved += at.grouped * self.spreads.of_level(level) @ self._sharing(asked, label).grouped
        return np.asarray(moved)

    def software(self, asked: Cases) -> Array:
        """Return the contribution of software to each run's log time, as the sum of the effects of the run's date."""
        reasons = alike(asked, self.cases, BY_DATE)
        return np.asarray(sum(self.spreads.of[name] ** 2 * (matrix @ self.solved) for name, matrix in reasons))

    def _shift(self, asked: Cases) -> Array:
        moved = np.zeros(len(asked))
        for reason in REASONS:
            sharing, square = self._sharing(asked, reason.label), self.spreads.of[reason.name] ** 2
            if len(sharing.rows):
                near = 1.0 if reason.near is None else reason.near(asked, sharing.cases)
                moved += square * np.asarray(near * sharing.solved).sum(axis=-1)
        return moved

    def rows_sharing(self, asked: Cases, label: str | None) -> npt.NDArray[np.intp]:
        """Return the measured rows that share a label with the deployment of `asked`. All rows if the label is None."""
        return self._sharing(asked, label).rows

    def _sharing(self, asked: Cases, label: str | None) -> "_SharingRows":
        """Return the rows that share a label; many deployments share one label, so the rows are kept."""
        key = (label, 0 if label is None else int(asked.labels[label][0]))
        if key not in self._known:
            mask = np.ones(len(self.cases), np.bool_) if label is None else self.cases.labels[label] == key[1]
            rows = np.flatnonzero(mask)
            solved = self.solved[rows]
            self._known[key] = _SharingRows(
                rows=rows, cases=self.cases.take(rows), solved=solved, grouped=self._grouped[rows].T @ solved
            )
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[str | None, int], "_SharingRows"]:
        return {}

    @cached_property
    def _grouped(self) -> Array:
        return linear(self.cases, self.spreads).grouped

    def spread(self, asked: Cases) -> Array:
        """Return the standard deviation of measured log times around each prediction, from the nearest rows."""
        across = covariance(asked, self.cases, self.spreads)
        nearest = np.argsort(-np.abs(across).max(axis=0), kind="stable")[:_NEAREST]
        rows = self.cases.take(nearest)
        within = covariance(rows, rows, self.spreads).astype(np.float64)
        within[np.diag_indices(len(rows))] += noise_of(rows, self.spreads)
        weights = np.linalg.solve(within, across[:, nearest].T.astype(np.float64))
        explained = np.einsum("ij,ji->i", across[:, nearest], weights)
        alone = np.diag(covariance(asked, asked, self.spreads)).astype(np.float64)
        return np.asarray(np.sqrt(np.maximum(alone - explained, 0.0) + self.spreads.noise**2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SharingRows:
    """Measured rows that share one label."""

    rows: npt.NDArray[np.intp]
    cases: Cases
    solved: Array
    grouped: Array
    """Sum of the rows' weights, by group of components."""


def last_measured(cases: Cases, asked: Cases) -> Cases:
    """Return the runs in `asked`, which are of one deployment, dated to the software with which they are predicted."""
    return replace(asked, day=np.full(len(asked), software_day(cases, asked)))


def software_day(cases: Cases, asked: Cases) -> float:
    """Return the day of the newest software that was measured on setups like that of `asked`.

    If the setup was not measured on a known day, the newest day of the same model on the stack is used. If the model
    has only medians over months on the stack, their software is from between the first measurement of the model and
    the day of the medians, and the middle is used. If the model was not measured on the stack, the newest day of the
    stack is used, else the newest day of any row. No software is older than the first measurement of its model.
    """
    dated = ~cases.undated
    of_model = cases.labels["family"] == asked.labels["family"][0]
    first = float(cases.day[of_model & dated].min(initial=np.inf))
    for label in DATED_BY:
        rows = cases.labels[label] == asked.labels[label][0]
        if (rows & dated).any():
            newest = float(cases.day[rows & dated].max())
            return newest if np.isinf(first) else max(newest, first)
        if label == "family stack" and rows.any() and np.isfinite(first):
            return float(np.floor((first + max(first, float(cases.day[rows].max()))) / 2))
    return float(cases.day[dated].max())


def solve(measured: Measured, spreads: Spreads) -> Evidence:
    """Compute the weights of all rows by solving a linear system with the covariance of the rows."""
    whole = covariance(measured.cases, measured.cases, spreads).astype(np.float64)
    whole[np.diag_indices(len(measured.seconds))] += noise_of(measured.cases, spreads)
    left = np.log(measured.seconds) - linear(measured.cases, spreads).reference
    solved = np.asarray(np.linalg.solve(whole, left), np.float64)
    return Evidence(measured=measured, spreads=spreads, solved=solved)
