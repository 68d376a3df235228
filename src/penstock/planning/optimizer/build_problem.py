"""Builds the optimization problem from a plan: prices, power and people become dollars per node and period."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

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
    DEVICE,
    MIN_VENDOR_SHARE,
    Contract,
    Demand,
    Kept,
    Offer,
    Problem,
    ReplicaKind,
    Tier,
)
from penstock.planning.spec.plan_types import AcceleratorPlan, OwnedPlan, SitePlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved

_MAX_KNOWN: Final = 2000
_KNOWN: Final[dict[tuple[object, ...], tuple[tuple[object, ...], tuple[Offer, ...]]]] = {}
"""Maps the identity of everything that offers depend on to these parts and to the offers."""


def peak_requests_per_s(workload: WorkloadPlan, period: Period) -> float:
    """Return the highest request rate of a period: at its end if demand grows, at its start if demand shrinks."""
    growth = 1 + workload.growth_per_year.value
    return workload.peak_requests_per_s * float(max(growth ** period[0], growth ** period[1]))


def build_problem(
    resolved: Resolved, candidates: Sequence[Candidate], *, capacity_scale: Mapping[str, float] | None = None
) -> Problem:
    """Build the optimizer's problem; `capacity_scale` maps accelerator to a factor on the capacity of its replicas."""
    plan, terms = resolved.plan, terms_of(resolved)
    sizes = {(entry.accelerator.id, entry.devices) for entry in candidates}
    offers = tuple(
        offer
        for planned in plan.accelerators
        for site in plan.sites
        if not is_denied(site, resolved.accelerators[planned.id])
        for offer in _known_offers(terms, planned, site, tuple(sorted(size for at, size in sizes if at == planned.id)))
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
        headroom=resolved.headroom,
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


def _known_offers(
    terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan, replica_devices: tuple[int, ...]
) -> tuple[Offer, ...]:
    """Return the offers of an accelerator at a site, from the cache if nothing that they depend on has changed.

    Most changed inputs of a plan belong to one accelerator, and the offers of all others stay the same.
    """
    plan, accelerator = terms.resolved.plan, terms.resolved.accelerators[planned.id]
    power, stack = terms.resolved.power[planned.id], terms.resolved.stack_of(accelerator.vendor)
    parts = (planned, site, plan.node, plan.money, plan.owned, accelerator, power, stack)
    dates = (plan.start, plan.orders_from, terms.periods, terms.finance, terms.load_fraction)
    key = (*(id(part) for part in parts), dates, replica_devices)
    if key not in _KNOWN:
        if len(_KNOWN) >= _MAX_KNOWN:
            _KNOWN.clear()
        # The parts are kept with the offers, so that no other object gets the identity of a part.
        _KNOWN[key] = parts, tuple(_offers(terms, planned, site, replica_devices))
    return _KNOWN[key][1]


def _offers(
    terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan, replica_devices: Sequence[int]
) -> Iterator[Offer]:
    """Yield the offer of whole nodes, then single devices owned already, then instances with fewer devices.

    An instance is offered in the sizes that hold a replica which fits no smaller instance.
    """
    node, single = _offer(terms, planned, site), _single_devices(terms, planned, site)
    yield node
    if single is not None:
        yield replace(
            _part_of(node, 1),
            unit=DEVICE,
            kept=single[0],
            max_replica_devices=single[1],
            rent_usd=_added_devices(terms, planned, site, replica_devices),
            rent_is_planned=False,
        )
    smaller = 0
    for size in sorted({*(planned.instances or ()), *(size for entry in planned.contracts for size in entry.sizes)}):
        if size >= node.devices or node.devices % size:
            continue
        if any(smaller < devices <= size for devices in replica_devices):
            yield _instances(terms, planned, site, node, size, smaller)
        smaller = size


def _added_devices(
    terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan, replica_devices: Sequence[int]
) -> tuple[float, ...] | None:
    """Return the cost per period of a device rented by the hour in addition to owned devices; None if none fits.

    A replica that spans several devices needs devices of one server, so devices are added only if no replica does.
    """
    if planned.rent is None or 1 not in (planned.instances or ()) or max(replica_devices, default=1) > 1:
        return None
    return tuple(total_usd(terms.bill_rented(planned, site, at, devices=1)) for at in range(len(terms.periods)))


def _part_of(node: Offer, devices: int) -> Offer:
    """Return an offer of a part of a node that can neither be bought nor rented."""
    part = devices / node.devices
    return replace(
        node,
        devices=devices,
        node_watts=node.node_watts * part,
        nodes_per_unit=part,
        tiers=(),
        rent_usd=None,
        contracts=(),
        kept=None,
        lot_nodes=1,
    )


def _instances(
    terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan, node: Offer, size: int, smaller: int
) -> Offer:
    """Return the offer of rented instances with `size` devices; replicas of up to `smaller` devices go elsewhere."""
    periods = range(len(terms.periods))
    rents = tuple(total_usd(terms.bill_rented(planned, site, period, devices=size)) for period in periods)
    hourly = planned.rent is not None and size in (planned.instances or ())
    # An offer has every contract of the plan, so that the index of a contract is the same everywhere. A contract that
    # is not sold in this size covers no period.
    contracts = [_contract(terms, planned, site, number, devices=size) for number in range(len(planned.contracts))]
    contracts = [
        found if size in entry.sizes else replace(found, spans=(0,) * len(periods))
        for found, entry in zip(contracts, planned.contracts, strict=True)
    ]
    return replace(
        _part_of(node, size),
        unit=f"x{size}",
        rent_usd=rents if hourly else None,
        contracts=tuple(contracts),
        min_replica_devices=smaller + 1,
        max_replica_devices=size,
    )


def _contract(
    terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan, number: int, *, devices: int | None = None
) -> Contract:
    periods, months = range(len(terms.periods)), planned.contracts[number].months
    return Contract(
        months=months,
        node_usd=tuple(
            total_usd(terms.bill_contracted(planned, site, number, period, devices=devices)) for period in periods
        ),
        spans=tuple(terms.served_periods(months, period) for period in periods),
    )


def _owned_entry(terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan) -> OwnedPlan | None:
    owned = terms.resolved.plan.owned
    return next((entry for entry in owned if (entry.id, entry.site) == (planned.id, site.name)), None)


def _single_devices(terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan) -> tuple[Kept, int] | None:
    """Return single devices owned already and the devices of their largest server; None if there are none."""
    entry = _owned_entry(terms, planned, site)
    return None if entry is None or entry.unit_devices is None else (_kept_of(terms, entry), entry.largest_server or 1)


def _kept_nodes(terms: BillingTerms, planned: AcceleratorPlan, site: SitePlan) -> Kept | None:
    entry = _owned_entry(terms, planned, site)
    return None if entry is None or entry.unit_devices is not None else _kept_of(terms, entry)


def _kept_of(terms: BillingTerms, entry: OwnedPlan) -> Kept:
    plan = terms.resolved.plan
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
