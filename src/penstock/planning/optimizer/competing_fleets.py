"""Which fleets compete? The winner, its runners-up, the best of each vendor, the best mix and every part alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Final

import numpy as np

from penstock.planning.candidates.candidate_search import Step
from penstock.planning.in_parallel import in_parallel
from penstock.planning.optimizer.cheapest_mix import cheapest, runners_up
from penstock.planning.optimizer.problem import Mix, PoolKey, Problem, Restriction
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import Worlds, resized_usd

NOTHING: Final = "nothing"
"""Stands for a label where no fleet keeps every rule."""
COMPETING = ("amd", "nvidia")
"""The vendors whose mix is asked for even where it does not win."""
_HOPELESS: Final = 2.0
_FIRST, _WHOLE, _NEXT = "cheapest fleet", "without pools apart", "runners-up"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Fleets that stay in the race when inputs move."""

    winner: Mix
    runners_up: tuple[Mix, ...]
    others: tuple[Mix, ...]
    """The best of each vendor alone, the best mix, and every part alone, as far as such a fleet keeps the rules."""
    by_vendor: bool
    """Whether vendors compete; where all parts are of one vendor, sets of parts do."""
    of_other_worlds: tuple[Mix, ...] = ()
    """Fleets that are cheapest in some other world: priced in every world, though never the answer in this one."""
    carried: Mapping[PoolKey, float] = field(default_factory=dict)
    """What replicas were seen to carry in simulation beside their rates; empty before it."""

    @property
    def fleets(self) -> tuple[Mix, ...]:
        """All of them, each once."""
        seen: dict[tuple[object, ...], Mix] = {}
        for mix in (self.winner, *self.runners_up, *self.others):
            seen.setdefault(mix.identity, mix)
        return tuple(seen.values())

    def led_by(self, mix: Mix) -> "Family":
        """Return the same fleets with another winner."""
        if mix.identity == self.winner.identity:
            return self
        rest = (self.winner, *self.runners_up)
        return replace(self, winner=mix, runners_up=tuple(entry for entry in rest if entry.identity != mix.identity))

    def each(self, change: Callable[[Mix], Mix | None]) -> "Family":
        """Return the family with every fleet changed; one of which nothing is left is gone, but for the winner."""
        return replace(
            self,
            winner=change(self.winner) or self.winner,
            runners_up=tuple(found for mix in self.runners_up if (found := change(mix)) is not None),
            others=tuple(found for mix in self.others if (found := change(mix)) is not None),
        )

    def with_others(self, fleets: Iterable[Mix]) -> "Family":
        """Return the family with further fleets that compete."""
        return replace(self, others=(*self.others, *fleets))

    def joined_by(self, fleets: Iterable[Mix]) -> "Family":
        """Return the family with fleets that were cheapest in other worlds, each once."""
        seen = {mix.identity: mix for mix in (*self.of_other_worlds, *fleets)}
        return replace(self, of_other_worlds=tuple(seen.values()))

    def informed(self, problem: Problem) -> Problem:
        """Return a problem in which replicas carry what they were seen to: fleets nobody simulated, on one basis."""
        return replace(problem, carried=self.carried)

    def competing(self) -> "Family":
        """Leave out fleets at more than twice the cost of another of their label: no doubt of ours makes them win."""
        best = {label: mix.cost_usd for label, mix in self.by_label.items()}
        return replace(
            self, others=tuple(mix for mix in self.others if mix.cost_usd <= _HOPELESS * best[self.label(mix)])
        )

    @property
    def support(self) -> frozenset[str]:
        """Every part some fleet is made of."""
        return frozenset(part for mix in self.fleets for part in mix.support)

    def label(self, mix: Mix) -> str:
        """What a fleet competes as: its vendor or `mix`, or its parts."""
        return mix.label if self.by_vendor else " + ".join(sorted(mix.support))

    @property
    def named_by(self) -> Mapping[str, tuple[str, ...]]:
        """What each label stands for: a vendor or `mix`, or accelerators."""
        found: dict[str, tuple[str, ...]] = {}
        for mix in (*self.fleets, *self.of_other_worlds):
            label = self.label(mix)
            found[label] = (label,) if self.by_vendor else tuple(sorted(mix.support))
        return found

    def restriction(self, label: str) -> Restriction:
        """What keeps a problem to the fleets of a label; of a set of parts also those that have fewer of them."""
        if not self.by_vendor:
            return Restriction(only_accelerators=frozenset(self.named_by[label]))
        if label == "mix":
            return Restriction(require_vendors=frozenset(COMPETING))
        return Restriction(only_vendors=frozenset({label}))

    @property
    def by_label(self) -> Mapping[str, Mix]:
        """The cheapest fleet of each label, the cheapest label first."""
        found: dict[str, Mix] = {self.label(self.winner): self.winner}
        for mix in sorted(self.fleets, key=lambda entry: entry.cost_usd):
            found.setdefault(self.label(mix), mix)
        return found

    def signed_costs(self, problem: Problem, worlds: Worlds) -> dict[str, Array]:
        """What the fleet of each label that is cheapest as estimated costs in every world.

        It is chosen today: were the best of each world taken, the label with more parts would win by hindsight. Only a
        label that has no fleet as estimated is represented by those it has elsewhere.
        """
        found = {label: resized_usd(mix, problem, worlds) for label, mix in self.by_label.items()}
        return self.costs(problem, worlds) | found if self._elsewhere else found

    @property
    def _elsewhere(self) -> bool:
        return any(self.label(mix) not in self.by_label for mix in self.of_other_worlds)

    def costs(self, problem: Problem, worlds: Worlds) -> dict[str, Array]:
        """The cheapest fleet of each label in every world: what the plan would answer there."""
        found: dict[str, Array] = {}
        for mix in (*self.fleets, *self.of_other_worlds):
            usd, label = resized_usd(mix, problem, worlds), self.label(mix)
            found[label] = np.minimum(found.get(label, np.full(worlds.count, inf)), usd)
        return found


