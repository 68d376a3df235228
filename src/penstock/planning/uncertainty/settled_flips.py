"""Confirms the flips that a report shows: solves fleets again just before each flip and at the flip."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix, Restriction
from penstock.planning.uncertainty.near_flips import find_unrefuted_flips, nearest_flips, without_refuted_fleets
from penstock.planning.uncertainty.plan_headroom import LOADING
from penstock.planning.uncertainty.sensitivity import Flip, Judge, nearest_first
from penstock.planning.uncertainty.solve_again import Sized, as_solved, solve_each
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob

_ROUNDS: Final = 6
_SEARCH_NODES: Final = 200
_HAIR: Final = 0.002
"""Minimum relative saving for a fleet to count as cheaper; the solver and the flips are no more precise than this."""
_JUST_BEFORE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Input values near a flip, and the label of the fleet that is cheapest at these values among the known fleets."""

    knob: Knob
    value: float
    winner: str
    only: Restriction
    """Limits the solver to the fleets that could replace `winner` as the cheapest."""


def settled_flips(
    judge: Judge, world: InputWorld, knobs: Sequence[Knob], sized: Sized = as_solved, sized_quickly: Sized | None = None
) -> tuple[tuple[Flip, ...], Family]:
    """Find the flips, and confirm the nearest flips by solving again; also return the family with the fleets found.

    The known fleets were solved for the plan's values. Just before a flip, a fleet not seen before may be cheaper than
    the winner; then the true flip is nearer. At the flip, the winner's label may have a cheaper fleet; then the true
    flip is farther away, or there is no flip. Fleets found in this way join the family, and the nearest flips are
    searched again until no new fleet is found or six rounds are done. `sized_quickly` sizes fleets of which only the
    cost is needed, not the margins with which they are resized later.
    """
    quickly = sized_quickly or sized
    by_id = {knob.id: knob for knob in knobs}
    loading = [knob for knob in knobs if knob.kind in LOADING]
    judge = without_refuted_fleets(judge, world, loading, quickly)
    judge, found = find_unrefuted_flips(judge, world, knobs, quickly)
    settled: set[Flip] = set()
    for _ in range(_ROUNDS):
        open_ones = [flip for flip in nearest_flips(found) if flip not in settled]
        if not open_ones:
            break
        contradictions = _contradicting_fleets(judge, world, by_id, open_ones, (quickly, sized))
        settled |= {flip for flip in open_ones if flip not in contradictions}
        if contradictions:
            family = judge.family.joined_by(mix for mixes in contradictions.values() for mix in mixes)
            if len(family.of_other_worlds) == len(judge.family.of_other_worlds):
                break
            reopened = {(flip.id, flip.side) for flip in contradictions}
            refuted = {at: value for at, value in judge.refuted_until.items() if at not in reopened}
            judge = replace(judge, family=family, refuted_until=refuted)
            moved = {flip.id for flip in nearest_flips(found)}
            judge, again = find_unrefuted_flips(judge, world, [knob for knob in knobs if knob.id in moved], quickly)
            found = nearest_first((*again, *(flip for flip in found if flip.id not in moved)))
    return tuple(replace(flip, solved=flip.kind == "delivery" or flip in settled) for flip in found), judge.family


def _contradicting_fleets(
    judge: Judge, world: InputWorld, by_id: Mapping[str, Knob], found: Sequence[Flip], sizings: Sequence[Sized]
) -> Mapping[Flip, Sequence[Mix]]:
    """Solve near each flip, and return the fleets that would move the flip even after sizing by simulation.

    A fleet must move the flip with every way of sizing; it is returned as the last one sizes it.
    """
    places = [(flip, place) for flip in found for place in _places_near(judge, by_id[flip.id], flip)]
    problems = [place.knob.apply(world, place.value).problem(judge.candidates) for _, place in places]
    restricted = [(problem, place.only) for problem, (_, place) in zip(problems, places, strict=True)]
    solved = solve_each(judge.family, restricted, search_nodes=_SEARCH_NODES)
    contradictions: dict[Flip, list[Mix]] = {}
    for (flip, place), problem, mix in zip(places, problems, solved, strict=True):
        if mix is None or judge.family.label(mix) == place.winner:
            continue
        least_usd = (1 - _HAIR) * judge.costs_at(world, place.knob, place.value).get(place.winner, inf)
        if mix.cost_usd >= least_usd:
            continue
        fleet: Mix | None = mix
        for sized in sizings:
            fleet = sized(mix, problem)
            if fleet is None or judge.family.label(fleet) == place.winner or fleet.cost_usd >= least_usd:
                fleet = None
                break
        if fleet is not None:
            contradictions.setdefault(flip, []).append(fleet)
    return contradictions


def _places_near(judge: Judge, knob: Knob, flip: Flip) -> Iterator[_Place]:
    """Yield input values just before a flip, to solve for any fleet, and at it, to solve for the winner's label."""
    before = flip.at + _JUST_BEFORE * (flip.current - flip.at)
    yield _Place(knob=knob, value=before, winner=flip.winner, only=Restriction())
    own = judge.family.restriction(flip.winner)
    yield _Place(knob=knob, value=flip.at, winner=flip.instead, only=own)
