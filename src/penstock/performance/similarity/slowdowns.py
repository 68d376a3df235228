"""Finds the slowdowns of a deployment that reproduce its predicted times.

The evidence predicts the time of a run, but a simulation needs the time of any step. So a deployment is predicted over
a grid of loads. The fit finds slowdowns, relative to the roofline of each component, that reproduce these times and
stay close to the common slowdowns.
"""

from datetime import date
from typing import Final

import numpy as np

from penstock.performance.similarity.cases import WORDS, Cases, hash_strings, labels_of_run
from penstock.performance.step.step_work import COMPONENTS, PHYSICAL, Array, Load, ReplicaWork

_USERS: Final = (1.0, 4.0, 16.0, 64.0, 256.0)
_LENGTHS: Final = ((250.0, 250.0), (1000.0, 1000.0), (1000.0, 8000.0), (8000.0, 1000.0), (32000.0, 1000.0))
GRID: Final = tuple((users, *lengths) for lengths in _LENGTHS for users in _USERS)
"""Users, input tokens and output tokens of each load at which a deployment is predicted."""
GRID_WEIGHTS: Final = np.array([1.0 if 1000 <= inputs <= 8000 else 0.1 for _, inputs, _ in GRID])
"""Weights of the loads in the grid. The shortest and the longest prompts, for which measurements are rare, have a small
weight. They only bound the slowdowns, and the other prompts determine the slowdowns."""
CENTRE: Final = tuple(GRID.index(load) for load in ((4.0, *_LENGTHS[1]), (64.0, *_LENGTHS[1]), (16.0, *_LENGTHS[3])))
"""Indices of the loads in the grid whose uncertainty is used as the uncertainty of the deployment."""
_LOG_LOWER_BOUNDS: Final = np.log([1.0] * 5 + [0.5] * 2 + [1e-9] * (len(COMPONENTS) - PHYSICAL))
"""Lower bounds of the slowdowns, as logarithms. No component is faster than its roofline, except communication if a
switch reduces in the network."""
_CLOSE: Final = 0.01
"""Tolerance with which the fit reproduces the times."""
_FREEDOM: Final = np.array([0.25] * PHYSICAL + [0.7] * (len(COMPONENTS) - PHYSICAL))
"""Standard deviation, as a logarithm, of each slowdown from the common slowdown. It is small for bandwidths and larger
for launches."""
_TOGETHER: Final = 0.4
"""Standard deviation, as a logarithm, of a shift that all slowdowns share."""
_PULL: Final = np.linalg.inv(np.diag(_FREEDOM**2) + _TOGETHER**2)
_FARTHEST: Final = 2.5
_ROUNDS: Final = 8
DIGITS: Final = 5
"""Decimal places to which slowdowns are rounded. This is far finer than any error, and makes the results equal with
every linear algebra library."""


Loads = tuple[tuple[float, float, float], ...]


def closed_loop_case(work: ReplicaWork, engine: str, loads: Loads, day: date, *, undated: bool = False) -> Cases:
    """Describe closed-loop runs on a deployment in the same form as measured runs."""
    users, inputs, outputs = (np.array(values) for values in zip(*loads, strict=True))
    words = labels_of_run(work.deployment, engine)
    return Cases(
        roofline=work.roofline(Load.closed_loop(users, inputs, outputs, work.deployment.batched_tokens)),
        words={word: np.repeat(hash_strings([words[word]]), len(users)) for word in WORDS},
        users=users,
        input_tokens=inputs,
        output_tokens=outputs,
        day=np.full(len(users), float(day.toordinal())),
        undated=np.full(len(users), undated),
        source_noise=np.zeros(len(users)),
    )


def slowdowns_through(roofline: Array, log_seconds: Array, common: Array, weights: Array = GRID_WEIGHTS) -> Array:
    """Return the slowdowns closest to the common slowdowns that reproduce the given times, weighted by load.

    This is a ridge regression on logarithms. The roofline is a lower bound.
    """
    lower_bounds = _LOG_LOWER_BOUNDS - np.log(common)
    shift = np.maximum(0.0, lower_bounds)
    for _ in range(_ROUNDS):
        here = common * np.exp(shift)
        seconds = roofline @ here
        shares = roofline * here / seconds[:, None]
        left = log_seconds - np.log(seconds) + shares @ shift
        weighted = (shares * weights[:, None]).T / _CLOSE**2
        gram, aim = weighted @ shares + _PULL, weighted @ left
        shift = np.clip(_solve_bounded(gram, aim, lower_bounds), -_FARTHEST, _FARTHEST)
    return np.asarray(common * np.exp(np.maximum(np.round(shift, DIGITS), lower_bounds)))


def _solve_bounded(gram: Array, aim: Array, lower_bounds: Array) -> Array:
    """Solve a linear system with lower bounds.

    Each value below its bound is set to the bound, and the system is solved again for the other values.
    """
    held = np.zeros(len(aim), np.bool_)
    solution = np.empty_like(aim)
    for _ in range(len(aim)):
        free = ~held
        solution[held] = lower_bounds[held]
        solution[free] = np.linalg.solve(
            gram[np.ix_(free, free)], aim[free] - gram[np.ix_(free, held)] @ lower_bounds[held]
        )
        below = free & (solution < lower_bounds - 1e-12)
        if not below.any():
            break
        held |= below
    return np.maximum(solution, lower_bounds)
