"""Prices each rule by solving the plan without that rule, and solves the plan for low and for high demand."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from penstock.planning.optimizer.cheapest_mix import LOOSE, cheapest
from penstock.planning.optimizer.competing_fleets import NOTHING, Family
from penstock.planning.optimizer.problem import Mix, Offer, Problem, Restriction
from penstock.planning.optimizer.resize_fleet import Worlds, one_world, resized_usd
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.spec.sourced_inputs import Input
from penstock.planning.uncertainty.solve_again import Sized, as_solved, size_solved, solve_again, solve_each

_SEARCH_NODES: Final = 500
"""Limit on the solver's search tree; a result that is not proven within this limit is reported as a bound."""
_MAX_DECREASE, _WORTH_SAYING = 0.25, 0.01
"""Largest decrease of demand that is tried, and smallest saving, relative to the plan's cost, that is reported."""
_NO_CHEAPER: Final = 1.01
"""A fleet whose cost, relative to the winner's, is above this limit is not sized by simulation.

Such a fleet cannot affect the price of the rule.
"""


SPARES: Final = "the spares"
"""Name of the rule that every pool has spare units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePrice:
    """A rule of the plan, and how much the plan would save without that rule."""

    rule: str
    without_usd: float
    usd: float
    without: str
    """Accelerators of the cheapest fleet without the rule."""
    proven: bool = True
    """Whether it is proven that no fleet costs over 1% less than `without_usd`; otherwise `usd` is a lower bound."""
    usual: bool = False
    """Whether the rule is a default, not a rule that differs from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandScenario:
    """The cheapest fleet for the low, the stated or the high demand, if any fleet satisfies every rule."""

    name: Literal["low", "base", "high"]
    usd: float | None
    """Cost; None if no fleet satisfies every rule."""
    label: str
    accelerators: Mapping[str, int]
    """Devices by accelerator, in the largest period."""
    proven: bool = True
    """Whether it is proven that no fleet costs over 1% less than `usd`; otherwise `usd` is an upper bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedWorth:
    """Nodes owned already: the number of nodes kept, the cost of keeping one node, and the cost of a new node."""

    accelerator: str
    site: str
    nodes: int
    kept: tuple[int, ...]
    """Nodes kept, by period."""
    unit: str
    """What is counted: `node` or `device`."""
    keeping_usd: float
    """Cost of keeping one node to the end: the cost of running it, plus the price for which it could be sold today."""
    new_usd: float | None
    """Cost of a node bought in the first period and kept to the end; None if the accelerator cannot be bought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSaving:
    """The smallest decrease of demand that saves nodes."""

    less_fraction: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Use of the nodes owned already, and the cheapest fleet if no nodes were owned."""

    nodes: tuple[OwnedWorth, ...]
    without_usd: float | None
    """Cost of the cheapest fleet if no nodes were owned; None if no such fleet satisfies every rule."""
    without: str
    without_accelerators: tuple[str, ...]
    """Accelerators of the cheapest fleet if no nodes were owned."""
    saved_usd: float | None
    """Extra cost of the fleet without owned nodes, plus the proceeds of selling all owned nodes today."""


def owned_worth(problem: Problem, family: Family, sized: Sized = as_solved) -> Owned | None:
    """Report which owned nodes are kept, and the plan's cost if no nodes were owned; None if no nodes are owned."""
    if not any(offer.kept for offer in problem.offers):
        return None
    bare = replace(problem, offers=tuple(replace(offer, kept=None) for offer in problem.offers))
    mix = size_solved(solve_again(family, bare, search_nodes=_SEARCH_NODES), bare, sized)
    without = None if mix is None else mix.cost_usd
    accelerators = () if mix is None else tuple(sorted(mix.support))
    sales = sum(offer.kept.nodes * offer.kept.sale_usd for offer in problem.offers if offer.kept)
    return Owned(
        nodes=tuple(_worth(problem, offer, family.winner) for offer in problem.offers if offer.kept),
        without_usd=without,
        without=" + ".join(accelerators),
        without_accelerators=accelerators,
        saved_usd=None if without is None else without - family.winner.cost_usd + sales,
    )


