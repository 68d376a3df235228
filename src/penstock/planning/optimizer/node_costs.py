"""Computes costs per node and per vendor for one set of input values, and the periods into which a plan is divided."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import ceil
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.economics.bill_line import Line
from penstock.economics.finance import MONTHS_PER_YEAR, Finance
from penstock.economics.rent import Term, rent_bill
from penstock.economics.tco import (
    Ownership,
    Resale,
    Site,
    StackCosts,
    ownership_bill,
    people,
    retention_bill,
    stack_by_device,
)
from penstock.planning.spec.plan_types import AcceleratorPlan, OwnedPlan, Plan, SitePlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.units import count_text

DAYS_PER_YEAR: Final = 365.25
EPSILON_YEARS: Final = 1e-9
_HOST_DEVICES: Final = 8
"""Number of devices per node that the host price assumes; a smaller node pays a proportional share of that price."""
_WORTH_A_STEP: Final = 0.001
_AGREED_YEARS: Final = 1.0
"""Years for which an hourly price without a contract stays fixed."""

USUAL_STEPS_MONTHS: Final = (3, 6, 12)
"""Months between changes of the fleet from which the default is chosen if demand moves."""
_MAX_PERIODS: Final = 4
Period = tuple[float, float]
"""Start and end of a period, in years from the start of the plan."""


def periods_of(plan: Plan) -> tuple[Period, ...]:
    """Cut the horizon into periods at the dates on which the fleet may change.

    There is one period unless the plan sets a step, demand may change, nodes arrive after the start of the plan, or
    owned nodes retire before the end of the horizon.
    """
    step = step_months(plan) / MONTHS_PER_YEAR
    count = max(1, ceil(plan.horizon_years / step - EPSILON_YEARS))
    dates = {number * step for number in range(count)}
    dates |= {
        years for planned in plan.accelerators if 0 < (years := delivered_years(plan, planned)) < plan.horizon_years
    }
    ends = {years_until(plan, entry.until) for entry in plan.owned if entry.until is not None}
    cuts = sorted(dates | {years for years in ends if 0 < years < plan.horizon_years})
    return tuple(zip(cuts, (*cuts[1:], plan.horizon_years), strict=True))


def step_months(plan: Plan) -> float:
    """Return the months between changes of the fleet; the horizon if the plan states no step and nothing changes.

    Each period is sized for its last day, so short steps save money if demand grows. The default is the shortest usual
    step that has at most `_MAX_PERIODS` periods, because the time to solve a plan grows faster than their number.
    """
    if plan.step_months is not None:
        return plan.step_months
    if demand_moves(plan):
        few = (months for months in USUAL_STEPS_MONTHS if plan.horizon_years * MONTHS_PER_YEAR <= months * _MAX_PERIODS)
        return next(few, USUAL_STEPS_MONTHS[-1])
    waits = any(planned.available is not None and planned.available > plan.start for planned in plan.accelerators)
    return MONTHS_PER_YEAR if waits else plan.horizon_years * MONTHS_PER_YEAR


def demand_moves(plan: Plan) -> bool:
    """Return whether the demand of a workload grows or falls, or may do so."""
    return any(entry.growth_per_year.value or entry.growth_per_year.uncertain for entry in plan.workloads)


def with_steps(plan: Plan) -> Plan:
    """Set the step: the default if demand moves, or a year if contracts in turn are cheaper than one term.

    The decision is made once, with the prices of the plan. Draws with other prices have the same periods.
    """
    if plan.step_months is None and demand_moves(plan):
        # Other horizons of the same plan have the same step.
        return replace(plan, step_months=round(step_months(plan)))
    if plan.step_months is None and any(_best_in_turn(planned, plan.horizon_years) for planned in plan.accelerators):
        return replace(plan, step_months=12)
    return plan


def _best_in_turn(planned: AcceleratorPlan, years: float) -> bool:
    """Return whether a sequence of terms, or hourly rent at the end, is cheaper than renewing any single term."""
    terms = [(contract.months, contract.rent.value) for contract in planned.contracts]
    terms += [] if planned.rent is None else [(1, planned.rent.value)]
    needed = ceil(years * MONTHS_PER_YEAR - EPSILON_YEARS)
    least = [0.0]
    for months in range(1, needed + 1):
        least.append(min((usd * term + least[max(0, months - term)] for term, usd in terms), default=0.0))
    alone = min((usd * term * ceil(needed / term) for term, usd in terms), default=0.0)
    return least[needed] < alone * (1 - _WORTH_A_STEP)


def years_until(plan: Plan, day: date) -> float:
    """Return the years from the start of the plan to a day."""
    return (day - plan.start).days / DAYS_PER_YEAR


def delivered_years(plan: Plan, planned: AcceleratorPlan) -> float:
    """Return when nodes ordered on the first possible day begin to serve, in years from the start of the plan.

    The result is 0 if the nodes serve from the start.
    """
    if plan.orders_from is None or planned.lead_weeks is None:
        return 0.0
    return max(0.0, years_until(plan, plan.orders_from + timedelta(weeks=planned.lead_weeks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingTerms:
    """Computes the cost of nodes and engineers for one set of input values. All costs per node are computed here."""

    resolved: Resolved
    finance: Finance
    periods: tuple[Period, ...]
    load_fraction: float

    @property
    def horizon_years(self) -> float:
        """Return the end of the last period, in years."""
        return self.periods[-1][1]

    def find(self, accelerator: str, site: str) -> tuple[AcceleratorPlan, SitePlan]:
        """Return the plan's accelerator and site with these names."""
        return accelerator_plan(self.resolved.plan, accelerator), site_of(self.resolved.plan, site)

    def bill_bought(
        self, planned: AcceleratorPlan, site: SitePlan, level: int, period: int, *, nodes: float = 1.0
    ) -> tuple[Line, ...]:
        """Bill nodes bought in a period at a price level and kept to the end."""
        accelerator = self.resolved.accelerators[planned.id]
        span = (self.periods[period][0], self.horizon_years)
        bill = ownership_bill(
            self._ownership(planned, f"{planned.id} at {site.name}", level, span[0]),
            nodes=nodes,
            period_years=span,
            site=_site(site),
            stack=self.stack(accelerator.vendor),
            finance=self.finance,
        )
        return (*bill, *self._by_device(accelerator, nodes, span))

    def bill_kept(self, entry: OwnedPlan, period: int, *, nodes: float = 1.0) -> tuple[Line, ...]:
        """Bill one period of nodes, or of single devices, that are owned already."""
        planned, site = accelerator_plan(self.resolved.plan, entry.id), site_of(self.resolved.plan, entry.site)
        accelerator, span = self.resolved.accelerators[planned.id], self.periods[period]
        bill = retention_bill(
            self._ownership(planned, f"{planned.id} at {site.name}, kept", 0, 0.0, devices=entry.unit_devices),
            self.resale(entry),
            nodes=nodes,
            period_years=span,
            site=_site(site),
            stack=self.stack(accelerator.vendor),
            finance=self.finance,
        )
        return (*bill, *self._by_device(accelerator, nodes, span, entry.unit_devices))

    def resale(self, entry: OwnedPlan) -> Resale:
        """Return the resale value over time of a node that is owned already."""
        ends = self.horizon_years if entry.until is None else years_until(self.resolved.plan, entry.until)
        return Resale(today_usd=entry.resale_usd.value, ends_years=ends)

    def _ownership(
        self, planned: AcceleratorPlan, label: str, level: int, years: float, *, devices: int | None = None
    ) -> Ownership:
        """Return the ownership costs of a node at its purchase date; the host is free if the price includes it.

        If `devices` is given, the costs are of a part of a node with that many devices.
        """
        whole, node = self.resolved.accelerators[planned.id].node.devices, self.resolved.plan.node
        devices = devices or whole
        price = planned.buy.value * self._price_factor(years) if planned.buy is not None else 0.0
        off = (0.0, *(discount.fraction for discount in planned.discounts))[level]
        power = self.resolved.power[planned.id]
        return Ownership(
            label=label,
            devices=devices,
            device_usd=price * (1 - off),
            host_usd=0.0 if planned.with_host else node.host_usd.value * devices / _HOST_DEVICES,
            network_usd_per_device=node.network_usd_per_device.value,
            node_watts=power.node_watts * devices / whole,
            serving_watts=power.serving_watts * devices / whole,
            idle_fraction=node.idle_power.value,
            load_fraction=self.load_fraction,
            annual_failure_fraction=node.annual_failures.value,
        )

    def _price_factor(self, years: float) -> float:
        return float((1 + self.resolved.plan.money.price_change_per_year.value) ** years)

    def bill_rented(
        self, planned: AcceleratorPlan, site: SitePlan, period: int, *, nodes: float = 1.0, devices: int | None = None
    ) -> tuple[Line, ...]:
        """Bill one period of nodes, or of instances with `devices` devices, that are rented by the hour."""
        label, rent = f"{planned.id} at {site.name}, rented", 0.0 if planned.rent is None else planned.rent.value
        units = (nodes, devices or self.resolved.accelerators[planned.id].node.devices)
        return self._rent_lines(planned, label, rent, self.periods[period], units, agreed_years=_AGREED_YEARS)

    def bill_contracted(
        self,
        planned: AcceleratorPlan,
        site: SitePlan,
        number: int,
        period: int,
        *,
        nodes: float = 1.0,
        devices: int | None = None,
    ) -> tuple[Line, ...]:
        """Bill nodes on a contract that begins in the given period, until the contract's last term ends.

        If `devices` is given, instances with that many devices are billed.
        """
        contract = planned.contracts[number]
        start, end = self.periods[period]
        term = Term(months=contract.months)
        span = (start, term.ends_years(start, end - start))
        label = f"{planned.id} at {site.name}, {count_text(contract.months, 'month')}"
        units = (nodes, devices or self.resolved.accelerators[planned.id].node.devices)
        return self._rent_lines(planned, label, contract.rent.value, span, units, agreed_years=term.years)

    def served_periods(self, contract_months: int, period: int) -> int:
        """Return the number of whole periods that a contract covers."""
        start, end = self.periods[period]
        ends = Term(months=contract_months).ends_years(start, end - start)
        return sum(1 for _, until in self.periods[period:] if until <= ends + EPSILON_YEARS)

    def _rent_lines(
        self,
        planned: AcceleratorPlan,
        label: str,
        usd: float,
        span: Period,
        units: tuple[float, int],
        *,
        agreed_years: float,
    ) -> tuple[Line, ...]:
        """Bill `units`, which are a number of nodes or instances and the devices of one of them."""
        accelerator, (nodes, devices) = self.resolved.accelerators[planned.id], units
        bill = rent_bill(
            label,
            nodes=nodes,
            devices=devices,
            usd_per_device_hour=usd * self._rent_factor(span, agreed_years),
            period_years=span,
            finance=self.finance,
        )
        # A contract may be paid beyond the plan. Engineers are billed within the plan only, like a vendor's fixed
        # engineers.
        served = (span[0], min(span[1], self.horizon_years))
        return (*bill, *self._by_device(accelerator, nodes, served, devices))

    def _rent_factor(self, span: Period, agreed_years: float) -> float:
        """Return the mean price factor of a rent over all its renewals, weighted by the years paid at each price."""
        agreed = [span[0] + agreed_years * n for n in range(max(1, ceil((span[1] - span[0]) / agreed_years - 1e-6)))]
        paid = [self.finance.paid_years(begun, min(begun + agreed_years, span[1])) for begun in agreed]
        if not sum(paid):
            return self._price_factor(span[0])
        return sum(self._price_factor(begun) * years for begun, years in zip(agreed, paid, strict=True)) / sum(paid)

    def gain(self, vendor: str, period: int) -> float:
        """Return the capacity of a vendor's replicas in a period, relative to their capacity today."""
        gain = self.resolved.stack_of(vendor).software_gain_per_year.value
        return float((1 + gain) ** self.periods[period][0])

    def people(self, vendor: str, period: int) -> tuple[Line, ...]:
        """Bill the extra engineers that a fleet with any node of the vendor needs in a period."""
        return people(self.stack(vendor), period_years=self.periods[period], finance=self.finance)

    def stack(self, vendor: str) -> StackCosts:
        """Return a vendor's costs of engineers, support and licences."""
        entry, money = self.resolved.stack_of(vendor), self.resolved.plan.money
        return StackCosts(
            vendor=vendor,
            engineers=entry.engineers.value,
            engineers_per_1000_devices=entry.engineers_per_1000_devices.value,
            engineer_usd_per_year=money.engineer_usd_per_year.value,
            support_usd_per_device_year=entry.support_usd_per_device_year.value,
            licence_usd_per_device_year=entry.licence_usd_per_device_year.value,
        )

    def _by_device(
        self, accelerator: Accelerator, nodes: float, span: Period, devices: int | None = None
    ) -> tuple[Line, ...]:
        return stack_by_device(
            self.stack(accelerator.vendor),
            devices=nodes * (devices or accelerator.node.devices),
            period_years=span,
            finance=self.finance,
        )


