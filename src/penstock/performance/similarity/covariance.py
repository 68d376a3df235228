"""Computes the covariance between the log times of two runs as a sum over reasons why the runs are similar.

Each reason for similarity adds an effect to the log time of a run. The spread of a reason for similarity is the
standard deviation of its effect. Some reasons are shared slowdowns of work components, alone and in groups, at five
levels of similarity. Other reasons are equal labels, at any load or at a similar load. The last reasons are effects of
software: similar dates, similar dates and loads, and trends over time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.performance.similarity.cases import LABELS, Cases
from penstock.performance.step.step_work import COMPONENTS, Array

REFERENCE: Final[Mapping[str, float]] = {
    "weights": 1.15,
    "experts": 1.1,
    "cache": 1.1,
    "compute": 1.5,
    "prefill": 1.6,
    "collectives": 2.0,
    "exchange": 4.0,
    "widening": 0.5,
    "layers": 8e-6,
    "mixtures": 15e-6,
    "extra_kernels": 4e-6,
    "matrices": 3e-6,
    "quantised": 2e-6,
    "messages": 8e-6,
    "exchanges": 10e-6,
    "step": 4e-4,
    "prompt_layers": 4e-5,
}
"""Prior coefficients of every stack: slowdowns for the physical components and for widening, and seconds per count for
all other components."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in COMPONENTS},
    "launches": (
        *("layers", "mixtures", "extra_kernels", "matrices", "quantised"),
        *("messages", "exchanges", "step", "prompt_layers"),
    ),
    "memory": ("weights", "experts", "cache"),
    "arithmetic": ("compute", "prefill"),
}
"""Groups of work components whose slowdowns vary together. Each component is also a group of its own. The larger groups
are launches, memory and arithmetic."""
LEVELS: Final = {"all": None, "vendor": "vendor", "part": "part", "stack": "stack", "engine": "engine"}
"""Levels at which slowdowns are shared, each with the label that two runs must have in common. None if no label is
required."""
_USERS, _LENGTHS = 2.0, 2.5
"""Number of doublings of users (first value) or of a token length (second value) at which the similarity of two runs
falls to 0.6."""
_SLOW_MONTHS, _QUICK_MONTHS = 10.0, 0.7
_CENTRE_MONTH: Final = date(2026, 1, 1).toordinal() / 30.4
_HALF_A_PERIOD: Final = 5.0
"""Half of the ten-month period, in months, over which rows without a known day are medians."""
_NEVER: Final = 1e4
_MEMBER: Final = np.array([[name in columns for columns in GROUPS.values()] for name in COMPONENTS], np.float64)