def _worth(problem: Problem, offer: Offer, winner: Mix) -> OwnedWorth:
    kept = {pool.period: pool.kept_nodes for pool in winner.pools if pool.offer.key == offer.key}
    return OwnedWorth(
        accelerator=offer.accelerator,
        unit=offer.unit,
        site=offer.site,
        nodes=offer.kept.nodes if offer.kept else 0,
        kept=tuple(kept.get(period, 0) for period in range(problem.periods)),
        keeping_usd=sum(offer.kept.node_usd) if offer.kept else 0.0,
        new_usd=offer.tiers[0].node_usd[0] if offer.tiers else None,
    )


def without_each_rule(problem: Problem) -> Mapping[str, Problem]:
    """Map the name of each rule to the problem without that rule; rules that change nothing are left out."""
    instantly = tuple(replace(offer, first_period=0, first_bought=0) for offer in problem.offers)
    looser = {
        "the sites' power caps": replace(problem, site_watts={}),
        "the limits on nodes": replace(problem, max_nodes={}),
        "the minimum number of vendors": replace(problem, min_vendors=1),
        "the maximum share of one vendor": replace(problem, max_vendor_share=None),
        SPARES: replace(problem, spare_nodes=0),
        "delivery dates": replace(problem, offers=instantly),
    }
    if problem.min_vendors > 1 and problem.max_vendor_share is not None:
        looser["all rules on vendors"] = replace(problem, min_vendors=1, max_vendor_share=None)
    return {name: changed for name, changed in looser.items() if changed != problem}


