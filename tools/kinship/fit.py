"""How large is each reason to be alike? Spreads of the largest marginal likelihood on whole curves drawn at random."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kinship.cases import COLUMNS, Cases
from kinship.covariance import GROUPS, LEVELS, Single, Spreads, linear, reasons
from penstock.performance.step.work import Array

_OF_A_CURVE: Final = 20
_OF_A_SLOWDOWN: Final = 0.1
_OF_A_LABEL: Final = 0.03
_WIDTH: Final = 2.5
"""A spread nobody's rows speak about stays at its prior; e-folds of its square that it may be off."""
_CAPS: Final = {
    **dict.fromkeys(("weights", "experts", "cache"), 0.10),
    **dict.fromkeys(("compute", "prefill"), 0.25),
    **dict.fromkeys(("layers", "mixtures", "state_layers", "matrices", "quantised"), 0.30),
    **dict.fromkeys(("step", "messages", "exchanges"), 0.30),
}
"""Memory is memory: what single columns may explain apart from their group is bounded, so that a mixture's small dense
matrices do not teach that dense weights are slow."""
_MOST: Final = 0.6


def subset(found: Cases, count: int, seed: int) -> Cases:
    """Draw whole curves until there are enough rows."""
    generator = np.random.default_rng(seed)
    setups = found.labels["setup"]
    chosen: list[int] = []
    for setup in generator.permutation(np.unique(setups)):
        rows = np.flatnonzero(setups == setup)
        chosen += generator.permutation(rows)[:_OF_A_CURVE].tolist()
        if len(chosen) > count:
            break
    return take(found, np.array(chosen))


def take(found: Cases, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Cases:
    """Keep some rows."""
    return Cases(
        rows=tuple(found.rows[row] for row in rows),
        seconds=found.seconds[rows],
        light=found.light[rows],
        labels={name: codes[rows] for name, codes in found.labels.items()},
        users=found.users[rows],
        inputs=found.inputs[rows],
        outputs=found.outputs[rows],
        month=found.month[rows],
        undated=found.undated[rows],
    )


def fit(found: Cases, *, rounds: int = 3, steps: int = 25) -> Spreads:
    """Climb the marginal likelihood; between rounds the common slowdowns move to what the rows say."""
    spreads = Spreads(of={}, shift=np.zeros(len(COLUMNS)))
    for _ in range(rounds):
        _, shares, left = linear(found, spreads.shift)
        matrices = dict(reasons(found, shares))
        names = [*matrices, "noise", "undated"]
        stack = np.array(list(matrices.values()))
        logs, weights = _climb(stack, left, found.undated.astype(np.float64), names, spreads.of, steps)
        moved = _common_shift(dict(zip(names, np.exp(logs), strict=True)), shares, weights)
        shift = (spreads.shift + moved) / 2 if spreads.of else np.clip(moved, -1.5, 1.5)
        spreads = Spreads(of=dict(zip(names, np.exp(logs / 2).tolist(), strict=True)), shift=shift)
    return spreads


def _climb(
    stack: Single, left: Array, undated: Array, names: list[str], start: Mapping[str, float], steps: int
) -> tuple[Array, Array]:
    """Adam on the logarithms of the squared spreads; returns them and the solved residuals."""
    prior = np.array([2 * np.log(_prior(name)) for name in names])
    logs = np.array([2 * np.log(start.get(name, 2 * _prior(name))) for name in names])
    cap = np.array([2 * np.log(_cap(name)) for name in names])
    first, second = np.zeros_like(logs), np.zeros_like(logs)
    solved = left
    for step in range(1, steps + 1):
        squares = np.exp(logs)
        whole = np.tensordot(squares[:-2].astype(np.float32), stack, 1).astype(np.float64)
        whole[np.diag_indices(len(left))] += squares[-2] + squares[-1] * undated
        inverse = np.linalg.inv(whole)
        solved = inverse @ left
        pull = (np.outer(solved, solved) - inverse).astype(np.float32)
        own = np.diag(pull)
        slope = [0.5 * square * float(np.vdot(pull, matrix)) for square, matrix in zip(squares, stack, strict=False)]
        slope += [0.5 * squares[-2] * float(own.sum()), 0.5 * squares[-1] * float((own * undated).sum())]
        gradient = np.array(slope) - (logs - prior) / _WIDTH**2
        first, second = 0.8 * first + 0.2 * gradient, 0.95 * second + 0.05 * gradient**2
        rate = 0.35 * np.sqrt(1 - 0.95**step) / (1 - 0.8**step)
        logs = np.minimum(logs + rate * first / (np.sqrt(second) + 1e-6), cap)
    return logs, solved


def _prior(name: str) -> float:
    if name in {"noise", "undated"}:
        return 0.04
    return _OF_A_SLOWDOWN if name.partition(" of ")[2] in LEVELS else _OF_A_LABEL


def _cap(name: str) -> float:
    group, _, level = name.partition(" of ")
    return _CAPS.get(group, _MOST) if level in LEVELS else 1.0


def _common_shift(squares: dict[str, float], shares: Array, solved: Array) -> Array:
    """What all rows together say about each column: the posterior mean of the reasons that everybody shares."""
    moved = np.zeros(len(COLUMNS))
    for group, columns in GROUPS.items():
        at = [COLUMNS.index(name) for name in columns]
        moved[at] += squares.get(f"{group} of all", 0.0) * float(shares[:, at].sum(axis=1) @ solved)
    return moved
