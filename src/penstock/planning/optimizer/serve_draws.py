"""Adds draws of speed and demand to a fleet's integer program, of which the fleet must serve a given number.

The nodes and replicas of a fleet are the same in every draw: they are bought or signed before speed and demand are
known. Only the distribution of requests over replicas is chosen per draw.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.planning.optimizer.fleet_program import FleetProgram
from penstock.planning.optimizer.refill_nodes import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadDraws:
    """Load relative to capacity in each draw, by kind of replica and period, and the draws that must be served."""

    needs: Mapping[tuple[str, int], Array]
    """Maps replica id and period to demand over capacity, 1 at the estimated inputs, with one entry per draw.

    The value is infinite in draws in which the replica misses its SLO at any rate."""
    required: int

    @property
    def highest_need(self) -> float:
        """Return the highest finite need of any draw, at least 1."""
        return max((1.0, *(float(needs[np.isfinite(needs)].max(initial=1.0)) for needs in self.needs.values())))


def serve_draws(program: FleetProgram, draws: LoadDraws) -> None:
    """Require that the fleet serves all demand in at least the required number of draws.

    Most draws need no variables. If a fleet cannot serve a draw, it cannot serve any draw with a higher need of every
    kind of replica. Therefore a draw with many harder draws must be served, and a draw with an easier need than one
    that must be served is served by itself.
    """
    kinds = {name for _, name, _ in program.count}
    used = [needs for (name, _), needs in draws.needs.items() if name in kinds]
    if not used:
        return
    needs = np.column_stack(used)
    missable = len(needs) - draws.required
    harder = _is_harder(needs)
    must = harder.sum(axis=0) >= missable
    implied = (harder & must[:, np.newaxis]).any(axis=0)
    served: dict[int, int] = {}
    for draw in np.flatnonzero(~implied).tolist():
        served[draw] = program.milp.variable(upper=1, whole=not must[draw])
        if must[draw]:
            program.milp.row([(served[draw], 1.0)], at_least=1)
        _serve(program, {key: float(values[draw]) for key, values in draws.needs.items()}, served[draw])
    optional = [draw for draw in served if not must[draw]]
    program.milp.row([(served[draw], 1.0) for draw in optional], at_least=len(optional) - missable)
    for draw in optional:
        for easier in optional:
            if harder[draw, easier]:
                program.milp.row([(served[easier], 1.0), (served[draw], -1.0)], at_least=0)


def _is_harder(needs: Array) -> npt.NDArray[np.bool_]:
    """Return a matrix that says whether the draw of the row needs at least as much of everything as that of the column.

    Of two equal draws, the later one counts as harder, so that no two draws are harder than each other.
    """
    at_least = np.all(needs[:, np.newaxis, :] >= needs[np.newaxis, :, :], axis=2)
    equal = at_least & at_least.T
    later = np.tri(len(needs), k=-1, dtype=np.bool_)
    found: npt.NDArray[np.bool_] = (at_least & ~equal) | (equal & later)
    return found


def _serve(program: FleetProgram, needs: Mapping[tuple[str, int], float], served: int) -> None:
    """Add the shares of one draw: they carry every demand if `served` is 1, and nothing if it is 0."""
    problem, milp = program.problem, program.milp
    kinds = {replica.id: replica for replica in problem.replicas}
    carrying: dict[tuple[tuple[str, int], int], list[tuple[int, float]]] = {}
    for (offer, name, period), count in program.count.items():
        need = needs.get((name, period), 1.0)
        if not np.isfinite(need):
            continue
        loads = []
        for demand in problem.demands_of(kinds[name]):
            if demand.requests_per_s[period] > 0:
                share = milp.variable(upper=1)
                each = problem.rate_of(kinds[name], demand.key[1], period)
                loads.append((share, need * demand.requests_per_s[period] / each))
                carrying.setdefault((demand.key, period), []).append((share, 1.0))
        carried = problem.utilisation_fraction * program.carried_by(offer, name, period)
        milp.row([*loads, (count, -carried)], at_most=0)
    for demand in problem.demands:
        for period, rate in enumerate(demand.requests_per_s):
            if rate > 0:
                milp.row([*carrying.get((demand.key, period), []), (served, -1.0)], at_least=0, at_most=0)