def find_family(
    problem: Problem, *, runner_up_count: int, may_carry: float | None = None, step: Step = lambda _: None
) -> Family | None:
    """Solve every question once; None where no fleet at all keeps the rules.

    Every fleet solved keeps the rules of the problem, so the winner is the cheapest of them all: a solver that stops
    within its gap, or is wrong, on one question is corrected by the others. Where limits leave a question without an
    answer, it is asked again with replicas that carry `may_carry` times as much: simulation says whether they do.
    """
    solved = _solved(_asked(problem), step)
    if may_carry is not None and (problem.site_watts or problem.max_nodes):
        hopeful = _asked(problem.each_carrying(may_carry))
        solved |= _solved({name: asked for name, asked in hopeful.items() if solved[name] is None}, step)
    fleets = tuple(mix for mix in solved.values() if mix is not None)
    if not fleets:
        return None
    step(_NEXT)
    first = min(fleets, key=lambda mix: mix.cost_usd)
    following = runners_up(problem, first, count=runner_up_count)
    vendors = {offer.vendor for offer in problem.offers}
    family = Family(winner=first, runners_up=following, others=fleets, by_vendor=len(vendors) > 1)
    return family.led_by(min(family.fleets, key=lambda mix: mix.cost_usd))


def _solved(asked: Mapping[str, tuple[Problem, Restriction]], step: Step) -> dict[str, Mix | None]:
    """Answer questions that do not hang on each other."""
    found: dict[str, Mix | None] = {}
    for name, mix in zip(asked, in_parallel([partial(cheapest, *entry) for entry in asked.values()]), strict=True):
        step(name)
        found[name] = mix
    return found


def _asked(problem: Problem) -> dict[str, tuple[Problem, Restriction]]:
    """Every question, by name: without pools apart first, so that where both cost the same no prompt is apart."""
    whole = {} if problem.whole is problem else {_WHOLE: (problem.whole, Restriction())}
    alone = {name: (problem, restriction) for name, restriction in questions(problem)}
    return {**whole, _FIRST: (problem, Restriction()), **alone}


def questions(problem: Problem) -> Iterator[tuple[str, Restriction]]:
    """Each vendor alone, a mix of the two that compete unless every fleet must be one, each part alone."""
    vendors = tuple(dict.fromkeys(offer.vendor for offer in problem.offers))
    for vendor in vendors:
        yield f"{vendor} alone", Restriction(only_vendors=frozenset({vendor}))
    if set(COMPETING) <= set(vendors) and not (set(COMPETING) == set(vendors) and problem.min_vendors > 1):
        yield "a mix", Restriction(require_vendors=frozenset(COMPETING))
    for accelerator in dict.fromkeys(offer.accelerator for offer in problem.offers):
        yield f"{accelerator} alone", Restriction(only_accelerators=frozenset({accelerator}))


def steps_of(problem: Problem) -> tuple[str, ...]:
    """What `find_family` will say, for a progress bar."""
    return (*_asked(problem), _NEXT)


def cheapest_label(costs: Mapping[str, float]) -> str:
    """The label with the least cost; the first by name where two are equal, none of them where all are infinite."""
    least = min(sorted(costs), key=lambda label: costs[label])
    return NOTHING if costs[least] == inf else least


def best_other(costs: Mapping[str, float], label: str) -> float:
    """The least cost without a label; infinite where nothing else competes."""
    return min((usd for name, usd in costs.items() if name != label), default=inf)
