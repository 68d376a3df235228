"""Plans again on both sides of the flips that a report shows: a flip that does not hold there is not printed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from penstock.planning.optimizer.competing_fleets import NOTHING
from penstock.planning.optimizer.problem import Restriction
from penstock.planning.optimizer.resize_fleet import one_world, resized_usd
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.spec.sourced_inputs import Input
from penstock.planning.uncertainty.near_flips import nearest_flips
from penstock.planning.uncertainty.plan_headroom import LOADING
from penstock.planning.uncertainty.scenarios import Replanned
from penstock.planning.uncertainty.sensitivity import Flip, Judge
from penstock.planning.uncertainty.solve_again import Sized, size_solved, solve_each
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob

_BESIDE: Final = 0.01
"""Distance from a flip, relative to its value, at which fleets are planned again: beyond the precision of a flip."""
_SEARCH_NODES: Final = 200


@dataclass(frozen=True, kw_only=True)
class Replanning:
    """Plans the inputs of a plan again with another demand, whose candidates are not those of the plan."""

    resolved: Resolved
    of: Replanned

    def label(self, knob: Knob, value: float) -> str:
        """Return the label of the cheapest fleet at a value of a demand; the demand's range moves with it."""
        now, plan = knob.input, self.resolved.plan

        def move(entry: WorkloadPlan) -> WorkloadPlan:
            if knob.path[-1] == "demand":
                return replace(entry, demand=_times(now, value / now.value))
            return replace(entry, growth_per_year=_plus(now, value - now.value))

        workloads = tuple(
            move(entry) if number == knob.path[-2] else entry for number, entry in enumerate(plan.workloads)
        )
        family = self.of(replace(self.resolved, plan=replace(plan, workloads=workloads)))
        return NOTHING if family is None else family.label(family.winner)


def _times(now: Input, factor: float) -> Input:
    return replace(now, value=now.value * factor, low=now.low * factor, high=now.high * factor)


def _plus(now: Input, by: float) -> Input:
    return replace(now, value=now.value + by, low=now.low + by, high=now.high + by)


def flips_after_replanning(
    found: Sequence[Flip],
    judge: Judge,
    world: InputWorld,
    knobs: Sequence[Knob],
    sized: Sized,
    again: Replanning,
) -> tuple[Flip, ...]:
    """Return the flips without those beyond which the winner stays cheapest if fleets are planned again there.

    A flip counts as solved only if the winner is also cheapest on the near side. Flips that no report shows are kept
    as they are, and delivery dates are always solved.
    """
    by_id, shown = {knob.id: knob for knob in knobs}, {id(flip) for flip in nearest_flips(found)}

    def label_at(flip: Flip, value: float) -> str:
        knob = by_id[flip.id]
        return again.label(knob, value) if knob.kind == "demand" else _label(judge, world, knob, value, sized)

    def that_hold() -> Iterator[Flip]:
        for flip in found:
            if id(flip) not in shown:
                yield flip
                continue
            near, far = _beside(flip, by_id[flip.id])
            instead = label_at(flip, far)
            if instead != judge.winner:
                named = judge.family.named_by.get(instead, (instead,) if instead != NOTHING else ())
                holds = flip.solved and label_at(flip, near) == judge.winner
                yield replace(flip, instead=instead, instead_named=named, solved=holds)

    return tuple(that_hold())


def _beside(flip: Flip, knob: Knob) -> tuple[float, float]:
    """Return a value on each side of a flip: nearer to the plan's value, and farther away."""
    away = 1.0 if flip.side == "above" else -1.0
    step = _BESIDE * max(abs(flip.at), 1e-9)
    near = flip.at - away * min(step, abs(flip.at - flip.current) / 2)
    return near, min(max(flip.at + away * step, knob.minimum), knob.maximum)


def _label(judge: Judge, world: InputWorld, knob: Knob, value: float, sized: Sized) -> str:
    """Return the label of the cheapest fleet at a value of an input, among fleets that are solved there.

    Without a changed load, the winner still serves with its own nodes, so it is priced as it is: no restriction of the
    program describes a mix in which one vendor carries less than its minimum share.
    """
    family, changed = judge.family, knob.apply(world, value)
    problem = changed.problem(judge.candidates)
    labels = [Restriction(), *(family.restriction(label) for label in family.named_by)]
    solved = solve_each(family, [(problem, only) for only in labels], search_nodes=_SEARCH_NODES)
    fleets = [size_solved(mix, problem, sized) for mix in solved]
    costs = {NOTHING: inf}
    for mix in fleets:
        if mix is not None:
            costs[family.label(mix)] = min(costs.get(family.label(mix), inf), mix.cost_usd)
    if knob.kind not in LOADING:
        own = float(resized_usd(family.winner, problem, one_world(changed.capacity))[0])
        costs[judge.winner] = min(costs.get(judge.winner, inf), own)
    return min(costs, key=lambda label: costs[label])
