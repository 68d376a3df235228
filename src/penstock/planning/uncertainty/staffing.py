"""Finds the number of extra engineers at which a vendor's fleet stops being the cheapest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.planning.optimizer.node_costs import BillingTerms
from penstock.planning.optimizer.problem import Mix

CLUSTER_ENGINEERS: Final = 2.0
"""Extra engineers per cluster, from the source of AMD's default. The source gives no number for smaller fleets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleDecide:
    """A vendor whose fleet is cheaper before engineers are billed, and the number of engineers that reverses this."""

    vendor: str
    label: str
    """Label of the vendor's fleet: the vendor, or `mix`."""
    saved_usd: float
    """Saving of the vendor's fleet over the cheapest fleet without the vendor, both without the cost of engineers."""
    break_even_engineers: float
    assumed_engineers: float
    """Mean number of engineers that the plan bills for the vendor, over the time in which the vendor's nodes serve."""
    given: bool
    """Whether the plan file states a fixed number of engineers, not only a number per device."""


@dataclass(frozen=True, slots=True)
class _Billed:
    """Use of a vendor in a fleet: the paid years in which the vendor's nodes serve, and the paid device-years."""

    years: float
    device_years: float

    def engineers(self, flat: float, per_1000_devices: float) -> float:
        return flat + per_1000_devices / 1000 * self.device_years / self.years if self.years else 0.0


def people_decide(by_label: Mapping[str, Mix], terms: BillingTerms) -> PeopleDecide | None:
    """Find the vendor whose number of engineers decides the answer; None if hardware decides or no vendors compete.

    Engineers decide if a vendor's fleet is cheaper before engineers are billed, and if the break-even number of
    engineers is within the plan's range. If the plan states no number, the range extends to `CLUSTER_ENGINEERS`.
    """
    for vendor, stack in terms.resolved.plan.stacks.items():
        own = [(label, mix) for label, mix in by_label.items() if vendor in mix.vendors]
        rest = [mix for mix in by_label.values() if vendor not in mix.vendors]
        flat, by_size = stack.engineers, stack.engineers_per_1000_devices
        if not own or not rest or not (flat.high or by_size.high):
            continue
        label, mix = min(own, key=lambda entry: entry[1].cost_usd)
        other = min(rest, key=lambda entry: entry.cost_usd)
        billed = _billed_time(mix, vendor, terms)
        year_usd = terms.resolved.plan.money.engineer_usd_per_year.value
        if not billed.years or not year_usd:
            continue
        assumed = billed.engineers(flat.value, by_size.value)
        free_usd = mix.cost_usd - assumed * billed.years * year_usd
        found = PeopleDecide(
            vendor=vendor,
            label=label,
            saved_usd=_without_people(other, terms) - _without_people(mix, terms),
            break_even_engineers=(other.cost_usd - free_usd) / (billed.years * year_usd),
            assumed_engineers=assumed,
            given=flat.given,
        )
        possible = billed.engineers(flat.high, by_size.high)
        possible = possible if found.given else max(possible, CLUSTER_ENGINEERS)
        if found.saved_usd > 0 and 0 < found.break_even_engineers <= possible:
            return found
    return None


def _without_people(mix: Mix, terms: BillingTerms) -> float:
    year_usd = terms.resolved.plan.money.engineer_usd_per_year.value
    usd = mix.cost_usd
    for vendor in mix.vendors:
        stack, billed = terms.resolved.stack_of(vendor), _billed_time(mix, vendor, terms)
        engineers = billed.engineers(stack.engineers.value, stack.engineers_per_1000_devices.value)
        usd -= engineers * billed.years * year_usd
    return usd


def _billed_time(mix: Mix, vendor: str, terms: BillingTerms) -> _Billed:
    paid = [terms.finance.paid_years(*period) for period in terms.periods]
    pools = [pool for pool in mix.pools if pool.offer.vendor == vendor]
    return _Billed(
        years=sum(paid[period] for period in {pool.period for pool in pools if pool.replicas}),
        device_years=sum(pool.nodes * pool.offer.devices * paid[pool.period] for pool in pools),
    )
