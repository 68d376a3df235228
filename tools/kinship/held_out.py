"""How wrong would it be? Every row predicted without its lengths, its curve, its model, or anything of its month on."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kinship.cases import Cases, Codes
from penstock.catalog import load_accelerator
from penstock.performance.step.work import Array

_P90_Z = 1.2815515655446004
_GAP = 1.15
_LEAST_TRAINING, _LEAST_MONTH = 200, 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predicted:
    """Logarithms of predicted over measured, and the spread each prediction states."""

    off: Array
    spread: Array

    def line(self, name: str, kept: npt.NDArray[np.bool_]) -> str:
        """Median, P90 and bias in percent, and the share inside P10 to P90."""
        errors, inside = np.expm1(self.off[kept]), np.abs(self.off[kept]) < _P90_Z * self.spread[kept]
        sizes = np.abs(errors)
        return (
            f"{name:12} {kept.sum():6,} rows  median {np.median(sizes):6.1%}  p90 {np.quantile(sizes, 0.9):6.1%}  "
            f"bias {np.median(errors):+6.1%}  covered {inside.mean():4.0%}"
        )


def without(covariance: Array, left: Array, folds: Codes) -> Predicted:
    """Predict each fold from all others; one inverse serves every fold."""
    inverse = np.linalg.inv(covariance)
    solved = inverse @ left
    off, spread = np.empty(len(left)), np.empty(len(left))
    for rows in _folds(folds):
        block = np.linalg.inv(inverse[np.ix_(rows, rows)])
        off[rows], spread[rows] = -block @ solved[rows], np.sqrt(np.diag(block))
    return Predicted(off=off, spread=spread)


def a_month_ahead(found: Cases, covariance: Array, left: Array) -> tuple[Predicted, npt.NDArray[np.bool_]]:
    """Predict each month from the dated rows before it."""
    month = np.floor(found.month).astype(np.int64)
    off, spread = np.zeros(len(left)), np.ones(len(left))
    tried = np.zeros(len(left), np.bool_)
    for this in np.unique(month):
        asked = np.flatnonzero((month == this) & ~found.undated)
        known = np.flatnonzero((month < this) & ~found.undated)
        if len(asked) < _LEAST_MONTH or len(known) < _LEAST_TRAINING:
            continue
        across = covariance[np.ix_(known, asked)]
        weights = np.linalg.solve(covariance[np.ix_(known, known)], across)
        off[asked] = weights.T @ left[known] - left[asked]
        explained = np.einsum("ij,ij->j", across, weights)
        spread[asked] = np.sqrt(np.maximum(np.diag(covariance)[asked] - explained, 1e-6))
        tried[asked] = True
    return Predicted(off=off, spread=spread), tried


def _folds(folds: Codes) -> Iterator[npt.NDArray[np.intp]]:
    order = np.argsort(folds, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(folds[order])) + 1)


def winners(found: Cases, off: Array) -> str:
    """Count right winners between vendors per distinct comparison, beside always saying NVIDIA."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    vendors = [load_accelerator(row.accelerator).vendor for row in found.rows]
    for number, row in enumerate(found.rows):
        precision = "fp4" if row.weights in {"nvfp4", "mxfp4"} else row.weights
        load = (round(row.input_tokens), round(row.output_tokens), row.concurrency, row.tp * row.dp)
        groups[found.labels["family"][number], precision, *load].append(number)
    predicted_s = found.seconds * np.exp(off)
    right: dict[tuple[object, ...], list[tuple[bool, bool]]] = defaultdict(list)
    for key, members in groups.items():
        for one in (number for number in members if vendors[number] == "amd"):
            for other in (number for number in members if vendors[number] == "nvidia"):
                ratio = found.seconds[one] / found.seconds[other]
                if max(ratio, 1 / ratio) >= _GAP:
                    parts = (found.rows[one].accelerator, found.rows[other].accelerator)
                    named = bool((predicted_s[one] < predicted_s[other]) == (ratio < 1))
                    right[*key, *parts].append((named, bool(ratio > 1)))
    shares = np.array([np.mean(entries, axis=0) for entries in right.values()])
    named, always = shares.mean(axis=0)
    return f"winner between vendors: {named:.1%} of {len(right):,} comparisons; always NVIDIA {always:.1%}"
