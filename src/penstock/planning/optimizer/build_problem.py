"""Builds the optimization problem from a plan: prices, power and people become dollars per node and period."""

from collections.abc import Mapping, Sequence

from penstock.catalog.accelerator import Accelerator
from penstock.economics.bill_line import total_usd
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.node_costs import (
    EPSILON_YEARS,
    BillingTerms,
    Period,
    delivered_years,
    terms_of,
    years_until,
)
from penstock.planning.optimizer.problem import (
    MIN_VENDOR_SHARE,
    Contract,
    Demand,
    Kept,
    Offer,
    Problem,
    ReplicaKind,
    Tier,
)
from penstock.planning.spec.plan_types import AcceleratorPlan, SitePlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved


def peak_requests_per_s(workload: WorkloadPlan, period: Period) -> float:
    """Return the highest request rate of a period: at its end if demand grows, at its start if demand shrinks."""
    growth = 1 + workload.growth_per_year.value
    return workload.peak_requests_per_s * float(max(growth ** period[0], growth ** period[1]))


def build_problem(
    resolved: Resolved, candidates: Sequence[Candidate], *, capacity_scale: Mapping[str, float] | None = None
) -> Problem:
    """Build the optimizer's problem; `capacity_scale` maps accelerator to a factor on the capacity of its replicas."""
    plan, terms = resolved.plan, terms_of(resolved)
    offers = tuple(
        _offer(terms, planned, site)
        for planned in plan.accelerators
        for site in plan.sites
        if not is_denied(site, resolved.accelerators[planned.id])
    )
    vendors = dict.fromkeys(offer.vendor for offer in offers)
    periods = range(len(terms.periods))
    return Problem(
        periods=len(terms.periods),
        offers=offers,
        replicas=tuple(_replica(entry) for entry in candidates),
        demands=tuple(demand for workload in plan.workloads for demand in demands_of(workload, terms.periods)),
        vendor_usd={vendor: tuple(total_usd(terms.people(vendor, period)) for period in periods) for vendor in vendors},
        site_watts={site.name: site.power_cap_watts for site in plan.sites if site.power_cap_watts is not None},
        max_nodes={planned.id: planned.max_nodes for planned in plan.accelerators if planned.max_nodes is not None},
        spare_nodes=plan.constraints.spare_nodes,
        utilisation_fraction=plan.constraints.utilisation.value,
        min_vendors=plan.constraints.min_vendors,
        min_vendor_share=plan.constraints.min_vendor_share or MIN_VENDOR_SHARE,
        max_vendor_share=plan.constraints.max_vendor_share,
        share_of=plan.constraints.share_of,
        gains=_gains(terms, capacity_scale or {}),
    )


def _gains(terms: BillingTerms, scale: Mapping[str, float]) -> Mapping[str, tuple[float, ...]]:
    """Map each accelerator to its capacity factor per period.

    The factor is the software gain up to the start of the period, times the accelerator's `scale`. Accelerators whose
    factor is 1 in every period are left out.
    """
    periods = range(len(terms.periods))
    return {
        ident: tuple(scale.get(ident, 1.0) * terms.gain(accelerator.vendor, period) for period in periods)
        for ident, accelerator in terms.resolved.accelerators.items()
        if scale.get(ident, 1.0) != 1.0 or terms.resolved.stack_of(accelerator.vendor).software_gain_per_year.value
    }


def demands_of(workload: WorkloadPlan, periods: Sequence[Period]) -> tuple[Demand, ...]:
    """Split a workload's peak rate over its length buckets, for each period."""
    return tuple(
        Demand(
            key=(workload.name, number),
            requests_per_s=tuple(peak_requests_per_s(workload, period) * share.fraction for period in periods),
            tokens=share.bucket.context_tokens,
        )
        for number, share in enumerate(workload.shares)
    )


def _offer(terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan) -> Offer:
    accelerator = terms.resolved.accelerators[planned.id]
    count = len(terms.periods)
    levels = (0, *(discount.devices for discount in planned.discounts))
    tiers = tuple(
        Tier(
            min_devices=least,
            node_usd=tuple(total_usd(terms.bill_bought(planned, site, level, period)) for period in range(count)),
        )
        for level, least in enumerate(levels)
    )
    rents = tuple(total_usd(terms.bill_rented(planned, site, period)) for period in range(count))
    return Offer(
        accelerator=planned.id,
        vendor=accelerator.vendor,
        site=site.name,
        devices=accelerator.node.devices,
        node_watts=terms.resolved.power[planned.id].node_watts,
        tiers=tiers if planned.buy is not None and not planned.owned_only else (),
        rent_usd=rents if planned.rent is not None else None,
        contracts=tuple(_contract(terms, planned, site, number) for number in range(len(planned.contracts))),
        kept=_kept_nodes(terms, planned, site),
        first_period=_first_period(terms, planned),
        first_bought=_period_from(terms, delivered_years(terms.resolved.plan, planned)),
        lot_nodes=accelerator.rack_nodes,
    )


def _contract(terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan, number: int) -> Contract:
    periods, months = range(len(terms.periods)), planned.contracts[number].months
    return Contract(
        months=months,
        node_usd=tuple(total_usd(terms.bill_contracted(planned, site, number, period)) for period in periods),
        spans=tuple(terms.served_periods(months, period) for period in periods),
    )


def _kept_nodes(terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan) -> Kept | None:
    plan = terms.resolved.plan
    entry = next((entry for entry in plan.owned if (entry.id, entry.site) == (planned.id, site.name)), None)
    if entry is None:
        return None
    ends = terms.horizon_years if entry.until is None else years_until(plan, entry.until)
    serving = sum(1 for _, end in terms.periods if end <= ends + EPSILON_YEARS)
    usd = tuple(total_usd(terms.bill_kept(entry, period)) for period in range(serving))
    return Kept(nodes=entry.nodes or 0, node_usd=usd, sale_usd=entry.resale_usd.value)


def _first_period(terms: BillingTerms, planned: AcceleratorPlan) -> int:
    """Return the first period at whose start the accelerator is available; if there is none, the number of periods."""
    return 0 if planned.available is None else _period_from(terms, years_until(terms.resolved.plan, planned.available))


def _period_from(terms: BillingTerms, years: float) -> int:
    later = [number for number, (start, _) in enumerate(terms.periods) if start >= years - EPSILON_YEARS]
    return later[0] if later else len(terms.periods)


def _replica(candidate: Candidate) -> ReplicaKind:
    return ReplicaKind(
        id=candidate.id,
        accelerator=candidate.accelerator.id,
        workload=candidate.workload,
        devices=candidate.devices,
        requests_per_s={number: rate for number, rate in enumerate(candidate.rates) if rate > 0},
        disaggregated=candidate.disaggregated is not None,
    )


def is_denied(site: SitePlan, accelerator: Accelerator) -> bool:
    """Return whether a site excludes an accelerator or its vendor."""
    return accelerator.id in site.deny or accelerator.vendor in site.deny
