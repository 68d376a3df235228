"""What the solver sees is the plan: periods, peaks, and a node's dollars recomputed by hand."""

import pytest

from penstock.economics.bill_line import Item, Line, total_usd
from penstock.planning.optimizer.build_problem import build_problem, demands_of, peak_requests_per_s
from penstock.planning.optimizer.node_costs import (
    BillingTerms,
    periods_of,
    terms_of,
)
from penstock.planning.optimizer.problem import NODE, Offer
from penstock.planning.spec.plan_types import AcceleratorPlan
from small_plans import PLAIN, TWO_PARTS, plan_of, resolved, solved

YEARS, HOURS = 3, 8760


def terms() -> BillingTerms:
    return terms_of(resolved(PLAIN))


def planned(ident: str) -> AcceleratorPlan:
    return next(entry for entry in terms().resolved.plan.accelerators if entry.id == ident)


def offer(text: str, accelerator: str) -> Offer:
    return next(entry for entry in build_problem(resolved(text), ()).offers if entry.accelerator == accelerator)


def amounts(lines: tuple[Line, ...]) -> dict[Item, float]:
    found = {line.item: line.usd for line in lines}
    assert len(found) == len(lines)
    return found


def test_the_horizon_is_one_period_unless_something_changes_in_it() -> None:
    grows = PLAIN.replace("mean_load: 50%", "mean_load: 50%\n    growth_per_year: 20%")
    waits = PLAIN.replace("{id: mi300x, ", "{id: mi300x, available: 2027-06-01, ")
    assert periods_of(plan_of(PLAIN)) == ((0, 3),)
    assert periods_of(plan_of(grows)) == periods_of(plan_of(waits)) == ((0, 1), (1, 2), (2, 3))
    assert periods_of(plan_of(grows.replace("horizon_years: 3", "horizon_years: 2.5"))) == ((0, 1), (1, 2), (2, 2.5))
    assert periods_of(plan_of(PLAIN + "step_months: 18\n")) == ((0, 1.5), (1.5, 3))


@pytest.mark.parametrize(("years", "months"), [(1, 3), (2, 6), (3, 12), (5, 12)])
def test_growing_demand_changes_the_fleet_in_few_steps(years: int, months: int) -> None:
    grows = PLAIN.replace("mean_load: 50%", "mean_load: 50%\n    growth_per_year: 20%")
    periods = periods_of(plan_of(grows.replace("horizon_years: 3", f"horizon_years: {years}")))
    assert [end - start for start, end in periods] == pytest.approx([months / 12] * (years * 12 // months))


def test_a_period_is_planned_for_its_highest_rate() -> None:
    def rate(growth: str, period: tuple[float, float]) -> float:
        text = PLAIN.replace("mean_load: 50%", f"mean_load: 50%\n    growth_per_year: {growth}")
        return peak_requests_per_s(plan_of(text).workloads[0], period)

    assert rate("50%", (1, 2)) == pytest.approx(40 * 1.5**2)
    assert rate("-50%", (1, 2)) == pytest.approx(40 * 0.5)


def test_a_workload_is_spread_over_its_lengths() -> None:
    short, long = demands_of(plan_of(TWO_PARTS).workloads[0], ((0, 3),))
    assert (short.key, short.tokens) == (("chat", 0), 1024 + 256)
    assert (long.key, long.tokens) == (("chat", 1), 8192 + 512)
    assert (*short.requests_per_s, *long.requests_per_s) == pytest.approx((40 * 0.6, 40 * 0.4))


def test_the_mean_load_weighs_workloads_by_their_tokens() -> None:
    second = """  - name: batch
    model: llama-3.1-8b
    slo: tpot=200ms
    requests_per_s: 10
    mean_load: 100%
    lengths: [{input: 4k, output: 1k}]
accelerators:"""
    chat, batch = 40 * (1024 + 256), 10 * (4096 + 1024)
    mean = (chat * 0.5 + batch * 1.0) / (chat + batch)
    assert terms_of(resolved(PLAIN.replace("accelerators:", second))).load_fraction == pytest.approx(mean * 0.8)


def test_a_bought_node_line_by_line() -> None:
    lost = 1 - (1 - 3 / 4)
    average_kw = 10 * (0.4 + 0.6 * 0.5 * 0.8)
    power = average_kw * HOURS * 0.1 * YEARS
    lines = amounts(terms().bill_bought(planned("mi300x"), terms().resolved.plan.sites[0], 0, 0))
    assert lines == {
        Item.SILICON: pytest.approx(8 * 15_000 * lost),
        Item.HOST: pytest.approx(70_000 * lost),
        Item.NETWORK: pytest.approx(8 * 2_000 * lost),
        Item.POWER: pytest.approx(power),
        Item.COOLING: pytest.approx(power * (1.2 - 1)),
        Item.HOSTING: pytest.approx(10 * 200 * 12 * YEARS),
        Item.SUPPORT: pytest.approx(8 * 100 * YEARS),
        Item.FAILURES: pytest.approx(8 * 0.05 * 15_000 * YEARS),
        Item.SOFTWARE: pytest.approx(8 / 1000 * 300_000 * YEARS),
    }
    assert offer(PLAIN, "mi300x").tiers[0].node_usd == pytest.approx((sum(lines.values()),))


def test_a_discount_is_off_the_devices_bought_and_bought_again_and_nothing_else() -> None:
    full, reduced = offer(PLAIN, "mi300x").tiers
    assert (full.min_devices, reduced.min_devices) == (0, 64)
    off = 0.1 * 15_000 * (8 * 0.75 + 8 * 0.05 * YEARS)
    assert full.node_usd[0] - reduced.node_usd[0] == pytest.approx(off)


def test_a_rented_node_is_its_hours() -> None:
    assert offer(PLAIN, "h200_sxm").rent_usd == pytest.approx((8 * 3 * HOURS * YEARS,))
    assert offer(PLAIN + "acquire: [buy]\n", "h200_sxm").rent_usd is None


def test_engineers_are_the_vendors_and_not_the_nodes() -> None:
    problem = build_problem(resolved(PLAIN), ())
    assert problem.vendor_usd == {"amd": pytest.approx((2 * 300_000 * YEARS,)), "nvidia": (0,)}
    assert total_usd(terms().people("amd", 0)) == pytest.approx(2 * 300_000 * YEARS)


def test_a_part_serves_from_the_first_period_that_begins_with_it_there() -> None:
    def first(day: str) -> int:
        return offer(PLAIN.replace("{id: mi300x, ", f"{{id: mi300x, available: {day}, "), "mi300x").first_period

    assert [first(day) for day in ("2027-01-01", "2027-01-02", "2028-01-01", "2029-06-01")] == [0, 1, 1, 3]


def test_a_denied_part_is_not_offered_at_that_site() -> None:
    two = PLAIN.replace("sites: [", "sites: [{name: abroad, deny: [amd]}, ")
    keys = {entry.key for entry in build_problem(resolved(two), ()).offers}
    assert keys == {("mi300x", "main", NODE), ("h200_sxm", "main", NODE), ("h200_sxm", "abroad", NODE)}


def test_a_factor_on_capacity_moves_every_replica_of_that_part_and_no_other() -> None:
    result = solved(TWO_PARTS)
    scaled = build_problem(result.resolved, result.candidates, capacity_scale={"mi300x": 0.5})
    for before, after in zip(result.problem.replicas, scaled.replicas, strict=True):
        factor = 0.5 if before.accelerator == "mi300x" else 1.0
        for bucket in before.requests_per_s:
            assert scaled.rate_of(after, bucket, 0) == factor * result.problem.rate_of(before, bucket, 0)
