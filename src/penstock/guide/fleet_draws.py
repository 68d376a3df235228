"""Prices the fleets of a cell in the draws that a plan uses, and finds the prices at which the answer turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

import numpy as np

from penstock.guide.cheapest_fleet import SizedFleet, SizedPool
from penstock.guide.shape_capacity import ShapeCapacity
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import Demand, Mix, Offer, PoolPeriod, Problem, ReplicaKind
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import Worlds, resized_usd
from penstock.planning.uncertainty.draw_inputs import draw_inputs
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, capacity_spreads, knobs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How often each vendor is cheapest over the draws, and the range of the winner's cost."""

    probability: Mapping[str, float]
    low_usd: float
    high_usd: float
    """P10 and P90 of the winning fleet's cost, with the units added that are missing in a draw."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeDraws:
    """The draws of one workload shape. They do not depend on its load."""

    capacity: ShapeCapacity
    world: InputWorld
    """The inputs of all plans of the model; workloads of one model differ only in lengths and load."""

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return every candidate once."""
        return tuple({kind.candidate.id: kind.candidate for kind in self.capacity.kinds}.values())

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """Return every input that affects cost."""
        return knobs_of(self.capacity.resolved, capacity_spreads(self.candidates))

    @cached_property
    def _draws(self) -> tuple[Worlds, Mapping[str, Array]]:
        """Return the draws of everything but the speed of candidates, and the prediction errors."""
        plan, problem = self.capacity.resolved.plan, replace(self.capacity.problem, headroom=None)
        inputs = draw_inputs(self.knobs, plan.seed, plan.draws)
        errors = inputs.errors
        return drawn_worlds(self.world, self.candidates, problem, inputs.values, inputs.knobs, errors=errors), errors

    def odds(self, fleets: Sequence[SizedFleet], requests_per_s: float) -> Odds:
        """Return how often the fleet of each vendor is cheapest; the first fleet is the winner."""
        worlds, errors = self._draws
        sized = [self._relative_rates(fleet, requests_per_s) for fleet in fleets]
        entries = {entry.id: entry for pairs in sized for entry, _ in pairs}
        speeds = {
            entry.id: entry.relative_rate_at(errors[entry.accelerator.id])
            for entry in entries.values()
            if entry.accelerator.id in errors
        }
        worlds = replace(worlds, speed=speeds)
        problem = self._problem(tuple(entries.values()), requests_per_s)
        mixes = [self._mix(fleet, pairs, problem) for fleet, pairs in zip(fleets, sized, strict=True)]
        costs = np.vstack([resized_usd(mix, problem, worlds, signed=True) for mix in mixes])
        first = np.argmin(costs, axis=0)
        feasible = np.isfinite(np.min(costs, axis=0))
        own = costs[0][np.isfinite(costs[0])]
        low, high = np.quantile(own, (0.1, 0.9)) if own.size else (np.inf, np.inf)
        return Odds(
            probability={
                fleet.vendor: float(np.mean((first == number) & feasible)) for number, fleet in enumerate(fleets)
            },
            low_usd=float(low),
            high_usd=float(high),
        )

    def _mix(self, fleet: SizedFleet, sized: Sequence[tuple[Candidate, float]], problem: Problem) -> Mix:
        """Return the fleet as the planner describes it, with the load spread by capacity."""
        demand = problem.demands[0].key
        carried = [
            pool.replicas * entry.rates[0] * times for pool, (entry, times) in zip(fleet.pools, sized, strict=True)
        ]
        pools = []
        for pool, (entry, times), rate in zip(fleet.pools, sized, carried, strict=True):
            way = self.capacity.best_way(pool.kind.offer, pool.units)
            if way is None:
                raise ValueError("a fleet must be priced before it is drawn")
            pools.append(
                PoolPeriod(
                    offer=pool.kind.offer,
                    period=0,
                    owned_nodes=way.units if way.kind == "buy" else 0,
                    rented_nodes=way.units if way.kind == "rent" else 0,
                    contract_nodes=tuple(
                        way.units if way.kind == "contract" and number == way.number else 0
                        for number in range(len(pool.kind.offer.contracts))
                    ),
                    spare_nodes=problem.spare_nodes,
                    replicas={entry.id: pool.replicas},
                    load={(entry.id, demand): rate / sum(carried)},
                    carried={entry.id: times},
                )
            )
        return Mix(cost_usd=fleet.cost_usd, gap_fraction=0.0, seconds=0.0, pools=tuple(pools), purchases={})

    def _relative_rates(self, fleet: SizedFleet, requests_per_s: float) -> list[tuple[Candidate, float]]:
        """Return, for each pool, its candidate and the rate of a replica in the pool relative to the candidate's."""
        found = []
        for pool in fleet.pools:
            entry, _ = self.capacity.candidate_at(pool.kind.candidate, requests_per_s)
            found.append((entry, self.capacity.find_rate(entry, pool.replicas) / entry.rates[0]))
        return found

    def _problem(self, entries: Sequence[Candidate], requests_per_s: float) -> Problem:
        workload = self.capacity.workload(requests_per_s)
        demand = Demand(
            key=(workload.name, 0), requests_per_s=(requests_per_s,), tokens=self.capacity.shape.context_tokens
        )
        kinds = tuple(
            ReplicaKind(
                id=entry.id,
                accelerator=entry.accelerator.id,
                workload=entry.workload,
                devices=entry.devices,
                requests_per_s={0: entry.rates[0]},
            )
            for entry in entries
        )
        return replace(self.capacity.problem, replicas=kinds, demands=(demand,), headroom=None)

    def usd_per_rent(self, pool: SizedPool) -> tuple[Knob, float] | None:
        """Return the rent of a pool's accelerator and the dollars that the pool costs per dollar of it.

        The rent is by the hour or on a contract. None if the pool is bought.
        """
        offer = pool.kind.offer
        way = self.capacity.best_way(offer, pool.units)
        if way is None or way.kind == "buy":
            return None
        on_contract = way.kind == "contract"
        key = f"contracts/{offer.contracts[way.number].months}" if on_contract else "rent"
        knob = next((knob for knob in self.knobs if knob.id == f"accelerators/{offer.accelerator}/{key}"), None)
        if knob is None:
            return None

        def unit_usd(one: Offer) -> float:
            return one.contracts[way.number].node_usd[0] if on_contract else (one.rent_usd or (0.0,))[0]

        dearer = self.world.at(knob, 2 * knob.input.value).problem(self.candidates)
        twice = next(one for one in dearer.offers if one.key == offer.key)
        return knob, way.units * (unit_usd(twice) - unit_usd(offer)) / knob.input.value

    def flip_rent(self, fleet: SizedFleet, rival_usd: float) -> tuple[float, float] | None:
        """Return the rent of a fleet's accelerator now, and the rent at which the fleet costs as much as its rival.

        None if the fleet is bought, or no rent above 0 makes them equal.
        """
        parts = [self.usd_per_rent(pool) for pool in fleet.pools]
        known = [part for part in parts if part is not None]
        slope = sum(usd for _, usd in known)
        if len(known) < len(parts) or slope <= 0 or not isfinite(rival_usd):
            return None
        now = known[0][0].input.value
        turn = now + (rival_usd - fleet.cost_usd) / slope
        return (now, turn) if turn > 0 else None
