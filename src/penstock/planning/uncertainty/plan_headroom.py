"""Computes the capacity that a fleet needs beyond the estimated load to be enough with the plan's confidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

import numpy as np

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.problem import Headroom, Problem
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import Worlds
from penstock.planning.optimizer.serve_draws import LoadDraws
from penstock.planning.spec.resolve_plan import LeftOut, Resolved
from penstock.planning.uncertainty.draw_inputs import draw_inputs
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, capacity_spreads, knobs_of

_DRAWS, _SEED = 8192, 0
LOADING: Final = ("throughput", "demand", "software_gain")
"""Kinds of input that change the load relative to capacity."""
_HOPELESS: Final = 100.0
"""Need above which a draw counts as equally difficult as one in which the candidate misses its SLO at any rate."""


@dataclass(frozen=True, kw_only=True)
class DrawnNeeds:
    """Demand relative to capacity in every draw, for each candidate and period; 1 at the estimated inputs.

    The value is infinite in draws in which the candidate misses its SLO at any rate.
    """

    needs: Mapping[tuple[str, int], Array]
    groups: tuple[tuple[str, ...], ...]
    """Candidates of one accelerator that serve together: the most efficient candidate of each workload."""
    group_of: Mapping[str, int]
    """Maps each candidate to the group of its accelerator."""
    worlds: Worlds
    """The demand and the capacity in every draw, at the plan's own prices."""

    def headroom(self, confidence: float) -> Headroom:
        """Return the headroom with which a fleet of one accelerator is enough with the given confidence.

        Every workload and every period must be served at once. Therefore each of them is planned for a level above the
        confidence if their needs are not fully correlated.
        """
        levels = [self._level(group, confidence) for group in self.groups]
        return {
            key: float(np.quantile(needs, levels[self.group_of[key[0]]], method="higher"))
            for key, needs in self.needs.items()
        }

    def _level(self, group: tuple[str, ...], confidence: float) -> float:
        """Return the lowest level at which all candidates of a group are enough at once with the given confidence."""
        needs = [needs for (name, _), needs in self.needs.items() if name in group]
        # The rank of a need is the number of smaller needs. A draw is served at the level of its highest rank.
        ranks = np.max([np.searchsorted(np.sort(drawn), drawn) for drawn in needs], axis=0)
        return float(np.quantile(ranks, confidence, method="higher") / max(1, len(ranks) - 1))

    def few(self, count: int, confidence: float) -> LoadDraws:
        """Return a sample of draws for an integer program, evenly spaced by the difficulty of the draw."""
        drawn = np.vstack([np.minimum(needs, _HOPELESS) for needs in self.needs.values()])
        order = np.argsort(np.log(drawn).mean(axis=0), kind="stable")
        chosen = order[((np.arange(count) + 0.5) / count * len(order)).astype(int)]
        sample = {key: needs[chosen] for key, needs in self.needs.items()}
        return LoadDraws(needs=sample, required=ceil(confidence * count))


def draw_needs(resolved: Resolved, candidates: Sequence[Candidate], *, known: Sequence[Knob] = ()) -> DrawnNeeds:
    """Draw prediction errors, demand and software gains, and compute how much load each candidate gets.

    Inputs in `known` are not drawn. The draws do not depend on the plan's seed, so that a plan with another seed has
    the same headroom.
    """
    world, ids = InputWorld(resolved=resolved), {knob.id for knob in known}
    found = knobs_of(resolved, capacity_spreads(candidates))
    knobs = [knob for knob in found if knob.kind in LOADING and knob.id not in ids]
    drawn = draw_inputs(knobs, _SEED, _DRAWS)
    problem = build_problem(resolved, candidates)
    worlds = drawn_worlds(world, candidates, problem, drawn.values, drawn.knobs, errors=drawn.errors)
    needs = {
        (entry.id, period): _need(entry, period, worlds) for entry in candidates for period in range(problem.periods)
    }
    accelerators = list(dict.fromkeys(entry.accelerator.id for entry in candidates))
    return DrawnNeeds(
        needs=needs,
        groups=tuple(_serving_together(ident, candidates, problem, needs) for ident in accelerators),
        group_of={entry.id: accelerators.index(entry.accelerator.id) for entry in candidates},
        worlds=worlds,
    )


def with_known(world: InputWorld, candidates: Sequence[Candidate], known: Sequence[Knob]) -> InputWorld:
    """Return the world with the headroom that remains if the values of some inputs are known."""
    needs = draw_needs(world.resolved, candidates, known=known)
    found = needs.headroom(world.resolved.plan.constraints.confidence)
    headroom = {key: min(factor, _HOPELESS) for key, factor in found.items()}
    return replace(world, resolved=replace(world.resolved, headroom=headroom))


def _need(candidate: Candidate, period: int, worlds: Worlds) -> Array:
    one = np.ones(worlds.count)
    asked = worlds.demand.get((candidate.workload, period), one)
    gain = worlds.gain.get((candidate.accelerator.id, period), one)
    speed = worlds.speed.get(candidate.id, one)
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(asked, gain * speed))


def _serving_together(
    accelerator: str, candidates: Sequence[Candidate], problem: Problem, needs: Mapping[tuple[str, int], Array]
) -> tuple[str, ...]:
    """Return the candidate of each workload that needs the fewest devices on an accelerator, with its headroom."""
    devices = {kind.id: problem.replicas_alone(kind) * kind.devices for kind in problem.replicas}
    best: dict[str, tuple[float, str]] = {}
    for entry in candidates:
        if entry.accelerator.id == accelerator:
            typical = float(np.quantile(needs[entry.id, 0], 0.8, method="higher"))
            asked = devices[entry.id] * typical
            best[entry.workload] = min(best.get(entry.workload, (inf, entry.id)), (asked, entry.id))
    return tuple(name for _, name in best.values())


@dataclass(frozen=True, kw_only=True)
class Confident:
    """A plan with its headroom, and the candidates that can be enough with the plan's confidence."""

    resolved: Resolved
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...] = ()
    needs: DrawnNeeds | None = None
    """The draws from which the headroom follows; None if there are no candidates."""


def plan_headroom(resolved: Resolved, candidates: tuple[Candidate, ...]) -> Confident:
    """Compute the headroom of a plan, and leave out candidates that miss their SLO in too many draws."""
    if not candidates:
        return Confident(resolved=resolved, candidates=candidates)
    confidence = resolved.plan.constraints.confidence
    loads = draw_needs(resolved, candidates)
    headroom = loads.headroom(confidence)
    unsure = {name for (name, _), factor in headroom.items() if factor == inf}
    kept = tuple(entry for entry in candidates if entry.id not in unsure)
    served = {(entry.workload, entry.accelerator.id) for entry in kept}
    left_out = {
        (entry.workload, entry.accelerator.id): entry
        for entry in candidates
        if (entry.workload, entry.accelerator.id) not in served
    }
    known = {key: factor for key, factor in headroom.items() if key[0] not in unsure}
    return Confident(
        resolved=replace(resolved, headroom=known),
        candidates=kept,
        left_out=tuple(_unsure(entry, loads) for entry in left_out.values()),
        needs=loads,
    )


def _unsure(candidate: Candidate, loads: DrawnNeeds) -> LeftOut:
    kept = float(np.mean(np.isfinite(loads.needs[candidate.id, 0])))
    return LeftOut(
        what=f"{candidate.workload} on {candidate.accelerator.id}",
        why=f"keeps the SLO in {kept:.0%} of the cases only: the predicted speed is too uncertain",
    )
