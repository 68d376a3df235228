"""Estimates confidence by Monte Carlo: capacities are drawn by P10, median and P90, and other inputs by their range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Final
from zlib import crc32

import numpy as np

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family, questions
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import nodes_needed
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, KnobKind

_P10_Z: Final = 1.2815515655446004
"""Distance between the median and P10 of a normal distribution, in standard deviations."""
_SHARED: Final = 0.4
"""Assumed correlation of prediction errors between two accelerators of one vendor.

The correlation was measured over 67 pairs of accelerators that ran the same model with the same engine. Within a vendor
the correlation was 0.27 for unseen setups and 0.51 for unseen models. Across vendors the correlation was -0.05 for
unseen setups and 0.23 for unseen models.
"""
_MAX_BLAMED: Final = 3
_COULD_BE: Final = 0.1
"""The winner's loss counts as possible if the winner is not cheapest in at least this share of draws.

At 0.1, a loss that lies outside P10-P90 does not count.
"""
_NOT_DRAWN: Final = ("delivery",)
"""Kinds of input that are not drawn. A changed delivery date changes the optimization problem, so fleets are solved
again for each date."""
_SOLVED_WORLDS: Final = 5
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
    """Cost of the winning fleet, resized to the nodes that each draw requires."""
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
    family: Family, world: InputWorld, candidates: Sequence[Candidate], knobs: Sequence[Knob], *, seed: int
) -> Family:
    """Add the fleets that are cheapest in a few draws, so that every label has more fleets to choose from.

    A resized fleet keeps its accelerators and their shares of each length bucket. If throughputs differ from the plan,
    other accelerators or shares may be cheaper. On the examples, fleets from a handful of draws close most of the gap
    to solving every draw again (docs/methodology.md, "Plan").
    """
    uncertain, values = draw_inputs(knobs, seed, _SOLVED_WORLDS)
    found = []
    for number in range(_SOLVED_WORLDS if uncertain else 0):
        drawn = world
        for knob in uncertain:
            drawn = knob.apply(drawn, float(values[knob.id][number]))
        problem = family.with_simulated_capacities(drawn.problem(candidates))
        for _, restriction in questions(problem):
            if restriction.only_accelerators is None:
                mix = cheapest(problem, restriction, gap_fraction=_WORLD_GAP, search_nodes=_WORLD_NODES)
                found += [mix] if mix is not None else []
    return family.joined_by(found)


def draw_inputs(knobs: Sequence[Knob], seed: int, draws: int) -> tuple[list[Knob], dict[str, Array]]:
    """Draw each uncertain input from a separate random stream, so that a new input does not change the other draws."""
    uncertain = [knob for knob in knobs if knob.input.uncertain and knob.kind not in _NOT_DRAWN]
    shared = {
        stack: _stream(seed, f"stack {stack}").standard_normal(draws)
        for stack in {knob.stack for knob in uncertain if knob.stack}
    }
    return uncertain, {
        knob.id: _draw(knob, _stream(seed, f"input {knob.id}"), draws, shared.get(knob.stack)) for knob in uncertain
    }


def _stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream of this name, which is independent of the streams of other names."""
    return np.random.default_rng([seed, crc32(name.encode())])


def draw_confidence(
    family: Family,
    world: InputWorld,
    candidates: Sequence[Candidate],
    knobs: Sequence[Knob],
    *,
    seed: int,
    draws: int,
) -> Confidence:
    """Draw every input that has a range, resize each label's fleet for every draw, and count which label is cheapest.

    Fleets are resized instead of solved again, because thousands of integer programs would take an hour. The cost of a
    resized fleet may be overestimated, never underestimated.
    """
    uncertain, values = draw_inputs(knobs, seed, draws)
    problem = build_problem(world.resolved, candidates)
    worlds = drawn_worlds(world, candidates, problem, values, uncertain)
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
        cost_usd={label: _span(costs[label]) for label in labels},
        saving_usd=None if saving is None else _span(saving),
        blame=() if decided is None else _blame(uncertain, values, decided),
        enough_fraction=float(np.mean(enough)),
        nodes=_span(nodes),
    )


def _draw(knob: Knob, generator: np.random.Generator, draws: int, shared: Array | None) -> Array:
    """Draw values of one input.

    A capacity is drawn from a two-piece log-normal distribution through its P10, median and P90. Any other input is
    drawn from two triangular distributions that meet at its stated value. The stated value is the median of either
    distribution. If the stated value were the mode instead, every draw from a range that starts at the stated value
    would exceed it.
    """
    entry = knob.input
    if knob.kind == "throughput":
        normal = generator.standard_normal(draws)
        if shared is not None:
            normal = sqrt(_SHARED) * shared + sqrt(1 - _SHARED) * normal
        below, above = np.log(entry.low / entry.value) / -_P10_Z, np.log(entry.high / entry.value) / _P10_Z
        return np.asarray(entry.value * np.exp(np.where(normal < 0, below, above) * normal))
    uniform = generator.random(draws)
    from_value = 1 - np.sqrt(2 * np.minimum(uniform, 1 - uniform))
    return np.asarray(
        entry.value + from_value * np.where(uniform < 1 / 2, entry.low - entry.value, entry.high - entry.value)
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
    return tuple(sorted(found, key=lambda entry: (-entry.variance_fraction, entry.name))[:_MAX_BLAMED])