def missing_vendors(problem: Problem, labels: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Map each vendor that has offers but no fleet of its own to the reasons, with the excess over each rule."""
    vendors = dict.fromkeys(offer.vendor for offer in problem.offers)
    if problem.min_vendors > 1 or len(vendors) == 1:
        return {}
    return {
        vendor: find_blocking_rules(problem, Restriction(only_vendors=frozenset({vendor})))
        for vendor in vendors
        if vendor not in labels
    }


def next_saving(problem: Problem, mix: Mix) -> NodeSaving | None:
    """Find the smallest decrease of all demand, up to 25%, at which the fleet needs fewer nodes."""
    factors = np.linspace(1.0, 1 - _MAX_DECREASE, round(100 * _MAX_DECREASE) + 1)
    keys = [(demand.key[0], period) for demand in problem.demands for period in range(problem.periods)]
    worlds = Worlds(count=len(factors), capacity={}, bought_usd={}, rented_usd={}, demand=dict.fromkeys(keys, factors))
    saved = mix.cost_usd - resized_usd(mix, problem, worlds)
    found = np.flatnonzero(saved > _WORTH_SAYING * mix.cost_usd)
    return (
        None if not len(found) else NodeSaving(less_fraction=float(1 - factors[found[0]]), usd=float(saved[found[0]]))
    )


def find_blocking_rules(problem: Problem, restriction: Restriction | None = None) -> tuple[str, ...]:
    """Report each rule without which a fleet is feasible, and by how much the cheapest such fleet exceeds the rule.

    Rules are dropped one at a time. A more expensive fleet may exceed the dropped rule by less than the cheapest fleet
    does.
    """
    found = []
    for name, looser in without_each_rule(problem).items():
        mix = cheapest(looser, restriction, patient=False)
        if mix is not None:
            excess = "; ".join(_excess(problem, mix))
            found.append(f"without {name} a fleet exists" + (f": the cheapest {excess}" if excess else ""))
    return tuple(found) or ("no fleet exists even without any one of the rules",)


def _excess(problem: Problem, mix: Mix) -> Iterator[str]:
    """Yield phrases that state by how much a fleet exceeds the limits on power, nodes and delivery dates."""
    periods = sorted({pool.period for pool in mix.pools})
    for site, watts in problem.site_watts.items():
        here = [pool for pool in mix.pools if pool.offer.site == site]
        owned = {(pool.offer, pool.period): pool.owned_nodes + pool.kept_nodes for pool in here}
        drawn = [sum(nodes * at[0].node_watts for at, nodes in owned.items() if at[1] == period) for period in periods]
        if max(drawn) > watts:
            yield f"draws {max(drawn) / 1000:,.0f} kW at {site} ({watts / 1000:,.0f} allowed)"
    for accelerator, limit in problem.max_nodes.items():
        nodes = max(mix.nodes_of(accelerator, period) for period in periods)
        if nodes > limit:
            yield f"has {nodes:,g} nodes of {accelerator} ({limit:,} allowed)"
    early = sorted({pool.offer.accelerator for pool in mix.pools if pool.period < _first(problem, pool.offer)})
    if early:
        yield f"uses {' and '.join(early)} before delivery"


def _first(problem: Problem, offer: Offer) -> int:
    """Return the first period in which nodes of an offer can serve; 0 if some of its nodes are owned already."""
    known = next(entry for entry in problem.offers if entry.key == offer.key)
    return 0 if known.kept is not None else known.first_period


def rule_prices(problem: Problem, family: Family, sized: Sized = as_solved) -> tuple[RulePrice, ...]:
    """Return the price of every rule, sorted by price, first the most expensive; fleets are sized by simulation."""
    found = []
    winner_usd = family.winner.cost_usd
    rules = without_each_rule(problem)
    solved = solve_each(family, [(looser, None) for looser in rules.values()], search_nodes=_SEARCH_NODES)
    for (name, looser), first in zip(rules.items(), solved, strict=True):
        dearer = first is not None and first.cost_usd > _NO_CHEAPER * winner_usd
        if first is None:
            continue
        # The winner satisfies the looser rules too, so it is the fallback if no other fleet meets the SLO.
        fleet = first if dearer else size_solved(first, looser, sized) or family.winner
        mix = _cheapest_known(fleet, family, looser)
        without, least = min(winner_usd, mix.cost_usd), mix.cost_usd * (1 - mix.gap_fraction)
        accelerators = " + ".join(sorted(mix.support if mix.cost_usd < winner_usd else family.winner.support))
        proven = least >= without * (1 - LOOSE)
        found.append(
            RulePrice(rule=name, without_usd=without, usd=winner_usd - without, without=accelerators, proven=proven)
        )
    return tuple(sorted(found, key=lambda entry: -entry.usd))


def _cheapest_known(found: Mix, family: Family, looser: Problem) -> Mix:
    """Return the cheapest fleet under looser rules: `found`, or one of the plan's fleets, resized to these rules.

    `found` is the fleet solved with the looser rules. Under looser rules, a resized fleet may need fewer spare nodes.
    """
    best = found
    for mix in family.fleets:
        usd = float(resized_usd(mix, looser, one_world())[0])
        best = replace(mix, cost_usd=usd, gap_fraction=found.gap_fraction) if usd < best.cost_usd else best
    return best


Replanned = Callable[[Resolved], Family | None]
"""Function that plans changed inputs from their own candidates on; None if no fleet satisfies every rule."""


def demand_scenarios(family: Family, resolved: Resolved, replanned: Replanned) -> tuple[DemandScenario, ...]:
    """Plan again with all demands and growth rates at their low end, then at their high end; empty without ranges.

    In a scenario the demand is known: it is the plan of that demand, with headroom for uncertain speed only.
    """
    if not any(entry.demand.uncertain or entry.growth_per_year.uncertain for entry in resolved.plan.workloads):
        return ()
    found = {end: replanned(_with_known_demand(resolved, end)) for end in ("low", "high")}
    return (
        _scenario("low", family, found["low"]),
        _scenario("base", family, family),
        _scenario("high", family, found["high"]),
    )


def _with_known_demand(resolved: Resolved, end: str) -> Resolved:
    def known(given: Input) -> Input:
        value = getattr(given, end)
        return replace(given, value=value, low=value, high=value)

    workloads = tuple(
        replace(entry, demand=known(entry.demand), growth_per_year=known(entry.growth_per_year))
        for entry in resolved.plan.workloads
    )
    return replace(resolved, plan=replace(resolved.plan, workloads=workloads))


def _scenario(name: Literal["low", "base", "high"], family: Family, found: Family | None) -> DemandScenario:
    if found is None:
        return DemandScenario(name=name, usd=None, label=NOTHING, accelerators={})
    mix = found.winner
    proven = name == "base" or mix.gap_fraction <= LOOSE
    return DemandScenario(
        name=name,
        usd=mix.cost_usd,
        label=family.label(mix),
        accelerators=dict(_devices_by_accelerator(mix)),
        proven=proven,
    )


def _devices_by_accelerator(mix: Mix) -> Iterator[tuple[str, int]]:
    for accelerator in sorted(mix.support):
        periods = {pool.period for pool in mix.pools}
        yield accelerator, max(mix.devices_of(accelerator, period) for period in periods)
