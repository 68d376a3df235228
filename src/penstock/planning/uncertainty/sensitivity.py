"""Finds the inputs that would change the answer, and the values at which another fleet becomes cheapest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Final, Literal

import numpy as np

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.competing_fleets import Family, best_other, cheapest_label, find_family
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import Worlds, one_world
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.fleet_prices import FleetPrices
from penstock.planning.uncertainty.known_costs import KnownCosts
from penstock.planning.uncertainty.plan_headroom import LOADING, with_known
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, KnobKind

Side = Literal["above", "below"]
"""Side of the plan's value on which a flip lies."""
_TOLERANCE: Final = 0.005
"""Relative precision of a flip: the distance between an input value at which the winner wins and one at which it
loses."""
_STATED_MOVES: Final = 0.05
"""Relative uncertainty assumed for an input without a range, such as a price before the order is signed."""
_STAIRS: Final = ("throughput", "demand")
"""Kinds of input that change the number of nodes, so that costs change in steps and the winner may change
repeatedly."""
_LOOKED_AT: Final = (np.arange(1, 193) / 192) ** 1.5
"""Values tried for an input in `_STAIRS`, as fractions of the distance from the plan's value to the search bound.

If the bound is ten times the plan's value, the steps between these values grow from 0.1% to 2%.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One bar of a tornado: the winner's saving over the best other label, at both ends of an input's range."""

    kind: KnobKind
    id: str
    subject: str
    name: str
    unit: str
    low: float
    high: float
    saving_at_low_usd: float
    saving_at_high_usd: float
    cost_at_low_usd: float
    cost_at_high_usd: float

    @property
    def width_usd(self) -> float:
        """Return by how many dollars the saving differs between the ends of the input's range."""
        return abs(self.saving_at_high_usd - self.saving_at_low_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A value of one input beyond which the winner's label is not cheapest, or no fleet is feasible.

    All other inputs keep the plan's values.
    """

    kind: KnobKind
    id: str
    subject: str
    name: str
    unit: str
    current: float
    at: float
    side: Side
    winner: str
    instead: str
    instead_named: tuple[str, ...]
    """Meaning of the label `instead`: a vendor, `mix` or accelerators; empty if no fleet is feasible."""
    within_range: bool
    """Whether the flip lies within the range that the plan states for the input, so that draws may reach the flip."""
    uncertainty_fraction: float = 0.0
    """Half the width of the input's range, relative to the plan's value; 0 if the input has no range."""
    solved: bool = False
    """Whether fleets were solved again at this value; otherwise the compared fleets were only resized."""
    returns: bool = False
    """Whether the winner is cheapest again at some value beyond the flip, because node counts change in steps."""
    months: int | None = None
    """Term in months if the input is the rent of a contract; None for other inputs."""

    @property
    def distance_fraction(self) -> float:
        """Return the distance between the flip and the plan's value, relative to the plan's value."""
        return abs(self.at - self.current) / max(abs(self.current), 1e-9)

    @property
    def uncertainties_away(self) -> float:
        """Return the distance between the flip and the plan's value, in units of the input's relative uncertainty.

        Distances in units of uncertainty make firm quotes and rough guesses comparable.
        """
        return self.distance_fraction / max(self.uncertainty_fraction, _STATED_MOVES)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Prices every competing fleet for changed input values."""

    family: Family
    candidates: Sequence[Candidate]
    winner: str
    refuted_until: Mapping[tuple[str, Side], float] = field(default_factory=dict)
    """Maps input and side to the value before which the winner is cheapest after simulation, although fleets of other
    labels seem cheaper if they are only resized."""
    known: KnownCosts = field(default_factory=KnownCosts, repr=False, compare=False)
    """Costs at values of inputs around the world whose flips are searched."""
    _counted: list[FleetPrices] = field(default_factory=list, init=False, repr=False, compare=False)

    def is_refuted(self, knob: Knob, value: float) -> bool:
        """Return whether simulation showed that the winner is cheapest at a value of an input."""
        away = value - knob.input.value
        until = self.refuted_until.get((knob.id, "below" if away < 0 else "above"))
        return until is not None and abs(away) < abs(until - knob.input.value)

    def costs(self, world: InputWorld, kind: KnobKind) -> Mapping[str, float]:
        """Return the cost of the cheapest fleet of each label, as `price` computes it."""
        return self.price(world, kind)[0]

    def price(self, world: InputWorld, kind: KnobKind) -> tuple[Mapping[str, float], Family]:
        """Price the cheapest fleet of each label, and return the family of the priced fleets.

        Fleets are resized, except if an accelerator's delivery date changes: then fleets are solved again.
        """
        problem = build_problem(world.resolved, self.candidates)
        if kind == "delivery":
            again = find_family(self.family.with_simulated_capacities(problem), runner_up_count=1)
            costs = dict.fromkeys(self.family.by_label, inf)
            if again is None:
                return costs, self.family
            return {**costs, **{label: mix.cost_usd for label, mix in again.by_label.items()}}, again
        if kind in LOADING:
            found = self.family.costs(problem, one_world(world.capacity))
            return {label: float(usd[0]) for label, usd in found.items()}, self.family
        return self._prices(problem).costs(problem), self.family

    def price_at(self, world: InputWorld, knob: Knob, value: float) -> tuple[Mapping[str, float], Family]:
        """Price as `price` does at a value of an input. All calls of a judge must have the same world."""
        if knob.kind not in LOADING:
            return self.price(knob.apply(world, value), knob.kind)
        found = self.family.least_costs(lambda mix: self.resized_usd_at(world, knob, value, mix))
        return {label: float(usd[0]) for label, usd in found.items()}, self.family

    def costs_at(self, world: InputWorld, knob: Knob, value: float) -> Mapping[str, float]:
        """Return the cost of the cheapest fleet of each label at a value of an input, as `price_at` computes it."""
        return self.price_at(world, knob, value)[0]

    def saving_at(self, world: InputWorld, knob: Knob, value: float) -> float:
        """Return the saving, as `saving` does, at a value of an input."""
        return self.margin(self.costs_at(world, knob, value))

    def resized_usd_at(self, world: InputWorld, knob: Knob, value: float, mix: Mix) -> Array:
        """Return the cost of one fleet that is resized at a value of an input."""

        def build() -> tuple[Problem, Worlds]:
            changed = knob.apply(world, value)
            return build_problem(changed.resolved, self.candidates), one_world(changed.capacity)

        return self.known.usd(mix, (knob.id, value), build)

    def _prices(self, problem: Problem) -> FleetPrices:
        """Return the fleets with their node counts, which are the same at all prices."""
        if not self._counted:
            self._counted.append(FleetPrices.of(self.family, problem))
        return self._counted[0]

    def saving(self, world: InputWorld, kind: KnobKind) -> float:
        """Return the winning label's saving over the best other label; negative if the other label is cheaper."""
        return self.margin(self.costs(world, kind))

    def margin(self, costs: Mapping[str, float]) -> float:
        """Return the winning label's saving at these costs; minus infinity if the winner has no feasible fleet."""
        own, other = costs.get(self.winner, inf), best_other(costs, self.winner)
        return -inf if own == inf else other - own


def tornado(judge: Judge, world: InputWorld, knobs: Sequence[Knob]) -> tuple[Swing, ...]:
    """Return the tornado: one bar per uncertain input, between the ends of its range, the widest bar first.

    Inputs that change neither the saving nor the lowest cost by more than a dollar are left out.
    """
    swings = []
    for knob in knobs:
        if not knob.input.uncertain:
            continue
        # At the end of its range an input is known, so that no headroom is needed for it.
        known = with_known(world, judge.candidates, [knob]) if knob.kind in LOADING else world
        low = judge.costs(knob.apply(known, knob.input.low), knob.kind)
        high = judge.costs(knob.apply(known, knob.input.high), knob.kind)
        swing = Swing(
            kind=knob.kind,
            id=knob.id,
            subject=knob.subject,
            name=knob.name,
            unit=knob.input.unit,
            low=knob.input.low,
            high=knob.input.high,
            saving_at_low_usd=judge.margin(low),
            saving_at_high_usd=judge.margin(high),
            cost_at_low_usd=min(low.values()),
            cost_at_high_usd=min(high.values()),
        )
        moved = swing.width_usd or abs(swing.cost_at_high_usd - swing.cost_at_low_usd)
        if moved > 1 or not isfinite(moved):
            swings.append(swing)
    return tuple(sorted(swings, key=lambda entry: (-_finite(entry.width_usd), entry.id)))


def _finite(usd: float) -> float:
    return usd if isfinite(usd) else 0.0


def flips(judge: Judge, world: InputWorld, knobs: Sequence[Knob]) -> tuple[Flip, ...]:
    """Find, for each input, the nearest lower and the nearest higher value that changes the winner.

    The flips are sorted as in `nearest_first`.
    """
    if judge.saving(world, "rate") == -inf:
        return ()
    found = []
    for knob in knobs:
        for side, bound in (("below", knob.minimum), ("above", knob.maximum)):
            flip = _flip(judge, world, knob, "below" if side == "below" else "above", bound)
            if flip is not None:
                found.append(flip)
    return nearest_first(found)


def nearest_first(found: Iterable[Flip]) -> tuple[Flip, ...]:
    """Sort flips by their distance in units of each input's uncertainty, first the nearest flip."""
    return tuple(sorted(found, key=lambda flip: (flip.uncertainties_away, flip.distance_fraction, flip.id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """Two input values between which the winner first loses, and whether the winner wins again beyond both values."""

    holds: float
    lost: float
    returns: bool = False


def _nearest_loss(judge: Judge, world: InputWorld, knob: Knob, bound: float) -> _Loss | None:
    """Find where the winner first loses between the plan's value and a bound; None if it never loses."""
    current = knob.input.value
    if bound == current:
        return None
    if knob.kind not in _STAIRS:
        return None if judge.saving_at(world, knob, bound) >= 0 else _Loss(holds=current, lost=bound)
    places = _places(current, bound)

    # All values are priced at once, like draws, with linearly interpolated costs. A loss is then checked exactly; a
    # changed throughput changes no cost and needs no check.
    def build() -> tuple[Problem, Worlds]:
        wide = replace(knob, input=replace(knob.input, low=min(current, bound), high=max(current, bound)))
        problem = build_problem(world.resolved, judge.candidates)
        return problem, drawn_worlds(world, judge.candidates, problem, {knob.id: places}, [wide])

    costs = judge.family.least_costs(lambda mix: judge.known.usd(mix, (knob.id, "until", bound), build))
    margins = [
        inf if judge.is_refuted(knob, place) else judge.margin({label: float(usd[n]) for label, usd in costs.items()})
        for n, place in enumerate(places.tolist())
    ]
    before, exact = current, knob.kind == "throughput"
    for number, place in enumerate(places.tolist()):
        if margins[number] < 0 and (exact or judge.saving_at(world, knob, place) < 0):
            return _Loss(holds=before, lost=place, returns=max(margins[number:]) > 0)
        before = place
    return None


def _places(current: float, bound: float) -> Array:
    """Return values between the plan's value and a bound, spaced geometrically if both are positive, else linearly."""
    if min(current, bound) > 0:
        return np.asarray(current * (bound / current) ** _LOOKED_AT)
    return np.asarray(current + (bound - current) * _LOOKED_AT)


def _flip(judge: Judge, world: InputWorld, knob: Knob, side: Side, bound: float) -> Flip | None:
    current = knob.input.value
    found = _nearest_loss(judge, world, knob, bound)
    if found is None:
        return None
    holds, lost = found.holds, found.lost
    near_zero = _TOLERANCE**2 * abs(bound - current)
    while abs(lost - holds) > max(near_zero, _TOLERANCE * max(abs(lost), abs(holds))):
        middle = (holds + lost) / 2
        if judge.is_refuted(knob, middle) or judge.saving_at(world, knob, middle) >= 0:
            holds = middle
        else:
            lost = middle
    costs, family = judge.price_at(world, knob, lost)
    instead = cheapest_label(costs)
    return Flip(
        kind=knob.kind,
        id=knob.id,
        subject=knob.subject,
        name=knob.name,
        unit=knob.input.unit,
        current=current,
        at=lost,
        side=side,
        winner=judge.winner,
        instead=instead,
        instead_named=family.named_by.get(instead, ()),
        within_range=knob.input.low <= lost <= knob.input.high,
        uncertainty_fraction=(knob.input.high - knob.input.low) / 2 / max(abs(current), 1e-9),
        returns=found.returns,
        months=knob.months,
    )
