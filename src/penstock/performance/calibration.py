"""How far from the speed of light is each stack? Slowdowns fitted to measurements, with what they borrow from kin.

A pool's slowdowns are a bounded ridge regression on relative errors, pulled towards those of its nearest kin: every
accelerator, then the same architecture, then the same accelerator, then the same accelerator and engine. What differs
by software release, by model and by exact configuration is a factor each, shrunk towards one by how little was seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.performance.work import PHYSICAL, Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """What is fitted, a number for each column of the work."""

    least: Array
    prior: Array
    floor: Array
    """How far each may move whatever its kin say."""
    logarithmic: bool = False
    """Fit logarithms instead of relative errors: for times that scatter by factors, whose relative errors pull low."""


LEAST: Final = np.array([1.0] * 5 + [0.5] + [0.0] * 5)
"""No part is faster than light; a collective may be, where a switch reduces in the network."""
PRIOR: Final = np.array([1.4, 1.6, 1.6, 2.0, 2.0, 1.5, 20e-6, 20e-6, 20e-6, 5e-6, 1e-3])
"""Slowdowns of the six physical parts, then seconds per layer, mixture, state layer, message and step."""
STEP: Final = Terms(
    least=LEAST, prior=PRIOR, floor=np.array([0.2, 0.2, 0.2, 0.2, 0.2, 0.3, 5e-6, 5e-6, 5e-6, 3e-6, 0.3e-3])
)
_FREEDOM: Final = (2.0, 0.4, 0.3, 0.2)
"""How far, relative to its kin, each level may move."""
_PULL: Final = 0.3
_ROUNDS: Final = 4
_SEEN_HALF: Final = {"family": 2.0, "software": 1.0, "configuration": 1.0}
"""Rows that move a factor half of the way to what they show."""
_HUBER: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement as calibration sees it: the work of its average step, and how long it took."""

    light: Array
    seconds: float
    pool: tuple[str, ...]
    """From the widest kin to the narrowest: (architecture, accelerator, engine)."""
    family: str
    software: str
    configuration: str


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What was fitted for one level of kinship."""

    slowdowns: Array
    rows: int
    factors: dict[str, dict[str, float]] = field(default_factory=dict)
    """Logarithms, by kind (family, software, configuration) and key."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Every pool, by its path from the widest to the narrowest."""

    pools: dict[tuple[str, ...], Pool]

    def nearest(self, path: Sequence[str]) -> tuple[tuple[str, ...], Pool]:
        """Return the narrowest pool that was fitted on the way to `path`."""
        for length in range(len(path), -1, -1):
            found = tuple(path[:length])
            if found in self.pools:
                return found, self.pools[found]
        raise LookupError("nothing was calibrated")

    def seconds(self, row: Row) -> float:
        """Predict one row."""
        _, pool = self.nearest(row.pool)
        return float(row.light @ pool.slowdowns) * float(np.exp(factor(pool, row)))


def factor(pool: Pool, row: Row) -> float:
    """Sum of the logarithmic factors that apply; an unseen key is zero."""
    keys = {"family": row.family, "software": row.software, "configuration": row.configuration}
    return sum(pool.factors.get(kind, {}).get(key, 0.0) for kind, key in keys.items())


def calibrate(rows: Iterable[Row], terms: Terms = STEP) -> Calibration:
    """Fit every pool, from the widest kin to the narrowest."""
    everything = list(rows)
    pools: dict[tuple[str, ...], Pool] = {}
    for length in range(max((len(row.pool) for row in everything), default=0) + 1):
        members: dict[tuple[str, ...], list[Row]] = {}
        for row in everything:
            members.setdefault(row.pool[:length], []).append(row)
        for path, held in members.items():
            kin = Calibration(pools=pools).nearest(path[:-1])[1].slowdowns if pools else terms.prior
            if len(held) >= _LEAST_ROWS or not pools:
                pools[path] = _fit_pool(held, kin, _FREEDOM[min(length, len(_FREEDOM) - 1)], terms)
    return Calibration(pools=pools)


_LEAST_ROWS: Final = 4


def _fit_pool(rows: list[Row], kin: Array, freedom: float, terms: Terms) -> Pool:
    light, seconds = np.array([row.light for row in rows]), np.array([row.seconds for row in rows])
    spread = np.maximum(np.abs(kin) * freedom, terms.floor)
    regress = _on_logarithms if terms.logarithmic else _on_relative_errors
    kinds = {
        "family": _codes([row.family for row in rows]),
        "software": _codes([row.software for row in rows]),
        "configuration": _codes([row.configuration for row in rows]),
    }
    effects = {kind: np.zeros(len(names)) for kind, (_, names) in kinds.items()}
    slowdowns = kin
    for _ in range(_ROUNDS):
        scaled = seconds / np.exp(sum(effects[kind][codes] for kind, (codes, _) in kinds.items()))
        slowdowns = regress(light, scaled, kin, spread, terms.least)
        residual = np.log(seconds / (light @ slowdowns))
        for _ in range(3):
            for kind, (codes, names) in kinds.items():
                others = sum(effects[other][kinds[other][0]] for other in kinds if other != kind)
                effects[kind] = _shrunk_means(codes, residual - others, len(names), _SEEN_HALF[kind])
    factors = {
        kind: {name: float(value) for name, value in zip(names, effects[kind], strict=True)}
        for kind, (_, names) in kinds.items()
    }
    return Pool(slowdowns=slowdowns, rows=len(rows), factors=factors)


def _codes(labels: list[str]) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], list[str]]:
    names = sorted(set(labels))
    index = {name: code for code, name in enumerate(names)}
    return np.array([index[label] for label in labels], dtype=np.intp), names


def _shrunk_means(codes: np.ndarray[tuple[int], np.dtype[np.intp]], values: Array, count: int, half: float) -> Array:
    seen = np.bincount(codes, minlength=count)
    return np.asarray(np.bincount(codes, weights=values, minlength=count) / (seen + half))


def _on_relative_errors(light: Array, seconds: Array, kin: Array, spread: Array, least: Array) -> Array:
    """Iteratively reweighted least squares on relative errors: far-off rows pull like near ones."""
    relative = light / seconds[:, None]
    weight = np.ones(len(seconds))
    slowdowns = kin
    for _ in range(3):
        slowdowns = _bounded_ridge(relative * weight[:, None], weight, kin, spread, least)
        weight = _weights(np.abs(relative @ slowdowns - 1))
    return slowdowns


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


__all__ = ["LEAST", "PHYSICAL", "STEP", "Calibration", "Pool", "Row", "Terms", "calibrate", "factor"]