def terms_of(resolved: Resolved) -> BillingTerms:
    """Build the billing terms from the plan's money, periods and mean load."""
    plan = resolved.plan
    weights = [_tokens_per_s(workload) for workload in plan.workloads]
    mean = sum(w * entry.mean_load.value for w, entry in zip(weights, plan.workloads, strict=True)) / sum(weights)
    return BillingTerms(
        resolved=resolved,
        finance=Finance(
            discount_rate_fraction=plan.money.discount_rate.value,
            depreciation_years=plan.money.depreciation_years.value,
            salvage_fraction=plan.money.salvage.value,
            resale_fraction=plan.money.resale.value,
        ),
        periods=periods_of(plan),
        load_fraction=mean * plan.constraints.utilisation.value,
    )


def accelerator_plan(plan: Plan, ident: str) -> AcceleratorPlan:
    """Return the plan's entry for an accelerator."""
    return next(planned for planned in plan.accelerators if planned.id == ident)


def site_of(plan: Plan, name: str | None) -> SitePlan:
    """Return the plan's site with this name."""
    return next(site for site in plan.sites if site.name == name)


def _site(site: SitePlan) -> Site:
    return Site(
        name=site.name,
        usd_per_kwh=site.usd_per_kwh.value,
        pue=site.pue.value,
        hosting_usd_per_kw_month=site.hosting_usd_per_kw_month.value,
    )


def _tokens_per_s(workload: WorkloadPlan) -> float:
    tokens = sum(share.fraction * share.bucket.context_tokens for share in workload.shares)
    return workload.peak_requests_per_s * tokens
