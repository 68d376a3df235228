"""Wraps HiGHS as a typed solver for mixed-integer linear programs."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final

import highspy
import numpy as np

from penstock.planning.optimizer.solved_programs import Optimum, recall_or_solve

_FEASIBILITY: Final = 1e-6
"""Feasibility tolerance, HiGHS' default. Below a tolerance of about 1e-8, presolve of HiGHS 1.15 loses the optimum and
still reports a gap of zero. A millionth of a replica is negligible."""
_SMALL: Final = 60
"""Maximum number of variables of a program that is solved a second time, without presolve.

In one case, presolve also lost the optimum at a tolerance of 1e-6. Of the 1,337 programs of the shipped plans, 146 are
larger than this maximum (up to 200 variables). For these 146 programs, a second solve never contradicted the first
solve and took as long as the first.
"""
_LAST_RESORT_S: Final = 600.0
"""Time limit in seconds. Effort is limited by nodes of the search tree, so that an answer does not depend on machine
load. Only a solve that exceeds this time limit is stopped early, and the optimality gap of its solution shows that."""


@dataclass(slots=True)
class Milp:
    """Variables and constraints of a program, collected before they are passed to the solver."""

    costs: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)

    def variable(self, *, cost: float = 0.0, upper: float = inf, whole: bool = False) -> int:
        """Add a variable with lower bound 0 and return its index."""
        self.costs.append(cost)
        self.lower.append(0.0)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, terms: Iterable[tuple[int, float]], *, at_least: float = -inf, at_most: float = inf) -> None:
        """Add a constraint; if a variable occurs twice, its coefficients are summed."""
        summed: dict[int, float] = {}
        for index, coefficient in terms:
            summed[index] = summed.get(index, 0.0) + coefficient
        self.starts.append(len(self.indices))
        self.indices.extend(summed)
        self.coefficients.extend(summed.values())
        self.row_lower.append(at_least)
        self.row_upper.append(at_most)

    def solve(self, *, gap_fraction: float, search_nodes: int) -> Optimum | None:
        """Return the cheapest solution; None if the program is infeasible or the search ended without a solution."""
        key = self._digest(gap_fraction, search_nodes)
        asked = partial(self._solve_and_check, gap_fraction=gap_fraction, search_nodes=search_nodes)
        return recall_or_solve(key, len(self.costs), asked)

    def _digest(self, gap_fraction: float, search_nodes: int) -> str:
        """Return a digest of everything that decides the solution, except for the version of the solver."""
        digest = hashlib.sha256(repr((gap_fraction, search_nodes)).encode())
        for column in (self.costs, self.lower, self.upper, self.row_lower, self.row_upper, self.coefficients):
            digest.update(np.array([len(column), *column], np.float64).tobytes())
        for numbers in (self.whole, self.starts, self.indices):
            digest.update(np.array([len(numbers), *numbers], np.int64).tobytes())
        return digest.hexdigest()

    def _solve_and_check(self, *, gap_fraction: float, search_nodes: int) -> Optimum | None:
        found = self._solve(gap_fraction=gap_fraction, search_nodes=search_nodes)
        if found is None or len(self.costs) > _SMALL:
            return found
        below = found.cost * (1 - found.gap_fraction - _FEASIBILITY)
        plain = self._solve(gap_fraction=gap_fraction, search_nodes=search_nodes, presolve="off", below=below)
        return plain if plain is not None and plain.cost < below else found

    def _solve(
        self, *, gap_fraction: float, search_nodes: int, presolve: str = "choose", below: float | None = None
    ) -> Optimum | None:
        """Run the solver once; if `below` is given, only solutions that cost less than it are searched."""
        scale = max((abs(cost) for cost in self.costs), default=0.0) or 1.0
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("mip_rel_gap", gap_fraction),
            ("mip_abs_gap", 0.0),
            ("mip_max_nodes", search_nodes),
            ("time_limit", _LAST_RESORT_S),
            ("mip_feasibility_tolerance", _FEASIBILITY),
            ("primal_feasibility_tolerance", _FEASIBILITY),
            ("threads", 1),
            ("presolve", presolve),
            ("random_seed", 0),
            ("objective_bound", inf if below is None else below / scale),
            ("mip_heuristic_run_feasibility_jump", below is None),
        ):
            solver.setOptionValue(option, value)
        solver.passModel(self._model(scale))
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = tuple(float(value) for value in solver.getSolution().col_value)
        whole = tuple(
            float(round(value)) if is_whole else value for value, is_whole in zip(values, self.whole, strict=True)
        )
        return Optimum(
            values=whole,
            cost=_dot(self.costs, whole),
            gap_fraction=float(info.mip_gap) if np.isfinite(info.mip_gap) else 1.0,
            seconds=float(solver.getRunTime()),
        )

    def _model(self, scale: float) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.costs), len(self.starts)
        # Costs are tens of millions of dollars next to fractions. The objective is scaled so that tolerances keep a
        # meaning.
        model.col_cost_ = np.array(self.costs) / scale
        model.col_lower_ = np.array(self.lower)
        model.col_upper_ = np.array(self.upper)
        model.row_lower_ = np.array(self.row_lower)
        model.row_upper_ = np.array(self.row_upper)
        model.integrality_ = [
            highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous for whole in self.whole
        ]
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array([*self.starts, len(self.indices)])
        model.a_matrix_.index_ = np.array(self.indices)
        model.a_matrix_.value_ = np.array(self.coefficients)
        return model


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return float(sum(a * b for a, b in zip(left, right, strict=True)))
