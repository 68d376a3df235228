"""How large is each reason to be alike? Spreads of the largest marginal likelihood on whole curves drawn at random."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.performance.similarity.cases import Cases
from penstock.performance.similarity.covariance import GROUPS, LEVELS, Single, Spreads, alike, linear, same
from penstock.performance.step.step_work import COMPONENTS, Array

_OF_A_CURVE: Final = 20
_OF_A_SLOWDOWN: Final = 0.1
_OF_A_LABEL: Final = 0.03
_OF_NOISE: Final = 0.04
_OF_A_TREND: Final = 0.15
"""A year: the same cell is 15 to 21% faster within months, says the page on accuracy."""
_WIDTH: Final = 2.5
"""A spread nobody's rows speak about stays at its prior; e-folds of its square that it may be off."""
_CAPS: Final = {
    **dict.fromkeys(("weights", "experts", "cache"), 0.10),
    **dict.fromkeys(("compute", "prefill"), 0.25),
    **dict.fromkeys(("layers", "mixtures", "extra_kernels", "matrices", "quantised"), 0.30),
    **dict.fromkeys(("step", "messages", "exchanges"), 0.30),
}
"""Memory is memory: what single columns may explain apart from their group is bounded, so that a mixture's small dense
matrices do not teach that dense weights are slow."""
_MOST: Final = 0.6
_DRAWN: Final = 1500
"""Rows of one step."""
_RATE: Final = 0.25
_FARTHEST: Final = 1.0
"""As a logarithm: software that was not finished and ran many times slower teaches nothing about the rest."""


def fit_spreads(cases: Cases, seconds: Array, *, seed: int, rounds: int = 3, steps: int = 60) -> Spreads:
    """Climb the marginal likelihood of ever new draws; between rounds the common slowdowns move to what rows say."""
    generator = np.random.default_rng(seed)
    spreads = Spreads(of={name: 2 * _prior(name) for name in _names(cases)}, shift=np.zeros(len(COMPONENTS)))
    for number in range(rounds):
        spreads = _climb(cases, seconds, spreads, generator, steps)
        drawn = draw(cases, 2 * _DRAWN, generator)
        taken, at = _taken(cases, seconds, spreads, drawn)
        of = {name: value**2 for name, value in spreads.of.items()}
        solved = np.asarray(np.linalg.solve(_whole(taken, of), at), np.float64)
        moved = _common_shift(spreads.of, taken.grouped, solved)
        shift = (spreads.shift + moved) / 2 if number else np.clip(moved, -1.5, 1.5)
        spreads = Spreads(of=spreads.of, shift=shift)
    return spreads


def draw(cases: Cases, count: int, generator: np.random.Generator) -> npt.NDArray[np.intp]:
    """Draw whole curves until there are enough rows."""
    setups = cases.labels["setup"]
    chosen: list[int] = []
    for setup in generator.permutation(np.unique(setups)):
        chosen += generator.permutation(np.flatnonzero(setups == setup))[:_OF_A_CURVE].tolist()
        if len(chosen) > count:
            break
    return np.array(chosen, np.intp)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drawn:
    """Reasons between drawn rows."""

    reasons: dict[str, Single]
    levels: dict[str, Single]
    grouped: Array
    undated: Array


def _taken(cases: Cases, seconds: Array, spreads: Spreads, drawn: npt.NDArray[np.intp]) -> tuple[_Drawn, Array]:
    some = cases.take(drawn)
    at = linear(some, spreads)
    left = np.clip(np.log(seconds[drawn]) - at.reference, -_FARTHEST, _FARTHEST)
    levels = {level: same(some, some, label) for level, label in LEVELS.items()}
    undated = some.undated.astype(np.float64)
    return _Drawn(reasons=dict(alike(some, some)), levels=levels, grouped=at.grouped, undated=undated), left


