"""Compares the cheapest fleets of the vendors for one workload at one load."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from penstock.economics.finance import HOURS_PER_YEAR
from penstock.economics.token_price import MTOK
from penstock.guide.cheapest_fleet import FleetSearch, SizedFleet, SizedPool
from penstock.guide.fleet_draws import ShapeDraws
from penstock.guide.guide_result import Binding, GuideCell, GuideFleet, GuidePool
from penstock.guide.search_shapes import ShapeSearch
from penstock.guide.shape_capacity import ShapeCapacity, kind_name, vendors_of
from penstock.planning.optimizer.node_costs import terms_of
from penstock.units import count_text

NEAR_TIE: Final = 0.05
"""Largest difference in cost, relative to the winner, at which another accelerator of its vendor is named."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeJudge:
    """Judges the cells of one workload shape."""

    capacity: ShapeCapacity
    draws: ShapeDraws

    @classmethod
    def of(cls, search: ShapeSearch, capacity: ShapeCapacity) -> "ShapeJudge":
        """Return the judge of a shape that was searched."""
        return cls(capacity=capacity, draws=ShapeDraws(capacity=capacity, world=search.world_of(capacity.shape)))

    def fleets(self, requests_per_s: float) -> list[SizedFleet]:
        """Return the cheapest fleet of each vendor at a load, the cheapest first."""
        return self._fleets(FleetSearch(self.capacity, requests_per_s))

    def _fleets(self, search: FleetSearch) -> list[SizedFleet]:
        kinds = self.capacity.kinds
        found = (search.cheapest([kind for kind in kinds if kind.vendor == vendor]) for vendor in vendors_of(kinds))
        return sorted((fleet for fleet in found if fleet is not None), key=lambda fleet: fleet.cost_usd)

    def cell(self, requests_per_s: float) -> GuideCell:
        """Return the cell at a load."""
        search = FleetSearch(self.capacity, requests_per_s)
        fleets = self._fleets(search)
        if not fleets:
            return GuideCell(
                shape=self.capacity.shape,
                requests_per_s=requests_per_s,
                fleets=(),
                probability=None,
                low_usd=None,
                high_usd=None,
                binding=None,
                flip_rent_usd=None,
                rival_flip_rent_usd=None,
                why_none=self._why_none(),
            )
        winner, rival = fleets[0], fleets[1] if len(fleets) > 1 else None
        tie = self._near_tie(search, winner)
        odds = self.draws.odds(fleets, requests_per_s)
        flip = None if rival is None else self.draws.flip_rent(winner, rival.cost_usd)
        rival_flip = None if rival is None else self.draws.flip_rent(rival, winner.cost_usd)
        return GuideCell(
            shape=self.capacity.shape,
            requests_per_s=requests_per_s,
            fleets=tuple(self._describe(fleet, requests_per_s) for fleet in fleets),
            probability=odds.probability[winner.vendor],
            low_usd=odds.low_usd,
            high_usd=odds.high_usd,
            binding=None if rival is None else self._binding(winner, rival, requests_per_s),
            flip_rent_usd=None if flip is None else flip[1],
            rival_flip_rent_usd=None if rival_flip is None else rival_flip[1],
            near_tie=None if tie is None else self._describe(tie, requests_per_s),
        )

    def _near_tie(self, search: FleetSearch, winner: SizedFleet) -> SizedFleet | None:
        """Return the cheapest fleet of the winner's vendor on another accelerator, if it is hardly dearer."""
        others = [
            kind
            for kind in self.capacity.kinds
            if kind.vendor == winner.vendor and kind.offer.accelerator != winner.accelerator
        ]
        return search.cheapest(others, (1 + NEAR_TIE) * winner.cost_usd)

    def _why_none(self) -> str:
        """Return why no fleet serves the workload.

        Either no accelerator keeps the SLO, or the rules leave too few devices of those that do.
        """
        if self.capacity.kinds:
            return (
                "the accelerators that keep the SLO have too few devices (`max_nodes`, instances on sale), or their "
                "speed is too uncertain for the confidence"
            )
        if self.capacity.memory.kinds:
            return "the accelerators that keep the SLO are denied at the site, or cannot be acquired as stated"
        reasons: dict[str, list[str]] = {}
        for what, why in self.capacity.memory.left_out.items():
            reasons.setdefault(why, []).append(what.rpartition(" on ")[2])
        said = [f"{', '.join(names)}: {why}" for why, names in reasons.items()]
        return "; ".join(said) or "no accelerator keeps the SLO"

    def _binding(self, winner: SizedFleet, rival: SizedFleet, requests_per_s: float) -> Binding | None:
        """Return what decides for the winner.

        It is the size of an instance if less than half of the difference is left with units and spares of one replica.
        It is the price if the rival needs no more devices. It is software if the rival would be cheaper with both
        stacks at the same share of their hardware limit. Otherwise it is the resource that limits the rival's replicas.
        """
        more_usd = rival.cost_usd - winner.cost_usd
        least = [self._usd_by_the_replica(fleet, requests_per_s) for fleet in (winner, rival)]
        if least[1] - least[0] < more_usd / 2 and least[1] < rival.cost_usd:
            return "instance size"
        if _serving_devices(rival) <= _serving_devices(winner):
            return "price"
        own, other = (self.capacity.limit(fleet.pools[0].kind.candidate) for fleet in (winner, rival))
        if own is None or other is None:
            return None
        if rival.cost_usd * other[1] / own[1] < winner.cost_usd:
            return "software"
        return other[0]

    def _usd_by_the_replica(self, fleet: SizedFleet, requests_per_s: float) -> float:
        """Return the cost of a fleet if its units and spares were no larger than the replicas that the load needs."""
        problem = self.capacity.problem
        usd = fleet.cost_usd
        for pool, found in zip(fleet.pools, self._pools(fleet.pools, requests_per_s), strict=True):
            devices = pool.kind.candidate.devices
            load = found.share_fraction * requests_per_s / problem.utilisation_fraction
            replicas = min(found.replicas, ceil(load / (found.rate_per_s / found.headroom)))
            spared = found.devices - (replicas + problem.spare_nodes) * devices
            usd -= self.capacity.units_usd(pool.kind.offer, pool.units) * max(0, spared) / found.devices
        return usd

    def _describe(self, fleet: SizedFleet, requests_per_s: float) -> GuideFleet:
        plan = self.capacity.resolved.plan
        mean_per_s = requests_per_s * plan.workloads[0].mean_load.value
        tokens = mean_per_s * self.capacity.shape.context_tokens * plan.horizon_years * HOURS_PER_YEAR * 3600
        rents = [self.draws.usd_per_rent(pool) for pool in fleet.pools]
        known = [rent for rent in rents if rent is not None]
        rented = len(known) == len(rents)
        return GuideFleet(
            vendor=fleet.vendor,
            pools=self._pools(fleet.pools, requests_per_s),
            cost_usd=fleet.cost_usd,
            usd_per_mtok=fleet.cost_usd / tokens * MTOK if tokens else inf,
            rent_usd_per_device_hour=known[0][0].input.value if rented else None,
            usd_per_rent=sum(usd for _, usd in known) if rented else None,
        )

    def _pools(self, pools: Sequence[SizedPool], requests_per_s: float) -> tuple[GuidePool, ...]:
        found = [self.capacity.candidate_at(pool.kind.candidate, requests_per_s) for pool in pools]
        rates = [self.capacity.find_rate(entry, pool.replicas) for pool, (entry, _) in zip(pools, found, strict=True)]
        carried = [
            pool.replicas * rate / headroom for pool, rate, (_, headroom) in zip(pools, rates, found, strict=True)
        ]
        spare = self.capacity.problem.spare_nodes
        return tuple(
            GuidePool(
                kind=kind_name(entry.option),
                accelerator=pool.kind.offer.accelerator,
                unit_devices=pool.kind.offer.devices,
                units=pool.units + spare,
                spare_units=spare,
                replicas=pool.replicas,
                way=entry.way,
                weights=entry.weights,
                engine=entry.measured_engine,
                tier=entry.capacities[0].tier,
                rate_per_s=rate,
                headroom=headroom,
                share_fraction=load / sum(carried),
                acquired=self._way_words(pool),
                usd_per_device_hour=self._device_hour_usd(pool),
            )
            for pool, rate, load, (entry, headroom) in zip(pools, rates, carried, found, strict=True)
        )

    def _way_words(self, pool: SizedPool) -> str:
        way = self.capacity.best_way(pool.kind.offer, pool.units)
        if way is None or way.kind != "contract":
            return "rent" if way is None else way.kind
        return count_text(pool.kind.offer.contracts[way.number].months, "month")

    def _device_hour_usd(self, pool: SizedPool) -> float:
        """Return a device's levelised cost, as in a plan's fleet file: with engineers per device, without spares."""
        offer, terms = pool.kind.offer, terms_of(self.capacity.resolved)
        way = self.capacity.best_way(offer, pool.units)
        years = terms.finance.paid_years(0.0, terms.horizon_years)
        return 0.0 if way is None else way.usd / way.units / offer.devices / years / HOURS_PER_YEAR


def _serving_devices(fleet: SizedFleet) -> int:
    return sum(pool.units * pool.kind.offer.devices for pool in fleet.pools)