Single = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Spreads:
    """Spread of each reason for similarity, keyed by the reason's name, and the slowdowns common to all runs."""

    of: Mapping[str, float]
    shift: Array
    """Logarithm of the ratio of the common slowdowns to `REFERENCE`, one entry per component."""

    @property
    def common(self) -> Array:
        """Return the slowdowns common to all runs."""
        return np.array([REFERENCE[name] for name in COMPONENTS]) * np.exp(self.shift)

    @property
    def noise(self) -> float:
        """Return the standard deviation of the log times of repetitions of one run."""
        return self.of["noise"]

    def of_level(self, level: str) -> Array:
        """Return the variance of the slowdown of each group of components at a level of similarity."""
        return np.array([self.of[f"{group} of {level}"] ** 2 for group in GROUPS])

    def to_document(self) -> dict[str, Any]:
        """Return the spreads as plain values, rounded to three significant digits."""
        return {
            "of": {name: float(f"{value:.3g}") for name, value in self.of.items()},
            "shift": {name: float(f"{value:.3g}") for name, value in zip(COMPONENTS, self.shift.tolist(), strict=True)},
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> "Spreads":
        """Parse the document that `to_document` returns."""
        return Spreads(of=document["of"], shift=np.array([document["shift"][name] for name in COMPONENTS]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """Times of runs under the common slowdowns, and the sensitivity of these times to each slowdown."""

    reference: Array
    """Logarithm of the time, minus the first-order contribution of `Spreads.shift`."""
    shares: Array
    """Share of each component in the time of a run. The share is the derivative of the log time with respect to the log
    slowdown of the component."""

    @property
    def grouped(self) -> Array:
        """Return the shares summed per group of components."""
        return np.asarray(self.shares @ _MEMBER)


def linear(cases: Cases, spreads: Spreads) -> Linear:
    """Linearise the logarithms of the runs' times around the common slowdowns."""
    parts = cases.roofline * spreads.common
    seconds = parts.sum(axis=1)
    shares = parts / seconds[:, None]
    return Linear(reference=np.log(seconds) - shares @ spreads.shift, shares=shares)


def similar_users(one: Cases, other: Cases) -> Single:
    """Return the similarity of runs by their number of users, 0 to 1."""
    return _near(one.log_load[0], other.log_load[0], _USERS)


def similar_load(one: Cases, other: Cases) -> Single:
    """Return the similarity of runs by users and token lengths, 0 to 1."""
    users, inputs, outputs = zip(one.log_load, other.log_load, strict=True)
    return _near(*users, _USERS) * _near(*inputs, _LENGTHS) * _near(*outputs, _LENGTHS)


def _in_a_year(one: Cases, other: Cases) -> Single:
    """Return the similarity of runs by date, with a scale of ten months.

    A median over months is dated to the middle of its period.
    """
    first, second = (np.where(each.undated, each.months - _HALF_A_PERIOD, each.months) for each in (one, other))
    return _since(first, second, _SLOW_MONTHS)


def in_a_month(one: Cases, other: Cases) -> Single:
    """Return the similarity of runs by date, with a scale of less than a month.

    A median over months belongs to no single month. So medians are similar only to medians that were published at about
    the same time.
    """
    first, second = (np.where(each.undated, each.months + _NEVER, each.months) for each in (one, other))
    return _since(first, second, _QUICK_MONTHS)


def _load_in_a_month(one: Cases, other: Cases) -> Single:
    """Return the similarity of runs by load and date, with a scale of less than a month for the date.

    A release with fewer kernel launches gains most at small loads. A release that does less work per token gains most
    at large loads.
    """
    return similar_load(one, other) * in_a_month(one, other)


def _trend(one: Cases, other: Cases) -> Single:
    return np.outer(_years(one), _years(other)).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Reason why two runs can be similar, in addition to shared slowdowns."""

    name: str
    label: str | None
    """Label that both runs must share. None if no label is required."""
    near: Callable[[Cases, Cases], Single] | None = None
    """Similarity, 0 to 1, between two runs that share the label. None means 1."""


BY_DATE: Final = (
    *(Reason(name=f"{label} in a year", label=label, near=_in_a_year) for label in ("stack", "family stack")),
    *(Reason(name=f"{label} in a month", label=label, near=in_a_month) for label in ("stack", "setup")),
    Reason(name="setup by load in a month", label="setup", near=_load_in_a_month),
    Reason(name="trend", label=None, near=_trend),
    *(Reason(name=f"{label} trend", label=label, near=_trend) for label in ("vendor", "stack", "family stack")),
)
"""Reasons for similarity that describe effects of software and depend on the dates of the runs."""
REASONS: Final = (
    *(Reason(name=label, label=label) for label in LABELS),
    Reason(name="stack by load", label="stack", near=similar_users),
    *(
        Reason(name=f"{label} by load", label=label, near=similar_load)
        for label in ("family", "mixers stack", "family stack", "setup")
    ),
    *BY_DATE,
)


def alike(one: Cases, other: Cases, reasons: Sequence[Reason] = REASONS) -> Iterator[tuple[str, Single]]:
    """Yield each reason for similarity by name, with the matrix of similarities between runs of `one` and `other`."""
    near: dict[Callable[[Cases, Cases], Single], Single] = {}
    for reason in reasons:
        if reason.near is not None and reason.near not in near:
            near[reason.near] = reason.near(one, other)
        shared = same(one, other, reason.label)
        yield reason.name, shared if reason.near is None else shared * near[reason.near]


def covariance(one: Cases, other: Cases, spreads: Spreads) -> Single:
    """Return the covariance between the log times of the runs in `one` and of the runs in `other`.

    Noise is not included, because no two runs share it.
    """
    whole = np.zeros((len(one), len(other)), np.float32)
    for name, matrix in alike(one, other):
        whole += np.float32(spreads.of[name] ** 2) * matrix
    first, second = linear(one, spreads).grouped, linear(other, spreads).grouped
    for level, label in LEVELS.items():
        products = (first * spreads.of_level(level)).astype(np.float32) @ second.T.astype(np.float32)
        whole += products if label is None else products * same(one, other, label)
    return whole


def noise_of(cases: Cases, spreads: Spreads) -> Array:
    """Return the part of each run's variance that the run shares with no other run."""
    return np.asarray(spreads.noise**2 + spreads.of["undated"] ** 2 * cases.undated + cases.source_noise**2)


def same(one: Cases, other: Cases, label: str | None) -> Single:
    """Return 1 where two runs share a label, else 0. If the label is None, all runs share it."""
    if label is None:
        return np.ones((len(one), len(other)), np.float32)
    return np.equal.outer(one.labels[label], other.labels[label]).astype(np.float32)


def _near(one: Array, other: Array, width: float) -> Single:
    distance = np.subtract.outer(one.astype(np.float32), other.astype(np.float32)) / np.float32(width)
    return np.asarray(np.exp(np.float32(-0.5) * distance**2))


def _years(cases: Cases) -> Array:
    """Return the years from a fixed day to the date of each run.

    The software of an undated run is assumed to be from the fixed day.
    """
    return np.where(cases.undated, 0.0, (cases.months - _CENTRE_MONTH) / 12)


def _since(one: Array, other: Array, months: float) -> Single:
    distance = np.abs(np.subtract.outer(one, other)).astype(np.float32)
    return np.asarray(np.exp(-distance / np.float32(months)))
