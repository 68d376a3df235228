"""Finds the number of extra engineers at which a vendor's fleet stops being the cheapest."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.planning.optimizer.node_costs import BillingTerms
from penstock.planning.optimizer.problem import Mix
from penstock.planning.spec.plan_file import default_stack
from penstock.planning.spec.plan_types import StackPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleBreakEven:
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
    """Whether the plan file states a number of engineers other than the default."""


@dataclass(frozen=True, slots=True)
class _Billed:
    """Use of a vendor in a fleet: the paid years in which the vendor's nodes serve, and the paid device-years."""

    years: float
    device_years: float

    def engineers(self, flat: float, per_1000_devices: float) -> float:
        return flat + per_1000_devices / 1000 * self.device_years / self.years if self.years else 0.0


def people_break_even(by_label: Mapping[str, Mix], terms: BillingTerms) -> PeopleBreakEven | None:
    """Find a vendor whose fleet is cheaper before engineers are billed, and the engineers at which it stops being so.

    The result is None if no vendors compete, or if hardware and power decide: then no number of engineers makes a
    vendor's fleet the cheapest.
    """
    year_usd = terms.resolved.plan.money.engineer_usd_per_year.value
    for vendor, stack in terms.resolved.plan.stacks.items():
        own = {label: mix for label, mix in by_label.items() if vendor in mix.vendors}
        rest = [mix for mix in by_label.values() if vendor not in mix.vendors]
        if not own or not rest or not year_usd or not (stack.engineers.high or stack.engineers_per_1000_devices.high):
            continue
        other = min(rest, key=lambda entry: entry.cost_usd)
        found = [_compare_fleets(vendor, label, mix, other, terms) for label, mix in own.items()]
        # With the same number of engineers for each, the fleet with the highest break-even is the cheapest of them.
        best = max((entry for entry in found if entry), key=lambda entry: entry.break_even_engineers, default=None)
        if best is not None and best.saved_usd > 0 and best.break_even_engineers > 0:
            return best
    return None


def _compare_fleets(vendor: str, label: str, mix: Mix, other: Mix, terms: BillingTerms) -> PeopleBreakEven | None:
    """Compare a vendor's fleet with the cheapest fleet without the vendor; None if the vendor's nodes never serve."""
    billed, stack = _billed_time(mix, vendor, terms), terms.resolved.stack_of(vendor)
    if not billed.years:
        return None
    year_usd = terms.resolved.plan.money.engineer_usd_per_year.value
    assumed = billed.engineers(stack.engineers.value, stack.engineers_per_1000_devices.value)
    free_usd = mix.cost_usd - assumed * billed.years * year_usd
    return PeopleBreakEven(
        vendor=vendor,
        label=label,
        saved_usd=_without_people(other, terms) - _without_people(mix, terms),
        break_even_engineers=(other.cost_usd - free_usd) / (billed.years * year_usd),
        assumed_engineers=assumed,
        given=_staff(stack) != _staff(default_stack(vendor)),
    )


def _staff(stack: StackPlan) -> tuple[float, float]:
    return stack.engineers.value, stack.engineers_per_1000_devices.value


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
