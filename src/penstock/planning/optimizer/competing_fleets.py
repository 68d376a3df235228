"""Finds competing fleets: winner, runners-up, and the best fleet of each vendor, each accelerator and a vendor mix."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Final

import numpy as np

from penstock.planning.in_parallel import in_parallel
from penstock.planning.optimizer.cheapest_mix import cheapest, runners_up
from penstock.planning.optimizer.problem import Mix, PoolKey, Problem, Restriction
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import Worlds, resized_usd, signed_usd

NOTHING: Final = "nothing"
"""Label for the case that no fleet satisfies every rule."""
COMPETING = ("amd", "nvidia")
"""The two vendors for which the best mixed fleet is computed, even if this mixed fleet does not win."""
_HOPELESS: Final = 2.0
Step = Callable[[str], None]
"""Progress callback, called with the name of the next stage."""
_FIRST, _WHOLE, _NEXT = "cheapest fleet", "without disaggregated units", "runners-up"


@dataclass(frozen=True, kw_only=True)
class Family:
    """The competing fleets of a plan, which are priced and compared again whenever inputs change."""

    winner: Mix
    runners_up: tuple[Mix, ...]
    others: tuple[Mix, ...]
    """The best fleet of each vendor alone, the best mix, and the best fleet of each accelerator alone.

    Only fleets that satisfy the rules are included."""
    by_vendor: bool
    """Whether vendors compete; if all accelerators come from one vendor, sets of accelerators compete instead."""
    of_other_worlds: tuple[Mix, ...] = ()
    """Fleets that are cheapest if inputs change. These fleets are priced in every draw but are never the plan's
    answer."""
    carried: Mapping[PoolKey, float] = field(default_factory=dict)
    """Maps pool to the simulated capacity of its replicas relative to their estimates; empty before simulation."""

    @property
    def fleets(self) -> tuple[Mix, ...]:
        """Return all fleets solved for the plan's own inputs, each once."""
        seen: dict[tuple[object, ...], Mix] = {}
        for mix in (self.winner, *self.runners_up, *self.others):
            seen.setdefault(mix.identity, mix)
        return tuple(seen.values())

    def led_by(self, mix: Mix) -> "Family":
        """Return a copy of the family with the same fleets and the given winner."""
        if mix.identity == self.winner.identity:
            return self
        rest = (self.winner, *self.runners_up)
        return replace(self, winner=mix, runners_up=tuple(entry for entry in rest if entry.identity != mix.identity))

    def each(self, change: Callable[[Mix], Mix | None]) -> "Family":
        """Return the family with `change` applied to every fleet; fleets for which `change` returns None are dropped.

        The winner is never dropped: if `change` returns None for the winner, the winner stays unchanged.
        """
        return replace(
            self,
            winner=change(self.winner) or self.winner,
            runners_up=tuple(found for mix in self.runners_up if (found := change(mix)) is not None),
            others=tuple(found for mix in self.others if (found := change(mix)) is not None),
        )

    def with_others(self, fleets: Iterable[Mix]) -> "Family":
        """Return a copy of the family with more competing fleets."""
        return replace(self, others=(*self.others, *fleets))

    def joined_by(self, fleets: Iterable[Mix]) -> "Family":
        """Return a copy of the family with more fleets that are cheapest if inputs change; each fleet is added once."""
        seen = {mix.identity: mix for mix in (*self.of_other_worlds, *fleets)}
        return replace(self, of_other_worlds=tuple(seen.values()))

    def without_refuted(self, problem: Problem, own_inputs: Worlds) -> "Family":
        """Drop fleets of other inputs that seem cheaper than the winner at the plan's own inputs.

        The winner was found for these inputs and simulated, so a fleet of another label that is only resized and seems
        cheaper does not keep the SLO. With such a fleet, every input would seem to change the winner at once.
        """
        label, winner_usd = self.label(self.winner), float(resized_usd(self.winner, problem, own_inputs)[0])
        kept = tuple(
            mix
            for mix in self.of_other_worlds
            if self.label(mix) == label or float(resized_usd(mix, problem, own_inputs)[0]) >= winner_usd
        )
        return replace(self, of_other_worlds=kept)

    def with_simulated_capacities(self, problem: Problem) -> Problem:
        """Return the problem with simulated capacities of replicas, so that fleets are compared on the same basis."""
        return replace(problem, carried=self.carried)

    def competing(self) -> "Family":
        """Drop fleets that cost over twice as much as the cheapest fleet of their label.

        No modelled uncertainty makes such a fleet cheapest.
        """
        best = {label: mix.cost_usd for label, mix in self.by_label.items()}
        return replace(
            self, others=tuple(mix for mix in self.others if mix.cost_usd <= _HOPELESS * best[self.label(mix)])
        )

    @property
    def support(self) -> frozenset[str]:
        """Return every accelerator that at least one fleet uses."""
        return frozenset(accelerator for mix in self.fleets for accelerator in mix.support)

    def label(self, mix: Mix) -> str:
        """Return a fleet's label: its vendor or `mix` if vendors compete, otherwise its accelerators."""
        return mix.label if self.by_vendor else " + ".join(sorted(mix.support))

    @property
    def named_by(self) -> Mapping[str, tuple[str, ...]]:
        """Map each label to its meaning: a vendor or `mix` if vendors compete, otherwise a set of accelerators."""
        found: dict[str, tuple[str, ...]] = {}
        for mix in (*self.fleets, *self.of_other_worlds):
            label = self.label(mix)
            found[label] = (label,) if self.by_vendor else tuple(sorted(mix.support))
        return found

    def restriction(self, label: str) -> Restriction:
        """Return the restriction that limits a problem to the fleets of a label.

        If the label is a set of accelerators, fleets that use only some of these accelerators are allowed too.
        """
        if not self.by_vendor:
            return Restriction(only_accelerators=frozenset(self.named_by[label]))
        if label == "mix":
            return Restriction(require_vendors=frozenset(COMPETING))
        return Restriction(only_vendors=frozenset({label}))

    @property
    def by_label(self) -> Mapping[str, Mix]:
        """Map each label to its cheapest fleet; the winner's label comes first, and other labels are sorted by cost."""
        found: dict[str, Mix] = {self.label(self.winner): self.winner}
        for mix in sorted(self.fleets, key=lambda entry: entry.cost_usd):
            found.setdefault(self.label(mix), mix)
        return found

    def signed_costs(self, problem: Problem, worlds: Worlds) -> dict[str, Array]:
        """Map each label to the cost, in every draw, of its planned fleet and the nodes that the draw needs beyond it.

        A buyer must choose the fleet before the inputs are known. If the best fleet of each draw were used, a label
        with more accelerators would win by hindsight. Where a planned fleet cannot be enlarged, another fleet of its
        label joins it. A label without a fleet at the estimated inputs is represented by its fleets in
        `of_other_worlds`.
        """
        by_label: dict[str, list[Mix]] = {}
        for mix in (*self.fleets, *self.of_other_worlds):
            by_label.setdefault(self.label(mix), []).append(mix)
        found = {label: signed_usd(mix, by_label[label], problem, worlds) for label, mix in self.by_label.items()}
        return self.costs(problem, worlds) | found if self._elsewhere else found

    @property
    def _elsewhere(self) -> bool:
        return any(self.label(mix) not in self.by_label for mix in self.of_other_worlds)

    def costs(self, problem: Problem, worlds: Worlds) -> dict[str, Array]:
        """Map each label to the cost, in every draw, of its fleet that is cheapest in that draw."""
        return self.least_costs(lambda mix: resized_usd(mix, problem, worlds))

    def least_costs(self, usd_of: Callable[[Mix], Array]) -> dict[str, Array]:
        """Map each label to the lowest cost of its fleets in every draw; `usd_of` returns the costs of a fleet."""
        found: dict[str, Array] = {}
        for mix in (*self.fleets, *self.of_other_worlds):
            usd, label = usd_of(mix), self.label(mix)
            found[label] = np.minimum(found[label], usd) if label in found else usd
        return found


