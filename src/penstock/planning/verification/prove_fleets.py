"""Simulates every fleet that could still win, and learns replica capacities from the simulations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from statistics import fmean
from typing import Final

from penstock.planning.in_parallel import in_parallel
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix, PoolKey, Problem
from penstock.planning.optimizer.resize_fleet import one_world, resized_usd
from penstock.planning.verification.verify_fleet import MAY_CARRY, Verified, of_same_accelerators, sizes_of
from penstock.simulation.run_options import StageProgress

_GAP, _MAX_NODES, _LESS = 1e-3, 500, 1 - 1e-6
_PLANNED_AGAIN, _WORTH_PLANNING = 4, 0.003
"""Maximum number of planning rounds with simulated capacities, and minimum relative saving for which a fleet is
simulated."""
_LARGE: Final = 0.6
"""A pool counts as large from this fraction of the replicas on that would carry the whole workload alone."""
_MAY_SHRINK: Final = 1 / MAY_CARRY

Verify = Callable[[Mix], Verified]
"""Function that simulates and sizes a fleet of the plan."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The simulated fleets. The first fleet is the cheapest fleet that met its SLO."""

    verified: tuple[Verified, ...]

    def with_simulated(self, found: Sequence[Verified]) -> "Proof":
        """Return a copy with more simulated fleets."""
        return Proof(verified=_cheapest_that_met_first((*self.verified, *found)))

    def knows(self, planned: Mix) -> bool:
        """Return whether this exact fleet was simulated."""
        return any(entry.planned.identity == planned.identity for entry in self.verified)

    def mix(self, planned: Mix, informed: Problem) -> Mix | None:
        """Return the fleet as simulation sized it, or solve it with simulated capacities if it was not simulated.

        Return None if the fleet's accelerators cannot meet the SLO within the limits of the plan.
        """
        own = next((entry for entry in self.verified if entry.planned.identity == planned.identity), None)
        if own is None:
            return of_same_accelerators(informed, planned)
        return own.mix if own.met else None

    def relative_capacities(self, problem: Problem) -> dict[PoolKey, float]:
        """Map each pool to its capacity relative to the estimated rates, for fleets that were not simulated.

        The capacity of a kind of replica is the mean over the pools in which the kind was simulated. A kind that was
        not simulated gets the mean of the kinds simulated on its accelerator. If there are none, it gets the mean of
        all simulated kinds.
        """
        kinds = {name: fmean(factor for _, factor in seen) for name, seen in self._seen.items()}
        others = fmean(kinds.values())
        found = {}
        for offer in problem.offers:
            here = [kinds[kind.id] for kind in problem.replicas_on(offer) if kind.id in kinds]
            for kind in problem.replicas_on(offer):
                factor = kinds.get(kind.id, fmean(here) if here else others)
                found.update({(offer.key, kind.id, period): factor for period in range(problem.periods)})
        return found

    def optimistic_capacity(self, problem: Problem) -> dict[PoolKey, float]:
        """Map each pool to an optimistic capacity relative to the estimated rates.

        The capacity of a kind of replica comes from the largest pool in which it was simulated. If that pool was not
        large, or if the kind was not simulated, the capacity is `MAY_CARRY`.
        """
        found = problem.each_carrying(MAY_CARRY).carried
        kinds = {kind.id: kind for kind in problem.replicas}
        known = {}
        for name, seen in self._seen.items():
            count, factor = max(seen)
            if count >= _LARGE * problem.replicas_alone(kinds[name]):
                known[name] = factor
        return {key: known.get(key[1], factor) for key, factor in found.items()}

    @property
    def _seen(self) -> dict[str, list[tuple[int, float]]]:
        """Map each kind of replica to its number of replicas and its simulated capacity, in each simulated pool."""
        found: dict[str, list[tuple[int, float]]] = {}
        for entry in self.verified:
            for pool in entry.mix.pools:
                for name, count in pool.replicas.items():
                    found.setdefault(name, []).append((count, pool.carried.get(name, 1.0)))
        return found

    @property
    def regret_usd(self) -> float | None:
        """Return how much more the first fleet costs than the cheapest fleet that met its SLO; None if no fleet did."""
        met = [entry.mix.cost_usd for entry in self.verified if entry.met]
        return self.verified[0].mix.cost_usd - min(met) if met else None


@dataclass(frozen=True, kw_only=True)
class ProvenFleets:
    """The planned fleets, and the simulations that show whether these fleets meet their SLO."""

    planned: Family
    proof: Proof
    """Simulations of these fleets; empty without a simulator."""

    def as_simulated(self, problem: Problem) -> Family:
        """Return the fleets as simulation sized them, with the cheapest fleet that met its SLO as the winner.

        Cost, uncertainty and flips are all computed for the fleets as sized by simulation.
        """
        if not self.proof.verified:
            return self.planned
        led = replace(
            self.planned.led_by(self.proof.verified[0].planned), carried=self.proof.relative_capacities(problem)
        )
        return led.each(lambda mix: self.proof.mix(mix, led.with_simulated_capacities(problem)))

    @property
    def best_by_label(self) -> dict[str, Verified]:
        """Map each label to its cheapest fleet among the fleets that met their SLO."""
        return {self.planned.label(entry.mix): entry for entry in reversed(self.proof.verified) if entry.met}

    @property
    def best_usd(self) -> dict[str, float]:
        """Map each label to the cost of its cheapest fleet among the fleets that met their SLO."""
        return {label: entry.mix.cost_usd for label, entry in self.best_by_label.items()}

    @property
    def simulated_sizes(self) -> set[tuple[object, ...]]:
        """Return the keys (`sizes_of`) of the planned fleets that were simulated."""
        return {sizes_of(entry.planned) for entry in self.proof.verified}


