"""Small plans many tests build: real parts and a real model, made-up capacities."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import cache

from examples import model
from penstock.catalog import load_accelerator, load_prices
from penstock.catalog.price import Price
from penstock.fleet import Deployment
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.replica_capacity import Capacity, RateCurve, cannot, length_by_length
from penstock.planning.candidates_by_workload import search_candidates
from penstock.planning.make_plan import FoundAnswer, make_plan, resolve_inputs
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.problem import Problem
from penstock.planning.plan_result import PlanResult
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.catalog_prices import api_price
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.plan_types import Bucket, Plan
from penstock.planning.spec.resolve_plan import PricesOf, Resolved, resolve
from penstock.planning.uncertainty.plan_headroom import plan_headroom
from penstock.planning.verification.serving_fleet import VerifyOf
from penstock.workload.slo import Slo

TODAY = date(2026, 11, 15)

TWO_PARTS = """
name: two parts
start: 2026-12-01
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: 40
    lengths: [{input: 1k, output: 256, share: 60%}, {input: 8k, output: 512, share: 40%}]
accelerators:
  - {id: mi300x, buy_usd: {value: 15000, low: 12000, high: 18000}, tp: [1]}
  - {id: h200, buy_usd: {value: 32000, low: 24000, high: 36000}, tp: [1]}
acquire: [buy]
"""
PEOPLE = "stacks: {amd: {engineers: {value: 2, low: 0, high: 6}}}\n"
TWO_PARTS += PEOPLE
"""Two extra engineers, however large the fleet is: people decide between the two."""

PLAIN = """
name: plain figures
start: 2027-01-01
horizon_years: 3
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: 40
    mean_load: 50%
    lengths: [{input: 1k, output: 256}]
accelerators:
  - {id: mi300x, buy_usd: 15000, node_kw: 10, tp: [1], discounts: [{devices: 64, off: 10%}]}
  - {id: h200, buy_usd: 32000, rent_usd_per_hour: 3, node_kw: 10, tp: [1]}
sites: [{name: main, usd_per_kwh: 0.1, pue: 1.2, hosting_usd_per_kw_month: 200}]
stacks:
  amd: {engineers: 2, engineers_per_1000_devices: 1, support_usd_per_device_year: 100}
  nvidia: {engineers: 0}
engineer_usd_per_year: 300000
finance: {discount_rate: 0, depreciation_years: 4, salvage: 0, resale: 100%}
node: {host_usd: 70000, network_usd_per_device: 2000, idle_power: 40%, annual_failures: 5%}
constraints: {utilisation: 80%, spare_nodes: 1}
"""
"""No interest and round numbers: a bill anybody can recompute."""


@cache
def whole_node_prices(name: str) -> tuple[Price, ...]:
    """The catalog's prices without SKUs, so that small plans rent whole nodes unless they state `instances`."""
    return tuple(replace(price, sku=None) for price in load_prices(name))


USUAL_RATES = {"mi300x": 4.0, "h200_sxm": 6.0}


def plan_of(text: str) -> Plan:
    return parse_plan(text, "plan.yaml", today=TODAY)


def capacities(
    per_device: Mapping[str, float], *, spread: float = 0.2
) -> Callable[[Deployment, Bucket, Slo], Capacity]:
    """Requests of a thousand tokens per second and device, by accelerator; longer ones in proportion."""

    def capacity_of(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        assert slo.attainment_fraction > 0
        rate = per_device.get(deployment.accelerator.id, 0.0) * deployment.parallelism.devices
        rate *= 1000 / bucket.context_tokens
        if not rate:
            return cannot("made up to be unable")
        return Capacity(
            curve=RateCurve.through(Range(value=rate, low=rate * (1 - spread), high=rate * (1 + spread))),
            tier="calibrated",
            grounds="made up",
            prefill_fraction=0.25,
        )

    return capacity_of


def resolved(text: str) -> Resolved:
    plan = plan_of(text)
    return resolve(plan, tuple(load_accelerator(part.id) for part in plan.accelerators), whole_node_prices, named=True)


def problem_of(text: str, rates: Mapping[str, float], prices_of: PricesOf) -> tuple[Resolved, Problem]:
    """Return the inputs and the optimizer's problem of a plan, on which all of its answer depends."""
    plan = plan_of(text)
    sources = Sources(
        accelerators=tuple(load_accelerator(part.id) for part in plan.accelerators),
        prices_of=prices_of,
        model_of=model,
        capacity_of=length_by_length(capacities(rates)),
        capacity_note="made-up capacities",
        api_of=api_price,
    )
    inputs, _ = resolve_inputs(plan, sources)
    confident = plan_headroom(inputs, search_candidates(inputs, sources, lambda *_: None).candidates)
    return confident.resolved, build_problem(confident.resolved, confident.candidates)


@cache
def _solved_once(text: str) -> PlanResult:
    return solved(text, again=True)


def solved(
    text: str,
    per_device: Mapping[str, float] | None = None,
    *,
    spread: float = 0.2,
    verify_of: VerifyOf | None = None,
    sizing_of: VerifyOf | None = None,
    capacity_of: Callable[[Deployment, Bucket, Slo], Capacity] | None = None,
    again: bool = False,
    found: FoundAnswer | None = None,
    prices_of: PricesOf = whole_node_prices,
) -> PlanResult:
    """Solve a plan; one with the usual capacities once per test process, unless it is to be solved again."""
    usual = not any((per_device, verify_of, sizing_of, capacity_of, found)) and spread == 0.2
    usual = usual and prices_of is whole_node_prices
    if usual and not again:
        return _solved_once(text)
    plan = plan_of(text)
    made_up = capacities(per_device or USUAL_RATES, spread=spread)
    sources = Sources(
        accelerators=tuple(load_accelerator(part.id) for part in plan.accelerators),
        prices_of=prices_of,
        model_of=model,
        capacity_of=length_by_length(capacity_of or made_up),
        capacity_note="made-up capacities",
        verify_of=verify_of,
        sizing_of=sizing_of,
    )
    return make_plan(plan, sources, found=found)
