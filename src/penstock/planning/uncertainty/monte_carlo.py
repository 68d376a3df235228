"""How sure is the answer? Thousands of worlds drawn from the model's own P10-P90 and the range of every input."""

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
"""Standard deviations between the median and P10 of a normal distribution."""
_SHARED: Final = 0.4
"""Correlation of the errors of two parts of one vendor: with the setup unseen 0.27, with the model unseen 0.51, over 67
pairs of parts that ran the same model with the same engine; beside another vendor's part -0.05 and 0.23."""
_MAX_BLAMED: Final = 3
_COULD_BE: Final = 0.1
"""A loss outside P10 to P90 is not counted with."""
_NOT_DRAWN: Final = ("delivery",)
"""A part that comes at another time makes another problem; it is turned by itself."""
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
    """An input that moves the saving, and the share of its variance that it explains alone."""

    kind: KnobKind
    id: str
    subject: str
    name: str
    variance_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """What the draws say."""

    draws: int
    seed: int
    probability: Mapping[str, float]
    """That the label is cheapest; what is missing to 1 are worlds where none compared, resized, keeps the limits."""
    fleet_usd: Span
    """Of the winning fleet itself, with as many nodes as each world takes: what who signs it may come to pay."""
    cost_usd: Mapping[str, Span]
    """Of the fleet of each label that is cheapest as estimated, over the worlds in which it keeps the limits."""
    saving_usd: Span | None
    """Of the winner over the best other label; None where nothing else competes, or not in every world."""
    blame: tuple[Blame, ...]
    enough_fraction: float
    """Of the worlds: those in which the nodes of the winning fleet, as planned, carry what is asked."""
    nodes: Span
    """What the winning fleet's parts take in the period with most nodes."""

    def lost(self, winner: str) -> float:
        """In which share of the worlds another label is cheapest."""
        return sum(share for label, share in self.probability.items() if label != winner)

    def too_close(self, winner: str) -> bool:
        """Whether the saving could as well be a loss: another label is cheapest in one of ten worlds or more."""
        return self.lost(winner) >= _COULD_BE * sum(self.probability.values())

    @property
    def likeliest(self) -> str:
        """The label that is cheapest most often; the first by name of two."""
        return max(sorted(self.probability), key=lambda label: self.probability[label])


def widened(
    family: Family, world: InputWorld, candidates: Sequence[Candidate], knobs: Sequence[Knob], *, seed: int
) -> Family:
    """Add the fleets that are cheapest in a few drawn worlds, so that every label has something to fall back on.

    A fleet resized keeps its parts and what each of them serves; a world with other throughputs may want others. On the
    examples a handful of worlds closes most of the gap to solving every world again (docs/methodology.md, "Plan").
    """
    uncertain, values = draw_inputs(knobs, seed, _SOLVED_WORLDS)
    found = []
    for number in range(_SOLVED_WORLDS if uncertain else 0):
        drawn = world
        for knob in uncertain:
            drawn = knob.turned(drawn, float(values[knob.id][number]))
        problem = family.informed(build_problem(drawn.resolved, candidates, capacity_scale=drawn.capacity))
        for _, restriction in questions(problem):
            if restriction.only_accelerators is None:
                mix = cheapest(problem, restriction, gap_fraction=_WORLD_GAP, most_nodes=_WORLD_NODES)
                found += [mix] if mix is not None else []
    return family.joined_by(found)


def draw_inputs(knobs: Sequence[Knob], seed: int, draws: int) -> tuple[list[Knob], dict[str, Array]]:
    """Draw what is uncertain, each input from a stream of its own: adding one does not move the others."""
    uncertain = [knob for knob in knobs if knob.input.uncertain and knob.kind not in _NOT_DRAWN]
    shared = {
        stack: _stream(seed, f"stack {stack}").standard_normal(draws)
        for stack in {knob.stack for knob in uncertain if knob.stack}
    }
    return uncertain, {
        knob.id: _draw(knob, _stream(seed, f"input {knob.id}"), draws, shared.get(knob.stack)) for knob in uncertain
    }


def _stream(seed: int, name: str) -> np.random.Generator:
    """Random numbers of one name, whatever else is drawn."""
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
    """Draw every input that has a range, resize the fleet of each label in every world, and count who is cheapest.

    Resizing instead of solving again: thousands of integer programs would take an hour, and resizing never makes a
    fleet look cheaper than it is.
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
    # Where a fleet is impossible in some worlds there is no saving in dollars; who is cheapest can still be blamed.
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
    """Capacities from the two halves of a log-normal through P10, median and P90; all else from two of a triangle.

    What is stated is the median of both: were it the mode, a range that only goes up would put every draw above it.
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
    """Squared correlation of each input with the saving, or with whether there is one: what to measure first."""
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
