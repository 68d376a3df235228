"""Simulates the fleets that cause flips close to the plan's own inputs, and drops the flips that simulation refutes.

Known fleets are only resized when an input changes. Close to the plan's own inputs, a resized fleet may seem cheaper
although simulation rules it out: a fleet of other inputs was never simulated here, and a fleet of the plan itself has
capacities that just need all of its nodes, so that the smallest decrease of the load seems to save a node.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from penstock.planning.optimizer.problem import Mix
from penstock.planning.uncertainty.plan_headroom import LOADING
from penstock.planning.uncertainty.sensitivity import Flip, Judge, flips, nearest_first
from penstock.planning.uncertainty.solve_again import Sized
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob

SETTLED: Final = 6
"""Number of inputs whose flips are confirmed: the inputs with the nearest flips, as many as a report shows."""
_ROUNDS: Final = 2
_NEAR: Final = 0.05
"""Distance of a flip from the plan's value, relative to that value, within which the other fleet is simulated."""
_PRECISION: Final = 0.25
"""Precision of a flip that is found by simulation, relative to its distance from the plan's value."""


def nearest_flips(found: Sequence[Flip]) -> Iterator[Flip]:
    """Return the flips of the `SETTLED` inputs with the nearest flips, without flips of delivery dates.

    Flips of delivery dates need no confirmation, because fleets are always solved again for them.
    """
    nearest = tuple(dict.fromkeys(flip.id for flip in found))[:SETTLED]
    return (flip for flip in found if flip.id in nearest and flip.kind != "delivery")


def without_refuted_fleets(judge: Judge, world: InputWorld, knobs: Sequence[Knob], sized: Sized) -> Judge:
    """Drop the fleets of other inputs that cause a near flip, but cost more than the winner there after simulation.

    The plan's own search has ruled out such a fleet, so it must not cause flips of other inputs either.
    """
    for _ in range(_ROUNDS):
        checks = _near_flips(judge, world, flips(judge, world, knobs), knobs, sized)
        refuted = {id(mix) for at in checks for mix in at.refuted_elsewhere()}
        if not refuted:
            break
        kept = tuple(mix for mix in judge.family.of_other_worlds if id(mix) not in refuted)
        judge = replace(judge, family=replace(judge.family, of_other_worlds=kept))
    return judge


def find_unrefuted_flips(
    judge: Judge, world: InputWorld, knobs: Sequence[Knob], sized: Sized
) -> tuple[Judge, tuple[Flip, ...]]:
    """Find the flips, and search again beyond near flips whose fleets all cost more than the winner after simulation.

    The returned judge knows how far near flips are refuted.
    """
    found = flips(judge, world, knobs)
    checks = _near_flips(judge, world, found, knobs, sized)
    spans = {(at.flip.id, at.flip.side): end for at in checks if (end := at.refuted_until()) is not None}
    judge = replace(judge, refuted_until={**judge.refuted_until, **spans})
    moved = {ident for ident, _ in spans}
    again = flips(judge, world, [knob for knob in knobs if knob.id in moved])
    return judge, nearest_first((*again, *(flip for flip in found if flip.id not in moved)))


def _near_flips(
    judge: Judge, world: InputWorld, found: Sequence[Flip], knobs: Sequence[Knob], sized: Sized
) -> "list[_NearFlip]":
    by_id = {knob.id: knob for knob in knobs}
    near = (flip for flip in nearest_flips(found) if flip.kind in LOADING and flip.distance_fraction < _NEAR)
    return [_NearFlip(judge, world, by_id[flip.id], flip, sized) for flip in near]


class _NearFlip:
    """A flip close to the plan's value, and the fleets that seem cheaper than the winner there."""

    def __init__(self, judge: Judge, world: InputWorld, knob: Knob, flip: Flip, sized: Sized) -> None:
        self.judge, self.world, self.knob, self.flip, self.sized = judge, world, knob, flip, sized

    def refuted_elsewhere(self) -> Iterator[Mix]:
        """Yield the fleets of other inputs that seem cheaper than the winner at the flip, but cost more if simulated.

        The cheapest is simulated first. If one of them is really cheaper, the flip stands.
        """
        family = self.judge.family
        fleets = [mix for mix in family.of_other_worlds if family.label(mix) == self.flip.instead]
        for mix, is_cheaper in self._simulate(self.flip.at, fleets):
            if is_cheaper:
                break
            yield mix

    def refuted_until(self) -> float | None:
        """Return the value before which every fleet that seems cheaper costs more than the winner after simulation.

        None if the flip stands, or if no fleet is feasible there. The search doubles the distance until a fleet is
        cheaper, or none seems cheaper; then it halves the interval.
        """
        family, flip = self.judge.family, self.flip
        fleets = [mix for mix in (*family.fleets, *family.of_other_worlds) if family.label(mix) != flip.winner]
        if (flip.id, flip.side) in self.judge.refuted_until or not self._seem_cheaper(flip.at, fleets):
            return None

        def stands(value: float) -> bool:
            return any(is_cheaper for _, is_cheaper in self._simulate(value, fleets))

        if stands(flip.at):
            return None
        sign, bound = (1, self.knob.maximum) if flip.side == "above" else (-1, self.knob.minimum)
        unit = sign * max(abs(flip.current), 1e-9)
        return _first_standing(flip, unit, bound, lambda value: bool(self._seem_cheaper(value, fleets)), stands)

    def _simulate(self, value: float, fleets: Sequence[Mix]) -> Iterator[tuple[Mix, bool]]:
        """Yield each fleet that seems cheaper than the winner, and whether it is cheaper after sizing by simulation."""
        problem = self.knob.apply(self.world, value).problem(self.judge.candidates)
        winner_usd = self._winner_usd(value)
        for mix in self._seem_cheaper(value, fleets):
            fleet = self.sized(mix, problem)
            yield mix, fleet is not None and fleet.cost_usd < winner_usd

    def _seem_cheaper(self, value: float, fleets: Sequence[Mix]) -> list[Mix]:
        """Return the fleets that cost less than the winner at a value if they are only resized, first the cheapest."""
        winner_usd = self._winner_usd(value)
        priced = [(float(self.judge.resized_usd_at(self.world, self.knob, value, mix)[0]), mix) for mix in fleets]
        return [mix for usd, mix in sorted(priced, key=lambda entry: entry[0]) if usd < winner_usd]

    def _winner_usd(self, value: float) -> float:
        return self.judge.costs_at(self.world, self.knob, value).get(self.flip.winner, inf)


def _first_standing(
    flip: Flip, unit: float, bound: float, seems_cheaper: Callable[[float], bool], stands: Callable[[float], bool]
) -> float:
    """Return the first value beyond a refuted flip at which another fleet is cheaper after simulation.

    Return a value at which none seems cheaper if the search meets one, and a value beyond the bound if it meets none.
    """
    refuted, distance = flip.at, _NEAR
    while True:
        value = flip.current + distance * unit
        if (value - bound) * unit >= 0:
            return bound + unit
        if not seems_cheaper(value):
            return value
        if stands(value):
            break
        refuted, distance = value, 2 * distance
    while abs(value - refuted) > _PRECISION * abs(value - flip.current):
        middle = (refuted + value) / 2
        if seems_cheaper(middle) and stands(middle):
            value = middle
        else:
            refuted = middle
    return value