def find_family(
    problem: Problem, *, runner_up_count: int, may_carry: float | None = None, step: Step = lambda _: None
) -> Family | None:
    """Solve for every competing fleet; None if no fleet satisfies the rules.

    Every fleet solved satisfies the rules, so the winner is the cheapest of them all. If one solve stops within its
    optimality gap, or errs, another solve may find a cheaper fleet. If no fleet satisfies the limits, the solve is
    repeated with replicas that carry `may_carry` times their rates. Simulation then checks whether the replicas really
    carry `may_carry` times their rates.
    """
    solved = _solve_all(_problems_by_name(problem), step)
    if may_carry is not None and (problem.site_watts or problem.max_nodes):
        hopeful = _problems_by_name(problem.each_carrying(may_carry))
        solved |= _solve_all({name: asked for name, asked in hopeful.items() if solved[name] is None}, step)
    fleets = tuple(mix for mix in solved.values() if mix is not None)
    if not fleets:
        return None
    step(_NEXT)
    first = min(fleets, key=lambda mix: mix.cost_usd)
    following = runners_up(problem, first, count=runner_up_count)
    vendors = {offer.vendor for offer in problem.offers}
    family = Family(winner=first, runners_up=following, others=fleets, by_vendor=len(vendors) > 1)
    return family.led_by(min(family.fleets, key=lambda mix: mix.cost_usd))


