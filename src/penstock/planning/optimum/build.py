"""How does a plan become a problem? Prices, power and people turned into dollars per node, period by period."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.economics.finance import MONTHS_PER_YEAR, Finance
from penstock.economics.line import Line, total_usd
from penstock.economics.rent import rented
from penstock.economics.tco import Ownership, Site, StackCosts, owned, people, people_by_device
from penstock.planning.asked.plan import PartPlan, Plan, SitePlan, WorkloadPlan
from penstock.planning.asked.resolve import Resolved
from penstock.planning.candidates.search import Candidate
from penstock.planning.optimum.problem import Demand, Offer, Problem, ReplicaKind, Tier

DAYS_PER_YEAR: Final = 365.25
_EPSILON_YEARS: Final = 1e-9
_HOST_DEVICES: Final = 8
"""A host is priced around eight devices; a smaller node takes its share of one."""

Period = tuple[float, float]
"""First and last moment in years from the start."""


def periods_of(plan: Plan) -> tuple[Period, ...]:
    """Cut the horizon where the fleet may change: once, unless demand grows or something is delivered later."""
    moves = any(workload.growth_per_year.value for workload in plan.workloads)
    waits = any(part.available is not None and part.available > plan.start for part in plan.parts)
    step = (plan.step_months or 12) / MONTHS_PER_YEAR if plan.step_months or moves or waits else plan.horizon_years
    count = max(1, ceil(plan.horizon_years / step - _EPSILON_YEARS))
    return tuple((number * step, min((number + 1) * step, plan.horizon_years)) for number in range(count))


def peak_requests_per_s(workload: WorkloadPlan, period: Period) -> float:
    """The highest rate of a period: at its end where demand grows, at its start where it shrinks."""
    growth = 1 + workload.growth_per_year.value
    return workload.peak_requests_per_s * float(max(growth ** period[0], growth ** period[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingTerms:
    """What nodes and people cost under one reading of the plan's inputs: the one place dollars per node come from."""

    resolved: Resolved
    finance: Finance
    periods: tuple[Period, ...]
    load_fraction: float

    @property
    def horizon_years(self) -> float:
        """The end."""
        return self.periods[-1][1]

    def bought(
        self, part: PartPlan, site: SitePlan, level: int, period: int, *, nodes: float = 1.0
    ) -> tuple[Line, ...]:
        """Bill nodes bought in a period at a price level and kept to the end."""
        accelerator = self.resolved.accelerators[part.id]
        price = part.buy.value if part.buy is not None else 0.0
        off = (0.0, *(discount.fraction for discount in part.discounts))[level]
        node, span = self.resolved.plan.node, (self.periods[period][0], self.horizon_years)
        terms = Ownership(
            label=f"{part.id} at {site.name}",
            devices=accelerator.node.devices,
            device_usd=price * (1 - off),
            host_usd=node.host_usd.value * accelerator.node.devices / _HOST_DEVICES,
            network_usd_per_device=node.network_usd_per_device.value,
            node_watts=self.resolved.power[part.id].node_watts,
            serving_watts=self.resolved.power[part.id].serving_watts,
            idle_fraction=node.idle_power.value,
            load_fraction=self.load_fraction,
            annual_failure_fraction=node.annual_failures.value,
        )
        stack = self.stack(accelerator.vendor)
        bill = owned(terms, nodes=nodes, period_years=span, site=_site(site), stack=stack, finance=self.finance)
        return (*bill, *self._by_device(accelerator, nodes, span))

    def rented(self, part: PartPlan, site: SitePlan, period: int, *, nodes: float = 1.0) -> tuple[Line, ...]:
        """Bill nodes rented for a period."""
        accelerator = self.resolved.accelerators[part.id]
        bill = rented(
            f"{part.id} at {site.name}, rented",
            nodes=nodes,
            devices=accelerator.node.devices,
            usd_per_device_hour=part.rent.value if part.rent is not None else 0.0,
            period_years=self.periods[period],
            finance=self.finance,
        )
        return (*bill, *self._by_device(accelerator, nodes, self.periods[period]))

    def people(self, vendor: str, period: int) -> tuple[Line, ...]:
        """Bill the engineers a vendor takes at all in a period."""
        return people(self.stack(vendor), period_years=self.periods[period], finance=self.finance)

    def stack(self, vendor: str) -> StackCosts:
        """A vendor's people and contracts."""
        entry, money = self.resolved.stack_of(vendor), self.resolved.plan.money
        return StackCosts(
            vendor=vendor,
            engineers=entry.engineers.value,
            engineers_per_1000_devices=entry.engineers_per_1000_devices.value,
            engineer_usd_per_year=money.engineer_usd_per_year.value,
            support_usd_per_device_year=entry.support_usd_per_device_year.value,
        )

    def _by_device(self, accelerator: Accelerator, nodes: float, span: Period) -> tuple[Line, ...]:
        return people_by_device(
            self.stack(accelerator.vendor),
            devices=nodes * accelerator.node.devices,
            period_years=span,
            finance=self.finance,
        )