def _names(cases: Cases) -> list[str]:
    one = cases.take(np.array([0]))
    of_levels = [f"{group} of {level}" for level in LEVELS for group in GROUPS]
    return [*(name for name, _ in alike(one, one)), *of_levels, "noise", "undated"]


def _climb(cases: Cases, seconds: Array, start: Spreads, generator: np.random.Generator, steps: int) -> Spreads:
    """Adam on the logarithms of the squared spreads; the average of the second half of the way."""
    names = list(start.of)
    prior, cap = (np.array([2 * np.log(of(name)) for name in names]) for of in (_prior, _cap))
    logs = np.array([2 * np.log(start.of[name]) for name in names])
    first, second, mean = np.zeros_like(logs), np.zeros_like(logs), np.zeros_like(logs)
    for step in range(1, steps + 1):
        taken, left = _taken(cases, seconds, start, draw(cases, _DRAWN, generator))
        squares = dict(zip(names, np.exp(logs).tolist(), strict=True))
        slope = _slope(taken, left, squares)
        gradient = np.array([0.5 * squares[name] * slope[name] for name in names]) - (logs - prior) / _WIDTH**2
        first, second = 0.8 * first + 0.2 * gradient, 0.95 * second + 0.05 * gradient**2
        rate = _RATE * np.sqrt(1 - 0.95**step) / (1 - 0.8**step)
        logs = np.minimum(logs + rate * first / (np.sqrt(second) + 1e-6), cap)
        if step > steps // 2:
            mean += logs / (steps - steps // 2)
    return Spreads(of=dict(zip(names, np.exp(mean / 2).tolist(), strict=True)), shift=start.shift)


def _slope(taken: _Drawn, left: Array, squares: Mapping[str, float]) -> dict[str, float]:
    """Twice the derivative of the log-likelihood by each squared spread."""
    inverse = np.linalg.inv(_whole(taken, squares))
    solved = inverse @ left
    pull = (np.outer(solved, solved) - inverse).astype(np.float32)
    slope = {name: float(np.vdot(pull, matrix)) for name, matrix in taken.reasons.items()}
    for level, mask in taken.levels.items():
        along = np.einsum("ij,ij->j", taken.grouped, (pull * mask) @ taken.grouped)
        slope |= {f"{group} of {level}": float(value) for group, value in zip(GROUPS, along, strict=True)}
    own = np.diag(pull).astype(np.float64)
    return slope | {"noise": float(own.sum()), "undated": float(own @ taken.undated)}


def _whole(taken: _Drawn, squares: Mapping[str, float]) -> Array:
    whole = np.zeros((len(taken.grouped), len(taken.grouped)), np.float32)
    for name, matrix in taken.reasons.items():
        whole += np.float32(squares[name]) * matrix
    for level, mask in taken.levels.items():
        of_groups = np.array([squares[f"{group} of {level}"] for group in GROUPS])
        whole += ((taken.grouped * of_groups).astype(np.float32) @ taken.grouped.T.astype(np.float32)) * mask
    exact: Array = whole.astype(np.float64)
    exact[np.diag_indices(len(exact))] += squares["noise"] + squares["undated"] * taken.undated
    return exact


def _prior(name: str) -> float:
    if name in {"noise", "undated"}:
        return _OF_NOISE
    if name.endswith("trend"):
        return _OF_A_TREND
    return _OF_A_SLOWDOWN if name.partition(" of ")[2] in LEVELS else _OF_A_LABEL


def _cap(name: str) -> float:
    group, _, level = name.partition(" of ")
    return _CAPS.get(group, _MOST) if level in LEVELS else 1.0


def _common_shift(of: Mapping[str, float], grouped: Array, solved: Array) -> Array:
    """What all rows together say about each column: the posterior mean of the reasons that everybody shares."""
    moved = np.zeros(len(COMPONENTS))
    for number, (group, columns) in enumerate(GROUPS.items()):
        at = [COMPONENTS.index(name) for name in columns]
        moved[at] += of[f"{group} of all"] ** 2 * float(grouped[:, number] @ solved)
    return moved
