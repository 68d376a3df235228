"""Fits the part of the time to first token that the engine's steps do not explain, with shrinkage across setups.

The terms are fitted by a bounded ridge regression on logarithms, because the noise in times to first token is
multiplicative. The fit has four levels: all accelerators, the same architecture, the same accelerator, and the same
accelerator and engine. Each level is shrunk towards the next more general level. In addition, each software release,
model and exact configuration has a factor. A factor with few measurements is shrunk towards one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, TypeVar

import numpy as np

from penstock.performance.step.step_work import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class FitTerms:
    """Lower bounds and priors of the fitted terms. Each array has one entry per fitted term."""

    lower_bounds: Array
    prior: Array
    floor: Array
    """Minimum standard deviation of each term at every level."""


_FREEDOM: Final = (2.0, 0.4, 0.3, 0.2)
"""Standard deviation of the terms at each level, as a fraction of the terms at the level above."""
_PULL: Final = 0.3
_ROUNDS: Final = 4
_SEEN_HALF: Final = {"family": 6.0, "software": 3.0, "configuration": 2.0}
"""Number of rows at which a factor is shrunk halfway towards one."""
_HUBER: Final = 1.5
_MAX_RESIDUAL: Final = 0.4
"""Largest logarithm of measured over fitted time that counts towards a factor. Larger ones count as this value, because
they show a different benchmark rather than a slower engine."""


@dataclass(frozen=True, slots=True, order=True)
class Software:
    """Software of a run: the scenario, the release, and the day, which distinguishes builds of one release."""

    scenario: str
    version: str
    date: date

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scenario, self.version, str(self.date))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement as input to the fit: one value per fitted term, and the measured time in seconds."""

    roofline: Array
    seconds: float
    path: tuple[str, ...]
    """Labels of the row's levels, from the most general to the most specific one: (architecture, accelerator,
    engine)."""
    family: str
    software: Software
    configuration: str


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Logarithms of the factors for model family, software and configuration.

    The logarithm of a missing factor is zero.
    """

    family: Mapping[str, float] = field(default_factory=dict)
    software: Mapping[Software, float] = field(default_factory=dict)
    configuration: Mapping[str, float] = field(default_factory=dict)

    def times(self, family: str, software: Software | None, configuration: str) -> float:
        """Return the product of the factors for a model family, a software and a configuration."""
        logs = [self.family.get(family, 0.0), self.configuration.get(configuration, 0.0)]
        logs += [self.software.get(software, 0.0)] if software is not None else []
        return float(np.exp(sum(logs)))

    def of(self, row: Row) -> float:
        """Return the product of the factors that apply to a row."""
        return self.times(row.family, row.software, row.configuration)


@dataclass(frozen=True, kw_only=True)
class FittedLevel:
    """Fitted terms and factors of one level."""

    slowdowns: Array
    rows: int
    factors: Factors = Factors()


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """All fitted levels. The key of a level is its path, from the most general label to the most specific one."""

    by_path: dict[tuple[str, ...], FittedLevel]

    def nearest(self, path: Sequence[str]) -> tuple[tuple[str, ...], FittedLevel]:
        """Return the most specific fitted level whose path is a prefix of `path`, together with that prefix."""
        for length in range(len(path), -1, -1):
            found = tuple(path[:length])
            if found in self.by_path:
                return found, self.by_path[found]
        raise LookupError("the calibration is empty; fit it to at least one measured time to first token")

    def slowdowns(self, row: Row) -> Array:
        """Return the terms of the most specific fitted level that contains a row, multiplied by the row's factors."""
        _, fitted = self.nearest(row.path)
        return fitted.slowdowns * fitted.factors.of(row)

    def seconds(self, row: Row) -> float:
        """Predict the time to first token of one row, in seconds."""
        return float(row.roofline @ self.slowdowns(row))


def calibrate(rows: Iterable[Row], terms: FitTerms) -> Calibration:
    """Fit all levels, from the most general to the most specific one."""
    everything = list(rows)
    by_path: dict[tuple[str, ...], FittedLevel] = {}
    for length in range(max((len(row.path) for row in everything), default=0) + 1):
        members: dict[tuple[str, ...], list[Row]] = {}
        for row in everything:
            members.setdefault(row.path[:length], []).append(row)
        for path, held in members.items():
            wider = Calibration(by_path=by_path).nearest(path[:-1])[1].slowdowns if by_path else terms.prior
            if len(held) >= _MIN_ROWS or not by_path:
                by_path[path] = _fit(held, wider, _FREEDOM[min(length, len(_FREEDOM) - 1)], terms)
    return Calibration(by_path=by_path)


