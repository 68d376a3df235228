"""Which fleets are simulated, and which is cheapest then? Every one that could still win, and what they teach."""

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

_GAP, _MAX_NODES, _LESS = 1e-3, 500, 1 - 1e-6
_PLANNED_AGAIN, _WORTH_PLANNING = 4, 0.003
"""How often the best of each kind is planned with what was seen, and by which share it must look cheaper."""
_LARGE: Final = 0.6
"""Of the replicas that carry a workload alone: a kind seen in no pool of so many is not known in such a pool."""
_MAY_SHRINK: Final = 1 / MAY_CARRY


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The fleets that were simulated, the cheapest that held first."""

    verified: tuple[Verified, ...]

    def with_simulated(self, found: Sequence[Verified]) -> "Proof":
        """The same with fleets simulated since."""
        return Proof(verified=_cheapest_that_held_first((*self.verified, *found)))

    def knows(self, planned: Mix) -> bool:
        """Whether this very fleet was simulated."""
        return any(entry.planned.identity == planned.identity for entry in self.verified)

    def mix(self, planned: Mix, informed: Problem) -> Mix | None:
        """The fleet as it has to be: what simulation made of it, or of its replicas where nobody simulated it.

        None where its parts are not enough then, within the limits of the plan.
        """
        own = next((entry for entry in self.verified if entry.planned.identity == planned.identity), None)
        if own is None:
            return of_same_accelerators(informed, planned)
        return own.mix if own.met else None

    def carried(self, problem: Problem) -> dict[PoolKey, float]:
        """What replicas of each kind carry beside their rates, for fleets nobody simulated.

        It is the mean over the pools they were simulated in; a kind that never was carries as its part's others do.
        """
        kinds = {name: fmean(factor for _, factor in seen) for name, seen in self._seen.items()}
        others = fmean(kinds.values())
        found = {}
        for offer in problem.offers:
            here = [kinds[kind.id] for kind in problem.replicas_on(offer.accelerator) if kind.id in kinds]
            for kind in problem.replicas_on(offer.accelerator):
                factor = kinds.get(kind.id, fmean(here) if here else others)
                found.update({(offer.key, kind.id, period): factor for period in range(problem.periods)})
        return found

    def optimistic_capacity(self, problem: Problem) -> dict[PoolKey, float]:
        """What they may carry: as in the largest pool they were seen in, or what any may where none was large."""
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
        """By kind: how many there were in each pool, and what each carried."""
        found: dict[str, list[tuple[int, float]]] = {}
        for entry in self.verified:
            for pool in entry.mix.pools:
                for name, count in pool.replicas.items():
                    found.setdefault(name, []).append((count, pool.carried.get(name, 1.0)))
        return found

    @property
    def regret_usd(self) -> float | None:
        """What the first fleet costs beside the cheapest that held; None where none did."""
        held = [entry.mix.cost_usd for entry in self.verified if entry.met]
        return self.verified[0].mix.cost_usd - min(held) if held else None


def prove(family: Family, verify: Callable[[Mix], Verified], step: Callable[[int], None] = lambda _: None) -> Proof:
    """Simulate the winner, what the verdict compares it with, and every fleet that could still be cheaper.

    A fleet may shrink: one that is planned dearer can win, as long as it is not dearer by more than fleets ever shrink.
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
    return Proof(verified=_cheapest_that_held_first(found))


def plan_with_simulated_rates(
    proof: Proof, family: Family, problem: Problem, verify: Callable[[Mix], Verified]
) -> tuple[Proof, Family]:
    """Plan the best of each kind again with what replicas were seen to carry, and simulate what is cheaper then.

    Before a simulation a replica is judged in a pool of up to eight; in a pool of fifty another split, or another part,
    may carry more. Nothing but a simulation of it says so: a kind of replica that was in none is taken to carry what
    any may, until it was. What held and is cheaper joins; what did not teaches the next round.
    """
    for _ in range(_PLANNED_AGAIN):
        best = {family.label(entry.mix): entry for entry in reversed(proof.verified) if entry.met}
        known = replace(problem, carried=proof.optimistic_capacity(problem))
        asked = [
            partial(cheapest, known, family.restriction(label), gap_fraction=_GAP, most_nodes=_MAX_NODES, patient=False)
            for label in best
        ]
        seen = {sizes_of(entry.planned) for entry in proof.verified}
        found = []
        for before, mix in zip(best.values(), in_parallel(asked), strict=True):
            if mix is not None and mix.cost_usd < (1 - _WORTH_PLANNING) * before.mix.cost_usd:
                found += [(before, verify(mix))] if sizes_of(mix) not in seen else []
        if not found:
            break
        better = [now for before, now in found if now.met and now.mix.cost_usd < _LESS * before.mix.cost_usd]
        proof, family = (
            proof.with_simulated([now for _, now in found]),
            family.with_others(now.planned for now in better),
        )
    return proof, family


def simulate_cheaper_fleets(proof: Proof, family: Family, problem: Problem, verify: Callable[[Mix], Verified]) -> Proof:
    """Simulate every fleet that would be the cheapest of its label by what replicas carried in others.

    What a fleet costs beside the others is shown, so it is of a simulation: what its replicas carried elsewhere is no
    more than a reason to look.
    """
    while True:
        best = {family.label(entry.mix): entry.mix.cost_usd for entry in reversed(proof.verified) if entry.met}
        informed, found = replace(problem, carried=proof.carried(problem)), []
        for mix in family.fleets:
            sized = None if proof.knows(mix) else of_same_accelerators(informed, mix)
            if sized is not None and sized.cost_usd < _LESS * best.get(family.label(mix), inf):
                found.append(verify(mix))
        if not found:
            return proof
        proof = proof.with_simulated(found)


def proven_here(
    proof: Proof, family: Family, problem: Problem, found: Sequence[Mix], verify: Callable[[Mix], Verified]
) -> tuple[Proof, Family] | None:
    """Bring fleets that were found for other demands and prices into this plan, where they are cheaper and hold here.

    The winner is the cheapest of all fleets solved anywhere in a plan. None where none of them is.
    """
    best = {family.label(entry.mix): entry.mix.cost_usd for entry in reversed(proof.verified) if entry.met}
    seen, better = {sizes_of(entry.planned) for entry in proof.verified}, []
    for mix in found:
        label, usd = family.label(mix), float(resized_usd(mix, problem, one_world())[0])
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
    return proof.with_simulated(better), family.with_others(entry.planned for entry in better)


def _cheapest_that_held_first(found: Sequence[Verified]) -> tuple[Verified, ...]:
    return tuple(sorted(found, key=lambda entry: (not entry.met, entry.mix.cost_usd)))
