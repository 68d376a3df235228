"""Which slowdowns say the same? How much slower than light each part runs, so that steps take what was measured.

Evidence speaks of the time of a run; a simulation needs the time of any step. So a deployment is asked about over a
grid of loads, and its slowdowns are those that pass through the answers while they stay near everybody's.
"""

from datetime import date
from typing import Final

import numpy as np

from penstock.performance.similarity.cases import WORDS, Cases, coded, labels_of_run
from penstock.performance.similarity.posterior import Evidence, last_measured
from penstock.performance.step.step_work import PARTS, PHYSICAL, Array, Load, ReplicaWork

_USERS: Final = (1.0, 4.0, 16.0, 64.0, 256.0)
_LENGTHS: Final = ((250.0, 250.0), (1000.0, 1000.0), (1000.0, 8000.0), (8000.0, 1000.0), (32000.0, 1000.0))
GRID: Final = tuple((users, *lengths) for lengths in _LENGTHS for users in _USERS)
"""Users and lengths a deployment is asked about."""
_WEIGHTS: Final = np.array([1.0 if 1000 <= inputs <= 8000 else 0.1 for _, inputs, _ in GRID])[:, None]  # noqa: PLR2004
"""The shortest and the longest prompts keep slowdowns in bounds where hardly anybody measured; the others decide."""
CENTRE: Final = tuple(GRID.index(load) for load in ((4.0, *_LENGTHS[1]), (64.0, *_LENGTHS[1]), (16.0, *_LENGTHS[3])))
"""Loads whose doubt is that of the deployment."""
_LEAST: Final = np.log([1.0] * 5 + [0.5] * 2 + [1e-9] * (len(PARTS) - PHYSICAL))
"""No part is faster than light; what is sent may be, where a switch reduces in the network."""
_CLOSE: Final = 0.01
"""How near the answers are passed."""
_FREEDOM: Final = np.array([0.25] * PHYSICAL + [0.7] * (len(PARTS) - PHYSICAL))
"""How far, as logarithms, slowdowns may be from everybody's: bandwidths little, launches more."""
_TOGETHER: Final = 0.4
"""How far all of them together."""
_PULL: Final = np.linalg.inv(np.diag(_FREEDOM**2) + _TOGETHER**2)
_FARTHEST: Final = 2.5
_ROUNDS: Final = 8
_DIGITS: Final = 5
"""What is kept behind the point: far finer than any error, and the same on every machine's linear algebra."""


Loads = tuple[tuple[float, float, float], ...]


def asked_case(work: ReplicaWork, engine: str, loads: Loads, day: date, *, undated: bool = False) -> Cases:
    """Describe closed loops on a deployment as measured ones are."""
    users, inputs, outputs = (np.array(values) for values in zip(*loads, strict=True))
    words = labels_of_run(work.deployment, engine)
    return Cases(
        light=work.light(Load.closed_loop(users, inputs, outputs, work.deployment.batched_tokens)),
        words={word: np.repeat(coded([words[word]]), len(users)) for word in WORDS},
        users=users,
        input_tokens=inputs,
        output_tokens=outputs,
        day=np.full(len(users), float(day.toordinal())),
        undated=np.full(len(users), undated),
    )


def slowdowns_through(light: Array, log_seconds: Array, common: Array) -> Array:
    """Move slowdowns as little as it takes to pass near the grid's times: a ridge on logarithms, bounded by light."""
    least = _LEAST - np.log(common)
    shift = np.maximum(0.0, least)
    for _ in range(_ROUNDS):
        here = common * np.exp(shift)
        seconds = light @ here
        shares = light * here / seconds[:, None]
        left = log_seconds - np.log(seconds) + shares @ shift
        weighted = (shares * _WEIGHTS).T / _CLOSE**2
        gram, aim = weighted @ shares + _PULL, weighted @ left
        shift = np.clip(_bounded(gram, aim, least), -_FARTHEST, _FARTHEST)
    return np.asarray(common * np.exp(np.maximum(np.round(shift, _DIGITS), least)))


def _bounded(gram: Array, aim: Array, least: Array) -> Array:
    """Solve with lower bounds: what comes out below its bound is held there, and the others are solved again."""
    held = np.zeros(len(aim), np.bool_)
    solution = np.empty_like(aim)
    for _ in range(len(aim)):
        free = ~held
        solution[held] = least[held]
        solution[free] = np.linalg.solve(gram[np.ix_(free, free)], aim[free] - gram[np.ix_(free, held)] @ least[held])
        below = free & (solution < least - 1e-12)
        if not below.any():
            break
        held |= below
    return np.maximum(solution, least)


def slowdowns_of(evidence: Evidence, work: ReplicaWork, engine: str, day: date | None = None) -> Array:
    """Return a deployment's slowdowns with the software of a day, or that its nearest kin were last measured with."""
    loads = asked_case(work, engine, GRID, day or evidence.newest)
    loads = loads if day is not None else last_measured(evidence.cases, loads)
    return slowdowns_through(loads.light, np.round(evidence.log_seconds(loads), _DIGITS), evidence.spreads.common)


def uncertainty_of(evidence: Evidence, work: ReplicaWork, engine: str) -> float:
    """Return how far off a deployment's times may be today, as the standard deviation of a logarithm."""
    loads = asked_case(work, engine, tuple(GRID[number] for number in CENTRE), evidence.newest)
    return round(float(np.sqrt(np.mean(evidence.spread(loads) ** 2))), _DIGITS)
