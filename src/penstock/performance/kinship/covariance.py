"""How alike are two runs? The covariance of the logarithms of their times, as a sum of reasons to be alike.

A reason has a spread: how far, as a standard deviation, it may move the logarithm of a time. Runs share slowdowns of
columns of their work, alone and in groups, at five levels of kinship; they share labels; they share a label at a near
load; and they share software at a near date.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.performance.kinship.cases import LABELS, Cases
from penstock.performance.step.work import PARTS, Array

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
"""Slowdowns of the physical columns, and seconds per launch and message, that any stack starts from."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in PARTS},
    "launches": (
        *("layers", "mixtures", "extra_kernels", "matrices", "quantised"),
        *("messages", "exchanges", "step", "prompt_layers"),
    ),
    "memory": ("weights", "experts", "cache"),
    "arithmetic": ("compute", "prefill"),
}
"""Columns whose slowdowns move together: a chip's launches, its memory, its arithmetic."""
LEVELS: Final = {"all": None, "vendor": "vendor", "part": "part", "stack": "stack", "engine": "engine"}
"""Whose slowdowns: the label that two runs must share."""
LOADED: Final = ("stack", "family", "mixers stack", "family stack", "setup")
SLOW: Final = ("stack", "family stack")
QUICK: Final = ("stack", "setup")
TREND: Final = ("vendor", "stack", "family stack")
_USERS, _LENGTHS = 2.0, 2.5
"""Doublings of the load and of a length after which two runs are alike by 0.6."""
_SLOW_MONTHS, _QUICK_MONTHS = 10.0, 0.7
_CENTRE_MONTH: Final = date(2026, 1, 1).toordinal() / 30.4
_UNDATED: Final = 0.5
"""How alike in software a run is to one whose date nobody knows."""
_MEMBER: Final = np.array([[name in columns for columns in GROUPS.values()] for name in PARTS], np.float64)

Single = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Spreads:
    """Standard deviations of each reason by name, and where the slowdowns of everybody lie."""

    of: Mapping[str, float]
    shift: Array
    """Logarithm of the common slowdowns over the reference, a number per part."""

    @property
    def common(self) -> Array:
        """The slowdowns of everybody."""
        return np.array([REFERENCE[name] for name in PARTS]) * np.exp(self.shift)

    @property
    def noise(self) -> float:
        """Of one run repeated."""
        return self.of["noise"]

    def to_document(self) -> dict[str, Any]:
        """Write plain values, to three digits."""
        return {
            "of": {name: float(f"{value:.3g}") for name, value in self.of.items()},
            "shift": {name: float(f"{value:.3g}") for name, value in zip(PARTS, self.shift.tolist(), strict=True)},
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> "Spreads":
        """Read what `to_document` wrote."""
        return Spreads(of=document["of"], shift=np.array([document["shift"][name] for name in PARTS]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """Times as the common slowdowns have them, and what moving one of those would do."""

    reference: Array
    """Logarithm of the time, less what the shift is worth."""
    shares: Array
    """Share of each part in the time: by how much its logarithm moves with that of a slowdown."""

    @property
    def grouped(self) -> Array:
        """The same for each group of parts."""
        return np.asarray(self.shares @ _MEMBER)


def linear(cases: Cases, spreads: Spreads) -> Linear:
    """Expand the logarithm of the time around the common slowdowns."""
    parts = cases.light * spreads.common
    seconds = parts.sum(axis=1)
    shares = parts / seconds[:, None]
    return Linear(reference=np.log(seconds) - shares @ spreads.shift, shares=shares)


def alike(one: Cases, other: Cases) -> Iterator[tuple[str, Single]]:
    """Yield each reason that is not a slowdown: a matrix of how far it holds between runs of both, from 0 to 1."""
    for name in LABELS:
        yield name, _same(one, other, name)
    users, inputs, outputs = (_near(a, b, w) for a, b, w in zip(one.log_load, other.log_load, _WIDTHS, strict=True))
    lengths = users * inputs * outputs
    for name in LOADED:
        yield f"{name} by load", _same(one, other, name) * (users if name == "stack" else lengths)
    for name in SLOW:
        yield f"{name} in a year", _same(one, other, name) * _since(one, other, _SLOW_MONTHS)
    for name in QUICK:
        yield f"{name} in a month", _same(one, other, name) * _since(one, other, _QUICK_MONTHS)
    trend = np.outer(_years(one), _years(other)).astype(np.float32)
    yield "trend", trend
    for name in TREND:
        yield f"{name} trend", _same(one, other, name) * trend


_WIDTHS: Final = (_USERS, _LENGTHS, _LENGTHS)
BY_DATE: Final = frozenset(
    {
        *(f"{name} in a year" for name in SLOW),
        *(f"{name} in a month" for name in QUICK),
        *("trend", *(f"{name} trend" for name in TREND)),
    }
)
"""The reasons that are software."""


def shared_level(one: Cases, other: Cases, level: str) -> Single:
    """Whether slowdowns of a level are shared."""
    label = LEVELS[level]
    return np.ones((len(one), len(other)), np.float32) if label is None else _same(one, other, label)


def covariance(one: Cases, other: Cases, spreads: Spreads, *, only: frozenset[str] | None = None) -> Single:
    """Sum the reasons between runs of both; noise, which a run shares with nothing, is not among them."""
    whole = np.zeros((len(one), len(other)), np.float32)
    for name, matrix in alike(one, other):
        if only is None or name in only:
            whole += np.float32(spreads.of.get(name, 0.0) ** 2) * matrix
    if only is None:
        first, second = linear(one, spreads).grouped, linear(other, spreads).grouped
        for level in LEVELS:
            squares = np.array([spreads.of.get(f"{group} of {level}", 0.0) ** 2 for group in GROUPS])
            products = (first * squares).astype(np.float32) @ second.T.astype(np.float32)
            whole += products if LEVELS[level] is None else products * shared_level(one, other, level)
    return whole


def noise_of(cases: Cases, spreads: Spreads) -> Array:
    """Variance of each run alone."""
    return np.asarray(spreads.noise**2 + spreads.of["undated"] ** 2 * cases.undated)


def _same(one: Cases, other: Cases, label: str) -> Single:
    return np.equal.outer(one.labels[label], other.labels[label]).astype(np.float32)


def _near(one: Array, other: Array, width: float) -> Single:
    apart = np.subtract.outer(one.astype(np.float32), other.astype(np.float32)) / np.float32(width)
    return np.asarray(np.exp(np.float32(-0.5) * apart**2))


def _years(cases: Cases) -> Array:
    """Years since a fixed day, near which the software of a row without a day is thought to be."""
    return np.where(cases.undated, 0.0, (cases.months - _CENTRE_MONTH) / 12)


def _since(one: Cases, other: Cases, months: float) -> Single:
    apart = np.abs(np.subtract.outer(one.months, other.months)).astype(np.float32)
    either, both = np.logical_or.outer(one.undated, other.undated), np.logical_and.outer(one.undated, other.undated)
    near = np.exp(-apart / np.float32(months))
    return np.asarray(np.where(both, np.float32(1.0), np.where(either, np.float32(_UNDATED), near)), np.float32)
