"""Which fleets compete? The winner, its runners-up, the best of each vendor, the best mix and every part alone."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from penstock.planning.mix import cheapest, runners_up
from penstock.planning.problem import Mix, Problem, Restriction
from penstock.planning.resize import Array, Worlds, resized_usd

MIX = "mix"
COMPETING = ("amd", "nvidia")
"""The vendors whose mix is asked for even where it does not win."""
Step = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Fleets that stay in the race when inputs move."""

    winner: Mix
    runners_up: tuple[Mix, ...]
    by_label: Mapping[str, Mix]
    """The best fleet of each vendor alone, and the best mix; missing where no such fleet keeps the rules."""
    others: tuple[Mix, ...]

    @property
    def fleets(self) -> tuple[Mix, ...]:
        """All of them, each once."""
        seen: dict[tuple[object, ...], Mix] = {}
        for mix in (self.winner, *self.runners_up, *self.by_label.values(), *self.others):
            key = (mix.support, round(mix.cost_usd), tuple(sorted(mix.purchases)))
            seen.setdefault(key, mix)
        return tuple(seen.values())

    @property
    def labels(self) -> tuple[str, ...]:
        """Vendors and `mix`, as far as they compete."""
        return tuple(dict.fromkeys(mix.label for mix in self.fleets))

    def costs(self, problem: Problem, worlds: Worlds) -> dict[str, Array]:
        """The cheapest fleet of each label in every world."""
        found: dict[str, Array] = {}
        for mix in self.fleets:
            usd = resized_usd(mix, problem, worlds)
            found[mix.label] = np.minimum(found.get(mix.label, np.full(worlds.count, inf)), usd)
        return found


def find_family(problem: Problem, *, runner_up_count: int, step: Step = lambda _: None) -> Family | None:
    """Solve every question once; None where no fleet at all keeps the rules."""
    step("cheapest fleet")
    winner = cheapest(problem)
    if winner is None:
        return None
    step("runners-up")
    following = runners_up(problem, winner, count=runner_up_count)
    by_label = {winner.label: winner}
    vendors = tuple(dict.fromkeys(offer.vendor for offer in problem.offers))
    for vendor in vendors:
        step(f"{vendor} alone")
        _keep(by_label, vendor, cheapest(problem, Restriction(only_vendors=frozenset({vendor}))))
    if set(COMPETING) <= set(vendors):
        step("a mix")
        _keep(by_label, MIX, cheapest(problem, Restriction(require_vendors=frozenset(COMPETING))))
    others = []
    for accelerator in dict.fromkeys(offer.accelerator for offer in problem.offers):
        step(f"{accelerator} alone")
        alone = cheapest(problem, Restriction(only_accelerators=frozenset({accelerator})))
        others += [alone] if alone is not None else []
    return Family(winner=winner, runners_up=following, by_label=by_label, others=tuple(others))


def _keep(found: dict[str, Mix], label: str, mix: Mix | None) -> None:
    if mix is not None and mix.label == label and label not in found:
        found[label] = mix


def cheapest_label(costs: Mapping[str, float]) -> str:
    """The label with the least cost; the first by name where two are equal."""
    return min(sorted(costs), key=lambda label: costs[label])


def best_other(costs: Mapping[str, float], label: str) -> float:
    """The least cost without a label; infinite where nothing else competes."""
    return min((usd for name, usd in costs.items() if name != label), default=inf)


def steps_of(problem: Problem) -> Iterable[str]:
    """What `find_family` will say, for a progress bar."""
    vendors = tuple(dict.fromkeys(offer.vendor for offer in problem.offers))
    yield from ("cheapest fleet", "runners-up", *(f"{vendor} alone" for vendor in vendors))
    if set(COMPETING) <= set(vendors):
        yield "a mix"
    yield from (f"{name} alone" for name in dict.fromkeys(offer.accelerator for offer in problem.offers))