_MIN_ROWS: Final = 4


def _fit(rows: list[Row], prior: Array, freedom: float, terms: FitTerms) -> FittedLevel:
    roofline, seconds = np.array([row.roofline for row in rows]), np.array([row.seconds for row in rows])
    spread = np.maximum(np.abs(prior) * freedom, terms.floor)
    families, family = _codes([row.family for row in rows])
    softwares, software = _codes([row.software for row in rows])
    configurations, configuration = _codes([row.configuration for row in rows])
    kinds = {"family": family, "software": software, "configuration": configuration}
    effects = {kind: np.zeros(codes.max() + 1) for kind, codes in kinds.items()}
    slowdowns = prior
    for _ in range(_ROUNDS):
        scaled = seconds / np.exp(sum(effects[kind][codes] for kind, codes in kinds.items()))
        slowdowns = _on_logarithms(roofline, scaled, prior, spread, terms.lower_bounds)
        residual = np.log(seconds / (roofline @ slowdowns))
        for _ in range(3):
            for kind, codes in kinds.items():
                others = sum(effects[other][kinds[other]] for other in kinds if other != kind)
                effects[kind] = _shrunk_means(codes, residual - others, _SEEN_HALF[kind])
    return FittedLevel(
        slowdowns=slowdowns,
        rows=len(rows),
        factors=Factors(
            family=dict(zip(families, effects["family"].tolist(), strict=True)),
            software=dict(zip(softwares, effects["software"].tolist(), strict=True)),
            configuration=dict(zip(configurations, effects["configuration"].tolist(), strict=True)),
        ),
    )


Codes = np.ndarray[tuple[int], np.dtype[np.intp]]
_Label = TypeVar("_Label", str, Software)


def _codes(labels: list[_Label]) -> tuple[list[_Label], Codes]:
    names = sorted(set(labels))
    index = {name: code for code, name in enumerate(names)}
    return names, np.array([index[label] for label in labels], dtype=np.intp)


def _shrunk_means(codes: Codes, values: Array, half: float) -> Array:
    limited = np.clip(values, -_MAX_RESIDUAL, _MAX_RESIDUAL)
    return np.asarray(np.bincount(codes, weights=limited) / (np.bincount(codes) + half))


def _on_logarithms(roofline: Array, seconds: Array, prior: Array, spread: Array, lower_bounds: Array) -> Array:
    """Fit the terms by Gauss-Newton on the logarithm of measured over fitted time.

    The fit uses Huber weights and shrinks the terms towards the level above.
    """
    slowdowns = np.maximum(prior, lower_bounds)
    for _ in range(8):
        fitted = roofline @ slowdowns
        off = np.log(seconds / fitted)
        weight = _weights(np.abs(off))
        # d log(roofline @ s) / ds = roofline / fitted. Its product with s is one, hence the one in the target.
        slowdowns = _bounded_ridge(
            roofline / fitted[:, None] * weight[:, None], (1 + off) * weight, prior, spread, lower_bounds
        )
    return slowdowns


def _weights(off: Array) -> Array:
    """Return the square root of each row's Huber weight.

    The weight is one for deviations up to `_HUBER` times the scale. For larger deviations the weight is inversely
    proportional to the deviation, which limits the influence of outliers.
    """
    scale = max(1.4826 * float(np.median(off)), 0.02)
    return np.asarray(np.sqrt(np.minimum(1.0, _HUBER * scale / np.maximum(off, 1e-9))))


def _bounded_ridge(design: Array, target: Array, prior: Array, spread: Array, lower_bounds: Array) -> Array:
    """Solve a least-squares problem with shrinkage and lower bounds, by coordinate descent on the normal equations."""
    pull = (_PULL / spread) ** 2
    gram = design.T @ design + np.diag(pull)
    aim = design.T @ target + pull * prior
    solution: Array = np.maximum(prior, lower_bounds)
    for _ in range(300):
        before = solution.copy()
        for index in range(len(prior)):
            free = solution[index] + (aim[index] - gram[index] @ solution) / gram[index, index]
            solution[index] = max(lower_bounds[index], free)
        if np.max(np.abs(solution - before) / (np.abs(before) + 1e-12)) < 1e-6:
            break
    return solution