def terms_of(resolved: Resolved) -> BillingTerms:
    """Read the plan's money, periods and mean load."""
    plan = resolved.plan
    weights = [_tokens_per_s(workload) for workload in plan.workloads]
    mean = sum(w * entry.mean_load.value for w, entry in zip(weights, plan.workloads, strict=True)) / sum(weights)
    return BillingTerms(
        resolved=resolved,
        finance=Finance(
            discount_rate_fraction=plan.money.discount_rate.value,
            depreciation_years=plan.money.depreciation_years.value,
            salvage_fraction=plan.money.salvage.value,
        ),
        periods=periods_of(plan),
        load_fraction=mean * plan.constraints.utilisation.value,
    )


def build_problem(
    resolved: Resolved, candidates: Sequence[Candidate], *, capacity_scale: Mapping[str, float] | None = None
) -> Problem:
    """Write down what the solver sees; `capacity_scale` multiplies what every replica of a part carries."""
    plan, terms = resolved.plan, terms_of(resolved)
    scale = capacity_scale or {}
    offers = tuple(
        _offer(terms, part, site)
        for part in plan.parts
        for site in plan.sites
        if not _denied(site, resolved.accelerators[part.id])
    )
    vendors = dict.fromkeys(offer.vendor for offer in offers)
    periods = range(len(terms.periods))
    return Problem(
        periods=len(terms.periods),
        offers=offers,
        replicas=tuple(_replica(entry, scale.get(entry.accelerator.id, 1.0)) for entry in candidates),
        demands=tuple(demand for workload in plan.workloads for demand in demands_of(workload, terms.periods)),
        vendor_usd={vendor: tuple(total_usd(terms.people(vendor, period)) for period in periods) for vendor in vendors},
        site_watts={site.name: site.power_cap_watts for site in plan.sites if site.power_cap_watts is not None},
        max_nodes={part.id: part.max_nodes for part in plan.parts if part.max_nodes is not None},
        spare_nodes=plan.constraints.spare_nodes,
        utilisation_fraction=plan.constraints.utilisation.value,
        min_vendors=plan.constraints.min_vendors,
        max_vendor_share=plan.constraints.max_vendor_share,
        share_of=plan.constraints.share_of,
    )


def demands_of(workload: WorkloadPlan, periods: Sequence[Period]) -> tuple[Demand, ...]:
    """Spread a workload over its length buckets, peak by peak."""
    return tuple(
        Demand(
            key=(workload.name, number),
            requests_per_s=tuple(peak_requests_per_s(workload, period) * share.fraction for period in periods),
            tokens=share.bucket.context_tokens,
        )
        for number, share in enumerate(workload.shares)
    )


def _offer(terms: BillingTerms, part: PartPlan, site: SitePlan) -> Offer:
    accelerator = terms.resolved.accelerators[part.id]
    count = len(terms.periods)
    levels = (0, *(discount.devices for discount in part.discounts))
    tiers = tuple(
        Tier(
            min_devices=least,
            node_usd=tuple(total_usd(terms.bought(part, site, level, period)) for period in range(count)),
        )
        for level, least in enumerate(levels)
    )
    rents = tuple(total_usd(terms.rented(part, site, period)) for period in range(count))
    return Offer(
        accelerator=part.id,
        vendor=accelerator.vendor,
        site=site.name,
        devices=accelerator.node.devices,
        node_watts=terms.resolved.power[part.id].node_watts,
        tiers=tiers if part.buy is not None else (),
        rent_usd=rents if part.rent is not None else None,
        first_period=_first_period(terms, part),
    )


def _first_period(terms: BillingTerms, part: PartPlan) -> int:
    """The first period that begins when the part is there; past the end where it comes too late."""
    if part.available is None:
        return 0
    years = (part.available - terms.resolved.plan.start).days / DAYS_PER_YEAR
    later = [number for number, (start, _) in enumerate(terms.periods) if start >= years - _EPSILON_YEARS]
    return later[0] if later else len(terms.periods)


def _replica(candidate: Candidate, scale: float) -> ReplicaKind:
    return ReplicaKind(
        id=candidate.id,
        accelerator=candidate.accelerator.id,
        workload=candidate.workload,
        devices=candidate.devices,
        requests_per_s={number: rate * scale for number, rate in enumerate(candidate.rates) if rate > 0},
    )


def _denied(site: SitePlan, accelerator: Accelerator) -> bool:
    return accelerator.id in site.deny or accelerator.vendor in site.deny


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
