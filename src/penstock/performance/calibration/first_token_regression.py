"""What do first tokens take beyond their steps? Terms fitted to measurements, with what they borrow from kin.

The terms of kin are a bounded ridge regression on logarithms, since first tokens scatter by factors, pulled towards
those of wider kin: every accelerator, then the same architecture, then the same accelerator, then the same accelerator
and engine. What differs by software release, by model and by exact configuration is a factor each, shrunk towards one
by how little was seen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, TypeVar

import numpy as np

from penstock.performance.step.step_work import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class FitTerms:
    """What is fitted, a number for each column of the work."""

    least: Array
    prior: Array
    floor: Array
    """How far each may move whatever its kin say."""


_FREEDOM: Final = (2.0, 0.4, 0.3, 0.2)
"""How far, relative to its kin, each level may move."""
_PULL: Final = 0.3
_ROUNDS: Final = 4
_SEEN_HALF: Final = {"family": 2.0, "software": 1.0, "configuration": 1.0}
"""Rows that move a factor half of the way to what they show."""
_HUBER: Final = 1.5


@dataclass(frozen=True, slots=True, order=True)
class Software:
    """What ran: the kind of run, the release, and the day, which tells apart builds of one release."""

    scenario: str
    version: str
    date: date

    def __str__(self) -> str:
        return f"{self.scenario} {self.version} {self.date}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement as calibration sees it: the work of its average step, and how long it took."""

    light: Array
    seconds: float
    kin: tuple[str, ...]
    """From the widest kin to the narrowest: (architecture, accelerator, engine)."""
    family: str
    software: Software
    configuration: str


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Logarithms of what differs by model family, by software and by configuration; what was not seen is zero."""

    family: Mapping[str, float] = field(default_factory=dict)
    software: Mapping[Software, float] = field(default_factory=dict)
    configuration: Mapping[str, float] = field(default_factory=dict)

    def times(self, family: str, software: Software | None, configuration: str) -> float:
        """Return how many times longer it takes than without any of them."""
        logs = [self.family.get(family, 0.0), self.configuration.get(configuration, 0.0)]
        logs += [self.software.get(software, 0.0)] if software is not None else []
        return float(np.exp(sum(logs)))

    def of(self, row: Row) -> float:
        """Return the same for a row."""
        return self.times(row.family, row.software, row.configuration)


@dataclass(frozen=True, kw_only=True)
class FittedKin:
    """What was fitted for one level of kinship."""

    slowdowns: Array
    rows: int
    factors: Factors = Factors()


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Everything fitted, by the path of its kin from the widest to the narrowest."""

    by_kin: dict[tuple[str, ...], FittedKin]

    def nearest(self, path: Sequence[str]) -> tuple[tuple[str, ...], FittedKin]:
        """Return the narrowest kin that were fitted on the way to `path`."""
        for length in range(len(path), -1, -1):
            found = tuple(path[:length])
            if found in self.by_kin:
                return found, self.by_kin[found]
        raise LookupError("nothing was calibrated")

    def slowdowns(self, row: Row) -> Array:
        """Return the slowdowns of a row's kin with all of the row's factors."""
        _, fitted = self.nearest(row.kin)
        return fitted.slowdowns * fitted.factors.of(row)

    def seconds(self, row: Row) -> float:
        """Predict one row."""
        return float(row.light @ self.slowdowns(row))


def calibrate(rows: Iterable[Row], terms: FitTerms) -> Calibration:
    """Fit all kin, from the widest to the narrowest."""
    everything = list(rows)
    by_kin: dict[tuple[str, ...], FittedKin] = {}
    for length in range(max((len(row.kin) for row in everything), default=0) + 1):
        members: dict[tuple[str, ...], list[Row]] = {}
        for row in everything:
            members.setdefault(row.kin[:length], []).append(row)
        for path, held in members.items():
            wider = Calibration(by_kin=by_kin).nearest(path[:-1])[1].slowdowns if by_kin else terms.prior
            if len(held) >= _MIN_ROWS or not by_kin:
                by_kin[path] = _fit(held, wider, _FREEDOM[min(length, len(_FREEDOM) - 1)], terms)
    return Calibration(by_kin=by_kin)


_MIN_ROWS: Final = 4


def _fit(rows: list[Row], kin: Array, freedom: float, terms: FitTerms) -> FittedKin:
    light, seconds = np.array([row.light for row in rows]), np.array([row.seconds for row in rows])
    spread = np.maximum(np.abs(kin) * freedom, terms.floor)
    families, family = _codes([row.family for row in rows])
    softwares, software = _codes([row.software for row in rows])
    configurations, configuration = _codes([row.configuration for row in rows])
    kinds = {"family": family, "software": software, "configuration": configuration}
    effects = {kind: np.zeros(codes.max() + 1) for kind, codes in kinds.items()}
    slowdowns = kin
    for _ in range(_ROUNDS):
        scaled = seconds / np.exp(sum(effects[kind][codes] for kind, codes in kinds.items()))
        slowdowns = _on_logarithms(light, scaled, kin, spread, terms.least)
        residual = np.log(seconds / (light @ slowdowns))
        for _ in range(3):
            for kind, codes in kinds.items():
                others = sum(effects[other][kinds[other]] for other in kinds if other != kind)
                effects[kind] = _shrunk_means(codes, residual - others, _SEEN_HALF[kind])
    return FittedKin(
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
    return np.asarray(np.bincount(codes, weights=values) / (np.bincount(codes) + half))


def _on_logarithms(light: Array, seconds: Array, kin: Array, spread: Array, least: Array) -> Array:
    """Gauss-Newton on the logarithm of measured over fitted, with the same weights and the same pull."""
    slowdowns = np.maximum(kin, least)
    for _ in range(8):
        fitted = light @ slowdowns
        off = np.log(seconds / fitted)
        weight = _weights(np.abs(off))
        # d log(light @ s) / ds = light / fitted, and s itself moves it by exactly one.
        slowdowns = _bounded_ridge(light / fitted[:, None] * weight[:, None], (1 + off) * weight, kin, spread, least)
    return slowdowns


def _weights(off: Array) -> Array:
    """Huber's: one up to a multiple of the scale, then falling so that every row pulls alike."""
    scale = max(1.4826 * float(np.median(off)), 0.02)
    return np.asarray(np.sqrt(np.minimum(1.0, _HUBER * scale / np.maximum(off, 1e-9))))


def _bounded_ridge(design: Array, target: Array, kin: Array, spread: Array, least: Array) -> Array:
    """Least squares with a pull to the kin and lower bounds, by coordinate descent on the normal equations."""
    pull = (_PULL / spread) ** 2
    gram = design.T @ design + np.diag(pull)
    aim = design.T @ target + pull * kin
    solution: Array = np.maximum(kin, least)
    for _ in range(300):
        before = solution.copy()
        for part in range(len(kin)):
            free = solution[part] + (aim[part] - gram[part] @ solution) / gram[part, part]
            solution[part] = max(least[part], free)
        if np.max(np.abs(solution - before) / (np.abs(before) + 1e-12)) < 1e-6:  # noqa: PLR2004 - converged
            break
    return solution