def prove_fleets(planned: Family, problem: Problem, verify: Verify, progress: StageProgress) -> ProvenFleets:
    """Simulate every fleet that may be cheapest, then every fleet that becomes cheapest with simulated capacities."""

    def step(number: int) -> None:
        progress("simulating the fleets that may be cheapest", number, len(planned.fleets))

    proven = ProvenFleets(planned=planned, proof=prove(planned, verify, step))
    progress("planning again with simulated capacities", 0, 1)
    return simulate_cheaper_fleets(plan_with_simulated_rates(proven, problem, verify), problem, verify)


def prove(family: Family, verify: Verify, step: Callable[[int], None] = lambda _: None) -> Proof:
    """Simulate the winner, the fleets that the verdict compares with the winner, and fleets that could be cheaper.

    Simulation may shrink a fleet, so that a fleet with a higher planned cost can still win.
    """
    found: list[Verified] = []
    compared = {mix.identity for mix in family.competing().by_label.values()}
    for mix in (family.winner, *sorted(family.fleets, key=lambda mix: mix.cost_usd)):
        best_usd = min((entry.mix.cost_usd for entry in found if entry.met), default=inf)
        least = min(_MAY_SHRINK, *(entry.mix.cost_usd / entry.planned.cost_usd for entry in found), 1.0)
        if not Proof(verified=tuple(found)).knows(mix) and (
            mix.identity in compared or mix.cost_usd * least < best_usd
        ):
            step(len(found))
            found.append(verify(mix))
    return Proof(verified=_cheapest_that_met_first(found))


def plan_with_simulated_rates(proven: ProvenFleets, problem: Problem, verify: Verify) -> ProvenFleets:
    """Plan the best fleet of each label again with simulated capacities, and simulate the fleets that are cheaper.

    Candidates are simulated in pools of up to eight replicas. In a pool of fifty replicas, a different split or
    accelerator may carry more, which only a simulation can show. A kind of replica that was not simulated in a large
    pool is assumed to carry `MAY_CARRY` times its estimated rates. New fleets that meet the SLO and are cheaper join
    the planned fleets. The simulated capacities of all new fleets are used in the next round.
    """
    for _ in range(_PLANNED_AGAIN):
        planned, proof, best, seen = proven.planned, proven.proof, proven.best_by_label, proven.simulated_sizes
        known = replace(problem, carried=proof.optimistic_capacity(problem))
        solves = [
            partial(
                cheapest, known, planned.restriction(label), gap_fraction=_GAP, search_nodes=_MAX_NODES, patient=False
            )
            for label in best
        ]
        found = []
        for before, mix in zip(best.values(), in_parallel(solves), strict=True):
            if mix is not None and mix.cost_usd < (1 - _WORTH_PLANNING) * before.mix.cost_usd:
                found += [(before, verify(mix))] if sizes_of(mix) not in seen else []
        if not found:
            break
        better = [now for before, now in found if now.met and now.mix.cost_usd < _LESS * before.mix.cost_usd]
        proven = ProvenFleets(
            planned=planned.with_others(now.planned for now in better),
            proof=proof.with_simulated([now for _, now in found]),
        )
    return proven


def simulate_cheaper_fleets(proven: ProvenFleets, problem: Problem, verify: Verify) -> ProvenFleets:
    """Simulate every fleet that would be the cheapest of its label with the capacities simulated in other fleets.

    A report compares the costs of fleets, so each cost must come from a simulation of that fleet. Capacities simulated
    in other fleets only decide whether to simulate a fleet.
    """
    planned = proven.planned
    while True:
        proof, best = proven.proof, proven.best_usd
        informed, found = replace(problem, carried=proof.relative_capacities(problem)), []
        for mix in planned.fleets:
            sized = None if proof.knows(mix) else of_same_accelerators(informed, mix)
            if sized is not None and sized.cost_usd < _LESS * best.get(planned.label(mix), inf):
                found.append(verify(mix))
        if not found:
            return proven
        proven = replace(proven, proof=proof.with_simulated(found))


def add_cheaper_fleets(
    proven: ProvenFleets, problem: Problem, found: Sequence[Mix], verify: Verify
) -> ProvenFleets | None:
    """Add fleets that were found for changed inputs, if they are also cheaper and meet the SLO at the plan's inputs.

    The winner is then the cheapest of all fleets found in any stage of planning. Return None if no fleet is added.
    """
    planned, seen, better = proven.planned, proven.simulated_sizes, list[Verified]()
    best = proven.best_usd
    for mix in found:
        label, usd = planned.label(mix), float(resized_usd(mix, problem, one_world())[0])
        if usd >= (1 - _WORTH_PLANNING) * best.get(label, inf):
            continue
        carried = {(pool.offer.key, name, pool.period): f for pool in mix.pools for name, f in pool.carried.items()}
        here = of_same_accelerators(replace(problem, carried=carried), mix)
        if here is not None and sizes_of(here) not in seen:
            seen.add(sizes_of(here))
            now = verify(here)
            if now.met and now.mix.cost_usd < _LESS * best.get(label, inf):
                best[label] = now.mix.cost_usd
                better.append(now)
    if not better:
        return None
    joined = ProvenFleets(
        planned=planned.with_others(entry.planned for entry in better), proof=proven.proof.with_simulated(better)
    )
    return simulate_cheaper_fleets(joined, problem, verify)


def _cheapest_that_met_first(found: Sequence[Verified]) -> tuple[Verified, ...]:
    return tuple(sorted(found, key=lambda entry: (not entry.met, entry.mix.cost_usd)))