def _solve_all(asked: Mapping[str, tuple[Problem, Restriction]], step: Step) -> dict[str, Mix | None]:
    """Run independent solves in parallel and return their fleets by name."""
    found: dict[str, Mix | None] = {}
    for name, mix in zip(asked, in_parallel([partial(cheapest, *entry) for entry in asked.values()]), strict=True):
        step(name)
        found[name] = mix
    return found


def _problems_by_name(problem: Problem) -> dict[str, tuple[Problem, Restriction]]:
    """Map a name to each optimization problem to solve.

    The problem without disaggregated units comes first, so that its fleet wins if costs are equal.
    """
    whole = {} if problem.whole is problem else {_WHOLE: (problem.whole, Restriction())}
    alone = {name: (problem, restriction) for name, restriction in questions(problem)}
    return {**whole, _FIRST: (problem, Restriction()), **alone}


def questions(problem: Problem) -> Iterator[tuple[str, Restriction]]:
    """Yield named restrictions: to each vendor alone, to a mix of AMD and NVIDIA, and to each accelerator alone.

    The mix is left out if the rules already require every fleet to be such a mix.
    """
    vendors = tuple(dict.fromkeys(offer.vendor for offer in problem.offers))
    for vendor in vendors:
        yield f"{vendor} alone", Restriction(only_vendors=frozenset({vendor}))
    if set(COMPETING) <= set(vendors) and not (set(COMPETING) == set(vendors) and problem.min_vendors > 1):
        yield "a mix", Restriction(require_vendors=frozenset(COMPETING))
    for accelerator in dict.fromkeys(offer.accelerator for offer in problem.offers):
        yield f"{accelerator} alone", Restriction(only_accelerators=frozenset({accelerator}))


def steps_of(problem: Problem) -> tuple[str, ...]:
    """Return the names of the steps that `find_family` reports to a progress bar."""
    return (*_problems_by_name(problem), _NEXT)


def cheapest_label(costs: Mapping[str, float]) -> str:
    """Return the label with the lowest cost (in a tie, the first by name), or `NOTHING` if every cost is infinite."""
    least = min(sorted(costs), key=lambda label: costs[label])
    return NOTHING if costs[least] == inf else least


def best_other(costs: Mapping[str, float], label: str) -> float:
    """Return the lowest cost among all labels except the given one; infinite if there is no other label."""
    return min((usd for name, usd in costs.items() if name != label), default=inf)
