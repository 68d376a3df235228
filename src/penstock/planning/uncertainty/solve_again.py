"""Solves for the cheapest fleet when an input changes, with simulated capacities, and sizes that fleet by simulation.

The docstring of `optimizer/resize_fleet` says when a fleet is resized instead.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from penstock.planning.in_parallel import in_parallel
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix, Problem, Restriction

Sized = Callable[[Mix, Problem], Mix | None]
"""Function that sizes a fleet by simulation. The result is None if no number of the fleet's accelerators meets the
SLO."""
_GAP = 1e-3


def as_solved(mix: Mix, _: Problem) -> Mix:
    """Return a fleet unchanged. Without a simulator, this function is used as the `Sized` function."""
    return mix


def solve_again(
    family: Family, problem: Problem, restriction: Restriction | None = None, *, search_nodes: int
) -> Mix | None:
    """Solve for the cheapest fleet with the capacities that the family's replicas had in simulation.

    `search_nodes` limits the search tree; the fleet's optimality gap says how much cheaper another fleet could be.
    """
    informed = family.with_simulated_capacities(problem)
    return cheapest(informed, restriction, gap_fraction=_GAP, search_nodes=search_nodes, patient=False)


def solve_each(
    family: Family, problems: Sequence[tuple[Problem, Restriction | None]], *, search_nodes: int
) -> Iterator[Mix | None]:
    """Solve independent problems in parallel."""
    return in_parallel([partial(solve_again, family, *entry, search_nodes=search_nodes) for entry in problems])


def size_solved(mix: Mix | None, problem: Problem, sized: Sized) -> Mix | None:
    """Size a solved fleet by simulation; the sized fleet keeps the optimality gap of the solved fleet.

    Simulations of equal pools in different fleets share their results.
    """
    found = None if mix is None else sized(mix, problem)
    return None if mix is None or found is None else replace(found, gap_fraction=mix.gap_fraction)
