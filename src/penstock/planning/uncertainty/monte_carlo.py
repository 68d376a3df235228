"""Estimates confidence by Monte Carlo: capacities are drawn by P10, median and P90, and other inputs by their range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

import numpy as np

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family, questions
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import nodes_needed
from penstock.planning.uncertainty.draw_inputs import draw_inputs
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, KnobKind

_MAX_BLAMED: Final = 3
_MIN_BLAMED: Final = 0.01
"""Smallest share of the variance that an input must explain to be named. Draws of any input correlate a little."""
_COULD_BE: Final = 0.1
"""The winner's loss counts as possible if the winner is not cheapest in at least this share of draws.

At 0.1, a loss that lies outside P10-P90 does not count.
"""
_SOLVED_WORLDS, _SOLVED_SEED = 5, 0
_WORLD_GAP: Final = 2e-3
_WORLD_NODES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """P10, median and P90."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """An input that affects the saving, with the share of the saving's variance that this input alone explains."""

    kind: KnobKind
    id: str
    subject: str
    name: str
    variance_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Results of the draws."""

    draws: int
    seed: int
    probability: Mapping[str, float]
    """Maps label to its probability of being cheapest.

    The probabilities add up to less than 1 if no resized fleet is feasible in some draws.
    """
    fleet_usd: Span
    """Cost of the winning fleet, with the nodes added that are missing in a draw, over the draws that it serves."""
    served_fraction: float
    """Share of draws in which the winning fleet serves the demand if missing nodes of its accelerators are added.

    It is below 1 if nodes cannot be added, because they are owned or limited, or if replicas miss the SLO at any rate.
    """
    cost_usd: Mapping[str, Span]
    """Maps label to the cost of one fleet over the draws in which that fleet is feasible.

    The fleet is the label's cheapest at the estimated inputs.
    """
    saving_usd: Span | None
    """Saving of the winner over the best other label; None if either has no feasible fleet in some draw."""
    blame: tuple[Blame, ...]
    enough_fraction: float
    """Share of draws in which the planned nodes of the winning fleet carry the demand."""
    nodes: Span
    """Number of nodes that the winning fleet needs in its largest period."""

    def loss_probability(self, winner: str) -> float:
        """Return the share of draws in which a label other than the winner is cheapest."""
        return sum(share for label, share in self.probability.items() if label != winner)

    def too_close(self, winner: str) -> bool:
        """Return whether a label other than the winner is cheapest in 10% or more of the feasible draws."""
        return self.loss_probability(winner) >= _COULD_BE * sum(self.probability.values())

    @property
    def likeliest(self) -> str:
        """Return the label that is cheapest in the most draws; in a tie, the first by name."""
        return max(sorted(self.probability), key=lambda label: self.probability[label])


def add_fleets_of_drawn_worlds(
    family: Family, world: InputWorld, candidates: Sequence[Candidate], knobs: Sequence[Knob]
) -> Family:
    """Add the fleets that are cheapest in a few draws, so that every label has more fleets to choose from.

    A resized fleet keeps its accelerators and their shares of each length bucket. If throughputs differ from the plan,
    other accelerators or shares may be cheaper. On the examples, fleets from a handful of draws close most of the gap
    to solving every draw again (docs/methodology/plan.md). The draws do not depend on the plan's seed, so that a plan
    with another seed has the same fleets.
    """
    drawn, found = draw_inputs(knobs, _SOLVED_SEED, _SOLVED_WORLDS), []
    for number in range(_SOLVED_WORLDS if drawn.knobs else 0):
        one = world
        for knob in drawn.knobs:
            one = knob.apply(one, float(drawn.values[knob.id][number]))
        problem = family.with_simulated_capacities(one.problem(candidates))
        for _, restriction in questions(problem):
            if restriction.only_accelerators is None:
                mix = cheapest(problem, restriction, gap_fraction=_WORLD_GAP, search_nodes=_WORLD_NODES)
                found += [mix] if mix is not None else []
    return family.joined_by(found)


def draw_confidence(
    family: Family,
    world: InputWorld,
    candidates: Sequence[Candidate],
    knobs: Sequence[Knob],
    *,
    seed: int,
    draws: int,
) -> Confidence:
    """Draw every input that has a range, price each label's fleet in every draw, and count which label is cheapest.

    In each draw a label pays for its planned fleet and for the nodes that are missing in that draw. Missing nodes are
    counted instead of solved for, because thousands of integer programs would take an hour. The cost of a fleet may be
    overestimated, never underestimated.
    """
    drawn = draw_inputs(knobs, seed, draws)
    # A draw says what speed and demand turn out to be, so nothing is added to its load.
    problem = replace(build_problem(world.resolved, candidates), headroom=None)
    worlds = drawn_worlds(world, candidates, problem, drawn.values, drawn.knobs, errors=drawn.errors)
    costs = family.signed_costs(problem, worlds)
    labels = sorted(costs)
    stacked = np.vstack([costs[label] for label in labels])
    first = np.argmin(stacked, axis=0)
    winner = family.label(family.winner)
    rest = [costs[label] for label in labels if label != winner]
    least, own = np.min(stacked, axis=0), costs[winner]
    others = np.min(np.vstack(rest), axis=0) if rest else None
    saving = others - own if others is not None and np.isfinite(others + own).all() else None
    nodes, enough = nodes_needed(family.winner, problem, worlds)
    # If a fleet is infeasible in some draws, there is no saving in dollars. Then the inputs are ranked by their effect
    # on whether the winner is cheapest.
    decided = saving if saving is not None or others is None else (own <= others).astype(float)
    return Confidence(
        draws=draws,
        seed=seed,
        probability={
            label: float(np.mean((first == number) & np.isfinite(least))) for number, label in enumerate(labels)
        },
        fleet_usd=_span(costs[winner]),
        served_fraction=float(np.mean(np.isfinite(costs[winner]))),
        cost_usd={label: _span(costs[label]) for label in labels},
        saving_usd=None if saving is None else _span(saving),
        blame=() if decided is None else _blame(drawn.knobs, drawn.values, decided),
        enough_fraction=float(np.mean(enough)),
        nodes=_span(nodes),
    )


def _span(values: Array) -> Span:
    if not np.isfinite(values).any():
        return Span(low=float("inf"), median=float("inf"), high=float("inf"))
    low, middle, high = (float(value) for value in np.quantile(values[np.isfinite(values)], (0.1, 0.5, 0.9)))
    return Span(low=low, median=middle, high=high)


def _blame(knobs: Sequence[Knob], values: Mapping[str, Array], saving: Array) -> tuple[Blame, ...]:
    """Rank the inputs by their squared correlation with `saving`.

    `saving` has one entry per draw: dollars, or 1 if the winner is cheapest and 0 if it is not.
    """
    if not isfinite(float(saving.std())) or saving.std() == 0:
        return ()
    found = [
        Blame(
            kind=knob.kind,
            id=knob.id,
            subject=knob.subject,
            name=knob.name,
            variance_fraction=float(np.corrcoef(values[knob.id], saving)[0, 1] ** 2),
        )
        for knob in knobs
        if values[knob.id].std() > 0
    ]
    found = [entry for entry in found if entry.variance_fraction >= _MIN_BLAMED]
    return tuple(sorted(found, key=lambda entry: (-entry.variance_fraction, entry.name))[:_MAX_BLAMED])
