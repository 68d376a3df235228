"""Confirms the flips that a report shows: solves fleets again just before each flip and at the flip."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix, Restriction
from penstock.planning.optimizer.resize_fleet import one_world, resized_usd
from penstock.planning.uncertainty.plan_headroom import LOADING
from penstock.planning.uncertainty.sensitivity import Flip, Judge, flips, nearest_first
from penstock.planning.uncertainty.solve_again import Sized, as_solved, solve_each
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob

SETTLED: Final = 6
"""Number of inputs whose flips are confirmed: the inputs with the nearest flips, as many as a report shows."""
_ROUNDS: Final = 6
_SEARCH_NODES: Final = 200
_HAIR: Final = 0.002
"""Minimum relative saving for a fleet to count as cheaper; the solver and the flips are no more precise than this."""
_JUST_BEFORE: Final = 0.01
_REFUTED_ROUNDS: Final = 2
_NEAR: Final = 0.05
"""Distance of a flip from the plan's value, relative to that value, within which the other fleet is simulated."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Input values near a flip, and the label of the fleet that is cheapest at these values among the known fleets."""

    world: InputWorld
    knob: Knob
    winner: str
    only: Restriction
    """Limits the solver to the fleets that could replace `winner` as the cheapest."""


def settled_flips(
    judge: Judge, world: InputWorld, knobs: Sequence[Knob], sized: Sized = as_solved
) -> tuple[tuple[Flip, ...], Family]:
    """Find the flips, and confirm the nearest flips by solving again; also return the family with the fleets found.

    The known fleets were solved for the plan's values. Just before a flip, a fleet not seen before may be cheaper than
    the winner; then the true flip is nearer. At the flip, the winner's label may have a cheaper fleet; then the true
    flip is farther away, or there is no flip. Fleets found in this way join the family, and the nearest flips are
    searched again until no new fleet is found or six rounds are done.
    """
    by_id = {knob.id: knob for knob in knobs}
    judge, found = _without_refuted_flips(judge, world, knobs, sized)
    settled: set[Flip] = set()
    for _ in range(_ROUNDS):
        open_ones = [flip for flip in _nearest_flips(found) if flip not in settled]
        if not open_ones:
            break
        contradictions = _contradicting_fleets(judge, world, by_id, open_ones, sized)
        settled |= {flip for flip in open_ones if flip not in contradictions}
        if contradictions:
            family = judge.family.joined_by(mix for mixes in contradictions.values() for mix in mixes)
            if len(family.of_other_worlds) == len(judge.family.of_other_worlds):
                break
            judge = replace(judge, family=family)
            moved = {flip.id for flip in _nearest_flips(found)}
            again = flips(judge, world, [knob for knob in knobs if knob.id in moved])
            found = nearest_first((*again, *(flip for flip in found if flip.id not in moved)))
    return tuple(replace(flip, solved=flip.kind == "delivery" or flip in settled) for flip in found), judge.family


def _without_refuted_flips(
    judge: Judge, world: InputWorld, knobs: Sequence[Knob], sized: Sized
) -> tuple[Judge, tuple[Flip, ...]]:
    """Find the flips, and drop fleets of other inputs that cause a near flip but miss the SLO there in simulation.

    Such a fleet was only resized, never simulated. Close to the plan's own inputs, a resized fleet may seem cheaper
    although the plan's own search has ruled it out.
    """
    by_id, found = {knob.id: knob for knob in knobs}, flips(judge, world, knobs)
    for _ in range(_REFUTED_ROUNDS):
        near = [flip for flip in _nearest_flips(found) if flip.kind in LOADING and flip.distance_fraction < _NEAR]
        refuted = {id(mix) for flip in near for mix in _refuted_at(judge, world, by_id[flip.id], flip, sized)}
        if not refuted:
            break
        kept = tuple(mix for mix in judge.family.of_other_worlds if id(mix) not in refuted)
        judge = replace(judge, family=replace(judge.family, of_other_worlds=kept))
        moved = {flip.id for flip in near}
        again = flips(judge, world, [knob for knob in knobs if knob.id in moved])
        found = nearest_first((*again, *(flip for flip in found if flip.id not in moved)))
    return judge, found


def _refuted_at(judge: Judge, world: InputWorld, knob: Knob, flip: Flip, sized: Sized) -> Iterator[Mix]:
    """Yield the fleets of other inputs that seem cheaper than the winner at a flip, but cost more after simulation.

    The cheapest is simulated first. If one of them is really cheaper, the flip stands.
    """
    changed, family = knob.apply(world, flip.at), judge.family
    plain, problem = build_problem(changed.resolved, judge.candidates), changed.problem(judge.candidates)
    winner_usd = judge.costs(changed, knob.kind).get(flip.winner, inf)
    priced = [
        (float(resized_usd(mix, plain, one_world(changed.capacity))[0]), mix)
        for mix in family.of_other_worlds
        if family.label(mix) == flip.instead
    ]
    for usd, mix in sorted(priced, key=lambda entry: entry[0]):
        if usd >= winner_usd:
            break
        fleet = sized(mix, problem)
        if fleet is not None and fleet.cost_usd < winner_usd:
            break
        yield mix


def _nearest_flips(found: Sequence[Flip]) -> Iterator[Flip]:
    """Return the flips of the `SETTLED` inputs with the nearest flips, without flips of delivery dates.

    Flips of delivery dates need no confirmation, because fleets are always solved again for them.
    """
    nearest = tuple(dict.fromkeys(flip.id for flip in found))[:SETTLED]
    return (flip for flip in found if flip.id in nearest and flip.kind != "delivery")


def _contradicting_fleets(
    judge: Judge, world: InputWorld, by_id: Mapping[str, Knob], found: Sequence[Flip], sized: Sized
) -> Mapping[Flip, Sequence[Mix]]:
    """Solve near each flip, and return the fleets that would move the flip even after sizing by simulation."""
    places = [(flip, place) for flip in found for place in _places_near(judge, world, by_id[flip.id], flip)]
    problems = [place.world.problem(judge.candidates) for _, place in places]
    restricted = [(problem, place.only) for problem, (_, place) in zip(problems, places, strict=True)]
    solved = solve_each(judge.family, restricted, search_nodes=_SEARCH_NODES)
    contradictions: dict[Flip, list[Mix]] = {}
    for (flip, place), problem, mix in zip(places, problems, solved, strict=True):
        if mix is None or judge.family.label(mix) == place.winner:
            continue
        least_usd = (1 - _HAIR) * judge.costs(place.world, place.knob.kind).get(place.winner, inf)
        if mix.cost_usd < least_usd:
            fleet = sized(mix, problem)
            if fleet is not None and judge.family.label(fleet) != place.winner and fleet.cost_usd < least_usd:
                contradictions.setdefault(flip, []).append(fleet)
    return contradictions


def _places_near(judge: Judge, world: InputWorld, knob: Knob, flip: Flip) -> Iterator[_Place]:
    """Yield input values just before a flip, to solve for any fleet, and at it, to solve for the winner's label."""
    before = flip.at + _JUST_BEFORE * (flip.current - flip.at)
    yield _Place(world=knob.apply(world, before), knob=knob, winner=flip.winner, only=Restriction())
    own = judge.family.restriction(flip.winner)
    yield _Place(world=knob.apply(world, flip.at), knob=knob, winner=flip.instead, only=own)
