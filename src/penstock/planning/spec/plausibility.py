"""Asks the user about implausible amounts in a plan before anything is computed from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.planning.spec.plan_types import AcceleratorPlan, Plan, SitePlan, WorkloadPlan
from penstock.planning.spec.sourced_inputs import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """Plausible range of an amount, generous enough for every market."""

    low: float
    high: float
    unit: str
    slip: float
    """Factor that corrects a likely mistake: an amount stated in thousands, in milliseconds or in cents."""
    other_slip: float = 1.0
    """Factor that corrects a second likely mistake; 1 if there is none."""


_KWH: Final = Likely(low=0.003, high=1.5, slip=0.01, unit="$ per kWh")
_DEVICE: Final = Likely(low=200, high=400_000, slip=1_000, unit="$ a device")
_NODE: Final = Likely(low=2_000, high=10e6, slip=1_000, unit="$ a node")
_HOUR: Final = Likely(low=0.05, high=20, slip=0.001, other_slip=1 / 8, unit="$ a device-hour")
"""Range of the hourly price of a device. An amount above this range is probably the hourly price of a whole rack or
node."""
_HOSTING: Final = Likely(low=5, high=3_000, slip=0.01, unit="$ per kW and month")
_HOST: Final = Likely(low=500, high=1e6, slip=1_000, unit="$ a host")
_NETWORK: Final = Likely(low=10, high=60_000, slip=1_000, unit="$ a device")
_ENGINEER: Final = Likely(low=3_000, high=3e6, slip=1_000, unit="$ a year")
_YEARLY: Final = Likely(low=0.5, high=60_000, slip=1_000, unit="$ per device and year")
_NODE_KW: Final = Likely(low=0.2, high=250, slip=1_000, unit="kW a node")
_CAP_KW: Final = Likely(low=1, high=5e6, slip=1_000, unit="kW")
_TPOT: Final = Likely(low=0.0005, high=3, slip=0.001, unit="s per token")
_TTFT: Final = Likely(low=0.001, high=600, slip=0.001, unit="s to the first token")
_GROWTH: Final = Likely(low=-0.9, high=3, slip=0.01, unit="times more each year")
_CHANGE: Final = Likely(low=-0.9, high=1, slip=0.01, unit="times more each year")
_E2E: Final = Likely(low=0.005, high=86_400, slip=0.001, unit="s for a whole answer")


_YEARS: Final = (2024, 2039)
"""First and last plausible year for the first day of service. None of the accelerators was available before 2024."""


def unlikely(plan: Plan) -> tuple[str, ...]:
    """Return a question for every implausible amount; missing amounts and zeros count as plausible."""
    return tuple(question for question in _questions(plan) if question)


def _questions(plan: Plan) -> Iterator[str]:
    if not _YEARS[0] <= plan.start.year <= _YEARS[1]:
        yield f"start is {plan.start}; usual are the years {_YEARS[0]} to {_YEARS[1]}"
    for workload in plan.workloads:
        yield from _slo(workload)
        yield _ask(f"{workload.name}: growth_per_year", workload.growth_per_year.value, _GROWTH)
    for accelerator in plan.accelerators:
        yield from _accelerator(accelerator)
    for site in plan.sites:
        yield from _site(site)
    for entry in plan.owned:
        yield _ask(f"owned {entry.id}: resale_usd", entry.resale_usd.value, _NODE)
        yield _ask(f"owned {entry.id}: book_usd", entry.book_usd, _NODE)
    for vendor, stack in plan.stacks.items():
        yield _ask(f"stacks {vendor}: support", stack.support_usd_per_device_year.value, _YEARLY)
        yield _ask(f"stacks {vendor}: software_gain_per_year", stack.software_gain_per_year.value, _CHANGE)
        yield _ask(f"stacks {vendor}: licence", stack.licence_usd_per_device_year.value, _YEARLY)
    yield _ask("engineer_usd_per_year", plan.money.engineer_usd_per_year.value, _ENGINEER)
    yield _ask("finance: price_change_per_year", plan.money.price_change_per_year.value, _CHANGE)
    yield _ask("node: host_usd", plan.node.host_usd.value, _HOST)
    yield _ask("node: network_usd_per_device", plan.node.network_usd_per_device.value, _NETWORK)


def _slo(workload: WorkloadPlan) -> Iterator[str]:
    slo = workload.slo
    yield _ask(f"{workload.name}: tpot", slo.tpot_s, _TPOT)
    yield _ask(f"{workload.name}: ttft", slo.ttft_s, _TTFT)
    yield _ask(f"{workload.name}: e2e", slo.e2e_s, _E2E)


def _accelerator(accelerator: AcceleratorPlan) -> Iterator[str]:
    key, likely = ("node_usd", _NODE) if accelerator.with_host else ("buy_usd", _DEVICE)
    yield _ask(f"{accelerator.id}: {key}", _of(accelerator.buy), likely)
    yield _ask(f"{accelerator.id}: rent_usd_per_hour", _of(accelerator.rent), _HOUR)
    for contract in accelerator.contracts:
        yield _ask(f"{accelerator.id}: usd_per_hour for {contract.months} months", contract.rent.value, _HOUR)
    yield _ask(
        f"{accelerator.id}: node_kw",
        None if accelerator.node_watts is None else accelerator.node_watts / 1000,
        _NODE_KW,
    )


def _site(site: SitePlan) -> Iterator[str]:
    yield _ask(f"site {site.name}: usd_per_kwh", site.usd_per_kwh.value, _KWH)
    yield _ask(f"site {site.name}: hosting_usd_per_kw_month", site.hosting_usd_per_kw_month.value, _HOSTING)
    cap = site.power_cap_watts
    yield _ask(f"site {site.name}: power_cap_kw", None if cap is None else cap / 1000, _CAP_KW)


def _of(price: Input | None) -> float | None:
    return None if price is None else price.value


def _ask(name: str, value: float | None, likely: Likely) -> str:
    """Return a question, or an empty string if the amount is plausible."""
    if not value or likely.low <= value <= likely.high:
        return ""
    meant = [value * slip for slip in (likely.slip, likely.other_slip)]
    hint = next((f"; did you mean {amount:,.6g}?" for amount in meant if likely.low <= amount <= likely.high), "")
    bounds = f"{likely.low:g} to {likely.high:,.10g}"
    return f"{name} is {value:,.6g} {likely.unit}; usual is {bounds}{hint}"
